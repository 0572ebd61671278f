"""The memory of a process by the kernel and torch's allocator: now, peak, growth over steps.

On a GPU all memory is the allocator's. On the CPU only memory that this process's data fills
counts: anonymous pages (heaps, stacks), shared memory, files that are mapped to be written, and
memory of child processes. Pages of files that are only read (libraries, mapped weights) may be in
the page cache or not, depending on other work of the machine, so they are counted separately.
Effects that no step decides are excluded: malloc returns its free memory before each reading, and
huge pages are off.

The kernel keeps no peak of such memory. It keeps one of all resident memory (VmHWM, proc(5)), which
misses no moment. During a step it rises by this memory's rise at most, plus the pages of files that
came meanwhile, which are counted (docs/internals/adr/0035).
"""

import ctypes
import gc
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from ci_bench.records.metrics import (
    FILE_BACKED,
    LEAST_BYTES,
    MEMORY_GROWTH,
    PEAK_ALLOCATED,
    PEAK_ANONYMOUS,
    PEAK_RESERVED,
)
from ci_bench.suites.shared.worker.growth import growth
from ci_bench.worker.held import Held, read_held, read_kilobytes

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_PR_SET_THP_DISABLE = 41
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8
CONTRACT = 3
"""The number of the contract for a peak on the CPU.

A change that moves a peak of unchanged code raises it. In the first, blocks had separate pages from
64 KiB on. Until the second, only anonymous memory of this process counted, above its memory after
importing.
"""
_OWN_PAGES = resource.getpagesize()
_MOST_MAPPED = 1 << 15
"""The limit of blocks with separate pages.

It is half of what the kernel lets a process map (vm.max_map_count).
"""
_LARGEST_IN_HEAP = 32 << 20
"""The largest value that glibc raises the limit to (DEFAULT_MMAP_THRESHOLD_MAX)."""
_NEVER = -1
COMMON_POOL = (0, 0)
"""torch's name of the pool that all but captured allocations come from."""


def return_free_memory() -> None:
    """Collect garbage, and make malloc return free memory.

    Not every C library can (glibc's does).
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def make_repeatable() -> None:
    """Make memory repeatable from now on: allocated memory is resident, freed memory is not.

    Pages have the common size (free pieces of two MiB depend on other processes). All threads share
    one arena of glibc's malloc, and blocks of a page or more always have separate pages. By default
    that limit rises to the last freed size, and holes between blocks grow as allocations interleave
    by chance (mallopt(3)), those of a compiler above all.
    """
    library = ctypes.CDLL(None)
    if prctl := getattr(library, "prctl", None):
        prctl(_PR_SET_THP_DISABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    if mallopt := getattr(library, "mallopt", None):
        limits = (
            (_M_MMAP_THRESHOLD, _OWN_PAGES),
            (_M_TRIM_THRESHOLD, _OWN_PAGES),
            (_M_MMAP_MAX, _MOST_MAPPED),
        )
        for parameter, value in ((_M_ARENA_MAX, 1), *limits):
            mallopt(parameter, value)


def keep_heap() -> None:
    """Make glibc's malloc return no free memory from the end of its heap.

    Blocks of 32 MiB or more come and go as before.

    Calls may end with so much free memory there that it is returned, and the next call faults it in
    again. Which blocks happen to be last decides that: in most processes of one model it
    happened, for as long as they lived. A look of the referee's was enough to end it, and calls
    were 2 % quicker from then on (mallopt(3), docs/internals/adr/0006).
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)


def keep_freed_memory() -> None:
    """Make glibc's malloc keep freed memory, without separate pages for large blocks (mallopt(3)).

    By default it returns freed memory or not depending on a block's address, for as long as the
    process lives: a call that allocates its output took 180 us in some processes and 2,000 us in
    others, nine tenths of it page faults.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


class HostMemory:
    """Memory of this process and its children above the amount at creation.

    Create it before benchmarked code is imported.
    """

    def __init__(self) -> None:
        """Make memory repeatable, and read the present amount."""
        make_repeatable()
        self._start = self._last = _read_settled()
        self._high_water: float | None = None
        self._seen: list[float] = []

    def afresh(self) -> "HostMemory":
        """Return the same, from the same start, without a peak so far."""
        self._seen = []
        return self

    def held(self) -> float | None:
        """Return the bytes in use between two steps; `None` if the kernel does not report them."""
        self._last = _read_settled()
        return None if self._last is None else self._last.own

    def begin_step(self) -> None:
        """Start the step's peak.

        If the kernel does not allow resetting VmHWM (5 into clear_refs), the step has none.
        """
        try:
            _CLEAR_REFS.write_text("5")
        except OSError:
            self._high_water = None
        else:
            self._high_water = _read_high_water()

    def end_step(self) -> None:
        """Note the step's peak."""
        high_water, now = _read_high_water(), read_held()
        if (
            high_water is None
            or self._high_water is None
            or now is None
            or self._last is None
            or self._start is None
        ):
            return
        risen = high_water - self._high_water - (now.file_backed - self._last.file_backed)
        peak = max(self._last.own + max(0.0, risen), now.own)
        self._seen.append(max(0.0, peak - self._start.own))

    def peaks(self) -> dict[str, float]:
        """Return `peak_anonymous` of the steps and present `file_backed`, in bytes.

        Empty if unknown.
        """
        now = read_held()
        if now is None or not self._seen:
            return {}
        return {PEAK_ANONYMOUS.name: _highest(self._seen), FILE_BACKED.name: now.file_backed}


def cap_growth(more: float) -> None:
    """Fail allocations from now on that would add more than this many bytes.

    Uses RLIMIT_DATA (setrlimit(2)). Requested writable private memory counts, touched or not. If
    the kernel does not report it, nothing is done.
    """
    kilobytes = read_kilobytes(_STATUS)
    if "VmData" in kilobytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        cap = int(1024 * kilobytes["VmData"] + more)
        resource.setrlimit(
            resource.RLIMIT_DATA, (cap if hard == resource.RLIM_INFINITY else min(cap, hard), hard)
        )


class DeviceMemory:
    """A GPU's memory, by torch's allocator: it holds nothing before the model is built."""

    def __init__(self, device: str) -> None:
        """Prepare to read the memory of `device`, a device string of torch's."""
        import torch

        self._device, self._cuda = device, torch.cuda
        self._allocated = self._reserved = 0.0

        self._emptied = False

    def afresh(self) -> "DeviceMemory":
        """Return the same, without a peak so far."""
        return DeviceMemory(self._device)

    def held(self) -> float | None:
        """Return the bytes in use between two steps.

        Before the first, memory that compiling and autotuning left cached is freed.
        """
        gc.collect()
        if not self._emptied:
            self._cuda.empty_cache()
            self._emptied = True
        return float(self._cuda.memory_allocated(self._device))

    def begin_step(self) -> None:
        """Count the step's peaks from now."""
        self._cuda.reset_peak_memory_stats(self._device)

    def end_step(self) -> None:
        """Note the step's peaks.

        A CUDA graph computes in a separate pool, which the allocator considers free as soon as the
        capture is over. The part of such pools that does not count as allocated is added, since
        nothing else can use it. Outputs in a pool that the step freed again would count twice then;
        no step needs more than is reserved.
        """
        reserved = float(self._cuda.max_memory_reserved(self._device))
        allocated = float(self._cuda.max_memory_allocated(self._device)) + self._kept_by_graphs()
        self._allocated = max(self._allocated, min(allocated, reserved))
        self._reserved = max(self._reserved, reserved)

    def _kept_by_graphs(self) -> float:
        index = int(self._device.partition(":")[2] or 0)
        segments = self._cuda.memory_snapshot()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        here = (segment for segment in segments if segment.get("device", index) == index)
        private = (
            segment
            for segment in here
            if tuple(segment.get("segment_pool_id", COMMON_POOL)) != COMMON_POOL
        )
        return float(sum(segment["total_size"] - segment["allocated_size"] for segment in private))

    def peaks(self) -> dict[str, float]:
        """Return `peak_allocated` and `peak_reserved` of the steps, in bytes."""
        return {PEAK_ALLOCATED.name: self._allocated, PEAK_RESERVED.name: self._reserved}


def memory_of(device: str) -> HostMemory | DeviceMemory:
    """Return the memory that counts for a torch device."""
    return HostMemory() if device == "cpu" else DeviceMemory(device)


def watch(
    step: Callable[[], object],
    memory: HostMemory | DeviceMemory,
    *,
    steps: int,
    more: int = 0,
    most_s: float = 0.0,
) -> dict[str, float]:
    """Return peaks and growth over `steps` steps, in bytes by metric; unknown ones are omitted.

    If `more` steps take no longer than `most_s` seconds, they follow, and then one that is watched:
    memory that they keep is in the peaks.
    """
    readings, taken_s = [memory.held()], []
    for _ in range(steps):
        memory.begin_step()
        begun = time.perf_counter()
        step()
        taken_s.append(time.perf_counter() - begun)
        memory.end_step()
        readings.append(memory.held())
    if more and more * median(taken_s) <= most_s:
        for _ in range(more - 1):
            step()
        memory.held()
        memory.begin_step()
        step()
        memory.end_step()
    amounts = [reading for reading in readings if reading is not None]
    return {
        **memory.peaks(),
        **({MEMORY_GROWTH.name: growth(amounts)} if len(amounts) == len(readings) else {}),
    }


def _highest(peaks: Sequence[float]) -> float:
    """Return the highest peak of any step.

    It is the middle one if all are the same but for the lag of the kernel's counters. Each
    processor sums its pages (256 KiB of them on two) before it reports them, and VmHWM is a maximum
    of such sums.
    """
    typical, highest = median(peaks), max(peaks)
    return highest if highest - typical > LEAST_BYTES else typical


def _read_settled() -> Held | None:
    return_free_memory()
    return read_held()


def _read_high_water() -> float | None:
    kilobytes = read_kilobytes(_STATUS)
    return 1024.0 * kilobytes["VmHWM"] if "VmHWM" in kilobytes else None
