"""Detection of a training that learned nothing, from its losses and gradient norms. Pure.

A training that stands still agrees with every other that does, so its agreement says nothing.
"""

import math
from collections.abc import Sequence

import numpy as np

from ci_bench.judge.parity.runs import Floats

LEAST_STEPS = 10
_STILL, _GUESSING = 1e-6, 1e-3
"""The range of the losses, as a share of their mean: a constant but for rounding, and the noise of
batches around a guess.
"""
_NEAR = 1e-3
"""The share by which a loss may miss ln(V)."""
_MOST_CLASSES = 1_000_000
_TREND = 3.0
_PLACEHOLDERS = (-1.0, 0.0)


def why_unlearned(losses: Sequence[float | None], norms: Sequence[float | None] = ()) -> str:
    """Explain why a training cannot have learned.

    Empty if nothing says so, or fewer than ten losses are numbers.

    Losses in nats per example and global gradient norms, one a step; `norms` may be empty.
    """
    values, sizes = _finite(losses), _finite(norms)
    if len(values) < LEAST_STEPS:
        return ""
    reasons = (
        _placeholders("loss", values),
        _standstill(values),
        _placeholders("gradient norm", sizes),
    )
    return next(filter(None, reasons), "")


def _placeholders(name: str, values: Floats) -> str:
    if len(values) < LEAST_STEPS or not np.isin(values, _PLACEHOLDERS).all():
        return ""
    if name == "gradient norm" and not values.any():
        return "every gradient norm is exactly 0"
    return f"every {name} is {_list_values(values)}, a placeholder"


def _standstill(values: Floats) -> str:
    mean, spread = float(values.mean()), float(values.max() - values.min())
    if spread <= _STILL * abs(mean):
        return f"the loss never moves: it is {mean:.6g} at every step{_guess(mean)}"
    if spread <= _GUESSING * abs(mean) and not _has_trend(values) and _guess(mean):
        return f"the loss stays at {mean:.6g} from the first step to the last{_guess(mean)}"
    return ""


def _finite(values: Sequence[float | None]) -> Floats:
    numbers = [value for value in values if value is not None and math.isfinite(value)]
    return np.asarray(numbers, dtype=np.float64)


def _list_values(values: Floats) -> str:
    return " or ".join(f"{value:g}" for value in sorted({*values.tolist()}))


def _has_trend(values: Floats) -> bool:
    """Return whether the first and last thirds' mean losses differ beyond three standard errors."""
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    error = math.sqrt((first.var(ddof=1) + last.var(ddof=1)) / third)
    return abs(float(first.mean() - last.mean())) > _TREND * error


def _guess(mean: float) -> str:
    """Return ``, which is ln 5: a guess among 5 classes``; empty if it is not such a logarithm."""
    if not 0 < mean <= math.log(_MOST_CLASSES):
        return ""
    classes = round(math.exp(mean))
    near = classes > 1 and abs(math.log(classes) - mean) <= _NEAR * mean
    return f", which is ln {classes:,}: a guess among {classes:,} classes" if near else ""
