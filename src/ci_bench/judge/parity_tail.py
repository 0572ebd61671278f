"""The steps after those that are judged one by one: means of the loss over windows, on the scale of the perturbed runs.

Step by step, rounding soon drives long trainings apart. Means over windows stay comparable for longer, and a change that begins
late shows in them. Pure.
"""

import math
from dataclasses import replace

import numpy as np

from ci_bench.judge.parity_envelope import LIMIT, envelope_of
from ci_bench.judge.parity_runs import Floats, Twins, length, series
from ci_bench.judge.wording import percent
from ci_bench.records.comparison import Parity, ParityFinding
from ci_bench.records.results import Trace

WINDOW = 25
"""Steps of a window. The last window of a training takes the rest as well."""


def with_tail(found: ParityFinding, twins: Twins, perturbed: tuple[Trace, ...], judged: int) -> ParityFinding:
    """The finding of the first `judged` steps, extended to all steps that a perturbed run has as well.

    A window's score is ``|mean(L_cand - L_ref)| / E``. E is the largest such mean of any window of any perturbed run, and at
    least the width of the rounding envelope at the last judged step. Beyond ten, the finding is `DIFFERENT_MATH`.
    """
    end = min(twins.steps, max(map(length, perturbed)))
    if end <= judged:
        return found
    whole = tuple(trace for trace in perturbed if length(trace) >= end)
    bounds = _bounds(judged, end)
    reference = series(twins.reference, "loss", judged)
    known = np.isfinite(reference)
    width = float(envelope_of(twins, np.where(known, reference, 0.0), perturbed, "loss")[known].max())
    width = max(width, *(_largest(_differences(twins.reference, run, bounds)) for run in whole))
    differences = _differences(twins.reference, twins.candidate, bounds)
    scores = np.nan_to_num(np.abs(differences)) / width
    beyond = np.flatnonzero(scores > LIMIT)
    worst = float(scores.max())
    if not beyond.size:
        detail = f"{found.detail}; mean losses of steps {judged} to {end - 1} within {worst:.2g}"
        return replace(found, steps=twins.compared(end), detail=detail)
    first, last = bounds[int(beyond[0])]
    base = float(np.nanmean(series(twins.reference, "loss", last)[first:]))
    share = float(differences[beyond[0]]) / abs(base) if base else math.nan
    size = f"off by {percent(share)}, " if math.isfinite(share) else ""
    return replace(
        found,
        verdict=Parity.DIFFERENT_MATH,
        steps=twins.compared(end),
        detail=f"the mean loss of steps {first} to {last - 1} is {size}{worst:.3g} times "
        f"what rounding explains (limit {LIMIT:g})",
        loss_score=max(worst, found.loss_score or 0.0),
        first_step=first,
        signal="loss",
        apart_first=share if math.isfinite(share) else None,
    )


def _bounds(first: int, end: int) -> list[tuple[int, int]]:
    starts = list(range(first, max(first + 1, end - WINDOW + 1), WINDOW))
    return list(zip(starts, [*starts[1:], end], strict=True))


def _differences(reference: Trace, run: Trace, bounds: list[tuple[int, int]]) -> Floats:
    """The mean difference of the losses in each window; nan if a window has no step that both have a number for."""
    end = bounds[-1][1]
    apart = series(run, "loss", end) - series(reference, "loss", end)
    means = [apart[low:high][np.isfinite(apart[low:high])] for low, high in bounds]
    return np.asarray([values.mean() if values.size else math.nan for values in means], dtype=np.float64)


def _largest(values: Floats) -> float:
    return float(np.nan_to_num(np.abs(values)).max())
