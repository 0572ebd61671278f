"""Progress while measuring: a live bar on a terminal, one plain line per stage elsewhere.

A line says how long it has taken so far, which stage of about how many (a paired run takes as many
as its verdicts need), how long it will take, and whose code was measured. Writes to the console it
is given and nowhere else.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.table import Column

from ci_bench.records.events import Event
from ci_bench.records.labels import DOING

_MINUTE_S, _HOUR_S = 60, 3600


class ProgressDisplay:
    """A context manager that is called with every event.

    `usual_s` is how long a run of the same cases took before.

    Its clock starts with the first event: waiting for the device does not count.
    """

    def __init__(
        self,
        console: Console,
        *,
        usual_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the bar; `console` detects whether it is a terminal."""
        self._console, self._usual_s, self._clock = console, usual_s, clock
        self._began_s: float | None = None
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn(
                "{task.description}",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting: importing torch", total=None, left="")

    def __enter__(self) -> Self:
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing and leave the terminal as it was."""
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show the present stage."""
        if self._began_s is None:
            self._began_s = self._clock()
            if self._usual_s is not None:
                self._say(f"measuring: about {_span(self._usual_s)}, as the previous run took")
        if self._console.is_terminal:
            inside = (
                event.progress.done / max(1, event.progress.total)
                if event.progress and event.ended is None
                else 0.0
            )
            done, description = event.done + inside, _describe(event)
            self._bar.update(
                self._task,
                completed=done,
                total=event.total,
                description=description,
                left=self._describe_time_left(event),
            )
        if event.ended is not None and (event.ended != "ok" or not self._console.is_terminal):
            self._say(f"[{self._where(event)}] {event.case}: {_doing(event)}: {event.ended}")

    def _where(self, event: Event) -> str:
        """Return elapsed time, stages and time left: ``1:12, 7 of about 24, 3:20 left``.

        The time left follows from the previous run, else from the stages so far.
        """
        parts = [
            _span(self._spent_s()),
            f"{event.done} of about {event.total}",
            self._describe_time_left(event),
        ]
        return ", ".join(part for part in parts if part)

    def _describe_time_left(self, event: Event) -> str:
        """Describe the time left: ``about 3:20 left``.

        It is empty if that is unknown, or if nothing is left.
        """
        left_s = event.left_s if self._usual_s is None else self._usual_s - self._spent_s()
        is_known = left_s is not None and left_s > 0 and event.done < event.total
        return f"about {_span(left_s)} left" if is_known and left_s is not None else ""

    def _spent_s(self) -> float:
        return 0.0 if self._began_s is None else self._clock() - self._began_s

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _span(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds: ``0:07``, ``12:40``, ``1:02:05``."""
    total_s = max(0, round(seconds))
    minutes = (
        f"{total_s % _HOUR_S // _MINUTE_S:02}" if total_s >= _HOUR_S else f"{total_s // _MINUTE_S}"
    )
    return (
        f"{total_s // _HOUR_S}:{minutes}:{total_s % _MINUTE_S:02}"
        if total_s >= _HOUR_S
        else f"{minutes}:{total_s % _MINUTE_S:02}"
    )


def _describe(event: Event) -> str:
    """Describe case, launch, activity, arm, and samples or steps: short enough for 80 columns."""
    doing = f"{DOING.get(event.stage, event.stage)} {'+'.join(event.arms)}"
    if event.progress:
        doing = (
            f"{DOING.get(event.stage, event.stage)} {event.progress.arm}"
            f" {event.progress.done}/{event.progress.total}"
        )
    name = event.case.partition("[")[0].rpartition("/")[2]
    return escape(f"{name} {event.launch + 1}/{event.launches}: {doing}{_whose(event)}")


def _doing(event: Event) -> str:
    arms = f" ({', '.join(event.arms)})" if event.arms else ""
    return f"launch {event.launch + 1}, {DOING.get(event.stage, event.stage)}{arms}{_whose(event)}"


def _whose(event: Event) -> str:
    """Name the side, if there are two: `` of base``, `` of base and head``."""
    return f" of {' and '.join(event.sides)}" if event.sides else ""
