"""Find the cores and memory, of machine or container, that one side's work leaves free.

Stages that are not timed may run on base and head simultaneously if both fit. On the CPU,
compilations may too, each side on separate cores. `stages` asks this module whether they fit.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ci_bench.records.config import RunOptions

CGROUP = Path("/sys/fs/cgroup")
DEVICES = Path("/sys/devices")
MEMORY = Path("/proc/meminfo")
LEFT = 0.5
"""The share of initially free memory that must stay free while two sides work.

Either side may need that much.
"""


def cores(cgroup: Path = CGROUP) -> int:
    """Return the number of usable cores, by affinity and the container's quota (cgroup v2)."""
    allowed = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    return allowed


def available_bytes(memory: Path = MEMORY, cgroup: Path = CGROUP) -> int | None:
    """Return the memory available without swapping (machine and container); `None` if unknown."""
    amounts = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(
            line for line in memory.read_text().splitlines() if line.startswith("MemAvailable:")
        )
        amounts.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError, StopIteration):
        limit, used = (
            int((cgroup / "memory.max").read_text()),
            int((cgroup / "memory.current").read_text()),
        )
        stat = (cgroup / "memory.stat").read_text().splitlines()
        reclaimable = next(
            int(line.split()[1]) for line in stat if line.startswith("inactive_file ")
        )
        amounts.append(max(0, limit - used + reclaimable))
    return min(amounts, default=None)


def total_bytes(memory: Path = MEMORY, cgroup: Path = CGROUP) -> int | None:
    """Return this machine's memory, or its container's limit; `None` if unknown."""
    amounts = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(
            line for line in memory.read_text().splitlines() if line.startswith("MemTotal:")
        )
        amounts.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        amounts.append(int((cgroup / "memory.max").read_text()))
    return min(amounts, default=None)


def has_cores_for_two(options: RunOptions, *, device: str) -> bool:
    """Return whether two sides may work simultaneously.

    On a GPU each needs one core, on the CPU its threads.
    """
    each = 1 if device.startswith("cuda") else options.threads
    return each is not None and cores() >= 2 * each


def allowed_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def fastest_cores(devices: Path = DEVICES) -> tuple[int, ...]:
    """Return the cores of the fastest kind, if a machine has two.

    Kinds differ by capacity, or by Intel's own list.
    """
    allowed = allowed_cores()
    with suppress(OSError, ValueError):
        capacity = {
            core: int((devices / f"system/cpu/cpu{core}/cpu_capacity").read_text())
            for core in allowed
        }
        return tuple(core for core in allowed if capacity[core] == max(capacity.values()))
    with suppress(OSError, ValueError):
        bounds = [
            part.partition("-")
            for part in (devices / "cpu_core/cpus").read_text().strip().split(",")
        ]
        fast_cores = {
            core for first, _, last in bounds for core in range(int(first), int(last or first) + 1)
        }
        return tuple(core for core in allowed if core in fast_cores) or allowed
    return allowed


def cores_near(near: frozenset[int] | None) -> tuple[int, ...]:
    """Return the fastest cores that are near the GPU.

    All fastest ones without a GPU, or if none of them is near.
    """
    fastest = fastest_cores()
    return tuple(core for core in fastest if near is not None and core in near) or fastest


def shares_of_cores(sides: int) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of each side's separate cores, equally many for each; empty if too few."""
    allowed, each = allowed_cores(), cores() // sides
    return (
        tuple(tuple(allowed[each * side : each * (side + 1)]) for side in range(sides))
        if each
        else ()
    )


@dataclass(slots=True)
class Headroom:
    """Memory while two sides work, from what was `free` before (bytes; `None` is unknown)."""

    free: int | None = field(default_factory=available_bytes)

    def is_short(self) -> bool:
        """Return whether memory is so short that one side should wait; never if it is unknown."""
        available = available_bytes()
        return self.free is not None and available is not None and available < LEFT * self.free
