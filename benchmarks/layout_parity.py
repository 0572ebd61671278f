"""Parity between layouts: right ones against one process, and planted faults of distributed training, with rank and step.

Run as ``python -m benchmarks.layout_parity``; each row is a verification of the suite `training_loss`, by its own stages, in
processes of its own. What is trained, and what is planted, is in `layout_gallery`.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci_bench.engine.process.launch import Launcher
from ci_bench.engine.process.protocol import Task
from ci_bench.engine.process.resident import Ended, explain
from ci_bench.judge.parity import parity_findings, ranks_apart
from ci_bench.judge.parity_runs import Twins, match
from ci_bench.records.comparison import ParityFinding
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Case, Check, ParityEvidence, Role, Status
from ci_bench.records.results import Outcome as CheckOutcome
from ci_bench.suites.base import Evidence, Stage, StageKind, modules_of
from ci_bench.suites.training_loss.plan import SUITE

ROOT = Path(__file__).resolve().parents[1]
GALLERY = "benchmarks.layout_gallery:"
ENTRY: Mapping[str, Any] = {
    "name": "tiny",
    "processes": 2,
    "epochs": 6,
    "num_samples": 62,
    "batch_size": 8,
    "lr": 0.05,
    "optimizer": "SGD",
    "evaluation": False,
    "loss": "torch.nn.functional:cross_entropy",
    "dataset": {"factory": f"{GALLERY}rows", "num_labels": 4},
    "model": {"factory": f"{GALLERY}Net"},
}
"""48 steps of 8 rows; the last batch of an epoch has 6."""
PIPELINED = {"num_samples": 64}
LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One layout, with the options of the entry that it needs. `wrong` says what is planted; empty where it is right."""

    name: str
    layout: str | Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    wrong: str = ""
    two_only: bool = False

    @property
    def case(self) -> Case:
        """The case that verifies it."""
        (case,) = SUITE.plan({**ENTRY, **self.options, "layouts": [self.layout]})
        return case


ADAM = {"optimizer": f"{GALLERY}Resumes", "lr": 0.005}
PIPELINE = {"layout": "pipeline", "split": f"{GALLERY}halves", "accumulate": 2}
DROPOUT = {"model": {"factory": f"{GALLERY}Net", "options": {"dropout": 0.2}}, "epochs": 13, "seeds": 6}
FAULTS = (
    Trial(name="no_sync left on", layout=f"{GALLERY}no_sync", wrong="gradients are never exchanged"),
    Trial(name="same shard on all ranks", layout=f"{GALLERY}same_shard", wrong="rank 1 trains on rank 0's rows"),
    Trial(name="gradients summed", layout=f"{GALLERY}summed", wrong="summed in place of averaged"),
    Trial(name="one rank's learning rate", layout="ddp", options={"optimizer": f"{GALLERY}other_rate"}, wrong="rank 1: x 1.02"),
    Trial(name="a stale bucket", layout=f"{GALLERY}stale_bucket", wrong="the last bucket is of the step before"),
    Trial(name="a dropped last batch", layout=f"{GALLERY}dropped_last", wrong="the short batch of each epoch"),
    Trial(name="a parameter left out of DDP", layout=f"{GALLERY}left_out", wrong="a bias is not exchanged"),
    Trial(name="a parameter left out of FSDP", layout=f"{GALLERY}left_out_of_shards", wrong="a weight is not exchanged"),
    Trial(
        name="norm clipped per shard",
        layout="fsdp",
        options={"optimizer": f"{GALLERY}ClippedByShard"},
        wrong="by each rank's own norm",
    ),
    Trial(name="a tensor-parallel bias added twice", layout=f"{GALLERY}bias_often", wrong="once for each rank"),
    Trial(
        name="a pipeline that drops a micro-batch",
        layout=PIPELINE,
        options={**PIPELINED, "loss": f"{GALLERY}forgetful_loss"},
        wrong="every second counts nothing",
    ),
    Trial(
        name="a checkpoint without the optimizer's state",
        layout="fsdp",
        options={**ADAM, "optimizer": f"{GALLERY}LosesState"},
        wrong="Adam starts anew at step 7",
    ),
    Trial(
        name="dropout alike on all ranks", layout=f"{GALLERY}alike_dropout", options=DROPOUT, wrong="seeded alike in every step"
    ),
)
RIGHT = (
    Trial(name="ddp", layout="ddp"),
    Trial(name="ddp, accumulated over 2", layout={"layout": "ddp", "accumulate": 2}),
    Trial(name="ddp, static graph", layout={"layout": "ddp", "static_graph": True}),
    Trial(name="ddp, small buckets", layout=f"{GALLERY}small_buckets"),
    Trial(name="ddp, compiled", layout={"layout": "ddp", "backend": "aot_eager"}),
    Trial(name="averaged by hand", layout=f"{GALLERY}by_hand"),
    Trial(name="fsdp", layout="fsdp"),
    Trial(name="fsdp, not resharded, accumulated", layout={"layout": "fsdp", "reshard": False, "accumulate": 2}),
    Trial(name="fsdp in one group", layout=f"{GALLERY}sharded_whole"),
    Trial(name="fsdp, clipped", layout="fsdp", options={"optimizer": f"{GALLERY}Clipped"}),
    Trial(name="fsdp, from a checkpoint", layout="fsdp", options=ADAM),
    Trial(name="tensor", layout="tensor"),
    Trial(name="pipeline", layout=PIPELINE, options=PIPELINED, two_only=True),
    Trial(name="ddp, with dropout (over seeds)", layout="ddp", options=DROPOUT),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a trial ended: a finding, or why there is none. `score` is the largest of any signal of the whole or of a rank."""

    ended: Ended
    status: Status
    reason: str
    finding: ParityFinding | None = None
    score: float = 0.0
    failed: tuple[Check, ...] = ()

    @property
    def is_flagged(self) -> bool:
        """Whether a gate would be red."""
        return self.finding is None or not self.finding.verdict.holds or bool(self.failed)

    @property
    def words(self) -> str:
        """What the gate says."""
        said = self.finding.detail if self.finding else self.reason
        return "; ".join(check.detail for check in self.failed) or said


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A launch whose workers all trials share, one after the other, and the folder of their scratch."""

    launcher: Launcher
    folder: Path

    def run(self, case: Case, stage: Stage, *, limit_s: float = LIMIT_S) -> Ended:
        """One stage of a case; the rows are prepared first."""
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        options = RunOptions(device="cpu", threads=1, stage_timeout_s=limit_s)
        for job in (Stage(kind=StageKind.PREPARE, arms=()), stage):
            task = Task(launch=0, device="cpu", options=options, scratch=str(scratch), worker=SUITE.worker, case=case, stage=job)
            ended = self.launcher.run(task, timeout_s=limit_s, on_answer=lambda _: None)
            if explain(ended, limit_s=limit_s)[0] is not Status.OK:
                break
        return ended


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """A bench in a folder."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    preload = modules_of(SUITE, RIGHT[0].case)
    with Launcher(preload=preload, environ=environ, folder=folder / "launch") as launcher:
        yield Bench(launcher=launcher, folder=folder)


def stage_of(case: Case, kind: StageKind) -> Stage:
    """The stage of a case that several processes do."""
    return next(stage for stage in SUITE.stages(case) if stage.kind is kind and stage.processes > 1)


def evidence_of(ended: Ended) -> Evidence:
    """What a stage found out; nothing where it failed."""
    return next((answer.evidence for answer in ended.answers if answer.evidence), Evidence())


def verify(trial: Trial, bench: Bench) -> Outcome:
    """Train one process and the trial's layout, and judge."""
    case = trial.case
    ended = bench.run(case, stage_of(case, StageKind.VERIFY))
    status, reason = explain(ended, limit_s=LIMIT_S)
    evidence = evidence_of(ended)
    parity = evidence.parity
    if parity is None:
        return Outcome(ended=ended, status=status, reason=reason)
    (finding,) = parity_findings(parity)
    scores = [finding.loss_score or 0.0, finding.grad_norm_score or 0.0, *_of_ranks(parity)]
    failed = tuple(check for check in evidence.checks if check.outcome is CheckOutcome.FAIL)
    return Outcome(ended=ended, status=status, reason=reason, finding=finding, score=max(scores), failed=failed)


def _of_ranks(parity: ParityEvidence) -> Iterator[float]:
    for trace in parity.traces:
        twins = match(parity, trace) if trace.role is Role.CANDIDATE else None
        if isinstance(twins, Twins):
            yield from (score.worst for score in ranks_apart(parity, twins))


def main() -> None:
    """Print both tables; the argument is how many seeds the right ones run over."""
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as bench:
        _say("| layout | processes | runs | flagged | largest score |\n| --- | --- | --- | --- | --- |")
        for trial in RIGHT:
            for count in (2,) if trial.two_only else (2, 4):
                _say(_right(trial, count, seeds, bench))
        _say("\n| planted | what it is | largest score | what is said |\n| --- | --- | --- | --- |")
        for trial in FAULTS:
            outcome = verify(trial, bench)
            mark = "" if outcome.is_flagged else "NOT FOUND: "
            _say(f"| {trial.name} | {trial.wrong} | {outcome.score:,.0f} | {mark}{outcome.words} |")


def _right(trial: Trial, count: int, seeds: range, bench: Bench) -> str:
    outcomes = [verify(replace(trial, options={**trial.options, "seed": seed, "processes": count}), bench) for seed in seeds]
    flagged = [outcome for outcome in outcomes if outcome.is_flagged]
    largest = max(outcome.score for outcome in outcomes)
    words = "".join(f"\n  {outcome.words}" for outcome in flagged)
    return f"| {trial.name} | {count} | {len(outcomes)} | {len(flagged)} | {largest:.2g} |{words}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
