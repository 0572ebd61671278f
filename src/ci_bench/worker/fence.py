"""The fence around timed calls: device, host's clock, rotated copies, and the end of warm-up.

Clock: `time.perf_counter` with the device synchronised at both ends; nothing else is inside the
fence. The garbage collector is held off between `hold_garbage_collector` and its end. Warm-up rule:
measurement ends it when the last five windows show no trend (Theil-Sen slope across them below a
quarter of the within-window spread, or below 1 %), or when time runs out.

The clock is held from before benchmarked code is imported. Each module that times asks for its own
reader, as a default of its arguments. Measurements look at no attribute of a module, so assigning
to one slows no clock. Tools that freeze or mock time replace `time.perf_counter` wherever they find
it by its identity; a `partial` is another object. Code that shares the process can still change
functions and classes; the parent's clock detects that (`runner.witness`).

Memory addresses decide how fast some programs run (which pages share a set of a cache), and they
stay the same for the life of a process. Several copies, called in turn, average this effect within
a launch instead of between launches, and no call finds its inputs in the caches of the previous
one.

A suite that computes with torch names it among the modules to preload. If no suite of a plan does,
nothing here imports it: a worker then starts in milliseconds, and `auto` means the CPU.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle

import numpy as np

from ci_bench.records.results import Check
from ci_bench.suites.contract import Mark, Program

CONTRACT = 1
"""The number of the timing contract, which docs/measuring.md defines.

A change that moves a time of unchanged code raises it: what is inside the fence, the caches that a
call finds, the clock, the warm-up, the garbage collector. Two contracts are not compared.
"""


class NoSuchDevice(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """The configured device is not on this machine."""


class BlockingLaunches(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """The host waits for each kernel, so steps take longer than for users."""


def torch_is_loaded() -> bool:
    """Return whether the suites of this plan compute with torch."""
    return "torch" in sys.modules


def select_device(device: str, *, threads: int | None) -> str:
    """Make the requested device current, fix the thread count, and return the device string.

    `device` is ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        NoSuchDevice: the machine has no such GPU, or torch was built without CUDA.
    """
    if not device.startswith("cuda") and not torch_is_loaded():
        return "cpu"
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    index = int(device.partition(":")[2] or 0)
    count = torch.cuda.device_count()
    if index >= count:
        message = (
            f"device {device!r} was asked for, but torch {torch.__version__} sees {count} CUDA"
            " device(s) here"
        )
        raise NoSuchDevice(message)
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def refuse_blocking_launches(device: str, environ: Mapping[str, str]) -> None:
    """Refuse to measure on a GPU whose host waits for each kernel.

    Raises:
        BlockingLaunches: CUDA_LAUNCH_BLOCKING is set.
    """
    if device != "cpu" and environ.get("CUDA_LAUNCH_BLOCKING", "0") not in {"", "0"}:
        message = (
            "CUDA_LAUNCH_BLOCKING is set, so the host waits for each kernel and times mean nothing;"
            " unset it to measure"
        )
        raise BlockingLaunches(message)


def synchronizer(device: str) -> Callable[[], None]:
    """Return a function that waits until the device has finished all queued work.

    No effect on the CPU.
    """
    if device == "cpu":
        return _nothing
    import torch

    return lambda: torch.cuda.synchronize(device)


def _nothing() -> None:
    return None


Reader = Callable[[], float]
"""Gives seconds since some moment; monotonic."""


def reader() -> Reader:
    """Return a private reader of the host's clock.

    Call when modules are loaded, not when time is read.
    """
    return partial(time.perf_counter)


class Rotation:
    """Copies of one arm's program, as one program: each call uses the next copy."""

    def __init__(self, copies: Sequence[Program]) -> None:
        """Rotate over `copies`, two or more that were opened alike."""
        self.copies = tuple(copies)
        self.items, self.parts, self.compiler = copies[0].items, copies[0].parts, copies[0].compiler
        self._following = cycle([copy.step for copy in copies]).__next__

    def step(self, mark: Mark) -> None:
        """Make one call of the next copy."""
        self._following()(mark)

    def finish(self) -> tuple[Check, ...]:
        """Return the checks of every copy; of checks with one name the worst counts."""
        return tuple(check for copy in self.copies for check in copy.finish())


def copies_of(program: Program) -> tuple[Program, ...]:
    """Return the callables for turns: the copies of a rotation, or only the program."""
    return program.copies if isinstance(program, Rotation) else (program,)


def close(program: Program) -> None:
    """Take down a program after its last call, with each copy that has something to take down."""
    for copy in copies_of(program):
        if (take_down := getattr(copy, "close", None)) is not None:
            take_down()


def in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """Return a callable that makes the next of these calls each time."""
    if len(calls) == 1:
        return calls[0]
    following = cycle(calls)

    def call() -> object:
        return next(following)()

    return call


WINDOWS = 5
WINDOW_SAMPLES = 3
MIN_WARMUP_CALLS = 3
LEAST_WARMUP_S, MOST_WARMUP = 1.0, 2
"""The limit of warm-up as a multiple of its samples, once it has lasted that long."""
NEGLIGIBLE_TREND = 0.01
MAX_CALLS = 1 << 20


def time_calls(
    step: Callable[[], object],
    *,
    calls: int,
    synchronize: Callable[[], None],
    now: Reader = reader(),
) -> float:
    """Return the seconds per call over `calls` calls in one fence."""
    synchronize()
    start = now()
    for _ in range(calls):
        step()
    synchronize()
    return (now() - start) / calls


def find_calls(take: Callable[[int], float], *, sample_s: float) -> int:
    """Return the smallest power of two of calls that lasts `sample_s` seconds.

    A sample is then above the clock's noise. `take` times a number of calls and returns seconds per
    call. A number that lasts just long enough is timed once more: the first time may have been slow
    because of cold caches or other work, and samples would then be too short.
    """

    def lasts(calls: int) -> bool:
        once_s = take(calls) * calls
        return once_s >= 2 * sample_s or (once_s >= sample_s and take(calls) * calls >= sample_s)

    calls = 1
    while calls < MAX_CALLS and not lasts(calls):
        calls *= 2
    return calls


def warm_up(
    take: Callable[[], float], *, limit_s: float, samples: int, now: Reader = reader()
) -> tuple[tuple[float, ...], bool]:
    """Take samples until steady, or for `limit_s` seconds.

    Returns them (s per call) and whether it became steady.

    `samples` is the number of later samples: on a noisy machine, more warm-up than twice that is
    wasted.
    """
    begun, most = now(), MOST_WARMUP * max(samples, WINDOWS * WINDOW_SAMPLES)
    values: list[float] = []
    while True:
        values.append(take())
        if is_steady(values):
            return tuple(values), True
        lasted_s = now() - begun
        enough = lasted_s >= limit_s or (lasted_s >= LEAST_WARMUP_S and len(values) >= most)
        if enough and len(values) >= MIN_WARMUP_CALLS:
            return tuple(values), False


def is_steady(values: Sequence[float]) -> bool:
    """Return whether the last `WINDOWS` windows of samples (seconds) show no relevant trend.

    The slope is Theil and Sen's median of pairwise slopes over the window medians; a trend counts
    when its effect from the first window to the last exceeds a quarter of the median absolute
    deviation within windows, and one per cent of the level.
    """
    needed = WINDOWS * WINDOW_SAMPLES
    if len(values) < needed:
        return False
    windows = np.asarray(values[-needed:]).reshape(WINDOWS, WINDOW_SAMPLES)
    medians = np.median(windows, axis=1)
    i, j = np.triu_indices(WINDOWS, 1)
    slope = float(np.median((medians[j] - medians[i]) / (j - i)))
    spread = 1.4826 * float(np.median(np.abs(windows - medians[:, None])))
    return abs(slope) * (WINDOWS - 1) <= max(
        0.25 * spread, NEGLIGIBLE_TREND * float(np.median(medians))
    )


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
