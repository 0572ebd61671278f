"""Results documents of both sides of a run, made up but as the engine writes them, and the judge's own comparison of them."""

import math
import random
from dataclasses import dataclass, replace
from functools import cache

from report_builders import CONDITION, GPU

from ci_bench.commands.judging import Baseline, judge, page
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.config import Policy
from ci_bench.records.results import (
    ArmMasks,
    Better,
    Block,
    Case,
    CaseResult,
    Check,
    Environment,
    Failure,
    Lane,
    Launch,
    Masks,
    Metric,
    Outcome,
    ParityEvidence,
    Results,
    Role,
    Run,
    RunState,
    Source,
    Status,
    Trace,
    Unit,
)

LAUNCHES, BLOCKS, STEPS = 6, 4, 40
ARMS = ("eager", "inductor")
THROTTLED = "the GPU's clock was held down (SW power cap)"
DIVERGES = 7


@dataclass(frozen=True)
class Documents:
    """Both documents and what the judge says."""

    comparison: Comparison
    head: Results
    base: Results | None

    @property
    def html(self) -> str:
        return page(self.comparison, head=self.head, base=self.base)


@cache
def paired(cases: int = 4, blocks: int = BLOCKS, steps: int = STEPS) -> Documents:
    """A paired run: case 0 is slower and learns something else, 1 takes more memory, 2 crashed, the others are as they were."""
    head, base = (
        Results(**_frame(side), cases=tuple(_row(side, n, blocks, steps) for n in range(cases)))
        for side in ("head", "base")
    )
    baseline = Baseline(mode=BaselineMode.PAIRED, results=base)
    return Documents(judge(head, baseline, policy=Policy(), folder=None), head, base)


@cache
def alone() -> Documents:
    """The head of the same run, with nothing to compare."""
    head = paired().head
    baseline = Baseline(mode=BaselineMode.NONE, absence="this report covers a single run")
    return Documents(judge(head, baseline, policy=Policy(), folder=None), head, None)


def _frame(side: str) -> dict:
    run = Run(
        id="20260102T030405Z",
        started_at="2026-01-02T03:04:05Z",
        finished_at="2026-01-02T03:14:05Z",
        state=RunState.COMPLETE,
        config_digest="c0ffee",
        device="cuda",
    )
    commits = {
        "head": "4be1a7c09d2f5e6a8b3c1d0e9f7a6b5c4d3e2f10",
        "base": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    }
    source = Source(
        commit=commits[side], branch={"head": "faster-loader", "base": "main"}[side], dirty=False
    )
    condition = {**CONDITION, "temperature_c": 41 if side == "base" else 44}
    return {
        "tool_version": "0.1.0",
        "run": run,
        "source": source,
        "environment": Environment(identity=GPU, condition=condition),
    }


def _row(side: str, number: int, blocks: int, steps: int) -> CaseResult:
    name = f"training_loss/net{number:03d}[backend=inductor,precision=fp32]"
    case = Case(
        id=name,
        suite="training_loss",
        name=f"net{number:03d}",
        params={},
        arms=ARMS,
        reference="eager",
    )
    row = CaseResult(case=case, status=Status.OK, reproduce=f"ci-bench run --filter '{name}'")
    if number == 2 and side == "head":
        failure = Failure(
            stage="time",
            arms=ARMS,
            reason="ended by SIGSEGV",
            signal="SIGSEGV",
            log_tail="step 1\n  step 2\n    ^~~~\n",
        )
        return replace(row, status=Status.CRASHED, failure=failure)
    check = Check(
        name="really_compiled", arm="inductor", outcome=Outcome.PASS, detail="1 graph, 0 breaks"
    )
    return replace(
        row,
        metrics=tuple(_metrics(side, number, blocks)),
        checks=(check,),
        parity=_evidence(side, number, steps),
        facts={"parameters": 11_180_000, "attention": "sdpa"},
        blocks=tuple(_blocks(number, blocks)),
    )


def _metrics(side: str, number: int, blocks: int):
    slower = 1.09 if side == "head" and number == 0 else 1.0
    larger = 1.2 if side == "head" and number == 1 else 1.0
    for arm, time in zip(ARMS, (0.0215, 0.0133), strict=True):
        dice = random.Random(f"{side} {arm} {number}")
        by = slower if arm == "inductor" else 1.0
        launches = tuple(
            Launch(
                launch=launch,
                values=tuple(by * time * dice.gauss(1.0, 0.006) for _ in range(2 * blocks)),
                warmup=(time * 3, time * 1.2),
                blocks=tuple(block for block in range(blocks) for _ in range(2)),
                steady=True,
            )
            for launch in range(LAUNCHES)
        )
        yield Metric(
            name="step_time",
            arm=arm,
            unit=Unit.SECONDS,
            better=Better.LOWER,
            lane=Lane.WALL,
            launches=launches,
            items=16,
        )
        yield _single("peak_allocated", arm, Unit.BYTES, [1.3e9 * larger] * LAUNCHES)
    yield _single("compile_cold", "inductor", Unit.SECONDS, [21.4 + 0.1 * number])
    yield _single("compile_warm", "inductor", Unit.SECONDS, [3.4, 3.5, 3.45])
    for name, value in (("graphs", 1.0), ("graph_breaks", 0.0), ("recompiles", 0.0)):
        yield _single(name, "inductor", Unit.COUNT, [value])


def _single(name: str, arm: str, unit: Unit, values: list[float]) -> Metric:
    launches = tuple(Launch(launch=number, values=(value,)) for number, value in enumerate(values))
    return Metric(
        name=name, arm=arm, unit=unit, better=Better.LOWER, lane=Lane.COUNTERS, launches=launches
    )


def _blocks(number: int, blocks: int):
    """One block of case 0 was taken while the GPU was throttled."""
    for launch in range(LAUNCHES):
        for block in range(blocks):
            doubtful = (number, launch, block) == (0, 1, 3)
            facts = {"sm_clock_mhz": 1410 if doubtful else 1980, "power_w": 412.5}
            redone = (THROTTLED,) if doubtful else ()
            yield Block(
                launch=launch,
                block=block,
                facts=facts,
                redone=redone,
                doubt=THROTTLED if doubtful else None,
            )


def _evidence(side: str, number: int, steps: int) -> ParityEvidence:
    """The candidate of case 0 on head leaves the envelope at step `DIVERGES`; the others stay within rounding."""

    dice = random.Random(number)
    batches = [dice.gauss(0.0, 0.03) for _ in range(steps)]

    def trace(role: Role, arm: str, index: int, nudge: float, drift: float = 0.0) -> Trace:
        loss, norm = [], []
        for step in range(steps):
            off = nudge * (step + 1) + (drift if step >= DIVERGES else 0.0)
            loss.append(0.4 + 1.4 * math.exp(-step / 14) + batches[step] + off)
            norm.append(1.2 + 0.4 * math.cos(step / 3) + batches[-step] + off)
        start = "start" if role is not Role.PERTURBED else f"start {index}"
        return Trace(
            arm=arm,
            role=role,
            seed=0,
            index=index,
            loss=tuple(loss),
            grad_norm=tuple(norm),
            start=start,
            data="data",
        )

    broken = side == "head" and number == 0
    runs = [trace(Role.REFERENCE, "eager", 0, 0.0)]
    runs += [
        trace(Role.PERTURBED, "eager", index, nudge)
        for index, nudge in enumerate((2e-6, -3e-6, 1e-6))
    ]
    runs += [
        trace(Role.CANDIDATE, "inductor", 0, 2e-6, 0.02 if broken else 0.0),
        trace(Role.CONTROL, "eager", 0, 1e-3),
    ]
    return ParityEvidence(
        precision="fp32",
        epsilon=2.0**-23,
        steps_per_epoch=steps,
        evaluation_rows=0,
        masks=(ArmMasks(arm="inductor", masks=Masks.ALIGNED, detail="the same"),),
        traces=tuple(runs),
    )
