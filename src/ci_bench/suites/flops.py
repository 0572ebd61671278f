"""Floating-point operations: those of a model's step, and those that a device can do at its best.

A step's are counted by torch's `FlopCounterMode` from the matrix products, convolutions and attentions that the eager arm really
calls; element-wise work counts as nothing. A multiplication and an addition are two. Utilisation is theirs per second of the
step, divided by the peak.
"""

import math
import re
import time
from collections.abc import Callable
from typing import Any

import torch

from ci_bench.records.results import Fact
from ci_bench.suites.fp32_precision import effective_precision

TERA = 1e12
SIDE, TRIES = 640, 12
"""Of the products by which a CPU's peak is measured: large enough for all its units, small enough for a fraction of a second."""
FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
DENSE_PEAKS = (
    (r"\bH100 PCIe", {"fp32": 51.0, "tf32": 378.0, "half": 756.0}),
    (r"\bH100 NVL", {"fp32": 60.0, "tf32": 417.5, "half": 835.5}),
    (r"\bH[12]00\b", {"fp32": 67.0, "tf32": 494.5, "half": 989.5}),
    (r"\bA100\b", {"fp32": 19.5, "tf32": 156.0, "half": 312.0}),
    (r"\bA10\b", {"fp32": 31.2, "tf32": 62.5, "half": 125.0}),
    (r"\bL40S\b", {"fp32": 91.6, "tf32": 183.0, "half": 362.0}),
    (r"\bL4\b", {"fp32": 30.3, "tf32": 60.0, "half": 121.0}),
    (r"\bV100-PCIE", {"fp32": 14.0, "fp16": 112.0}),
    (r"\bV100-SXM2", {"fp32": 15.7, "fp16": 125.0}),
    (r"\bT4\b", {"fp32": 8.1, "fp16": 65.0}),
)
"""Dense peaks in TFLOP/s by a pattern in the GPU's name; the first that fits counts. `half` is fp16 and bf16.

From NVIDIA's data sheets, halved where they give figures with sparsity:
https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (H100 SXM, PCIe, NVL),
https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446 (H200),
https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf,
https://www.nvidia.com/en-us/data-center/products/a10-gpu/, https://www.nvidia.com/en-us/data-center/l40s/,
https://www.nvidia.com/en-us/data-center/l4/, https://www.nvidia.com/en-us/data-center/v100/,
https://www.nvidia.com/en-us/data-center/tesla-t4/
"""


def count_flops(step: Callable[[], object]) -> int:
    """The operations of one call of an eager step, its backward pass included."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False, custom_mapping=_on_the_cpu()) as counter:
        step()
    return int(counter.get_total_flops())


def peak_flops_per_s(device: str, precision: str) -> float | None:
    """The dense peak of the device in the format of the precision's matrix products; `None` where it is not known."""
    if not device.startswith("cuda"):
        return None
    return peak_of(torch.cuda.get_device_name(device), precision)


def peak_of(gpu: str, precision: str) -> float | None:
    """The same by a GPU's name, such as ``NVIDIA H100 80GB HBM3``. A slice of one (MIG) has an unknown share of its peak."""
    if "MIG" in gpu:
        return None
    peaks = next((peaks for pattern, peaks in DENSE_PEAKS if re.search(pattern, gpu)), {})
    kind = str(precision).removeprefix("amp_")
    found = peaks.get(kind, peaks.get("half") if kind in {"fp16", "bf16"} else None)
    return None if found is None else found * TERA


def peak_facts(device: str, precision: str) -> dict[str, Fact]:
    """The device's peak as a fact: from the data sheet of a GPU, measured of a CPU; none where it is not known.

    Of a GPU, with what its products of fp32 are rounded to in this process: one in TF32 has another peak.
    """
    if device == "cpu":
        return {"measured_peak_flops_per_s": measured_peak(precision)}
    peak = peak_flops_per_s(device, precision)
    return {**effective_precision(), **({} if peak is None else {"peak_flops_per_s": peak})}


def measured_peak(precision: str) -> float:
    """What this CPU does in the best of some square products, on the threads that a step has, in fp32 or the precision's format.

    A format that the CPU has no units for is slower than fp32: whatever a step does, it may do in the faster of the two.
    """
    own = FORMATS.get(precision.removeprefix("amp_"))
    return max(_fastest_product(dtype) for dtype in {torch.float32, own or torch.float32})


def _fastest_product(dtype: torch.dtype) -> float:
    """Operations per second."""
    one = torch.ones(SIDE, SIDE, dtype=dtype)
    out = torch.empty_like(one)
    best_s = math.inf
    for _ in range(TRIES):
        begun = time.perf_counter()
        torch.mm(one, one, out=out)
        best_s = min(best_s, time.perf_counter() - begun)
    return 2 * SIDE**3 / best_s


def _on_the_cpu() -> dict[Any, Any]:
    """Fused attention of the CPU, which torch's counter does not know. Shapes are [batch, heads, length, width]."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call] # torch leaves it unannotated

    def backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(gradient, query, key, value))  # type: ignore[no-untyped-call] # likewise

    return {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,  # noqa: SLF001 - its only name
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,  # noqa: SLF001 - likewise
    }
