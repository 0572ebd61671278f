"""Is a candidate's result the reference's, up to rounding? Judged tensor by tensor, on the tensor's own scale.

The truth is an fp64 run; rounding is measured, not assumed: it is the distance from the truth of eager runs in the case's own
precision, one of them unperturbed, others from weights shaken by one rounding. A candidate's error may be a multiple of the
largest of these distances, plus a few roundings of the truth's norm. Both the 2-norm and the largest element have to agree, so
that one wrong element in a large tensor cannot hide. There is no floor that is not in proportion to the tensor: gradients of
any size are judged alike. A tensor for which half its own norm would be allowed as error is called blind.

The multiple in fp32 is large, since eager adds up in pairs and generated code in a row: sums of a few hundred terms were up to
12 times farther off, and still right to six digits. In narrower formats eager rounds more often than fused code, and 3 leaves
room.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MULTIPLIER, MULTIPLIER_FP32 = 3.0, 30.0
FP32_EPSILON = 2.0**-24
ROUNDINGS = 8
BLIND = 0.5

Norm = Callable[[Tensor], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Yardstick:
    """How much may be wrong: `tolerance` is relative to the truth's norm, `multiplier` to the measured rounding."""

    tolerance: float
    multiplier: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """How far one tensor is off.

    `score` is error over allowance, above 1 is wrong. `blind` says that zeros would pass as well.
    """

    name: str
    score: float
    error: float
    allowed: float
    blind: bool
    fault: str = ""

    @property
    def wrong(self) -> bool:
        """Whether this is more than rounding. A score that is no number is wrong."""
        return bool(self.fault) or not self.score <= 1.0


def default_yardstick(epsilon: float) -> Yardstick:
    """The yardstick of a precision whose rounding is `epsilon`."""
    return Yardstick(tolerance=ROUNDINGS * epsilon, multiplier=MULTIPLIER_FP32 if epsilon <= FP32_EPSILON else MULTIPLIER)


def deviation(
    name: str, candidate: Tensor, truth: Tensor, runs: Sequence[Tensor], yardstick: Yardstick, *, start: Tensor | None = None
) -> Deviation:
    """Compare one tensor. `runs` are eager's, the unperturbed one first; type and shape have to be its.

    With a `start`, it is the change since then that is judged, and one rounding of the value itself is allowed on top.
    """
    eager = runs[0]
    fault = differing_form(candidate, eager)
    if fault:
        return _faulty(name, fault)
    begin = 0.0 if start is None else _wide(start)
    given, true, *others = (_wide(one) - begin for one in (candidate, truth, *runs))
    rounding = 0.0 if start is None else _rounding(eager)
    judged = Yardstick(tolerance=yardstick.tolerance if _is_real(eager) else 0.0, multiplier=yardstick.multiplier)
    return _judge(name, given, true, others, judged, fixed=rounding * _wide(eager))


def change(
    name: str, candidate: Tensor, ideal: Tensor, *, reference: tuple[Tensor, Tensor], start: Tensor, yardstick: Yardstick
) -> Deviation:
    """Compare what an optimizer made of a parameter with the `ideal` change (fp64) for the candidate's own gradients.

    `reference` is eager's parameter after the step and the ideal change for eager's gradients: their distance is rounding.
    """
    eager, eager_ideal = reference
    fault = differing_form(candidate, eager)
    if fault:
        return _faulty(name, fault)
    begin = _wide(start)
    given, other = _wide(candidate) - begin - ideal + eager_ideal, _wide(eager) - begin
    return _judge(name, given, eager_ideal, [other], yardstick, fixed=_rounding(eager) * begin)


def differing_form(candidate: Tensor, eager: Tensor) -> str:
    """How type or shape differ from eager's; empty where they don't."""
    if candidate.dtype == eager.dtype and candidate.shape == eager.shape:
        return ""
    found, wanted = (f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in (candidate, eager))
    return f"{found} instead of {wanted}"


def _judge(name: str, given: Tensor, true: Tensor, others: list[Tensor], yardstick: Yardstick, *, fixed: Tensor) -> Deviation:
    """All in fp64. `fixed` is what is allowed besides, element by element."""
    odd = [~torch.isfinite(one) for one in (given, true, others[0])]
    if not _same_oddities(given, odd[0], ((true, odd[1]), (others[0], odd[2]))):
        return _faulty(name, f"{int(odd[0].sum())} elements are not finite, in eager {int(odd[2].sum())}")
    keep = ~(odd[0] | odd[1] | odd[2])
    given, true, fixed, *others = (torch.where(keep, one, 0.0) for one in (given, true, fixed, *others))
    errors, limits = [], []
    for norm in (_two, _largest):
        noise = max(norm(one - true) for one in others)
        errors.append(norm(given - true))
        limits.append(yardstick.multiplier * noise + yardstick.tolerance * norm(true) + norm(fixed))
    scores = list(map(_score, errors, limits))
    worst = scores.index(max(scores))
    size = _two(true)
    blind = size > 0 and limits[0] >= BLIND * size
    return Deviation(name=name, score=scores[worst], error=errors[worst], allowed=limits[worst], blind=blind)


def _rounding(value: Tensor) -> float:
    return float(torch.finfo(value.dtype).eps) if _is_real(value) else 0.0


def _is_real(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _score(error: float, allowed: float) -> float:
    return 0.0 if error == 0 else error / allowed if allowed else float("inf")


def _faulty(name: str, fault: str) -> Deviation:
    return Deviation(name=name, score=float("inf"), error=float("inf"), allowed=0.0, blind=False, fault=fault)


def missing(name: str, *, extra: bool) -> Deviation:
    """A tensor that only one side has."""
    return _faulty(name, "eager has no such tensor" if extra else "missing")


def _same_oddities(given: Tensor, odd: Tensor, others: tuple[tuple[Tensor, Tensor], ...]) -> bool:
    """Whether what is not finite is so in the truth too, or in eager, and is the same kind of it."""
    return any(
        torch.equal(odd, theirs) and torch.equal(given[odd].nan_to_num(7.0, 8.0, 9.0), one[theirs].nan_to_num(7.0, 8.0, 9.0))
        for one, theirs in others
    )


def _wide(value: Tensor) -> Tensor:
    """In fp64, complex numbers as pairs."""
    plain = torch.view_as_real(value) if value.is_complex() else value
    return plain.to(torch.float64)


def _two(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value))


def _largest(value: Tensor) -> float:
    return float(value.abs().max()) if value.numel() else 0.0
