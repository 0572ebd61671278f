"""Run the sections of `ci-bench doctor --gpu` in separate processes; report a table and a document.

Owns the time limits of all processes, and the device's lock meanwhile; imports no torch.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Self

from ci_bench.diagnostics.gpu_check.sections import (
    SECTIONS,
    UNCHANGED,
    Figures,
    Section,
    SectionResult,
)
from ci_bench.host.gpus import vendors
from ci_bench.host.lock import device_lock, gpu_key
from ci_bench.processes.environ import worker_environment
from ci_bench.processes.launch import UNTOUCHED
from ci_bench.records.results import Outcome

if TYPE_CHECKING:
    from rich.console import Console

DEVICE = SECTIONS[0]
SERVE = (sys.executable, "-m", "ci_bench.diagnostics.gpu_check.serve")
START_S = 120.0
"""torch may come from a cold disk."""
GRACE_S = 15.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRow:
    """The result of one section. `figures` is empty if it failed, for the reason in `found`."""

    section: Section
    found: SectionResult
    seconds: float = 0.0
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCheck:
    """One pass over the requested sections, on one device."""

    device: str
    """The torch device to check, such as ``cuda:0``."""
    environ: Mapping[str, str]
    """The environment of the process with torch, before it is restricted."""
    lock_s: float
    """The longest wait for the device's lock, in seconds."""
    measure_unchanged: Callable[[], Figures]
    """Runs the whole engine on unchanged code and returns the figures."""
    observe: Callable[[Section], None]
    """Called before each section."""
    starting: Callable[[float], None] | None = None
    """Called before torch is imported with the seconds it may take; or `None`."""
    serve: Sequence[str] = SERVE
    """The command of the process that serves probes, without the device."""
    start_s: float = START_S
    """The time that this process may take to start, in seconds."""
    grace_s: float = GRACE_S
    """The wait for a section's answer beyond its own limit, in seconds."""

    def rows(self, sections: Sequence[Section]) -> Iterator[CheckRow]:
        """Yield each section's row, as soon as it is known.

        The device comes first, requested or not: its identity names its lock.

        Raises:
            DeviceBusy: another run measures on it for longer than `lock_s`.
        """
        by_name = {section.name: section for section in sections}
        with _Probing(self) as probing:
            first = self._probed(probing, by_name.get(DEVICE.name, DEVICE))
            if DEVICE.name in by_name:
                yield first
            with self._lock_device(first):
                for section in sections:
                    if section.name not in {DEVICE.name, UNCHANGED.name}:
                        yield self._probed(probing, section)
        if UNCHANGED.name in by_name:
            self.observe(UNCHANGED)
            begun = time.monotonic()
            try:
                answer: Mapping[str, Any] = {"figures": self.measure_unchanged()}
            except Exception as error:  # noqa: BLE001 - any error is this section's result
                answer = {"error": f"{type(error).__name__}: {error}"}
            yield _row(UNCHANGED, {**answer, "seconds": round(time.monotonic() - begun, 3)})

    def _probed(self, probing: "_Probing", section: Section) -> CheckRow:
        self.observe(section)
        return _row(section, probing.ask(section))

    def _lock_device(self, first: CheckRow) -> AbstractContextManager[None]:
        uuid = first.figures.get("uuid")
        if not uuid:
            return nullcontext()
        return device_lock(gpu_key(str(uuid), vendors.look()), limit_s=self.lock_s, run="gpu-check")


class _Probing:
    """The process that serves probes.

    If it falls silent it is ended, and a new one serves the next section.
    """

    def __init__(self, check: GpuCheck) -> None:
        self._check = check
        self._serving: subprocess.Popen[bytes] | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed where it ends; a pipe could fill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._words.close()

    def ask(self, section: Section) -> Mapping[str, Any]:
        """Return the answer for a section.

        If torch has to be imported first, that is announced and has a separate limit.
        """
        if self._serving is None and (error := self._start()):
            return {"error": error}
        assert self._serving is not None  # noqa: S101 - it was started
        assert self._serving.stdin is not None  # noqa: S101 - it is a pipe
        assert self._serving.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._serving.stdin.write(f"{section.name} {section.limit_s}\n".encode())
            self._serving.stdin.flush()
        answer = _line_within(self._serving.stdout, section.limit_s + self._check.grace_s)
        if answer is None:
            last = self._end()
            return {"error": f"it sent no answer{': ' if last else ''}{last}"}
        return answer

    def _start(self) -> str:
        """Start the process that has torch; return why it cannot be used, empty if it can."""
        if self._check.starting is not None:
            self._check.starting(self._check.start_s)
        self._serving = subprocess.Popen(
            [*self._check.serve, self._check.device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={UNTOUCHED: "1", **worker_environment(self._check.environ)},
            start_new_session=True,
        )
        assert self._serving.stdout is not None  # noqa: S101 - it is a pipe
        begun = time.monotonic()
        if _line_within(self._serving.stdout, self._check.start_s) is not None:
            return ""
        waited_s, last = time.monotonic() - begun, self._end()
        words = "torch could not be imported"
        if waited_s >= self._check.start_s:
            words = (
                f"torch was not imported within {self._check.start_s:g} s: a cold or slow disk? Run"
                " it again"
            )
        return f"{words}{': ' if last else ''}{last}"

    def _end(self) -> str:
        """End it, if it runs; return its last words."""
        serving, self._serving = self._serving, None
        if serving is None:
            return ""
        with suppress(ProcessLookupError):
            os.killpg(serving.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):
            serving.communicate()
        self._words.seek(0)
        last = self._words.read().decode(errors="replace").strip().splitlines()[-1:]
        self._words.seek(0)
        self._words.truncate()
        return "".join(last)


def _line_within(stream: IO[bytes], seconds: float) -> Mapping[str, Any] | None:
    """Return the next line's answer.

    `None` if none came in time, none can come, or it is not an answer.
    """
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        if not waiting.select(seconds):
            return None
    try:
        answer = json.loads(stream.readline(1 << 21))
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _row(section: Section, answer: Mapping[str, Any]) -> CheckRow:
    """Return a section's row; wrong figures make it fail."""
    seconds, figures = float(answer.get("seconds", 0.0)), answer.get("figures")
    if not isinstance(figures, Mapping):
        result = SectionResult(
            outcome=Outcome.FAIL, found=str(answer.get("error", "it reported nothing"))
        )
        return CheckRow(section=section, found=result, seconds=seconds)
    try:
        result = section.judge(figures)
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        result = SectionResult(
            outcome=Outcome.FAIL,
            found=f"its figures are incomplete ({type(error).__name__}: {error})",
        )
    return CheckRow(section=section, found=result, seconds=seconds, figures=figures)


def passed(rows: Sequence[CheckRow]) -> bool:
    """Return whether the card has no fault."""
    return bool(rows) and all(row.found.outcome is not Outcome.FAIL for row in rows)


def document(
    rows: Sequence[CheckRow], *, device: str, tool_version: str, started_at: str
) -> dict[str, Any]:
    """Return a document to attach to an issue; its schema is schemas/gpu-check.json."""
    sections = [
        {
            "name": row.section.name,
            "asks": row.section.asks,
            "outcome": str(row.found.outcome),
            "seconds": row.seconds,
            "found": row.found.found,
            "means": row.found.means,
            "figures": dict(row.figures),
        }
        for row in rows
    ]
    head = {
        "kind": "gpu-check",
        "schema_version": 1,
        "tool_version": tool_version,
        "started_at": started_at,
        "device": device,
    }
    return {**head, "passed": passed(rows), "sections": sections}


def render(rows: Sequence[CheckRow], console: "Console") -> None:
    """Print the figures and their meaning."""
    from rich.table import Table
    from rich.text import Text

    marks = {
        Outcome.PASS: Text("✓", "green"),
        Outcome.UNKNOWN: Text("?", "yellow"),
        Outcome.FAIL: Text("✗", "red"),
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in rows:
        table.add_row(marks[row.found.outcome], Text(row.section.name), Text(row.found.found))
        if row.found.means:
            table.add_row(
                "",
                "",
                Text(
                    f"→ {row.found.means}",
                    "bold" if row.found.outcome is not Outcome.PASS else "dim",
                ),
            )
    console.print(table)
    wrong = [row.section.name for row in rows if row.found.outcome is Outcome.FAIL]
    console.print(
        f"Wrong on this card: {', '.join(wrong)}." if wrong else "Nothing is wrong with this card."
    )
