"""Decision rules of other tools, with which ours is compared.

Owns the rules only, reduced to the decision. Each has its best layout: both arms interleaved in the
same processes of the same job. None has a history, and none was built to gate fifty cases together.
Samples are ``100 ln(seconds)``, [runs, cases, launches, samples]; answers are true if head is
called slower.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from benchmarks.noise_models import Singles

Flags = NDArray[np.bool_]
Counts = NDArray[np.intp]
Answer = tuple[Flags, Counts]
"""The cases that are called slower, and the number of launches that each used."""

_LEVEL = 0.05
_NVBENCH_GAP = 0.5
_PINPOINT_UNKNOWN, _PINPOINT_ATTEMPTS = 0.25, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """A rule with its sampling: at most `launches` process pairs with `samples` per arm in each."""

    name: str
    launches: int
    samples: int
    decide: Callable[[Singles, Singles], Answer]


def _all_used(flags: Flags, base: Singles) -> Answer:
    return flags, np.full(flags.shape, base.shape[-2], dtype=np.intp)


def _ratio(limit: float, centre: Callable[..., Singles]) -> Callable[[Singles, Singles], Answer]:
    """Return a rule: slower if the ratio of two single figures is beyond `limit`."""

    def decide(base: Singles, head: Singles) -> Answer:
        difference = centre(head[..., 0, :], axis=-1) - centre(base[..., 0, :], axis=-1)
        return _all_used(np.asarray(difference > 100 * math.log(limit)), base)

    return decide


def _mann_whitney(base: Singles, head: Singles) -> Answer:
    """Decide as benchstat: one value per run of the binary, two-sided Mann-Whitney at 0.05.

    It has no threshold.
    """
    base_means, head_means = base.mean(axis=-1), head.mean(axis=-1)
    p, sign = _rank_sum(base_means, head_means)
    return _all_used((p < _LEVEL) & (sign > 0), base)


def _rank_sum(base: Singles, head: Singles) -> tuple[Singles, Singles]:
    """Return the two-sided p of the rank sums over the last axis, and which side is higher.

    By the normal approximation with continuity correction.
    """
    n = base.shape[-1]
    wins = np.sum(head[..., :, None] > base[..., None, :], axis=(-2, -1))
    centred = wins - n * n / 2
    z = np.maximum(np.abs(centred) - 0.5, 0) / math.sqrt(n * n * (2 * n + 1) / 12)
    return np.asarray(2 * ndtr(-z), dtype=np.float32), np.asarray(
        np.sign(centred), dtype=np.float32
    )


def _student(base: Singles, head: Singles) -> Answer:
    """Decide as `pyperf compare_to`: a t test at 95 % over all values of all processes.

    The values are treated as if they were independent.
    """
    base_values, head_values = (side.reshape(*side.shape[:-2], -1) for side in (base, head))
    n = base_values.shape[-1]
    error = np.sqrt((base_values.var(axis=-1, ddof=1) + head_values.var(axis=-1, ddof=1)) / n)
    limit = float(stdtrit(2 * n - 2, 1 - _LEVEL / 2))
    return _all_used(
        np.asarray(head_values.mean(axis=-1) - base_values.mean(axis=-1) > limit * error), base
    )


def _overlap(base: Singles, head: Singles) -> Answer:
    """Decide as nvbench-compare.

    Head is slower if the intervals [least, upper quartile] don't touch and are at least 0.5 %
    apart.
    """
    gap = head[..., 0, :].min(axis=-1) - np.quantile(base[..., 0, :], 0.75, axis=-1)
    return _all_used(np.asarray(gap > _NVBENCH_GAP), base)


def _pinpoint(different: float) -> Callable[[Singles, Singles], Answer]:
    """Return Pinpoint's rule: ten attempts a side and ten more while unknown.

    p is the lesser of Kolmogorov-Smirnov and Mann-Whitney. Different at 0.01 in Pinpoint itself.
    Its table for "same" is simulated; unknown is taken to end at 0.25 here.
    """
    return partial(_attempts, different)


def _attempts(different: float, base: Singles, head: Singles) -> Answer:
    flags = np.zeros(base.shape[:2], dtype=np.bool_)
    used = np.zeros(base.shape[:2], dtype=np.intp)
    going = ~flags
    for attempts in range(_PINPOINT_ATTEMPTS, base.shape[2] + 1, _PINPOINT_ATTEMPTS):
        base_used, head_used = base[going, :attempts, 0], head[going, :attempts, 0]
        p, sign = _rank_sum(base_used, head_used)
        p = np.minimum(p, _smirnov(base_used, head_used))
        used[going] = attempts
        flags[going] = (p <= different) & (sign > 0)
        going[going] = (p > different) & (p <= _PINPOINT_UNKNOWN)
    return flags, used


def _smirnov(base: Singles, head: Singles) -> Singles:
    """Return the exact two-sided two-sample p for equal sizes.

    ``2 sum_j (-1)^(j-1) C(2n, n - jk) / C(2n, n)`` for D = k / n: Gnedenko & Korolyuk 1951,
    https://en.wikipedia.org/wiki/Kolmogorov-Smirnov_test#Two-sample_Kolmogorov-Smirnov_test.
    """
    n = base.shape[-1]
    order = np.argsort(np.concatenate([base, head], axis=-1), axis=-1)
    steps = np.cumsum(np.where(order < n, 1, -1), axis=-1)
    tails = [1.0]
    for k in range(1, n + 1):
        terms = ((-1) ** (j - 1) * math.comb(2 * n, n - j * k) for j in range(1, n // k + 1))
        tails.append(min(1.0, 2 * sum(terms) / math.comb(2 * n, n)))
    return np.asarray(
        np.array(tails, dtype=np.float32)[np.abs(steps).max(axis=-1)], dtype=np.float32
    )


ANCHORS = (
    Anchor(
        name="github-action-benchmark, 200 %", launches=1, samples=30, decide=_ratio(2.0, np.mean)
    ),
    Anchor(name="ratio of two means, 105 %", launches=1, samples=30, decide=_ratio(1.05, np.mean)),
    Anchor(name="TorchBench, 7 %", launches=1, samples=10, decide=_ratio(1.07, np.median)),
    Anchor(name="HF minimum of 3, 5 %", launches=1, samples=3, decide=_ratio(1.05, np.min)),
    Anchor(name="dynamo median of 30, 5 %", launches=1, samples=30, decide=_ratio(1.05, np.median)),
    Anchor(name="benchstat Mann-Whitney", launches=10, samples=1, decide=_mann_whitney),
    Anchor(name="pyperf t test", launches=20, samples=3, decide=_student),
    Anchor(name="nvbench-like overlap", launches=1, samples=20, decide=_overlap),
    Anchor(name="Pinpoint-like", launches=40, samples=1, decide=_pinpoint(0.01)),
    Anchor(name="Pinpoint-like at 0.001", launches=40, samples=1, decide=_pinpoint(0.001)),
)
