"""The fuzzer itself: it finds what is planted, counts honestly over several calls, and its inputs are many and repeatable."""

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.fuzz_child import FINDING, Figures, run_child
from benchmarks.fuzz_mutator import MAX_BYTES, MOST_TEXT, Herd, mutate, slim
from benchmarks.fuzz_targets import TARGETS, Target

from benchmarks import fuzz, fuzz_child

RESULTS = TARGETS["results"].seeds()[0]


def test_changes_are_many_bounded_and_the_same_for_a_seed():
    made = [mutate(RESULTS, random.Random(number)) for number in range(200)]
    assert len({*made}) > 190
    assert max(map(len, made)) <= MAX_BYTES
    assert made[:5] == [mutate(RESULTS, random.Random(number)) for number in range(5)]


@pytest.mark.parametrize(
    "name", ["results", "config", "worker's answers", "format google-benchmark"]
)
def test_a_herd_gives_many_inputs_the_same_for_a_seed_and_keeps_its_documents(name):
    herd = Herd(TARGETS[name].seeds())
    made = [herd.draw(random.Random(number)) for number in range(400)]
    assert len({*made}) > 300
    assert max(map(len, made)) <= MAX_BYTES
    assert made == [herd.draw(random.Random(number)) for number in range(400)]
    assert made == [
        Herd(TARGETS[name].seeds()).draw(random.Random(number)) for number in range(400)
    ]


def test_half_of_what_a_herd_gives_is_json_that_no_parser_stops():
    herd = Herd([RESULTS])
    made = [herd.draw(random.Random(number)) for number in range(400)]
    assert 200 < sum(map(is_json, made)) < 360


def is_json(content):
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def test_a_large_document_is_thinned_out_where_that_is_accepted():
    large = json.dumps({"a": [{"b": [*range(50)]}] * 99}).encode()
    assert len(large) > MOST_TEXT
    assert json.loads(slim(large, lambda _: True)) == {"a": [{"b": [0, 1]}] * 2}
    assert slim(large, lambda _: False) == large
    assert slim(b"[1, 2, 3]", lambda _: True) == b"[1, 2, 3]"


def refused(content):
    """A reader with a defect: it falls over a byte that a text may not hold."""
    if b"\xff" in content:
        raise KeyError("planted")
    return True


def test_a_planted_defect_is_found_and_its_input_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(
        fuzz_child,
        "TARGETS",
        {"planted": Target(name="planted", feed=refused, seeds=lambda: (b"abc",))},
    )
    assert run_child("planted", "own", 10_000, 1, tmp_path) == FINDING
    kept = (tmp_path / "figures.json").read_text()
    assert "KeyError: 'planted'" in kept
    assert "\\\\xff" in kept


def test_an_input_that_takes_too_long_is_a_finding(tmp_path, monkeypatch):
    def slow(content):
        while content != b"abc":
            pass
        return True

    monkeypatch.setattr(fuzz_child, "LIMIT_S", 1)
    monkeypatch.setattr(
        fuzz_child, "TARGETS", {"slow": Target(name="slow", feed=slow, seeds=lambda: (b"abc",))}
    )
    assert run_child("slow", "own", 10, 1, tmp_path) == FINDING
    assert "one input took more than" in (tmp_path / "figures.json").read_text()


def test_the_command_counts_and_tells_and_goes_on_where_it_ended(tmp_path, capsys, monkeypatch):
    kept = tmp_path / "fuzz.json"
    monkeypatch.chdir(Path(fuzz.__file__).parents[1])
    told = []
    for inputs in ("1200", "2000", "2000"):
        assert (
            fuzz.main(["--target", "worker's answers", "--resume", str(kept), "--inputs", inputs])
            == 0
        )
        told.append(capsys.readouterr().out)
    assert "| 1,200  |" in told[0]
    assert "| 2,000  |" in told[1]
    assert told[2] == ""  # there is nothing to do any more
    stretches = json.loads(kept.read_text())["stretches"]
    assert [(one["inputs"], one["seed"]) for one in stretches] == [(1200, 1), (800, 2)]


def test_a_total_is_the_sum_of_its_stretches_and_keeps_the_worst():
    one = Figures(
        target="a",
        engine="own",
        seed=1,
        inputs=10,
        accepted=4,
        seconds=1.5,
        slowest_s=0.2,
        grown_bytes=7,
    )
    two = Figures(
        target="a",
        engine="own",
        seed=2,
        inputs=5,
        accepted=1,
        seconds=1.0,
        slowest_s=0.1,
        finding="it broke",
    )
    guided = Figures(target="a", engine="atheris", seed=1, inputs=3)
    whole, other = fuzz.totals([one, guided, two])
    assert asdict(whole) == {
        **asdict(two), "inputs": 15, "accepted": 5, "seconds": 2.5, "slowest_s": 0.2, "grown_bytes": 7, "finding": "it broke",
    }  # fmt: skip
    assert other == guided
