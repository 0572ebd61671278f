"""Energy per step: power by an energy counter over uninterrupted steps, times a step's duration.

A GPU's counter is updated about every 100 ms, so between two arbitrary moments it is off by as
much. Between two of its updates it is exact, so power is taken between the first and the last
update seen. If a counter gives no answer, the figure is unknown, with the reason, and never 0 J.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ci_bench.records.metrics import ENERGY_PER_ITEM, ENERGY_PER_STEP, STEP_TIME
from ci_bench.records.results import Check, Lane, Launch, Metric, Outcome

COUNTED = "energy_counted"
"""The check that reports how energy was counted, or why it was not."""
RAMP_S = 0.25
"""The time after which clocks and power are those of the work.

A counter's average then has no share of the time before.
"""
LEAST_MOVES = 8
"""The least number of the counter's moves in a stretch.

At a look every 5 ms, its ends are then known to half a per cent at steps of 100 ms.
"""
FASTER = 1.1
"""The largest ratio of a stretch's speed to the samples' for both to be the same kind of step."""
IMPOSSIBLE = 1.5
"""The largest possible ratio of a stretch's speed to the fastest sample's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnergyCount:
    """The counter of energy (J) at one moment (s, monotonic); `None` without a counter."""

    at_s: float
    joules: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """One arm of one side at work without a pause."""

    calls: int
    """Number of calls, as the worker reported it."""
    elapsed_s: float
    """Duration by the parent's clock (s)."""
    counts: tuple[EnergyCount, ...]
    """Readings of the energy counter."""
    doubt: str | None = None
    """Reason why the machine was not in its proper state; `None` if it was."""
    temperature_c: float | None = None
    """Temperature at the end (°C); `None` if it is unknown."""


class Uncountable(Exception):  # noqa: N818 - it says why the figure is missing
    """The reason why a stretch yields no power."""


def mean_power_w(counts: Sequence[EnergyCount]) -> float:
    """Return energy over time between the counter's first and last move after the ramp (W).

    Raises:
        Uncountable: no counter, the counter was reset, or it moved too seldom.
    """
    readings = [(count.at_s, count.joules) for count in counts if count.joules is not None]
    if len(readings) < len(counts) or not readings:
        message = "this machine has no energy counter"
        raise Uncountable(message)
    settled = [reading for reading in readings if reading[0] >= readings[0][0] + RAMP_S]
    if any(later < earlier for (_, earlier), (_, later) in pairwise(readings)):
        message = "the energy counter restarted"
        raise Uncountable(message)
    moves = [now for before, now in pairwise(settled) if now[1] > before[1]]
    if len(moves) < LEAST_MOVES:
        message = (
            f"the energy counter moved {len(moves)} times in"
            f" {readings[-1][0] - readings[0][0]:.2g} s: raise run.energy_s"
        )
        raise Uncountable(message)
    (begin_s, begin_j), (end_s, end_j) = moves[0], moves[-1]
    return (end_j - begin_j) / (end_s - begin_s)


def energy(
    stretches: Sequence[Stretch],
    *,
    arm: str,
    launch: int,
    reported: Sequence[Metric],
    unmet: str = "",
) -> tuple[tuple[Metric, ...], Check]:
    """Return joules per step and per item of one arm in one launch, and how they were counted.

    `reported` are the worker's metrics, `unmet` is why the stretches are missing.
    """
    steps = [
        metric
        for metric in reported
        if metric.arm == arm and metric.name == STEP_TIME.name and metric.launches[0].values
    ]
    try:
        if not stretches:
            raise Uncountable(unmet or "the worker did not get through the steps for it")  # noqa: TRY301
        joules, watts = _joules(stretches, steps[0].launches[0].values if steps else (0.0,))
    except Uncountable as reason:
        return (), Check(
            name=COUNTED, arm=arm, outcome=Outcome.UNKNOWN, detail=str(reason), informative=True
        )
    except _Untrue as reason:
        return (), Check(name=COUNTED, arm=arm, outcome=Outcome.FAIL, detail=str(reason))
    heat = [stretch.temperature_c for stretch in stretches if stretch.temperature_c is not None]
    at = f" at {max(heat):.0f} °C" if heat else ""
    elapsed_s = sum(stretch.elapsed_s for stretch in stretches)
    detail = f"{statistics.mean(watts):.4g} W{at} over {elapsed_s:.2g} s of steps"
    metrics = [ENERGY_PER_STEP.of(arm, Launch(launch=launch, values=joules), lane=Lane.DEVICE)]
    if steps and (items := steps[0].items):
        each = Launch(launch=launch, values=tuple(value / items for value in joules))
        metrics.append(ENERGY_PER_ITEM.of(arm, each, lane=Lane.DEVICE))
    return tuple(metrics), Check(
        name=COUNTED, arm=arm, outcome=Outcome.PASS, detail=detail, informative=True
    )


class _Untrue(Exception):  # noqa: N818 - it says what cannot be
    """A worker's claim that its own samples contradict."""


def _joules(
    stretches: Sequence[Stretch], samples_s: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the energy per step of each stretch (J), and its power (W)."""
    joules, watts = [], []
    for stretch in stretches:
        claim = f"{stretch.calls} steps in {stretch.elapsed_s:.3g} s"
        if stretch.calls * min(samples_s) > IMPOSSIBLE * stretch.elapsed_s:
            message = (
                f"{claim}: not possible when the fastest timed step took {min(samples_s):.3g} s"
            )
            raise _Untrue(message)
        if stretch.calls * statistics.median(samples_s) > FASTER * stretch.elapsed_s:
            message = (
                f"{claim}: faster than the timed steps, whose median is"
                f" {statistics.median(samples_s):.3g} s"
            )
            raise Uncountable(message)
        if stretch.doubt:
            raise Uncountable(stretch.doubt)
        watts.append(mean_power_w(stretch.counts))
        joules.append(watts[-1] * stretch.elapsed_s / stretch.calls)
    return tuple(joules), tuple(watts)
