"""The contract between suites and engine, and the registry of suites.

A suite has two halves. `Suite.plan` turns options into cases without torch. Its worker module, named by `Suite.worker`, is
imported in worker processes only and has one function, `open_workload(case, context) -> Workload`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from ci_bench.errors import UnknownSuite
from ci_bench.records.case import Case, Check, Fact, Metric, ParityEvidence, Status

BUILT_IN = {
    "command": "ci_bench.suites.command.plan:SUITE",
    "fastrnns": "ci_bench.suites.fastrnns.plan:SUITE",
    "torchbench": "ci_bench.suites.torchbench.plan:SUITE",
    "training_loss": "ci_bench.suites.training_loss.plan:SUITE",
    "transformers": "ci_bench.suites.transformers.plan:SUITE",
}
PLUGIN_GROUP = "ci_bench.suites"


class StageKind(StrEnum):
    """What one worker process does for one case."""

    PREPARE = "prepare"
    """Fetch and tokenise once; the only stage that may use the network."""
    VERIFY = "verify"
    """Gather the suite's own evidence that the arms compute the same."""
    TIME = "time"
    """Time all arms in turns."""
    ALONE = "alone"
    """One arm by itself: peak memory and compile latency."""
    RUN = "run"
    """Run what measures itself, and read what it says."""


class Cache(StrEnum):
    """The compiler cache a stage starts with."""

    COLD = "cold"
    SHARED = "shared"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One worker's job: a kind, the arms it needs, and the launches in which it takes place (`None`: every launch)."""

    kind: StageKind
    arms: tuple[str, ...]
    launches: tuple[int, ...] | None = (0,)
    cache: Cache = Cache.SHARED

    def takes_place_in(self, launch: int) -> bool:
        """Whether the stage belongs to a launch (counted from 0)."""
        return self.launches is None or launch in self.launches


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What the engine tells a workload. `device` is a torch device string; `scratch` is a folder shared by the case's stages."""

    device: str
    scratch: Path
    progress: Callable[[str, int, int], None]
    """Called with arm, done and total while a long stage goes on."""
    launch: int = 0
    """The number of the launch, from 0: samples that a workload takes itself belong to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What one stage found out. `facts` are properties of the case that no verdict depends on, such as its parameter count."""

    metrics: tuple[Metric, ...] = ()
    checks: tuple[Check, ...] = ()
    parity: ParityEvidence | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)


class Unsupported(Exception):  # noqa: N818 - it is a reason to skip, not an error
    """This combination cannot run on this machine. The message says why; the case is `skipped`."""


class NotMeasured(Exception):  # noqa: N818 - it names an outcome
    """What is measured went wrong, and the message says all there is to say: no traceback of the suite is added to the log."""

    status = Status.FAILED


class Compiler(StrEnum):
    """What translates an arm's step before it runs at full speed."""

    NONE = "none"
    DYNAMO = "dynamo"
    """`torch.compile`: graphs, breaks and recompiles are counted, and an arm without a graph fails the check `compiled`."""
    OTHER = "other"
    """TorchScript, export, a plugin's own: only the latency of the first call tells of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A stretch of a step that is timed by itself too, as the metric `metric` (``forward_time``).

    Its seconds are divided by `per` (the tokens of a decoding loop, say) and process `items` rows, images or tokens.
    """

    metric: str
    per: int = 1
    items: int | None = None


Mark = Callable[[], None]
"""Called by a step at the end of each of its parts, in their order."""


def no_mark() -> None:
    """The mark where parts are not timed."""


class Program(Protocol):
    """One arm, built and ready. `items` is how many rows, images or tokens a step processes, `None` where that means nothing.

    `parts` may be empty; what comes after the last mark belongs to the step, but to no part.
    """

    items: int | None
    parts: tuple[Part, ...]
    compiler: Compiler

    def step(self, mark: Mark) -> None:
        """One call of what is measured, on the next prepared input. Does not synchronise; calls `mark` as each part ends."""

    def finish(self) -> tuple[Check, ...]:
        """Check what was timed, once the clock has stopped (finite? really updated?)."""


class Workload(Protocol):
    """One case in a worker process."""

    def prepare(self) -> None:
        """Fetch what is needed into caches and `Context.scratch`."""

    def open(self, arm: str) -> Program:
        """Build a fresh program for an arm; every arm starts from the same bytes."""

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Gather evidence that the arms compute the same."""


class SelfMeasuring(Protocol):
    """A case in a worker process that takes its own samples, in stages of the kind `StageKind.RUN`."""

    def measure(self, arms: tuple[str, ...]) -> Evidence:
        """Run it once, and return what it measured, as samples of this launch (`Context.launch`)."""


class Suite(Protocol):
    """The half of a suite that needs no torch.

    `worker` names the worker's module. `preload` are the modules that the process behind a launch imports once; a suite that
    computes with torch names it here. A plugin's suite may have `options_schema`, the JSON Schema of one of its entries.
    """

    name: str
    worker: str
    preload: tuple[str, ...]

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Turn one entry of the configuration into cases. Raises `BadConfig` where options contradict each other."""

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """The worker jobs of a case, in order."""

    def needs_network(self, case: Case) -> bool:
        """Whether preparing may have to download."""


def find_suite(name: str) -> Suite:
    """Load a built-in suite, or one that an installed plugin registers under the entry point group ``ci_bench.suites``."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        suite: Suite = getattr(import_module(module), attribute)
        return suite
    for entry in entry_points(group=PLUGIN_GROUP, name=name):
        return _load(entry)
    known = ", ".join(sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=PLUGIN_GROUP))}))
    message = f"there is no suite {name!r} (known: {known}); install the plugin that provides it or correct the name"
    raise UnknownSuite(message)


def plugin_forms() -> dict[str, Mapping[str, Any]]:
    """The JSON Schema of each plugin suite's entries, by suite; any mapping will do where a plugin gives none."""
    plugins = {entry.name: _load(entry) for entry in entry_points(group=PLUGIN_GROUP)}
    return {name: getattr(suite, "options_schema", {"type": "object"}) for name, suite in plugins.items()}


def _load(entry: EntryPoint) -> Suite:
    try:
        plugin: Suite = entry.load()
    except Exception as error:
        message = f"the plugin behind suite {entry.name!r} ({entry.value}) cannot be imported: {error}; mend or uninstall it"
        raise UnknownSuite(message) from error
    return plugin
