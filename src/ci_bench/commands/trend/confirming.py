"""Whether a change in the history is there when the two neighbouring commits are measured in one job, in turns."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ci_bench.commands.output import tell
from ci_bench.commands.trend.commits import Unbuilt, commit_of, git_here, laboratory
from ci_bench.errors import CiBenchError

if TYPE_CHECKING:
    from ci_bench.history.alarms import Alarm
    from ci_bench.records.comparison import Comparison, Pair

_SHORT = 12


def confirm(
    arguments: argparse.Namespace, commits: tuple[str | None, str | None], alarms: "Sequence[Alarm]"
) -> "Mapping[str, Alarm]":
    """The alarms of one pair of commits, by name, each with what a paired run of the two said.

    A change that the run does not find is only noted from then on: it came from the machine or its software, or was chance. What
    could not be measured stays as it was.
    """
    before, after = commits
    if before is None or after is None or before == after:
        why = "not confirmed: the runs before and after are of one commit, so that the environment or the machine made the change"
        why = why if before is not None and before == after else "not confirmed: it is not known which commits were measured"
        return {alarm.line.name: _with(alarm, why, stays=before is None or after is None) for alarm in alarms}
    tell(f"measuring {after[:_SHORT]} against {before[:_SHORT]}")
    try:
        git = git_here()
        bench = laboratory(arguments, "ci-bench run")
        cases = tuple(dict.fromkeys(alarm.line.points.case for alarm in alarms))
        compared = bench.compare(commit_of(git, before), commit_of(git, after), cases)
    except CiBenchError as error:
        return {alarm.line.name: _with(alarm, f"could not be confirmed: {error}", stays=True) for alarm in alarms}
    if isinstance(compared, Unbuilt):
        why = f"could not be confirmed: {compared.commit[:_SHORT]} cannot be measured: {compared.reason}"
        return {alarm.line.name: _with(alarm, why, stays=True) for alarm in alarms}
    return {alarm.line.name: _judged(alarm, compared) for alarm in alarms}


def _judged(alarm: "Alarm", compared: "Comparison") -> "Alarm":
    from ci_bench.records.comparison import Verdict

    pair = _pair(alarm, compared)
    if pair is None:
        return _with(alarm, "could not be confirmed: the paired run did not measure this metric", stays=True)
    said = f"{pair.verdict} when the two commits were measured in turns ({pair.reason})"
    if pair.verdict is Verdict.REGRESSED:
        return _with(alarm, f"confirmed: {said}", stays=True)
    found = pair.verdict in {Verdict.UNCHANGED, Verdict.IMPROVED}
    return _with(alarm, f"{'not confirmed' if found else 'not settled'}: {said}", stays=not found)


def _pair(alarm: "Alarm", compared: "Comparison") -> "Pair | None":
    points = alarm.line.points
    found = (pair for case in compared.cases if case.id == points.case for pair in case.pairs)
    return next((pair for pair in found if (pair.metric, pair.arm) == (points.metric, points.arm)), None)


def _with(alarm: "Alarm", why: str, *, stays: bool) -> "Alarm":
    from ci_bench.records.policy import Severity

    return replace(alarm, confirmed=why, severity=alarm.severity if stays else Severity.NOTE)
