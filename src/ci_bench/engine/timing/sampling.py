"""Samples of all arms of a case in one process: opening them, warming them up, taking turns, and what comes of it as metrics.

Who has the next turn is decided in `turns`, in the parent; a turn is one sample of one arm, and two of one arm may come at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from ci_bench.engine.process.channel import Abandoned, Channel
from ci_bench.engine.process.task import OBEYED, Answer, Done, OrderKind
from ci_bench.engine.timing.clock import Clock, Taken, device_series, make_clock, part_series
from ci_bench.engine.timing.device import synchronizer
from ci_bench.engine.timing.fence import find_calls, hold_garbage_collector, time_calls, warm_up
from ci_bench.engine.timing.rotation import Rotation
from ci_bench.records.case import Better, Check, Lane, Launch, Metric, Outcome, Unit
from ci_bench.records.config import RunOptions
from ci_bench.suites.base import Compiler, Context, Evidence, Program, Workload, no_mark

STEP_TIME = "step_time"
DEVICE_TIME = "device_time"
COMPILE_WARM = "compile_warm"
TOUCH_FROM_CALLS = 50
"""A touch is then at most two per cent of a sample."""


@dataclass(kw_only=True, slots=True)
class Seat:
    """One arm at the table."""

    arm: str
    program: Program
    first_call_s: float
    warmup: tuple[float, ...] = ()
    steady: bool = False
    taken: list[Taken] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class Table:
    """The arms of one case, resident in this process."""

    options: RunOptions
    context: Context
    clock: Clock = field(init=False)
    seats: list[Seat] = field(default_factory=list)
    calls: int = 1

    def __post_init__(self) -> None:
        """The clock is that of the device."""
        self.clock = make_clock(self.context.device, self.options)

    def open(self, workload: Workload, arms: tuple[str, ...]) -> int:
        """Build every arm, as often as it rotates, and time its first call. Returns how many calls of the first make a sample."""
        synchronize = synchronizer(self.context.device)
        for arm in arms:
            first_calls_s, copies = [], []
            for _ in range(self.options.rotate):
                copies.append(program := workload.open(arm))
                first_calls_s.append(time_calls(partial(program.step, no_mark), calls=1, synchronize=synchronize))
            whole = copies[0] if len(copies) == 1 else Rotation(copies)
            self.seats.append(Seat(arm=arm, program=whole, first_call_s=first_calls_s[0]))
        for seat in self.seats:
            self.clock.prepare(seat.program)
        reference, sample_s = self.seats[0].program, max(self.options.sample_s, self.clock.least_sample_s())
        return find_calls(lambda calls: self.clock.take(reference, calls=calls).wall_s, sample_s=sample_s)

    def warm(self, calls: int) -> None:
        """Warm every arm up until steady; `calls` make a sample from now on."""
        self.calls = calls
        for seat in self.seats:
            seat.warmup, seat.steady = warm_up(
                lambda program=seat.program: self.clock.take(program, calls=calls).wall_s,  # type: ignore[misc]
                limit_s=self.options.warmup_s,
            )

    def turn(self, seat: int, block: int, *, samples: int = 1, touch: bool) -> None:
        """Take samples of one arm; `touch` makes one call before them, to find the caches as the last turn left them.

        Only where a call is a small part of a sample: elsewhere it would cost more than it brings, since both sides find the
        caches cold equally often.
        """
        sitting = self.seats[seat]
        if touch and self.calls >= TOUCH_FROM_CALLS:
            self.clock.call(sitting.program)
        for _ in range(samples):
            sitting.taken.append(self.clock.take(sitting.program, calls=self.calls))
            sitting.blocks.append(block)

    def discard(self, block: int) -> None:
        """Throw the samples of one block away."""
        for seat in self.seats:
            kept = [index for index, of in enumerate(seat.blocks) if of != block]
            seat.taken = [seat.taken[index] for index in kept]
            seat.blocks = [seat.blocks[index] for index in kept]

    def evidence(self, launch: int) -> Evidence:
        """All metrics of this launch, and what the programs say once the clock has stopped."""
        metrics = [metric for seat in self.seats for metric in self._metrics(seat, launch)]
        metrics += [metric for seat in self.seats for metric in _warm_compile(seat, launch=launch)]
        checks: list[Check] = []
        for seat in self.seats:
            checks += (_steadiness(seat), *self.clock.checks(seat.program, arm=seat.arm), *seat.program.finish())
        return Evidence(metrics=tuple(metrics), checks=tuple(checks))

    def _metrics(self, seat: Seat, launch: int) -> Iterator[Metric]:
        """The whole step by the host's clock, by the device's where it has one, and each part (s per call)."""
        program, taken = seat.program, seat.taken
        wall = tuple(one.wall_s for one in taken)
        series = [(STEP_TIME, wall, program.items, Lane.WALL), (DEVICE_TIME, device_series(taken), program.items, Lane.DEVICE)]
        for index, part in enumerate(program.parts):
            series.append((part.metric, part_series(taken, index), part.items, self.clock.parts_lane))
        for name, values, items, lane in series:
            warmup = seat.warmup if name == STEP_TIME else ()
            one = Launch(launch=launch, values=values, warmup=warmup, blocks=tuple(seat.blocks), steady=seat.steady)
            if values:
                yield Metric(
                    name=name,
                    arm=seat.arm,
                    unit=Unit.SECONDS,
                    better=Better.LOWER,
                    lane=lane,
                    launches=(one,),
                    calls=self.calls,
                    items=items,
                )


def serve_turns(table: Table, workload: Workload, arms: tuple[str, ...], *, launch: int, channel: Channel) -> Evidence:
    """Open every arm, then do as ordered: warm up, take turns, tell.

    Each arm's first call is timed apart: with a filled compiler cache, the part above a steady step is its warm compile latency.

    Raises:
        Abandoned: the orders ended before the last of them.
    """
    channel.say(Answer(done=Done(calls=table.open(workload, arms))))
    with hold_garbage_collector():
        for order in channel.orders():
            match order.kind:
                case OrderKind.WARM:
                    table.warm(order.calls)
                case OrderKind.TURN:
                    table.turn(order.seat, order.block, samples=order.samples, touch=order.touch)
                case OrderKind.DISCARD:
                    table.discard(order.block)
                case OrderKind.FINISH:
                    return table.evidence(launch)
            channel.send(OBEYED)
    raise Abandoned


def _steadiness(seat: Seat) -> Check:
    """A warm-up that never became steady leaves the timing in doubt; the arms still saw the same ramp."""
    calls = len(seat.warmup)
    if seat.steady:
        return Check(name="steady", arm=seat.arm, outcome=Outcome.PASS, detail=f"steady after {calls} warm-up samples")
    detail = f"not steady after {calls} warm-up samples ({sum(seat.warmup):.1f} s); raise run.warmup_s or quieten the machine"
    return Check(name="steady", arm=seat.arm, outcome=Outcome.UNKNOWN, detail=detail)


def _warm_compile(seat: Seat, *, launch: int) -> tuple[Metric, ...]:
    if seat.program.compiler is Compiler.NONE:
        return ()
    steady_s = min(one.wall_s for one in seat.taken)
    return compile_latency(COMPILE_WARM, seat.arm, first_call_s=seat.first_call_s, steady_s=steady_s, launch=launch)


def compile_latency(name: str, arm: str, *, first_call_s: float, steady_s: float, launch: int) -> tuple[Metric, ...]:
    """Compile latency in seconds: the synchronised first call minus a synchronised steady call.

    Nothing where the first call took no longer: such a latency is unknown, and zero would be a guess.
    """
    if first_call_s <= steady_s:
        return ()
    taken = Launch(launch=launch, values=(first_call_s - steady_s,))
    return (Metric(name=name, arm=arm, unit=Unit.SECONDS, better=Better.LOWER, lane=Lane.WALL, launches=(taken,)),)
