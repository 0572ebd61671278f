"""Read a process's memory by its page tables: its own data, and pages of files it only reads."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ci_bench.processes.descendants import below

_PROC = Path("/proc/self")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its device is looked up, nothing is written
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs"})
_SHARED_NAMES = ("/memfd:", "/dev/", "/SYSV", "[", "anon_inode:")
"""Prefixes of mappings without a file on a disk.

From memfd_create(2), MAP_SHARED | MAP_ANONYMOUS, shmget(2).
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """The memory of a process, in bytes.

    `own` is its data: anonymous and huge pages, swapped ones too, shared memory, files mapped to be
    written, and memory that only its children hold. `file_backed` are the pages of all other files.
    """

    own: float
    file_backed: float


def read_held() -> Held | None:
    """Read this process's memory; `None` if the kernel does not report it."""
    kilobytes = read_kilobytes(_PROC / "smaps_rollup")
    if not {"Rss", "Anonymous", "Swap"} <= kilobytes.keys():
        return None
    unmapped, written = _read_files()
    shared = 1024.0 * read_kilobytes(_PROC / "status").get("RssShmem", 0)
    huge = kilobytes.get("Shared_Hugetlb", 0) + kilobytes.get("Private_Hugetlb", 0)
    private = 1024.0 * (kilobytes["Anonymous"] + kilobytes["Swap"] + huge)
    in_files = 1024.0 * (kilobytes["Rss"] - kilobytes["Anonymous"]) - shared - written
    return Held(
        own=private + shared + written + unmapped + _held_by_children(),
        file_backed=max(0.0, in_files),
    )


def _read_files() -> tuple[float, float]:
    """Return the bytes of open, unmapped shared memory, and of written mapped files.

    The files are on a disk and mapped to be written. Only an inspection of each mapping shows that,
    which takes long; usually none is needed.
    """
    opened = _open_shared_memory()
    try:
        maps = (_PROC / "maps").read_text(errors="replace")
        text = (
            (_PROC / "smaps").read_text(errors="replace")
            if opened or re.search(r" rw.s .* /", maps)
            else ""
        )
    except OSError:
        text = ""
    in_memory = _file_systems_in_memory() if text else frozenset()
    written = 0.0
    for mapping in _mappings(text):
        if mapping.file in opened:
            opened[mapping.file] = max(0.0, opened[mapping.file] - mapping.resident)
        elif (
            mapping.is_written
            and mapping.file[0] not in in_memory
            and not mapping.name.startswith(_SHARED_NAMES)
        ):
            written += mapping.resident
    return sum(opened.values()), written


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mapping:
    """One mapping of a file.

    `file` is its device and inode, `resident` its resident bytes; with `is_written`, writing
    changes the file.
    """

    file: tuple[int, int]
    name: str
    is_written: bool
    resident: float


def _mappings(text: str) -> Iterator[_Mapping]:
    """Yield the mappings of files in /proc/PID/smaps (proc(5))."""
    head: list[str] = []
    for line in text.splitlines():
        words = line.split(maxsplit=5)
        if words[0] == "Rss:" and len(head) > 5:  # noqa: PLR2004 - the sixth word is a name
            device = os.makedev(*(int(part, 16) for part in head[3].split(":")))
            written = head[1][1] == "w" and head[1][3] == "s"
            yield _Mapping(
                file=(device, int(head[4])),
                name=head[5],
                is_written=written,
                resident=1024.0 * int(words[1]),
            )
        elif not words[0].endswith(":"):
            head = words


def _file_systems_in_memory() -> frozenset[int]:
    """Return the devices of file systems without a disk, by /proc/PID/mountinfo (proc(5)).

    Their pages are shared memory.
    """
    devices = set()
    with suppress(OSError):
        for line in (_PROC / "mountinfo").read_text(errors="replace").splitlines():
            mount, _, kind = line.partition(" - ")
            if kind.partition(" ")[0] in _IN_MEMORY:
                devices.add(os.makedev(*map(int, mount.split()[2].split(":"))))
    return frozenset(devices)


def _open_shared_memory() -> dict[tuple[int, int], float]:
    """Return the bytes of each memfd and file of /dev/shm that this process has open.

    The keys are device and inode.
    """
    sizes: dict[tuple[int, int], float] = {}
    device = None
    with suppress(OSError):
        device = _SHARED_MEMORY.stat().st_dev
    for descriptor in (_PROC / "fd").glob("*"):
        with suppress(OSError):
            about = descriptor.stat()
            if stat.S_ISREG(about.st_mode) and (
                about.st_dev == device or str(descriptor.readlink()).startswith("/memfd:")
            ):
                sizes[about.st_dev, about.st_ino] = 512.0 * about.st_blocks
    return sizes


def _held_by_children() -> float:
    """Return the bytes that only child processes hold.

    Memory shared with this process already counts as its own.
    """
    total = 0.0
    for pid in below():
        kilobytes = read_kilobytes(Path("/proc", str(pid), "smaps_rollup"))
        total += 1024.0 * (kilobytes.get("Private_Dirty", 0) + kilobytes.get("Swap", 0))
    return total


def read_kilobytes(file: Path) -> dict[str, int]:
    """Read the amounts in a file of /proc, by name; empty if it cannot be read."""
    try:
        text = file.read_text()
    except OSError:
        return {}
    return {
        name: int(amount) for name, amount in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    }
