"""Any command that measures something, or that is worth measuring itself."""

from ci_bench.records.metrics import MetricKind
from ci_bench.records.results import Unit

INSTRUCTIONS = MetricKind(
    name="instructions", title="instructions", unit=Unit.COUNT, threshold=0.01
)
"""Of one run, in user mode, of the command and all processes that it starts.

Counts that do not repeat are not used (`counting`).
"""

ALLOCATED_GROWTH = MetricKind(
    name="allocated_growth",
    title="allocated memory growth per step",
    unit=Unit.BYTES,
    threshold=0.05,
    least=16 * 1024,
)
"""Of a training that reports its steps: what each leaves allocated, by the allocators' own counts.

Unchanged trainings differ by less than 1 KiB, so it resolves more than `memory_growth`, which is of
resident pages.
"""

STEPS_TO_TARGET = MetricKind(
    name="steps_to_target", title="steps to the target loss", unit=Unit.COUNT, gates=False
)
"""Shown only: other rounding moves it by steps, and loss parity says whether a training changed."""

TIME_TO_TARGET = MetricKind(
    name="time_to_target", title="time to the target loss", unit=Unit.SECONDS, gates=False
)
"""The sum of the step times until then, shown only as well."""

METRICS = (INSTRUCTIONS, ALLOCATED_GROWTH, STEPS_TO_TARGET, TIME_TO_TARGET)
