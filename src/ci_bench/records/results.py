"""The results document: one run, its machine and source, and the evidence of each planned case.

Owns the raw evidence: samples, checks and loss traces. `judge` derives statistics and verdicts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from ci_bench.records.forms import (
    ArmName,
    Attempt,
    Bounds,
    Branch,
    CaseId,
    Commit,
    Count,
    Digest,
    Facts,
    Identifier,
    Label,
    LeaseNumber,
    Log,
    MetricName,
    Moment,
    NonNegative,
    PositiveCount,
    RankValues,
    RunId,
    Sentence,
    Share,
    SlotName,
    SuiteName,
    Text,
    ToolVersion,
    Value,
    WallSeconds,
)
from ci_bench.records.outputs import ReferenceOutputs
from ci_bench.records.profiles import Profile
from ci_bench.records.samples import compact, filled, reader


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
    """Evidence that a case owes; what is missing of it fails."""

    checks: Annotated[tuple[Identifier, ...], Bounds(max_items=100)] = ()
    """Required checks of each candidate arm."""
    times: Annotated[tuple[MetricName, ...], Bounds(max_items=100)] = ()
    """Required durations of each arm."""
    parity: bool = False
    """Whether loss parity is required."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One item of a suite with its parameters.

    Code under test plans cases: it can lower the policy's `threshold`, and not raise it. `planning`
    sets `stages`.
    """

    id: CaseId
    """Stable text: cases of two runs are the same case if their ids are equal."""
    suite: SuiteName
    """The suite that plans the case."""
    name: Annotated[str, Bounds(max_length=80, pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
    """The item's name within its suite."""
    params: Annotated[
        Mapping[Annotated[str, Bounds(max_length=60, pattern=r"^[A-Za-z0-9_.-]{1,60}$")], Value],
        Bounds(max_items=100),
    ]
    """The parameters the case was planned with."""
    arms: Annotated[tuple[ArmName, ...], Bounds(min_items=1, max_items=20)]
    """The ways of running the case."""
    reference: ArmName
    """The arm the others are compared with; one of `arms`."""
    due: Due = Due()
    """The results that a case must produce; missing ones fail."""
    details: Annotated[tuple[MetricName, ...], Bounds(max_items=100)] = ()
    """Metrics that are shown with their verdicts, but never fail a run."""
    title: Label = ""
    """The common name of the case; empty if that is its id."""
    threshold: Annotated[float, Bounds(gt=0, lt=1)] | None = None
    """The smallest relative change of its times that counts; `None` uses the policy's."""
    stages: Annotated[
        tuple[Annotated[str, Bounds(max_length=2000)], ...], Bounds(max_items=1000)
    ] = ()
    """The planned worker stages: a kind, with its arms if these are not all (``alone eager``)."""
    body: Annotated[str, Bounds(max_length=64, pattern=r"^[0-9a-f]{0,64}$")] = ""
    """A digest of the benchmark's own code; empty if unknown."""


@compact("values")
@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The samples of one launch, in the order taken, with warm-ups kept separate."""

    launch: Annotated[int, Bounds(ge=0, le=100_000)]
    """The number of the launch, from 0."""
    values: Annotated[tuple[float, ...], Bounds(max_items=1_000_000)]
    """The samples, in the metric's unit; only counts or another tool's scores may be negative."""
    warmup: Annotated[tuple[NonNegative, ...], Bounds(max_items=1_000_000)] = ()
    """The warm-ups, in the metric's unit."""
    blocks: Annotated[tuple[Count, ...], Bounds(max_items=1_000_000)] = ()
    """The ABBA block in which each value was taken; empty if samples were not interleaved."""
    steady: bool | None = None
    """Whether warm-up reached a steady state; `None` if there was no warm-up."""


samples_of = reader(Launch, "values")
"""Reads the values of launches as bytes, as readers of a whole document do."""
has_samples = filled(Launch, "values")
"""Returns whether any of these launches has a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A named series of samples with unit and direction, for one arm, grouped by launch.

    A single number (a peak, a count) is a series of one value per launch.
    """

    name: MetricName
    """The name of a series of samples."""
    arm: ArmName
    """A way of running the case."""
    unit: Unit
    """The unit of the values."""
    better: Better
    """Which direction is an improvement."""
    lane: Lane
    """The clock a metric was read from."""
    launches: Annotated[tuple[Launch, ...], Bounds(min_items=1, max_items=10_000)]
    """One item for each launch that took samples."""
    calls: PositiveCount = 1
    """Number of calls timed together in one sample; the values are divided by it."""
    items: PositiveCount | None = None
    """Rows, images or tokens per call (throughput is items / value); `None` if not applicable."""
    title: Label = ""
    """The metric's name in the tool that measured it; empty uses the declared title."""
    unscaled: Label = ""
    """The unit in the tool's words if its scale is unknown, such as mW; empty if it is known."""


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
    """A check of one arm of a case: yes, no or unknown, with the observation."""

    name: Identifier
    """The name of the check."""
    arm: ArmName
    """The arm that was checked."""
    outcome: Outcome
    """The result of a check."""
    detail: Text
    """The observation."""
    informative: bool = False
    """Whether the check is only shown and never fails a run."""


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
    """A step whose value is not a number; the series holds `None` there."""

    signal: Annotated[str, Bounds(choices=("loss", "grad_norm"))]
    """The series."""
    step: Count
    """The step, from 0."""
    value: Annotated[str, Bounds(choices=("nan", "inf", "-inf", MISSING))]
    """The original value; `missing` if a log has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSeries:
    """Series of each rank of a training, by rank and step.

    In a reference, which is a single process, `loss` is that of each rank's rows.
    """

    own_rows: bool
    """Whether each rank has its own rows instead of the whole batch."""
    loss: RankValues
    """Loss by rank and step; `None` if it is not finite, or if the rank does not see it."""
    grad_norm: RankValues = ()
    """Norm of all gradients as this rank has them, by rank and step; `None` likewise."""
    rows: Annotated[
        tuple[Annotated[tuple[Count, ...], Bounds(max_items=1_000_000)], ...],
        Bounds(max_items=10_000),
    ] = ()
    """Rows of each rank in each step of a reference; empty if ranks share all rows."""
    sharing: Annotated[int, Bounds(ge=1, le=10_000)] = 1
    """Number of consecutive ranks that pool their rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The checkpoint that a run resumed from."""

    saved_by: ArmName
    """The arm that saved the checkpoint."""
    step: Annotated[int, Bounds(ge=0, le=1_000_000)]
    """The first step that was trained after the checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One training run: loss and global gradient norm of every step."""

    arm: ArmName
    """The arm that trained."""
    role: Role
    """The purpose of a training run in the parity evidence."""
    seed: Annotated[int, Bounds(ge=0, le=18_446_744_073_709_551_615)]
    """The seed."""
    loss: Annotated[tuple[float | None, ...], Bounds(max_items=1_000_000)]
    """The loss of each step, from step 0 or the resumed one; `None` if it is not finite."""
    grad_norm: Annotated[tuple[NonNegative | None, ...], Bounds(max_items=1_000_000)]
    """The global gradient norm of each step; `None` if it is not finite."""
    start: Digest
    """Digest of the initial weights."""
    data: Digest
    """Digest of the batches."""
    index: Annotated[int, Bounds(ge=0, le=100_000)] = 0
    """Distinguishes runs of the same role."""
    non_finite: Annotated[tuple[NonFinite, ...], Bounds(max_items=1_000_000)] = ()
    """The steps whose value is not finite."""
    accuracy: Share | None = None
    """A share in 0..1; `None` if evaluation is off."""
    disagreements: tuple[Count, Count] | None = None
    """Rows right only in an eager forward, and only in the arm's own; `None` if unknown."""
    ranks: RankSeries | None = None
    """The series of each of several processes; `None` if one process trained."""
    resumed: Resumed | None = None
    """The checkpoint that the run resumed from; `None` if it started at step 0."""
    steps: Annotated[
        tuple[Annotated[str, Bounds(max_length=60, pattern=r"^[a-z0-9, ]{1,60}$")], ...],
        Bounds(max_items=1_000_000),
    ] = ()
    """The steps as named in a log; empty if positions are the steps."""
    evaluations: Annotated[tuple[float | None, ...], Bounds(max_items=1_000_000)] = ()
    """The losses of evaluations in a log, in order; `None` if one is not finite."""
    reading: Sentence = ""
    """The ranks read from a log, and its records that are not training steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmMasks:
    """Result of the mask probe for one candidate arm."""

    arm: ArmName
    """The candidate arm."""
    masks: Masks
    """Whether the candidate's dropout masks match the reference's."""
    detail: Text
    """The observation."""
    unexplained: Text | None = None
    """Difference that other masks do not explain, over many seeds of one step.

    Empty if they explain everything, as in ranks that run the reference's own layers; `None` if
    that was not tested.
    """
    places: Count = 0
    """Number of places where a step drops units and that test would see them kept.

    0 in ranks, and if that was not tested.
    """
    unseen: Text = ""
    """The kinds of dropout that could be missing somewhere without that test seeing it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParityEvidence:
    """All that loss parity is judged from.

    The losses of a user's program (`own_program`) are as it wrote them, and no weights were
    perturbed: the perturbed runs are the program again, as it is or rounding otherwise.
    """

    precision: Identifier
    """The precision, for example fp32."""
    epsilon: Share
    """The relative size of the weight perturbation."""
    steps_per_epoch: PositiveCount
    """Number of steps in an epoch."""
    evaluation_rows: Count
    """Rows evaluated; 0 if evaluation is off."""
    masks: Annotated[tuple[ArmMasks, ...], Bounds(max_items=20)]
    """One item for each candidate arm that was probed."""
    traces: Annotated[tuple[Trace, ...], Bounds(max_items=1000)]
    """The training runs."""
    own_program: bool = False
    """Whether the user's program wrote the losses, without perturbed weights (epsilon is 0)."""
    twin: "ParityEvidence | None" = None
    """The first steps of the same trainings in fp32; `None` if none were trained."""
    without_dropout: "ParityEvidence | None" = None
    """The same trainings in fp32 without dropout, for candidates whose masks differ.

    `None` if none were trained.
    """


_OF_COMPILER = re.compile(
    r"BackendCompilerFailed|InductorError|LoweringException|TorchRuntimeError|InternalTorchDynamoError|CppCompileError"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Reason why a case did not end `ok`."""

    stage: Annotated[str, Bounds(max_length=100)]
    """The stage that failed."""
    arms: Annotated[tuple[ArmName, ...], Bounds(max_items=20)]
    """The arms that the stage ran."""
    reason: Text
    """The failure."""
    signal: Annotated[str, Bounds(max_length=40)] | None = None
    """The signal that ended the worker, for example SIGSEGV; `None` without a signal."""
    log_tail: Log = ""
    """The end of the worker's log."""

    @property
    def of_compiler(self) -> bool:
        """Return whether reason or log name an error that torch raises if a compiler fails."""
        return _OF_COMPILER.search(f"{self.reason}\n{self.log_tail}") is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """The machine while one block of turns of one launch was taken."""

    launch: Annotated[int, Bounds(ge=0, le=100_000)]
    """The number of the launch, from 0."""
    block: Annotated[int, Bounds(ge=0, le=1_000_000)]
    """The number of the block, from 0."""
    facts: Facts = field(default_factory=dict)
    """Condition of the machine: clocks, power, temperature, load."""
    redone: Annotated[tuple[Sentence, ...], Bounds(max_items=100)] = ()
    """Why earlier attempts at the block were discarded."""
    doubt: Sentence | None = None
    """Why the attempt that was kept is doubtful; `None` if it is not."""


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
    """Wall time that a phase of a stage took on one side, in all launches."""

    stage: Identifier
    """The stage, or launch for time that belongs to no case."""
    phase: Phase
    """The purpose of the time; figures come from samples, and all other phases support them."""
    seconds: Annotated[float, Bounds(ge=0, le=10_000_000)]
    """Seconds."""
    arm: Annotated[str, Bounds(max_length=80, pattern=r"^[A-Za-z0-9_.:+-]{0,80}$")] = ""
    """The arm; empty if the time belongs to no arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Origin of a launch of a merged case."""

    launch: Annotated[int, Bounds(ge=0, le=100_000)]
    """The number of the launch in this document."""
    part: Annotated[int, Bounds(ge=0, le=10_000)]
    """The position of its run in parts."""
    number: Annotated[int, Bounds(ge=0, le=100_000)]
    """The number of the launch in that run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """The one row of the ledger for one planned case, with all its evidence."""

    case: Case
    """The planned case."""
    status: Status
    """How the case ended."""
    reproduce: Text
    """A command that runs only this case."""
    failure: Failure | None = None
    """Why the case did not succeed; `None` if it did."""
    duration_s: WallSeconds | None = None
    """Duration of the case, in seconds; `None` if it never started."""
    metrics: Annotated[tuple[Metric, ...], Bounds(max_items=1000)] = ()
    """The metrics."""
    checks: Annotated[tuple[Check, ...], Bounds(max_items=1000)] = ()
    """The checks."""
    parity: ParityEvidence | None = None
    """The training runs; `None` if the suite trains nothing."""
    facts: Facts = field(default_factory=dict)
    """Parameters and counts for the reader; no verdict depends on them."""
    blocks: Annotated[tuple[Block, ...], Bounds(max_items=100_000)] = ()
    """The state of the machine, block by block, in the order taken."""
    outputs: ReferenceOutputs | None = None
    """The outputs of the reference arm; `None` if the suite keeps none."""
    spent: Annotated[tuple[Spent, ...], Bounds(max_items=1000)] = ()
    """Where the case's time went."""
    origins: Annotated[tuple[Origin, ...], Bounds(max_items=100_000)] = ()
    """The origin of each launch of a merged document; empty if it was not merged."""
    profiles: Annotated[tuple[Profile, ...], Bounds(max_items=100)] = ()
    """Profiles of the arms' steps, if taken; no sample and no verdict depends on them."""

    @property
    def out_of_budget(self) -> bool:
        """Return whether the budget ran out before all of the case's first launch was measured."""
        return self.status is Status.NOT_RUN and any(
            check.name == WITHIN_BUDGET for check in self.checks
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The machine."""

    identity: Facts
    """The properties that decide whether two runs can be compared."""
    condition: Facts
    """Properties recorded for the reader."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The measured source: the user's repository at a commit."""

    commit: Commit | None = None
    """The commit, in hexadecimal."""
    branch: Branch | None = None
    """The branch."""
    dirty: bool | None = None
    """Whether there were uncommitted changes."""
    chosen_by: Annotated[str, Bounds(max_length=600)] | None = None
    """How a paired run's base commit was chosen, in words: the merge base of HEAD and main."""
    own_plan: bool = False
    """Whether this side's own tree planned its cases, in a run where each side planned its own."""


class RunState(StrEnum):
    """Completeness of the run."""

    PARTIAL = "partial"
    COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowRun:
    """The run of a GitHub workflow that measured."""

    repository: Annotated[
        str, Bounds(max_length=140, pattern=r"^[A-Za-z0-9_.-]{1,39}/[A-Za-z0-9_.-]{1,100}$")
    ]
    """The repository, as owner/name."""
    run: Annotated[int, Bounds(ge=0, le=1_000_000_000_000_000_000)]
    """The number of the run."""
    attempt: Annotated[int, Bounds(ge=1, le=1_000_000)]
    """The number of the attempt at the run, from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The part of a larger run that this one measured."""

    run: RunId
    """The id of the larger run."""
    number: LeaseNumber
    """The number of the lease in it."""
    attempt: Attempt
    """The number of the attempt at the lease, from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Time and configuration of a run."""

    id: RunId
    """Identifies the run."""
    started_at: Moment
    """Start of the run: ISO 8601, in UTC."""
    state: RunState
    """Whether the run completed."""
    config_digest: Digest
    """Digest of the configuration file's benchmarks, before flags and without its policy."""
    device: Annotated[str, Bounds(max_length=40, pattern=r"^[A-Za-z0-9_.:-]{1,40}$")]
    """The device: cpu, cuda or cuda:N."""
    finished_at: Moment | None = None
    """End of the run: ISO 8601, in UTC; `None` while it is in progress."""
    workflow: WorkflowRun | None = None
    """The run of a GitHub workflow that measured; `None` outside of GitHub workflows."""
    asked: Annotated[
        Mapping[
            Annotated[str, Bounds(max_length=40, pattern=r"^[a-z_]{1,40}$")],
            Annotated[tuple[Annotated[str, Bounds(max_length=500)], ...], Bounds(max_items=100)],
        ],
        Bounds(max_items=20),
    ] = field(default_factory=dict)
    """The flags that narrow or change the measured cases, by name, each with its values."""
    lease: Lease | None = None
    """The part of a larger run that this run measured; `None` for a complete run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPart:
    """One run that a merged document is made of."""

    run: Run
    """The run."""
    slot: SlotName
    """The device that it measured on, among others."""
    condition: Facts
    """The machine's condition."""
    measured_s: WallSeconds | None = None
    """Seconds that the device was held; `None` if nothing was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """An attempt at a lease that came to nothing."""

    lease: LeaseNumber
    """The number of the lease."""
    attempt: Attempt
    """The number of the attempt, from 1."""
    slot: SlotName
    """The device that was to measure, among others."""
    reason: Sentence
    """Why the attempt returned nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything that one run measured. Unknown is `None`, never 0."""

    kind: Literal["results"] = "results"
    """The kind of document."""
    schema_version: Literal[1] = 1
    """The version of this schema."""
    tool_version: ToolVersion
    """The version of ci-bench that wrote the document."""
    run: Run
    """Time and configuration of the run."""
    source: Source
    """The measured repository and commit."""
    environment: Environment
    """The machine."""
    cases: Annotated[tuple[CaseResult, ...], Bounds(max_items=10_000)]
    """The ledger: exactly one row for each planned case."""
    measured_s: WallSeconds | None = None
    """Seconds that the device was held, both sides together; `None` if nothing was measured."""
    spent: Annotated[tuple[Spent, ...], Bounds(max_items=1000)] = ()
    """The part of that time that belongs to no case."""
    parts: Annotated[tuple[RunPart, ...], Bounds(max_items=100_000)] = ()
    """The runs that were merged into this document; empty if it was not merged."""
    losses: Annotated[tuple[Loss, ...], Bounds(max_items=100_000)] = ()
    """Failed attempts at leases of a fleet."""
