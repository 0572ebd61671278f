"""Against a run of another moment: what all times share is taken off, told, and judged by itself."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judge_builders import judged, launches, metric, result, results, sampled
from scipy.stats import binom

from ci_bench.judge.times.screening import (
    LEAST_TIMES,
    _Limits,
    _looks_worse,
    _ratio_verdict,
    _what_to_do,
    median_interval,
    shared_drift,
)
from ci_bench.judge.times.suspicion import NoiseSource, Suspicion, suspicion_of_one
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy, Rule, Severity, SuitePolicy
from ci_bench.records.results import Lane

FACTORS = (1.0, 0.995, 1.004, 1.002, 0.998, 1.001)
LENIENT = Policy(drift=0.10)


def run(factors, *, suite="s", names=None, **fields):
    """A case for each factor; `names` of further metrics."""
    return [
        result(metric(sampled(by), **fields), id=f"{suite}/c{i}") for i, by in enumerate(factors)
    ]


def compare(base, head, policy=LENIENT):
    return judged(results(*head), results(*base), policy=policy)


def verdicts(comparison):
    return [pair.verdict for case in comparison.cases for pair in case.pairs]


def rules(comparison, severity=None):
    return [f.rule for f in comparison.judgement.findings if severity in {None, f.severity}]


def shifted(by, but=()):
    """All cases by a common factor, and some by one of their own on top."""
    own = dict(but)
    return run([factor * by * own.get(i, 1.0) for i, factor in enumerate(FACTORS)])


class TestTheCommonShift:
    def test_a_slower_moment_fails_no_single_metric(self):
        comparison = compare(run(FACTORS), shifted(1.08))

        assert set(verdicts(comparison)) == {Verdict.UNCHANGED}
        assert comparison.judgement.met
        (shift,) = comparison.shifts
        assert (shift.suite, shift.verdict, shift.metrics) == ("s", Verdict.INCONCLUSIVE, 6)
        assert shift.speedup == pytest.approx(1 / 1.08, rel=1e-3)
        assert "policy.drift" in shift.reason
        assert rules(comparison) == [Rule.INCONCLUSIVE]

    def test_a_uniform_slowdown_does_not_vanish(self):
        comparison = compare(run(FACTORS), shifted(1.4))

        assert [(f.rule, f.severity, f.case) for f in comparison.judgement.findings] == [
            (Rule.COMMON_SHIFT, Severity.FAIL, None)
        ]
        assert comparison.judgement.headline == ("Failed: suite s: all 6 timings 40 % slower.")

    def test_the_same_without_it_stays_clean(self):
        comparison = compare(run(FACTORS), shifted(1.0))

        assert comparison.judgement.met
        assert comparison.judgement.findings == ()
        assert [shift.verdict for shift in comparison.shifts] == [Verdict.UNCHANGED]

    def test_one_regression_in_a_slower_moment_is_found(self):
        comparison = compare(run(FACTORS), shifted(1.08, but=[(2, 1.5)]))

        assert verdicts(comparison).count(Verdict.REGRESSED) == 1
        pair = comparison.cases[2].pairs[0]
        assert pair.speedup == pytest.approx(1 / 1.62, rel=1e-3), (
            "the figure is the one that was measured"
        )
        assert "50" in pair.reason.split("; ")[1]
        assert "beyond what all times of s share" in pair.reason

    def test_one_regression_that_the_moment_hides_is_found(self):
        comparison = compare(run(FACTORS), shifted(0.8, but=[(2, 1.25)]))

        assert comparison.cases[2].pairs[0].speedup == pytest.approx(1.0, rel=1e-3)
        assert verdicts(comparison)[2] is Verdict.REGRESSED

    def test_a_uniform_improvement_fails_nothing(self):
        comparison = compare(run(FACTORS), shifted(0.5))

        assert [shift.verdict for shift in comparison.shifts] == [Verdict.IMPROVED]
        assert comparison.judgement.met

    def test_severity_is_the_suites(self):
        policy = Policy(
            drift=0.1, suites={"s": SuitePolicy(severities={Rule.COMMON_SHIFT: Severity.NOTE})}
        )

        assert compare(run(FACTORS), shifted(1.4), policy).judgement.met

    def test_each_suite_has_its_own(self):
        base = [*run(FACTORS), *run(FACTORS, suite="t")]
        head = [*shifted(1.4), *run(FACTORS, suite="t")]
        comparison = compare(base, head)

        assert {shift.suite: shift.verdict for shift in comparison.shifts} == {
            "s": Verdict.REGRESSED,
            "t": Verdict.UNCHANGED,
        }

    def test_a_few_times_have_nothing_in_common(self):
        few = LEAST_TIMES - 1
        comparison = compare(run(FACTORS[:few]), shifted(1.4)[:few])

        assert comparison.shifts == ()
        assert set(verdicts(comparison)) == {Verdict.REGRESSED}
        assert (
            compare(run(FACTORS[: few + 1]), shifted(1.4)[: few + 1]).shifts[0].metrics
            == LEAST_TIMES
            == 5
        )

    @pytest.mark.parametrize(("drift", "said"), [(0.03, False), (0.05, True), (0.06, True)])
    def test_drift_is_told_where_it_is_more_than_the_threshold(self, drift, said):
        policy = Policy(drift=drift, suites={"s": SuitePolicy(thresholds={"step_time": 0.05})})
        pair = compare(run(FACTORS[:2]), run([1.5, 1.5]), policy).cases[0].pairs[0]

        assert (pair.verdict, "the drift between two runs" in pair.reason) == (
            Verdict.REGRESSED,
            said,
        )

    def test_where_moments_do_not_drift_nothing_is_taken_off(self):
        comparison = compare(run(FACTORS), shifted(1.08), Policy(drift=0.0))

        assert comparison.shifts == ()
        assert set(verdicts(comparison)) == {Verdict.REGRESSED}

    def test_latencies_of_compilation_are_no_part_of_it(self):
        def with_compilation(cases, seconds):
            compile_time = metric(
                launches(*([seconds + i / 100] for i in range(3))), name="compile_cold"
            )
            return [result(*case.metrics, compile_time, id=case.case.id) for case in cases]

        comparison = compare(with_compilation(run(FACTORS), 10), with_compilation(shifted(1.4), 10))

        assert comparison.shifts[0].metrics == 6
        assert [
            pair.verdict
            for case in comparison.cases
            for pair in case.pairs
            if pair.metric == "compile_cold"
        ] == [Verdict.UNCHANGED] * 6

    def test_nor_is_what_one_side_has_once_per_launch(self):
        once = metric(launches(*([1.0 + i / 100] for i in range(3))), name="other")
        base = [
            result(*case.metrics, metric(sampled(1.0), name="other"), id=case.case.id)
            for case in run(FACTORS)
        ]
        head = [result(*case.metrics, once, id=case.case.id) for case in shifted(1.4)]

        assert compare(base, head).shifts[0].metrics == 6
        assert compare(head, base).shifts[0].metrics == 6

    def test_the_devices_clock_is_a_detail_that_follows_it(self):
        def both(cases):
            return [
                result(
                    *case.metrics,
                    *(
                        metric(m.launches, name="device_time", lane=Lane.DEVICE)
                        for m in case.metrics
                    ),
                    id=case.case.id,
                )
                for case in cases
            ]

        comparison = compare(both(run(FACTORS)), both(shifted(1.08)))

        assert comparison.shifts[0].metrics == 6
        assert set(verdicts(comparison)) == {Verdict.UNCHANGED}


@settings(max_examples=25, deadline=None)
@given(by=st.floats(0.5, 2.0), own=st.floats(0.3, 3.0))
def test_the_word_for_one_among_many_does_not_depend_on_what_all_share(by, own):
    assume(
        all(abs(abs(math.log(own)) - math.log(edge)) > 1e-9 for edge in (1.05, 1.10))
    )  # there rounding decides
    plain, moved = (
        compare(run(FACTORS), shifted(1.0, but=[(3, own)])),
        compare(run(FACTORS), shifted(by, but=[(3, own)])),
    )

    assert verdicts(plain) == verdicts(moved)


class TestMedianInterval:
    @pytest.mark.parametrize("size", [5, 6, 9, 20, 51])
    def test_is_the_narrowest_that_holds_its_level(self, size):
        low, high, level = median_interval(list(range(size)))
        rank = int(low)

        assert high == size - 1 - rank
        assert level == pytest.approx(1 - 2 * binom.cdf(rank, size, 0.5))
        assert level >= 0.95 or rank == 0
        assert 1 - 2 * binom.cdf(rank + 1, size, 0.5) < 0.95

    def test_of_one_value_says_little(self):
        assert median_interval([3.0]) == (3.0, 3.0, 0.5)

    @given(st.lists(st.floats(-10, 10), min_size=1, max_size=40))
    def test_holds_the_median(self, values):
        low, high, level = median_interval(sorted(values))

        assert low <= sorted(values)[len(values) // 2] <= high or math.isclose(low, high)
        assert 0 < level < 1


@pytest.mark.parametrize(
    ("low", "centre", "high", "verdict"),
    [
        (-0.3, -0.2, -0.1, Verdict.REGRESSED),
        (-0.3, -0.2, 0.0, Verdict.INCONCLUSIVE),
        (-0.3, -0.1, -0.05, Verdict.INCONCLUSIVE),
        (0.1, 0.2, 0.3, Verdict.IMPROVED),
        (0.0, 0.2, 0.3, Verdict.INCONCLUSIVE),
        (0.05, 0.1, 0.3, Verdict.INCONCLUSIVE),
        (-0.05, 0.0, 0.05, Verdict.UNCHANGED),
        (-0.06, 0.0, 0.05, Verdict.INCONCLUSIVE),
        (-0.05, 0.0, 0.06, Verdict.INCONCLUSIVE),
    ],
)
def test_the_word_for_a_ratio_by_margin_and_size(low, centre, high, verdict):
    assert _ratio_verdict((low, centre, high), 0.05, 0.1) is verdict


@pytest.mark.parametrize(
    ("logs", "told"),
    [((-0.3, -0.1, 0.1), "22.1 %"), ((0.1, 0.3, 0.5), "22.1 %"), ((-0.01, 0.0, 0.01), "5.1 %")],
)
def test_what_can_be_told_is_half_the_interval_and_the_margin_at_least(logs, told):
    assert f"only changes above {told} would show" in _what_to_do(logs, 0.05, "the limit")


FAR = _Limits(margin=math.log1p(0.05), size=math.log1p(0.25))


@pytest.mark.parametrize(
    ("logs", "worse"),
    [
        ((-0.30, -0.13, -0.01), True),
        ((-0.30, -0.13, 0.0), False),
        ((-0.20, -0.10, -0.01), False),
    ],
    ids=["beyond half of what moments differ by", "chance reaches nothing", "below half of it"],
)
def test_what_looks_worse_between_two_moments(logs, worse):
    assert _looks_worse(logs, FAR) is worse


@pytest.mark.parametrize(("details", "possible"), [((), True), (("step_time",), False)])
def test_a_detail_is_never_possibly_worse(details, possible):
    base, head = (results(result(metric(sampled(by)), details=details)) for by in (1.0, 1.15))
    (case,) = judged(head, base, policy=Policy(drift=0.25)).cases
    assert [pair.possible for pair in case.pairs] == [possible]


def test_details_take_no_share_of_what_may_be_suspected():
    """One launch a side: among fifty that gate this change would be within what chance explains."""
    tau = math.log1p(0.25)
    grown = next(
        by for by in np.arange(1.3, 6, 0.02)
        if suspicion_of_one(math.log(by), tau, NoiseSource.RUNS, gating=1) is Suspicion.SUSPECTED
    ) + 0.02  # fmt: skip
    assert (
        suspicion_of_one(math.log(grown), tau, NoiseSource.RUNS, gating=50)
        is not Suspicion.SUSPECTED
    )
    names = [f"part_{number}" for number in range(50)]

    def side(by):
        parts = (metric(launches([1.0]), name=name) for name in names)
        return results(result(metric(launches([by])), *parts, details=tuple(names)))

    (case,) = judged(side(grown), side(1.0), policy=Policy(drift=0.25)).cases
    assert case.pairs[0].verdict is Verdict.SUSPECTED


@pytest.mark.parametrize(("times", "limit"), [(1, 0.10), (4, 0.1220), (50, 0.1560)])
def test_drift_is_shared_out_over_times(times, limit):
    assert shared_drift(0.10, times) == pytest.approx(limit, abs=5e-4)


def test_unchanged_times_that_drift_by_themselves_fail_seldom():
    """Fifty times that each move by 4 % (sd): under one limit for all, one in three runs had a `regressed`."""
    rng = np.random.default_rng(3)
    moved = np.abs(np.sort(0.04 * rng.standard_normal((2000, 50)))[:, -1])
    alone, shared = (np.mean(moved > math.log1p(shared_drift(0.10, times))) for times in (1, 50))
    assert alone > 0.2
    assert shared <= 0.01
