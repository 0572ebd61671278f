"""Small works in equal ways, and with faults: no right result is refused, no wrong one accepted, in any precision."""

import pytest
from benchmarks.numerics_faults import FAULTS
from benchmarks.numerics_gallery import spoilt
from benchmarks.numerics_rules import make_trial, ours
from benchmarks.numerics_works import PRECISIONS, WORKS, run

from ci_bench.records.results import Outcome

pytestmark = pytest.mark.engine

CASES = [(work, precision) for work in WORKS for precision in PRECISIONS]
IDS = [f"{work.name}-{precision}" for work, precision in CASES]


@pytest.fixture(scope="module")
def trials():
    made = {}

    def trial(work, precision):
        if (work.name, precision) not in made:
            made[work.name, precision] = make_trial(work, precision, seed=0)
        return made[work.name, precision]

    return trial


@pytest.mark.parametrize(("work", "precision"), CASES, ids=IDS)
def test_every_equal_way_is_right(work, precision, trials):
    trial = trials(work, precision)
    answers = {
        name: ours(run(way, trial.numbers, precision), trial) for name, way in work.ways.items()
    }
    assert answers == dict.fromkeys(work.ways, Outcome.PASS)


@pytest.mark.parametrize(("work", "precision"), CASES, ids=IDS)
def test_every_fault_is_wrong(work, precision, trials):
    trial = trials(work, precision)
    answers = {fault.name: ours(seen, trial) for fault, seen in spoilt(trial)}
    assert len(answers) >= 18
    assert answers == dict.fromkeys(answers, Outcome.FAIL)


def test_the_gallery_is_as_large_as_it_says():
    assert sum(len(work.ways) for work in WORKS) * len(PRECISIONS) >= 100
    assert len(FAULTS) >= 20
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_the_ways_differ_in_their_roundings_or_would_show_nothing(trials):
    work = WORKS[0]
    trial = trials(work, "bf16")
    results = [run(way, trial.numbers, "bf16") for way in work.ways.values()]
    other = [
        any(not value.equal(results[0][name]) for name, value in result.items())
        for result in results[1:]
    ]
    assert sum(other) > len(other) // 2
