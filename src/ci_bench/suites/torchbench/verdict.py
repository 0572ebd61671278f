"""Accuracy of a candidate by its snapshots: every tensor against the truth, and one word.

The word is from the runner's vocabulary. The answer also has, for information and never as a
verdict, the result of the dynamo runner's own rule for the same tensors: types must match; close
within ``atol = rtol = tolerance`` passes; else the root mean square error against fp64 may be `k`
times eager's plus a tenth of the tolerance. `k` is 2, 3 in half precision, 3 as well for fewer than
1000 elements, 1x1 convolutions, or tolerances of 0.02 and more; 10 and 8 for the smallest tensors
of listed models. Its absolute term lets gradients below the tolerance vanish, so it is not our
rule.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Computed
from ci_bench.suites.shared.worker.casts import real_parts
from ci_bench.suites.shared.worker.numerics import (
    Deviation,
    TensorMeasurement,
    Yardstick,
    judged,
    measure,
    measure_change,
    measured,
    of_optimizer,
    told,
    unverifiable,
    yardstick_of,
)
from ci_bench.suites.shared.worker.optimizers import longest_memory
from ci_bench.suites.torchbench.options import TorchbenchOptions
from ci_bench.suites.torchbench.snapshot import Leaves, Snapshot
from ci_bench.suites.torchbench.status import Word
from ci_bench.suites.torchbench.verify import Reference, Start, ideal_change, treated_apart

HALF = (torch.float16, torch.bfloat16)
FEW, FEWER, FEWEST = 1000, 500, 10
LARGE_TOLERANCE = 0.02
IOU = 0.99


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerRule:
    """Its settings for one model.

    `equal_nan` is off in fp32 runs; `iou` judges boolean masks by their overlap.
    """

    tolerance: float
    equal_nan: bool = False
    larger_multiplier: bool = False
    iou: float | None = None


def agrees(result: Tensor, eager: Tensor, truth: Tensor | None, rule: RunnerRule) -> bool:
    """Return true if the rule takes a result for the same as eager's.

    `truth` is the fp64 run's, `None` without one.
    """
    if result.dtype != eager.dtype or result.shape != eager.shape:
        return False
    if eager.dtype is torch.bool:
        return _same_masks(result, eager, rule.iou)
    if torch.allclose(
        result, eager, atol=rule.tolerance, rtol=rule.tolerance, equal_nan=rule.equal_nan
    ):
        return True
    if truth is None or truth.dtype is not torch.float64:
        return False
    return _near_enough_to_truth(result, eager, truth, rule)


def _near_enough_to_truth(result: Tensor, eager: Tensor, truth: Tensor, rule: RunnerRule) -> bool:
    wide, reference = result.double(), eager.double()
    if (
        bool(reference.isnan().any())
        and not bool(truth.isnan().any())
        and not bool(wide.isnan().any())
    ):
        return torch.allclose(wide, truth, atol=0.04, rtol=0.04)
    error, rounding = _rmse(wide, truth), _rmse(reference, truth)
    return error <= _multiplier(result, rule) * rounding + rule.tolerance / 10


def _multiplier(result: Tensor, rule: RunnerRule) -> float:
    if rule.larger_multiplier and result.numel() <= FEWER:
        return 10.0 if result.numel() <= FEWEST else 8.0
    pointwise = result.dim() >= 4 and result.shape[-1] == result.shape[-2] == 1  # noqa: PLR2004 - a convolution's weights
    lenient = result.numel() < FEW or pointwise or rule.tolerance >= LARGE_TOLERANCE
    return 3.0 if lenient or result.dtype in HALF else 2.0


def _same_masks(result: Tensor, eager: Tensor, iou: float | None) -> bool:
    if iou is None:
        return torch.equal(result, eager)
    union = int((result | eager).sum())
    return union == 0 or int((result & eager).sum()) / union >= iou


def _rmse(value: Tensor, truth: Tensor) -> float:
    return float((value - truth).square().mean().sqrt()) if value.numel() else 0.0


TELLING = 4.0
"""Multiple of rounding by which blank rows must move outputs that depend on half of the rows."""
SHOWN = 3
REPEATED = ("outputs", "gradients", "buffers")
ORDER = ("outputs", "loss", "gradients", "buffers")
"""Order of faults in a report: a wrong output makes wrong gradients, so it comes first."""
KINDS = ("outputs", "gradients", "updates")
"""Kinds of which a tensor has to be large enough to show a wrong result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmAnswer:
    """Accuracy of the candidate, in a word of the runner's and in plain ones.

    `score` is the largest.
    """

    outcome: Outcome
    word: Word
    detail: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judges snapshots of one case."""

    options: TorchbenchOptions
    """The options of the case."""
    reference: Reference
    """Eager's steps, and the runs that show its rounding."""
    yardstick: Yardstick
    """The limits of the rule of numbers."""
    unsteady: bool = False
    """True if eager does not repeat itself; its spread counts as rounding then."""
    _claimed: dict[int, Computed] = field(default_factory=dict)
    """The reference's results by step, as far as they were claimed."""

    def eager_repeats(self) -> ArmAnswer | None:
        """Return `None` if the eager runs agree; else why candidates cannot be judged.

        Not through the truth: a model that draws other numbers each time is far from it, too.
        Kernels that add up in any order may differ in the last digits of the largest tensor of a
        kind. A model that keeps something that cannot be put back agrees with itself at first, and
        no more after some steps: whether a candidate errs is unknown then.
        """
        pairs = zip(self.reference.eager, self.reference.again, strict=True)
        deviations = [
            deviation
            for eager, again in pairs
            for kind in REPEATED
            for deviation in self._repeated(kind, eager, again)
        ]
        wrong = [deviation for deviation in deviations if deviation.wrong]
        if self.unsteady:
            return None
        if not wrong:
            return self._stateful()
        detail = (
            f"two eager runs from the same state differ: {_describe_worst(wrong)}; mark the model"
            " non_deterministic if it has to be so"
        )
        return _answer(Outcome.FAIL, Word.EAGER_TWO_RUNS_DIFFER, detail, wrong)

    def _stateful(self) -> ArmAnswer | None:
        written = [name for name in self.reference.eager[-1].outputs if name.startswith("inputs.")]
        if written and self.options.layouts:
            detail = (
                f"the model writes into its own input ({', '.join(written)}), of which each process"
                " has only its rows"
            )
            return _answer(Outcome.UNKNOWN, Word.EAGER_VARIATION, detail, [])
        late = [
            deviation
            for kind in REPEATED
            for deviation in self._repeated(kind, self.reference.eager[-1], self.reference.late)
        ]
        wrong = [deviation for deviation in late if deviation.wrong]
        if not wrong:
            return None
        where = (
            "the model keeps state that is neither in parameters and buffers nor in attributes that"
            " can be put back"
        )
        detail = (
            f"{where}: eager's own last step is another one after more steps"
            f" ({_describe_worst(wrong)})"
        )
        return _answer(Outcome.UNKNOWN, Word.EAGER_VARIATION, detail, wrong)

    def _repeated(self, kind: str, eager: Snapshot, again: Snapshot) -> Iterator[Deviation]:
        first, second = (getattr(run, kind) for run in (eager, again))
        largest = max(
            (float(real_parts(value).double().norm()) for value in first.values()), default=0.0
        )
        allowed = self.yardstick.multiplier * self.yardstick.tolerance * largest
        for name in first.keys() | second.keys():
            if name not in first or name not in second:
                fault = "only one of them has it"
                yield Deviation(
                    name=name, score=inf, error=inf, allowed=0.0, blind=False, fault=fault
                )
            elif not torch.equal(first[name].nan_to_num(), second[name].nan_to_num()):
                error = float(
                    (real_parts(first[name]).double() - real_parts(second[name]).double()).norm()
                )
                yield Deviation(
                    name=name,
                    score=error / allowed if allowed else inf,
                    error=error,
                    allowed=allowed,
                    blind=False,
                )

    def candidate(
        self,
        steps: Iterable[tuple[int, Snapshot]],
        claim: Callable[[Leaves, Computed], None] | None = None,
    ) -> tuple[ArmAnswer, Snapshot]:
        """Judge the snapshots of one candidate, each with the number of its step.

        Also returns the last of them. Outputs and gradients of a step that agrees are claimed, if
        the rule is the usual one.
        """
        deviations: list[Deviation] = []
        count, last = 0, None
        for index, snapshot in steps:
            step_deviations = [*self._same(index, snapshot)]
            usual = self.yardstick == yardstick_of(self.options.precision.epsilon)
            if (
                claim is not None
                and usual
                and not any(deviation.wrong for deviation in step_deviations)
            ):
                claim(_claimable(snapshot), self._expected(index))
            deviations += step_deviations
            count, last = count + 1, snapshot
        assert last is not None, "at least one step is verified"  # noqa: S101 - the schema says so
        return self._answer(deviations, count), last

    def _answer(self, deviations: list[Deviation], steps: int) -> ArmAnswer:
        wrong = [deviation for deviation in deviations if deviation.wrong]
        if wrong:
            return _answer(
                Outcome.FAIL, Word.FAIL_ACCURACY, f"{_describe_worst(wrong)}{self._basis()}", wrong
            )
        empty = unverifiable(deviations, KINDS)
        if empty:
            return _answer(Outcome.UNKNOWN, Word.PASS, f"{empty}{self._basis()}", deviations)
        if weak := self._weak(deviations):
            return _answer(Outcome.UNKNOWN, Word.PASS, f"{weak}{self._basis()}", deviations)
        worst = max(deviations, key=lambda deviation: deviation.score)
        turns = (
            f"{self.reference.batches} {'sizes' if self.options.settings.dynamic else 'batches'}"
        )
        counted = f"{len(deviations)} tensors in {steps} steps over all {turns}"
        counted += (
            f", {self.reference.halves} of them with half of the rows blank"
            if self.reference.halves
            else ""
        )
        detail = f"{counted}, the largest error is {worst.score:.2f} of what rounding allows"
        return _answer(
            Outcome.PASS, Word.PASS, f"{detail} ({worst.name}){self._basis()}", deviations
        )

    def _weak(self, deviations: list[Deviation]) -> str:
        """Explain why agreement is weak evidence; empty if it is not.

        It is weak for few numbers of a narrow format, which blank rows do not move.
        """
        reference = self.reference
        if not reference.little:
            return ""
        allowed = max(
            (deviation.allowed for deviation in deviations if deviation.name.startswith("outputs")),
            default=0.0,
        )
        outputs = reference.eager[0].outputs
        for half in reference.eager[len(reference.eager) - reference.halves :]:
            distances = [
                float((half.outputs[name].double() - value.double()).norm())
                for name, value in outputs.items()
                if value.is_floating_point()
                and name in half.outputs
                and half.outputs[name].shape == value.shape
            ]
            if any(distance > TELLING * allowed for distance in distances):
                return ""
        count = sum(value.numel() for value in outputs.values())
        numbers = "one number" if count == 1 else f"{count} numbers"
        return (
            f"a step's outputs are {numbers} in {self.options.precision}, which agree as well where"
            " half of the rows is left out"
        )

    def _expected(self, index: int) -> Computed:
        """Return the reference's results in a step, exactly and with rounding.

        They are the same each time.
        """
        if index not in self._claimed:
            reference = self.reference
            runs = [reference.again[index], *(run[index] for run in reference.shaken)]
            self._claimed[index] = Computed(
                arm="eager",
                epsilon=self.options.precision.epsilon,
                outputs=_claimable(reference.eager[index]),
                runs=[_claimable(run) for run in runs],
                jolts=[_claimable(run[index]) for run in reference.jolted],
                truth=_claimable(reference.exact[index]) if reference.exact else None,
            )
        return self._claimed[index]

    def runner_rule(self, last: Snapshot, rule: RunnerRule) -> tuple[bool, str]:
        """Return the runner's verdict on the last step, and the wrong tensors in words."""
        eager = self.reference.eager[-1]
        exact = self.reference.exact[-1] if self.reference.exact else None
        compared = list(_all(last, eager, exact))
        wrong = [
            name
            for name, actual, expected, true in compared
            if actual is None or not agrees(actual, expected, true, rule)
        ]
        return (
            not wrong,
            f"{len(compared)} tensors, {len(wrong)} wrong {', '.join(wrong[:SHOWN])}".strip(),
        )

    def _same(self, index: int, snapshot: Snapshot) -> Iterator[Deviation]:
        """Compare everything of one step."""
        eager = self.reference.eager[index]
        if dict(snapshot.other) != dict(eager.other):
            yield _other(snapshot.other, eager.other)
        yield from judged(self._measured(index, snapshot), self.yardstick)
        start = self.reference.starts[index]
        if start.trained:
            memory = _memory_of(self.options.settings.optimizer, start)
            yield from judged(self._updates(index, snapshot), of_optimizer(self.yardstick, memory))

    def _measured(self, index: int, snapshot: Snapshot) -> Iterator[TensorMeasurement]:
        """Measure the model's results; parameters that are not trained have to stay."""
        start = self.reference.starts[index]
        yield from self._leaves("", index, lambda run: run.outputs, snapshot)
        if snapshot.loss is not None:
            yield from self._leaves("", index, _loss_of, snapshot)
        yield from self._leaves("gradients.", index, lambda run: run.gradients, snapshot)
        yield from self._leaves(
            "buffers.", index, lambda run: run.buffers, snapshot, starts=start.buffers
        )
        for name in sorted(start.parameters.keys() - set(start.trained)):
            begin = start.parameters[name]
            yield measure(f"parameters.{name}", snapshot.parameters[name], begin, [begin])

    def _updates(self, index: int, snapshot: Snapshot) -> Iterator[TensorMeasurement]:
        """Measure the optimizer's updates."""
        start, eager = self.reference.starts[index], self.reference.eager[index]
        for names in treated_apart(self.options, start):
            ideal, eager_ideal = (
                ideal_change(self.options, start, after, names) for after in (snapshot, eager)
            )
            for name in names:
                reference = (eager.parameters[name], eager_ideal[name])
                begin = start.parameters[name]
                yield measure_change(
                    f"updates.{name}",
                    snapshot.parameters[name],
                    ideal[name],
                    reference=reference,
                    start=begin,
                )

    def _leaves(
        self,
        prefix: str,
        index: int,
        part: Callable[[Snapshot], Leaves],
        snapshot: Snapshot,
        starts: Leaves | None = None,
    ) -> Iterator[TensorMeasurement]:
        """Measure one part of a snapshot, tensor by tensor, against that of all other runs."""
        reference = self.reference
        runs = [
            reference.eager[index],
            reference.again[index],
            *(run[index] for run in reference.shaken),
        ]
        measurements = measured(
            part(snapshot),
            truth=part(reference.exact[index]) if reference.exact else None,
            runs=[part(run) for run in runs],
            jolts=[part(run[index]) for run in reference.jolted],
            starts=starts or {},
        )
        yield from (
            replace(measurement, name=prefix + measurement.name) for measurement in measurements
        )

    def _basis(self) -> str:
        return (
            f"; no fp64 reference: {self.reference.why_inexact}"
            if self.reference.why_inexact
            else ""
        )


def _memory_of(name: str, start: Start) -> float:
    """Return the longest memory of the optimizer of that name, Adam's second beta."""
    return longest_memory(name, start.optimizer["param_groups"] if start.optimizer else ())


def _claimable(snapshot: Snapshot) -> Leaves:
    """Return outputs and gradients, by the names that deviations have."""
    return {
        **snapshot.outputs,
        **{f"gradients.{name}": value for name, value in snapshot.gradients.items()},
    }


def _loss_of(snapshot: Snapshot) -> Leaves:
    return {} if snapshot.loss is None else {"loss": snapshot.loss}


def _answer(outcome: Outcome, word: Word, detail: str, deviations: list[Deviation]) -> ArmAnswer:
    score = max((deviation.score for deviation in deviations), default=0.0)
    return ArmAnswer(outcome=outcome, word=word, detail=f"{word}: {detail}", score=score)


def _describe_worst(wrong: list[Deviation]) -> str:
    """Describe each tensor once, those first that others depend on, then the worst."""
    worst: dict[str, Deviation] = {}
    for deviation in sorted(wrong, key=lambda deviation: -deviation.score):
        worst.setdefault(deviation.name, deviation)
    ordered = sorted(
        worst.values(),
        key=lambda deviation: (_rank(deviation.name), not deviation.fault, -deviation.score),
    )
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return "; ".join(map(told, ordered[:SHOWN])) + more


def _rank(name: str) -> int:
    return next((rank for rank, kind in enumerate(ORDER) if name.startswith(kind)), len(ORDER))


def _other(actual: Mapping[str, str], eager: Mapping[str, str]) -> Deviation:
    name = next(
        name for name in sorted(actual.keys() | eager.keys()) if actual.get(name) != eager.get(name)
    )
    fault = f"{actual.get(name, 'missing')} instead of {eager.get(name, 'nothing')}"
    return Deviation(name=name, score=inf, error=inf, allowed=0.0, blind=False, fault=fault)


def _all(
    snapshot: Snapshot, eager: Snapshot, exact: Snapshot | None
) -> Iterator[tuple[str, Tensor | None, Tensor, Tensor | None]]:
    """Yield the tensors that the runner compares.

    They are outputs in inference; loss, gradients, parameters and buffers in training.
    """
    groups = ("outputs",) if eager.loss is None else ("gradients", "parameters", "buffers")
    if eager.loss is not None:
        yield "loss", snapshot.loss, eager.loss, None if exact is None else exact.loss
    for group in groups:
        theirs: Leaves = getattr(eager, group)
        for name, expected in theirs.items():
            true = None if exact is None else getattr(exact, group).get(name)
            yield (
                f"{group}.{name}".removeprefix("outputs.outputs"),
                getattr(snapshot, group).get(name),
                expected,
                true,
            )
