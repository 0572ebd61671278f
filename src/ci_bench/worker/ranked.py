"""A program that several processes run together, as rank 0 has it and as the others do.

Imports torch.

Rank 0 does what any worker does. Whenever it calls such a program, it makes the others call theirs,
outside the clock. A sample starts behind a barrier, and is the slowest rank's. Each rank's waiting
time in collectives comes from torch's profiler in steps that are not timed: by the clock, all ranks
of a synchronous step take as long as the slowest.
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed
from torch._C._distributed_c10d import FileStore

from ci_bench.records.forms import Fact
from ci_bench.records.metrics import (
    COLLECTIVE_BYTES,
    COLLECTIVE_TIME,
    RANK_SKEW,
    SCALING_EFFICIENCY,
)
from ci_bench.records.results import Check, Lane, Launch, Metric, Outcome
from ci_bench.suites.contract import (
    Compiler,
    Context,
    Evidence,
    Mark,
    Part,
    Program,
    Ranked,
    Refereed,
    Unsupported,
    no_mark,
)
from ci_bench.suites.shared.worker.randomness import seed_everything
from ci_bench.worker.clock import Clock, Taken, Write
from ci_bench.worker.fence import close, synchronizer, time_calls
from ci_bench.worker.memory import watch
from ci_bench.worker.ranks import Seat

PROFILED_STEPS = 5
BACKENDS = ("gloo:", "nccl:")
"""Prefixes of collectives in the profiler, on the thread or stream that executes them."""
SIZES = {
    "double": 8,
    "long int": 8,
    "float": 4,
    "int": 4,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "short int": 2,
    "unsigned char": 1,
    "signed char": 1,
    "bool": 1,
}
"""Bytes of an element, by the profiler's name of its type."""


def own_device(seat: Seat, device: str) -> str:
    """Return the device of one rank, before it has a context on any GPU: one GPU for each rank.

    Raises:
        Unsupported: there are fewer GPUs than ranks.
    """
    there = 0 if device == "cpu" else torch.cuda.device_count()
    if device == "cpu" or (device == "auto" and not there):
        return "cpu"
    if there < seat.count:
        raise Unsupported(f"{seat.count} processes need as many GPUs, and torch sees {there} here")
    return f"cuda:{seat.rank}"


def join(seat: Seat, device: str) -> None:
    """Meet the other ranks, each on its device."""
    gpu = None if device == "cpu" else torch.device(device)
    torch.distributed.init_process_group(
        "gloo" if gpu is None else "nccl",
        store=FileStore(str(seat.folder / "store"), seat.count),
        rank=seat.rank,
        world_size=seat.count,
        timeout=timedelta(seconds=seat.patience_s),
        device_id=gpu,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderlyRanks:
    """The ranks as a workload sees them."""

    seat: Seat

    @property
    def rank(self) -> int:
        """Return this process's own number."""
        return self.seat.rank

    @property
    def count(self) -> int:
        """Return the number of ranks."""
        return self.seat.count

    def order(self, order: Mapping[str, Any]) -> None:
        """Have the others' workloads follow an order. Raises `PeerLost`."""
        self.seat.send({"do": "follow", "order": order})


@dataclass(kw_only=True, slots=True)
class RankedWorkload:
    """Rank 0's workload, whose programs of several ranks are called together."""

    workload: Ranked
    seat: Seat
    opened: int = 0

    def prepare(self) -> None:
        """Prepare the workload in this process only."""
        self.workload.prepare()

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Verify as the workload does, which orders the others itself."""
        return self.workload.verify(arms)

    def open(self, arm: str) -> Program:
        """Open the arm's program, in all ranks if it spans them."""
        if not self.workload.spans(arm):
            return self.workload.open(arm)
        self.seat.send({"do": "open", "place": self.opened, "arm": arm})
        program = RankedProgram(own=self.workload.open(arm), seat=self.seat, place=self.opened)
        self.opened += 1
        return program


@dataclass(kw_only=True, slots=True)
class RankedProgram:
    """Rank 0's program and those of the others, called together."""

    own: Program
    """Rank 0's program."""
    seat: Seat
    """Rank 0's connection to the other ranks."""
    place: int
    """Number of the program, by which all ranks know it."""
    taken_s: list[tuple[float, ...]] = field(default_factory=list)
    """Seconds of each rank, sample by sample."""
    items: int | None = field(init=False)
    """Items of a step, as rank 0's program reports them; `None` if it counts none."""
    parts: tuple[Part, ...] = ()
    """Always empty: they would be only rank 0's."""
    compiler: Compiler = field(init=False)
    """Compiler of rank 0's program."""

    def __post_init__(self) -> None:
        """Check that a step has no parts: they would be only rank 0's."""
        self.items, self.compiler = self.own.items, self.own.compiler

    def step(self, mark: Mark) -> None:
        """Make one call in every rank."""
        self._order("step")
        self.own.step(mark)

    def finish(self) -> tuple[Check, ...]:
        """Return the checks of rank 0, which fail if another rank's do."""
        self._order("finish")
        checks = self.own.finish()
        others = {rank: answer["failed"] for rank, answer in enumerate(self.seat.answers(), 1)}
        return tuple(_with_others(check, others) for check in checks)

    def close(self) -> None:
        """Take all of them down."""
        self._order("close")
        close(self.own)

    @property
    def learns(self) -> bool:
        """Return whether steps change the input of later ones."""
        return self._refereed.learns

    @property
    def epsilon(self) -> float:
        """Return the precision's rounding."""
        return self._refereed.epsilon

    @property
    def memory(self) -> float:
        """Return the longest memory of the optimizer."""
        return self._refereed.memory

    @property
    def unrefereed(self) -> str:
        """Return why this cannot be compared with the reference; empty if it can."""
        return self._refereed.unrefereed

    @property
    def _refereed(self) -> Refereed:
        return cast("Refereed", self.own)

    def remember(self) -> None:
        """Store the start state in every rank."""
        self._order("referee", asked="remember")
        self._refereed.remember()

    def state(self) -> dict[str, Any]:
        """Return the state as one process would have it."""
        self._order("referee", asked="state")
        return self._refereed.state()

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Any] | None = None, shaken: int = 0
    ) -> bool:
        """Write the same fresh inputs in every rank.

        Rank 0 passes a state on: the others only know that there is one.
        """
        self._order(
            "referee",
            asked="refresh",
            seed=seed,
            moved=moved,
            stated=state is not None,
            shaken=shaken,
        )
        return self._refereed.refresh(seed, moved=moved, state=state, shaken=shaken)

    def outputs(self) -> dict[str, Any]:
        """Return the results of the last call in all ranks, as rank 0's part gathers them."""
        self._order("referee", asked="outputs")
        return self._refereed.outputs()

    def resume(self) -> None:
        """Restore the prepared inputs in every rank."""
        self._order("referee", asked="resume")
        self._refereed.resume()

    def take(self, clock: Clock, calls: int) -> Taken:
        """Take a sample in every rank simultaneously: the slowest's counts."""
        self._order("take", calls=calls, seed=torch.initial_seed())
        sample = take_together(clock, self.own, calls)
        seconds = (sample.wall_s, *(float(answer["wall_s"]) for answer in self.seat.answers()))
        self.taken_s.append(seconds)
        return Taken(wall_s=max(seconds), device_s=sample.device_s)

    def watch(self, device: str, memory: Any, steps: int) -> list[dict[str, float]]:
        """Return each rank's memory over this many steps, in bytes by metric."""
        self._order("watch", steps=steps)
        first_rank = _watched(self.own, memory, device, steps)
        return [first_rank, *(answer["memory"] for answer in self.seat.answers())]

    def profile(self, device: str) -> list[dict[str, Any]]:
        """Return each rank's activity in steps that are not timed: `profiled`."""
        self._order("profile")
        first_rank = profiled(self.own, device)
        return [first_rank, *self.seat.answers()]

    def _order(self, do: str, **more: Any) -> None:
        self.seat.send({"do": do, "place": self.place, **more})


def _with_others(check: Check, others: Mapping[int, Sequence[str]]) -> Check:
    failed = [rank for rank, names in others.items() if check.name in names]
    if not failed:
        return check
    detail = f"{check.detail}; fails in rank {', '.join(map(str, failed))}"
    return Check(name=check.name, arm=check.arm, outcome=Outcome.FAIL, detail=detail)


def take_together(clock: Clock, program: Program, calls: int) -> Taken:
    """Take one rank's part of a sample, which all ranks start simultaneously."""
    torch.distributed.barrier()
    return clock.take(program, calls=calls)


def follow(  # noqa: C901 - one for each order
    workload: Ranked, seat: Seat, context: Context, clock: Clock, *, memory: Any = None
) -> None:
    """Execute rank 0's orders until there are no more.

    `memory` counts from before benchmarked code was imported.
    """
    programs: dict[int, Program] = {}
    for order in seat.orders():
        place = order.get("place")
        match order["do"]:
            case "follow":
                workload.follow(order["order"])
            case "open":
                programs[cast("int", place)] = workload.open(order["arm"])
            case "step":
                clock.call(programs[cast("int", place)])
            case "take":
                seed_everything(order["seed"] + seat.rank)
                seat.send(
                    {
                        "wall_s": (
                            take_together(
                                clock, programs[cast("int", place)], order["calls"]
                            ).wall_s
                        )
                    }
                )
            case "watch":
                seat.send(
                    {
                        "memory": _watched(
                            programs[cast("int", place)], memory, context.device, order["steps"]
                        )
                    }
                )
            case "profile":
                seat.send(profiled(programs[cast("int", place)], context.device))
            case "referee":
                _be_refereed(cast("Refereed", programs[cast("int", place)]), order)
            case "finish":
                checks = programs[cast("int", place)].finish()
                seat.send(
                    {"failed": [check.name for check in checks if check.outcome is Outcome.FAIL]}
                )
            case "close":
                close(programs.pop(cast("int", place)))


def _be_refereed(program: Refereed, order: Mapping[str, Any]) -> None:
    """Do this rank's part of the referee's request. Rank 0 gives the answer."""
    if order["asked"] == "refresh":
        state: dict[str, Any] | None = {} if order["stated"] else None
        program.refresh(order["seed"], moved=order["moved"], state=state, shaken=order["shaken"])
    else:
        getattr(program, order["asked"])()


def _watched(program: Program, memory: Any, device: str, steps: int) -> dict[str, float]:
    synchronize = synchronizer(device)
    return watch(
        lambda: time_calls(lambda: program.step(no_mark), calls=1, synchronize=synchronize),
        memory,
        steps=steps,
    )


def profiled(program: Program, device: str) -> dict[str, Any]:
    """Return the seconds of a step, of its collectives (their union), and each kind's figures.

    A kind's figures are its number of calls, its seconds and its bytes.

    All are per step. The names are torch's own (``gloo:all_reduce``); a collective lasts from its
    start in this rank to its end, waiting included. Its bytes are those of the tensors that this
    rank passes to it; `None` if torch does not report them.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    torch.distributed.barrier()
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        step_s = time_calls(
            lambda: program.step(no_mark), calls=PROFILED_STEPS, synchronize=synchronizer(device)
        )
    spans: list[tuple[float, float]] = []
    kinds: dict[str, list[Any]] = {}
    for event in profile.events() or ():
        if event.name.startswith(BACKENDS):
            spans.append((event.time_range.start, event.time_range.end))
            kinds.setdefault(event.name, []).append(event)
    per_step = {name: _per_step(name, events) for name, events in sorted(kinds.items())}
    return {
        "step_s": step_s,
        "collective_s": union_us(spans) / 1e6 / PROFILED_STEPS,
        "kinds": per_step,
    }


def _per_step(name: str, events: Sequence[Any]) -> dict[str, float | None]:
    size = given_bytes(
        name, [(event.input_shapes or (), event.input_dtypes or ()) for event in events]
    )
    return {
        "times": len(events) / PROFILED_STEPS,
        "seconds": sum(event.time_range.elapsed_us() for event in events) / 1e6 / PROFILED_STEPS,
        "bytes": None if size is None else size / PROFILED_STEPS,
    }


def given_bytes(
    name: str, calls: Sequence[tuple[Sequence[Sequence[int]], Sequence[str]]]
) -> int | None:
    """Return the bytes passed to calls of a collective.

    Sizes follow from tensors' shapes and the profiler's names of their types. On a GPU a call is
    listed a second time, without tensors. `None` if no call has any, unless it is a barrier, or if
    an element's size is unknown.
    """
    calls_with_tensors = [call for call in calls if call[0]]
    if any(
        len(shapes) != len(types) or not SIZES.keys() >= {*types}
        for shapes, types in calls_with_tensors
    ):
        return None
    if not calls_with_tensors and not name.endswith("barrier"):
        return None
    return sum(
        math.prod(shape) * SIZES[kind]
        for shapes, types in calls_with_tensors
        for shape, kind in zip(shapes, types, strict=True)
    )


def union_us(spans: Sequence[tuple[float, float]]) -> float:
    """Return how long at least one of the spans lasts, in their unit."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


@dataclass(frozen=True, slots=True)
class RankedClock:
    """A clock of the device, by which programs of several ranks are sampled together."""

    clock: Clock

    def take(self, program: Program, *, calls: int, write: Write | None = None) -> Taken:
        """Take a sample; of a program of several ranks the slowest's.

        No inputs are overwritten in the latter.
        """
        if isinstance(program, RankedProgram):
            return program.take(self.clock, calls)
        return self.clock.take(program, calls=calls, write=write)

    def __getattr__(self, name: str) -> Any:
        """Delegate all else to the device's clock."""
        return getattr(self.clock, name)


def ranks_evidence(
    arm: str,
    program: RankedProgram,
    *,
    samples: Sequence[Taken],
    reference_s: float | None,
    device: str,
    launch: int,
) -> tuple[tuple[Metric, ...], dict[str, Fact]]:
    """Return what is shown of one arm's ranks, once its samples are taken. None of it gates.

    Skew is how much longer the slowest rank works in a step than the fastest, outside of
    collectives (s). The time in collectives is that of the rank that waits least (s), their bytes
    those of the rank that passes most. Efficiency is the reference's step time / (ranks x this
    arm's).
    """
    profiles = program.profile(device)
    busy_s = [max(0.0, profile["step_s"] - profile["collective_s"]) for profile in profiles]
    numbers = [
        (RANK_SKEW, max(busy_s) - min(busy_s)),
        (COLLECTIVE_TIME, min(profile["collective_s"] for profile in profiles)),
    ]
    sizes = [[kind["bytes"] for kind in profile["kinds"].values()] for profile in profiles]
    if all(size is not None for rank in sizes for size in rank):
        numbers.append((COLLECTIVE_BYTES, max(map(sum, sizes))))
    if reference_s is not None:
        step_s = statistics.median(sample.wall_s for sample in samples)
        numbers.append((SCALING_EFFICIENCY, reference_s / (len(profiles) * step_s)))
    metrics = tuple(
        kind.of(arm, Launch(launch=launch, values=(value,)), lane=Lane.COUNTERS)
        for kind, value in numbers
        if value > 0
    )
    medians_s = [
        statistics.median(seconds[rank] for seconds in program.taken_s)
        for rank in range(len(profiles))
    ]
    ranks = [
        f"rank {rank}: {1e3 * medians_s[rank]:.3g} ms a step, {_share(profile)} of it in"
        " collectives"
        for rank, profile in enumerate(profiles)
    ]
    kinds = [f"{name} {_of_kind(kind)}" for name, kind in profiles[0]["kinds"].items()]
    return metrics, {
        fact_of("ranks", arm): "; ".join(ranks),
        fact_of("collectives", arm): "; ".join(kinds) or "none",
    }


def _of_kind(kind: Mapping[str, Any]) -> str:
    size = "" if kind["bytes"] is None else f", {kind['bytes']:,.0f} bytes"
    return f"{kind['times']:g} x, {1e3 * kind['seconds']:.3g} ms{size}"


def _share(profile: Mapping[str, float]) -> str:
    return f"{min(1.0, profile['collective_s'] / profile['step_s']):.0%}"


def fact_of(what: str, arm: str) -> str:
    """Return the name of a fact about an arm: lower case, and within the limit of facts' names."""
    return f"{what}_{re.sub('[^a-z0-9]+', '_', arm.lower())}"[:60]


def largest(by_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest value of any rank for each metric; nothing if one of them is unknown."""
    names = set.intersection(*(set(metrics) for metrics in by_rank))
    return {name: max(metrics[name] for metrics in by_rank) for name in sorted(names)}


def memory_fact(arm: str, by_rank: Sequence[Mapping[str, float]]) -> dict[str, Fact]:
    """Return each rank's peak memory, for the reader."""
    peaks = [
        next((f"{name} {value / 2**20:.1f} MiB" for name, value in metrics.items()), "unknown")
        for metrics in by_rank
    ]
    return {
        fact_of("memory", arm): "; ".join(f"rank {rank}: {peak}" for rank, peak in enumerate(peaks))
    }
