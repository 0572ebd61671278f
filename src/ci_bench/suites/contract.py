"""The contract between suites and workers.

A suite has two halves. `Suite.plan` turns options into cases without torch. Its worker module,
named by `Suite.worker`, is imported in worker processes only and has one function,
`open_workload(case, context) -> Workload`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.outputs import KeptClaim, ReferenceOutputs
from ci_bench.records.profiles import Profile
from ci_bench.records.results import Case, Check, Metric, ParityEvidence, Spent, Status

ATTACHMENTS = "attachments"
"""The folder in a case's scratch folder whose files are kept next to the results."""


class StageKind(StrEnum):
    """The job of one worker process for one case."""

    PREPARE = "prepare"
    """Fetch and tokenise once; the only stage that may use the network."""
    SIZE = "size"
    """Find out how many rows of the reference arm fit into memory: on one side, for both and for
    all arms.
    """
    VERIFY = "verify"
    """Gather the suite's own evidence that the arms compute the same."""
    SEEDS = "seeds"
    """Train over seeds; only if the sides start from other weights: only seeds compare these."""
    ROUNDING = "rounding"
    """Measure more rounding of a training; only if `verify` leaves a side's parity in doubt."""
    TIME = "time"
    """Time all arms in turns."""
    ALONE = "alone"
    """Run one arm in its own process: peak memory and compile latency."""
    RUN = "run"
    """Run a tool that measures itself, and read its output."""
    EXPLAIN = "explain"
    """Break down one arm's step. The engine's own, after the last launch; no suite plans it."""


ASKED = frozenset({StageKind.SEEDS, StageKind.ROUNDING})
"""The kinds that take place only on request of the judge."""
UNTIMED = ASKED | {StageKind.VERIFY}
"""The kinds that compute, and time nothing."""
ONCE = UNTIMED | {StageKind.PREPARE, StageKind.SIZE}
"""The kinds that need one stage per case: samples depend on them, and they bring none."""


class Cache(StrEnum):
    """The compiler cache a stage starts with."""

    COLD = "cold"
    SHARED = "shared"


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeLimits:
    """Limits of a search for the largest batch: `most` rows, in `memory_bytes`.

    `None` is `share` of the device's memory. On the CPU that is the machine's memory, or the
    container's if that has less.
    """

    most: int = 1024
    memory_bytes: int | None = None
    share: float = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One worker's job for a case."""

    kind: StageKind
    """The job."""
    arms: tuple[str, ...]
    """Names of the arms that the job needs; empty for a job of the case, such as preparing."""
    launches: tuple[int, ...] | None = (0,)
    """Numbers of the launches that have this stage, from 0; `None` for every launch."""
    cache: Cache = Cache.SHARED
    """The compiler cache at its start."""
    exclusive: bool = False
    """True if it uses the device as a whole, so the other side must not run meanwhile."""
    processes: int = 1
    """The number of ranks that do the job together."""
    limits: SizeLimits | None = None
    """Limits of the search in `StageKind.SIZE`; `None` for the defaults."""
    provisional: bool = False
    """Becomes `Context.provisional` in `StageKind.VERIFY`."""

    def takes_place_in(self, launch: int) -> bool:
        """Return true if the stage belongs to a launch (counted from 0)."""
        return self.launches is None or launch in self.launches


@dataclass(frozen=True, kw_only=True, slots=True)
class Computed:
    """Results of one arm from verification, to be compared with those of the other side.

    The effect of rounding is measured, not assumed. Without `runs`, `jolts` and `truth`, only the
    format's own roundings are allowed.
    """

    arm: str
    """The arm's name."""
    epsilon: float
    """One rounding: half the distance from 1 to the next number of the format."""
    outputs: Mapping[str, Any]
    """Tensors of the plain run by name, on any device; in training loss and gradients, too."""
    start: Mapping[str, str] = field(default_factory=dict)
    """Digests of the weights by name and in their order, as `digests` makes them."""
    inputs: Sequence[str] = ()
    """Digests of the inputs, in their order."""
    runs: Sequence[Mapping[str, Any]] = ()
    """The same tensors of runs that are shaken by `epsilon`, or summed in another order."""
    jolts: Sequence[Mapping[str, Any]] = ()
    """The same tensors of runs that are shaken harder (`numerics.jolt_of`), for kinks."""
    truth: Mapping[str, Any] | None = None
    """The same tensors in fp64; `None` if fp64 was not computed."""
    generators: Sequence[Any] = ()
    """States of the random generators after the run; empty if it draws no random numbers."""


def keep_nothing(_: Computed) -> None:
    """Ignore the results; for workloads that are not compared with another side."""


Claim = Callable[[str, str, Mapping[str, Any], Computed], None]
"""Takes the name of a check, an arm, its results, and the reference's for the same inputs."""


def claim_nothing(_check: str, _arm: str, _seen: Mapping[str, Any], _expected: Computed) -> None:
    """Ignore the answers; for workloads whose answers are not compared again."""


class Ranks(Protocol):
    """The processes of a stage that has several, as one of them sees them.

    `rank` is its own, of `count`, from 0.

    torch's process group is there; it is of gloo on the CPU and of NCCL on GPUs, with a device for
    each rank.
    """

    @property
    def rank(self) -> int:
        """This process's own number; rank 0 is the one that answers."""

    @property
    def count(self) -> int:
        """The number of ranks."""

    def order(self, order: Mapping[str, Any]) -> None:
        """Have every other rank's workload `follow` an order, while rank 0 does its own part.

        Only rank 0 calls it.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The engine's side of a workload."""

    device: str
    """torch's name of the device, such as ``cuda:0``."""
    scratch: Path
    """The folder that the stages of the case share."""
    progress: Callable[[str, int, int], None]
    """Called with arm, done and total during a long stage."""
    launch: int = 0
    """The launch, from 0: samples that a workload takes itself belong to it."""
    keep: Callable[[Computed], None] = keep_nothing
    """Called in `verify` with the results of the case's reference arm (or of the arm under test).

    They are compared with base's. The tensors are read before it returns. The last call counts.
    """
    claim: Claim = claim_nothing
    """Called in `verify` with results that pass the rule of numbers, which are compared again.

    Tensors are read before it returns. No code of the tree takes part. The worse answer counts.
    """
    cuda_graph: bool = False
    """True if the timed steps of every arm are built for, and captured in, CUDA graphs."""
    ranks: Ranks | None = None
    """The processes of the stage; `None` if it has one."""
    largest_batch: int | None = None
    """The number of rows that a stage of the kind `StageKind.SIZE` found to fit; else `None`."""
    provisional: bool = False
    """True if `verify` may measure little rounding; a stage of `StageKind.ROUNDING` can follow."""
    threads: int | None = None
    """Threads of programs that the workload starts (`run.threads`); `None` for their default."""

    @property
    def attachments(self) -> Path:
        """A folder for files kept next to a successful stage's results (`runner.attachments`)."""
        folder = self.scratch / ATTACHMENTS
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Findings of one stage.

    The engine fills in `outputs`, `claims`, `spent` and `profiles`.
    """

    metrics: tuple[Metric, ...] = ()
    """Samples that the workload took itself."""
    checks: tuple[Check, ...] = ()
    """The suite's checks of the arms."""
    parity: ParityEvidence | None = None
    """Evidence of parity from several trainings; `None` if the stage gathers none."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """Properties of the case by name, such as its parameter count; no verdict depends on them."""
    outputs: ReferenceOutputs | None = None
    """Kept results for comparison with base (`Context.keep`); `None` if none were kept."""
    claims: tuple[KeptClaim, ...] = ()
    """Kept results that are compared again (`Context.claim`)."""
    spent: tuple[Spent, ...] = ()
    """The breakdown of the stage's time."""
    profiles: tuple[Profile, ...] = ()
    """Breakdowns of an arm's step, from `StageKind.EXPLAIN`."""
    begun: Mapping[str, FirstCall] = field(default_factory=dict)
    """The first call of each arm, which has to be the same where it is timed."""


class Unsupported(Exception):  # noqa: N818 - it is a reason to skip, not an error
    """This combination cannot run here. The message gives the reason; the case is `skipped`."""


class NotMeasured(Exception):  # noqa: N818 - it names an outcome
    """The benchmark failed, and the message explains it fully: the log gets no traceback."""

    status = Status.FAILED


class Compiler(StrEnum):
    """The compiler that translates an arm's step before it runs at full speed."""

    NONE = "none"
    DYNAMO = "dynamo"
    """`torch.compile`: graphs, breaks and recompiles are counted, and an arm without a graph fails
    the check `compiled`.
    """
    OTHER = "other"
    """TorchScript, export, a plugin's own: only the latency of the first call shows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A stretch of a step that is also timed separately, as the metric `metric` (``forward_time``).

    Its seconds are divided by `per` (such as the tokens of a decoding loop). They process `items`
    rows, images or tokens. A part that is `on_host` gives a GPU nothing to do: its clock need not
    see it.
    """

    metric: str
    per: int = 1
    items: int | None = None
    on_host: bool = False


Mark = Callable[[], None]
"""Called by a step at the end of each of its parts, in their order."""


def no_mark() -> None:
    """Do nothing; the mark if parts are not timed."""


class Program(Protocol):
    """One arm, built and ready.

    `items` is the number of rows, images or tokens of a step, `None` if that means nothing. A
    program with resources to release may have `close`, which is called after its last step. `parts`
    may be empty; work after the last mark belongs to the step, but to no part.
    """

    items: int | None
    parts: tuple[Part, ...]
    compiler: Compiler

    def step(self, mark: Mark) -> None:
        """Run one call on the next prepared input, without synchronising; `mark` ends each part."""

    def finish(self) -> tuple[Check, ...]:
        """Check the timed results after the clock has stopped (finite? really updated?)."""


class Refereed(Program, Protocol):
    """A program whose timed calls can be compared with those of the reference arm.

    At unpredictable calls, the engine refreshes the inputs outside the clock, times one call like
    all others, and reads its results. At the end of the launch the reference arm's program does the
    same from the same seeds. Tensors are torch's. `learns` means that steps change what later steps
    compute from (a training). `epsilon` is the precision's rounding, `memory` the longest memory of
    an optimizer (Adam's second beta), whose divisor loses digits, or 0. `unrefereed` explains why
    an arm cannot be compared; empty if it can.
    """

    learns: bool
    epsilon: float
    memory: float
    unrefereed: str

    def remember(self) -> None:
        """Keep the start of `refresh`, before the first call, but only if calls are refereed."""

    def state(self) -> dict[str, Any]:
        """Copy the state to the host: ``weights.NAME``, ``buffers.NAME``, ``optimizer.…``."""

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Any] | None = None, shaken: int = 0
    ) -> bool:
        """Have the next calls compute from inputs drawn from `seed`.

        Every arm of the case gets the same values, in new memory (`moved`), or in that of the
        previous call's inputs. Takes over a `state` if one is given. `shaken` other than 0 is the
        seed of a rounding's worth of noise on floating inputs. Returns true if the values changed.
        """

    def outputs(self) -> dict[str, Any]:
        """Return the last results without copies.

        Names are ``outputs.…``, ``loss``, ``gradients.NAME`` and ``weights.NAME``.
        """

    def resume(self) -> None:
        """Go back to the prepared inputs.

        Weights stay as they are.
        """


class Altered(Refereed, Protocol):
    """A refereed program whose inputs can be written between two calls of a row, without a pause.

    `batches` prepared inputs take turns. Only then are many calls on the same inputs compared.
    """

    def operands(self) -> list[Any]:
        """Return the tensors that the next calls compute from, not copies."""

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a few other values, drawn by `seed`, into the last `refresh`'s inputs.

        Every arm of the case gets the same values, in place. The returned function takes a few
        microseconds, but with `all_values` it writes all of them. `shaken` is as in `refresh`.
        `None`: nothing can be written.
        """


class Workload(Protocol):
    """One case in a worker process.

    One whose steps are short, and allocate, may have `keeps_freed_memory`, which is true: the
    host's allocator then keeps what is freed while it is timed, rather than by chance.
    """

    def prepare(self) -> None:
        """Fetch needed files into caches and `Context.scratch`."""

    def open(self, arm: str) -> Program:
        """Build a fresh program for an arm; every arm starts from the same bytes."""

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Gather evidence that the arms compute the same."""


class Ranked(Workload, Protocol):
    """A case in each of several processes, in stages that have them (`Stage.processes`)."""

    def spans(self, arm: str) -> bool:
        """Return true if all ranks run an arm together; otherwise the others wait for rank 0."""

    def follow(self, order: Mapping[str, Any]) -> None:
        """Do this process's part of rank 0's order (`Ranks.order`), in every rank but the first."""


class SelfMeasuring(Protocol):
    """A case that takes its own samples, in stages of the kind `StageKind.RUN`."""

    def measure(self, arms: tuple[str, ...]) -> Evidence:
        """Run once, and return the measured samples of this launch (`Context.launch`)."""


class Sized(Workload, Protocol):
    """A case whose batch may be of any size, in stages of the kind `StageKind.SIZE`."""

    def open_sized(self, arm: str, rows: int) -> Program:
        """Build a fresh program of this size.

        Raises `Unsupported` if the case has a fixed batch.
        """


class TrainingOverSeeds(Protocol):
    """A case in a worker process that can train over seeds, in stages of kind `StageKind.SEEDS`."""

    def train_over_seeds(self, arms: tuple[str, ...]) -> Evidence:
        """Return the parity evidence of complete trainings over seeds.

        For each seed it has the reference, and the reference from another start.
        """


class TrainingPerturbed(Protocol):
    """A case that measures some rounding in `verify` and the rest in `StageKind.ROUNDING`."""

    def train_perturbed(self, arms: tuple[str, ...]) -> Evidence:
        """Return the parity evidence that a provisional `verify` left out.

        It is of the reference's other trainings from shaken weights.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub that a case needs.

    `revision` is a branch, tag or commit (`None`: the default branch). `weights` is true if its
    weights are read.
    """

    path: str
    revision: str | None
    weights: bool


class Suite(ABC):
    """The half of a suite that needs no torch.

    `worker` names the worker's module. `preload` are the modules that the process behind a launch
    imports once, such as torch. `options_schema` is the JSON Schema of one entry. `exports` are the
    suite's own output formats, ``{name: "module:function"}``.
    """

    name: str
    worker: str
    preload: tuple[str, ...] = ()
    options_schema: Mapping[str, Any] = MappingProxyType({"type": "object"})
    exports: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @abstractmethod
    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Turn one entry of the configuration into cases.

        Raises `BadConfig` if options contradict each other.
        """

    @abstractmethod
    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return the worker jobs of a case, in order."""

    def needs_network(self, case: Case) -> bool:  # noqa: ARG002 - a default
        """Return true if preparing may have to download."""
        return False

    def preload_of(self, case: Case) -> tuple[str, ...]:  # noqa: ARG002 - a default
        """Return the modules to import before the workers of a case are forked."""
        return self.preload

    def reads(self, options: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG002 - a default
        """Return the files of the tree that the plan of a built-in suite's entry reads."""
        return ()

    def hub_models(self, case: Case) -> tuple[HubModel, ...]:  # noqa: ARG002 - a default
        """Return the models of the Hugging Face hub that a case needs."""
        return ()


COMPILING = ("torch._dynamo.backends.common", "torch._inductor.compile_fx")
"""Modules that any first `torch.compile` in a process imports; for `Suite.preload`."""
