"""Alarms: lines whose level is worse than it was, by severity, and the issue's text about them.

Pure.

The text is GitHub's Markdown; every name in it may be a stranger's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ci_bench.history.lines import HistoryLine
from ci_bench.judge.times.trend import Move
from ci_bench.judge.wording import count_of, percent, quantity
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.units import worse_and_better
from ci_bench.report.text import code, plain

SHOWN = 30
_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A line that got worse, with the move that made it so and the policy's severity.

    `confirmed` describes the result of a paired run of the neighbouring commits; `None` if there
    was none.
    """

    line: HistoryLine
    move: Move
    severity: Severity
    confirmed: str | None = None

    @property
    def commits(self) -> tuple[str | None, str | None]:
        """Return the last measured commit before the move, and the first after its end."""
        before, after = self.line.between(self.move)
        return before.commit, after.commit

    @property
    def text(self) -> str:
        """Return ``fake/one step time (eager): 2.1 % slower, 10 ms → 10.2 ms``."""
        points = self.line.points
        levels = (
            f"{quantity(self.move.before, points.unit)} → {quantity(self.move.after, points.unit)}"
        )
        size = percent(self.move.worse) if self.move.worse != float("inf") else "from nothing"
        pace = f", drifting {drift_pace(self.move)}" if self.move.until is not None else ""
        return (
            f"{self.line.called}: {size} {worse_and_better(points.unit, points.better)[0]}{pace},"
            f" {levels}"
        )

    @property
    def where(self) -> str:
        """Return the range of commits of the change."""
        before, after = self.commits
        slowly = "little by little " if self.move.until is not None else ""
        if before is None or after is None:
            runs = self.line.between(self.move)
            return f"{slowly}between the runs of {runs[0].at} and {runs[1].at}"
        return f"{slowly}after {before[:_SHORT]}, up to {after[:_SHORT]}"


def drift_pace(move: Move) -> str:
    """Describe a drift: ``0.3 % a run over 40 runs``.

    A drift that starts at zero has no share.
    """
    over = f"over {count_of(move.runs, 'run')}"
    return f"{percent(move.per_run)} a run {over}" if math.isfinite(move.per_run) else over


def alarms_of(lines: Sequence[HistoryLine], policy: Policy) -> tuple[Alarm, ...]:
    """Return the open moves for the worse, by severity, then by size.

    Details of a case count as well.
    """
    alarms = [
        Alarm(
            line=line,
            move=line.trend.alarm,
            severity=policy.severity(Rule.REGRESSED, suite=line.points.suite),
        )
        for line in lines
        if line.trend.alarm is not None
    ]
    order = [Severity.FAIL, Severity.WARN, Severity.NOTE]
    return tuple(
        sorted(
            alarms,
            key=lambda alarm: (order.index(alarm.severity), -alarm.move.worse, alarm.line.name),
        )
    )


def told(alarms: Sequence[Alarm], *, lines: int, runs: int) -> str:
    """Return the text of `history check`, one line for each alarm."""
    span = f"{count_of(lines, 'series')} over {count_of(runs, 'run')}".replace("seriess", "series")
    if not alarms:
        return f"no open change for the worse in {span}\n"
    text = [f"{count_of(len(alarms), 'open change')} for the worse in {span}"]
    for alarm in alarms[:SHOWN]:
        text.append(
            f"{alarm.severity.value:<5} {alarm.text}; {alarm.where} [{alarm.line.hardware}]"
        )
        text += [
            f"      with a change of the environment: {change}"
            for change in alarm.line.environment_of(alarm.move)
        ]
        text += [f"      {alarm.confirmed}"] if alarm.confirmed else []
    rest = len(alarms) - SHOWN
    return "\n".join([*text, *([f"and {rest} more"] if rest > 0 else [])]) + "\n"


SHOWN_IN_ISSUE = 40


def issue_title(alarms: Sequence[Alarm]) -> str:
    """Return the title of the issue: the series that got worse, or the first and their number."""
    if len(alarms) == 1:
        return f"Trend: {alarms[0].text}"
    return (
        f"Trend: {count_of(len(alarms), 'series').removesuffix('s')} got worse, first"
        f" {alarms[0].line.called}"
    )


def issue_text(
    alarms: Sequence[Alarm], *, page_url: str | None = None, run_url: str | None = None
) -> str:
    """Return the body of the issue: each open change with its range, environment and next step.

    Without alarms, it says that all is well again.
    """
    if not alarms:
        return (
            "Every series has recovered, or has kept its new level long enough to be the new"
            f" normal.{_describe_check(run_url)}\n"
        )
    parts = ["Runs of this branch got worse and stayed worse. The suspected commits:", ""]
    for alarm in alarms[:SHOWN_IN_ISSUE]:
        parts.append(
            f"- **{plain(alarm.text)}**, {plain(alarm.where)} ({plain(alarm.line.hardware)})"
        )
        parts += [
            f"  - the environment changed with it: {code(change)}"
            for change in alarm.line.environment_of(alarm.move)
        ]
        parts += [f"  - {plain(alarm.confirmed)}"] if alarm.confirmed else []
        parts += [f"  - {name}: {url}" for name, url in _runs(alarm)]
    if len(alarms) > SHOWN_IN_ISSUE:
        parts.append(f"- and {len(alarms) - SHOWN} more")
    first = alarms[0]
    before, after = first.commits
    if before and after:
        parts += [
            "",
            "To find the commit on the same machine:",
            "",
            "```sh",
            _command(first, before, after),
            "```",
        ]
    parts += [f"\n[The trend page]({page_url})"] if page_url else []
    return (
        "\n".join(parts)
        + _describe_check(run_url)
        + "\n\nci-bench keeps this issue up to date and closes it once nothing is worse.\n"
    )


def _command(alarm: Alarm, before: str, after: str) -> str:
    """Return the command that bisects; its names are of a fixed alphabet: case ids and commits."""
    return (
        f"ci-bench history bisect {before} {after} --filter '{alarm.line.points.case}' --metric"
        f" {alarm.line.points.metric}"
    )


def _runs(alarm: Alarm) -> list[tuple[str, str]]:
    before, after = alarm.line.between(alarm.move)
    return [
        (name, run.url)
        for name, run in (("last run before", before), ("first run after", after))
        if run.url
    ]


def _describe_check(run_url: str | None) -> str:
    return f"\n\nLast checked in {run_url}" if run_url else ""
