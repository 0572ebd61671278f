"""What is open in a comparison, and what it would take: in launches and in time, or that none would help."""

from dataclasses import replace

import pytest
from judge_builders import judged, metric, result, results, sampled
from paired_builders import calibrated, paired, pairs_of, simulate

from ci_bench.judge.policy.undecided import undecided
from ci_bench.judge.wording import duration
from ci_bench.records.comparison import BaselineMode, Pair, RunVerdict, Summary, Verdict
from ci_bench.records.config import Policy
from ci_bench.records.results import Better, Check, Outcome, Status, Unit

(PLAIN,) = judged(
    results(result(metric(sampled(1.0)))), results(result(metric(sampled(1.0))))
).cases
SIDE = Summary(median=1.0, samples=24, launches=4)


def pair(verdict=Verdict.INCONCLUSIVE, *, needed=None, threshold=0.05, **fields):
    return Pair(
        metric="step_time", arm="eager", unit=Unit.SECONDS, better=Better.LOWER, verdict=verdict, reason="", threshold=threshold,
        base=SIDE, head=SIDE, needed=needed, **fields,
    )  # fmt: skip


def case(*pairs, name="s/a", launch_s=30.0, **fields):
    return replace(PLAIN, id=name, pairs=pairs, launch_s=launch_s, **fields)


UNCHANGED = pair(Verdict.UNCHANGED)
TAKES = {
    "launches and their time": (
        [case(pair(needed=9.2), UNCHANGED)],
        "1 of 2 metrics (a): about 6 more launches would decide it, at most 3 minutes",
    ),
    "the most of any metric, the time of all cases": (
        [case(pair(needed=5), pair(needed=6)), case(pair(needed=14), name="s/b[x=1]")],
        "3 of 3 metrics (a, b): about 10 more launches would decide them, at most 6 minutes",
    ),
    "an unknown time is none": (
        [case(pair(needed=5)), case(pair(needed=5), name="s/b", launch_s=None)],
        "2 of 2 metrics (a, b): about 1 more launch would decide them",
    ),
    "no number helps": (
        [case(pair())],
        "1 of 1 metric (a): too noisy, or too close to the threshold, for any number of launches",
    ),
    "some are helped": (
        [case(pair(needed=5), pair(), pair())],
        (
            "3 of 3 metrics (a): about 1 more launch would decide 1 of them, at most 30 seconds; "
            "2 of them: too noisy, or too close to the threshold, for any number of launches"
        ),
    ),
    "what would help instead": (
        [case(pair(resolvable=0.03, threshold=0.02), pair(resolvable=0.042, threshold=0.02))],
        "2 of 2 metrics (a): too noisy to see 2 % here, only changes above 4.2 % would show",
    ),
    "no threshold that anybody sets": (
        [case(pair(resolvable=0.03, threshold=0.02), pair(resolvable=256.0, threshold=0.02))],
        "2 of 2 metrics (a): too noisy to see 2 % here",
    ),
    "thresholds that differ": (
        [case(pair(resolvable=0.03, threshold=0.02), pair(resolvable=0.11))],
        "2 of 2 metrics (a): too noisy here, only changes above 11 % would show",
    ),
    "a change as large as its threshold": (
        [case(pair(resolvable=0.03))],
        "1 of 1 metric (a): too close to the threshold for any number of launches",
    ),
    "many cases": (
        [case(pair(needed=5), name=f"s/{number}", launch_s=None) for number in range(5)],
        "5 of 5 metrics (0, 1, 2, 2 more cases): about 1 more launch would decide them",
    ),
    "as many cases as are named": (
        [case(pair(needed=5), name=f"s/{number}", launch_s=None) for number in range(3)],
        "3 of 3 metrics (0, 1, 2): about 1 more launch would decide them",
    ),
    "a detail gates nothing": ([case(pair(needed=5, detail=True), UNCHANGED)], ""),
    "what failed is told as that": ([case(pair(needed=5), head_status=Status.CRASHED)], ""),
    "all is decided": ([case(UNCHANGED)], ""),
}


@pytest.mark.parametrize(("cases", "said"), TAKES.values(), ids=TAKES)
def test_what_it_takes(cases, said):
    assert undecided(cases, BaselineMode.PAIRED) == said


def test_of_two_moments_no_launches_are_counted():
    said = undecided([case(pair())], BaselineMode.FILE)
    assert said == "1 of 1 metric (a): too noisy between runs at different moments"


@pytest.mark.parametrize("slower", [1.0, 1.015])
@pytest.mark.parametrize("cold", [False, True])
def test_as_many_launches_as_are_said_do_decide(cold, slower):
    calibration = None if cold else calibrated()
    planted = {(2, "step_time", "inductor"): slower}
    options = {"calibration": calibration, "policy": Policy(default_threshold=0.01)}
    few = paired(*simulate(3, cases=3, launches=1, slower=planted), **options)
    asked = [found.needed for found in pairs_of(few).values() if found.needed is not None]
    assert few.judgement.verdict is RunVerdict.UNDECIDED
    enough = paired(*simulate(3, cases=3, launches=round(max(asked)), slower=planted), **options)
    assert enough.judgement.verdict is (RunVerdict.FAILED if slower > 1 else RunVerdict.PASSED)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "1 second"),
        (59, "59 seconds"),
        (61, "1 minute"),
        (60, "1 minute"),
        (3000, "50 minutes"),
        (3600, "1 hours"),
        (5400, "1.5 hours"),
        (360_000, "1e+02 hours"),
    ],
)
def test_a_time_for_people(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("base_s", "mode", "launch_s"),
    [
        (20.0, BaselineMode.PAIRED, 10.0),
        (20.0, BaselineMode.FILE, 6.0),
        (None, BaselineMode.PAIRED, None),
        (None, BaselineMode.FILE, 6.0),
    ],
)
def test_a_launch_takes_as_long_as_on_all_sides_that_this_run_measured(base_s, mode, launch_s):
    head, base = (
        results(replace(result(metric(sampled(1.0, count=5))), duration_s=seconds))
        for seconds in (30.0, base_s)
    )
    (case,) = judged(head, base, mode=mode).cases
    assert case.launch_s == launch_s


@pytest.mark.parametrize("launches", [1, 2, 3])
def test_five_times_slower_is_suspected_after_few_launches_on_a_machine_that_nobody_calibrated(
    launches,
):
    slower = {(2, "step_time", "inductor"): 5.0}
    found = pairs_of(paired(*simulate(3, cases=3, launches=launches, slower=slower)))
    assert found[2, "step_time", "inductor"].verdict is Verdict.SUSPECTED
    others = {
        pair.verdict for key, pair in found.items() if key[2] == "eager" and key[1] == "step_time"
    }
    assert others <= {Verdict.INCONCLUSIVE, Verdict.UNCHANGED}


@pytest.mark.parametrize("launches", [1, 2, 3, 4])
@pytest.mark.parametrize("slower", [1.03, 1.05, 1.2])
def test_a_slowdown_that_a_budget_left_undecided_is_not_passed(launches, slower):
    """After as many launches as there was time for; the same code after five passes, so that it is not for want of those."""
    comparison = paired(
        *simulate(3, cases=3, launches=launches, slower={(2, "step_time", "inductor"): slower})
    )
    assert pairs_of(comparison)[2, "step_time", "inductor"].verdict in {
        Verdict.INCONCLUSIVE,
        Verdict.SUSPECTED,
    }
    assert comparison.judgement.verdict is not RunVerdict.PASSED


def test_peaks_of_memory_that_a_budget_left_out_are_not_passed():
    left_out = Check(
        name="within_budget",
        arm="eager",
        outcome=Outcome.UNKNOWN,
        detail="the budget of 60 s was spent before",
    )
    timed = result(metric(sampled(1.0, count=5)))
    whole = judged(results(timed), results(timed))
    assert whole.judgement.verdict is RunVerdict.PASSED
    cut = results(replace(timed, checks=(left_out,)))
    answer = judged(cut, cut)
    assert answer.judgement.verdict is RunVerdict.UNDECIDED
    assert any("within_budget" in finding.message for finding in answer.judgement.findings)


def test_nobody_is_sent_for_more_launches_than_a_run_may_take():
    noisy = pairs_of(
        paired(*simulate(11, cases=2, launches=8, noise=8.0), calibration=calibrated())
    )
    found = [
        pair
        for pair in noisy.values()
        if pair.verdict is Verdict.INCONCLUSIVE and pair.metric == "step_time"
    ]
    assert found
    assert all(pair.needed is None for pair in found)
    assert any("would take more than 16 launches" in pair.reason for pair in found)


def test_of_a_case_that_measured_nothing_no_launch_has_a_time():
    (case,) = judged(
        *(results(replace(result(), duration_s=30.0)) for _ in range(2)), mode=BaselineMode.PAIRED
    ).cases
    assert case.launch_s is None
