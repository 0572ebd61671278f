"""Instruction counts of a command: by `perf stat` or by Valgrind's callgrind, untimed, on the CPU.

Both count instructions in user mode, of the command and of all processes that it starts. perf uses
the processor's own counter, which few virtual machines have. callgrind runs the program in a
simulator, about a hundred times slower. Nothing else on the machine moves the number, so it shows
changes that are too small for a clock. Threads that wait in loops, and hashes with random seeds, do
move it. That shows in a second run, and such a command is not counted.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.suites.command import INSTRUCTIONS
from ci_bench.suites.command.options import Counting
from ci_bench.suites.command.process import CommandPlace, run
from ci_bench.suites.contract import NotMeasured

RUNS = 2
REPEATS = (INSTRUCTIONS.threshold or 0.0) / 2
"""The largest difference between two runs of the same command: half of a change that counts."""
EVENT = "instructions:u"
PROBE_S = 20.0
LINE = 200
TOOLS: Mapping[Counting, tuple[Counting, ...]] = {
    Counting.NEVER: (),
    Counting.AUTO: (Counting.PERF, Counting.CALLGRIND),
    Counting.PERF: (Counting.PERF,),
    Counting.CALLGRIND: (Counting.CALLGRIND,),
}
"""The counters tried for each setting, in this order."""


class NotCounted(Exception):  # noqa: N818 - it explains a missing number, which fails nothing
    """Instructions of a command cannot be counted; the message gives the reason and a remedy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """The instructions of one run, and the tool that counted them."""

    instructions: int
    tool: Counting


def count(
    argv: Sequence[str],
    place: CommandPlace,
    *,
    setting: Counting,
    timeout_s: float,
    exit_codes: Sequence[int],
) -> Count:
    """Count a command's instructions in two runs, and return the lower count.

    The first requested tool that works here counts.

    Raises:
        NotCounted: no tool works here, the command fails or is late under it, or its runs differ.
    """
    lacking = []
    for tool in TOOLS[setting]:
        counter = _COUNTERS[tool]
        if reason := counter.lacking(place):
            lacking.append(f"{tool}: {reason}")
            continue
        counts = [counter.count(argv, place, timeout_s, exit_codes) for _ in range(RUNS)]
        if max(counts) > min(counts) * (1 + REPEATS):
            difference = max(counts) / max(min(counts), 1) - 1
            raise NotCounted(
                f"{tool} counts {min(counts):,} and {max(counts):,} instructions in two runs"
                f" of the same code, {difference:.1%} apart; {REPEATS:.1%} is allowed: run one"
                " thread, and seed what is drawn"
            )
        return Count(instructions=min(counts), tool=tool)
    raise NotCounted("; ".join(lacking))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counter:
    """A tool: why it cannot count here (empty if it can), and the instructions of one run."""

    lacking: Callable[[CommandPlace], str]
    count: Callable[[Sequence[str], CommandPlace, float, Sequence[int]], int]


def _lacks_perf(place: CommandPlace) -> str:
    """Return why perf cannot count, empty if it can. The command succeeds either way."""
    if not _is_installed("perf", place):
        return "it is not installed"
    report_file = place.folder / "perf"
    try:
        command = [*_perf(report_file), "true"]
        ended = subprocess.run(
            command, env=place.environ, capture_output=True, text=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if ended.returncode:
        complaint = next((line.strip() for line in ended.stderr.splitlines() if line.strip()), "")
        return (
            f"it may not count here ({complaint[:LINE] or f'exit code {ended.returncode}'}); see"
            " kernel.perf_event_paranoid"
        )
    try:
        read_perf(report_file.read_text(errors="replace"))
    except NotCounted as error:
        return str(error)
    return ""


def _by_perf(
    argv: Sequence[str], place: CommandPlace, timeout_s: float, exit_codes: Sequence[int]
) -> int:
    report_file = place.folder / "perf"
    report_file.unlink(missing_ok=True)
    _run(Counting.PERF, [*_perf(report_file), *argv], place, timeout_s, exit_codes)
    return read_perf(report_file.read_text(errors="replace") if report_file.exists() else "")


def _perf(report_file: Path) -> tuple[str, ...]:
    """Return the start of a perf command that writes comma-separated fields to a file.

    The command's own output is untouched (perf-stat(1)).
    """
    return ("perf", "stat", "-x,", "-e", EVENT, "-o", str(report_file), "--")


def read_perf(text: str) -> int:
    """Read the instructions from the output of ``perf stat -x,``.

    Processors with two kinds of cores have a line for each kind.

    Raises:
        NotCounted: the number is missing.
    """
    rows = [
        line.split(",")
        for line in text.splitlines()
        if "instructions" in line and not line.startswith("#")
    ]
    numbers = [int(row[0]) for row in rows if row[0].isdecimal()]
    if not numbers:
        counter_field = rows[0][0] if rows else "nothing"
        raise NotCounted(
            f"the processor's counter is out of reach ({counter_field}), as in most virtual"
            " machines"
        )
    return sum(numbers)


def _lacks_valgrind(place: CommandPlace) -> str:
    return "" if _is_installed("valgrind", place) else "valgrind is not installed"


def _by_callgrind(
    argv: Sequence[str], place: CommandPlace, timeout_s: float, exit_codes: Sequence[int]
) -> int:
    folder = place.folder / "callgrind"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files = (f"--callgrind-out-file={folder}/counts.%p", f"--log-file={folder}/log.%p")
    _run(
        Counting.CALLGRIND,
        ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", *files, *argv],
        place,
        timeout_s,
        exit_codes,
    )
    instructions = sum(
        read_callgrind(path.read_text(errors="replace")) for path in folder.glob("counts.*")
    )
    shutil.rmtree(folder, ignore_errors=True)
    if not instructions:
        raise NotCounted(
            "callgrind wrote no count; a program that is linked statically or runs as another user"
            " has none"
        )
    return instructions


def read_callgrind(text: str) -> int:
    """Read one process's instructions from callgrind's file: ``totals``, first event (``Ir``)."""
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("totals: "))


def _is_installed(program: str, place: CommandPlace) -> bool:
    return shutil.which(program, path=place.environ.get("PATH")) is not None


def _run(
    tool: Counting,
    argv: Sequence[str],
    place: CommandPlace,
    timeout_s: float,
    exit_codes: Sequence[int],
) -> None:
    """Run the command under a tool. Python's hashes stay the same unless the entry sets them."""
    quiet = replace(place, environ={"PYTHONHASHSEED": "0", **place.environ})
    try:
        run(argv, quiet, timeout_s=timeout_s, exit_codes=exit_codes)
    except NotMeasured as error:
        raise NotCounted(f"under {tool} {error}") from error


_COUNTERS: Mapping[Counting, _Counter] = {
    Counting.PERF: _Counter(lacking=_lacks_perf, count=_by_perf),
    Counting.CALLGRIND: _Counter(lacking=_lacks_valgrind, count=_by_callgrind),
}
