"""Take looks at timed calls: rows of calls on fresh inputs, and copies of the last one's results.

Imports torch.

A *look* is one call (one of each copy, if inputs rotate) in a row of calls that is made as every
sample is. Fresh inputs are there before the row. After a secret number of calls, a few elements of
the inputs are overwritten without a pause, one more call is made, and all its results are copied.
Its sample does not count. Code that computes only after a pause, only in the first calls of a row,
or only in some calls, does not compute this one. The inputs after the call are noted as well.
Nothing is judged here.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ci_bench.suites.contract import Altered, Program, Refereed
from ci_bench.suites.shared.worker.digests import checksum
from ci_bench.suites.shared.worker.freshness import GRADIENTS, WEIGHTS, set_aside
from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory
from ci_bench.suites.shared.worker.randomness import generator_states, seed_everything
from ci_bench.suites.shared.worker.randomness import moved as moved_generators
from ci_bench.worker.clock import Clock, Taken, Write
from ci_bench.worker.fence import copies_of

SETTLING_S = 0.001
"""The time between the two looks at one call's results. A write in between is detected."""
INPUTS = "inputs."
ROUNDS = 7
SEEDS, QUICKER = 15, 4
"""The quickest of `SEEDS` first calls is compared with a third call.

`QUICKER` of the third calls are quicker than that one.
"""
GLANCES = 5
"""Without care, the quickest of this many are compared."""
SIGHTINGS = 3
"""The number of calls on the same values.

The first is compared with the last: a cache may wait for the second.
"""
SEEDS_S = 2.0
"""The limit of all these calls' time (s); a tenth of it without care."""
CALLS_IN_A_ROW = 4
"""The number of calls before the one that a write delays; too many, and the row's noise hides that
call.
"""
SCRAMBLE, NAP_S = 1 << 13, 0.001
"""The number of values to sort before each of them, so branch prediction forgets the values.

Otherwise `sort` is 2.4 times, and Python's `sorted` twice, as fast on 500 values that were sorted
twice before. A nap (s) then gives the call its own time slice.
"""
MAX_REASON = 200

PAUSE_S, MOST_PAUSE_S = 0.01, 0.25
"""The least pause before each call of the reference that a look is compared with.

It is longer than a call of the arm, too.
"""
MOST_AGAIN = 2
"""The limit of calls before a look if each call changes the next one's input.

The reference repeats all of them.
"""
SHORT_ROWS = 0.75
"""The share of rows whose length is drawn by its logarithm, which costs little; the others end
anywhere in a sample.
"""

Left = Mapping[str, Tensor]
"""The results of one call, by name, on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookRow:
    """The row of calls around a look.

    `before` of them precede it, and the reference first makes `again` of them. `seed` draws the
    elements that are written in front of it, all elements with `whole`; 0 if nothing is written.
    """

    before: int = 0
    again: int = 0
    seed: int = 0
    whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
    """The effects of a program's calls on later ones: state, random numbers, its own inputs.

    `written`: its inputs can be written between two calls.
    """

    written: bool
    learns: bool = False
    draws: bool = False
    writes: bool = False

    def row(self, coin: random.Random, calls: int) -> LookRow:
        """Return a row for a look at a program with this many calls a sample."""
        if not self.written:
            return LookRow()
        seed, most = coin.getrandbits(31) + 1, max(1, calls)
        if self.learns or self.draws:
            before = coin.randint(1, min(MOST_AGAIN, most))
            return LookRow(before=before, again=before, seed=seed, whole=self.writes)
        before = int(most ** coin.random()) if coin.random() < SHORT_ROWS else coin.randint(1, most)
        # A row of one starts behind a pause.
        return LookRow(before=max(before, min(2, most)), seed=seed, whole=self.writes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One refereed call."""

    seed: int
    """Seed of the fresh inputs."""
    moved: bool
    """True if the inputs were in new memory, false if at known addresses."""
    draw: int = 0
    """Seed of the generators, set as before a sample, so a look is indistinguishable; 0: `seed`."""
    row: LookRow = LookRow()
    """The row of calls around the look."""
    fresh: bool = True
    """True if the inputs had other values than before."""
    left: tuple[Left, ...] = ()
    """Each copy's results of the last call; empty after an error."""
    kinds: frozenset[str] = frozenset()
    """Names of results' classes that are not torch's own."""
    inputs: tuple[tuple[int, ...], ...] = ()
    """Checksums of each copy's inputs after the call; empty if a program does not name them."""
    unsettled: str = ""
    """Name of a value that changed without a call; empty if none did."""
    wall_s: float = 0.0
    """Duration of the row's first call, or of its last one if each follows a pause (s per call)."""
    raised: str = ""
    """First line of the call's error; empty without one."""
    lacked_memory: bool = False
    """True if the error was a lack of memory."""


def copies(program: Program) -> tuple[Refereed, ...]:
    """Return the callables for turns, as programs that can be refereed."""
    return cast("tuple[Refereed, ...]", copies_of(program))


def take_look(
    clock: Clock,
    program: Program,
    seed: int,
    *,
    moved: bool,
    state: Left | None,
    noise: int = 0,
    draw: int = 0,
    row: LookRow = LookRow(),
    pause_s: float | None = None,
) -> Look:
    """Make a row of calls of every copy on inputs of one seed, and look at the last.

    The row starts from `state`. `noise` shakes the inputs; `draw` seeds the generators separately
    from the inputs. A captured call reads its inputs at their old addresses, so they never move
    there. With a pause (s) before each call, only the calls that change something are made.
    """
    every = copies(program)
    moved = moved and not clock.replays(program)
    look = partial(Look, seed=seed, moved=moved, draw=draw, row=row)
    try:
        fresh = [copy.refresh(seed, moved=moved, state=state, shaken=noise) for copy in every]
        write = _write(every, row, noise)
        seed_everything(draw or seed)
        sample = (
            _in_a_row(clock, program, row, write)
            if pause_s is None
            else _in_separate_calls(clock, program, row, write, pause_s)
        )
        outputs = [copy.outputs() for copy in every]
        sums = sums_of(every)
        if row.whole:
            outputs = [
                {**tensors, **_inputs_of(copy)}
                for tensors, copy in zip(outputs, every, strict=True)
            ]
        results = tuple(map(copied_aside, outputs))
        return look(
            fresh=all(fresh),
            left=results,
            kinds=frozenset(
                type(value).__name__
                for tensors in outputs
                for value in tensors.values()
                if not _is_own(value)
            ),
            inputs=sums,
            unsettled=_changed(outputs, results),
            wall_s=sample.wall_s,
        )
    except Exception as error:  # noqa: BLE001 - benchmarked code may raise anything; the reference shows the fault
        return look(raised=words_of(error), lacked_memory=is_out_of_memory(error))
    finally:
        for copy in every:
            copy.resume()


def _write(every: Sequence[Refereed], row: LookRow, noise: int) -> Callable[[], None] | None:
    """Return a function that writes into the inputs of all copies; `None` if nothing is written."""
    if not row.seed:
        return None
    writes = [
        copy.alter(row.seed, shaken=noise, all_values=row.whole)
        for copy in cast("Sequence[Altered]", every)
    ]
    effective = [write for write in writes if write is not None]

    def write() -> None:
        for write_copy in effective:
            write_copy()

    return write if effective else None


def sums_of(every: Sequence[Refereed]) -> tuple[tuple[int, ...], ...]:
    """Return checksums of the inputs of each copy's next call.

    Empty if a program does not name them.
    """
    try:
        return tuple(
            tuple(map(checksum, cast("Altered", copy).operands()))
            for copy in every
            if hasattr(copy, "operands")
        )
    except (RuntimeError, NotImplementedError):  # a kind of tensor without bytes
        return ()


def _inputs_of(copy: Refereed) -> dict[str, Tensor]:
    return {
        f"{INPUTS}{place}": value for place, value in enumerate(cast("Altered", copy).operands())
    }


def _in_a_row(
    clock: Clock, program: Program, row: LookRow, write: Callable[[], None] | None
) -> Taken:
    """Time the first call on fresh inputs, which reveals remembered values.

    Then the others as samples. The write goes before the last call of each copy.
    """
    count = len(copies_of(program))
    first = clock.take(program, calls=count)
    if row.before and write is None:
        clock.take(program, calls=row.before * count)
    elif write is not None:
        clock.take(
            program, calls=max(1, row.before) * count, write=Write(write=write, behind=count)
        )
    return first


def _in_separate_calls(
    clock: Clock, program: Program, row: LookRow, write: Callable[[], None] | None, pause_s: float
) -> Taken:
    """Make the same row, only of calls that change later ones' input, with a pause before each."""
    count = len(copies_of(program))
    for _ in range(row.again):
        time.sleep(pause_s)
        clock.take(program, calls=count)
    if write is not None:
        write()
    time.sleep(pause_s if row.before else 0.0)
    return clock.take(program, calls=count)


def habits_of(clock: Clock, program: Program, state: Left | None, *, seed: int) -> Habits:
    """Find the effects of a call, by one call on fresh inputs."""
    every = copies(program)
    if not all(hasattr(copy, "alter") for copy in every):
        return Habits(written=False)
    try:
        for copy in every:
            copy.refresh(seed, moved=False, state=state)
        altered = cast("Sequence[Altered]", every)
        before = [_operands_aside(copy) for copy in altered]
        seed_everything(seed)
        drawn = generator_states()
        clock.take(program, calls=len(every))
        draws = bool(moved_generators(drawn, generator_states()))
        after = [_operands_aside(copy) for copy in altered]
        writes = any(
            differing(earlier, later) for earlier, later in zip(before, after, strict=True)
        )
    except Exception:  # noqa: BLE001 - benchmarked code may raise anything; the next look reports it
        return Habits(written=False)
    finally:
        for copy in every:
            copy.resume()
    return Habits(
        written=True, learns=any(copy.learns for copy in every), draws=draws, writes=writes
    )


def fresh_over_known(clock: Clock, program: Program, state: Left | None, *, secret: int) -> float:
    """Return a call's time on fresh inputs divided by prepared ones.

    Takes the quickest of calls in turns. Each call directly follows a write of its inputs, so the
    caches are equally cold for both kinds. The quickest of each kind counts, since other work on
    the machine only adds time; code that has to compute cannot be quick by chance. Seeds derive
    from a `secret` one, so no file of an earlier launch holds their results.
    """
    every = copies(program)
    times_s: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(secret, secret + 2 * ROUNDS):
        fresh = bool(seed % 2)
        for copy in every:
            copy.refresh(seed, moved=not clock.replays(program), state=state)
            if not fresh:
                copy.resume()
        times_s[fresh].append(clock.take(program, calls=len(every)).wall_s)
        for copy in every:
            copy.resume()
    return min(times_s[True]) / min(times_s[False])


@dataclass(frozen=True, kw_only=True, slots=True)
class Delay:
    """Times (s) of calls in a row.

    `call_s` is one call. A write before the last one adds `least_s` at least.
    """

    call_s: float = 0.0
    least_s: float = 0.0


def delayed_call(clock: Clock, program: Program, state: Left | None, *, secret: int) -> Delay:
    """Measure the time that a write before a call adds to it.

    In half of the rows the write comes before the last call, in the others after it, so its own
    time is in both. A call before each row takes the effects of its preparation. Other work on the
    machine only adds time, so the quickest rows are compared. Zeros: the inputs cannot be written.
    """
    every = copies(program)
    calls = (CALLS_IN_A_ROW + 1) * len(every)
    times_s: dict[bool, list[float]] = {True: [], False: []}
    if not all(hasattr(copy, "alter") for copy in every):
        return Delay()
    for seed in range(secret, secret + 2 * ROUNDS):
        for copy in every:
            copy.refresh(seed, moved=False, state=state)
        write, delays = _write(every, LookRow(seed=seed), 0), bool(seed % 2)
        if write is not None:
            behind = len(every) if delays else 0
            clock.take(program, calls=len(every))
            times_s[delays].append(
                clock.take(program, calls=calls, write=Write(write=write, behind=behind)).wall_s
                * calls
            )
        for copy in every:
            copy.resume()
    if not times_s[True] or not times_s[False]:
        return Delay()
    late_s, undelayed_s = (min(times_s[delays]) for delays in (True, False))
    return Delay(call_s=undelayed_s / calls, least_s=(late_s - undelayed_s) / len(every))


def first_over_third(
    clock: Clock, program: Program, state: Left | None, *, secret: int, careful: bool
) -> float:
    """Return the time of the first call on fresh values divided by the third on the same ones.

    The same values are written before each of these calls, so the later one can only be quicker
    because of having seen them. Other work on the machine only adds time, so the quickest calls are
    compared. If `careful`, branch prediction is made to forget the values, and the fifth of the
    third calls counts, which makes the figure smaller. 0: it would take too long.
    """
    every, first_s, third_s = copies(program), list[float](), list[float]()
    begun_s, coin = time.perf_counter(), torch.Generator().manual_seed(secret)
    seeds, limit_s = (SEEDS, SEEDS_S) if careful else (GLANCES, SEEDS_S / 10)
    for seed in range(secret, secret + seeds):
        times_s = []
        for _ in range(SIGHTINGS):
            if careful:
                torch.sort(torch.randn(SCRAMBLE, generator=coin))
                time.sleep(NAP_S)
            for copy in every:
                copy.refresh(seed, moved=False, state=state)
            times_s.append(clock.take(program, calls=len(every)).wall_s)
        first_s.append(times_s[0])
        third_s.append(times_s[-1])
        if (time.perf_counter() - begun_s) * seeds > limit_s * len(first_s):
            break
    for copy in every:
        copy.resume()
    return (
        min(first_s) / sorted(third_s)[QUICKER if careful else 0] if len(first_s) == seeds else 0.0
    )


def differing(results: Left, other: Left) -> bool:
    """Return whether any tensor differs, or exists on only one side."""
    if results.keys() != other.keys():
        return True
    return any(not _same(value, other[name]) for name, value in results.items())


def copied_aside(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy a call's results to the host, into separate pages."""
    return dict(zip(tensors, set_aside(list(tensors.values())), strict=True))


def _operands_aside(copy: Altered) -> dict[str, Tensor]:
    return copied_aside({str(index): value for index, value in enumerate(copy.operands())})


def _changed(outputs: Sequence[Mapping[str, Tensor]], results: Sequence[Left]) -> str:
    """Return the values that have changed since a moment ago.

    Gradients and weights, which are many, are not inspected twice.
    """
    time.sleep(SETTLING_S)
    for now, before in zip(outputs, results, strict=True):
        again = {
            name: value for name, value in now.items() if not name.startswith((GRADIENTS, WEIGHTS))
        }
        for name, value in again.items():
            if not _same(value.detach().to("cpu"), before[name]):
                return name
    return ""


def _same(tensor: Tensor, other: Tensor) -> bool:
    """Return whether two are equal, with NaN equal to NaN.

    Nearly always they are even without that.
    """
    return torch.equal(tensor, other) or torch.equal(_numbers(tensor), _numbers(other))


def _numbers(value: Tensor) -> Tensor:
    return value.nan_to_num() if value.is_floating_point() else value


def _is_own(value: Tensor) -> bool:
    return type(value) in {Tensor, torch.nn.Parameter}


def words_of(error: Exception) -> str:
    """Return the first line of an error, with its class."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")[:MAX_REASON]
