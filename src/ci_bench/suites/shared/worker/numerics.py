"""The rule for all suites and plugins: is a result the truth, up to rounding? Imports torch.

No part of the parent. The truth is an fp64 run of the same work. Rounding is measured, not assumed:
it is the distance from the truth of the reference's runs in the case's precision, one unperturbed,
others from numbers that are shaken by one rounding. A result's error may be a multiple of the
largest distance, plus a few roundings of the truth's size. Both the 2-norm and the largest element
must agree: one wrong element of a large tensor cannot hide. No floor is absolute.

Distances are computed in fp64. For whole numbers (tokens, indices) the number of those that differ
replaces the 2-norm. Numbers that are not finite must be so in the truth or in the reference's
unperturbed run, in the same way, and are left out of the norms.

A run may be right by chance, so its distance counts as at least the typical one of its kind (the
name before its first colon or dot), and more so in tensors of few elements. A gradient that is zero
by mathematics (a key's bias) has an error and no size, so it may have the roundings of its kind. A
tensor is *blind* if an error of half its size would be allowed. If all tensors of a kind are blind,
the answer is unknown.

The multiple is large in fp32, because eager adds in pairs and generated code in a row: sums were up
to 12 times farther off, and right. With a jolted run, the large multiple is for the last digits
only, and beyond them twice the jolt counts.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ci_bench.records.outputs import describe_deviation
from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker.casts import real_parts
from ci_bench.suites.shared.worker.optimizers import lost_by
from ci_bench.suites.shared.worker.plain_values import differing_value
from ci_bench.suites.shared.worker.tilts import one_sided, rounded_one_way, tilt

Norm = Callable[[Tensor], float]
Pair = tuple[float, float]
"""A figure in the 2-norm, and of the largest element."""
NORMED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""Of these torch has norms in fp64 without a copy in fp64."""
JOLT, JOLTED = 16.0, 1 << 20
"""Size of a jolt in roundings, and the first seed of jolted runs.

A unit's sign may depend on rounding, such as behind a ReLU. Then a gradient jumps or doesn't,
seldom in few runs. A jolted run crosses more of these kinks; smooth results move in proportion.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorMeasurement:
    """Measurements of one tensor, in fp64. A `Pair` has the 2-norm, and the largest element."""

    name: str
    """The tensor's name; the kind precedes the first colon or dot."""
    elements: int
    """The number of its elements."""
    error: Pair = (0.0, 0.0)
    """Distance of the candidate from the truth."""
    noise: Pair = (0.0, 0.0)
    """The largest distance of the reference's runs from the truth."""
    jolt: Pair | None = None
    """The same of runs that are shaken by `JOLT` roundings; `None` without any."""
    size: Pair = (0.0, 0.0)
    """Size of the truth; of whole numbers, the first is the number of elements."""
    fixed: Pair = (0.0, 0.0)
    """Allowed in addition, such as one rounding of a changed value."""
    real: bool = True
    """True for floating and complex numbers, false for whole ones."""
    exact: bool = True
    """True if the truth is in fp64, false if it is the reference's unperturbed run."""
    hidden: str = ""
    """The reason why nothing could be compared, such as a reference run that is not finite."""
    scale: Pair = (0.0, 1.0)
    """The worst group of elements (`tilts`): error along the truth and allowance, as shares."""
    fault: str = ""
    """A difference that no rounding explains, in words; empty without one."""


def measure(
    name: str,
    candidate: Tensor,
    truth: Tensor,
    runs: Sequence[Tensor],
    *,
    jolts: Sequence[Tensor] = (),
    start: Tensor | None = None,
    exact: bool = True,
    epsilon: float = 0.0,
) -> TensorMeasurement:
    """Measure one tensor.

    `runs` are the reference's, the unperturbed one first; type and shape have to be its. `jolts`
    are runs that are shaken by `JOLT` roundings. With `epsilon`, one rounding, groups of elements
    are measured as well. With a `start`, it is the change since then that is measured, and one
    rounding of the value itself is allowed on top.
    """
    incomparable = _incomparable(name, candidate, truth, runs, jolts)
    if incomparable is not None:
        return incomparable
    reference = runs[0]
    runs, jolts = ([run for run in some if run.shape == reference.shape] for some in (runs, jolts))
    exact, truth = (exact, truth) if truth.shape == reference.shape else (False, reference)
    begin = None if start is None or not _is_real(reference) else _wide(start)
    if truth is reference and reference.dtype in NORMED and torch.equal(candidate, reference):
        candidate = reference
        if (
            begin is None
            and len(runs) == 1
            and not jolts
            and _is_finite(size := _pair((_two, _largest), reference))
        ):
            return TensorMeasurement(name=name, elements=candidate.numel(), size=size, exact=exact)
    once: dict[int, Tensor] = {}
    for value in (candidate, truth, *runs, *jolts):
        if id(value) not in once:
            once[id(value)] = _wide(value) if begin is None else _wide(value) - begin
    computed, true, *others = (once[id(value)] for value in (candidate, truth, *runs, *jolts))
    fixed = None if begin is None else _rounding(reference) * _wide(reference)
    measurement = _compared(
        name,
        computed,
        true,
        others,
        jolts=len(jolts),
        fixed=fixed,
        real=_is_real(reference),
        exact=exact,
    )
    if not measurement.real or measurement.fault or begin is not None or not epsilon:
        return measurement
    one_way = rounded_one_way(computed, true, others[0], reference.dtype)
    return replace(measurement, scale=tilt(computed, true, others, epsilon), fault=one_way)


def _incomparable(
    name: str, candidate: Tensor, truth: Tensor, runs: Sequence[Tensor], jolts: Sequence[Tensor]
) -> TensorMeasurement | None:
    """Return the measurement of a tensor with another form or exact value; `None` otherwise."""
    reference = runs[0]
    fault = differing_value(name, candidate, (truth, *runs, *jolts)) or differing_form(
        candidate, reference
    )
    if (
        fault
        and candidate.dtype == reference.dtype
        and any(run.shape != reference.shape for run in (*runs, *jolts))
    ):
        return TensorMeasurement(
            name=name,
            elements=candidate.numel(),
            hidden="the reference's own shape follows from rounding",
        )
    return TensorMeasurement(name=name, elements=candidate.numel(), fault=fault) if fault else None


def measure_change(
    name: str, candidate: Tensor, ideal: Tensor, *, reference: tuple[Tensor, Tensor], start: Tensor
) -> TensorMeasurement:
    """Measure an optimizer's change of a parameter against the `ideal` change (fp64).

    Both are for the candidate's own gradients. `reference` is the reference's parameter after the
    step and the ideal change for its gradients: their distance is rounding. An error within one
    rounding of the value itself does not count, by element or as a part of the change: narrow
    formats round small changes away.
    """
    expected, expected_change = reference
    fault = differing_form(candidate, expected)
    if fault:
        return TensorMeasurement(name=name, elements=candidate.numel(), fault=fault)
    begin = _wide(start)
    rounding = _rounding(expected) * begin.abs()

    def beyond(value: Tensor) -> Tensor:
        return torch.where(
            torch.isfinite(value), value.sign() * (value.abs() - rounding).clamp_min(0), value
        )

    deviation, expected_deviation = (
        beyond(_wide(after) - begin - change)
        for after, change in ((candidate, ideal), (expected, expected_change))
    )
    visible = beyond(expected_change)
    return _compared(name, deviation + visible, visible, [expected_deviation + visible])


def missing(name: str, *, extra: bool) -> TensorMeasurement:
    """Return the measurement of a tensor that only one side has."""
    return TensorMeasurement(name=name, elements=1, fault=one_sided(kind_of(name), extra=extra))


def differing_form(candidate: Tensor, reference: Tensor) -> str:
    """Describe the difference in type or shape from the reference's; empty without one."""
    if candidate.dtype == reference.dtype and candidate.shape == reference.shape:
        return ""
    actual, expected = (
        f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        for value in (candidate, reference)
    )
    return f"{actual} instead of {expected}"


def _compared(
    name: str,
    candidate: Tensor,
    true: Tensor,
    others: Sequence[Tensor],
    *,
    jolts: int = 0,
    fixed: Tensor | None = None,
    real: bool = True,
    exact: bool = True,
) -> TensorMeasurement:
    """Compare in fp64.

    The norms show if all numbers are finite; then none is left out. The last `jolts` of the
    `others` are jolted; `fixed` is allowed too, element by element.
    """
    norms: tuple[Norm, Norm] = (_two, _largest) if real else (_differing, _largest)
    error, size = _measure_distance(norms, candidate, true), _pair(norms, true)
    distances = [_measure_distance(norms, other, true) for other in others]
    allowed = (0.0, 0.0) if fixed is None else _pair(norms, fixed)
    hidden = ""
    if not all(map(_is_finite, (error, size, *distances, allowed))):
        nonfinite = ~torch.isfinite(candidate)
        astray = nonfinite & ~(_same_oddity(candidate, true) | _same_oddity(candidate, others[0]))
        tamed = ~nonfinite & ~torch.isfinite(true) & ~torch.isfinite(others[0])
        if bool((astray | tamed).any()):
            fault = (
                f"{int(nonfinite.sum())} elements are not finite, in the reference"
                f" {int((~torch.isfinite(others[0])).sum())}"
            )
            return TensorMeasurement(name=name, elements=candidate.numel(), fault=fault)
        keep = ~nonfinite & torch.isfinite(true)
        candidate, true = (torch.where(keep, value, 0.0) for value in (candidate, true))
        if (
            candidate.numel()
            and not bool(keep.any())
            and bool(nonfinite.any() and torch.isfinite(true).any())
        ):
            hidden = "the reference itself has no finite number"
        distances = [
            _pair(norms, torch.where(keep & torch.isfinite(other), other - true, 0.0))
            for other in others
        ]
        error, size = _pair(norms, candidate - true), _pair(norms, true)
        allowed = (0.0, 0.0) if fixed is None else _pair(norms, torch.where(keep, fixed, 0.0))
    return TensorMeasurement(
        name=name,
        elements=candidate.numel(),
        error=error,
        noise=_farthest(distances[: len(distances) - jolts]),
        jolt=_farthest(distances[len(distances) - jolts :]) if jolts else None,
        size=size if real else (float(true.numel()), size[1]),
        fixed=allowed,
        real=real,
        exact=exact,
        hidden=hidden,
    )


def _farthest(pairs: Sequence[Pair]) -> Pair:
    return max(two for two, _ in pairs), max(largest for _, largest in pairs)


def _pair(norms: tuple[Norm, Norm], value: Tensor) -> Pair:
    return norms[0](value), norms[1](value)


def _measure_distance(norms: tuple[Norm, Norm], value: Tensor, true: Tensor) -> Pair:
    return (0.0, 0.0) if value is true else _pair(norms, value - true)


def _is_finite(pair: Pair) -> bool:
    """Return true if a pair is finite: every element is, and none has an infinite square."""
    return math.isfinite(pair[0]) and math.isfinite(pair[1])


def _same_oddity(first: Tensor, second: Tensor) -> Tensor:
    """Mark the places at which two tensors are not finite in the same way."""
    return (first == second) | (first.isnan() & second.isnan())


def _rounding(value: Tensor) -> float:
    return float(torch.finfo(value.dtype).eps) if _is_real(value) else 0.0


def _is_real(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _wide(value: Tensor) -> Tensor:
    """Convert to fp64, complex numbers to pairs."""
    return real_parts(value.detach()).to(torch.float64)


def _two(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value, dtype=torch.float64))


def _largest(value: Tensor) -> float:
    return max(abs(float(extreme)) for extreme in value.aminmax()) if value.numel() else 0.0


def _differing(value: Tensor) -> float:
    """Count the whole numbers that differ."""
    return float(value.count_nonzero())


MULTIPLIER, MULTIPLIER_FP32 = 4.0, 30.0
JOLT_MULTIPLIER = 2.0
LAST_DIGITS = 2.0**-12
FP32_EPSILON = 2.0**-24
ROUNDINGS = 4.0
LOST_ROUNDINGS = 8.0
FEW = 4.0
"""The multiple grows by 1 + sqrt(FEW / n): a norm of n elements fluctuates by 1/sqrt(n)."""
ZERO_BY_MATHEMATICS = 2.0**-36
"""Share of its kind in fp64 below which a value is the rounding of a zero."""
BLIND, BLIND_FP32 = 0.5, 2.0**-2
"""Shares of a tensor's size: an allowed error of that much means nothing. A ReLU may take 17 %."""
FEW_NUMBERS = 4
"""Numbers in fp32 that may be sums of 2 ** 20 terms in a row, which round by the root of that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """The answer, with one sentence of `detail`.

    `worst` names the tensor that is nearest to its limit or farthest beyond it. `score` is its
    error over its allowance: above 1 is wrong.
    """

    outcome: Outcome
    detail: str
    worst: str
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Yardstick:
    """Limits: `tolerance` relative to the truth's norm, `multiplier` to the measured rounding.

    Few fp32 numbers may be off by `in_a_row` if no run shows the rounding of long sums.
    """

    tolerance: float
    multiplier: float
    in_a_row: float = 1.5 * 2.0**-14


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """Error of a tensor, compared with its allowance."""

    name: str
    """The tensor's name."""
    score: float
    """The error over the allowance; above 1 is wrong."""
    error: float
    """The error in the norm whose score is worse."""
    allowed: float
    """The allowance in the same norm."""
    blind: bool
    """True if zeros would pass as well."""
    elements: int = 1
    """The number of its elements."""
    hidden: str = ""
    """The reason why nothing could be compared, and so it is blind; empty otherwise."""
    real: bool = True
    """True for floating and complex numbers, false for whole ones."""
    coarse: bool = False
    """True if it is blind because more would be allowed than rounding is in fp32."""
    tilted: bool = False
    """True if a group of elements is off in one direction."""
    fault: str = ""
    """A difference that no rounding explains, in words; empty without one."""

    @property
    def wrong(self) -> bool:
        """True if this is more than rounding; a score of NaN is wrong."""
        return bool(self.fault) or not self.score <= 1.0


def agree(
    results: Mapping[str, Tensor],
    *,
    truth: Mapping[str, Tensor] | None,
    runs: Sequence[Mapping[str, Tensor]],
    epsilon: float,
    jolts: Sequence[Mapping[str, Tensor]] = (),
    starts: Mapping[str, Tensor] | None = None,
    memory: float = 0.0,
    sums_are_shown: bool = False,
) -> Agreement:
    """Check that every tensor of `results` is the truth's, up to rounding.

    Args:
        results: tensors by name; the kind precedes the first colon or dot: ``gradient: weight``.
        truth: the same in fp64. `None` without fp64: the reference's unperturbed run is the truth
            then, and the shaken runs show rounding. Missing names are taken from that run, too.
        runs: the reference's runs in the case's precision, the unperturbed one first: the result
            must have its names, types and shapes. The others start from numbers that are shaken by
            one rounding (`shaken`); they may lack names.
        epsilon: one rounding of the precision, half the distance from 1 to the next number.
        jolts: in fp32 and fp64, more runs of the reference, from numbers that are shaken by `JOLT`
            roundings: they show the kinks of ReLUs, which a rounding crosses now and then.
        starts: the start of tensors that a step changes: the change is judged, not the value.
        memory: the longest memory of the optimizer that changes them (`of_optimizer`), or 0.
        sums_are_shown: true if the jolts show the rounding of sums added up in a row (`roundings`).
    """
    begun, usual = (
        starts or {},
        replace(yardstick_of(epsilon), **({"in_a_row": 0.0} if sums_are_shown else {})),
    )
    measurements = measured(
        results, truth=truth, runs=runs, jolts=jolts, starts=begun, epsilon=epsilon
    )
    changes = [measurement for measurement in measurements if measurement.name in begun]
    others = [measurement for measurement in measurements if measurement.name not in begun]
    return conclude([*judged(others, usual), *judged(changes, of_optimizer(usual, memory))])


def yardstick_of(epsilon: float) -> Yardstick:
    """Return the yardstick of a precision whose rounding is `epsilon`."""
    return Yardstick(
        tolerance=ROUNDINGS * epsilon,
        multiplier=MULTIPLIER_FP32 if epsilon <= FP32_EPSILON else MULTIPLIER,
    )


def of_optimizer(usual: Yardstick, beta: float) -> Yardstick:
    """Widen the yardstick for the changes of an optimizer with memory `beta`.

    One that divides by ``1 - beta ** step`` loses digits. The reference computes the divisor in
    fp64, compilers in fp32 tensors.
    """
    return replace(
        usual, tolerance=max(usual.tolerance, lost_by(beta, LOST_ROUNDINGS * FP32_EPSILON))
    )


def agree_coarsely(
    results: Mapping[str, Tensor], reference: Mapping[str, Tensor], *, epsilon: float
) -> Agreement:
    """Compare `results` with the `reference` of the same input, to half the format's digits."""
    yardstick = Yardstick(tolerance=math.sqrt(epsilon), multiplier=0.0)
    return conclude(judged(measured(results, truth=None, runs=[reference], starts={}), yardstick))


def jolt_of(epsilon: float) -> float:
    """Return the size of a jolt, and 0 in formats in which every run crosses kinks."""
    return JOLT * epsilon if epsilon <= FP32_EPSILON else 0.0


def shaken(
    values: Mapping[str, Tensor], epsilon: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Multiply every real number by (1 + epsilon xi), xi standard normal.

    These are the same numbers, off by one rounding each.
    """

    def shake(value: Tensor) -> Tensor:
        numbers = real_parts(value).double()
        noise = torch.randn(
            numbers.shape, generator=generator, dtype=numbers.dtype, device=generator.device
        )
        off = numbers * (1 + epsilon * noise.to(value.device))
        return (torch.view_as_complex(off) if value.is_complex() else off).to(value.dtype)

    return {name: shake(value) if _is_real(value) else value for name, value in values.items()}


def measured(
    results: Mapping[str, Tensor],
    *,
    truth: Mapping[str, Tensor] | None,
    runs: Sequence[Mapping[str, Tensor]],
    jolts: Sequence[Mapping[str, Tensor]] = (),
    starts: Mapping[str, Tensor],
    epsilon: float = 0.0,
) -> list[TensorMeasurement]:
    """Measure every tensor that either side has."""
    reference = runs[0]
    measurements = []
    for name in [*reference, *(name for name in results if name not in reference)]:
        if name not in results or name not in reference:
            measurements.append(missing(name, extra=name in results))
            continue
        exact = truth is not None and name in truth
        true = truth[name] if truth is not None and name in truth else reference[name]
        tensors, jolted = ([run[name] for run in every if name in run] for every in (runs, jolts))
        start = starts.get(name)
        measurements.append(
            measure(
                name,
                results[name],
                true,
                tensors,
                jolts=jolted,
                start=start,
                exact=exact,
                epsilon=epsilon,
            )
        )
    return measurements


def judged(measurements: Iterable[TensorMeasurement], yardstick: Yardstick) -> list[Deviation]:
    """Compare each measurement with its allowance, which depends on all others of its kind."""
    kinds: dict[str, list[TensorMeasurement]] = {}
    for measurement in measurements:
        kinds.setdefault(kind_of(measurement.name), []).append(measurement)
    return [
        deviation for members in kinds.values() for deviation in _judged_kind(members, yardstick)
    ]


def conclude(deviations: Sequence[Deviation]) -> Agreement:
    """Return the answer for all tensors together."""
    if not deviations:
        return Agreement(
            outcome=Outcome.FAIL, detail="there is no tensor to compare", worst="", score=math.inf
        )
    worst = max(deviations, key=lambda deviation: (bool(deviation.fault), _ranked(deviation.score)))
    wrong = [deviation for deviation in deviations if deviation.wrong]
    if wrong:
        more = (
            f"; {len(wrong)} of {len(deviations)} tensors disagree" if len(deviations) > 1 else ""
        )
        detail = f"{told(worst)}{more}"
        return Agreement(outcome=Outcome.FAIL, detail=detail, worst=worst.name, score=worst.score)
    void = unverifiable(deviations)
    if void:
        return Agreement(outcome=Outcome.UNKNOWN, detail=void, worst=worst.name, score=worst.score)
    blind = sum(deviation.blind for deviation in deviations)
    blind_note = f"; {blind} of them are smaller than their own rounding" if blind else ""
    counted = f"{len(deviations)} tensors agree" if len(deviations) > 1 else "it agrees"
    return Agreement(
        outcome=Outcome.PASS,
        detail=f"{counted}; {told(worst)}{blind_note}",
        worst=worst.name,
        score=worst.score,
    )


def told(deviation: Deviation) -> str:
    """Describe one tensor."""
    is_equal = not (deviation.real or deviation.error)
    figures = "equal" if is_equal else describe_deviation(deviation.error, deviation.allowed)
    figures = (
        f"a group of its elements leans one way, as if all were {figures}"
        if deviation.tilted
        else figures
    )
    return f"{deviation.name}: {deviation.fault or figures}"


def unverifiable(deviations: Sequence[Deviation], kinds: Iterable[str] | None = None) -> str:
    """Explain why agreement would mean nothing; empty if it means something.

    That is so if all tensors of a kind are smaller than their own rounding. A kind of one number (a
    loss may be small by chance) counts only if nothing else is verified.
    """
    every = {kind_of(deviation.name) for deviation in deviations} if kinds is None else set(kinds)
    telling = any(_tells(deviation) for deviation in deviations)
    for kind in sorted(every):
        members = [deviation for deviation in deviations if kind_of(deviation.name) == kind]
        blind = any(deviation.blind for deviation in members) and not any(map(_tells, members))
        if blind and (not telling or sum(deviation.elements for deviation in members) > 1):
            if all(deviation.hidden for deviation in members):
                return f"{members[0].hidden}, of each {kind} ({len(members)}): nothing was compared"
            if coarse := [deviation for deviation in members if deviation.coarse]:
                least = min(coarse, key=lambda deviation: deviation.allowed)
                much = (
                    f"rounding would explain {least.allowed:.3g} of {least.name}, which is too much"
                    " for fp32"
                )
                return f"none of the {len(members)} {kind} can be verified: {much}"
            return (
                f"none of the {len(members)} {kind} is larger than its own rounding, so zeros would"
                " agree as well"
            )
    return ""


def kind_of(name: str) -> str:
    """Return the part of a name before its first colon or dot."""
    return name.replace(":", ".").partition(".")[0]


def _tells(deviation: Deviation) -> bool:
    return deviation.allowed > 0 and not deviation.blind


def _spread(member: TensorMeasurement, k: int, yardstick: Yardstick) -> float:
    """Return the error that the runs explain: a multiple of the farthest, or of the jolted runs."""
    unjolted = yardstick.multiplier * member.noise[k]
    if member.jolt is None:
        return unjolted
    jolted = (
        min(yardstick.multiplier, MULTIPLIER) * member.noise[k] + JOLT_MULTIPLIER * member.jolt[k]
    )
    return max(jolted, min(unjolted, LAST_DIGITS * member.size[k]))


def _ranked(score: float) -> float:
    return math.inf if math.isnan(score) else score


def _judged_kind(members: Sequence[TensorMeasurement], yardstick: Yardstick) -> list[Deviation]:
    real = [member for member in members if member.real and not member.fault and member.elements]
    count = sum(member.elements for member in real)
    rms = math.sqrt(sum(member.size[0] ** 2 for member in real) / count) if count else 0.0
    largest = max((member.size[1] for member in real), default=0.0)
    typical = (_typical(real, 0, yardstick), _typical(real, 1, yardstick))
    return [
        _judged_one(member, yardstick, typical, (rms * math.sqrt(member.elements), largest))
        for member in members
    ]


def _typical(members: Sequence[TensorMeasurement], k: int, yardstick: Yardstick) -> float:
    """Return the median relative spread of a kind.

    From tensors that are only rounding nothing follows for the others.
    """
    shares = [
        _share(_spread(member, k, yardstick), member.size[k])
        for member in members
        if member.size[k]
    ]
    telling = [share for share in shares if share < BLIND]
    return statistics.median(telling) if telling else 0.0


def _judged_one(
    member: TensorMeasurement, yardstick: Yardstick, typical: Pair, scale: Pair
) -> Deviation:
    """Compare one measurement with its allowance.

    `typical` is the median relative spread of the kind, `scale` the size that a tensor of the kind
    usually has.
    """
    if member.fault:
        inf = math.inf
        return Deviation(
            name=member.name, score=inf, error=inf, allowed=0.0, blind=False, fault=member.fault
        )
    zero = member.real and member.exact and member.size[0] <= ZERO_BY_MATHEMATICS * scale[0]
    tolerance = yardstick.tolerance if member.real else 0.0
    # Of a change, the rounding of the value is known and allowed: luck needs no room besides.
    lucky = member.real and not member.fixed[0]
    few = 1 + math.sqrt(FEW / max(member.elements, 1)) if lucky else 1.0
    limits = []
    for k in range(2):
        spread = _spread(member, k, yardstick)
        spread = few * max(spread, typical[k] * member.size[k]) if lucky else spread
        limit = spread + tolerance * (scale[k] if zero else member.size[k]) + member.fixed[k]
        sums = lucky and yardstick.multiplier == MULTIPLIER_FP32 and member.elements <= FEW_NUMBERS
        limits.append(max(limit, yardstick.in_a_row * member.size[k]) if sums else limit)
    scores = [_score(error, limit) for error, limit in zip(member.error, limits, strict=True)]
    worst = scores.index(max(scores, key=_ranked))
    blind = bool(member.hidden) or (member.size[0] > 0 and limits[0] >= BLIND * member.size[0])
    fine = yardstick.multiplier == MULTIPLIER_FP32 and lucky and member.size[0] > 0
    coarse = (
        not blind
        and fine
        and (limits[0] >= BLIND_FP32 * member.size[0] or limits[1] >= BLIND * member.size[1])
    )
    score, error, allowed = scores[worst], member.error[worst], limits[worst]
    if tilted := member.scale[0] > member.scale[1] and score <= 1.0:
        error, allowed = (share * member.size[0] for share in member.scale)
        score = error / allowed
    return Deviation(
        name=member.name,
        score=score,
        error=error,
        allowed=allowed,
        blind=blind or coarse,
        elements=member.elements,
        hidden=member.hidden,
        real=member.real,
        tilted=tilted,
        coarse=coarse,
    )


def _share(part: float, total: float) -> float:
    return part / total if total else 0.0


def _score(error: float, allowed: float) -> float:
    return 0.0 if error == 0 else error / allowed if allowed else math.inf
