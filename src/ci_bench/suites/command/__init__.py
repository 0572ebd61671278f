"""Any command that measures something, or that is worth measuring itself."""

from ci_bench.records.metrics import MetricKind
from ci_bench.records.results import Unit

INSTRUCTIONS = MetricKind(name="instructions", title="instructions", unit=Unit.COUNT, threshold=0.01)
"""Of one run, in user mode, of the command and all processes that it starts.

Counts that do not repeat are not used (`counting`).
"""

METRICS = (INSTRUCTIONS,)
