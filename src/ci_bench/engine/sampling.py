"""Timing all arms of a case in turns, in one process.

A block is a palindrome over the arms in random order (ABBA, or BAAB): each arm has two turns and the same mean position in
time, so a linear drift hits all of them alike. A turn is one sample.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ci_bench.engine.device import synchronizer
from ci_bench.engine.timing import find_calls, hold_garbage_collector, time_calls, warm_up
from ci_bench.records.case import Better, Check, Lane, Launch, Metric, Outcome, Unit
from ci_bench.records.config import RunOptions
from ci_bench.suites.base import Context, Evidence, Program, Workload

STEP_TIME = "step_time"
COMPILE_WARM = "compile_warm"


@dataclass(kw_only=True, slots=True)
class _Seat:
    """One arm at the table."""

    arm: str
    program: Program
    step: Callable[[], None]
    first_call_s: float
    warmup: tuple[float, ...] = ()
    steady: bool = False
    values: list[float] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


def plan_turns(arms: int, blocks: int, coin: random.Random) -> list[list[int]]:
    """The order of turns: for each block a random order of the arms, there and back."""
    turns = []
    for _ in range(blocks):
        order = list(range(arms))
        coin.shuffle(order)
        turns.append([*order, *reversed(order)])
    return turns


def measure_in_turns(
    workload: Workload, arms: tuple[str, ...], *, launch: int, options: RunOptions, context: Context
) -> Evidence:
    """Open every arm, warm each up until steady, then sample them in turns.

    The number of calls per sample is found on the first arm (the reference) and used for all.
    Each arm's first call is timed apart: with a filled compiler cache, the part above a steady step is its warm compile latency.
    """
    synchronize = synchronizer(context.device)
    seats = [_take_seat(workload, arm, synchronize) for arm in arms]
    calls = find_calls(seats[0].step, sample_s=options.sample_s, synchronize=synchronize)
    for seat in seats:
        seat.warmup, seat.steady = warm_up(seat.step, calls=calls, limit_s=options.warmup_s, synchronize=synchronize)
    turns = plan_turns(len(seats), options.blocks, random.Random(launch))  # noqa: S311 - the order of turns is no secret
    with hold_garbage_collector():
        for block, order in enumerate(turns):
            for index in order:
                seat = seats[index]
                seat.values.append(time_calls(seat.step, calls=calls, synchronize=synchronize))
                seat.blocks.append(block)
            context.progress("+".join(arms), (block + 1) * 2, options.blocks * 2)
    metrics = [_step_time(seat, launch=launch, calls=calls) for seat in seats]
    metrics += [metric for seat in seats[1:] for metric in _warm_compile(seat, launch=launch)]
    checks: list[Check] = [check for seat in seats for check in (_steadiness(seat), *seat.program.finish())]
    return Evidence(metrics=tuple(metrics), checks=tuple(checks))


def _take_seat(workload: Workload, arm: str, synchronize: Callable[[], None]) -> _Seat:
    program = workload.open(arm)
    first_call_s = time_calls(program.step, calls=1, synchronize=synchronize)
    return _Seat(arm=arm, program=program, step=program.step, first_call_s=first_call_s)


def _steadiness(seat: _Seat) -> Check:
    """A warm-up that never became steady leaves the timing in doubt; the arms still saw the same ramp."""
    calls = len(seat.warmup)
    if seat.steady:
        return Check(name="steady", arm=seat.arm, outcome=Outcome.PASS, detail=f"steady after {calls} warm-up samples")
    detail = f"not steady after {calls} warm-up samples ({sum(seat.warmup):.1f} s); raise run.warmup_s or quieten the machine"
    return Check(name="steady", arm=seat.arm, outcome=Outcome.UNKNOWN, detail=detail)


def _step_time(seat: _Seat, *, launch: int, calls: int) -> Metric:
    taken = Launch(launch=launch, values=tuple(seat.values), warmup=seat.warmup, blocks=tuple(seat.blocks), steady=seat.steady)
    return Metric(
        name=STEP_TIME,
        arm=seat.arm,
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=(taken,),
        calls=calls,
        items=seat.program.items,
    )


def _warm_compile(seat: _Seat, *, launch: int) -> tuple[Metric, ...]:
    return compile_latency(COMPILE_WARM, seat.arm, first_call_s=seat.first_call_s, steady_s=min(seat.values), launch=launch)


def compile_latency(name: str, arm: str, *, first_call_s: float, steady_s: float, launch: int) -> tuple[Metric, ...]:
    """Compile latency in seconds: the synchronised first call minus a synchronised steady call.

    Nothing where the first call took no longer: such a latency is unknown, and zero would be a guess.
    """
    if first_call_s <= steady_s:
        return ()
    taken = Launch(launch=launch, values=(first_call_s - steady_s,))
    return (Metric(name=name, arm=arm, unit=Unit.SECONDS, better=Better.LOWER, lane=Lane.WALL, launches=(taken,)),)
