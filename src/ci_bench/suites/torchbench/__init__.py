"""Suite `torchbench`: compares models of a zoo, compiled and eager, in speed and results."""

from ci_bench.records.metrics import MetricKind
from ci_bench.records.results import Better, Unit

PACKAGE_SIZE = MetricKind(
    name="package_size", title="size of the package", unit=Unit.BYTES, threshold=0.05
)
"""Of the file that a model is compiled into ahead of time (AOT-Inductor, AOT precompile)."""

COVERAGE_OPS = MetricKind(
    name="coverage_ops",
    title="operators in graphs",
    unit=Unit.COUNT,
    better=Better.HIGHER,
    threshold=0.02,
)
"""The share of a step's operators that ran inside captured graphs, 0 to 1. Exact; a model that
shrinks moves it a little.
"""
COVERAGE_TIME = MetricKind(
    name="coverage_time",
    title="operators' time in graphs",
    unit=Unit.COUNT,
    better=Better.HIGHER,
    threshold=0.25,
    gates=False,
)
"""The share of the operators' time, 0 to 1: as noisy as the time of single operators is."""
GRAPH_CALLS = MetricKind(name="graph_calls", title="calls of graphs", unit=Unit.COUNT, gates=False)
OPS_IN_GRAPHS = MetricKind(
    name="ops_in_graphs",
    title="operators run in graphs",
    unit=Unit.COUNT,
    better=Better.HIGHER,
    gates=False,
)
OPS_RUN = MetricKind(name="ops_run", title="operators run", unit=Unit.COUNT, gates=False)
"""Counts behind the two shares; a smaller model has fewer."""

METRICS = (PACKAGE_SIZE, COVERAGE_OPS, COVERAGE_TIME, GRAPH_CALLS, OPS_IN_GRAPHS, OPS_RUN)
COMPILED_AUTOGRAD = "compiled_autograd"
"""The check that a backward pass was captured as it ran."""
