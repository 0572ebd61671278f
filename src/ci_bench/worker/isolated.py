"""Measure one arm in isolation: memory of steady steps, cold compile latency, dynamo's counters.

This process never had another arm, so no other arm is in the peak or in the growth.
"""

import gc
from collections.abc import Callable

from ci_bench.records.forms import Fact
from ci_bench.records.metrics import (
    COMPILE_COLD,
    CUDAGRAPH_SKIPS,
    ENGINE,
    FALLBACKS,
    GRAPH_BREAKS,
    GRAPHS,
    OPS_CAPTURED,
    RECOMPILES,
    UNIQUE_GRAPH_BREAKS,
    MetricKind,
)
from ci_bench.records.results import Check, Lane, Launch, Metric, Outcome, Phase
from ci_bench.suites.contract import Compiler, Context, Evidence, Program, Stage, Workload, no_mark
from ci_bench.suites.shared.worker.compiling import without_graphs
from ci_bench.worker.compilation import CompileCounter, CompileCounts
from ci_bench.worker.compile_workers import end_workers, start_workers
from ci_bench.worker.fence import close, synchronizer, time_calls, torch_is_loaded
from ci_bench.worker.memory import DeviceMemory, HostMemory, watch
from ci_bench.worker.phases import Stopwatch
from ci_bench.worker.sampling import compile_latency

STEADY_CALLS = 5
WATCHED_CALLS = 12
"""The number of calls whose memory is watched.

The first half shows what still fills up, the second what never ends.
"""
MORE_CALLS, MORE_CALLS_S = 100, 0.5
"""The number of later calls, if they take no longer than this (s).

Memory that they keep is in the peak.
"""


def measure_alone(
    workload: Workload,
    stage: Stage,
    *,
    launch: int,
    context: Context,
    stopwatch: Stopwatch,
    memory: HostMemory | DeviceMemory | None,
) -> Evidence:
    """Measure the stage's one arm: compile latency from a cold cache, or memory.

    Memory counts above what `memory` started with; without it, latency is measured.
    """
    (arm,) = stage.arms
    if memory is None:
        return _compile_from_cold(
            workload, arm, launch=launch, context=context, stopwatch=stopwatch
        )
    return _take_peaks(
        workload, arm, launch=launch, context=context, stopwatch=stopwatch, memory=memory
    )


def _compile_from_cold(
    workload: Workload, arm: str, *, launch: int, context: Context, stopwatch: Stopwatch
) -> Evidence:
    counter = CompileCounter() if torch_is_loaded() else None
    program, first_call_s, steady_s = _settle(workload, arm, context, stopwatch)
    cold = compile_latency(
        COMPILE_COLD, arm, first_call_s=first_call_s, steady_s=steady_s, launch=launch
    )
    if counter is None or program.compiler is not Compiler.DYNAMO:
        checks = program.finish()
        close(program)
        return Evidence(metrics=cold, checks=checks)
    counts = counter.read()
    phases = tuple(
        _phase(name, arm, seconds, launch) for name, seconds in counter.phases_s().items()
    )
    checks = (_really_compiled(arm, counts), *program.finish())
    close(program)
    return Evidence(metrics=(*cold, *phases, *_counts(arm, counts, launch)), checks=checks)


def _take_peaks(
    workload: Workload,
    arm: str,
    *,
    launch: int,
    context: Context,
    stopwatch: Stopwatch,
    memory: HostMemory | DeviceMemory,
) -> Evidence:
    synchronize = synchronizer(context.device)
    with stopwatch.phase(Phase.BUILD, arm):
        program = workload.open(arm)
    step = _step(program)
    _warm_up(step, arm, program.compiler, synchronize, stopwatch)
    with stopwatch.phase(Phase.SAMPLES, arm):
        if context.ranks is None:
            bytes_by_metric = watch(
                lambda: time_calls(step, calls=1, synchronize=synchronize),
                memory,
                steps=WATCHED_CALLS,
                more=MORE_CALLS,
                most_s=MORE_CALLS_S,
            )
            facts: dict[str, Fact] = {}
        else:
            bytes_by_metric, facts = _of_every_rank(program, arm, context.device, memory)
    context.progress(arm, 1, 1)
    close(program)
    return Evidence(
        metrics=tuple(
            _counter(ENGINE[name], arm, value, launch) for name, value in bytes_by_metric.items()
        ),
        facts=facts,
    )


def _of_every_rank(
    program: Program, arm: str, device: str, memory: HostMemory | DeviceMemory
) -> tuple[dict[str, float], dict[str, Fact]]:
    """Return the memory of the largest rank, and of each rank."""
    from ci_bench.worker.ranked import RankedProgram, largest, memory_fact

    assert isinstance(program, RankedProgram), "a stage of several processes has an arm of them"  # noqa: S101 - our own bug if not
    by_rank = program.watch(device, memory, WATCHED_CALLS)
    return largest(by_rank), memory_fact(arm, by_rank)


def _settle(
    workload: Workload, arm: str, context: Context, stopwatch: Stopwatch
) -> tuple[Program, float, float]:
    """Return the program after steady calls, its first and its fastest steady call (s)."""
    synchronize = synchronizer(context.device)
    with stopwatch.phase(Phase.BUILD, arm):
        program = workload.open(arm)
    step = _step(program)
    first_call_s = _warm_up(step, arm, program.compiler, synchronize, stopwatch)
    with stopwatch.phase(Phase.SAMPLES, arm):
        steady = [time_calls(step, calls=1, synchronize=synchronize) for _ in range(STEADY_CALLS)]
    context.progress(arm, 1, 1)
    return program, first_call_s, min(steady)


def _step(program: Program) -> Callable[[], None]:
    return lambda: program.step(no_mark)


def _warm_up(
    step: Callable[[], None],
    arm: str,
    compiler: Compiler,
    synchronize: Callable[[], None],
    stopwatch: Stopwatch,
) -> float:
    """Call the step twice; return the seconds of the first.

    Inductor's processes exist before it, and are ended afterwards.
    """
    with stopwatch.phase(Phase.BUILD, arm):
        start_workers(compiler)
    with stopwatch.phase(Phase.COMPILE, arm):
        first_call_s = time_calls(step, calls=1, synchronize=synchronize)
    with stopwatch.phase(Phase.WARM_UP, arm):
        gc.collect()
        step()
        synchronize()
        end_workers()
    return first_call_s


def _phase(name: str, arm: str, seconds: float, launch: int) -> Metric:
    series = Launch(launch=launch, values=(seconds,))
    return ENGINE[f"{COMPILE_COLD.name}_{name}"].of(arm, series, lane=Lane.WALL)


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
    """Check that a candidate was compiled.

    Without a single captured graph it was not.
    """
    why = counts.break_reasons
    if counts.graphs == 0:
        why = {**counts.fallback_reasons, **why}
    places = {reason: f" at {place}" for reason, place in counts.break_places.items()}
    broken = (f"{reason}{places.get(reason, '')} ({times}x)" for reason, times in why.items())
    reasons = "; ".join(
        [*broken, *(f"recompiled: {reason}" for reason in counts.recompile_reasons)]
    )
    detail = (
        f"{counts.graphs} graphs of {counts.operations} operations, {counts.graph_breaks} breaks,"
        f" {counts.recompiles} recompiles"
    )
    if counts.fallbacks:
        detail += f", {counts.fallbacks} frames left to run as they are"
    if counts.graphs == 0:
        detail = "no graph was captured: the step ran uncompiled"
    outcome = Outcome.PASS if counts.graphs > 0 else without_graphs(why)
    return Check(
        name="compiled", arm=arm, outcome=outcome, detail=f"{detail}. {reasons}".rstrip(". ")[:1000]
    )
