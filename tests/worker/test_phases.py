"""Where the seconds of a stage go."""

import pytest

from ci_bench.records.results import Phase, Spent
from ci_bench.worker.phases import Stopwatch, add_up, whole


def spent(phase: Phase, seconds: float, *, stage: str = "time", arm: str = "") -> Spent:
    return Spent(stage=stage, phase=phase, arm=arm, seconds=seconds)


def test_phases_are_summed_by_arm() -> None:
    moments = iter([0.0, 1.0, 1.0, 3.0, 3.0, 3.5])
    watch = Stopwatch(now=lambda: next(moments))
    for phase, arm in ((Phase.BUILD, "a"), (Phase.SAMPLES, "a"), (Phase.BUILD, "a")):
        with watch.phase(phase, arm):
            pass
    assert watch.read("time") == (
        spent(Phase.BUILD, 1.5, arm="a"),
        spent(Phase.SAMPLES, 2.0, arm="a"),
    )


def test_a_phase_that_fails_has_taken_its_time_too() -> None:
    moments = iter([0.0, 2.0])
    watch = Stopwatch(now=lambda: next(moments))
    with pytest.raises(KeyError), watch.phase(Phase.CHECKS):
        raise KeyError
    assert watch.read("verify") == (spent(Phase.CHECKS, 2.0, stage="verify"),)


def test_what_the_worker_does_not_tell_is_the_rest() -> None:
    told = (spent(Phase.SAMPLES, 2.0, arm="a"), spent(Phase.CHECKS, 1.0))
    assert whole("time", told, rest=Phase.HAND_OVER, seconds=5.0) == (
        *told,
        spent(Phase.HAND_OVER, 2.0),
    )


@pytest.mark.parametrize(
    "told",
    [
        spent(Phase.SAMPLES, 9.0),
        spent(Phase.SAMPLES, -1.0),
        spent(Phase.SAMPLES, float("nan")),
        spent(Phase.SAMPLES, 1.0, stage="x"),
    ],
    ids=["longer than the stage", "negative", "no number", "of another stage"],
)
def test_what_cannot_be_is_dropped(told) -> None:
    assert whole("time", (told,), rest=Phase.HAND_OVER, seconds=5.0) == (
        spent(Phase.HAND_OVER, 5.0),
    )


def test_one_entry_for_each_stage_phase_and_arm() -> None:
    once = (
        spent(Phase.BUILD, 1.0),
        spent(Phase.BUILD, 1.0, arm="a"),
        spent(Phase.BUILD, 1.0, stage="alone"),
    )
    assert add_up((*once, *once)) == tuple(
        spent(one.phase, 2.0, stage=one.stage, arm=one.arm) for one in once
    )
