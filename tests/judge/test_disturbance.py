"""Samples of doubtful blocks don't decide anything while enough others remain, and never count in silence."""

from dataclasses import replace

import pytest
from judge_builders import judged
from paired_builders import calibrated, paired, pairs_of, simulate

from ci_bench.judge.times import calibration as calibrating
from ci_bench.judge.times.metrics import CHECK, alone, in_turns
from ci_bench.judge.times.sequential import SequentialRule, fixed
from ci_bench.judge.times.stopping import still_open
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy, Severity
from ci_bench.records.config import Rule as PolicyRule
from ci_bench.records.results import Block, Check, Outcome

WHY = "the GPU was throttled (hw_thermal_slowdown)"
RULE = fixed(4)


def disturbed(document, doubtful, *, by=1.0, case=0):
    """The samples of blocks [(launch, block)] of a case multiplied `by`, and the blocks marked."""
    row = document.cases[case]
    metrics = []
    for metric in row.metrics:
        launches = []
        for launch in metric.launches:
            slowed = [
                value * (by if (launch.launch, block) in doubtful else 1.0)
                for value, block in zip(
                    launch.values, launch.blocks or [None] * len(launch.values), strict=True
                )
            ]
            launches.append(replace(launch, values=tuple(slowed)))
        metrics.append(replace(metric, launches=tuple(launches)))
    blocks = tuple(
        Block(launch=launch, block=block, doubt=WHY) for launch, block in sorted(doubtful)
    )
    cases = list(document.cases)
    cases[case] = replace(row, metrics=tuple(metrics), blocks=blocks)
    return replace(document, cases=tuple(cases))


def unmarked(document):
    return replace(document, cases=tuple(replace(row, blocks=()) for row in document.cases))


SOME = {(launch, block) for launch in range(4) for block in (0, 3, 7)}
MOST = {(launch, block) for launch in range(4) for block in range(7)}


def of(comparison, case=0, arm="eager"):
    return pairs_of(comparison)[case, "step_time", arm]


@pytest.mark.parametrize("marked", ["base", "head"])
def test_what_was_taken_in_doubt_on_either_side_is_left_out_of_both(marked):
    base, head = simulate(1, cases=3)
    slow = disturbed(head, SOME, by=1.5)
    assert (
        of(paired(base, unmarked(slow), calibration=calibrated(), rule=RULE)).verdict
        is Verdict.REGRESSED
    ), "the plant works"

    if marked == "base":
        base, slow = disturbed(base, SOME), unmarked(slow)
    comparison = paired(base, slow, calibration=calibrated(), rule=RULE)

    assert of(comparison).verdict is Verdict.UNCHANGED
    assert not [check for case in comparison.cases for check in case.checks if check.name == CHECK]
    left = {
        len(launch.values)
        for side in in_turns(base, slow)
        for launch in side.cases[0].metrics[0].launches
    }
    assert left == {14}, "seven of ten blocks, two samples each, on both sides"


def test_a_real_regression_is_still_found_beside_doubtful_blocks():
    base, head = simulate(2, cases=3, slower={(0, "step_time", "eager"): 1.05})
    comparison = paired(base, disturbed(head, SOME, by=0.5), calibration=calibrated(), rule=RULE)
    assert of(comparison).verdict is Verdict.REGRESSED


def test_where_too_little_is_above_doubt_all_counts_and_is_told_of():
    base, head = simulate(3, cases=3, slower={(0, "step_time", "eager"): 1.05})
    comparison = paired(base, disturbed(head, MOST), calibration=calibrated(), rule=RULE)

    assert of(comparison).verdict is Verdict.REGRESSED
    (check,) = (check for check in comparison.cases[0].checks if check.name == CHECK)
    assert check.outcome is Outcome.UNKNOWN
    assert check.detail == f"most of launch 0, 1, 2, 3 was taken in doubt, and still counts: {WHY}"
    assert [
        found.severity
        for found in comparison.judgement.findings
        if found.rule is PolicyRule.DISTURBED
    ] == [Severity.WARN]


@pytest.mark.parametrize(
    ("doubtful", "samples", "told"), [(4, 12, False), (5, 10, False), (6, 20, True), (10, 20, True)]
)
def test_samples_above_doubt_are_enough_where_they_are_half(doubtful, samples, told):
    head = disturbed(
        simulate(3, cases=1)[1],
        {(launch, block) for launch in range(4) for block in range(doubtful)},
    )
    (row,) = alone(head).cases

    assert {
        len(launch.values)
        for metric in row.metrics
        if metric.name == "step_time"
        for launch in metric.launches
    } == {samples}
    assert [check.name for check in row.checks] == [CHECK] * told


def test_a_saved_baseline_and_head_leave_out_their_own():
    base, head = simulate(4, cases=3)
    slow = disturbed(head, SOME, by=3.0)
    assert of(judged(unmarked(slow), base)).head.samples == 80
    pair = of(judged(slow, base))
    assert (pair.base.samples, pair.head.samples) == (80, 56)
    assert alone(base) is base


def test_measuring_asks_and_learns_without_them_too():
    base, head = simulate(5, cases=3)
    doubtful = disturbed(head, SOME, by=1.06)
    options = {
        "policy": Policy(default_threshold=0.01),
        "calibration": calibrated(),
        "launches_done": 4,
        "rule": SequentialRule(),
    }
    assert "s/c0" in still_open(base, unmarked(doubtful), **options)
    assert "s/c0" not in still_open(base, doubtful, **options)

    def loudest(document):
        series = calibrating.collect(base, document, tool_version="1").series
        return max(
            abs(ratio)
            for one in series
            if (one.case, one.arm) == ("s/c0", "eager")
            for ratio in one.ratios
        )

    assert loudest(doubtful) < 0.015 < loudest(unmarked(doubtful))


def scattered(metric):
    """Return a metric whose launches lie 5 % above and below."""
    factors = (0.95, 1.05)
    apart = [
        replace(launch, values=tuple(value * factors[launch.launch % 2] for value in launch.values))
        for launch in metric.launches
    ]
    return replace(metric, launches=tuple(apart))


@pytest.mark.parametrize(("arm", "told"), [("eager", False), ("inductor", True)])
def test_an_arm_that_was_not_steady_is_told_of_where_a_metric_is_undecided(arm, told):
    """Noise kept nothing of the other arm from being seen."""
    base, head = simulate(4, cases=1)
    (row,) = head.cases
    metrics = tuple(
        scattered(metric) if metric.arm == "inductor" else metric for metric in row.metrics
    )
    check = Check(name="steady", arm=arm, outcome=Outcome.UNKNOWN, detail="not steady")
    head = replace(head, cases=(replace(row, metrics=metrics, checks=(check,)),))
    comparison = paired(base, head, calibration=calibrated(), rule=RULE)
    assert of(comparison, arm="eager").verdict is Verdict.UNCHANGED
    assert of(comparison, arm="inductor").verdict is Verdict.INCONCLUSIVE
    rules = {found.rule for found in comparison.judgement.findings}
    assert (PolicyRule.DISTURBED in rules) is told
