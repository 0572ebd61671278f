"""Figures of the clock: the fence, events, cache flushes, replays, and failed captures."""

from collections.abc import Callable
from typing import Any

from benchmarks.gpu.measuring import (
    MICROSECONDS,
    Call,
    CallProgram,
    Finding,
    Trial,
    load_torch,
    new_event,
    nothing,
    products,
    quantiles,
    time_between,
    time_each,
)
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Check, Outcome
from ci_bench.worker.clock import Clock
from ci_bench.worker.cuda_clock import FENCE_SHARE
from ci_bench.worker.sampling import make_clock

FLUSHED_BYTES = 256_000_000


def measure_fence(trial: Trial) -> Finding:
    """Time the fence, pairs of events, cache flushes, and hot and cold calls."""
    torch = load_torch(trial)
    fence_us = make_clock(trial.device).least_sample_s() / FENCE_SHARE * MICROSECONDS
    call = products(torch, trial)
    idle = [time_between(torch, nothing) for _ in range(200)]
    behind = [_time_nothing_behind(torch, call) for _ in range(50)]
    recorded = new_event(torch)
    record_s = time_each(lambda: recorded.record(torch.cuda.current_stream(trial.device)), 300)
    torch.cuda.synchronize()
    values: dict[str, object] = {
        "fence us": fence_us,
        "synchronize, idle us": quantiles(time_each(torch.cuda.synchronize, 200)),
        "empty pair of events, idle us": quantiles(idle),
        "empty pair of events, behind work us": quantiles(behind),
        "recording an event, on the host us": quantiles(record_s),
        "querying an event, on the host us": quantiles(time_each(recorded.query, 300)),
        **_flushes(torch, trial, call),
    }
    sampled = _hot_and_cold(torch, trial)
    pair_us = quantiles(behind)["p50"]
    last = {name: samples[-1][1] for name, samples in sampled.items()}
    summary = f"fence {fence_us:.1f} us; empty pair {pair_us} us; device us per call {last}"
    values |= {f"{name} us": figures for name, figures in sampled.items()}
    return Finding(values=values, summary=summary)


def _time_nothing_behind(torch: Any, call: Call) -> float:
    call()
    return time_between(torch, nothing)


def _flushes(torch: Any, trial: Trial, call: Call) -> dict[str, object]:
    l2_bytes = int(torch.cuda.get_device_properties(trial.device).L2_cache_size)
    figures: dict[str, object] = {"l2_bytes": l2_bytes}
    for size in (2 * l2_bytes, trial.size(FLUSHED_BYTES, 4 * l2_bytes)):
        buffer, spans = torch.empty(size, dtype=torch.uint8, device=trial.device), []
        for _ in range(30):
            call()
            spans.append(time_between(torch, buffer.zero_))
        figures[f"flush of {size >> 20} MiB us"] = quantiles(spans)
    return figures


def _hot_and_cold(torch: Any, trial: Trial) -> dict[str, list[tuple[float, float | None]]]:
    l2_bytes = int(torch.cuda.get_device_properties(trial.device).L2_cache_size)
    small = torch.ones(max(256, l2_bytes // 16), device=trial.device)
    program = CallProgram(lambda: small.add_(1.0))
    kinds = {
        "hot, replayed": (RunOptions(cuda_graph=True), 1000),
        "cold": (RunOptions(flush_l2=True), 300),
    }
    samples = {}
    for name, (options, calls) in kinds.items():
        clock = make_clock(trial.device, options)
        clock.prepare(program)
        samples[name] = [_sample(clock, program, calls) for _ in range(4)]
    return samples


def _sample(clock: Clock, program: CallProgram, calls: int) -> tuple[float, float | None]:
    sample = clock.take(program, calls=calls)
    device_us = None if sample.device_s is None else round(sample.device_s * MICROSECONDS, 3)
    return round(sample.wall_s * MICROSECONDS, 3), device_us


def measure_capture(trial: Trial) -> Finding:
    """Fail a capture in three ways, and capture again in the same process."""
    torch = load_torch(trial)
    x = torch.ones(512, 512, device=trial.device)

    def fail() -> None:
        if torch.cuda.is_current_stream_capturing():
            message = "injected"
            raise ValueError(message)

    faults: dict[str, Call] = {
        "a value on the host": lambda: float(x.sum()),
        "synchronize": torch.cuda.synchronize,
        "an error": fail,
    }

    def program_with(also: Call) -> CallProgram:
        def call() -> None:
            torch.nn.functional.dropout(x, 0.1)
            also()

        return CallProgram(call)

    values: dict[str, object] = {}
    unfit = []
    for name, fault in faults.items():
        clock = make_clock(trial.device, RunOptions(cuda_graph=True))
        values[name] = _described(_capture(clock, program_with(fault)))
        after = _capture(clock, program_with(nothing))
        alive = _attempt(lambda: (torch.cuda.empty_cache(), torch.nn.functional.dropout(x, 0.1)))
        values[f"good after {name}"] = [_described(after), alive]
        healthy = not isinstance(after, str) and after[0].outcome is Outcome.PASS
        unfit += [] if healthy and not alive else [name]
    summary = f"unfit after: {', '.join(unfit) or 'none'}"
    return Finding(values=values, summary=summary, failed=bool(unfit))


def _capture(clock: Clock, program: CallProgram) -> tuple[Check, ...] | str:
    """Return the checks of a capture, or the error in words."""
    error = _attempt(lambda: clock.prepare(program))
    return error or clock.checks(program, arm="eager")


def _attempt(call: Callable[[], object]) -> str:
    """Return the error of a call in words; empty if there was none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any error is a figure here
        return f"{type(error).__name__}: {error}"[:400]
    return ""


def _described(checks: tuple[Check, ...] | str) -> object:
    if isinstance(checks, str):
        return checks
    return [[str(check.outcome), check.detail[:200]] for check in checks]
