"""The results document: one run, its machine and source, and for each case what was planned and what was measured.

Owns the raw evidence: samples, checks, loss traces, and the events for a display while they are
taken. `judge` derives statistics and verdicts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from ci_bench.records.outputs import ReferenceOutputs
from ci_bench.records.profiles import Profile
from ci_bench.records.samples import compact, filled, reader

Fact = str | int | float | bool | None
"""One property of a machine or of a case; `None` means that it could not be found out."""


class SideName(StrEnum):
    """Side of a measurement: the commit of the user's repository."""

    BASE = "base"
    HEAD = "head"


class Status(StrEnum):
    """Outcome of a planned case. Every planned case has exactly one."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"


class Unit(StrEnum):
    """The unit of a metric's samples."""

    SECONDS = "s"
    BYTES = "bytes"
    COUNT = "count"
    PER_SECOND = "1/s"
    HERTZ = "Hz"
    JOULES = "J"


class Better(StrEnum):
    """Direction of a metric that is an improvement."""

    LOWER = "lower"
    HIGHER = "higher"


class Lane(StrEnum):
    """The clock a metric was read from."""

    WALL = "wall"
    DEVICE = "device"
    COUNTERS = "counters"


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """Evidence that a case owes: `checks` per candidate arm, `times` per arm, parity. Gaps fail."""

    checks: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    parity: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One item of a suite with its parameters.

    `id` is stable text such as ``training_loss/reviews[backend=inductor,precision=fp32]``, equal
    for the same case of another run. `arms` are the ways of running it; `reference` is one of them.
    `details` names metrics that are shown but never fail a run, such as parts of a step. `title` is
    for people; empty if it is the id. `threshold` is the smallest relative change of its times that
    counts; code under test plans cases, and can only lower the policy's. `stages` are its worker
    stages, set by `planning`: a kind, and its arms if not all (``alone eager``). `body` is a digest
    of the benchmark's own code, empty if unknown.
    """

    id: str
    suite: str
    name: str
    params: Mapping[str, Any]
    arms: tuple[str, ...]
    reference: str
    due: Due = Due()
    details: tuple[str, ...] = ()
    title: str = ""
    threshold: float | None = None
    stages: tuple[str, ...] = ()
    body: str = ""


@compact("values")
@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The samples that one launch took, in the order taken; warm-ups apart.

    `blocks[i]` is the turn (ABBA block) in which `values[i]` was taken; empty if samples were not
    interleaved. `steady` says whether warm-up ended in a steady state; `None` if no warm-up
    applies.
    """

    launch: int
    values: tuple[float, ...]
    warmup: tuple[float, ...] = ()
    blocks: tuple[int, ...] = ()
    steady: bool | None = None


samples_of = reader(Launch, "values")
"""The values of launches as bytes, a list as long: what reads all of a document looks at them so."""
has_samples = filled(Launch, "values")
"""Returns whether any of these launches has a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A named series of samples with unit and direction, for one arm, grouped by launch.

    A single number (a peak, a count) is a series of one value per launch. `calls` is the number of
    calls timed together in one sample; values are already divided by it. `items` is the rows,
    images or tokens that one call processes: throughput is items / value; `None` if that means
    nothing. `title` is another tool's name for it; declared metrics use the declaration's title.
    """

    name: str
    arm: str
    unit: Unit
    better: Better
    lane: Lane
    launches: tuple[Launch, ...]
    calls: int = 1
    items: int | None = None
    title: str = ""


class Outcome(StrEnum):
    """The answer of a check."""

    PASS = "pass"  # noqa: S105 - the answer of a check, no password
    FAIL = "fail"
    UNKNOWN = "unknown"


UNTOUCHED, SURROUNDINGS = "untouched", "surroundings"
"""Checks that exist only after a change: of the engine's own code or what an arm left to others; of
what is every arm's.
"""
SHORT_OF_MEMORY = "short_of_memory"
"""The check that there was room on the device while samples were taken; it exists only where there
was not.
"""
LARGEST_BATCH = "largest_batch"
"""The fact of how many rows were found to fit."""
SIZE_FACTS = (
    LARGEST_BATCH,
    "largest_batch_bytes",
    "largest_batch_limit_bytes",
    "largest_batch_search",
)
"""All its facts: also the bytes of those rows, the limit, and the reason for the search's end."""
GRAPHED = "graphed"
"""The check that a step was replayed from a CUDA graph, where that was asked for."""
WITHIN_BUDGET = "within_budget"
"""The check that all of a case was measured; it exists only where the budget did not suffice for
that.
"""
SETUP = "setup"
"""The stage that every case fails in on a side that could not be made ready."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A yes/no/unknown about one arm of a case, with what was seen.

    An `informative` check is shown, but never fails a run, such as another tool's verdict.
    """

    name: str
    arm: str
    outcome: Outcome
    detail: str
    informative: bool = False


class Role(StrEnum):
    """Role of a training run in the parity evidence."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"
    PERTURBED = "perturbed"
    OTHER_MASKS = "other_masks"
    OTHER_START = "other_start"
    """The reference of its seed, drawn again: other start weights and other masks, on the same
    data.
    """
    RESUMED = "resumed"
    """Some steps of the candidate's seed, from a checkpoint."""
    CONTROL = "control"
    """The reference with a known fault, every update 1 % too long, for as many steps as the
    envelope has.
    """


class Masks(StrEnum):
    """Result of a probe: whether the candidate's dropout masks match the reference's."""

    NO_DROPOUT = "no_dropout"
    ALIGNED = "aligned"
    DIFFER = "differ"


MISSING = "missing"
"""A value that was not recorded at a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFinite:
    """A step whose value is not a number; the series holds `None` there.

    `value` is nan, inf, -inf, or `MISSING`.
    """

    signal: str
    step: int
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSeries:
    """Series of each rank of a training, by rank and step; `None` if not a number or not visible.

    `loss` is of the rank's own rows if each has some (`own_rows`), else of the whole batch;
    `grad_norm` the norm of all gradients as this rank has them. In a reference, a single process,
    `loss` is that of each rank's rows, and `rows` their number. `sharing` consecutive ranks pool
    their rows.
    """

    own_rows: bool
    loss: tuple[tuple[float | None, ...], ...]
    grad_norm: tuple[tuple[float | None, ...], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    sharing: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The checkpoint that a run resumed from: the arm that saved it, and the first step that was trained after it."""

    saved_by: str
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One training run: loss and global gradient norm of every step, from step 0 or from the one it `resumed` at.

    `index` tells runs of the same role apart. `start` and `data` are digests of the initial weights
    and of the first batches seen. `accuracy` is a share in 0..1, `None` if evaluation is off.
    `disagreements` counts evaluation rows that the trained weights get right (only in an eager
    forward pass, only in the arm's own). `ranks` is what each of several processes saw. Of a log,
    `steps` are its own numbers of the steps (positions where it has none), `evaluations` the losses
    of evaluations in their order, and `reading` says which ranks were read and what was left out.
    """

    arm: str
    role: Role
    seed: int
    loss: tuple[float | None, ...]
    grad_norm: tuple[float | None, ...]
    start: str
    data: str
    index: int = 0
    non_finite: tuple[NonFinite, ...] = ()
    accuracy: float | None = None
    disagreements: tuple[int, int] | None = None
    ranks: RankSeries | None = None
    resumed: Resumed | None = None
    steps: tuple[str, ...] = ()
    evaluations: tuple[float | None, ...] = ()
    reading: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmMasks:
    """Result of the mask probe for one candidate arm."""

    arm: str
    masks: Masks
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ParityEvidence:
    """All that loss parity is judged from.

    `epsilon` is the relative size of the weight perturbation; `steps_per_epoch` and
    `evaluation_rows` are counts. Of a program of the user's (`own_program`) losses are as it wrote
    them, and no weights were perturbed: `epsilon` is 0, and what are called perturbed runs are the
    program again, as it is or rounding otherwise. `twin`: the first steps of the same trainings in
    fp32.
    """

    precision: str
    epsilon: float
    steps_per_epoch: int
    evaluation_rows: int
    masks: tuple[ArmMasks, ...]
    traces: tuple[Trace, ...]
    own_program: bool = False
    twin: "ParityEvidence | None" = None


_OF_COMPILER = re.compile(
    r"BackendCompilerFailed|InductorError|LoweringException|TorchRuntimeError|InternalTorchDynamoError|CppCompileError"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a case did not end `ok`: the stage, the arms it ran, what happened, and the end of its log."""

    stage: str
    arms: tuple[str, ...]
    reason: str
    signal: str | None = None
    log_tail: str = ""

    @property
    def of_compiler(self) -> bool:
        """Return whether reason or log name an error that torch raises if a compiler fails."""
        return _OF_COMPILER.search(f"{self.reason}\n{self.log_tail}") is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """The machine while one block of turns of one launch was taken.

    `facts` are its condition (clocks, power, temperature; load). `redone` holds why earlier
    attempts were discarded; `doubt` why the last one, which was kept, is doubtful.
    """

    launch: int
    block: int
    facts: Mapping[str, Fact] = field(default_factory=dict)
    redone: tuple[str, ...] = ()
    doubt: str | None = None


class Phase(StrEnum):
    """Phase that a run spends wall time in."""

    START = "start"
    """Processes start and import."""
    PREPARE = "prepare"
    """Data and models are fetched and read."""
    BUILD = "build"
    COMPILE = "compile"
    """First calls, which compile what is compiled."""
    WARM_UP = "warm_up"
    SAMPLES = "samples"
    """Samples, which figures are computed from; all other phases serve them."""
    HAND_OVER = "hand_over"
    """Between samples: orders, answers, the other side's turn to settle."""
    EXPLAIN = "explain"
    """Profiling of steps, after all samples are taken."""
    CHECKS = "checks"
    """Correctness of the timed work: verification, refereed calls, final reports of programs."""
    JUDGE = "judge"
    WRITE = "write"


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Seconds of wall time that a phase of a stage took on one side, in all launches; `arm` is empty if it is of none."""

    stage: str
    phase: Phase
    seconds: float
    arm: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Origin of a merged case's launch: its run's place in `Results.parts`, and number there."""

    launch: int
    part: int
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """The one row of the ledger for one planned case, with all evidence that was gathered before it ended.

    `facts` are for the reader (parameters, operations per step); no verdict depends on them.
    `blocks` describe the machine, in the order taken. `outputs` is what the reference arm computed,
    `None` if the suite keeps none. `spent` is the case's time by phase. `origins` exist only in
    merged documents, one per launch. `profiles` are those of the arms' steps, if taken.
    """

    case: Case
    status: Status
    reproduce: str
    failure: Failure | None = None
    duration_s: float | None = None
    metrics: tuple[Metric, ...] = ()
    checks: tuple[Check, ...] = ()
    parity: ParityEvidence | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    outputs: ReferenceOutputs | None = None
    spent: tuple[Spent, ...] = ()
    origins: tuple[Origin, ...] = ()
    profiles: tuple[Profile, ...] = ()

    @property
    def out_of_budget(self) -> bool:
        """Return whether the budget ran out before all of the case's first launch was measured."""
        return self.status is Status.NOT_RUN and any(
            check.name == WITHIN_BUDGET for check in self.checks
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of a stage: `done` of `total` samples or steps of `arm`."""

    arm: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Progress of a run: stage and case, finished stages, progress of this stage.

    `sides` says whose code it is, if there are two. `left_s` estimates how long the run still
    takes, `None` if that is unknown. `ended` is the status a stage ended with, `None` while it
    runs. Launches count from 0.
    """

    case: str
    stage: str
    arms: tuple[str, ...]
    launch: int
    launches: int
    done: int
    total: int
    sides: tuple[SideName, ...] = ()
    left_s: float | None = None
    progress: Progress | None = None
    ended: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The machine.

    `identity` decides whether two runs can be compared; `condition` is recorded for the reader.
    """

    identity: Mapping[str, Fact]
    condition: Mapping[str, Fact]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The measured source: the user's repository at a commit. `None` without a repository.

    `chosen_by` says in words how the base commit of a paired run was chosen; head is what is
    checked out. `own_plan` says that the side's own tree planned its cases, where the other side
    planned its own.
    """

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    chosen_by: str | None = None
    own_plan: bool = False


class RunState(StrEnum):
    """Completeness of the run."""

    PARTIAL = "partial"
    COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowRun:
    """The run of a GitHub workflow that measured: ``owner/name``, the run's number, and which attempt of it."""

    repository: str
    run: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The part of a larger run that this one measured: the run's id, lease number and attempt."""

    run: str
    number: int
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """When and from which configuration. Times are ISO 8601 in UTC.

    `config_digest` is of what the configuration file has measured, before flags and without its
    policy. `asked` are the flags that narrow or move that, by name, each with its values as text
    (``{"filter": ("matmul",)}``). `workflow` is `None` outside of one, and so is `lease`.
    """

    id: str
    started_at: str
    state: RunState
    config_digest: str
    device: str
    finished_at: str | None = None
    workflow: WorkflowRun | None = None
    asked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lease: Lease | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPart:
    """One run that a merged document is made of.

    `slot` names the device that it measured on, in whatever words tell it apart.

    `condition` is that of its machine, `measured_s` how long it held the device.
    """

    run: Run
    slot: str
    condition: Mapping[str, Fact]
    measured_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """An attempt at a lease that came to nothing: what was to be measured on which slot, and why nothing came back."""

    lease: int
    attempt: int
    slot: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything one run measured. `cases` is the ledger: exactly one row per planned case.

    `measured_s` is how long the device was held to measure, both sides together, and `spent` what
    of it went to no case. `parts` are the runs that a merged document was made of, and `losses`
    what a fleet lost on the way.
    """

    kind: Literal["results"] = "results"
    schema_version: Literal[1] = 1
    tool_version: str
    run: Run
    source: Source
    environment: Environment
    cases: tuple[CaseResult, ...]
    measured_s: float | None = None
    spent: tuple[Spent, ...] = ()
    parts: tuple[RunPart, ...] = ()
    losses: tuple[Loss, ...] = ()
