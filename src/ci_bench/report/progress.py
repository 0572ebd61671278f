"""Progress while measuring: a live bar on a terminal, one plain line per stage elsewhere.

Writes to the console it is given and nowhere else.
"""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from ci_bench.records.results import Event

DOING = {
    "prepare": "preparing data",
    "verify": "verifying",
    "seeds": "training over seeds",
    "time": "timing",
    "alone": "measuring alone",
    "run": "running",
}


class ProgressDisplay:
    """A context manager that is called with every event."""

    def __init__(self, console: Console) -> None:
        """`console` decides by itself whether it is a terminal."""
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
            expand=True,
            speed_estimate_period=600,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting: importing torch", total=None)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Stop drawing and leave the terminal as it was."""
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show where measuring is."""
        if self._console.is_terminal:
            inside = event.progress.done / max(1, event.progress.total) if event.progress and event.ended is None else 0.0
            self._bar.update(self._task, description=_describe(event), completed=event.done + inside, total=event.total)
        if event.ended is not None and (event.ended != "ok" or not self._console.is_terminal):
            line = f"[{event.done}/{event.total}] {event.case}: {_doing(event)}: {event.ended}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _describe(event: Event) -> str:
    """Which case, which launch, doing what, which arm, how many samples or steps: short enough for 80 columns."""
    doing = f"{DOING.get(event.stage, event.stage)} {'+'.join(event.arms)}"
    if event.progress:
        doing = f"{DOING.get(event.stage, event.stage)} {event.progress.arm} {event.progress.done}/{event.progress.total}"
    name = event.case.partition("[")[0].rpartition("/")[2]
    return escape(f"{name} {event.launch + 1}/{event.launches}: {doing}")


def _doing(event: Event) -> str:
    arms = f" ({', '.join(event.arms)})" if event.arms else ""
    return f"{DOING.get(event.stage, event.stage)}{arms}"
