"""The host's CPUs as Linux tells of them in /proc and /sys. What cannot be read is `None`."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CPU_CLOCK = re.compile(r"^processor\s*:\s*(\d+)$(?:(?!^processor).)*?^cpu MHz\s*:\s*([\d.]+)$", re.MULTILINE | re.DOTALL)
STEAL = 7
"""Where the first line of /proc/stat has the time that the hypervisor gave to others; all before it is ours (proc_stat(5))."""


class Host:
    """The machine that this process runs on. Reading takes well under a millisecond on most machines."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where proc and sys are found."""
        self._root = root

    def load_1min(self) -> float | None:
        """The load average of the last minute."""
        with suppress(OSError, ValueError, IndexError):
            return float(self._text("proc/loadavg").split()[0])
        return None

    def cpu_mhz(self) -> float | None:
        """The mean clock of the CPUs this process may use, as the kernel last saw it."""
        cpus = os.sched_getaffinity(0)
        clocks = [float(mhz) for number, mhz in CPU_CLOCK.findall(self._text("proc/cpuinfo")) if int(number) in cpus]
        return sum(clocks) / len(clocks) if clocks else None

    def ticks(self) -> tuple[int | None, int | None]:
        """The time of all CPUs since boot, and what was stolen of it, in the kernel's ticks."""
        found = re.match(r"cpu +((?:\d+ ?){8,})", self._text("proc/stat"))
        if found is None:
            return None, None
        spent = [int(number) for number in found[1].split()][: STEAL + 1]  # guests follow, who are in user and nice already
        return sum(spent), spent[STEAL]

    def throttled_s(self) -> float | None:
        """For how many seconds a CPU quota has held this control group (version 2); `None` where there is no quota."""
        group = re.search(r"^0::/(.*)$", self._text("proc/self/cgroup"), re.MULTILINE)
        stat = self._text(f"sys/fs/cgroup/{group[1] if group else ''}/cpu.stat") or self._text("sys/fs/cgroup/cpu.stat")
        found = re.search(r"^throttled_usec (\d+)$", stat, re.MULTILINE)
        return int(found[1]) / 1e6 if found else None

    def involuntary_switches(self, pids: Iterable[int]) -> int | None:
        """How often these processes' threads were taken off a CPU, while they wanted to go on; `None` where none can be read."""
        told = [
            int(found[1])
            for pid in pids
            for status in self._threads(pid)
            if (found := re.search(r"^nonvoluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE))
        ]
        return sum(told) if told else None

    def _threads(self, pid: int) -> list[str]:
        with suppress(OSError):
            return [self._text(f"proc/{pid}/task/{entry.name}/status") for entry in (self._root / f"proc/{pid}/task").iterdir()]
        return []

    def _text(self, path: str) -> str:
        with suppress(OSError):
            return (self._root / path).read_text(errors="replace")
        return ""
