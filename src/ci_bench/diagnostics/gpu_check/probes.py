"""The measurements of `ci-bench doctor --gpu`, each in a new process on its device.

`sections` judges them. Times come from the engine's own clock wherever it has one, so the checks
use the same clock as measurements.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from ci_bench.diagnostics.gpu_check.sections import Figures
from ci_bench.host.energy import EnergyCount, Uncountable, mean_power_w
from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import Gpu, GpuUnreachable
from ci_bench.host.health import HARMFUL
from ci_bench.suites.contract import Compiler
from ci_bench.worker.cuda_clock import (
    FENCE_SHARE,
    CudaClock,
    SpoiltByCapture,
    capture,
    flush_bytes,
    make_flush,
)
from ci_bench.worker.fence import time_calls

STEP_S = 2e-4
"""The least duration of a step of the probes, on the device."""
MOST_SIZE = 8192
PAUSE_S, RAMP_S, SETTLED = 3.0, 2.0, 0.02
TURNS, STEPS = 10, 10
LOOK_S = 0.005
FLUSHED_CALLS = 200
LONGEST_S = 1.0
"""The reported resolution of events that distinguish no two spans: every tried span is shorter."""


def _sleep(cycles: int) -> None:
    """Keep the device busy for a number of its cycles."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call] # noqa: SLF001 - torch's own tests have nothing better


class _Program:
    """A step without parts, for the engine's clock."""

    items, parts, compiler = None, (), Compiler.NONE

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def step(self, _mark: object) -> None:
        self._call()

    def finish(self) -> tuple[()]:
        return ()


def _taken_s(clock: CudaClock, call: Callable[[], object], *, calls: int = 20) -> float:
    """Return a call's seconds, the median of five samples, by the device's or else host's clock."""
    program: Any = _Program(call)
    clock.take(program, calls=3)
    samples = [clock.take(program, calls=calls) for _ in range(5)]
    return statistics.median(
        sample.device_s if sample.device_s is not None else sample.wall_s for sample in samples
    )


def _device_s(clock: CudaClock, call: Callable[[], object], *, calls: int) -> float | None:
    """Return seconds of a call by the device's clock, the median of five samples.

    `None` if events do not resolve this many calls.
    """
    program: Any = _Program(call)
    clock.take(program, calls=3)
    times = [
        sample.device_s
        for sample in (clock.take(program, calls=calls) for _ in range(5))
        if sample.device_s is not None
    ]
    return statistics.median(times) if times else None


def _product(device: str) -> Callable[[], object]:
    """Return a product of two matrices that takes `STEP_S` or longer."""
    size = 128
    while True:
        first, second = (torch.randn(size, size, device=device) for _ in range(2))
        call = partial(torch.matmul, first, second)
        if size >= MOST_SIZE or _taken_s(CudaClock(torch.cuda, device), call, calls=10) >= STEP_S:
            return call
        size *= 2


@contextmanager
def _gpu(device: str) -> Iterator[Gpu | None]:
    """Open the card's driver interface; `None` if it is missing."""
    try:
        gpu = vendors.open_gpu(str(torch.cuda.get_device_properties(device).uuid))
    except GpuUnreachable:
        yield None
        return
    try:
        yield gpu
    finally:
        gpu.close()


def _spent(call: Callable[[], object], seconds: float) -> Iterator[float]:
    """Call without a pause for this long; return the seconds of each."""
    begun = time.perf_counter()
    while time.perf_counter() < begun + seconds:
        yield time_calls(call, calls=1, synchronize=torch.cuda.synchronize)


def device(device: str) -> Figures:
    """Read names and versions, and whether the driver's library answers."""
    properties = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    figures: dict[str, float | str | None] = {
        "gpu": properties.name,
        "uuid": uuid,
        "memory_bytes": properties.total_memory,
        "torch": torch.__version__,
        "toolkit": (
            f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        ),
    }
    cards = [card for vendor_cards in vendors.look() for card in vendor_cards.cards]
    figures["exclusive"] = next(
        (card.exclusive for card in cards if card.uuid.endswith(uuid) and card.exclusive), None
    )
    figures["keep_loaded"] = next(
        (card.keep_loaded for card in cards if card.uuid.endswith(uuid) and card.keep_loaded), None
    )
    try:
        gpu = vendors.open_gpu(uuid)
    except GpuUnreachable as reason:
        return {**figures, "monitor_trouble": str(reason)}
    try:
        return {**figures, "driver": gpu.driver(), "power_limit_w": gpu.power_limit_w()}
    finally:
        gpu.close()


def events(device: str) -> Figures:
    """Measure the least difference between two spans that events distinguish."""
    torch.cuda.set_device(device)
    spans = set()
    for cycles in (*range(1000, 60_000, 150), *(100_000 << doubled for doubled in range(10))):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call] # unannotated
        begin.record()
        _sleep(cycles)
        end.record()
        torch.cuda.synchronize(device)
        spans.add(round(begin.elapsed_time(end) / 1e3, 9))
    steps = [later - earlier for earlier, later in pairwise(sorted(spans))]
    return {"resolution_s": min(steps) if steps else LONGEST_S, "spans": len(spans)}


def fence(device: str) -> Figures:
    """Time the wait for an idle GPU, by the clock that allows for it."""
    return {"fence_s": CudaClock(torch.cuda, device).least_sample_s() / FENCE_SHARE}


def ramp(device: str) -> Figures:
    """Time steps after a pause, until all that follow are as quick as the last."""
    call = _product(device)
    list(_spent(call, 0.5))
    time.sleep(PAUSE_S)
    times: list[float] = []
    ends: list[float] = []
    begun = time.perf_counter()
    for spent_s in _spent(call, RAMP_S):
        times.append(spent_s)
        ends.append(time.perf_counter() - begun)
    steady_s = statistics.median(times[len(times) // 2 :])
    width = max(1, len(times) // 50)
    windows = [
        (ends[place], statistics.median(times[place : place + width]))
        for place in range(0, len(times) - width + 1, width)
    ]
    late = [
        end for end, middle_s in windows[: len(windows) // 2] if middle_s > steady_s * (1 + SETTLED)
    ]
    return {
        "steady_s": steady_s,
        "first_ratio": times[0] / steady_s,
        "ramp_s": max(late, default=0.0),
    }


def hand_over(device: str) -> Figures:
    """Time two processes with a context each, of which one works while the other waits."""
    to_other, from_here = os.pipe()
    to_here, from_other = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(from_here)
        _take_turns_as_ordered(device, to_other, from_other)
    os.close(to_other)
    os.close(from_other)
    call = _product(device)
    alone_s = statistics.median(_turn(call, TURNS * STEPS))
    turns = []
    for _ in range(1 + TURNS):
        with suppress(BrokenPipeError):
            os.write(from_here, b"turn")
        answer = os.read(to_here, 1000).decode()
        if answer != "done":
            return {"refused": answer or "it died"}
        turns.append(_turn(call, STEPS))
    os.close(from_here)
    os.waitpid(pid, 0)
    later_s = statistics.median(spent_s for turn in turns[1:] for spent_s in turn[1:])
    return {
        "alone_s": alone_s,
        "first_s": statistics.median(turn[0] for turn in turns[1:]),
        "later_s": later_s,
    }


def _turn(call: Callable[[], object], steps: int) -> list[float]:
    return [time_calls(call, calls=1, synchronize=torch.cuda.synchronize) for _ in range(steps)]


def _take_turns_as_ordered(device: str, orders: int, answers: int) -> None:
    """Take a turn for each word, in the other process, until there are no more."""
    call = None
    try:
        while os.read(orders, 4):
            call = call or _product(device)
            _turn(call, STEPS)
            os.write(answers, b"done")
    except RuntimeError as error:
        os.write(answers, str(error).splitlines()[0][:500].encode())
    finally:
        os._exit(0)


def flush(device: str) -> Figures:
    """Time a call whose data fits into the cache, with and without overwriting the cache before it.

    Only the device's clock is used: a call of some microseconds takes longer to launch than to run.
    Each cold call has separate events, so it takes `FLUSHED_CALLS` of them to be resolved.
    """
    l2_bytes = flush_bytes(torch.cuda, device) // 2
    tensor = torch.ones(l2_bytes // 8, device=device)
    overwrite = make_flush(
        torch.cuda,
        device,
        allocate=lambda size: torch.empty(size, dtype=torch.uint8, device=device),
    )
    hot, cold = CudaClock(torch.cuda, device), CudaClock(torch.cuda, device, flush=overwrite)
    hot_s, cold_s = (
        _device_s(clock, lambda: tensor.mul_(1.0), calls=FLUSHED_CALLS) for clock in (hot, cold)
    )
    return {"l2_bytes": l2_bytes, "hot_s": hot_s, "cold_s": cold_s, "flushes": cold.flushes()}


def clocks(device: str) -> Figures:
    """Read the clock after half a second of products, and of copies, in turns."""
    tensor = torch.ones(1 << 20, device=device)
    calls = {"products": _product(device), "copies": lambda: tensor.mul_(1.0)}
    readings: dict[str, list[int]] = {name: [] for name in calls}
    harmful: dict[str, None] = {}
    with _gpu(device) as gpu:
        for name in ("products", "copies", "copies", "products"):
            list(_spent(calls[name], 0.5))
            mhz = gpu.sm_mhz() if gpu else None
            readings[name] += [mhz] if mhz is not None else []
            harmful |= dict.fromkeys(
                reason.word
                for reason in (gpu.reasons() if gpu else None) or ()
                if reason.cause in HARMFUL
            )
    means = {
        f"{name}_mhz": statistics.mean(values) if values else None
        for name, values in readings.items()
    }
    return {**means, "harmful": ", ".join(harmful) or None}


def capture_graphs(device: str) -> Figures:
    """Capture a step that can be captured, and one that waits for the GPU, which can't."""
    tensor, other = (torch.zeros(1024, device=device) for _ in range(2))

    def step() -> None:
        _sleep(2_000_000)
        tensor.add_(1.0)

    draw = partial(torch.rand, 1, device=device)
    captured = capture(step, torch.cuda, device, draw=draw)
    if captured.replay is None:
        return {"refused": captured.reason}
    plain_s = _taken_s(CudaClock(torch.cuda, device), step, calls=3)
    before = float(tensor[0])
    replay_s = _taken_s(CudaClock(torch.cuda, device), captured.replay, calls=3)
    increase = float(tensor[0]) - before
    figures: dict[str, float | str | None] = {
        "replay_ratio": replay_s / plain_s,
        "right": float(increase == 3 + 5 * 3),
    }
    try:
        waiting = capture(other.sum().item, torch.cuda, device, draw=draw)
    except SpoiltByCapture:
        return {**figures, "noticed": 1.0, "spoilt": 1.0}
    return {**figures, "noticed": float(waiting.replay is None), "spoilt": 0.0}


def peaks(device: str) -> Figures:
    """Allocate three tensors, of which two exist simultaneously, five times over."""
    size, peak_bytes = 8 << 20, []
    for _ in range(5):
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        first = torch.empty(size, dtype=torch.uint8, device=device)
        second = torch.empty(size, dtype=torch.uint8, device=device)
        del first
        third = torch.empty(size // 2, dtype=torch.uint8, device=device)
        del second, third
        peak_bytes.append(torch.cuda.max_memory_allocated(device) - before)
    return {
        "lowest_bytes": min(peak_bytes),
        "highest_bytes": max(peak_bytes),
        "due_bytes": 2 * size,
    }


def atomics(device: str) -> Figures:
    """Make scattered additions in fp32, whose order is free."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1 << 16, generator=generator).to(device)
    places = torch.randint(0, 16, (1 << 16,), generator=generator).to(device)
    sums = [torch.zeros(16, device=device).index_add_(0, places, values).cpu() for _ in range(20)]
    scale = torch.zeros(16).index_add_(0, places.cpu(), values.cpu().abs())
    spread = max(float(((total - sums[0]).abs() / scale).max()) for total in sums)
    return {"distinct": len({total.numpy().tobytes() for total in sums}), "apart": spread}


def energy(device: str) -> Figures:
    """Measure how often the counter moves, and the power under load.

    One thread works while another looks, as parent and worker do.
    """
    call = _product(device)
    with _gpu(device) as gpu:
        if gpu is None:
            return {"why": "the driver's library cannot be reached"}
        counts: list[EnergyCount] = []
        looked_s = 0.0
        for _ in _spent(call, 2.5):
            if time.perf_counter() >= looked_s + LOOK_S:
                looked_s = time.perf_counter()
                counts.append(EnergyCount(at_s=looked_s, joules=gpu.energy_j()))
    try:
        watts = mean_power_w(counts)
    except Uncountable as reason:
        return {"why": str(reason)}
    moves = [later.at_s for earlier, later in pairwise(counts) if later.joules != earlier.joules]
    return {
        "watts": watts,
        "period_s": statistics.median(later - earlier for earlier, later in pairwise(moves)),
    }


def caches(device: str) -> Figures:
    """Compile the same function in new processes: twice from one cache, and once from another.

    Nothing of inductor is imported before they are forked: without NVML that asks the CUDA runtime,
    which poisons forks.
    """
    with tempfile.TemporaryDirectory() as top:
        first_s, again_s, anew_s = (
            _compiled_s(device, f"{top}/{cache}") for cache in ("one", "one", "other")
        )
    return {
        "shared_ratio": max(first_s, again_s) / min(first_s, again_s),
        "fresh_ratio": max(first_s, anew_s) / min(first_s, anew_s),
    }


def _compiled_s(device: str, cache: str) -> float:
    """Return the seconds of a call of inductor's code for a small function.

    It runs in a separate process with a separate cache.
    """
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = cache
            torch.manual_seed(0)
            first, second = (torch.randn(512, 512, device=device) for _ in range(2))
            function = torch.compile(
                lambda rows, columns: torch.nn.functional.gelu(rows @ columns),
                mode="max-autotune-no-cudagraphs",
            )
            spent_s = _taken_s(CudaClock(torch.cuda, device), lambda: function(first, second))
            os.write(sender, f"{spent_s!r}".encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as stream:
        answer = stream.read()
    os.waitpid(pid, 0)
    if not answer:
        message = "compiling failed; ci-bench doctor says whether a compiler is here"
        raise RuntimeError(message)
    return float(answer)


PROBES: Mapping[str, Callable[[str], Figures]] = {
    "device": device,
    "events": events,
    "fence": fence,
    "ramp": ramp,
    "hand_over": hand_over,
    "flush": flush,
    "clocks": clocks,
    "capture": capture_graphs,
    "peaks": peaks,
    "atomics": atomics,
    "energy": energy,
    "caches": caches,
}
"""By the names of `sections`, but for the one that runs the whole engine."""


def probe(name: str, device: str) -> Figures:
    """Return the figures of one section.

    Raises:
        RuntimeError: torch cannot use a GPU, or another error of CUDA.
    """
    if not _is_available():
        message = "torch can use no GPU here; ci-bench doctor says why"
        raise RuntimeError(message)
    return PROBES[name](device)


def _is_available() -> bool:
    """Query a GPU in a fork.

    `torch.cuda.is_available` asks the CUDA runtime, and no later fork of this process could use it.
    """
    pid = os.fork()
    if pid == 0:
        available = False
        with suppress(BaseException):
            available = torch.cuda.is_available()
        os._exit(int(not available))
    _, status = os.waitpid(pid, 0)
    return status == 0
