"""Suite `torchbench`: is a model of a zoo faster compiled than eager, and does it still compute the same?"""

from ci_bench.records.metrics import MetricKind
from ci_bench.records.results import Unit

PACKAGE_SIZE = MetricKind(name="package_size", title="size of the package", unit=Unit.BYTES, threshold=0.05)
"""Of the file that a model is compiled into ahead of time (AOT-Inductor, AOT precompile)."""

METRICS = (PACKAGE_SIZE,)
COMPILED_AUTOGRAD = "compiled_autograd"
"""The check that a backward pass was captured as it ran."""
