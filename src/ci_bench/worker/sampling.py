"""Take samples of all arms of a case in one process.

Opens the arms, warms them up, takes turns, and returns metrics. `turns`, in the parent, decides the
order of turns. A turn is one sample of one arm, and two of one arm may follow each other directly.
Every sample starts from its own seed, set outside the clock, so arms and sides draw the same random
numbers.
"""

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from ci_bench.processes.noted import Noted, current
from ci_bench.processes.protocol import (
    OBEYED,
    TOUCH_FROM_CALLS,
    Abandoned,
    Answer,
    Channel,
    Done,
    OrderKind,
)
from ci_bench.records.config import RunOptions
from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import (
    COMPILE_WARM,
    DEVICE_TIME,
    MEMORY_KEPT,
    STEP_TIME,
    MetricKind,
    duration,
)
from ci_bench.records.results import SHORT_OF_MEMORY, Check, Lane, Launch, Metric, Outcome, Phase
from ci_bench.suites.contract import (
    Compiler,
    Context,
    Evidence,
    Program,
    Refereed,
    Workload,
    no_mark,
)
from ci_bench.suites.shared.worker.randomness import seed_step, step_seed
from ci_bench.worker.clock import Clock, HostClock, Taken, device_series, part_series
from ci_bench.worker.compile_workers import end_workers, start_workers
from ci_bench.worker.cores import Cores
from ci_bench.worker.fence import (
    WINDOW_SAMPLES,
    Rotation,
    close,
    copies_of,
    find_calls,
    hold_garbage_collector,
    synchronizer,
    time_calls,
    torch_is_loaded,
    warm_up,
)
from ci_bench.worker.kept import Kept
from ci_bench.worker.memory import keep_freed_memory
from ci_bench.worker.phases import Stopwatch

if TYPE_CHECKING:
    from ci_bench.worker.referee import Referee
    from ci_bench.worker.untouched import Untouched

SAMPLES_A_BLOCK = 2
"""Of each arm: there and back (`turns.plan_block`)."""
TIMING_SEED = 40_487
"""The seed of all arms and sides: a sample's draws depend only on its place in its block."""
MOST_OF_IT = 0.9
"""The share of a warm-up's limit from which the limit has ended it.

A shorter one had its samples.
"""


@dataclass(kw_only=True, slots=True)
class ResidentArm:
    """One arm, open in this process."""

    name: str
    """Name of the arm."""
    program: Program
    """The opened program, or a rotation of several copies."""
    first_call_s: float
    """Duration of the first call (s), including its compilation."""
    calls: int = 1
    """Calls that make one of its samples."""
    warmup: tuple[float, ...] = ()
    """Samples of the warm-up, in seconds per call."""
    steady: bool = False
    """True if the warm-up became steady."""
    taken: list[Taken] = field(default_factory=list)
    """Samples so far, without discarded ones."""
    blocks: list[int] = field(default_factory=list)
    """Number of each sample's block."""


@dataclass(kw_only=True, slots=True)
class ResidentArms:
    """The arms of one case, resident in this process."""

    options: RunOptions
    """Options of the run."""
    context: Context
    """Context that the workload was opened with."""
    clock: Clock = field(init=False)
    """Clock of the device."""
    arms: list[ResidentArm] = field(default_factory=list)
    """Opened arms, the reference first."""
    referee: "Referee | None" = None
    """Referee of these arms; `None` if it is off, not offered by the suite, or done."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    """Sums the seconds of phases."""
    retries: int = 0
    """The allocator's retries before the first sample."""
    untouched: "Untouched | None" = None
    """Comparison of shared settings; `None` if nothing computes with torch."""
    cores: Cores = field(default_factory=Cores)
    """Cores that this process computes on."""
    kept: Kept | None = None
    """Memory that timed calls keep; `None` before the first sample, or without torch."""
    begun: dict[str, FirstCall] = field(default_factory=dict)
    """First call of each arm: its inputs and results; empty without torch."""
    _open_reference: Callable[[], Program] | None = None
    """Builds the reference again; `None` before the arms are open."""

    def __post_init__(self) -> None:
        """Make the device's clock."""
        self.clock = make_clock(self.context.device, self.options)
        if self.context.ranks is not None:
            from ci_bench.worker.ranked import RankedClock

            self.clock = RankedClock(self.clock)

    def open(self, workload: Workload, arms: tuple[str, ...]) -> tuple[int, ...]:
        """Build every arm, as often as it rotates, and time its first call.

        Returns how many calls of each make a sample.
        """
        synchronize = synchronizer(self.context.device)
        if self.untouched is None:
            self.untouched = what_is_shared()
        if self.untouched is not None:
            self.untouched.clock = self.clock
            self.untouched.noted.take_clock(self.clock)
        if getattr(workload, "keeps_freed_memory", False):
            keep_freed_memory()
        for name in arms:
            first_calls_s, copies = [], []
            for _ in range(self.options.rotate):
                with self.stopwatch.phase(Phase.BUILD, name):
                    copies.append(program := workload.open(name))
                    start_workers(program.compiler)
                if self.options.referee and _can_be_refereed(program):
                    with self.stopwatch.phase(Phase.CHECKS, name):
                        cast("Refereed", program).remember()
                with self._reading(name, program):
                    first_calls_s.append(
                        time_calls(partial(program.step, no_mark), calls=1, synchronize=synchronize)
                    )
                self.stopwatch.add(Phase.COMPILE, name, first_calls_s[-1])
            combined = copies[0] if len(copies) == 1 else Rotation(copies)
            self.arms.append(
                ResidentArm(name=name, program=combined, first_call_s=first_calls_s[0])
            )
            if self.untouched is not None and name == arms[0]:
                self.untouched.note()
            self._look_at_settings(name)
        self._open_reference = partial(workload.open, arms[0])
        self.referee = self._call_referee()
        for arm in self.arms:
            with self.stopwatch.phase(Phase.COMPILE, arm.name):
                self.clock.prepare(arm.program)
        end_workers()
        return tuple(self._find_calls(arm) for arm in self.arms)

    @contextmanager
    def _reading(self, arm: str, program: Program) -> Iterator[None]:
        """Record the inputs and results of an arm's first call, which this block makes.

        Only of its first copy.
        """
        if arm in self.begun or not torch_is_loaded():
            yield
            return
        from ci_bench.suites.shared.worker.first_calls import reader_of

        with self.stopwatch.phase(Phase.CHECKS, arm):
            read = reader_of(program)
        yield
        if read is not None:
            with self.stopwatch.phase(Phase.CHECKS, arm):
                self.begun[arm] = read()

    def _find_calls(self, arm: ResidentArm) -> int:
        """Return how many calls of an arm last as long as a sample must."""
        sample_s = max(self.options.sample_s, self.clock.least_sample_s())
        with self.stopwatch.phase(Phase.WARM_UP, arm.name):
            return find_calls(
                lambda calls: self.clock.take(arm.program, calls=calls).wall_s, sample_s=sample_s
            )

    def warm(self, calls: Sequence[int]) -> float:
        """Warm every arm up until steady; this many calls of each make a sample.

        Returns the duration of a block of them all (s).
        """
        self.cores.begin()
        for arm, count in zip(self.arms, calls, strict=True):
            arm.calls = count
            with self.stopwatch.phase(Phase.WARM_UP, arm.name):
                arm.warmup, arm.steady = warm_up(
                    lambda program=arm.program, count=count: (
                        self.clock.take(program, calls=count).wall_s
                    ),  # type: ignore[misc]
                    limit_s=self.options.warmup_s,
                    samples=SAMPLES_A_BLOCK * self.options.blocks,
                )
            self._look_at_settings(arm.name)
        self.cores.end()
        self._begin_repeating()
        self._begin_keeping()
        self.retries = self.clock.retries()
        return SAMPLES_A_BLOCK * sum(
            arm.calls * statistics.median(arm.warmup[-WINDOW_SAMPLES:]) for arm in self.arms
        )

    def _begin_keeping(self) -> None:
        """Read the memory before the first sample.

        A call of each arm brings the returned pages back.
        """
        if torch_is_loaded():
            self.kept = Kept(device=self.context.device)
            self.kept.begin()
            for arm in self.arms:
                self.clock.call(arm.program)

    def _begin_repeating(self) -> None:
        """Record results of calls on the prepared inputs before the first sample."""
        for arm in [] if self.referee is None else self.arms:
            with self.stopwatch.phase(Phase.CHECKS, arm.name):
                self.referee.repeats.begin(arm.name, arm.program)  # type: ignore[union-attr] # there is one

    def _call_referee(self) -> "Referee | None":
        """Return the referee of these arms.

        `None` if it is switched off, or if the suite's programs do not offer it.
        """
        if not self.options.referee or not all(
            _can_be_refereed(copy) for arm in self.arms for copy in copies_of(arm.program)
        ):
            return None
        from ci_bench.worker.referee import Referee

        referee = Referee(
            clock=self.clock, reference=self.arms[0].program, reference_arm=self.arms[0].name
        )
        referee.begin()
        return referee

    def turn(
        self,
        place: int,
        block: int,
        *,
        samples: int = 1,
        touch: bool,
        referee: int | None = None,
        once: bool = False,
        flushes: int = 0,
    ) -> None:
        """Take samples of one arm.

        `touch` makes one call before them, to find the caches as the last turn left them. Only if a
        call is a small part of a sample: otherwise it would cost more than it gains, since both
        sides find the caches cold equally often.

        With a `referee`'s seed it looks at calls on fresh inputs first, at a single one with
        `once`.
        """
        taking = self.arms[place]
        if flushes:
            self.clock.settle_flushes(flushes)
        if referee is not None and self.referee is not None:
            with self.stopwatch.phase(Phase.CHECKS, taking.name):
                draw = step_seed(TIMING_SEED, block, taking.blocks.count(block))
                self.referee.look(
                    taking.name,
                    taking.program,
                    seed=referee,
                    calls=1 if once else taking.calls,
                    draw=draw,
                )
        if touch and taking.calls >= TOUCH_FROM_CALLS:
            self.clock.call(taking.program)
        for _ in range(samples):
            seed_step(TIMING_SEED, block, taking.blocks.count(block))
            watched = nullcontext() if self.kept is None else self.kept.calls_of(taking.name)
            with watched, self.stopwatch.phase(Phase.SAMPLES, taking.name):
                taking.taken.append(self.clock.take(taking.program, calls=taking.calls))
            taking.blocks.append(block)
        if self.referee is not None:
            sampled_s = sum(sample.wall_s * taking.calls for sample in taking.taken[-samples:])
            with self.stopwatch.phase(Phase.CHECKS, taking.name):
                self.referee.repeats.after_turn(taking.name, taking.program, sampled_s=sampled_s)
        self._look_at_settings(taking.name)

    def _look_at_settings(self, arm: str) -> None:
        if self.untouched is not None:
            self.untouched.look(arm)

    def accept_own_settings(self) -> None:
        """Note the cores and the garbage collector once the engine has changed them."""
        if self.untouched is not None:
            from ci_bench.worker.untouched import OF_THE_ENGINE

            self.untouched.accept(*OF_THE_ENGINE)

    def keep_busy(self, place: int, seconds: float) -> int:
        """Call one arm as samples do, without a flush, for this long.

        Returns the number of calls.
        """
        arm, synchronize, count = self.arms[place], synchronizer(self.context.device), 0
        with self.stopwatch.phase(Phase.SAMPLES, arm.name):
            begun = time.perf_counter()
            while time.perf_counter() < begun + seconds:
                for _ in range(arm.calls):
                    self.clock.call(arm.program)
                synchronize()
                count += arm.calls
        return count

    def discard(self, block: int) -> None:
        """Throw the samples of one block away."""
        for arm in self.arms:
            indices = [index for index, of in enumerate(arm.blocks) if of != block]
            arm.taken = [arm.taken[index] for index in indices]
            arm.blocks = [arm.blocks[index] for index in indices]

    def evidence(self, launch: int) -> Evidence:
        """Return all metrics of this launch, and the programs' reports after the clock stopped."""
        with self.stopwatch.phase(Phase.CHECKS):
            return self._evidence(launch)

    def _evidence(self, launch: int) -> Evidence:
        metrics = [metric for arm in self.arms for metric in self._metrics(arm, launch)]
        metrics += [metric for arm in self.arms for metric in _warm_compile(arm, launch=launch)]
        ranks, facts = self._of_ranks(launch)
        checks: list[Check] = []
        for arm in self.arms:
            checks.append(_steadiness(arm, self.options.warmup_s))
            checks += (*self.clock.checks(arm.program, arm=arm.name), *arm.program.finish())
        checks += self._refereed()
        checks += self._short_of_memory()
        checks += [] if self.untouched is None else self.untouched.checks(self.arms[0].name)
        self.referee = None  # it keeps outputs
        for name, kept_bytes in (self.kept.by_arm() if self.kept is not None else {}).items():
            metrics.append(
                MEMORY_KEPT.of(
                    name, Launch(launch=launch, values=(kept_bytes,)), lane=Lane.COUNTERS
                )
            )
        for arm in self.arms:
            close(arm.program)
        return Evidence(
            metrics=(*metrics, *ranks), checks=tuple(checks), facts=facts, begun=self.begun
        )

    def _of_ranks(self, launch: int) -> tuple[list[Metric], dict[str, Fact]]:
        """Return what is shown of the processes of arms that have several."""
        metrics: list[Metric] = []
        facts: dict[str, Fact] = {}
        if self.context.ranks is None:
            return metrics, facts
        from ci_bench.worker.ranked import RankedProgram, ranks_evidence

        reference_s = (
            statistics.median(sample.wall_s for sample in self.arms[0].taken)
            if self.arms[0].taken
            else None
        )
        for arm in self.arms:
            if isinstance(arm.program, RankedProgram) and arm.taken:
                more_metrics, more_facts = ranks_evidence(
                    arm.name,
                    arm.program,
                    samples=arm.taken,
                    reference_s=reference_s,
                    device=self.context.device,
                    launch=launch,
                )
                metrics += more_metrics
                facts |= more_facts
        return metrics, facts

    def _short_of_memory(self) -> Iterator[Check]:
        """Report that the device's memory was short while samples were taken.

        Each time costs milliseconds that are not the code's.
        """
        if (grown := self.clock.retries() - self.retries) > 0:
            detail = (
                f"torch's allocator freed its cache {grown} times to find room while samples were"
                " taken"
            )
            yield Check(
                name=SHORT_OF_MEMORY, arm=self.arms[0].name, outcome=Outcome.UNKNOWN, detail=detail
            )

    def _refereed(self) -> list[Check]:
        """Return the referee's check of each arm, the reference first.

        Without a referee, candidates have a check that it is switched off. The reference arm is
        judged last, against a fresh build of itself: all others no longer need it by then.
        """
        if not self.options.referee:
            detail = "run.referee is off: the results of the timed calls were not checked"
            return [
                Check(
                    name="refereed",
                    arm=arm.name,
                    outcome=Outcome.UNKNOWN,
                    detail=detail,
                    informative=True,
                )
                for arm in self.arms[1:]
                if _can_be_refereed(copies_of(arm.program)[0])
            ]
        if self.referee is None or self._open_reference is None:
            return []
        timed = [
            (arm, statistics.median(sample.wall_s for sample in arm.taken))
            for arm in self.arms
            if arm.taken
        ]
        for arm, _ in timed:
            self.referee.repeats.finish(arm.name, arm.program)
        candidate_checks = [
            self.referee.check(arm.name, arm.program, plain_s=plain_s)
            for arm, plain_s in timed
            if arm is not self.arms[0]
        ]
        reference_checks = [
            self.referee.check_reference(arm.name, self._open_reference, plain_s=plain_s)
            for arm, plain_s in timed
            if arm is self.arms[0]
        ]
        return [check for check in (*reference_checks, *candidate_checks) if check is not None]

    def _metrics(self, arm: ResidentArm, launch: int) -> Iterator[Metric]:
        """Yield the whole step by the host's clock and the device's, and each part (s per call).

        A device without a clock has no such series.
        """
        program, samples = arm.program, arm.taken
        wall = tuple(sample.wall_s for sample in samples)
        series = [
            (STEP_TIME, wall, program.items, Lane.WALL),
            (DEVICE_TIME, device_series(samples), program.items, Lane.DEVICE),
        ]
        for index, part in enumerate(program.parts):
            series.append(
                (
                    duration(part.metric),
                    part_series(samples, index),
                    part.items,
                    self.clock.parts_lane,
                )
            )
        for kind, values, items, lane in series:
            warmup = arm.warmup if kind is STEP_TIME else ()
            timings = Launch(
                launch=launch,
                values=values,
                warmup=warmup,
                blocks=tuple(arm.blocks),
                steady=arm.steady,
            )
            if values:
                yield kind.of(arm.name, timings, lane=lane, calls=arm.calls, items=items)


def serve_turns(
    resident: ResidentArms,
    workload: Workload,
    arms: tuple[str, ...],
    *,
    launch: int,
    channel: Channel,
) -> Evidence:
    """Open every arm, then execute orders: warm up, take turns, report.

    Each arm's first call is timed apart: with a filled compiler cache, the part above a steady step
    is its warm compile latency.

    Raises:
        Abandoned: the orders ended before the last of them.
    """
    channel.say(Answer(done=Done(calls=resident.open(workload, arms))))
    with hold_garbage_collector():
        resident.accept_own_settings()
        for order in channel.orders():
            match order.kind:
                case OrderKind.WARM:
                    block_s = resident.warm(order.calls)
                    done = Done(
                        block_s=block_s,
                        flushes=resident.clock.flushes(),
                        one_core=resident.cores.one,
                    )
                    channel.say(Answer(done=done))
                    continue
                case OrderKind.KEEP_TO:
                    resident.cores.keep_to(order.core)
                    resident.accept_own_settings()
                case OrderKind.TURN:
                    resident.turn(
                        order.seat,
                        order.block,
                        samples=order.samples,
                        touch=order.touch,
                        referee=order.referee,
                        once=order.once,
                        flushes=order.flushes,
                    )
                case OrderKind.KEEP_BUSY:
                    channel.say(
                        Answer(done=Done(made=resident.keep_busy(order.seat, order.seconds)))
                    )
                    continue
                case OrderKind.DISCARD:
                    resident.discard(order.block)
                case OrderKind.FINISH:
                    resident.cores.release()
                    return resident.evidence(launch)
            channel.send(OBEYED)
    raise Abandoned


def what_is_shared(notes: Noted | None = None) -> "Untouched | None":
    """Note shared settings of all arms.

    `None` if nothing computes with torch, so nothing can be compared. `notes` are earlier notes of
    code.
    """
    if not torch_is_loaded():
        return None
    from ci_bench.worker.untouched import Untouched, settings

    return Untouched(noted=notes or current(), begun=settings())


def _can_be_refereed(program: Program) -> bool:
    """Return whether a program offers what refereeing needs, the rest of `Refereed`.

    One of several ranks has what its own part has.
    """
    return hasattr(getattr(program, "own", program), "refresh")


def _steadiness(arm: ResidentArm, limit_s: float) -> Check:
    """Check that the warm-up became steady.

    Otherwise the timing is in doubt; the arms still saw the same ramp.
    """
    calls = len(arm.warmup)
    if arm.steady:
        return Check(
            name="steady",
            arm=arm.name,
            outcome=Outcome.PASS,
            detail=f"steady after {calls} warm-up samples",
        )
    lasted_s = sum(arm.warmup) * arm.calls
    each = "" if arm.calls == 1 else f" of {arm.calls:,} calls each"
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    ways_out = ["raise run.warmup_s"] if lasted_s >= MOST_OF_IT * limit_s else []
    ways_out += ["stop other work on this machine"] if load > cores else []
    advice = f"; {' or '.join(ways_out)}" if ways_out else ""
    detail = (
        f"not steady after {lasted_s:.2g} s of warm-up ({calls} samples{each}; load {load:.1f} on"
        f" {cores} cores){advice}"
    )
    return Check(name="steady", arm=arm.name, outcome=Outcome.UNKNOWN, detail=detail)


def _warm_compile(arm: ResidentArm, *, launch: int) -> tuple[Metric, ...]:
    if arm.program.compiler is Compiler.NONE:
        return ()
    steady_s = min(sample.wall_s for sample in arm.taken)
    return compile_latency(
        COMPILE_WARM, arm.name, first_call_s=arm.first_call_s, steady_s=steady_s, launch=launch
    )


def compile_latency(
    kind: MetricKind, arm: str, *, first_call_s: float, steady_s: float, launch: int
) -> tuple[Metric, ...]:
    """Return the compile latency (s): the first call minus a steady call, both synchronised.

    Nothing if the first call took no longer: such a latency is unknown, and zero would be a guess.
    """
    if first_call_s <= steady_s:
        return ()
    series = Launch(launch=launch, values=(first_call_s - steady_s,))
    return (kind.of(arm, series, lane=Lane.WALL),)


def make_clock(device: str, options: RunOptions | None = None) -> Clock:
    """Return a device string's clock: `HostClock` for the CPU, `CudaClock` for a GPU.

    On the CPU, `flush_l2` and `cuda_graph` only leave an informative check. On a shared machine the
    caches, their sizes and their other users are unknown, so a flush could not be guaranteed.
    """
    options = options or RunOptions()
    if device == "cpu":
        requested = {"flush_l2": options.flush_l2, "cuda_graph": options.cuda_graph}
        return HostClock(
            synchronizer(device),
            unmet=tuple(name for name, enabled in requested.items() if enabled),
        )
    import torch

    from ci_bench.worker.cuda_clock import CudaClock, make_flush, make_unpin

    flush = None
    unpin: Callable[[], int] = int
    if options.flush_l2:
        unpin = make_unpin(ctypes.CDLL)
        flush = make_flush(
            torch.cuda,
            device,
            allocate=lambda size: torch.empty(size, dtype=torch.uint8, device=device),
        )
    draw = partial(torch.rand, 1, device=device)
    return CudaClock(
        torch.cuda, device, flush=flush, unpin=unpin, graphs=options.cuda_graph, draw=draw
    )
