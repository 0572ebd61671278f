"""Estimate of outlier launches, which met a slower mode on one side. Pure.

A bad choice of an autotuner is an example.

Two or three such launches agree with each other as well as those of a true change do. Only how
often launches stray, in the history (`Learned.excursions`) or today, distinguishes them.
"""

import numpy as np
from numpy.typing import NDArray

from ci_bench.judge.times.noise import FAR, FEW_EXCURSIONS, Floats, nan_median
from ci_bench.statistics.special_functions import bdtrc

Counts = NDArray[np.intp]

TODAY_LAUNCHES = 50.0
"""Launches of today without an outlier that weigh as much as `FEW_EXCURSIONS`.

The history may be of calmer days.
"""


def today(d: Floats, spread: Floats) -> Floats:
    """Return the share of today's outlier launches, [..., 1], from [..., cases, launches].

    Of cases with two launches or more, those beyond `FAR` spreads of the median of their case, at
    most half of them. A true change moves all launches of a case alike, so it is not counted here.
    Cases whose spread is not known don't count.
    """
    count = np.isfinite(d).sum(axis=-1)
    judged = (count > 1) & np.isfinite(spread)
    launches = d[judged]
    away = np.abs(launches - nan_median(launches, axis=-1)[:, None])
    far = np.sum(away > FAR * spread[judged][:, None], axis=-1)
    strayed, counted = np.zeros(count.shape), np.where(judged, count, 0)
    strayed[judged] = np.minimum(far, count[judged] // 2)
    expected = FEW_EXCURSIONS * TODAY_LAUNCHES
    return np.asarray(
        (strayed.sum(axis=-1) + expected) / (counted.sum(axis=-1) + TODAY_LAUNCHES),
        dtype=np.float64,
    )[..., None]


def by_chance(count: Counts, share: Floats, chance: Floats | float) -> Counts:
    """Return the number of `count` launches that may be outliers on one side, all [cases].

    The least k >= 1 with ``P(Bin(count, share / 2) > k) <= chance``, at most `count`. Base strays
    as often as head does, hence half of the share for each side.
    """
    most = np.minimum(count, 1)
    while (more := (most < count) & (bdtrc(most, count, share / 2) > chance)).any():
        most = most + more
    return np.asarray(most, dtype=np.intp)


def least_launches(share: Floats, chance: float) -> Floats:
    """Return the launches below which all may be outliers on one side.

    The least r >= 2 with ``(share / 2)^r <= chance``; infinite without a chance.
    """
    if chance <= 0:
        return np.full(share.shape, np.inf)
    return np.asarray(
        np.maximum(np.ceil(np.log(chance) / np.log(share / 2)), 2.0), dtype=np.float64
    )
