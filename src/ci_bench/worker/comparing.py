"""Compare head's tensors with base's: the worker's half, two files in, errors and allowances out.

Runs none of the user's code. Makes two comparisons, tensor by tensor, by the rule of
`suites.shared.worker.numerics`. First, head's outputs in the case's precision are compared with
base's fp64 truth, with base's own runs for the envelope of rounding. Second, if both sides have an
fp64 truth, head's is compared with base's. This shows changes that the case's precision would hide,
such as a factor of 1.0005 in bf16. Models that cast to fp32 inside do so in fp64 runs as well, so
fp32 rounding is allowed for: base's own rounding, scaled to fp32.

The files may come from elsewhere: size, digest and names are checked, and safetensors holds only
numbers.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ci_bench.processes.messages import ClaimFiles, OutputFiles
from ci_bench.records.outputs import OutputsComparison, TensorError
from ci_bench.records.results import Check, Outcome
from ci_bench.suites.shared.worker.optimizers import UPDATES
from ci_bench.worker.keeping import (
    EPSILON,
    JOLTS,
    MAX_BYTES,
    MAX_NAME,
    MAX_TENSORS,
    NAMES,
    RUNS,
    SAME,
    TRUTH,
    file_digest,
)

if TYPE_CHECKING:
    from ci_bench.suites.shared.worker.numerics import Deviation, TensorMeasurement

WORST = 5
MAX_RUNS = 100
SLACK_BYTES = 64 << 20
"""For the head of a file: names and places of its tensors."""
FP32_EPSILON = 2.0**-24
ROUNDINGS, MULTIPLIER = 8.0, 3.0
"""Allowances between two truths: roundings of fp32, and multiples of base's own scaled to it.

Correct code differs in its order of sums.
"""
EXACT = "in fp64: "
COARSE = 0.5
"""The share of the format's digits that must agree without a truth or shaken runs.

Nothing else shows the extent of rounding then.
"""


AGAIN = "compared by a process without code of the tree"
ADAMS_MEMORY = 0.999
"""The usual memory of Adam. Both sides compute an optimizer's updates from known gradients in fp64.

The loss of an optimizer with this memory, whose divisor is rounded to fp32, is allowed for.
"""


class BadTensors(Exception):  # noqa: N818 - it is an answer, not an error
    """A file differs from its document. The message has the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Pairs of head's and base's tensors: `named` are certain, `guessed` match only by form."""

    named: Mapping[str, str]
    guessed: Mapping[str, str]
    missing: tuple[str, ...]
    extra: int

    @property
    def every(self) -> dict[str, str]:
        """Return all pairs."""
        return {**self.named, **self.guessed}


def compare(files: OutputFiles, *, base: str) -> OutputsComparison:
    """Compare head's tensors with base's, whose digest in the results document is `base`."""
    with ExitStack() as stack:
        try:
            theirs, ours = (
                stack.enter_context(_Opened(Path(path), digest))
                for path, digest in (
                    (files.base, files.base_digest),
                    (files.head, files.head_digest),
                )
            )
        except BadTensors as error:
            return OutputsComparison(base=base, tensors=0, unknown=str(error)[:1000])
        return _compared(theirs, ours, base)


def judge(claims: Sequence[ClaimFiles]) -> tuple[Check, ...]:
    """Compare arms' outputs with the reference's by the rule of numbers.

    Returns one check for each arm's check. All claims of a check are concluded together. If none of
    them allows less than a tensor's own size, agreement means nothing: the check is unknown,
    whatever the worker answered.
    """
    deviations: dict[tuple[str, str], list[Deviation]] = {}
    checks = []
    for claim in claims:
        try:
            deviations.setdefault((claim.check, claim.arm), []).extend(_deviations(claim))
        except BadTensors as error:
            broken = Check(
                name=claim.check,
                arm=claim.arm,
                outcome=Outcome.FAIL,
                detail=f"{AGAIN}: {error}"[:1000],
            )
            checks.append(broken)
    return (*checks, *(_concluded(*key, members) for key, members in deviations.items() if members))


def _deviations(claim: ClaimFiles) -> "list[Deviation]":
    """Return the deviation of each tensor. Raises `BadTensors`."""
    from ci_bench.suites.shared.worker.numerics import judged, measured, yardstick_of

    with ExitStack() as stack:
        expected = stack.enter_context(_Opened(Path(claim.expected), claim.expected_digest))
        actual = stack.enter_context(_Opened(Path(claim.seen), claim.seen_digest))
        measurements = measured(
            actual.part("outputs"),
            truth=expected.part("truth") if expected.truth else None,
            runs=[
                expected.part("outputs"),
                *(expected.part(f"run{number}") for number in range(expected.runs)),
            ],
            jolts=[expected.part(f"jolt{number}") for number in range(expected.jolts)],
            starts={},
            epsilon=expected.epsilon,
        )
        return judged(measurements, yardstick_of(expected.epsilon))


def _concluded(check: str, arm: str, deviations: "Sequence[Deviation]") -> Check:
    from ci_bench.suites.shared.worker.numerics import conclude

    conclusion = conclude(deviations)
    return Check(
        name=check,
        arm=arm,
        outcome=conclusion.outcome,
        detail=f"{AGAIN}: {conclusion.detail}"[:5000],
    )


def _compared(theirs: "_Opened", ours: "_Opened", base: str) -> OutputsComparison:
    forms, remark = _comparable(theirs.forms(), ours.forms())
    forms, one_sided = _without_one_sided(*forms)
    pairs = paired(*forms)
    deviations = [
        *_compare_in_precision(theirs, ours, pairs),
        *_compare_in_fp64(theirs, ours, pairs),
    ]
    faults = [
        TensorError(name=name, error=None, allowed=None, fault="head does not compute it")
        for name in pairs.missing
    ]
    certain = [
        deviation for deviation in deviations if deviation.name.removeprefix(EXACT) in pairs.named
    ]
    guessed = [
        deviation for deviation in deviations if deviation.name.removeprefix(EXACT) in pairs.guessed
    ]
    worst = one_sided + ([] if pairs.extra else faults)
    worst += [_error(deviation) for deviation in sorted(certain, key=_rank)]
    unknown = ""
    if not theirs.truth and not theirs.runs and _nearly(certain, theirs.epsilon):
        unknown = (
            "nothing that was kept shows how far rounding goes, and head is off by less than half"
            " of the digits"
        )
    elif not any(error.wrong for error in worst):
        unknown = _untellable(certain or guessed) or _unpaired(pairs, guessed)
        worst += [_error(deviation) for deviation in sorted(guessed, key=_rank)]
    more = (
        f"{pairs.extra} more that base does not compute"
        if pairs.extra and not pairs.missing
        else remark
    )
    return OutputsComparison(
        base=base,
        tensors=len(theirs.names),
        worst=tuple(worst[:WORST]),
        unknown=unknown[:2000],
        remark=more,
    )


def _comparable(
    theirs: dict[str, str], ours: dict[str, str]
) -> tuple[tuple[dict[str, str], dict[str, str]], str]:
    """Return the forms of both sides.

    If one side's optimizer could not be tried, the other's updates are left out, with a remark.
    """
    tried = [any(map(_is_update, forms)) for forms in (theirs, ours)]
    if all(tried) or not any(tried):
        return (theirs, ours), ""
    which = "base" if tried[1] else "head"
    without: list[dict[str, str]] = [
        {name: form for name, form in forms.items() if not _is_update(name)}
        for forms in (theirs, ours)
    ]
    return (without[0], without[1]), f"{which}'s optimizer could not be tried on known gradients"


def _without_one_sided(
    theirs: dict[str, str], ours: dict[str, str]
) -> tuple[tuple[dict[str, str], dict[str, str]], list[TensorError]]:
    """Return the forms without one-sided values, and those values as faults.

    One-sided values exist on one side only, under any name. Inputs are there only if a call writes
    into them: ``input: 0``, ``outputs of step 1: inputs.0``. Plain values, such as text, may have
    another name (a private attribute's) only if kind and size are the same.
    """
    one_sided = [
        {
            name
            for name in forms
            if name not in other and (_is_input(name) or _has_no_counterpart(name, forms, other))
        }
        for forms, other in ((theirs, ours), (ours, theirs))
    ]
    faults = [
        TensorError(
            name=name[:MAX_NAME], error=None, allowed=None, fault=_describe_one_sided(name, *sides)
        )
        for names, sides in zip(one_sided, (("base", "head"), ("head", "base")), strict=True)
        for name in sorted(names)
    ]
    base, head = (
        {name: form for name, form in forms.items() if name not in one_sided[0] | one_sided[1]}
        for forms in (theirs, ours)
    )
    return (base, head), faults


def _is_input(name: str) -> bool:
    return name.startswith("input") or ": inputs." in name


def _has_no_counterpart(name: str, forms: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Return whether none of the other side's unmatched values has a plain value's form."""
    from ci_bench.suites.shared.worker.plain_values import kind_of_plain

    kind = kind_of_plain(name)
    alike = [
        other
        for other, form in others.items()
        if other not in forms and form == forms[name] and kind_of_plain(other) == kind
    ]
    return bool(kind) and not alike


def _describe_one_sided(name: str, side: str, other: str) -> str:
    if _is_input(name):
        return f"{side} writes into this input, and {other} leaves it alone"
    return f"{side} returns it, and {other} does not"


def _compare_in_precision(theirs: "_Opened", ours: "_Opened", pairs: Pairs) -> "list[Deviation]":
    """Compare in the case's precision, with base's truth or else its plain run."""
    from ci_bench.suites.shared.worker.numerics import judged, measured, of_optimizer, yardstick_of

    plain_run = theirs.part("outputs")
    runs = [plain_run, *(theirs.part(f"run{number}") for number in range(theirs.runs))]
    head_outputs = ours.part("outputs", pairs.every)
    truth = theirs.part("truth") if theirs.truth else None
    jolts = [theirs.part(f"jolt{number}") for number in range(theirs.jolts)]
    measurements = _of(
        pairs,
        measured(
            head_outputs, truth=truth, runs=runs, jolts=jolts, starts={}, epsilon=theirs.epsilon
        ),
    )
    updates = [
        _without_groups(measurement) for measurement in measurements if _is_update(measurement.name)
    ]
    others = [measurement for measurement in measurements if not _is_update(measurement.name)]
    of_updates = of_optimizer(yardstick_of(FP32_EPSILON), ADAMS_MEMORY)
    return [*judged(others, yardstick_of(theirs.epsilon)), *judged(updates, of_updates)]


def _compare_in_fp64(theirs: "_Opened", ours: "_Opened", pairs: Pairs) -> "Iterator[Deviation]":
    """Compare in fp64, if both sides have it."""
    from ci_bench.suites.shared.worker.numerics import Yardstick, judged, measured

    if not (theirs.truth and ours.truth):
        return
    share = min(1.0, FP32_EPSILON / theirs.epsilon)
    truth, plain_run = theirs.part("truth"), theirs.part("outputs")
    rounded = _ComparedPart(list(truth), lambda name: _toward(truth[name], plain_run[name], share))
    runs: list[Any] = [truth, rounded]
    measurements = measured(ours.part("truth", pairs.every), truth=truth, runs=runs, starts={})
    yardstick = Yardstick(tolerance=ROUNDINGS * FP32_EPSILON, multiplier=MULTIPLIER)
    yield from (_renamed(deviation) for deviation in judged(_of(pairs, measurements), yardstick))


def _without_groups(update: "TensorMeasurement") -> "TensorMeasurement":
    """Compare an optimizer's update as a whole.

    A bias correction in fp32 is one factor of all elements, off by 0.006 %.
    """
    return replace(update, scale=(0.0, 1.0))


def _is_update(name: str) -> bool:
    return name.startswith(f"{UPDATES}:")


def _of(pairs: Pairs, measurements: Sequence[Any]) -> list[Any]:
    """Drop measurements without a partner: they are reported separately."""
    every = pairs.every
    return [measurement for measurement in measurements if measurement.name in every]


def _toward(truth: Any, run: Any, share: float) -> Any:
    """Return the truth, off by a share of a run's rounding.

    Whole numbers have no rounding to scale, and what is not finite stays.
    """
    import torch

    if run.shape != truth.shape or not truth.is_floating_point():
        return truth
    off = torch.nan_to_num(run.to(truth.dtype) - truth, nan=0.0, posinf=0.0, neginf=0.0)
    return truth + share * off


def _renamed(deviation: "Deviation") -> "Deviation":
    from dataclasses import replace

    return replace(deviation, name=EXACT + deviation.name)


def _rank(deviation: "Deviation") -> tuple[bool, float]:
    """Sort the worst first; NaN is the worst of all."""
    score = deviation.score
    return not deviation.fault, (-score if score == score else -float("inf"))  # noqa: PLR0124 - NaN differs from itself


def _error(deviation: "Deviation") -> TensorError:
    error, allowed = (
        float(value) if abs(value) < float("inf") else None
        for value in (deviation.error, deviation.allowed)
    )
    return TensorError(
        name=deviation.name[: MAX_NAME + len(EXACT)],
        error=error,
        allowed=allowed,
        fault=deviation.fault[:500],
    )


def _untellable(deviations: "Sequence[Deviation]") -> str:
    """Return why agreement would mean nothing. If there are fp64 comparisons, only they decide."""
    from ci_bench.suites.shared.worker.numerics import unverifiable

    exact = [deviation for deviation in deviations if deviation.name.startswith(EXACT)]
    return unverifiable(exact or deviations) if deviations else "no tensor to compare"


def _nearly(deviations: "Sequence[Deviation]", epsilon: float) -> bool:
    """Return whether the worst error stays within half of the format's digits.

    It exceeds the format's own roundings, which are allowed.
    """
    from ci_bench.suites.shared.worker.numerics import ROUNDINGS as ALLOWED

    wrong = [deviation for deviation in deviations if deviation.wrong]
    return bool(wrong) and all(
        not deviation.fault and deviation.score * ALLOWED * epsilon <= epsilon**COARSE
        for deviation in wrong
    )


def _unpaired(pairs: Pairs, guessed: "Sequence[Deviation]") -> str:
    """Return why some tensors cannot be compared with certainty; empty if all can."""
    if pairs.missing and pairs.extra:
        names = ", ".join(pairs.missing[:3])
        return (
            f"head computes tensors with other names or shapes than base, so {names} could not be"
            " compared"
        )
    if any(deviation.wrong for deviation in guessed):
        return (
            "head's tensors have other names than base's, and it is not certain which of them"
            " correspond"
        )
    return ""


def paired(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Pairs:
    """Pair tensors by name, and the rest by form, in order.

    Both arguments give each tensor's form by its name. The order is certain if both sides have the
    same forms in the same order; a refactoring that renames leaves it so.
    """
    certain = {name: name for name in theirs if name in ours}
    unmatched_base, unmatched_head = (
        [name for name in theirs if name not in certain],
        [name for name in ours if name not in certain],
    )
    if [theirs[name] for name in unmatched_base] == [ours[name] for name in unmatched_head]:
        return Pairs(
            named={**certain, **dict(zip(unmatched_base, unmatched_head, strict=True))},
            guessed={},
            missing=(),
            extra=0,
        )
    guessed: dict[str, str] = {}
    for name in unmatched_base:
        fitting = next((other for other in unmatched_head if ours[other] == theirs[name]), None)
        if fitting is not None:
            guessed[name] = fitting
            unmatched_head.remove(fitting)
    return Pairs(
        named=certain,
        guessed=guessed,
        missing=tuple(name for name in unmatched_base if name not in guessed),
        extra=len(unmatched_head),
    )


class _ComparedPart(Mapping[str, Any]):
    """Tensors that are read on demand: only a few are in memory."""

    def __init__(self, names: Sequence[str], read: Callable[[str], Any]) -> None:
        self._names, self._read = dict.fromkeys(names), read

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


class _Opened:
    """One file, open. Raises `BadTensors`."""

    def __init__(self, path: Path, digest: str) -> None:
        try:
            size = path.stat().st_size
            if size > MAX_BYTES + SLACK_BYTES:
                raise BadTensors(
                    f"the kept tensors have {size:,} bytes, {MAX_BYTES:,} are read at most"
                )
            if file_digest(path) != digest:
                raise BadTensors("the kept tensors are not those that the results document names")
        except OSError as error:
            raise BadTensors(f"the kept tensors cannot be read: {error.strerror}") from error
        self._path = path

    def __enter__(self) -> Self:
        from safetensors import SafetensorError, safe_open

        try:
            opener: Any = safe_open
            self._file = opener(self._path, framework="pt", device="cpu").__enter__()
        except (SafetensorError, OSError) as error:
            raise BadTensors(
                f"the kept tensors are not a sound file: {str(error)[:200]}"
            ) from error
        self._keys = frozenset(self._file.keys())
        try:
            self._read_head(self._file.metadata() or {})
        except (LookupError, ValueError, TypeError, RecursionError) as error:
            raise BadTensors(
                f"the kept tensors do not say what they are: {str(error)[:200]}"
            ) from error
        return self

    def _read_head(self, metadata: Mapping[str, str]) -> None:
        names = json.loads(metadata[NAMES])
        if (
            not isinstance(names, list)
            or len(names) > MAX_TENSORS
            or not all(isinstance(name, str) for name in names)
        ):
            raise ValueError("the tensor names are not a list of strings")
        if len({*names}) < len(names) or any(len(name) > MAX_NAME for name in names):
            raise ValueError("a name comes twice or is too long")
        self.names: dict[str, int] = {name: number for number, name in enumerate(names)}
        self.truth, self.epsilon = metadata[TRUTH] == "True", float(metadata[EPSILON])
        self.runs, self.jolts = int(metadata[RUNS]), int(metadata[JOLTS])
        if not (
            0 <= self.runs <= MAX_RUNS and 0 <= self.jolts <= MAX_RUNS and 0 < self.epsilon < 1
        ):
            raise ValueError("their number of runs or their rounding is out of bounds")
        self._same = self._read_same(json.loads(metadata.get(SAME, "{}")))
        absent = [name for name, number in self.names.items() if not self._has(f"outputs.{number}")]
        if absent:
            raise ValueError(f"{absent[0][:100]} is listed but missing")

    def _read_same(self, same: object) -> dict[str, str]:
        if not isinstance(same, dict) or len(same) > MAX_TENSORS * MAX_RUNS:
            raise ValueError("the table of shared tensors is not a mapping")
        if not all(
            isinstance(key, str) and isinstance(place, str) and place in self._keys
            for key, place in same.items()
        ):
            raise ValueError("the table of shared tensors refers to a missing tensor")
        return same

    def _has(self, key: str) -> bool:
        return key in self._keys or key in self._same

    def _place(self, key: str) -> str:
        return self._same.get(key, key)

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def forms(self) -> dict[str, str]:
        """Return type and shape of each tensor of the plain run, by name."""
        return {name: self._form(f"outputs.{number}") for name, number in self.names.items()}

    def _form(self, key: str) -> str:
        part = self._file.get_slice(self._place(key))
        return f"{part.get_dtype()} {part.get_shape()}"

    def part(self, role: str, names: Mapping[str, str] | None = None) -> _ComparedPart:
        """Return the tensors of a role; `names` maps names to the file's own."""
        file_names = {name: name for name in self.names} if names is None else names
        there = [
            name for name, mine in file_names.items() if self._has(f"{role}.{self.names[mine]}")
        ]
        return _ComparedPart(
            there,
            lambda name: self._file.get_tensor(
                self._place(f"{role}.{self.names[file_names[name]]}")
            ),
        )
