"""Steps of a history that were accepted beforehand.

A step is intended if ``ci-bench-accepted.yml`` has an entry for it at the first measured commit
with the new level, and if the entry belongs to what was merged since the last commit without it: it
came in between, or a commit in between names its pull request. Later steps of the same case are
not. The place of a step is an estimate, so both commits are taken two runs further away.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from ci_bench.checkouts.git import Git
from ci_bench.command_line.settings import TrendSettings
from ci_bench.configuration.accepting import read_accepted
from ci_bench.errors import BadAcceptance, GitFailed
from ci_bench.history.alarms import Alarm
from ci_bench.records.acceptance import Accepted, AcceptedChange, Direction
from ci_bench.records.config import Severity, fits
from ci_bench.records.documents import ACCEPTED_FILE
from ci_bench.records.results import Better

_NEAR = 2
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def without_intended(settings: TrendSettings, alarms: Sequence[Alarm]) -> tuple[Alarm, ...]:
    """Return the alarms, with intended steps as notes.

    A commit that this clone lacks accepts nothing.
    """
    git = Git.at(settings.here, settings.environ)
    try:
        return tuple(_judged(git, alarm) for alarm in alarms)
    except GitFailed:
        return tuple(alarms)


def _judged(git: Git, alarm: Alarm) -> Alarm:
    runs, move = alarm.line.runs, alarm.move
    before, after = (
        runs[max(0, move.place - 1 - _NEAR)].commit,
        runs[min(len(runs) - 1, move.end + _NEAR)].commit,
    )
    identified = all(commit is not None and _COMMIT.fullmatch(commit) for commit in (before, after))
    if not identified or move.until is not None:
        return alarm
    earlier, subjects = (
        _entries(git, before),
        git.ask("log", "--format=%s", f"{before}..{after}") or "",
    )
    for entry in _entries(git, after):
        if _covers(entry, alarm) and (entry not in earlier or _names(subjects, entry.pull_request)):
            why = (
                f"intended: accepted up to {entry.bound} by {entry.author} for pull request"
                f" {entry.pull_request} ({entry.reason})"
            )
            return replace(alarm, severity=Severity.NOTE, confirmed=why)
    return alarm


def _entries(git: Git, commit: str | None) -> tuple[AcceptedChange, ...]:
    text = git.ask("show", f"{commit}:./{ACCEPTED_FILE}")
    try:
        return () if text is None else read_accepted(text.encode("utf-8", "surrogateescape"))
    except BadAcceptance:
        return ()


def _covers(entry: AcceptedChange, alarm: Alarm) -> bool:
    points, move, after = alarm.line.points, alarm.move, alarm.line.between(alarm.move)[1]
    worse = Direction.LOWER if points.better is Better.HIGHER else Direction.HIGHER
    matches = entry.kind is Accepted.METRIC and (entry.metric, entry.direction) == (
        points.metric,
        worse,
    )
    if not matches or not fits(entry.case, points.case) or entry.expires < after.at[:10]:
        return False
    if entry.share is not None:
        return move.worse <= entry.share
    value = entry.number
    return value is not None and (
        move.after <= value if points.better is Better.LOWER else move.after >= value
    )


def _names(subjects: str, number: int) -> bool:
    """Return whether a subject is that of a merge of the pull request, in GitHub's words."""
    return (
        re.search(rf"(?m)^Merge pull request #{number} from |\(#{number}\)$", subjects) is not None
    )
