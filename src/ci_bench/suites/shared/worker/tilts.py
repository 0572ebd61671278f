"""Groups of elements that are off in one direction: a wrong factor, a wrong row, a coarse formula.

Imports torch.

In a narrow format a rule for the norm allows as much as a rounding of every element, and a wrong
factor of one per cent is no more than that. But roundings have either sign, and cancel along the
truth; a factor does not.

Rounding to nearest, which IEEE 754 asks for by default, errs in either direction. Results that are
always the neighbour of the truth on one side were cut off, whatever the size of the error.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

GROUP, BINS = 64, 32
"""Elements of a group at least, and how many groups of elements of like size there are."""
SHARED, SHARED_BY_ALL = 2.0, 1.5
"""Roundings that all elements of a group may share (of a row's sum, of a factor), and all of a
tensor.
"""
SMALL = 2.0
"""Roundings of a usual element that small elements may be off by: they may be what is left of large
ones.
"""
TIMES_SPREAD = 6.0
"""Allowed multiple of the usual deviation of the runs' groups."""
ALONE = 1.0
"""Roundings that the elements of one row may share where other rows share none."""
OWN_SPREAD = 12.0
"""Allowed multiple of the usual row's deviation, up to `SHARED` roundings."""
SHARED_FP32 = 32.0
"""Roundings of fp32 that all elements may share, at least: of a factor that is itself a sum of some
of them.
"""
FP32_EPSILON = 2.0**-24
LEAST_DECISIVE, ONE_WAY = 128, 0.99
"""Different numbers that both directions round differently, and the share of them that goes one
way.
"""
TINY = 1e-300
Grouped = Callable[[Tensor], Tensor]


def tilt(
    candidate: Tensor, true: Tensor, others: Sequence[Tensor], epsilon: float
) -> tuple[float, float]:
    """Measure the worst group of elements that is off in one direction.

    Returns the error along the truth, and what is allowed. Rounding errors of many elements cancel
    along the truth, so a wrong factor shows far below one rounding of a number. Groups are the
    whole, each row of the first and of the last dimension, and elements of like size. A number that
    all of a group share may be rounded as well (a scale, a row's sum): `SHARED` roundings are
    allowed, and what the runs show. If the usual row shares none, one that does is an outlier, and
    `ALONE` roundings are allowed. In fp32 only the whole is a group. It may share a sum of all its
    elements in any order, off by the square root of their number.
    """
    if (
        epsilon < FP32_EPSILON
        or candidate.numel() < GROUP
        or not math.isfinite(float(candidate.sum()) + float(true.sum()))
    ):
        return 0.0, 1.0
    errors = [
        torch.nan_to_num(other - true, nan=0.0, posinf=0.0, neginf=0.0)
        for other in others
        if other is not true
    ]
    worst = (0.0, 1.0)
    groups = (
        _groups(true)
        if epsilon > FP32_EPSILON
        else [_group_all(true, max(SHARED_FP32, math.sqrt(true.numel())))]
    )
    for grouped, shared, floor in groups:
        along, size, pooled = _along(grouped, candidate - true, true, errors)
        roundings = shared
        if shared == SHARED and len(along) >= BINS:
            usual = float((along / size.clamp_min(TINY)).median()) / epsilon
            roundings = min(max(ALONE, OWN_SPREAD * usual), SHARED)
        allowed = size * roundings * epsilon + TIMES_SPREAD * torch.maximum(
            size * pooled[0], pooled[1]
        )
        allowed = (
            allowed
            + floor * epsilon * float(true.square().mean().sqrt()) * (size * size.numel()).sqrt()
        )
        share = torch.where(size > 0, along / allowed.clamp_min(TINY), 0.0)
        place = int(share.argmax())
        if not size[place] > 0:
            continue  # zeros have no direction
        figures = (
            float(along[place] / size[place].clamp_min(TINY)),
            float(allowed[place] / size[place].clamp_min(TINY)),
        )
        worst = max(worst, figures, key=lambda pair: pair[0] / pair[1])
    return worst


def _groups(true: Tensor) -> Iterator[tuple[Grouped, float, float]]:
    """Lay a tensor out in groups, each a row.

    Each group comes with the roundings that its elements share, and with those of a usual element
    by which small elements may be off. The first dimension lists samples, each computed separately.
    Columns may be small although others are large.
    """
    count = true.numel()
    yield _group_all(true, SHARED_BY_ALL)
    for dim in sorted({0, true.dim() - 1}) if true.dim() > 1 else ():
        if count >= GROUP * true.shape[dim]:
            yield partial(_rows, dim=dim), SHARED, SMALL if dim else 0.0
    if count >= GROUP * BINS:
        order = true.reshape(-1).argsort()[: count // BINS * BINS]
        yield (lambda value: value.reshape(-1)[order].reshape(BINS, -1)), SHARED, SMALL


def _group_all(true: Tensor, shared: float) -> tuple[Grouped, float, float]:
    count = true.numel()
    return (lambda value: value.reshape(1, count)), shared, 0.0


def _rows(value: Tensor, *, dim: int) -> Tensor:
    return value.movedim(dim, 0).reshape(value.shape[dim], -1)


def _along(
    grouped: Grouped, error: Tensor, true: Tensor, errors: Sequence[Tensor]
) -> tuple[Tensor, Tensor, tuple[float, Tensor]]:
    """Return each group's error along the truth, and the truth's square.

    Also the runs' usual share, and the part of theirs that is chance.
    """
    towards = grouped(true)
    size = towards.square().sum(1)
    runs = [grouped(run_error) for run_error in errors]
    shares = [(run * towards).sum(1).abs() / size.clamp_min(TINY) for run in runs]
    chance = [(run * towards).square().sum(1).sqrt() for run in runs]
    usual = float(torch.stack(shares).square().mean().sqrt()) if shares else 0.0
    luck = torch.stack(chance).amax(0) if chance else torch.zeros_like(size)
    return (grouped(error) * towards).sum(1).abs(), size, (usual, luck)


def rounded_one_way(candidate: Tensor, true: Tensor, reference: Tensor, dtype: torch.dtype) -> str:
    """Name the direction in which all numbers of a `dtype` are rounded.

    Empty if to nearest, coarser, or as the reference's are. All three are in fp64. Only numbers
    count that both directions round differently, and of equal ones one.
    """
    if not dtype.is_floating_point or dtype is torch.float64:
        return ""
    nearest = true.to(dtype).double()
    step = torch.ldexp(torch.full_like(true, torch.finfo(dtype).eps), true.frexp().exponent - 1)
    usable = (
        torch.isfinite(candidate)
        & torch.isfinite(nearest)
        & (true.abs() >= torch.finfo(dtype).tiny)
        & (nearest != true)
    )
    for words, sign in (
        ("towards zero", true.sign()),
        ("down", torch.ones_like(true)),
        ("up", -torch.ones_like(true)),
    ):
        decisive = usable & ((nearest - true) * sign > 0)
        count = int(decisive.sum())
        if count < LEAST_DECISIVE:
            continue
        ours, theirs = (
            _share_below(tensor, true, sign, step, decisive) for tensor in (candidate, reference)
        )
        if (
            ours >= ONE_WAY > theirs
            and len(torch.unique(true[decisive][: 1 << 16])) >= LEAST_DECISIVE
        ):
            return f"always rounded {words}, not to nearest"
    return ""


def _share_below(
    value: Tensor, true: Tensor, sign: Tensor, step: Tensor, decisive: Tensor
) -> float:
    """Return the share of decisive numbers that are the truth's next ones in `sign`'s direction."""
    off = (value - true) * sign
    return float((decisive & (off < 0) & (-off < step)).sum() / decisive.sum())


def one_sided(kind: str, *, extra: bool) -> str:
    """Describe the fault in a tensor that only one side has.

    Inputs are there only if a call wrote into them.
    """
    if kind in {"input", "inputs"}:
        writer, other = ("it", "the reference") if extra else ("the reference", "it")
        return f"{writer} writes into this input, and {other} leaves it alone"
    return "the reference has no such tensor" if extra else "missing"
