"""Progress while measuring: a live bar on a terminal, one plain line per stage elsewhere.

Writes to the console it is given and nowhere else.
"""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ci_bench.records.progress import Event

DOING = {
    "prepare": "preparing data",
    "verify": "checking loss parity",
    "time": "timing in turns",
    "alone": "measuring alone",
}


class ProgressDisplay:
    """A context manager that is called with every event."""

    def __init__(self, console: Console) -> None:
        """`console` decides by itself whether it is a terminal."""
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
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
    from rich.markup import escape

    name = event.case.partition("[")[0]
    counted = f" {event.progress.arm} {event.progress.done}/{event.progress.total}" if event.progress else ""
    return escape(f"{name} · launch {event.launch + 1}/{event.launches} · {_doing(event)}{counted}")


def _doing(event: Event) -> str:
    arms = f" ({', '.join(event.arms)})" if event.arms else ""
    return f"{DOING.get(event.stage, event.stage)}{arms}"
