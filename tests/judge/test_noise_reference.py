"""The estimators of noise against their formulas, in plain Python and case by case."""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import polygamma, psi

from ci_bench.judge.times import noise
from ci_bench.judge.times.noise import Learned


def plain_moderated(variances, freedom):
    """Smyth 2004, section 6.2, with a root finder for the inverse of trigamma; believed as much as the other cases showed."""
    pairs = [(v, f) for v, f in zip(variances, freedom, strict=True) if v > 0]
    logs = [math.log(v) - float(psi(f / 2)) + math.log(f / 2) for v, f in pairs]
    excess = statistics.variance(logs) - statistics.fmean(
        float(polygamma(1, f / 2)) for _, f in pairs
    )
    prior = (
        2 * brentq(lambda x: float(polygamma(1, x)) - excess, 1e-4, 1e7, xtol=1e-12)
        if excess > 0
        else 1e6
    )
    others = sum(f for _, f in pairs) * (len(pairs) - 1) / len(pairs)
    return math.exp(
        (statistics.fmean(logs) + float(psi(prior / 2)) - math.log(prior / 2)) / 2
    ), min(prior, others)


@pytest.mark.parametrize("freedom", [2.0, 4.0, 9.0])
@pytest.mark.parametrize("cases", [2, 3, 50])
def test_the_prior_of_many_cases_is_smyths(cases, freedom):
    rng = np.random.default_rng(cases)
    for _ in range(5):
        own = freedom + rng.integers(0, 3, cases)
        variances = (
            1e-4 * np.exp(1.5 * rng.standard_normal(cases)) * rng.chisquare(own, cases) / own
        )
        given, of = (
            np.append(variances, [np.nan, 0.0, 1.0]),
            np.append(own, [freedom, freedom, 0.0]),
        )
        assert [float(one) for one in noise.moderated(given, of)] == pytest.approx(
            plain_moderated(variances, own), rel=1e-6
        )


def test_runs_have_priors_of_their_own():
    rng = np.random.default_rng(1)
    variances = np.exp(rng.standard_normal((3, 20)))
    freedom = np.broadcast_to(np.array([[2.0], [4.0], [7.0]]), variances.shape)
    together = noise.moderated(variances, freedom)
    for run in range(3):
        assert [float(figure[run]) for figure in together] == pytest.approx(
            plain_moderated(variances[run], freedom[run]), rel=1e-6
        )


def plain_inflation(d, within, learned):
    """The larger of what samples and what launches say; of launches, the least of three scales."""

    def scale(values):
        known = [abs(value) for value in values if not math.isnan(value)]
        return 1.4826 * statistics.median(known) if len(known) >= 10 else math.nan

    def least(*figures):
        return min((one for one in figures if not math.isnan(one)), default=math.nan)

    first = [float(row[0]) for row in d]
    common = statistics.median([one for one in first if not math.isnan(one)] or [math.nan])
    steps = [
        (b - a) / (math.sqrt(2) * s)
        for row, s in zip(d, learned.spread, strict=True)
        for a, b in pairwise(row)
    ]
    launches = least(
        scale([one / s for one, s in zip(first, learned.spread, strict=True)]),
        scale([(one - common) / s for one, s in zip(first, learned.spread, strict=True)]),
        scale(steps),
    )
    own = [np.nanmedian(row) / known for row, known in zip(within, learned.within, strict=True)]
    samples = float(np.nanmedian(own))
    return max(one for one in (launches, samples, 1.0) if not math.isnan(one))


@pytest.mark.parametrize("cases", [9, 10, 11, 30])
@pytest.mark.parametrize("launches", [1, 2, 5])
@pytest.mark.parametrize(("level", "scale"), [(0.0, 3.0), (0.1, 2.0), (0.0, 0.5)])
def test_the_guard_is_the_plain_formula(cases, launches, level, scale):
    rng = np.random.default_rng(cases * launches)
    spread = np.exp(rng.uniform(-7, -4, cases))
    learned = Learned(spread=spread, freedom=np.full(cases, 20.0), within=np.full(cases, 0.01))
    d = level + scale * spread[:, None] * rng.standard_normal((cases, launches))
    within = 0.011 * np.exp(0.2 * rng.standard_normal(d.shape))
    assert noise.inflation(d, within, learned).tolist() == pytest.approx(
        [plain_inflation(d, within, learned)]
    )


def test_few_pairs_of_launches_are_believed_little_and_no_pair_shows_nothing():
    learned = noise.Learned(
        spread=np.array([0.01]), freedom=np.array([9.0]), within=np.array([np.nan])
    )

    def bound(past, runs):
        return noise.with_runs(learned, np.array(past), np.array(runs)).bound

    assert bound([[0.02, 0.025]], [0, 0]) == pytest.approx([math.sqrt(0.02 * 0.025 / 101)])
    assert bound([[-0.01, 0.02]], [0, 0]).tolist() == [0.0], "no variance is below zero"
    assert bound([[0.02, 0.025]], [0, 1]).tolist() == [0.0]
    for side in (1, -1):
        far = [[side * 0.05, side * 0.06]]
        assert bound(far, [0, 0]) == pytest.approx([math.sqrt(0.03**2 / 101)]), (
            "cut at three on either side"
        )
    assert bound(np.empty((1, 0)), np.empty(0, dtype=int)) == 0.0


def test_medians_of_rows_with_holes_and_without():
    rows = np.array([[1.0, 2.0], [np.nan, 3.0], [np.nan, np.nan], [5.0, 4.0]])
    assert noise.nan_median(rows, axis=-1).tolist() == pytest.approx(
        [1.5, 3.0, math.nan, 4.5], nan_ok=True
    )
    assert noise.nan_median(rows.T, axis=0).tolist() == pytest.approx(
        [1.5, 3.0, math.nan, 4.5], nan_ok=True
    )
    assert noise.nan_median(np.empty((3, 0)), axis=-1).tolist() == pytest.approx(
        [math.nan] * 3, nan_ok=True
    )
    assert noise.nan_median(np.empty((3, 2, 0)), axis=-1).shape == (3, 2)
