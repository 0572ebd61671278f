"""One arm by itself in a process: peak memory of steady steps, compile latency from a cold cache, what dynamo did.

No other arm has ever lived in this process, so nothing of it is in the peak: torch's allocator's on a GPU, the kernel's
high-water mark on the CPU.
"""

import contextlib
import gc
import re
from dataclasses import dataclass
from pathlib import Path

from ci_bench.engine.timing.compilation import CompileCounter, CompileCounts
from ci_bench.engine.timing.fence import synchronizer, time_calls, torch_is_loaded
from ci_bench.engine.timing.sampling import compile_latency
from ci_bench.records.metrics import (
    COMPILE_COLD,
    CUDAGRAPH_SKIPS,
    ENGINE,
    FALLBACKS,
    GRAPH_BREAKS,
    GRAPHS,
    OPS_CAPTURED,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    PEAK_RSS,
    RECOMPILES,
    UNIQUE_GRAPH_BREAKS,
    MetricKind,
)
from ci_bench.records.results import Check, Lane, Launch, Metric, Outcome
from ci_bench.suites.base import Cache, Compiler, Context, Evidence, Program, Stage, Workload, no_mark

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, kw_only=True, slots=True)
class Peaks:
    """Peaks in bytes since the last reset, by metric name; empty where the machine doesn't tell."""

    by_metric: dict[str, float]


def reset_peaks(device: str) -> None:
    """Start counting peaks from now.

    On the CPU this resets VmHWM by writing 5 to /proc/self/clear_refs (proc(5)); there is no polling, so no peak is missed.
    """
    if device == "cpu":
        with contextlib.suppress(OSError):
            _CLEAR_REFS.write_text("5")
        return
    import torch

    torch.cuda.reset_peak_memory_stats(device)


def read_peaks(device: str) -> Peaks:
    """The peaks since `reset_peaks`: `peak_rss` on the CPU, `peak_allocated` and `peak_reserved` on a GPU, in bytes."""
    if device == "cpu":
        high_water = _read_high_water()
        return Peaks(by_metric={} if high_water is None else {PEAK_RSS.name: high_water})
    import torch

    return Peaks(
        by_metric={
            PEAK_ALLOCATED.name: float(torch.cuda.max_memory_allocated(device)),
            PEAK_RESERVED.name: float(torch.cuda.max_memory_reserved(device)),
        }
    )


def _read_high_water() -> float | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found:
            return float(found[1]) * 1024
    return None


STEADY_CALLS = 5


def measure_alone(workload: Workload, stage: Stage, *, launch: int, context: Context) -> Evidence:
    """Measure the stage's one arm. A cold stage tells compile latency; a shared-cache stage tells memory."""
    (arm,) = stage.arms
    if stage.cache is Cache.COLD:
        return _compile_from_cold(workload, arm, launch=launch, context=context)
    return _take_peaks(workload, arm, launch=launch, context=context)


def _compile_from_cold(workload: Workload, arm: str, *, launch: int, context: Context) -> Evidence:
    counter = CompileCounter() if torch_is_loaded() else None
    program, first_call_s, steady_s = _settle(workload, arm, context)
    cold = compile_latency(COMPILE_COLD, arm, first_call_s=first_call_s, steady_s=steady_s, launch=launch)
    if counter is None or program.compiler is not Compiler.DYNAMO:
        return Evidence(metrics=cold, checks=program.finish())
    counts = counter.read()
    phases = tuple(_phase(name, arm, seconds, launch) for name, seconds in counter.phases_s().items())
    return Evidence(
        metrics=(*cold, *phases, *_counts(arm, counts, launch)), checks=(_really_compiled(arm, counts), *program.finish())
    )


def _take_peaks(workload: Workload, arm: str, *, launch: int, context: Context) -> Evidence:
    _settle(workload, arm, context)
    peaks = read_peaks(context.device).by_metric
    return Evidence(metrics=tuple(_counter(ENGINE[name], arm, value, launch) for name, value in peaks.items()))


def _settle(workload: Workload, arm: str, context: Context) -> tuple[Program, float, float]:
    """The program after steady calls, its first call and its fastest steady call (s). Peaks count from the steady calls on."""
    synchronize = synchronizer(context.device)
    program = workload.open(arm)

    def step() -> None:
        program.step(no_mark)

    first_call_s = time_calls(step, calls=1, synchronize=synchronize)
    gc.collect()
    step()
    synchronize()
    reset_peaks(context.device)
    steady = [time_calls(step, calls=1, synchronize=synchronize) for _ in range(STEADY_CALLS)]
    context.progress(arm, 1, 1)
    return program, first_call_s, min(steady)


def _phase(name: str, arm: str, seconds: float, launch: int) -> Metric:
    taken = Launch(launch=launch, values=(seconds,))
    return ENGINE[f"{COMPILE_COLD.name}_{name}"].of(arm, taken, lane=Lane.WALL)


def _counts(arm: str, counts: CompileCounts, launch: int) -> tuple[Metric, ...]:
    counted = (
        (GRAPHS, counts.graphs),
        (GRAPH_BREAKS, counts.graph_breaks),
        (RECOMPILES, counts.recompiles),
        (FALLBACKS, counts.fallbacks),
        (CUDAGRAPH_SKIPS, counts.cudagraph_skips),
        (UNIQUE_GRAPH_BREAKS, len(counts.break_reasons)),
        (OPS_CAPTURED, counts.operations),
    )
    return tuple(_counter(kind, arm, float(number), launch) for kind, number in counted)


def _counter(kind: MetricKind, arm: str, value: float, launch: int) -> Metric:
    return kind.of(arm, Launch(launch=launch, values=(value,)), lane=Lane.COUNTERS)


def _really_compiled(arm: str, counts: CompileCounts) -> Check:
    """A candidate that ran without a single captured graph was never compiled."""
    places = {reason: f" at {place}" for reason, place in counts.break_places.items()}
    broken = (f"{reason}{places.get(reason, '')} ({times}x)" for reason, times in sorted(counts.break_reasons.items()))
    reasons = "; ".join([*broken, *(f"recompiled: {reason}" for reason in counts.recompile_reasons)])
    detail = (
        f"{counts.graphs} graphs of {counts.operations} operations, {counts.graph_breaks} breaks, {counts.recompiles} recompiles"
    )
    if counts.fallbacks:
        detail += f", {counts.fallbacks} frames left to run as they are"
    if counts.graphs == 0:
        detail = "no graph was captured: the step ran uncompiled"
    outcome = Outcome.PASS if counts.graphs > 0 else Outcome.FAIL
    return Check(name="compiled", arm=arm, outcome=outcome, detail=f"{detail}. {reasons}".rstrip(". ")[:1000])
