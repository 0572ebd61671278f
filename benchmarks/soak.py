"""Runs, compares and reports small cases repeatedly in one process, and watches for growth.

``python -m benchmarks.soak --minutes 120 --json soak.json``

A cycle measures one command, compares it with the previous run as a gate does, compares the two
documents again, reports and converts them, like a long-lived user of the package, with its
commands. Observed after each cycle are resident memory, open files, threads and children of this
process, processes that carry the run's folder, and files in its temporary folder. Growth is the
change from the second tenth of the cycles to the last, by medians; the first tenth fills caches.

Exit code 1: there is a leftover after some cycle, more open files at the end, or memory grew by
more than 5 %.
"""

import argparse
import contextlib
import io
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench import cli
from ci_bench.errors import ExitCode

CONFIG = """schema_version: 1
run: {device: cpu, launches: 1, blocks: 2, sample_s: 0.001, warmup_s: 0.05, stage_timeout_s: 60}
suites:
  command:
    - {name: nothing, command: "true"}
policy: {severities: {regressed: note, common_shift: note, inconclusive: note, \
baseline_missing: note, case_removed: note}}
"""
MOST_GROWTH = 0.05
FEWEST = 20
"""Cycles below which a tenth is too few to tell anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """This process after a cycle."""

    resident_bytes: int
    """The resident memory of this process."""
    open_files: int
    """The number of its open descriptors."""
    threads: int
    """The number of its Python threads."""
    children: int
    """The number of its child processes."""
    marked_processes: int
    """The number of processes that carry the run's folder in their environment."""
    temporary_files: int
    """The number of files and folders below the run's folder."""


def look(folder: Path) -> State:
    """Return the present state; `folder` is for temporary files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return State(
        resident_bytes=pages * os.sysconf("SC_PAGESIZE"),
        open_files=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        children=sum(_parent(stat) == os.getpid() for stat in Path("/proc").glob("[0-9]*/stat")),
        marked_processes=sum(1 for _ in _carrying(os.fsencode(folder))),
        temporary_files=sum(1 for _ in folder.rglob("*")),
    )


def _parent(stat: Path) -> int:
    with contextlib.suppress(OSError):
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


def _carrying(text: bytes) -> Iterator[Path]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if text in path.read_bytes() and int(path.parent.name) != os.getpid():
                yield path


def cycle(folder: Path) -> None:
    """Measure, gate against the previous run, compare, report, convert.

    Raises:
        RuntimeError: a command failed.
    """
    results, before = folder / "out" / "results.json", folder / "before" / "results.json"
    gate = (
        "gate",
        "--config",
        folder / "ci-bench.yml",
        "--output",
        folder / "out",
        "--baseline",
        before,
        "--save-baseline",
    )
    for command in (
        gate,
        (
            "compare",
            before,
            results,
            "--config",
            folder / "ci-bench.yml",
            "--output",
            folder / "compared",
            "--format",
            "comment",
        ),
        ("show", folder / "compared" / "comparison.json", "--format", "markdown"),
        ("convert", results, "--to", "pyperf", "--output", folder / "pyperf.json"),
        ("validate", results),
    ):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = cli.main([str(part) for part in command])
        if code != ExitCode.OK:
            raise RuntimeError(f"{command[0]} ended with {code}: {output.getvalue()[-2000:]}")


def growth(states: Sequence[State]) -> Mapping[str, tuple[float, float]]:
    """Return medians of each field over the second and the last tenth of the cycles."""
    tenth = max(len(states) // 10, 1)
    early, late = states[tenth : 2 * tenth], states[-tenth:]
    names = [field.name for field in fields(State)]
    return {
        name: tuple(
            statistics.median(getattr(state, name) for state in part) for part in (early, late)
        )
        for name in names
    }


def faults(states: Sequence[State]) -> list[str]:
    """Return complaints about leftovers and growth."""
    medians = growth(states)
    complaints = [
        f"{name}: {most} after a cycle"
        for name in ("children", "marked_processes")
        if (most := max(getattr(x, name) for x in states))
    ]
    complaints += [
        f"{name} grew from {early:g} to {late:g}"
        for name in ("open_files", "threads", "temporary_files")
        for early, late in (medians[name],)
        if late > early
    ]
    early, late = medians["resident_bytes"]
    return complaints + (
        [f"memory grew by {late / early - 1:.1%}"] if late > early * (1 + MOST_GROWTH) else []
    )


def soak(minutes: float, folder: Path) -> list[State]:
    """Run cycles for so many minutes; temporary files go below `folder`."""
    (folder / "tmp").mkdir()
    (folder / "work").mkdir()
    (folder / "work" / "ci-bench.yml").write_text(CONFIG)
    os.environ.update(TMPDIR=str(folder / "tmp"), CI_BENCH_LOCKS=str(folder / "locks"))
    tempfile.tempdir = None
    states: list[State] = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end or len(states) < FEWEST:
        cycle(folder / "work")
        states.append(look(folder / "tmp"))
    return states


def main(argv: Sequence[str] | None = None) -> int:
    """Soak, print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        states = soak(arguments.minutes, Path(folder))
    spent_min = (time.monotonic() - began) / 60
    rows = [
        {
            "after a cycle": name,
            "second tenth": f"{early:,.0f}",
            "last tenth": f"{late:,.0f}",
            "change": f"{late - early:+,.0f}",
        }
        for name, (early, late) in growth(states).items()
    ]
    complaints = faults(states)
    title = (
        f"{len(states)} cycles in {spent_min:.1f} minutes:"
        f" {'; '.join(complaints) or 'nothing grew, nothing was left'}"
    )
    document = {
        "minutes": spent_min,
        "cycles": len(states),
        "faults": complaints,
        "states": [asdict(state) for state in states[:: max(len(states) // 50, 1)]],
    }
    publish(render(title, rows), document, arguments.json)
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
