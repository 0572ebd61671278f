"""Find the largest batch whose steps fit into memory.

Doubles it from one row until it fails, then bisects.

Each size is built and stepped in this process, and weighed as peaks of memory are, from one start.
On the CPU, allocations fail beyond the limit, so the search never exhausts a machine's memory; on a
GPU they fail anyway. Sizes between two powers of two are tried in sixteenths of the smaller one:
the answer is within 6 % of the largest, and does not change with a few bytes.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ci_bench.host.headroom import available_bytes, total_bytes
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import PEAK_ANONYMOUS, PEAK_RESERVED
from ci_bench.records.results import SIZE_FACTS
from ci_bench.suites.contract import (
    Context,
    Evidence,
    Program,
    Sized,
    SizeLimits,
    Stage,
    Unsupported,
    no_mark,
)
from ci_bench.suites.shared.worker.memory_errors import OutOfMemoryError, is_out_of_memory
from ci_bench.worker.fence import close, synchronizer, time_calls
from ci_bench.worker.memory import DeviceMemory, HostMemory, cap_growth, memory_of

STEPS = 3
"""The first step makes an optimizer's state, the last ones are steady."""
SMALLEST_TRIED = 8
"""A model may need more rows than one (a batch normalisation does).

One that takes none of these has another fault.
"""
PARTS = 16
LEFT = 0.9
"""The share of free memory that a search may take, if that is less than its limit."""
SLACK_BYTES = 256 * 2**20
"""Memory that a process requests and never touches: stacks of threads, arenas."""
MOST_REASON = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One size: its memory (bytes, `None` if unknown), and the reason if it does not fit.

    `error` is an error other than a lack of memory.
    """

    rows: int
    peak_bytes: float | None = None
    reason: str = ""
    error: Exception | None = None

    @property
    def fits(self) -> bool:
        """Return whether this many rows can be measured."""
        return not self.reason


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSize:
    """The largest fitting batch, the smallest failing one (`None` without), the number of tries."""

    largest: Attempt
    beyond: Attempt | None
    tries: int


def search(attempt: Callable[[int], Attempt], most: int) -> FoundSize:
    """Search the largest fitting batch: double, then bisect.

    Raises:
        OutOfMemoryError: not even one row fits.
        Exception: what the model raised at every small size.
    """
    tried: list[Attempt] = []
    largest, beyond = None, None
    for rows in _doubled(most):
        tried.append(trial := attempt(rows))
        if trial.fits:
            largest = trial
        elif largest is not None or trial.error is None or rows >= min(SMALLEST_TRIED, most):
            beyond = trial
            break
    if largest is None:
        raise tried[-1].error or OutOfMemoryError(
            f"not even {_fitting(tried[-1])}: {tried[-1].reason}"
        )
    part = max(1, largest.rows // PARTS)
    while beyond is not None and beyond.rows - largest.rows > part:
        middle = largest.rows + max(part, (beyond.rows - largest.rows) // 2 // part * part)
        tried.append(trial := attempt(middle))
        largest, beyond = (trial, beyond) if trial.fits else (largest, trial)
    return FoundSize(largest=largest, beyond=beyond, tries=len(tried))


def _doubled(most: int) -> Iterator[int]:
    rows = 1
    while rows < most:
        yield rows
        rows *= 2
    yield most


def find_largest_batch(workload: Sized, stage: Stage, *, context: Context) -> Evidence:
    """Search for the stage's one arm; return the facts of the result (`SIZE_FACTS`)."""
    (arm,) = stage.arms
    limits = stage.limits or SizeLimits()
    memory = memory_of(context.device)
    limit_bytes = _limit(limits, context.device)
    if isinstance(memory, HostMemory):
        cap_growth(limit_bytes + SLACK_BYTES)
    trial = _Trial(
        workload=workload, arm=arm, context=context, memory=memory, limit_bytes=limit_bytes
    )
    size = search(trial.attempt, limits.most)
    return Evidence(facts=dict(zip(SIZE_FACTS, _describe_size(size, limit_bytes), strict=True)))


def _limit(limits: SizeLimits, device: str) -> float:
    """Return the memory limit of a step: the configured one, or a share of all memory.

    Never more than is free, less a tenth of it.
    """
    total, free = _memory(device)
    configured = (
        float(limits.memory_bytes)
        if limits.memory_bytes is not None
        else total and limits.share * total
    )
    allowed = [limit for limit in (configured, free and LEFT * free) if limit is not None]
    if not allowed:
        raise Unsupported(
            "the memory size of this machine is unknown; set it with `largest_batch:"
            " {memory_bytes: …}`"
        )
    return min(allowed)


def _memory(device: str) -> tuple[float | None, float | None]:
    """Return a device's total and free memory (bytes)."""
    if not device.startswith("cuda"):
        return total_bytes(), available_bytes()
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return float(total), float(free)


def _describe_size(size: FoundSize, limit_bytes: float) -> tuple[Fact, ...]:
    """Return the facts of a size, in the order of `SIZE_FACTS`."""
    beyond = size.beyond
    end = (
        "which is the most that was asked for"
        if beyond is None
        else f"and {beyond.rows} rows do not: {beyond.reason}"
    )
    words = f"{_fitting(size.largest)}, {end} ({size.tries} sizes tried)"
    return size.largest.rows, size.largest.peak_bytes, round(limit_bytes), words


@dataclass(kw_only=True, slots=True)
class _Trial:
    """Tries one size after the other."""

    workload: Sized
    """Workload that can be opened with any number of rows."""
    arm: str
    """Arm whose steps are tried."""
    context: Context
    """Context for the device and progress messages."""
    memory: HostMemory | DeviceMemory
    """Memory of the process, as peaks are measured."""
    limit_bytes: float
    """Limit of a step's memory, in bytes."""
    tries: int = field(default=0)
    """Sizes tried so far."""

    def attempt(self, rows: int) -> Attempt:
        """Build and step this many rows.

        Running out of memory is an answer, and so is an error beyond the fitting sizes.
        """
        self.tries += 1
        self.context.progress(f"{self.arm}: {rows} rows", self.tries, self.tries + 1)
        try:
            peak_bytes = self._peak(rows)
        except Unsupported:
            raise
        except Exception as error:  # noqa: BLE001 - benched code may raise anything
            return _failed(rows, error)
        finally:
            self._let_go()
        if peak_bytes is not None and peak_bytes > self.limit_bytes:
            reason = (
                f"they take {_megabytes(peak_bytes)}, and the limit is"
                f" {_megabytes(self.limit_bytes)}"
            )
            return Attempt(rows=rows, peak_bytes=peak_bytes, reason=reason)
        return Attempt(rows=rows, peak_bytes=peak_bytes)

    def _peak(self, rows: int) -> float | None:
        """Return the peak from before the model is built to after its last step (bytes)."""
        memory, synchronize = self.memory.afresh(), synchronizer(self.context.device)
        memory.held()
        memory.begin_step()
        program = self.workload.open_sized(self.arm, rows)
        try:
            _step(program, synchronize)
            memory.end_step()
            for _ in range(1, STEPS):
                memory.held()
                memory.begin_step()
                _step(program, synchronize)
                memory.end_step()
        finally:
            close(program)
        peaks = memory.peaks()
        return peaks.get(PEAK_ANONYMOUS.name, peaks.get(PEAK_RESERVED.name))

    def _let_go(self) -> None:
        """Free one size's cached memory before the next."""
        gc.collect()
        if self.context.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()


def _step(program: Program, synchronize: Callable[[], None]) -> None:
    time_calls(lambda: program.step(no_mark), calls=1, synchronize=synchronize)


def _failed(rows: int, error: Exception) -> Attempt:
    """Return a failed attempt; its error loses its traceback, which holds all allocations."""
    lacks_memory = is_out_of_memory(error)
    text = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_REASON]
    bare = error.with_traceback(None)
    bare.__cause__ = bare.__context__ = None
    if lacks_memory:
        return Attempt(rows=rows, reason=f"memory ran out ({text})")
    return Attempt(rows=rows, reason=text, error=bare)


def _fitting(attempt: Attempt) -> str:
    return "1 row fits" if attempt.rows == 1 else f"{attempt.rows} rows fit"


def _megabytes(amount: float) -> str:
    return f"{amount / 1e6:,.0f} MB"
