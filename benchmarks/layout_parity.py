"""Verifies parity between layouts: right ones, and faults of distributed training.

Right ones are compared with one process; faults have to be found with rank and step.

Run as ``python -m benchmarks.layout_parity --json parity.jsonl``; each row is a verification of the
suite `training_loss`, by its own stages, in processes of its own. With ``--resume`` what the file
has already is not run again, and what came to no end there is; ``--table`` prints the tables of a
file and runs nothing. What is trained, and what is planted, is in `layout_gallery`, `mesh_gallery`
and `checkpoint_gallery`.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci_bench.judge.parity.runs import Twins, match
from ci_bench.judge.parity.verdict import parity_findings, ranks_apart
from ci_bench.processes.launch import Launcher
from ci_bench.processes.protocol import Task
from ci_bench.processes.resident import Ended, explain
from ci_bench.records.comparison import ParityFinding
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Case, Check, ParityEvidence, Role, Status
from ci_bench.records.results import Outcome as CheckOutcome
from ci_bench.suites.contract import Evidence, Stage, StageKind
from ci_bench.suites.training_loss.plan import SUITE

ROOT = Path(__file__).resolve().parents[1]
GALLERY, MESHES, CHECKPOINTS = (
    f"benchmarks.{name}_gallery:" for name in ("layout", "mesh", "checkpoint")
)
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
PIPELINED = EVEN = {"num_samples": 64}
"""All batches are full: for pipelines, and for what is written by hand and takes as many rows in
every rank.
"""
DEEP = {**PIPELINED, "model": {"factory": f"{GALLERY}Net", "options": {"layers": 8}}}
WIDE = {
    "model": {"factory": f"{GALLERY}Net", "options": {"width": 32, "layers": 4}},
    "batch_size": 16,
    "num_samples": 124,
}
BUCKETS = {"model": {"factory": f"{GALLERY}Net", "options": {"width": 256}}}
"""Blocks of 2 MiB; the first bucket of DDP has 1 MiB, so dynamo splits the graph."""
MODES = (
    "ddp_optimizer",
    "python_reducer",
    "python_reducer_without_compiled_forward",
    "no_optimization",
)
LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One layout, with the options of the entry that it needs."""

    name: str
    """The name in the tables."""
    layout: str | Mapping[str, Any]
    """The layout, as in an entry of the suite."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the entry."""
    wrong: str = ""
    """The injected fault in words; empty if the layout is right."""
    counts: tuple[int, ...] = (2, 4)
    """The numbers of processes that it runs with."""
    seeds: int = 1
    """The number of seeds that the benchmark runs it with."""

    @property
    def case(self) -> Case:
        """The case that verifies it."""
        (case,) = SUITE.plan({**ENTRY, **self.options, "layouts": [self.layout]})
        return case


ADAM = {"optimizer": f"{GALLERY}Resumes", "lr": 0.005}
ADAMW = {"optimizer": "AdamW", "lr": 0.005}
MOMENTUM = {"optimizer_options": {"momentum": 0.9, "nesterov": True}, "lr": 0.02}
PIPELINE = {"layout": "pipeline", "split": f"{GALLERY}halves", "accumulate": 2}
PARTS = {"layout": "pipeline", "split": f"{MESHES}parts", "accumulate": 4}
DROPOUT = {
    "model": {"factory": f"{GALLERY}Net", "options": {"dropout": 0.2}},
    "epochs": 13,
    "seeds": 6,
}
SAVED = {**ADAMW, "epochs": 3, "num_samples": 64}
FAULTS = (
    Trial(
        name="no_sync left on", layout=f"{GALLERY}no_sync", wrong="gradients are never exchanged"
    ),
    Trial(
        name="same shard on all ranks",
        layout=f"{GALLERY}same_shard",
        options=EVEN,
        wrong="all train on rank 0's rows",
    ),
    Trial(name="gradients summed", layout=f"{GALLERY}summed", wrong="summed in place of averaged"),
    Trial(
        name="one rank's learning rate",
        layout="ddp",
        options={"optimizer": f"{GALLERY}other_rate"},
        wrong="rank 1: x 1.02",
    ),
    Trial(
        name="a stale bucket",
        layout=f"{GALLERY}stale_bucket",
        wrong="the last bucket is of the step before",
    ),
    Trial(
        name="a dropped last batch",
        layout=f"{GALLERY}dropped_last",
        wrong="the short batch of each epoch",
        counts=(2,),
    ),
    Trial(
        name="a parameter left out of DDP",
        layout=f"{GALLERY}left_out",
        wrong="a bias is not exchanged",
    ),
    Trial(
        name="a parameter left out of FSDP",
        layout=f"{GALLERY}left_out_of_shards",
        wrong="a weight is not exchanged",
    ),
    Trial(
        name="norm clipped per shard",
        layout="fsdp",
        options={"optimizer": f"{GALLERY}ClippedByShard"},
        wrong="by each rank's own norm",
    ),
    Trial(
        name="a tensor-parallel bias added twice",
        layout=f"{GALLERY}bias_often",
        options=EVEN,
        wrong="once for each rank",
    ),
    Trial(
        name="a pipeline that drops a micro-batch",
        layout=PIPELINE,
        options={**PIPELINED, "loss": f"{GALLERY}forgetful_loss"},
        wrong="every second counts nothing",
        counts=(2,),
    ),
    Trial(
        name="a checkpoint without the optimizer's state",
        layout="fsdp",
        options={**ADAM, "optimizer": f"{GALLERY}LosesState"},
        wrong="Adam starts anew at step 7",
    ),
    Trial(
        name="dropout alike on all ranks",
        layout=f"{GALLERY}alike_dropout",
        options=DROPOUT,
        wrong="seeded alike in every step",
    ),
    *(
        Trial(
            name=f"a checkpoint of one's own without {what}",
            layout="fsdp",
            options={
                **SAVED,
                "checkpoint": {
                    "after": 8,
                    "save": f"{CHECKPOINTS}save",
                    "load": f"{CHECKPOINTS}{load}",
                },
            },
            wrong="not restored",
        )
        for what, load in (
            ("the optimizer's state", "load_without_state"),
            ("the optimizer's counter", "load_without_counter"),
            ("one rank's shard", "load_without_shard"),
        )
    ),
    Trial(
        name="replicas of shards on their own",
        layout=f"{MESHES}lone_replicas",
        wrong="averaged in each group alone",
        counts=(4,),
    ),
    Trial(
        name="context without the others",
        layout=f"{MESHES}context_without_others",
        options=EVEN,
        wrong="own keys and values",
    ),
)
RIGHT = (
    Trial(name="ddp", layout="ddp", seeds=3),
    Trial(name="ddp, accumulated over 2", layout={"layout": "ddp", "accumulate": 2}),
    Trial(name="ddp, static graph", layout={"layout": "ddp", "static_graph": True}),
    Trial(name="ddp, small buckets", layout=f"{GALLERY}small_buckets"),
    Trial(name="ddp, compiled", layout={"layout": "ddp", "backend": "aot_eager"}),
    *(
        Trial(
            name=f"ddp, compiled, {mode}",
            layout={"layout": "ddp", "backend": "aot_eager", "optimize_ddp": mode},
            options=BUCKETS,
        )
        for mode in MODES
    ),
    Trial(
        name="ddp, compiled, python_reducer, accumulated",
        layout={
            "layout": "ddp",
            "backend": "aot_eager",
            "optimize_ddp": "python_reducer",
            "accumulate": 2,
        },
        counts=(2,),
    ),
    Trial(name="averaged by hand", layout=f"{GALLERY}by_hand"),
    Trial(name="fsdp", layout="fsdp", seeds=3),
    Trial(
        name="fsdp, not resharded, accumulated",
        layout={"layout": "fsdp", "reshard": False, "accumulate": 2},
    ),
    Trial(name="fsdp in one group", layout=f"{GALLERY}sharded_whole"),
    Trial(name="fsdp, clipped", layout="fsdp", options={"optimizer": f"{GALLERY}Clipped"}),
    Trial(name="fsdp, from a checkpoint", layout="fsdp", options=ADAM),
    Trial(name="tensor", layout="tensor", seeds=2),
    Trial(name="pipeline", layout=PIPELINE, options=PIPELINED, counts=(2,)),
    Trial(name="hsdp", layout="hsdp", counts=(4,), seeds=2),
    Trial(
        name="hsdp, not resharded, accumulated",
        layout={"layout": "hsdp", "reshard": False, "accumulate": 2},
        counts=(4,),
    ),
    Trial(name="fsdp x tensor", layout="fsdp_tensor", counts=(4,), seeds=2),
    Trial(
        name="fsdp x tensor, accumulated",
        layout={"layout": "fsdp_tensor", "accumulate": 2},
        counts=(4,),
    ),
    Trial(name="pipeline, gpipe", layout=PARTS, options=DEEP),
    Trial(name="pipeline, 1f1b", layout={**PARTS, "schedule": "1f1b"}, options=DEEP),
    *(
        Trial(
            name=f"pipeline, {schedule}",
            layout={**PARTS, "schedule": schedule, "stages": 2},
            options=DEEP,
        )
        for schedule in ("looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble")
    ),
    Trial(name="context by hand", layout=f"{MESHES}context", options=EVEN),
    Trial(name="context by torch", layout=f"{MESHES}torch_context", options=EVEN),
    *(
        Trial(name=f"{layout}, {what}", layout=layout, options=options)
        for layout in ("ddp", "fsdp", "tensor")
        for what, options in (
            ("AdamW", ADAMW),
            ("momentum", MOMENTUM),
            ("four wider blocks", WIDE),
            ("bf16", {"precision": "bf16"}),
        )
    ),
    *(
        Trial(name=f"{layout}, amp_bf16", layout=layout, options={"precision": "amp_bf16"})
        for layout in ("ddp", "fsdp")
    ),
    *(
        Trial(name=f"{layout}, AdamW", layout=layout, options=ADAMW, counts=(4,))
        for layout in ("hsdp", "fsdp_tensor")
    ),
    Trial(name="pipeline, AdamW", layout=PARTS, options={**DEEP, **ADAMW}),
    *(
        Trial(
            name=f"{layout}, compiled",
            layout={"layout": layout, "backend": "aot_eager"},
            counts=(2,),
        )
        for layout in ("fsdp", "tensor")
    ),
    Trial(name="resumed, fsdp", layout="fsdp", options={**SAVED, "checkpoint": {"after": 8}}),
    *(
        Trial(
            name=f"resumed, {layout}",
            layout=layout,
            options={**SAVED, "checkpoint": {"after": 8}},
            counts=(4,),
        )
        for layout in ("hsdp", "fsdp_tensor")
    ),
    Trial(
        name="resumed, pipeline of two stages each",
        layout={**PARTS, "schedule": "interleaved_1f1b", "stages": 2},
        options={**DEEP, **SAVED, "checkpoint": {"after": 8}},
        counts=(2,),
    ),
    Trial(name="ddp, with dropout (over seeds)", layout="ddp", options=DROPOUT),
)
SKIPPED = (
    Trial(
        name="context by torch, fused attention",
        layout=f"{MESHES}torch_context_fused",
        options=EVEN,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """End of a trial: a finding, or the reason for none."""

    ended: Ended
    """The end of the stage, with the workers' answers."""
    status: Status
    """The status of the case."""
    reason: str
    """The reason for the status; empty if the stage is fine."""
    finding: ParityFinding | None = None
    """The finding about parity; `None` if the stage failed."""
    score: float = 0.0
    """The largest score of any signal, of the training or of a rank."""
    failed: tuple[Check, ...] = ()
    """The checks that failed."""

    @property
    def is_flagged(self) -> bool:
        """True if a gate would be red."""
        return self.finding is None or not self.finding.verdict.holds or bool(self.failed)

    @property
    def words(self) -> str:
        """The gate's message."""
        detail = self.finding.detail if self.finding else self.reason
        return "; ".join(check.detail for check in self.failed) or detail


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A launch with its workers, which all trials share in turn, and their scratch folder."""

    launcher: Launcher
    folder: Path

    def run(self, case: Case, stage: Stage, *, limit_s: float = LIMIT_S) -> Ended:
        """Run one stage of a case, after preparing the rows."""
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        options = RunOptions(device="cpu", threads=1, stage_timeout_s=limit_s)
        for job in (Stage(kind=StageKind.PREPARE, arms=()), stage):
            task = Task(
                launch=0,
                device="cpu",
                options=options,
                scratch=str(scratch),
                worker=SUITE.worker,
                case=case,
                stage=job,
            )
            ended = self.launcher.run(task, timeout_s=limit_s, on_answer=lambda _: None)
            if explain(ended, limit_s=limit_s)[0] is not Status.OK:
                break
        return ended


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """Open a bench in a folder."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    preload = SUITE.preload_of(RIGHT[0].case)
    with Launcher(preload=preload, environ=environ, folder=folder / "launch") as launcher:
        yield Bench(launcher=launcher, folder=folder)


def stage_of(case: Case, kind: StageKind) -> Stage:
    """Return the stage of a case that several processes do."""
    return next(stage for stage in SUITE.stages(case) if stage.kind is kind and stage.processes > 1)


def evidence_of(ended: Ended) -> Evidence:
    """Return the evidence of a stage; empty if it failed."""
    return next((answer.evidence for answer in ended.answers if answer.evidence), Evidence())


def verify(trial: Trial, bench: Bench, *, limit_s: float = LIMIT_S) -> Outcome:
    """Train one process and the trial's layout, and judge."""
    case = trial.case
    ended = bench.run(case, stage_of(case, StageKind.VERIFY), limit_s=limit_s)
    status, reason = explain(ended, limit_s=limit_s)
    evidence = evidence_of(ended)
    parity = evidence.parity
    if parity is None:
        return Outcome(ended=ended, status=status, reason=reason)
    (finding,) = parity_findings(parity)
    scores = [finding.loss_score or 0.0, finding.grad_norm_score or 0.0, *_of_ranks(parity)]
    failed = tuple(check for check in evidence.checks if check.outcome is CheckOutcome.FAIL)
    return Outcome(
        ended=ended, status=status, reason=reason, finding=finding, score=max(scores), failed=failed
    )


def _of_ranks(parity: ParityEvidence) -> Iterator[float]:
    for trace in parity.traces:
        twins = match(parity, trace) if trace.role is Role.CANDIDATE else None
        if isinstance(twins, Twins):
            yield from (score.worst for score in ranks_apart(parity, twins))


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One run of the benchmark: a trial in so many processes, from a seed."""

    trial: Trial
    count: int
    seed: int = 0

    @property
    def key(self) -> str:
        """Name of the run in a file."""
        return f"{self.trial.name} | {self.count} | {self.seed}"

    def run(self, bench: Bench, limit_s: float) -> Mapping[str, Any]:
        """Verify it. A line of the file."""
        options = {**self.trial.options, "seed": self.seed, "processes": self.count}
        outcome = verify(replace(self.trial, options=options), bench, limit_s=limit_s)
        finding = outcome.finding
        return {
            "key": self.key,
            "status": str(outcome.status),
            "flagged": outcome.is_flagged,
            "score": outcome.score,
            "verdict": str(finding.verdict) if finding else None,
            "steps": finding.steps if finding else 0,
            "words": outcome.words,
        }


def items() -> Iterator[Item]:
    """Yield all runs, faults first."""
    for trial in (*FAULTS, *SKIPPED, *RIGHT):
        for count in trial.counts:
            yield from (Item(trial=trial, count=count, seed=seed) for seed in range(trial.seeds))


def earlier(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the lines of a file by key, the last one of each.

    Runs that did not finish (timed out, or ended) are not among them.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return {line["key"]: line for line in lines if line["status"] in {Status.OK, Status.SKIPPED}}


def main() -> int:
    """Run what is missing, one after the other, and print the tables.

    Return 1 if a right run is flagged or a fault is not found.
    """
    parser = argparse.ArgumentParser(
        description="Parity between layouts, right and with planted faults."
    )
    parser.add_argument("--json", type=Path, help="keep a line for each run in this file")
    parser.add_argument("--resume", action="store_true", help="leave out what the file has")
    parser.add_argument(
        "--table", action="store_true", help="print the tables of the file, run nothing"
    )
    parser.add_argument("--only", default="", help="runs whose key has this in it")
    parser.add_argument(
        "--limit-s",
        type=float,
        default=LIMIT_S,
        help="the time of a run; ranks wait a quarter of it for each other",
    )
    chosen = parser.parse_args()
    due = [item for item in items() if chosen.only in item.key]
    lines = dict(earlier(chosen.json)) if chosen.json and (chosen.resume or chosen.table) else {}
    missing = [] if chosen.table else [item for item in due if item.key not in lines]
    lines |= {line["key"]: line for line in _run(missing, chosen.json, chosen.limit_s)}
    there = [(item, lines[item.key]) for item in due if item.key in lines]
    sys.stdout.write("\n".join(tables(there)) + "\n")
    return int(any(_is_wrong(item, line) for item, line in there))


def _run(missing: Iterable[Item], file: Path | None, limit_s: float) -> Iterator[Mapping[str, Any]]:
    """Run one after the other, and keep each immediately."""
    items_to_run = [*missing]
    if not items_to_run:
        return
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as bench:
        for item in items_to_run:
            line = item.run(bench, limit_s)
            sys.stderr.write(
                f"{item.key}: {line['status']}, {'flagged' if line['flagged'] else 'holds'},"
                f" {line['score']:.3g}\n"
            )
            if file is not None:
                with file.open("a") as opened_file:
                    opened_file.write(json.dumps(line) + "\n")
            yield line


def tables(there: Iterable[tuple[Item, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield lines of Markdown: right layouts, faults, and layouts that do not run.

    Right layouts have the largest score of their seeds.
    """
    right: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    wrong, skipped = [], []
    for item, line in there:
        if item.trial.wrong:
            wrong.append((item, line))
        elif line["status"] == Status.SKIPPED:
            skipped.append((item, line))
        else:
            right.setdefault((item.trial.name, item.count), []).append(line)
    yield (
        "| layout that is right | processes | runs | flagged | largest score |\n| --- | --- | --- |"
        " --- | --- |"
    )
    for (name, count), lines in right.items():
        flagged = [line for line in lines if line["flagged"]]
        words = "".join(f" {line['words']}" for line in flagged)
        yield (
            f"| {name} | {count} | {len(lines)} | {len(flagged)} |"
            f" {max(line['score'] for line in lines):.2g} |{words}"
        )
    runs = [line for lines in right.values() for line in lines]
    largest = max((line["score"] for line in runs), default=0.0)
    yield f"| all | | {len(runs)} | {sum(line['flagged'] for line in runs)} | {largest:.2g} |"
    yield "\n| planted | processes | score | what is said |\n| --- | --- | --- | --- |"
    for item, line in wrong:
        message = _who_and_when(line["words"]) if line["flagged"] else f"NOT FOUND: {line['words']}"
        yield (
            f"| {item.trial.name}: {item.trial.wrong} | {item.count} | {line['score']:,.0f} |"
            f" {message} |"
        )
    yield "\n| does not run | processes | reason |\n| --- | --- | --- |"
    yield from (f"| {item.trial.name} | {item.count} | {line['words']} |" for item, line in skipped)


def _who_and_when(words: str) -> str:
    """Return from a message about a layout which run, who left first, by what and when."""
    resumed = f"{words.partition(': ')[0]}: " if " resumed at step " in words else ""
    first = next(
        (part.partition(": up to")[0] for part in words.split("; ") if " first, by the " in part),
        "",
    )
    return resumed + first if first else words.partition(": off by")[0]


def _is_wrong(item: Item, line: Mapping[str, Any]) -> bool:
    """Return whether a run is not as it has to be."""
    if item.trial in SKIPPED:
        return bool(line["status"] != Status.SKIPPED)
    return bool(line["flagged"] is not bool(item.trial.wrong) or line["status"] != Status.OK)


if __name__ == "__main__":
    sys.exit(main())
