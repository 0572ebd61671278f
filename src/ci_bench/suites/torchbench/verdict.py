"""From snapshots to an answer: every tensor of every step against the truth, and one word of the runner's vocabulary."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from ci_bench.records.case import Outcome
from ci_bench.suites.torchbench.accuracy import FP32_EPSILON, ROUNDINGS, Deviation, Yardstick, change, deviation, missing
from ci_bench.suites.torchbench.options import Options
from ci_bench.suites.torchbench.runner_rule import RunnerRule, agrees
from ci_bench.suites.torchbench.snapshot import Leaves, Snapshot
from ci_bench.suites.torchbench.status import Word
from ci_bench.suites.torchbench.verify import Reference, ideal_change, treated_apart

SHOWN = 3
REPEATED = ("outputs", "gradients", "buffers")
ORDER = ("outputs", "loss", "gradients", "buffers")
"""What is wrong first is told first: a wrong output makes wrong gradients."""
KINDS = ("outputs", "gradients", "updates")
"""Of each kind that a case has, something has to be large enough to tell a wrong result from a right one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Whether the candidate is accurate, in a word of the runner's and in plain ones. `score` is the largest."""

    outcome: Outcome
    word: Word
    detail: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judges snapshots of one case. `unsteady` says that eager is known not to repeat itself: its spread counts as rounding."""

    options: Options
    reference: Reference
    yardstick: Yardstick
    unsteady: bool = False

    def eager_repeats(self) -> Answer | None:
        """`None` where the two eager runs agree; else why candidates cannot be judged.

        Not through the truth: a model that draws other numbers each time is far from it, too. Kernels that add up in any order
        may differ in the last digits of the largest tensor of a kind.
        """
        pairs = zip(self.reference.eager, self.reference.again, strict=True)
        found = [one for eager, again in pairs for kind in REPEATED for one in self._repeated(kind, eager, again)]
        wrong = [one for one in found if one.wrong]
        if not wrong or self.unsteady:
            return None
        detail = (
            f"two eager runs from the same state differ: {_listed(wrong)}; mark the model non_deterministic if it has to be so"
        )
        return _answer(Outcome.FAIL, Word.EAGER_TWO_RUNS_DIFFER, detail, wrong)

    def _repeated(self, kind: str, eager: Snapshot, again: Snapshot) -> Iterator[Deviation]:
        first, second = (getattr(one, kind) for one in (eager, again))
        largest = max((float(value.double().norm()) for value in first.values() if value.is_floating_point()), default=0.0)
        for name in first.keys() | second.keys():
            if name not in first or name not in second:
                yield missing(name, extra=name in second)
            elif not torch.equal(first[name].nan_to_num(), second[name].nan_to_num()):
                error = float((first[name].double() - second[name].double()).norm())
                allowed = self.yardstick.multiplier * self.yardstick.tolerance * largest
                yield Deviation(name=name, score=error / allowed if allowed else inf, error=error, allowed=allowed, blind=False)

    def candidate(self, steps: Iterable[tuple[int, Snapshot]]) -> tuple[Answer, Snapshot]:
        """The answer for the snapshots of one candidate, each with the number of its step; and the last of them."""
        found: list[Deviation] = []
        count, last = 0, None
        for index, snapshot in steps:
            found += self._same(index, snapshot)
            count, last = count + 1, snapshot
        assert last is not None, "at least one step is verified"  # noqa: S101 - the schema says so
        return self._answer(found, count), last

    def _answer(self, found: list[Deviation], steps: int) -> Answer:
        wrong = [one for one in found if one.wrong]
        if wrong:
            return _answer(Outcome.FAIL, Word.FAIL_ACCURACY, f"{_listed(wrong)}{self._basis()}", wrong)
        empty = self._empty(found)
        if empty:
            return _answer(Outcome.UNKNOWN, Word.PASS, f"{empty}{self._basis()}", found)
        worst = max(found, key=lambda one: one.score)
        detail = f"{len(found)} tensors in {steps} steps, the largest error is {worst.score:.2f} of what rounding allows"
        return _answer(Outcome.PASS, Word.PASS, f"{detail} ({worst.name}){self._basis()}", found)

    def runner_rule(self, last: Snapshot, rule: RunnerRule) -> tuple[bool, str]:
        """What the runner would have said of the last step, and of which tensors."""
        eager = self.reference.eager[-1]
        exact = self.reference.exact[-1] if self.reference.exact else None
        compared = list(_all(last, eager, exact))
        wrong = [name for name, given, wanted, true in compared if given is None or not agrees(given, wanted, true, rule)]
        return not wrong, f"{len(compared)} tensors, {len(wrong)} wrong {', '.join(wrong[:SHOWN])}".strip()

    def _same(self, index: int, snapshot: Snapshot) -> Iterator[Deviation]:
        """Everything of one step."""
        eager = self.reference.eager[index]
        truth = self.reference.exact[index] if self.reference.exact else eager
        runs = [eager, self.reference.again[index], *(run[index] for run in self.reference.shaken)]
        if dict(snapshot.other) != dict(eager.other):
            yield _other(snapshot.other, eager.other)
        yield from self._leaves("", snapshot.outputs, truth.outputs, [run.outputs for run in runs])
        if snapshot.loss is not None:
            losses = [{"loss": run.loss} for run in runs if run.loss is not None]
            yield from self._leaves("", {"loss": snapshot.loss}, {"loss": truth.loss}, losses)  # type: ignore[dict-item]
        yield from self._leaves("gradients.", snapshot.gradients, truth.gradients, [run.gradients for run in runs])
        start = self.reference.starts[index]
        buffers = [run.buffers for run in runs]
        yield from self._leaves("buffers.", snapshot.buffers, truth.buffers, buffers, starts=start.buffers)
        yield from self._updates(index, snapshot, eager)

    def _updates(self, index: int, snapshot: Snapshot, eager: Snapshot) -> Iterator[Deviation]:
        """What the optimizer did; parameters that are not trained have to stay."""
        start = self.reference.starts[index]
        for name in sorted(start.parameters.keys() - set(start.trained)):
            begin = start.parameters[name]
            yield deviation(f"parameters.{name}", snapshot.parameters[name], begin, [begin], self.yardstick)
        if not start.trained:
            return
        yardstick = self._of_optimizer(start.optimizer)
        for names in treated_apart(self.options, start):
            ideal, eager_ideal = (ideal_change(self.options, start, one, names) for one in (snapshot, eager))
            for name in names:
                reference = (eager.parameters[name], eager_ideal[name])
                given = snapshot.parameters[name]
                begin = start.parameters[name]
                yield change(f"updates.{name}", given, ideal[name], reference=reference, start=begin, yardstick=yardstick)

    def _of_optimizer(self, state: Mapping[str, Any] | None) -> Yardstick:
        """Optimizers that divide by ``1 - beta ** step`` lose digits: eager computes it in fp64, compilers in fp32 tensors."""
        groups = state["param_groups"] if state else ()
        beta = max((beta for group in groups for beta in group.get("betas", ())), default=0.0)
        lost = ROUNDINGS * FP32_EPSILON / (1 - float(beta))
        return replace(self.yardstick, tolerance=max(self.yardstick.tolerance, lost))

    def _leaves(
        self, prefix: str, given: Leaves, truth: Leaves, runs: list[Leaves], starts: Leaves | None = None
    ) -> Iterator[Deviation]:
        eager = runs[0]
        for name in eager.keys() | given.keys():
            if name not in given or name not in eager:
                yield missing(prefix + name, extra=name in given)
                continue
            true = truth.get(name, eager[name])
            others = [run[name] for run in runs if name in run]
            start = None if starts is None or not eager[name].is_floating_point() else starts[name]
            yield deviation(prefix + name, given[name], true, others, self.yardstick, start=start)

    def _empty(self, found: list[Deviation]) -> str:
        """Why agreement would mean nothing: all tensors of a kind are smaller than their own rounding."""
        for kind in KINDS:
            of_kind = [one for one in found if one.name.startswith(kind)]
            telling = [one for one in of_kind if one.allowed > 0 and not one.blind]
            if of_kind and not telling and any(one.blind for one in of_kind):
                return f"none of the {len(of_kind)} {kind} is larger than its own rounding, so zeros would agree as well"
        return ""

    def _basis(self) -> str:
        return f"; no fp64 reference: {self.reference.why_inexact}" if self.reference.why_inexact else ""


def _answer(outcome: Outcome, word: Word, detail: str, found: list[Deviation]) -> Answer:
    return Answer(outcome=outcome, word=word, detail=f"{word}: {detail}", score=max(one.score for one in found))


def _listed(wrong: list[Deviation]) -> str:
    """Each tensor once, those first that others depend on, then the worst."""
    worst: dict[str, Deviation] = {}
    for one in sorted(wrong, key=lambda one: -one.score):
        worst.setdefault(one.name, one)
    ordered = sorted(worst.values(), key=lambda one: (_rank(one.name), not one.fault, -one.score))
    told = [
        f"{one.name}: {one.fault or f'off by {one.error:.3g}, and rounding explains {one.allowed:.3g}'}"
        for one in ordered[:SHOWN]
    ]
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return "; ".join(told) + more


def _rank(name: str) -> int:
    return next((rank for rank, kind in enumerate(ORDER) if name.startswith(kind)), len(ORDER))


def _other(given: Mapping[str, str], eager: Mapping[str, str]) -> Deviation:
    name = next(name for name in sorted(given.keys() | eager.keys()) if given.get(name) != eager.get(name))
    fault = f"{given.get(name, 'missing')} instead of {eager.get(name, 'nothing')}"
    return Deviation(name=name, score=inf, error=inf, allowed=0.0, blind=False, fault=fault)


def _all(given: Snapshot, eager: Snapshot, exact: Snapshot | None) -> Iterator[tuple[str, Tensor | None, Tensor, Tensor | None]]:
    """What the runner compares: outputs in inference; loss, gradients, parameters and buffers in training."""
    groups = ("outputs",) if eager.loss is None else ("gradients", "parameters", "buffers")
    if eager.loss is not None:
        yield "loss", given.loss, eager.loss, None if exact is None else exact.loss
    for group in groups:
        theirs: Leaves = getattr(eager, group)
        for name, wanted in theirs.items():
            true = None if exact is None else getattr(exact, group).get(name)
            yield f"{group}.{name}".removeprefix("outputs.outputs"), getattr(given, group).get(name), wanted, true
