"""The fence around what is timed, and when warm-up is over.

Clock: `time.perf_counter` with the device synchronised at both ends; nothing else is inside the fence. The garbage collector
is held off between `hold_garbage_collector` and its end. Warm-up rule: measurement ends it when the last five windows show no
trend (Theil-Sen slope across them below a quarter of the within-window spread, or below 1 %), or when time runs out.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ci_bench.engine.timing import host_time as time

WINDOWS = 5
WINDOW_SAMPLES = 3
MIN_WARMUP_CALLS = 3
NEGLIGIBLE_TREND = 0.01
MAX_CALLS = 1 << 20


def time_calls(step: Callable[[], object], *, calls: int, synchronize: Callable[[], None]) -> float:
    """Seconds per call over `calls` calls in one fence."""
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        step()
    synchronize()
    return (time.perf_counter() - start) / calls


def find_calls(take: Callable[[int], float], *, sample_s: float) -> int:
    """The smallest power of two of calls that lasts `sample_s` seconds, so that a sample is above the clock's noise.

    `take` times so many calls and returns seconds per call. What lasts just long enough is timed once more: the first time may
    have been a slow one, of cold caches or beside other work, and samples would be too short from then on.
    """

    def lasts(calls: int) -> bool:
        once_s = take(calls) * calls
        return once_s >= 2 * sample_s or (once_s >= sample_s and take(calls) * calls >= sample_s)

    calls = 1
    while calls < MAX_CALLS and not lasts(calls):
        calls *= 2
    return calls


def warm_up(take: Callable[[], float], *, limit_s: float) -> tuple[tuple[float, ...], bool]:
    """Take samples until steady, or for `limit_s` seconds. Returns them (s per call) and whether it became steady."""
    deadline = time.perf_counter() + limit_s
    values: list[float] = []
    while True:
        values.append(take())
        if is_steady(values):
            return tuple(values), True
        if time.perf_counter() >= deadline and len(values) >= MIN_WARMUP_CALLS:
            return tuple(values), False


def is_steady(values: Sequence[float]) -> bool:
    """Whether the last `WINDOWS` windows of samples (seconds) show no trend worth naming.

    The slope is Theil and Sen's median of pairwise slopes over the window medians; a trend counts when its effect from the first
    window to the last exceeds a quarter of the median absolute deviation within windows, and one per cent of the level.
    """
    needed = WINDOWS * WINDOW_SAMPLES
    if len(values) < needed:
        return False
    windows = np.asarray(values[-needed:]).reshape(WINDOWS, WINDOW_SAMPLES)
    medians = np.median(windows, axis=1)
    i, j = np.triu_indices(WINDOWS, 1)
    slope = float(np.median((medians[j] - medians[i]) / (j - i)))
    spread = 1.4826 * float(np.median(np.abs(windows - medians[:, None])))
    return abs(slope) * (WINDOWS - 1) <= max(0.25 * spread, NEGLIGIBLE_TREND * float(np.median(medians)))


@contextmanager
def hold_garbage_collector() -> Iterator[None]:
    """Collect now, then keep the collector from running until the end of the block."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
