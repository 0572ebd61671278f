"""Least work of a step, and peak rates of a device: floating-point operations and bytes read.

torch's `FlopCounterMode` counts a step's operations in the matrix products, convolutions and
attentions that the eager arm really calls; element-wise work counts as nothing. A multiplication
and an addition are two. Utilisation is these operations per second of the step, divided by the
peak. The bytes are those of the weights and inputs that these operations read, each once, however
often it is read: data from before the step has to come from memory in any implementation. Both are
lower bounds: a step beyond its roofline (Williams, Waterman and Patterson, Communications of the
ACM 52(4), 2009) did not compute everything.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ci_bench.records.forms import Fact
from ci_bench.suites.shared.worker.fp32_precision import effective_precision

logger = logging.getLogger(__name__)
TERA = 1e12
MOST_WORDS = 300
"""Characters of an error that a fact quotes."""
SIDE, TRIES = 640, 12
"""Of the products by which a CPU's peak is measured: large enough for all its units, small enough
for a fraction of a second.
"""
FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
DENSE_PEAKS = (
    (r"\bGB200\b", {"fp32": 90.0, "tf32": 1250.0, "half": 2500.0}),
    (r"\bB200\b", {"fp32": 80.0, "tf32": 1100.0, "half": 2250.0}),
    (r"\bGH200\b", {"fp32": 67.0, "tf32": 494.5, "half": 989.5}),
    (r"\bMI300X\b", {"fp32": 163.4, "tf32": 653.7, "half": 1307.4}),
    (r"\bL40\b", {"fp32": 90.5, "tf32": 90.5, "half": 181.05}),
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
"""Dense peaks in TFLOP/s by a pattern in the GPU's name; the first that fits counts. `half` is fp16
and bf16.

From NVIDIA's data sheets, halved where they give figures with sparsity:
https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet (H100 SXM, PCIe,
NVL), https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446 (H200),
https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf,
https://www.nvidia.com/en-us/data-center/products/a10-gpu/,
https://www.nvidia.com/en-us/data-center/l40s/, https://www.nvidia.com/en-us/data-center/l4/,
https://www.nvidia.com/en-us/data-center/v100/, https://www.nvidia.com/en-us/data-center/tesla-t4/,
https://www.nvidia.com/en-us/data-center/l40/,
https://resources.nvidia.com/en-us-blackwell-architecture (B200 at 1000 W, GB200 at 1200 W),
https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip (GH200),
https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf.
GeForce cards are left out: their clocks exceed what the sheets count with, and a step beyond a peak
is called wrong.
"""


BANDWIDTHS = (
    (r"\bGB200\b", 8.0),
    (r"\bB200\b", 8.0),
    (r"\bGH200\b", 4.9),
    (r"\bMI300X\b", 5.3),
    (r"\bL40\b", 0.864),
    (r"\bH200\b", 4.8),
    (r"\bH100 PCIe", 2.0),
    (r"\bH100 NVL", 3.9),
    (r"\bH100\b", 3.35),
    (r"\bA100.*80GB", 2.039),
    (r"\bA100\b", 1.555),
    (r"\bA10\b", 0.6),
    (r"\bL40S\b", 0.864),
    (r"\bL4\b", 0.3),
    (r"\bV100", 0.9),
    (r"\bT4\b", 0.32),
)
"""Peak memory bandwidth of GPUs, in TB/s, by a pattern in the name; from the data sheets above."""
LEAST_READ, MOST_READ = 1 << 24, 1 << 28
"""Bytes.

A CPU that reads less is busy with other work. A larger step is measured with the upper limit, which
may still fit into a cache.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Least work of a step: floating-point operations, and bytes of older data that these read."""

    operations: int
    read_bytes: int


class UncountedError(Exception):
    """An operation of a step has shapes that torch's formula for it refuses."""


def count_work(step: Callable[[], object]) -> Work:
    """Count the work of one call of an eager step, its backward pass included.

    The step runs to its end, also if a formula fails.

    Raises:
        UncountedError: a formula of torch's failed. An error of the step itself comes through.
    """
    from torch.utils.flop_counter import FlopCounterMode

    formulas = _Formulas()
    reads = _Reads(formulas.counted)
    with reads, FlopCounterMode(display=False, custom_mapping=formulas.guarded()) as counter:
        step()
    if formulas.failures:
        raise UncountedError(formulas.failures[0])
    return Work(operations=int(counter.get_total_flops()), read_bytes=reads.total())


class _Formulas:
    """Torch's formulas and those for attention, with the failures of each."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry, shape_wrapper

        attention = {operator: shape_wrapper(formula) for operator, formula in _attention().items()}  # type: ignore[no-untyped-call] # torch leaves it unannotated
        self._formulas: dict[Any, Any] = {**flop_registry, **attention}
        self.counted = frozenset(self._formulas)
        self.failures: list[str] = []

    def guarded(self) -> dict[Any, Any]:
        """Return the formulas by operator; one that fails counts nothing and is noted."""
        return {
            operator: self._guard(operator, formula) for operator, formula in self._formulas.items()
        }

    def _guard(self, operator: Any, formula: Any) -> Any:
        def guarded(*arguments: Any, **keywords: Any) -> Any:
            try:
                return formula(*arguments, **keywords)
            except Exception as error:  # noqa: BLE001 - torch's formulas assert; only a fact is lost
                self.failures.append(f"{operator}: {type(error).__name__}: {error}")
                return 0

        guarded._get_raw = True  # type: ignore[attr-defined] # noqa: SLF001 - torch then passes tensors through
        return guarded


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it unannotated
    """Bytes that counted operations read, and that no operation of the step has written.

    Each stretch of memory counts once.
    """

    def __init__(self, counted: frozenset[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # likewise
        self._counted = counted
        self._written: set[int] = set()
        self._read: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Note what one operation reads and writes.

        Results in the memory of its arguments (views, updates) are not new.
        """
        operands = pytree.tree_leaves((arguments, keywords))
        if function.overloadpacket in self._counted:
            for value in operands:
                self._note(value)
        results = function(*arguments, **(keywords or {}))
        self._written |= {*map(_place, pytree.tree_leaves(results))} - {*map(_place, operands)}
        return results

    def _note(self, value: object) -> None:
        place = _place(value)
        if place and place not in self._written and isinstance(value, Tensor):
            size = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
            self._read[place] = max(size, self._read.get(place, 0))

    def total(self) -> int:
        return sum(self._read.values())


def _place(value: object) -> int:
    """Return the start of a plain tensor's memory; 0 for all else, which is not counted."""
    return value.untyped_storage().data_ptr() if type(value) in {Tensor, torch.nn.Parameter} else 0  # type: ignore[attr-defined] # it is one


def step_facts(step: Callable[[], object], device: str, precision: str) -> dict[str, Fact]:
    """Return the facts of a step's roofline, or the reason why its work cannot be counted.

    Code may raise anything under torch's counter: only a fact is lost then, since the step also
    runs without it elsewhere.
    """
    try:
        work = count_work(step)
    except Exception as error:  # noqa: BLE001 - see above
        return uncounted_facts(error, device, precision)
    return work_facts(work, device, precision)


def uncounted_facts(error: Exception, device: str, precision: str) -> dict[str, Fact]:
    """Return the device's peak, and the reason why the work is unknown."""
    words = " ".join(str(error).split())[:MOST_WORDS]
    logger.warning("operations were not counted: %s", words)
    reason = f"torch {torch.__version__} did not count the operations of a step: {words}"
    return {"work_unknown": reason, **peak_facts(device, precision)}


def work_facts(work: Work, device: str, precision: str) -> dict[str, Fact]:
    """Return the facts of a step's roofline: its work, and the device's peaks in the precision."""
    return {
        "model_flops_per_step": work.operations,
        **peak_facts(device, precision),
        **_bandwidth_facts(work, device),
    }


def _bandwidth_facts(work: Work, device: str) -> dict[str, Fact]:
    """Return facts on the bytes that a step reads from memory.

    On a GPU they are those beyond its L2 cache, in which the previous step may have left data. On a
    CPU all bytes count, at a measured rate. Empty if the bytes are too few to be the limit, or no
    rate is known.
    """
    if device == "cpu":
        if work.read_bytes < LEAST_READ:
            return {}
        return {
            "read_bytes_per_step": work.read_bytes,
            "measured_peak_bytes_per_s": measured_bandwidth(work.read_bytes),
        }
    beyond = work.read_bytes - torch.cuda.get_device_properties(device).L2_cache_size
    bandwidth = bandwidth_of(torch.cuda.get_device_name(device))
    return (
        {"read_bytes_per_step": beyond, "peak_bytes_per_s": bandwidth}
        if bandwidth and beyond > 0
        else {}
    )


def bandwidth_of(gpu: str) -> float | None:
    """Return bytes per second by a GPU's name; `None` if it is not known.

    A slice of one (MIG) has an unknown share.
    """
    if "MIG" in gpu:
        return None
    return next((rate * TERA for pattern, rate in BANDWIDTHS if re.search(pattern, gpu)), None)


def measured_bandwidth(size: int) -> float:
    """Measure the best rate at which this CPU reads memory of that size, in bytes per second.

    It uses the threads of a step. A copy writes as many bytes as it reads, and pure reading may be
    twice as fast as that.
    """
    source = torch.ones(min(size, MOST_READ) // 4)
    target = torch.empty_like(source)
    copied_s = min(_seconds(lambda: target.copy_(source)) for _ in range(TRIES))
    summed_s = min(_seconds(source.sum) for _ in range(TRIES))
    return 4 * source.numel() / min(copied_s / 2, summed_s)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def peak_flops_per_s(device: str, precision: str) -> float | None:
    """Return the device's dense peak for matrix products in a precision.

    `None` if it is not known.
    """
    if not device.startswith("cuda"):
        return None
    return peak_of(torch.cuda.get_device_name(device), precision)


def peak_of(gpu: str, precision: str) -> float | None:
    """Return the same by a GPU's name, such as ``NVIDIA H100 80GB HBM3``.

    A slice of one (MIG) has an unknown share of its peak.
    """
    if "MIG" in gpu:
        return None
    peaks = next((peaks for pattern, peaks in DENSE_PEAKS if re.search(pattern, gpu)), {})
    kind = str(precision).removeprefix("amp_")
    peak = peaks.get(kind, peaks.get("half") if kind in {"fp16", "bf16"} else None)
    return None if peak is None else peak * TERA


def peak_facts(device: str, precision: str) -> dict[str, Fact]:
    """Return the device's peak as a fact, or the reason why it is not known.

    For a GPU it is from the data sheet, for a CPU it is measured. For a GPU, it includes the format
    to which products of fp32 are rounded in this process: TF32 has another peak.
    """
    if device == "cpu":
        return {"measured_peak_flops_per_s": measured_peak(precision)}
    peak = peak_flops_per_s(device, precision)
    if peak is None:
        unknown = (
            f"no data sheet's peak of {torch.cuda.get_device_name(device)} in {precision} is known:"
            " no share of it is shown"
        )
        return {**effective_precision(), "peak_unknown": unknown}
    return {**effective_precision(), "peak_flops_per_s": peak}


def measured_peak(precision: str) -> float:
    """Measure this CPU's best rate on square products, in fp32 or in the precision's format.

    It uses the threads of a step. A format without units on this CPU is slower than fp32: a step
    may use the faster of the two.
    """
    narrow = FORMATS.get(precision.removeprefix("amp_"))
    return max(_fastest_product(dtype) for dtype in {torch.float32, narrow or torch.float32})


def _fastest_product(dtype: torch.dtype) -> float:
    """Return operations per second."""
    factor = torch.ones(SIDE, SIDE, dtype=dtype)
    out = torch.empty_like(factor)
    best_s = min(_seconds(lambda: torch.mm(factor, factor, out=out)) for _ in range(TRIES))
    return 2 * SIDE**3 / best_s


def _attention() -> dict[Any, Any]:
    """Return formulas for fused attention, by operator.

    Shapes are [batch, heads, length, width]. Torch's own table lacks the CPU's operator. Up to
    torch 2.11 its formula refuses keys and values that heads of the query share
    (https://github.com/pytorch/pytorch/pull/177188). They are counted for each head, as a kernel
    computes them.
    """
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, _for_each_head(query, key), _for_each_head(query, value)))  # type: ignore[no-untyped-call] # torch leaves it unannotated

    def backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        key, value = _for_each_head(query, key), _for_each_head(query, value)
        return int(sdpa_backward_flop_count(gradient, query, key, value))  # type: ignore[no-untyped-call] # likewise

    kinds = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    names = {kind: f"_scaled_dot_product_{kind}" for kind in kinds}
    there = {name for name in names.values() if hasattr(aten, name)}
    return {getattr(aten, name): forward for name in there} | {
        getattr(aten, f"{name}_backward"): backward for name in there
    }


def _for_each_head(query: Any, shared: Any) -> Any:
    """Return the shape of keys or values as if each head of the query had its own."""
    heads, shared_heads = query[1], shared[1]
    return (shared[0], heads, *shared[2:]) if shared_heads and heads % shared_heads == 0 else shared
