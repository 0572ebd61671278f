"""Read the machine's state while samples are taken.

The GPU is read through `gpus`, the host's CPUs through /proc and /sys. Runs in the parent, only
between blocks of samples: it opens no CUDA context and touches no worker. Values that cannot be
read are `None`. `health` judges what a reading means.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from ci_bench.host.energy import EnergyCount
from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import Gpu, GpuUnreachable
from ci_bench.host.health import (
    HealthReading,
    Seat,
    condition_facts,
    mean_sm_hz,
    processes,
    taint,
    uneven_clocks,
)
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import SM_CLOCK, MetricKind
from ci_bench.records.results import Lane, Launch, Metric

CPU_CLOCK = re.compile(
    r"^processor\s*:\s*(\d+)$(?:(?!^processor).)*?^cpu MHz\s*:\s*([\d.]+)$",
    re.MULTILINE | re.DOTALL,
)
STEAL = 7
"""The index of the time that the hypervisor gave to others in the first line of /proc/stat.

All fields before it are ours (proc_stat(5)).
"""


class Host:
    """The machine that this process runs on.

    Reading takes well under a millisecond on most machines.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Read proc and sys below `root`."""
        self._root = root

    def load_1min(self) -> float | None:
        """Return the load average of the last minute."""
        with suppress(OSError, ValueError, IndexError):
            return float(self._text("proc/loadavg").split()[0])
        return None

    def cpu_mhz(self) -> float | None:
        """Return the mean clock of the CPUs this process may use, as the kernel last saw it."""
        cpus = os.sched_getaffinity(0)
        clocks = [
            float(mhz)
            for number, mhz in CPU_CLOCK.findall(self._text("proc/cpuinfo"))
            if int(number) in cpus
        ]
        return sum(clocks) / len(clocks) if clocks else None

    def ticks(self) -> tuple[int | None, int | None]:
        """Return the time of all CPUs since boot, and the stolen part, in the kernel's ticks."""
        match = re.match(r"cpu +((?:\d+ ?){8,})", self._text("proc/stat"))
        if match is None:
            return None, None
        # Guests follow, which are in user and nice already.
        spent = [int(number) for number in match[1].split()][: STEAL + 1]
        return sum(spent), spent[STEAL]

    def throttled_s(self) -> float | None:
        """Return the seconds that a CPU quota has throttled this control group (version 2).

        `None` without a quota.
        """
        group = re.search(r"^0::/(.*)$", self._text("proc/self/cgroup"), re.MULTILINE)
        stat = self._text(f"sys/fs/cgroup/{group[1] if group else ''}/cpu.stat") or self._text(
            "sys/fs/cgroup/cpu.stat"
        )
        match = re.search(r"^throttled_usec (\d+)$", stat, re.MULTILINE)
        return int(match[1]) / 1e6 if match else None

    def energy_j(self) -> float | None:
        """Return the energy of all packages since some moment, by RAPL.

        `None` without RAPL, or if only root may read it. Each counter wraps at its own maximum: use
        differences, and discard negative ones.
        """
        zones = sorted((self._root / "sys/class/powercap").glob("intel-rapl:[0-9]*"))
        packages = [
            zone
            for zone in zones
            if self._text(f"sys/class/powercap/{zone.name}/name").startswith("package")
        ]
        counters = [
            self._text(f"sys/class/powercap/{zone.name}/energy_uj").strip() for zone in packages
        ]
        return (
            sum(map(int, counters)) / 1e6
            if counters and all(map(str.isdecimal, counters))
            else None
        )

    def involuntary_switches(self, pids: Iterable[int]) -> int | None:
        """Return how often threads of these processes were preempted; `None` if unreadable."""
        counts = [
            int(match[1])
            for pid in pids
            for status in self._threads(pid)
            if (match := re.search(r"^nonvoluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE))
        ]
        return sum(counts) if counts else None

    def _threads(self, pid: int) -> list[str]:
        with suppress(OSError):
            return [
                self._text(f"proc/{pid}/task/{entry.name}/status")
                for entry in (self._root / f"proc/{pid}/task").iterdir()
            ]
        return []

    def _text(self, path: str) -> str:
        with suppress(OSError):
            return (self._root / path).read_text(errors="replace")
        return ""


logger = logging.getLogger(__name__)

_NOTHING_SEEN = HealthReading(at_s=0.0)

SEEN: Mapping[MetricKind, Callable[[Sequence[HealthReading]], float | None]] = {
    SM_CLOCK: mean_sm_hz
}
"""The metrics from looks after turns, with the functions that reduce a block's looks at one arm."""


class Monitor:
    """Reads the machine's state. Not for use from several threads."""

    def __init__(
        self,
        gpu: Gpu | None,
        host: Host,
        *,
        note: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch a GPU and a host.

        `gpu` is `None` on the CPU, or if it cannot be reached; `note` is the reason then.
        """
        self._gpu, self._host, self._clock = gpu, host, clock
        self._vacant: frozenset[int] | None = None
        self._own: frozenset[int] | None = None
        self._readings: tuple[HealthReading, ...] = ()
        self._notes: dict[str, str] = {}
        self._held = ExitStack()
        if note:
            self._note("unreachable", note)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks about the readings for the reader, each once.

        They are logged as warnings, too.
        """
        return tuple(self._notes.values())

    def read(self, workers: Iterable[int] = ()) -> HealthReading:
        """Read the machine now.

        `workers` are the process ids, in this namespace, whose involuntary switches are counted.
        """
        host = self._host
        ticks, stolen_ticks = host.ticks()
        reading = HealthReading(
            at_s=self._clock(),
            load_1min=host.load_1min(),
            cpu_mhz=host.cpu_mhz(),
            ticks=ticks,
            stolen_ticks=stolen_ticks,
            throttled_s=host.throttled_s(),
            involuntary_switches=host.involuntary_switches(workers),
        )
        if self._gpu is not None:
            reading = replace(
                self._with_clocks(reading, self._gpu),
                power_w=self._gpu.power_w(),
                temperature_c=self._gpu.temperature_c(),
                thermal_s=self._gpu.thermal_s(),
                pids=self._gpu.pids(),
            )
        self._readings = (*self._readings[-1:], reading)
        return reading

    def glance(self) -> HealthReading:
        """Read the GPU's clocks and their limits, after each turn: the rest takes longer."""
        return (
            _NOTHING_SEEN
            if self._gpu is None
            else self._with_clocks(HealthReading(at_s=self._clock()), self._gpu)
        )

    @staticmethod
    def _with_clocks(reading: HealthReading, gpu: Gpu) -> HealthReading:
        """Read the clocks first: every question gives the GPU time to fall idle."""
        return replace(
            reading, sm_mhz=gpu.sm_mhz(), memory_mhz=gpu.memory_mhz(), reasons=gpu.reasons()
        )

    def near_cores(self) -> frozenset[int] | None:
        """Return the cores that are closest to the GPU."""
        return None if self._gpu is None else self._gpu.near_cores()

    def count(self) -> EnergyCount:
        """Read the counter of energy: the GPU's, or on the CPU that of all packages."""
        counter = self._host if self._gpu is None else self._gpu
        return EnergyCount(at_s=self._clock(), joules=counter.energy_j())

    def metrics(
        self, glances: Mapping[int, Sequence[HealthReading]], *, arm: str, launch: int
    ) -> tuple[Metric, ...]:
        """Return the metrics in `SEEN` of one arm, the mean of the looks in each block.

        Metrics without any reading are omitted.
        """
        metrics = []
        for kind, of in SEEN.items():
            means = {
                block: mean for block, looks in glances.items() if (mean := of(looks)) is not None
            }
            if means:
                series = Launch(launch=launch, values=tuple(means.values()), blocks=tuple(means))
                metrics.append(kind.of(arm, series, lane=Lane.DEVICE))
        return tuple(metrics)

    def vacate(self) -> None:
        """Call while none of our workers is on the GPU.

        Processes there now are foreign, and reported once.
        """
        self._vacant = self._gpu.pids() if self._gpu else None
        if self._vacant:
            self._note(
                "crowded",
                f"others use the GPU before measuring, {processes(self._vacant)}: they may affect"
                " the times",
            )

    def residents(self) -> frozenset[int] | None:
        """Call once all workers are warm: processes that appeared since `vacate` are ours.

        Returns the processes that may be there from now on (ours, and those that were there
        before), for `taint`; `None` if the driver does not list them. The driver may use the host's
        numbers while ours are the container's, so the two are never compared.
        """
        here = self._gpu.pids() if self._gpu else None
        if here is None or self._gpu is None:
            return None
        if self._vacant is not None and not here - self._vacant:
            self._note(
                "blind",
                "the driver does not list our own processes on the GPU, so it may miss other"
                " processes, too",
            )
        return here | (self._vacant or frozenset())

    def settle(self) -> None:
        """Mark all workers of a launch as warm: from now on `taint` counts new ones as foreign."""
        self._own = self.residents()

    def taint(self, before: HealthReading, after: HealthReading) -> str | None:
        """Return why samples between two readings must be taken again, or `None`."""
        return taint(before, after, self._own)

    def uneven(self, glances: Mapping[Seat, Sequence[HealthReading]]) -> str | None:
        """Describe different clocks of a block's sides after their turns, or return `None`."""
        return uneven_clocks(glances)

    def facts(self, reading: HealthReading) -> dict[str, Fact]:
        """Return a reading as facts.

        For the last one, also shares and counts since the one before it.
        """
        earlier = (
            self._readings[0] if len(self._readings) > 1 and reading is self._readings[-1] else None
        )
        return condition_facts(reading, since=earlier)

    def holding(self, stack: ExitStack) -> Self:
        """Return this monitor, which releases the lock on the device when it is closed.

        `stack` holds the lock.
        """
        self._held.push(stack)
        return self

    def close(self) -> None:
        """Release the GPU's library and the lock."""
        with self._held:
            if self._gpu:
                self._gpu.close()

    def _note(self, kind: str, note: str) -> None:
        if kind not in self._notes:
            self._notes[kind] = note
            logger.warning(note)


def open_monitor(
    device: str,
    gpu_uuid: str | None = None,
    *,
    open_gpu: Callable[[str], Gpu] = vendors.open_gpu,
    host: Host | None = None,
) -> Monitor:
    """Open the monitor of a device string, or of the identity's `device`.

    `gpu_uuid` is the condition's fact of that name.

    Never fails: if the GPU cannot be reached, the monitor reads only the host, taints nothing, and
    has a note with the reason.
    """
    host = host or Host()
    if not device.startswith("cuda"):
        return Monitor(None, host)
    try:
        return Monitor(open_gpu(gpu_uuid or ""), host)
    except GpuUnreachable as reason:
        return Monitor(
            None,
            host,
            note=f"{reason}: throttling and other processes on the GPU will not be noticed",
        )
