"""Peak memory of the running process: torch's allocator on a GPU, the kernel's high-water mark on the CPU."""

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

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
        return Peaks(by_metric={} if high_water is None else {"peak_rss": high_water})
    import torch

    return Peaks(
        by_metric={
            "peak_allocated": float(torch.cuda.max_memory_allocated(device)),
            "peak_reserved": float(torch.cuda.max_memory_reserved(device)),
        }
    )


def _read_high_water() -> float | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found:
            return float(found[1]) * 1024
    return None
