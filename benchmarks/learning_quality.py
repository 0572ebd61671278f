"""Counts the faults that loss parity misses and the right reorderings it refuses.

The table has a row for each precision.

Run as ``python -m benchmarks.learning_quality [--precision NAME]… [--first N] [--problems N]
[--seed N] [--epsilon X] [--limit-s X] [--json FILE]``. Each problem of
`benchmarks.learning_problems` is trained for 50 steps as it is, shaken, with the positive control,
with each right reordering and with each fault, in the precision and in fp32. All are judged as a
gate judges: in the envelope of one perturbed run, and of six if they leave it. A fault that moves
no bit in fp32 is left out.
"""

import argparse
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.learning_problems import (
    BENIGN,
    FAULTS,
    PROBLEMS,
    ROWS,
    SPIKE,
    SPIKES,
    WARM_UP,
    Batch,
    Change,
    Problem,
    Settings,
    autocast_of,
    batches,
    model_of,
    optimizer_of,
)
from benchmarks.tables import publish, render
from ci_bench.judge.parity.sensitivity import sensitivity_of
from ci_bench.judge.parity.verdict import numeric_finding, parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.records.results import ArmMasks, Masks, NonFinite, ParityEvidence, Role, Trace
from ci_bench.suites.shared.worker.optimizers import lost_by_correction
from ci_bench.suites.training_loss.network import perturbed
from ci_bench.suites.training_loss.options import TrainingPrecision
from ci_bench.suites.training_loss.training import CONTROL_SHARE, FIRST_LOSS_SCALE

STEPS, FEW, MANY = 50, 1, 6
ARM, REFERENCE = "changed", "eager"
PRECISIONS = ("fp32", "amp_bf16", "amp_fp16", "bf16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Judgement of one change of one problem in one precision."""

    precision: str
    """The precision of the training."""
    problem: str
    """The name of the problem."""
    change: str
    """The name of the change."""
    fault: bool
    """True for a fault, false for a right reordering."""
    verdict: Parity
    """The verdict with the fp32 twin."""
    alone: Parity
    """The verdict without it."""
    score: float
    """The largest score of the change, in the precision or in fp32."""
    control: float
    """The score of a learning rate 1 % off."""
    detail: str
    """The judge's words."""


class Trainings:
    """The trainings of one problem in one precision, each done once."""

    def __init__(self, problem: Problem, precision: str, seed: int, epsilon: float | None) -> None:
        """Prepare the trainings.

        `epsilon` is that of the perturbed runs; `None` is the precision's own.
        """
        self.problem, self.precision, self.seed = problem, precision, seed
        self.epsilon = TrainingPrecision(precision).perturbation if epsilon is None else epsilon
        self._known: dict[tuple[Role, int], Trace] = {}
        self._changed: dict[str, Trace] = {}

    def evidence(self, candidate: Trace, count: int) -> ParityEvidence:
        """Return the evidence: reference, so many perturbed runs, candidate and control."""
        runs = [
            self._run(Role.REFERENCE),
            *(self._run(Role.PERTURBED, index) for index in range(count)),
        ]
        return ParityEvidence(
            precision=self.precision,
            epsilon=self.epsilon,
            steps_per_epoch=STEPS,
            evaluation_rows=0,
            masks=(ArmMasks(arm=ARM, masks=Masks.ALIGNED, detail=""),),
            traces=(*runs, candidate, self._run(Role.CONTROL)),
        )

    def _run(self, role: Role, index: int = 0) -> Trace:
        if (role, index) not in self._known:
            self._known[role, index] = self.train(role, {}, index)
        return self._known[role, index]

    def changed(self, change: Change) -> Trace:
        """Return the training with a change."""
        if change.name not in self._changed:
            self._changed[change.name] = self.train(Role.CANDIDATE, change.settings)
        return self._changed[change.name]

    def train(self, role: Role, settings: Settings, index: int = 0) -> Trace:
        """Train for fifty steps."""
        problem = self.problem
        model = model_of(problem, settings, self.seed)
        if role is Role.PERTURBED:
            model.load_state_dict(
                perturbed(model.state_dict(), epsilon=self.epsilon, seed=1 + index)
            )
        model = model.to(torch.bfloat16) if self.precision == "bf16" else model
        optimizer = optimizer_of(problem, model, settings)
        scaler = torch.amp.GradScaler(
            "cpu", init_scale=FIRST_LOSS_SCALE, enabled=self.precision == "amp_fp16"
        )
        draw, losses, norms = torch.Generator().manual_seed(index), [], []
        for step, batch in enumerate(batches(problem, self.seed, STEPS)):
            torch.manual_seed(7919 * self.seed + step)
            self._set_rate(optimizer, settings, step, draw if role is Role.PERTURBED else None)
            optimizer.zero_grad()
            loss = _backward(model, batch, settings, self.precision, scaler)
            scaler.unscale_(optimizer)
            norms.append(
                _shaped_gradients(model, settings, problem.clip * float(settings.get("clip", 1.0)))
            )
            before = [value.detach().clone() for value in model.parameters()]
            if step != settings.get("skip"):
                scaler.step(optimizer)
            scaler.update()
            if role is Role.CONTROL:
                with torch.no_grad():
                    for value, old in zip(model.parameters(), before, strict=True):
                        value.add_(value - old, alpha=CONTROL_SHARE)
            losses.append(loss)
        start = f"shaken {index}" if role is Role.PERTURBED else "start"
        return _trace(role, index, start, losses, norms)

    def _set_rate(
        self,
        optimizer: torch.optim.Optimizer,
        settings: Settings,
        step: int,
        draw: torch.Generator | None,
    ) -> None:
        late = int(settings.get("late", 0))
        share = min(1.0, (1 + max(0, step - late)) / WARM_UP) if self.problem.warm else 1.0
        share *= SPIKE if self.problem.spikes and step in SPIKES else 1.0
        for group in optimizer.param_groups:
            lost = (
                lost_by_correction("AdamW", list(group.get("betas", ())), step + 1) if draw else 0.0
            )
            noise = float(torch.randn((), generator=draw, dtype=torch.float64)) if draw else 0.0
            group["lr"] = (
                self.problem.rate * float(settings.get("rate", 1.0)) * share * (1 + lost * noise)
            )


def _backward(
    model: nn.Module, batch: Batch, settings: Settings, precision: str, scaler: torch.amp.GradScaler
) -> float:
    inputs, classes = batch
    if precision == "bf16" and inputs.is_floating_point():
        inputs = inputs.to(torch.bfloat16)
    rows = settings.get("rows")
    parts = [(inputs, classes)]
    if rows == "reversed":
        parts = [(inputs.flip(0), classes.flip(0))]
    elif rows == "halves":
        parts = [
            (inputs[: ROWS // 2], classes[: ROWS // 2]),
            (inputs[ROWS // 2 :], classes[ROWS // 2 :]),
        ]
    total = 0.0
    for some, targets in parts:
        with autocast_of(precision):
            loss = functional.cross_entropy(
                model(some), targets, label_smoothing=float(settings.get("smoothing", 0.0))
            )
        scaler.scale(loss / len(parts)).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        total += float(loss.detach()) / len(parts)
    return total


def _shaped_gradients(model: nn.Module, settings: Settings, clip: float) -> float:
    """Scale gradients as a fault requires, note their norm, then clip them."""
    values: list[Tensor] = [
        parameter.grad for parameter in model.parameters() if parameter.grad is not None
    ]
    for gradient in values:
        gradient.mul_(float(settings.get("gradients", 1.0)))
    values[-2].mul_(float(settings.get("one_gradient", 1.0)))
    norm = float(
        torch.linalg.vector_norm(
            torch.stack(
                [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in values]
            )
        )
    )
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    return norm


def _trace(role: Role, index: int, start: str, losses: list[float], norms: list[float]) -> Trace:
    series = {"loss": losses, "grad_norm": norms}
    holes = [
        NonFinite(signal=name, step=step, value=str(value))
        for name, values in series.items()
        for step, value in enumerate(values)
        if not abs(value) < float("inf")
    ]
    loss, norm = (
        tuple(value if abs(value) < float("inf") else None for value in values)
        for values in (losses, norms)
    )
    arm = ARM if role is Role.CANDIDATE else REFERENCE
    return Trace(
        arm=arm,
        role=role,
        seed=0,
        index=index,
        loss=loss,
        grad_norm=norm,
        start=start,
        data="d",
        non_finite=tuple(holes),
    )


def judged(
    trainings: Trainings, twin: Trainings | None, change: Change, *, fault: bool
) -> Outcome | None:
    """Judge a change; return `None` for a fault that moves no bit in fp32."""
    candidate = trainings.changed(change)
    beside = None if twin is None else twin.changed(change)
    exact = (twin or trainings).evidence(beside or candidate, FEW)
    if fault and (exact.traces[0].loss, exact.traces[0].grad_norm) == (
        (beside or candidate).loss,
        (beside or candidate).grad_norm,
    ):
        return None
    for count in (FEW, MANY):
        backing = None if twin is None or beside is None else twin.evidence(beside, count)
        evidence = replace(trainings.evidence(candidate, count), twin=backing)
        (finding,) = parity_findings(evidence)
        if finding.verdict.holds or finding.verdict is Parity.INSUFFICIENT_SENSITIVITY:
            break
    alone = numeric_finding(evidence, candidate, Masks.ALIGNED)
    scores = [
        alone,
        *(
            []
            if backing is None or beside is None
            else [numeric_finding(backing, beside, Masks.ALIGNED)]
        ),
    ]
    return Outcome(
        precision=trainings.precision,
        problem=trainings.problem.name,
        change=change.name,
        fault=fault,
        verdict=finding.verdict,
        alone=alone.verdict,
        score=max(
            max(numeric.loss_score or 0.0, numeric.grad_norm_score or 0.0) for numeric in scores
        ),
        control=sensitivity_of(backing or evidence, numeric_finding).score or 0.0,
        detail=finding.detail,
    )


def outcomes(
    problem: Problem, *, precisions: Sequence[str], seed: int, epsilon: float | None
) -> list[Outcome]:
    """Judge all changes that apply to a problem, in each precision."""
    torch.set_num_threads(1)
    exact = Trainings(problem, "fp32", seed, None)
    results: list[Outcome] = []
    for precision in precisions:
        trainings, twin = (
            (exact, None)
            if precision == "fp32"
            else (Trainings(problem, precision, seed, epsilon), exact)
        )
        results += [
            *_all(trainings, twin, BENIGN, fault=False),
            *_all(trainings, twin, FAULTS, fault=True),
        ]
    return results


def _all(
    trainings: Trainings, twin: Trainings | None, changes: Sequence[Change], *, fault: bool
) -> Iterator[Outcome]:
    for change in changes:
        if not change.applies(trainings.problem):
            continue
        try:
            outcome = judged(trainings, twin, change, fault=fault)
        except (
            RuntimeError
        ) as error:  # torch has no kernel for it, as for some layouts of LSTMs in fp16 on a CPU
            sys.stderr.write(
                f"not run: {trainings.problem.name}, {change.name}, {trainings.precision}:"
                f" {str(error)[:100]}\n"
            )
            continue
        if outcome is not None:
            yield outcome


def row_of(precision: str, changes: Sequence[Outcome]) -> Mapping[str, str]:
    """Return the table's row of a precision."""
    benign, faults = (
        [outcome for outcome in changes if outcome.fault is fault] for fault in (False, True)
    )
    refused = [outcome for outcome in benign if outcome.verdict.broken]
    missed = [outcome for outcome in faults if outcome.verdict.holds]
    alone = [outcome for outcome in faults if outcome.alone.holds]
    controls = sorted(outcome.control for outcome in changes)
    blind = Counter(outcome.verdict for outcome in changes)[Parity.INSUFFICIENT_SENSITIVITY]
    undecided = [
        sum(not (outcome.verdict.holds or outcome.verdict.broken) for outcome in some)
        for some in (benign, faults)
    ]
    return {
        "precision": precision,
        "benign": str(len(benign)),
        "refused": _share(len(refused), len(benign)),
        "refused by the precision": _share(
            sum(outcome.alone.broken for outcome in benign), len(benign)
        ),
        "benign undecided": str(undecided[0]),
        "faults": str(len(faults)),
        "missed": _share(len(missed), len(faults)),
        "faults undecided": str(undecided[1]),
        "missed without the fp32 twin": _share(len(alone), len(faults)),
        "insufficient sensitivity": str(blind),
        "control, least / median": (
            f"{controls[0]:.3g} / {controls[len(controls) // 2]:.3g}" if controls else ""
        ),
        "missed kinds": ", ".join(
            f"{name} {count}"
            for name, count in Counter(outcome.change for outcome in missed).most_common()
        ),
    }


def _share(count: int, of: int) -> str:
    return f"{count} ({100 * count / of:.1f} %)" if of else "0"


def main(argv: Sequence[str] | None = None) -> int:
    """Train all, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--precision", action="append", choices=PRECISIONS, help="all four where left out"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first problem, from 0"
    )
    parser.add_argument(
        "--problems", type=int, default=len(PROBLEMS), help="so many of them, from the first on"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of weights and data: 0 is for tuning, others for reports",
    )
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument(
        "--epsilon",
        type=float,
        help="of the perturbed runs in lower precisions, instead of the suite's own",
    )
    parser.add_argument(
        "--limit-s",
        type=float,
        default=math.inf,
        help="begin no further problem after so many seconds",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="also write every outcome here")
    arguments = parser.parse_args(argv)
    begun = time.monotonic()
    precisions, problems = (
        arguments.precision or list(PRECISIONS),
        PROBLEMS[arguments.first :][: arguments.problems],
    )
    work = [
        partial(outcomes, problem, precisions=precisions, seed=seed, epsilon=arguments.epsilon)
        for seed in range(arguments.seed, arguments.seed + arguments.seeds)
        for problem in problems
    ]
    results: list[Outcome] = []
    done = 0
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        for some in pool.map(_call, work):
            results, done = [*results, *some], done + 1
            seconds = time.monotonic() - begun
            sys.stderr.write(f"{some[0].problem}: {len(some)} changes after {seconds:.0f} s\n")
            if seconds > arguments.limit_s:
                pool.shutdown(cancel_futures=True)
                break
    rows = [
        row_of(precision, [outcome for outcome in results if outcome.precision == precision])
        for precision in precisions
    ]
    title = (
        f"{done} of {len(work)} trainings of problems and seeds, {time.monotonic() - begun:.0f} s"
    )
    document = {
        "rows": [dict(row) for row in rows],
        "outcomes": [_as_json(outcome) for outcome in results],
    }
    publish(render(title, rows), document, arguments.json)
    return 0


def _call(work: Callable[[], list[Outcome]]) -> list[Outcome]:
    return work()


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {name: getattr(outcome, name) for name in Outcome.__slots__}


if __name__ == "__main__":
    sys.exit(main())
