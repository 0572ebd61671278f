"""What is seen of a card's queue: from the first kernel to the end of the last, at work and idle."""

import pytest
import yaml
from benchmarks.card_idle import Idle
from benchmarks.card_quality import CONFIG, SHORT


def seen(*queued):
    """`queued` is when the queue will be empty, and for how long kernels will have run by then (s)."""
    idle = Idle()
    for moment in queued:
        idle.see(*moment)
    return idle


def test_what_is_between_kernels_is_idle_and_nothing_before_the_first_and_after_the_last():
    idle = seen((90.0, 0.0), (100.5, 0.5), (100.5, 0.5), (101.0, 1.0), (104.0, 2.0), (104.0, 2.0))
    assert (idle.wall_s, idle.busy_s) == (4.0, 2.0)
    assert idle.share == 0.5
    assert idle.stretches == [2.0]


def test_a_queue_that_is_never_empty_is_never_idle():
    idle = seen(*((10.0 + second, second) for second in range(1, 5)))
    assert (idle.share, idle.stretches) == (0.0, [])


def test_stretches_are_told_apart_by_how_long_they_are_and_add_up():
    idle = seen((1.0, 1.0), (2.005, 2.0), (2.055, 2.0 + 1e-9), (3.5, 3.0), (9.5, 4.0))
    classes = idle.classes()
    assert {name: count for name, (count, _) in classes.items()} == {
        "under 10 ms": 1,
        "10 to 100 ms": 1,
        "0.1 to 1 s": 1,
        "1 s and longer": 1,
    }
    assert sum(seconds for _, seconds in classes.values()) == pytest.approx(
        idle.wall_s - idle.busy_s
    )


def test_a_card_that_did_nothing_has_no_share():
    assert (seen().share, seen().wall_s) == (0.0, 0.0)


def test_a_gate_that_samples_as_usual_says_nothing_of_samples():
    short, usual = (yaml.safe_load(text)["run"] for text in (CONFIG, CONFIG.replace(SHORT, "")))
    assert {name: value for name, value in short.items() if name not in usual} == {
        "sample_s": 0.01,
        "blocks": 5,
        "most_blocks": 5,
    }
    assert usual == {"device": "cuda", "threads": 1, "explain": "never"}
