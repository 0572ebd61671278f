"""Loss parity over seeds against the formulas of its docstrings, seed by seed, in plain Python."""

import math
import statistics

import numpy as np
import pytest
from judge_builders import evidence, only, trace

from ci_bench.judge.times.ratios import t_quantile
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Masks, Role

SEEDS = 4


def simulated(number, *, offset, noise, growth=0.0, steps=161):
    """Losses by seed and role; candidates differ by `offset`, `noise` from seed to seed, and `growth` over the run."""
    rng = np.random.default_rng(number)
    runs = []
    for seed in range(SEEDS):
        reference = (1 + 0.01 * rng.standard_normal()) * (
            0.5 + np.exp(-np.arange(steps) / 40)
        ) + 0.002 * rng.standard_normal(steps)
        runs.append(trace(Role.REFERENCE, seed=seed, loss=reference, grad_norm=reference))
        for role, bias in ((Role.CANDIDATE, offset), (Role.OTHER_MASKS, 0.0)):
            moved = (
                bias
                + noise * rng.standard_normal()
                + (growth * np.arange(steps) / steps if role is Role.CANDIDATE else 0.0)
            )
            runs.append(trace(role, seed=seed, loss=reference * (1 + moved), grad_norm=reference))
    return runs


def plain(runs):
    """Verdict, difference, ends of its interval, and margin."""
    of = {(run.role, run.seed): run.loss for run in runs}
    tails = [statistics.fmean(of[Role.REFERENCE, seed][-50:]) for seed in range(SEEDS)]

    def apart(role):
        sides = ((of[role, seed], of[Role.REFERENCE, seed], tails[seed]) for seed in range(SEEDS))
        return [
            [(a - b) / tail for a, b in zip(one, other, strict=True)] for one, other, tail in sides
        ]

    def pooled(figure):
        ours, null = (
            [figure(one) for one in apart(Role.CANDIDATE)],
            [figure(one) for one in apart(Role.OTHER_MASKS)],
        )
        mean = statistics.fmean(ours)
        squares = sum(x**2 for x in null) + sum((x - mean) ** 2 for x in ours)
        freedom = len(null) + len(ours) - 1
        return mean, math.sqrt(squares / freedom / len(ours)), freedom

    def slope(one):
        half = one[len(one) // 2 :]
        return statistics.linear_regression(range(len(half)), half).slope * len(one)

    mean, error, freedom = pooled(lambda one: statistics.fmean(one[-50:]))
    margin = min(0.005, max(0.0025, 0.5 * statistics.stdev(tails) / statistics.fmean(tails)))
    verdict = Parity.INCONCLUSIVE
    if abs(mean) + t_quantile(0.95, freedom) * error < margin:
        drift, own, _ = pooled(slope)
        growing = abs(drift) - t_quantile(0.95, freedom) * own > margin
        verdict = Parity.INCONCLUSIVE if growing else Parity.EQUIVALENT
    elif abs(mean) - t_quantile(0.995, freedom) * error > 0:
        verdict = Parity.DIFFERENT
    half = t_quantile(0.975, freedom) * error
    return verdict, mean, mean - half, mean + half, margin


KINDS = {
    "equivalent": ({"offset": 0.0002, "noise": 0.0004}, Parity.EQUIVALENT),
    "different": ({"offset": -0.02, "noise": 0.001}, Parity.DIFFERENT),
    "uncertain": ({"offset": 0.003, "noise": 0.006}, Parity.INCONCLUSIVE),
    "growing": ({"offset": -0.015, "noise": 1e-5, "growth": 0.018}, Parity.INCONCLUSIVE),
    "shrinking": ({"offset": 0.0152, "noise": 1e-5, "growth": -0.018}, Parity.INCONCLUSIVE),
}


@pytest.mark.parametrize("steps", [100, 161, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_the_plain_one(kind, steps):
    made, usual = KINDS[kind]
    seen = []
    for number in range(6):
        runs = simulated(number, steps=steps, **made)
        found = only(evidence(*runs, masks=Masks.DIFFER))
        verdict, *figures = plain(runs)
        assert found.verdict is verdict
        assert [
            found.difference,
            found.interval.low,
            found.interval.high,
            found.limit,
        ] == pytest.approx(figures)
        assert (found.steps, found.interval.level) == (steps, 0.95)
        seen.append(verdict)
    assert usual in seen
