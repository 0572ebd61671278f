"""A candidate arm must reach its floor: the whole interval below fails, and so does a figure that is missing."""

import pytest
from judge_builders import count, judged, launches, metric, peak, result, results, sampled

from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Floor, Policy, Rule, Severity, SuitePolicy
from ci_bench.records.results import Lane, Status

ARMS = ("eager", "inductor")
SPEEDUP = Policy(floors={Floor.SPEEDUP: 1.2})
COMPRESSION = Policy(floors={Floor.COMPRESSION: 0.9})


def times(eager, inductor, **fields):
    return metric(sampled(eager), **fields), metric(sampled(inductor), arm="inductor", **fields)


def below(*metrics, policy=SPEEDUP, status=Status.OK, details=(), arms=ARMS):
    case = result(*metrics, arms=arms, status=status, details=details)
    judgement = judged(results(case), mode=BaselineMode.NONE, policy=policy).judgement
    return [f.message for f in judgement.findings if f.rule is Rule.BELOW_FLOOR]


@pytest.mark.parametrize(
    ("inductor", "messages"),
    [
        (0.5, 0),
        (1 / 1.25, 0),
        (1 / 1.201, 0),
        (1 / 1.199, 0),
        (1 / 1.1, 1),
        (2.0, 1),
    ],
    ids=["far above", "above", "just above", "not certainly below", "below", "slower than eager"],
)
def test_a_speedup_must_not_lie_below_with_its_whole_interval(inductor, messages):
    found = below(*times(1.0, inductor))

    assert len(found) == messages
    assert all(
        "inductor: the speedup of step time is" in one and "below the floor of 1.2" in one
        for one in found
    )


def test_it_fails_the_run_and_is_in_the_headline():
    judgement = judged(
        results(result(*times(1.0, 1.0), arms=ARMS)), mode=BaselineMode.NONE, policy=SPEEDUP
    ).judgement

    assert not judgement.met
    assert (
        judgement.headline
        == "Failed: a: speedup of step time over eager 1.000 (inductor), floor 1.2."
    )


def test_the_same_without_a_floor_passes():
    assert below(*times(1.0, 1.0), policy=Policy()) == []


def test_a_missing_speedup_fails():
    assert below(metric(sampled(1.0)), count(1)) == [
        "inductor: no speedup of step time is known, and it must reach 1.2"
    ]


def test_a_speedup_of_no_number_fails():
    broken = metric(launches([float("nan")] * 3), arm="inductor")

    assert below(metric(sampled(1.0)), broken) == [
        "inductor: no speedup of step time is known, and it must reach 1.2"
    ]


def test_nothing_measured_for_it_fails():
    (message,) = below(count(1), peak(1, 1))

    assert (
        message
        == "inductor: no speedup is known, and it must reach 1.2: nothing was measured for it"
    )


def test_without_an_interval_the_figure_itself_decides():
    def single(seconds, arm):
        return metric(launches([seconds] * 3), arm=arm)

    assert below(single(1.0, "eager"), single(0.5, "inductor")) == []
    assert len(below(single(1.0, "eager"), single(0.9, "inductor"))) == 1


def test_every_candidate_arm_has_to_reach_it():
    arms = ("eager", "inductor", "aot_eager")
    found = below(*times(1.0, 0.5), metric(sampled(1.0), arm="aot_eager"), arms=arms)

    assert len(found) == 1
    assert found[0].startswith("aot_eager: ")


def test_a_case_that_failed_says_so_by_itself():
    assert below(metric(sampled(1.0)), status=Status.CRASHED) == []


def test_without_a_step_time_every_gating_time_counts():
    names = (
        {"name": "query_time"},
        {"name": "part_time"},
        {"name": "device_time", "lane": Lane.DEVICE},
        {"name": "compile_warm"},
    )
    metrics = [one for fields in names for one in times(1.0, 1.0, **fields)]

    assert [message.split(" is ")[0] for message in below(*metrics, details=("part_time",))] == [
        "inductor: the speedup of query_time"
    ]


@pytest.mark.parametrize(("compiled", "messages"), [(100, 0), (105, 0), (200, 1)])
def test_compression_is_that_of_the_first_peak(compiled, messages):
    peaks = (peak(100, 100), peak(compiled, compiled, arm="inductor"))
    others = (peak(1, 1, name="peak_rss"), peak(99, 99, name="peak_rss", arm="inductor"))

    assert len(below(*peaks, *others, policy=COMPRESSION)) == messages


@pytest.mark.parametrize("launches_", [1, 2])
@pytest.mark.parametrize(("compiled", "messages"), [(100, 0), (101, 1)])
def test_what_just_reaches_its_floor_is_not_below(compiled, messages, launches_):
    peaks = peak(*[100] * launches_), peak(*[compiled] * launches_, arm="inductor")

    assert len(below(*peaks, policy=Policy(floors={Floor.COMPRESSION: 1.0}))) == messages


@pytest.mark.parametrize("arms", [("eager", "near", "far"), ("eager", "far", "near")])
def test_what_is_furthest_below_its_floor_comes_first(arms):
    taken = {"eager": 1.0, "near": 0.9, "far": 1.5}
    found = below(*(metric(sampled(taken[arm]), arm=arm) for arm in arms), arms=arms)

    assert [message.partition(":")[0] for message in found] == ["far", "near"]


def test_compression_needs_a_peak():
    assert below(*times(1.0, 1.0), policy=COMPRESSION) == [
        "inductor: no compression is known, and it must reach 0.9: nothing was measured for it"
    ]


def test_the_suites_floor_and_severity_win():
    suites = {
        "s": SuitePolicy(floors={Floor.SPEEDUP: 3.0}, severities={Rule.BELOW_FLOOR: Severity.WARN})
    }
    judgement = judged(
        results(result(*times(1.0, 0.5), arms=ARMS)),
        mode=BaselineMode.NONE,
        policy=Policy(floors={Floor.SPEEDUP: 1.0}, suites=suites),
    ).judgement

    assert [(f.rule, f.severity) for f in judgement.findings] == [(Rule.BELOW_FLOOR, Severity.WARN)]
