"""Metrics by name: title, unit and direction, smallest change that matters, whether it gates.

Declares the metrics of the engine in any suite; each suite declares its own (`METRICS` of its
package, found by `suites.registry.find_metrics`). An undeclared metric takes the policy's default
threshold, gates, and is called by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ci_bench.records.results import Better, Lane, Launch, Metric, Unit

COMPILATION = "compile_"
"""Prefix of the names of latencies of compilation."""

RECORDED = "recorded_"
"""Prefix of numbers that a user's benchmark reports for display, and that never gate."""

IMPORTED = "imported"
"""The suite of what other tools' files hold."""
LEAST_BYTES = 1024**2
"""The largest ignored difference of memory, 1 MiB: the allocators' granularity, as measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricKind:
    """A declared metric."""

    name: str
    """Name in documents."""
    title: str
    """Name for people."""
    unit: Unit
    """Unit of the samples."""
    better: Better = Better.LOWER
    """Direction of an improvement."""
    threshold: float | None = None
    """Smallest relative change that matters; `None` takes the policy's default."""
    least: float = LEAST_BYTES
    """Smallest change of bytes that matters, whatever its share; the only one if base has zero."""
    gates: bool = True
    """Whether it can fail a run; otherwise it is only shown."""
    replaces: str | None = None
    """Name of the metric that earlier versions measured instead."""

    def of(
        self, arm: str, launch: Launch, *, lane: Lane, calls: int = 1, items: int | None = None
    ) -> Metric:
        """Return one launch's series of this metric, of one arm."""
        return Metric(
            name=self.name,
            arm=arm,
            unit=self.unit,
            better=self.better,
            lane=lane,
            launches=(launch,),
            calls=calls,
            items=items,
        )


def _time(
    name: str, title: str, threshold: float | None = None, *, gates: bool = True
) -> MetricKind:
    return MetricKind(name=name, title=title, unit=Unit.SECONDS, threshold=threshold, gates=gates)


def _peak(name: str, title: str, threshold: float) -> MetricKind:
    return MetricKind(name=name, title=title, unit=Unit.BYTES, threshold=threshold)


def _count(name: str, title: str) -> MetricKind:
    return MetricKind(name=name, title=title, unit=Unit.COUNT, threshold=0.0)


STEP_TIME = _time("step_time", "step time")
DEVICE_TIME = _time("device_time", "device time")
"""The step by the device's own clock, in addition to the host's."""

ZERO_GRAD = _time("zero_grad_time", "zeroing of gradients")
STEP_PARTS = (
    ZERO_GRAD,
    _time("forward_time", "forward pass"),
    _time("backward_time", "backward pass"),
    _time("optimizer_time", "optimizer step"),
)
"""The parts of a training step, in their order."""

COMPILE_COLD = _time("compile_cold", "cold compilation", 0.20)
COMPILE_WARM = _time("compile_warm", "warm compilation", 0.20)
COMPILATIONS = frozenset({COMPILE_COLD.name, COMPILE_WARM.name})
"""Times that are of no step."""
COMPILE_PHASES = (
    _time("compile_cold_dynamo", "cold compilation, Dynamo", gates=False),
    _time("compile_cold_aot", "cold compilation, AOTAutograd", gates=False),
    _time("compile_cold_inductor", "cold compilation, Inductor", gates=False),
    _time("compile_cold_kernels", "cold compilation, kernels", gates=False),
    _time("compile_cold_autotune", "cold compilation, autotuning", gates=False),
)
"""Phases of a cold compilation, in order; judged by their sum, `COMPILE_COLD`."""

PEAK_ALLOCATED = _peak("peak_allocated", "peak allocated memory", 0.005)
PEAK_RESERVED = _peak("peak_reserved", "peak reserved memory", 0.05)
PEAK_ANONYMOUS = MetricKind(
    name="peak_anonymous", title="peak memory", unit=Unit.BYTES, threshold=0.01, replaces="peak_rss"
)
"""On the CPU, above what the process held before it imported benchmarked code."""
PEAK_RSS = _peak("peak_rss", "peak resident memory", 0.05)
"""Peak of a whole command: the only one that the kernel reports of a child."""
PEAKS = (PEAK_ALLOCATED, PEAK_RESERVED, PEAK_ANONYMOUS, PEAK_RSS)
"""The first of these that a case has stands for its memory: by torch's allocator on a GPU,
anonymous on the CPU.
"""

FILE_BACKED = MetricKind(
    name="file_backed", title="file-backed memory", unit=Unit.BYTES, gates=False
)
"""Pages of libraries and other files in a process's memory, which the page cache affects."""
MEMORY_GROWTH = MetricKind(
    name="memory_growth",
    title="memory growth per step",
    unit=Unit.BYTES,
    threshold=0.05,
    least=LEAST_BYTES / 4,
)
MEMORY_KEPT = MetricKind(
    name="memory_kept",
    title="memory kept by timed calls",
    unit=Unit.BYTES,
    threshold=0.5,
    least=8 * LEAST_BYTES,
)
"""Over all timed calls of a launch: what a leak takes. Holes in the heap and caches that still fill
take less.
"""

GRAPHS = _count("graphs", "captured graphs")
GRAPH_BREAKS = _count("graph_breaks", "graph breaks")
RECOMPILES = _count("recompiles", "recompilations")
FALLBACKS = _count("fallbacks", "frames left to eager")
CUDAGRAPH_SKIPS = _count("cudagraph_skips", "skipped CUDA graphs")
UNIQUE_GRAPH_BREAKS = MetricKind(
    name="unique_graph_breaks", title="distinct graph breaks", unit=Unit.COUNT, gates=False
)
OPS_CAPTURED = MetricKind(
    name="ops_captured",
    title="captured operations",
    unit=Unit.COUNT,
    better=Better.HIGHER,
    gates=False,
)
"""A smaller model has fewer of them."""

SM_CLOCK = MetricKind(
    name="sm_clock", title="GPU clock", unit=Unit.HERTZ, better=Better.HIGHER, gates=False
)
"""Clock rate of the multiprocessors during an arm's turns.

An arm that draws more power may have been slowed down by it.
"""

ENERGY_PER_STEP = MetricKind(name="energy_per_step", title="energy per step", unit=Unit.JOULES)
ENERGY_PER_ITEM = MetricKind(
    name="energy_per_item", title="energy per item", unit=Unit.JOULES, gates=False
)
"""Energy of the device, by its own counter, with its share of idling."""

RANK_SKEW = _time("rank_skew", "skew of ranks", gates=False)
COLLECTIVE_TIME = _time("collective_time", "time in collectives", gates=False)
COLLECTIVE_BYTES = MetricKind(
    name="collective_bytes", title="bytes in collectives", unit=Unit.BYTES, gates=False
)
SCALING_EFFICIENCY = MetricKind(
    name="scaling_efficiency",
    title="scaling efficiency",
    unit=Unit.COUNT,
    better=Better.HIGHER,
    gates=False,
)
"""Efficiency of arms with several processes.

It is the step time of one process, divided by theirs and by their number.
"""

ENGINE: Mapping[str, MetricKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            STEP_TIME,
            DEVICE_TIME,
            *STEP_PARTS,
            COMPILE_COLD,
            COMPILE_WARM,
            *COMPILE_PHASES,
            *PEAKS,
            FILE_BACKED,
            MEMORY_GROWTH,
            MEMORY_KEPT,
            GRAPHS,
            GRAPH_BREAKS,
            RECOMPILES,
            FALLBACKS,
            CUDAGRAPH_SKIPS,
            UNIQUE_GRAPH_BREAKS,
            OPS_CAPTURED,
            SM_CLOCK,
            ENERGY_PER_STEP,
            ENERGY_PER_ITEM,
            RANK_SKEW,
            COLLECTIVE_TIME,
            COLLECTIVE_BYTES,
            SCALING_EFFICIENCY,
        )
    }
)
"""Metrics of the engine in any suite, by name."""


REPLACED: Mapping[str, MetricKind] = MappingProxyType(
    {kind.replaces: kind for kind in ENGINE.values() if kind.replaces}
)
"""Successors of metrics of earlier versions, by the name of the earlier one."""


def duration(metric: str) -> MetricKind:
    """Return the kind of a time by its name: a declared one, or a suite's own."""
    return ENGINE.get(metric) or _time(metric, metric)


def title_of(metric: str, kinds: Mapping[str, MetricKind] = ENGINE) -> str:
    """Return a metric's title, or its name if it is undeclared."""
    return kinds[metric].title if metric in kinds else metric
