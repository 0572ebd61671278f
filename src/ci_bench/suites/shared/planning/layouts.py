"""Ways in which several processes share a training: names and options, for all suites.

No torch here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.spelling import meant
from ci_bench.suites.contract import Stage, StageKind
from ci_bench.suites.shared.planning.arms import joined

DDP, FSDP, TENSOR, PIPELINE = "ddp", "fsdp", "tensor", "pipeline"
HYBRID, FSDP_TENSOR = "hsdp", "fsdp_tensor"
LAYOUTS = (DDP, FSDP, TENSOR, PIPELINE, HYBRID, FSDP_TENSOR)
GPIPE, ONE_FORWARD_ONE_BACKWARD = "gpipe", "1f1b"
DDP_OPTIMIZER, PYTHON_REDUCER, NO_OPTIMIZATION = (
    "ddp_optimizer",
    "python_reducer",
    "no_optimization",
)
PAIR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A schedule of pipelines: its class in ``torch.distributed.pipelining``.

    A process has several stages where it is `looped`, and micro-batches come in rounds of as many
    as processes where `in_rounds`.
    """

    named: str
    looped: bool = False
    in_rounds: bool = False


SCHEDULES: Mapping[str, Schedule] = {
    GPIPE: Schedule(named="ScheduleGPipe"),
    ONE_FORWARD_ONE_BACKWARD: Schedule(named="Schedule1F1B"),
    "looped_bfs": Schedule(named="ScheduleLoopedBFS", looped=True),
    "interleaved_1f1b": Schedule(named="ScheduleInterleaved1F1B", looped=True, in_rounds=True),
    "interleaved_zero_bubble": Schedule(
        named="ScheduleInterleavedZeroBubble", looped=True, in_rounds=True
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Layout of a training over several processes."""

    layout: str
    """One of `LAYOUTS`, or the import path of the user's own."""
    accumulate: int = 1
    """Parts of a rank's rows between two exchanges (`no_sync`); a pipeline's micro-batches."""
    static_graph: bool = False
    """DDP's option of that name."""
    reshard: bool = True
    """FSDP's `reshard_after_forward`."""
    plan: Mapping[str, str] = field(default_factory=dict)
    """For `tensor`: ``colwise`` or ``rowwise`` by module names' patterns; empty for usual names."""
    split: str | None = None
    """Import path of the function that cuts a pipeline into stages; `None` without one."""
    schedule: str = GPIPE
    """The schedule of a pipeline, by its name in `SCHEDULES`."""
    stages: int = 1
    """Stages of a pipeline in each process."""
    inner: int = PAIR
    """Processes that share a copy of `hsdp` or the products of `fsdp_tensor`, as one group."""
    optimize_ddp: str | None = None
    """Dynamo's mode of that name, for compiled DDP; `None` leaves it to torch."""
    backend: str | None = None
    """The backend that compiles a rank's part, of DDP; `None` if it runs eagerly."""

    @property
    def name(self) -> str:
        """The name of the arm, with all that differs from the defaults: ``ddp+accumulate-2``."""
        marks = [
            f"accumulate-{self.accumulate}" if self.accumulate > 1 else "",
            "static" if self.static_graph else "",
            "" if self.reshard else "no-reshard",
            "" if self.schedule == GPIPE else self.schedule,
            f"stages-{self.stages}" if self.stages > 1 else "",
            "" if self.inner == PAIR else f"inner-{self.inner}",
            self.optimize_ddp or "",
            self.backend or "",
        ]
        return joined(self.layout, *marks)

    def as_params(self) -> dict[str, Any]:
        """Return the options as `read_layout` reads them.

        Newer ones are included only if they are set.
        """
        usual = Layout(layout=self.layout)
        later = {"schedule", "stages", "inner", "optimize_ddp"}
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in later or value != getattr(usual, name)
        }

    @property
    def own_rows(self) -> bool:
        """True if each process has separate rows, or those of its group, not the whole batch."""
        return self.layout not in {TENSOR, PIPELINE}

    @property
    def is_meshed(self) -> bool:
        """True if processes form groups of `inner`."""
        return self.layout in {HYBRID, FSDP_TENSOR}

    @property
    def sharing(self) -> int:
        """The number of consecutive processes that have the same rows, if not all have them."""
        return self.inner if self.layout == FSDP_TENSOR else 1


def read_layout(word: str | Mapping[str, Any]) -> Layout:
    """Read an item of `layouts`: a name, an import path, or a mapping with `layout`."""
    if isinstance(word, str):
        return Layout(layout=word)
    mode = word.get("optimize_ddp")
    if isinstance(mode, bool):
        mode = DDP_OPTIMIZER if mode else NO_OPTIMIZATION
    return Layout(**{**word, "optimize_ddp": mode})


ROWS_SHARED = (DDP, FSDP)
"""The layouts of any model whose batch can be cut into rows."""
OPTIONS_OF: Mapping[str, Sequence[str]] = {
    "static_graph": (DDP,),
    "optimize_ddp": (DDP,),
    "reshard": (FSDP, HYBRID, FSDP_TENSOR),
    "plan": (TENSOR, FSDP_TENSOR),
    "inner": (HYBRID, FSDP_TENSOR),
    "split": (PIPELINE,),
    "schedule": (PIPELINE,),
    "stages": (PIPELINE,),
}
"""The layouts to which an option applies, if not all."""


def idle_options(layout: Layout) -> Iterator[str]:
    """Yield the options that are set for a layout without such a feature."""
    usual = Layout(layout=layout.layout)
    for option, of in OPTIONS_OF.items():
        if layout.layout not in of and getattr(layout, option) != getattr(usual, option):
            yield (
                f"layouts: `{option}` is of {', '.join(of)}, and {layout.layout} has none; leave it"
                " out there"
            )
    if layout.layout == DDP and layout.optimize_ddp is not None and layout.backend is None:
        yield (
            "layouts: `optimize_ddp` is of ddp that is compiled; add `backend: inductor`, or leave"
            " it out"
        )


def counts_of(options: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of processes for the cases of an entry with `layouts`."""
    processes = options.get("processes", PAIR)
    return (processes,) if isinstance(processes, int) else tuple(processes)


def shared_models(
    options: Mapping[str, Any], place: str, *, instead_of: Sequence[str]
) -> tuple[Layout, ...]:
    """Return the layouts of an entry at `place`, in which several processes train its models.

    May be empty.

    Raises:
        BadConfig: they clash with each other or the entry; they replace the options `instead_of`.
    """
    if "layouts" not in options:
        if "processes" in options:
            why = "says how many share a layout, and no `layouts` are listed"
            raise BadConfig(f"{place}.processes: {why}; add `layouts: [{DDP}]`, or leave it out")
        return ()
    layouts = tuple(map(read_layout, options["layouts"]))
    faults = [
        f"layouts: replaces `{other}`; remove one of them"
        for other in instead_of
        if other in options
    ]
    names = [layout.name for layout in layouts]
    faults += [
        f"layouts: {name} is listed twice; remove one of them"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for layout in layouts:
        faults += _unknown(layout)
        faults += idle_options(layout)
    modes = options.get("mode", "training")
    for mode in [modes] if isinstance(modes, str) else modes:
        if mode != "training":
            faults.append(f"layouts: share a training, and {mode} has none; write `mode: training`")
    sizes, most = options.get("batch_size"), max(counts_of(options))
    for size in [sizes] if not isinstance(sizes, list | tuple) else sizes:
        if isinstance(size, int) and size < most:
            faults.append(
                f"batch_size: {size} rows are too few for {most} processes; write `batch_size:"
                f" {most}` or more"
            )
    if faults:
        raise BadConfig("\n".join(f"{place}.{fault}" for fault in dict.fromkeys(faults)))
    return layouts


def _unknown(layout: Layout) -> Iterator[str]:
    word = layout.layout
    if word in ROWS_SHARED or ":" in word:
        return
    names = ", ".join(ROWS_SHARED)
    if word in LAYOUTS:
        yield (
            f"layouts: {word} is of suite training_loss; use one of {names}, or your own by its"
            " import path"
        )
    else:
        yield (
            f"layouts: {word!r} is neither one of {names} nor an import"
            f" path{meant(word, ROWS_SHARED)}"
        )


IMPORTED = ("torch.distributed.fsdp", "torch.nn.parallel.distributed", "torch.distributed.tensor")
"""Modules that all layouts of `ROWS_SHARED` import."""


def shared_stages(
    arms: Sequence[str],
    reference: str,
    count: int,
    *,
    memory: Sequence[int],
    verified: bool = True,
    timed: bool = True,
) -> tuple[Stage, ...]:
    """Return the stages of a case whose arms run in `count` processes, except for the reference.

    `memory` are the launches that measure peak memory. Nothing is compiled from cold.
    """
    peaks = (
        Stage(
            kind=StageKind.ALONE,
            arms=(arm,),
            launches=tuple(memory),
            processes=1 if arm == reference else count,
        )
        for arm in arms
    )
    verify = (Stage(kind=StageKind.VERIFY, arms=tuple(arms), processes=count),) if verified else ()
    time = (
        (Stage(kind=StageKind.TIME, arms=tuple(arms), launches=None, processes=count),)
        if timed
        else ()
    )
    return (Stage(kind=StageKind.PREPARE, arms=()), *verify, *(peaks if memory else ()), *time)
