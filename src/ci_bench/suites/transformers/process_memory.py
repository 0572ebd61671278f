"""Memory of the whole process: its limit, the driver's account of it, and its allocating lines.

The peaks of torch's allocator and of the process's resident size are the engine's.
"""

import contextlib
import gzip
import json
import os
import re
import resource
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import GpuUnreachable

STATUS = Path("/proc/self/status")
MOST_EVENTS = 200_000
MOST_BYTES = 3_500_000
"""Size limit of a timeline's file, which is kept with the run.

Later events are left out, and the last line gives their number.
"""
SHOWN_SITES = 6
OWN_FRAMES = ("/torch/", "/ci_bench/", "<frozen", "<string>", "??")
"""Parts of file names that are not where a model allocates."""


def limit_memory(limit_bytes: int | None, device: str) -> None:
    """Let this process take `limit_bytes` more than it has now.

    The limit is on the GPU's memory, or on the host's for the CPU.

    On the CPU the limit is on private writable memory (RLIMIT_DATA, setrlimit(2)), which allocators
    ask for in whole.
    """
    if limit_bytes is None:
        return
    if device.startswith("cuda"):
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
        return
    match = re.search(r"^VmData:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    used = int(match[1]) * 1024 if match else 0
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (used + limit_bytes, hard))


def process_vram(device: str) -> tuple[int | None, str]:
    """Return the bytes that the driver counts for this process on its GPU, and how they were found.

    The bytes are `None` if they are unknown; the second value is a sentence.
    """
    try:
        gpu = vendors.open_gpu(str(torch.cuda.get_device_properties(device).uuid))
    except GpuUnreachable as reason:
        return None, str(reason)
    with contextlib.closing(gpu):
        running = gpu.bytes_by_pid()
    if running is None:
        return None, "the driver does not list the processes on this GPU"
    return own_share(running, os.getpid())


def own_share(by_pid: Mapping[int, int | None], pid: int) -> tuple[int | None, str]:
    """Return the bytes of process `pid` among those of all processes with a context on a GPU.

    In a container the driver reports the pids of the host. This process has a context, so if only
    one process has one, it is this one.
    """
    if pid in by_pid:
        used, how = by_pid[pid], "by its pid"
    elif len(by_pid) == 1:
        used, how = next(iter(by_pid.values())), "the only process on the GPU"
    else:
        return (
            None,
            (
                f"the driver lists {len(by_pid)} processes, none with the pid that this one has in"
                " its container"
            ),
        )
    return (
        (None, "the driver does not tell the memory of a process here")
        if used is None
        else (used, how)
    )


class Timeline:
    """Records every allocation and release on a GPU within a block, and the lines that cause them.

    The record is torch's memory snapshot.
    """

    def __init__(self, device: str) -> None:
        """Start without a record."""
        self._device = device
        self._snapshot: Mapping[str, Any] = {}

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Record while the block runs."""
        torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS, device=self._device)  # noqa: SLF001 - as torch documents it
        try:
            yield
            torch.cuda.synchronize(self._device)
            self._snapshot = torch.cuda.memory._snapshot(self._device)  # noqa: SLF001 - likewise
        finally:
            torch.cuda.memory._record_memory_history(enabled=None, device=self._device)  # noqa: SLF001 - likewise

    def events(self) -> list[Mapping[str, Any]]:
        """Return the events, in order: each has `action`, `addr`, `size` (bytes) and `frames`."""
        index = torch.device(self._device).index or 0
        traces: Sequence[list[Mapping[str, Any]]] = self._snapshot.get("device_traces", ())
        return traces[index] if index < len(traces) else []

    def write(self, path: Path) -> None:
        """Write the events as JSON, one on each line, compressed (gzip).

        Torch's own file is a pickle.
        """
        events = self.events()
        with path.open("wb") as packed, gzip.open(packed, "wt", encoding="utf-8") as file:
            for number, event in enumerate(events):
                if packed.tell() > MOST_BYTES:
                    file.write(json.dumps({"left_out": len(events) - number}) + "\n")
                    break
                frames = [
                    f"{frame['filename']}:{frame['line']} {frame['name']}"
                    for frame in event.get("frames", ())
                ]
                fields = {
                    key: event[key] for key in ("action", "addr", "size", "time_us") if key in event
                }
                file.write(json.dumps({**fields, "frames": frames}) + "\n")


def sites_at_peak(events: Sequence[Mapping[str, Any]]) -> tuple[int, list[tuple[str, int]]]:
    """Return the peak of the allocated bytes, and the bytes of each source line at that peak.

    The lines with the most bytes come first.
    """
    alive: dict[int, tuple[str, int]] = {}
    allocated = peak = 0
    at_peak: dict[int, tuple[str, int]] = {}
    for event in events:
        if event["action"] == "alloc":
            alive[event["addr"]] = (_site(event.get("frames", ())), event["size"])
            allocated += event["size"]
        elif event["action"] == "free_completed" and event["addr"] in alive:
            allocated -= alive.pop(event["addr"])[1]
        if allocated > peak:
            peak, at_peak = allocated, dict(alive)
    totals: dict[str, int] = defaultdict(int)
    for site, size in at_peak.values():
        totals[site] += size
    return peak, sorted(totals.items(), key=lambda item: -item[1])


def told_sites(sites: Sequence[tuple[str, int]]) -> str:
    """List the largest lines: ``modeling_bert.py:312 12.0 MiB, …``."""
    shown = ", ".join(f"{site} {size / 2**20:.1f} MiB" for site, size in sites[:SHOWN_SITES])
    rest = len(sites) - SHOWN_SITES
    return f"{shown} and {rest} more lines" if rest > 0 else shown


def _site(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the innermost line that is the model's, as ``file.py:12``."""
    for frame in frames:
        name = str(frame["filename"])
        if name.endswith(".py") and not any(part in name for part in OWN_FRAMES):
            return f"{Path(name).name}:{frame['line']}"
    return "elsewhere"
