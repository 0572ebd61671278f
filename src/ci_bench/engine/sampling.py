"""Samples of all arms of a case in one process: opening them, warming them up, taking turns, and what comes of it as metrics.

Who has the next turn is decided elsewhere (`plan_turns` says in which order); a turn is one sample of one arm.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from ci_bench.engine.clock import Clock, Taken, make_clock
from ci_bench.engine.device import synchronizer
from ci_bench.engine.timing import find_calls, hold_garbage_collector, time_calls, warm_up
from ci_bench.records.case import Better, Check, Lane, Launch, Metric, Outcome, Unit
from ci_bench.records.config import RunOptions
from ci_bench.suites.base import Compiler, Context, Evidence, Program, Workload, no_mark

STEP_TIME = "step_time"
DEVICE_TIME = "device_time"
COMPILE_WARM = "compile_warm"


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


def plan_turns(seats: int, blocks: int, coin: random.Random) -> list[list[int]]:
    """The order of turns: for each block a random order of the seats, there and back.

    A block is a palindrome (ABBA, or BAAB): each seat has two turns and the same mean position in time, so a linear drift hits
    all of them alike.
    """
    turns = []
    for _ in range(blocks):
        order = list(range(seats))
        coin.shuffle(order)
        turns.append([*order, *reversed(order)])
    return turns


@dataclass(kw_only=True, slots=True)
class Table:
    """The arms of one case, resident in this process."""

    options: RunOptions
    context: Context
    clock: Clock
    seats: list[Seat] = field(default_factory=list)
    calls: int = 1

    def open(self, workload: Workload, arms: tuple[str, ...]) -> int:
        """Build every arm and time its first call. Returns how many calls of the first arm make a sample."""
        synchronize = synchronizer(self.context.device)
        for arm in arms:
            program = workload.open(arm)
            first_call_s = time_calls(lambda step=program.step: step(no_mark), calls=1, synchronize=synchronize)  # type: ignore[misc]
            self.seats.append(Seat(arm=arm, program=program, first_call_s=first_call_s))
        reference = self.seats[0].program
        return find_calls(lambda: reference.step(no_mark), sample_s=self.options.sample_s, synchronize=synchronize)

    def warm(self, calls: int) -> None:
        """Warm every arm up until steady; `calls` make a sample from now on."""
        self.calls = calls
        for seat in self.seats:
            seat.warmup, seat.steady = warm_up(
                lambda program=seat.program: self.clock.take(program, calls=calls).wall_s,  # type: ignore[misc]
                limit_s=self.options.warmup_s,
            )

    def turn(self, seat: int, block: int) -> None:
        """Take one sample of one arm."""
        sitting = self.seats[seat]
        sitting.taken.append(self.clock.take(sitting.program, calls=self.calls))
        sitting.blocks.append(block)

    def evidence(self, launch: int) -> Evidence:
        """All metrics of this launch, and what the programs say once the clock has stopped."""
        metrics = [metric for seat in self.seats for metric in _metrics(seat, launch=launch, calls=self.calls)]
        metrics += [metric for seat in self.seats for metric in _warm_compile(seat, launch=launch)]
        checks = [check for seat in self.seats for check in (_steadiness(seat), *seat.program.finish())]
        return Evidence(metrics=tuple(metrics), checks=tuple(checks))


def measure_in_turns(
    workload: Workload, arms: tuple[str, ...], *, launch: int, options: RunOptions, context: Context
) -> Evidence:
    """Open every arm, warm each up until steady, then sample them in turns.

    The number of calls per sample is found on the first arm (the reference) and used for all.
    Each arm's first call is timed apart: with a filled compiler cache, the part above a steady step is its warm compile latency.
    """
    table = Table(options=options, context=context, clock=make_clock(context.device))
    table.warm(table.open(workload, arms))
    turns = plan_turns(len(arms), options.blocks, random.Random(launch))  # noqa: S311 - the order of turns is no secret
    with hold_garbage_collector():
        for block, order in enumerate(turns):
            for index in order:
                table.turn(index, block)
            context.progress("+".join(arms), (block + 1) * 2, options.blocks * 2)
    return table.evidence(launch)


def _metrics(seat: Seat, *, launch: int, calls: int) -> Iterator[Metric]:
    """The whole step by the host's clock, by the device's where it has one, and each part (s per call)."""

    def metric(name: str, values: tuple[float, ...], items: int | None, lane: Lane, warmup: tuple[float, ...] = ()) -> Metric:
        taken = Launch(launch=launch, values=values, warmup=warmup, blocks=tuple(seat.blocks), steady=seat.steady)
        return Metric(
            name=name,
            arm=seat.arm,
            unit=Unit.SECONDS,
            better=Better.LOWER,
            lane=lane,
            launches=(taken,),
            calls=calls,
            items=items,
        )

    program, taken = seat.program, seat.taken
    device = tuple(one.device_s for one in taken if one.device_s is not None)
    yield metric(STEP_TIME, tuple(one.wall_s for one in taken), program.items, Lane.WALL, seat.warmup)
    if device:
        yield metric(DEVICE_TIME, device, program.items, Lane.DEVICE)
    for index, part in enumerate(program.parts):
        values = tuple(one.parts_s[index] for one in taken)
        yield metric(part.metric, values, part.items, Lane.DEVICE if device else Lane.WALL)


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
