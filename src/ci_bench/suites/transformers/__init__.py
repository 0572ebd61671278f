"""Suite `transformers`: inference, training and generation of any model of transformers.

An entry's grid has batch sizes and lengths.
"""

from ci_bench.records.metrics import MetricKind
from ci_bench.records.results import Unit

FIRST_TOKEN = MetricKind(name="first_token_time", title="time to first token", unit=Unit.SECONDS)
TOKEN = MetricKind(name="token_time", title="time per token", unit=Unit.SECONDS)
"""The parts of a generation: the prompt up to the first token, and each token after it."""
PROCESS_VRAM = MetricKind(
    name="process_vram", title="GPU memory of the process", unit=Unit.BYTES, threshold=0.05
)
"""Memory that a process holds on its GPU by the driver's account.

It is the allocator's reserve, the context, and loaded kernels.
"""

METRICS = (FIRST_TOKEN, TOKEN, PROCESS_VRAM)
