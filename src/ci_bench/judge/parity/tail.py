"""Steps after those judged one by one: means over windows, on the scale of the perturbed runs.

Step by step, rounding soon drives long trainings apart. Means over windows stay comparable for
longer, and a change that begins late shows in them. The rule is the same for trainings of suites
and for logs. Pure.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ci_bench.judge.parity.envelope import LIMIT, envelope_of, scaled
from ci_bench.judge.parity.runs import Floats, Twins, length, series, signals_of, step_name
from ci_bench.judge.wording import percent
from ci_bench.records.comparison import Parity, ParityFinding
from ci_bench.records.results import Trace

WINDOW = 25
"""Steps of a window. The last window of a training takes the rest as well."""
_LARGEST_SCORE = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class _Windows:
    """Scores of a signal by window, and `shares`: deviations relative to the reference."""

    signal: str
    scores: Floats
    shares: Floats

    @property
    def worst(self) -> float:
        return float(self.scores.max())

    @property
    def first(self) -> int | None:
        """Return the first window beyond the limit."""
        beyond = np.flatnonzero(self.scores > LIMIT)
        return int(beyond[0]) if beyond.size else None


def with_tail(
    finding: ParityFinding, twins: Twins, perturbed: tuple[Trace, ...], judged: int
) -> ParityFinding:
    """Extend the finding of the first `judged` steps to all others by their windows.

    A window's score is ``|mean(x_cand - x_ref)| / E``, for the loss and for the logarithm of the
    gradient norm. E is the largest such mean of any window of any perturbed run, and at least the
    width of the rounding envelope at the last judged step and that of the window's own digits.
    Beyond ten, the finding is `DIFFERENT_MATH`; `INSUFFICIENT_DATA` if no perturbed run is as long.
    """
    if twins.steps <= judged:
        return finding
    bounds = _bounds(judged, twins.steps)
    windows = [
        _windows(twins, perturbed, signal, bounds)
        for signal in signals_of(twins.reference, twins.candidate)
    ]
    worst_of = {scored.signal: scored.worst for scored in windows}
    extended = replace(
        finding,
        steps=twins.compared(),
        loss_score=_larger(finding.loss_score, worst_of.get("loss")),
        grad_norm_score=_larger(finding.grad_norm_score, worst_of.get("grad_norm")),
    )
    broken = min(
        (scored for scored in windows if scored.first is not None),
        key=lambda scored: scored.first or 0,
        default=None,
    )
    if broken is None or broken.first is None:
        means = " and ".join(_name(scored.signal, "losses", "gradient norms") for scored in windows)
        steps, worst = _steps(twins, judged, twins.steps), max(scored.worst for scored in windows)
        detail = f"mean {means} of {steps} within {worst:.2g}; {twins.compared()} steps compared"
        return replace(extended, detail=f"{finding.detail}; {detail}")
    low, high = bounds[broken.first]
    share = float(broken.shares[broken.first])
    off = f"off by {percent(share)}, " if math.isfinite(share) else ""
    of = f"the mean {_name(broken.signal, 'loss', 'gradient norm')} of {_steps(twins, low, high)}"
    detail = f"{of} is {off}{broken.worst:.3g} times what rounding explains"
    if high > (longest := max(map(length, perturbed))):
        why = f"the runs in other roundings end after {longest} steps: measure again"
        detail = f"{detail} up to there, and {why}"
        return replace(extended, verdict=Parity.INSUFFICIENT_DATA, detail=detail)
    return replace(
        extended,
        verdict=Parity.DIFFERENT_MATH,
        detail=f"{detail} (limit {LIMIT:g})",
        first_step=low,
        step=step_name(twins.candidate, low) if twins.candidate.steps else "",
        signal=broken.signal,
        apart_first=share if math.isfinite(share) else None,
    )


def _bounds(first: int, end: int) -> list[tuple[int, int]]:
    starts = list(range(first, max(first + 1, end - WINDOW + 1), WINDOW))
    return list(zip(starts, [*starts[1:], end], strict=True))


def _windows(
    twins: Twins, perturbed: tuple[Trace, ...], signal: str, bounds: list[tuple[int, int]]
) -> _Windows:
    reference, candidate, *others = (
        scaled(series(trace, signal, twins.steps), signal)
        for trace in (twins.reference, twins.candidate, *perturbed)
    )
    finite = np.isfinite(reference)
    filled = np.where(finite, reference, 0.0)
    judged = bounds[0][0]
    before = envelope_of(twins, filled[:judged], perturbed, signal)[finite[:judged]]
    spread = max(
        [
            float(before[-1]) if before.size else 0.0,
            *(_largest(_means(reference, other, bounds)) for other in others),
        ]
    )
    digits = envelope_of(twins, filled, (), signal)
    widths = [max(spread, float(digits[low:high].max())) for low, high in bounds]
    deviations, mean = (
        _means(reference, candidate, bounds),
        _means(np.zeros_like(reference), reference, bounds),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = deviations / np.abs(mean) if signal == "loss" else np.expm1(deviations)
    scores = np.minimum(np.nan_to_num(np.abs(deviations)) / widths, _LARGEST_SCORE)
    return _Windows(signal=signal, scores=scores, shares=shares)


def _means(reference: Floats, run: Floats, bounds: list[tuple[int, int]]) -> Floats:
    """Return the mean difference of each window that the run has.

    nan if no step has a number on both sides.
    """
    deviations = run - reference[: len(run)]
    windows = [deviations[low:high] if high <= len(run) else deviations[:0] for low, high in bounds]
    means = [values[np.isfinite(values)] for values in windows]
    return np.asarray(
        [values.mean() if values.size else math.nan for values in means], dtype=np.float64
    )


def _larger(score: float | None, other: float | None) -> float | None:
    return score if other is None else max(other, score or 0.0)


def _largest(values: Floats) -> float:
    return float(np.nan_to_num(np.abs(values)).max())


def _name(signal: str, loss: str, norm: str) -> str:
    return loss if signal == "loss" else norm


def _steps(twins: Twins, low: int, high: int) -> str:
    """Return ``steps 50 to 74``, by the names of a log's own steps."""
    first, last = (
        step_name(twins.candidate, step).removeprefix("step ") for step in (low, high - 1)
    )
    return f"steps {first} to {last}"
