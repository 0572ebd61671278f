"""What the issue about a trend says, as GitHub's Markdown. Pure; every name in it may be a stranger's."""

from collections.abc import Sequence

from ci_bench.history.alarms import Alarm
from ci_bench.judge.wording import count_of
from ci_bench.report.text import code, plain

SHOWN = 40


def title(alarms: Sequence[Alarm]) -> str:
    """One line: what got worse, how many series."""
    if len(alarms) == 1:
        return f"Trend: {alarms[0].text}"
    return f"Trend: {count_of(len(alarms), 'series').removesuffix('s')} got worse, first {alarms[0].line.name}"


def text(alarms: Sequence[Alarm], *, page_url: str | None = None, run_url: str | None = None) -> str:
    """The body: each open change with the suspected range, what else changed then, and what to do; or the last word."""
    if not alarms:
        return f"Every series is back where it was, or has been as it is for long enough to be the new normal.{_seen(run_url)}\n"
    parts = ["Runs of this branch have become worse and have stayed so. The commits that are suspected:", ""]
    for alarm in alarms[:SHOWN]:
        parts.append(f"- **{plain(alarm.text)}**, {plain(alarm.where)} ({plain(alarm.line.hardware)})")
        parts += [f"  - the environment changed with it: {code(change)}" for change in alarm.line.environment_of(alarm.move)]
        parts += [f"  - {plain(alarm.confirmed)}"] if alarm.confirmed else []
        parts += [f"  - {name}: {url}" for name, url in _runs(alarm)]
    if len(alarms) > SHOWN:
        parts.append(f"- and {len(alarms) - SHOWN} more")
    first = alarms[0]
    before, after = first.commits
    if before and after:
        parts += ["", "To find the commit on the same machine:", "", "```sh", _command(first, before, after), "```"]
    parts += [f"\n[The trend page]({page_url})"] if page_url else []
    return "\n".join(parts) + _seen(run_url) + "\n\nThis issue is kept up to date, and closed once all is well.\n"


def _command(alarm: Alarm, before: str, after: str) -> str:
    """Names in it are of a fixed alphabet: case ids and commits."""
    return f"ci-bench bisect {before} {after} --case '{alarm.line.points.case}' --metric {alarm.line.points.metric}"


def _runs(alarm: Alarm) -> list[tuple[str, str]]:
    before, after = alarm.line.between(alarm.move)
    return [(name, run.url) for name, run in (("the run before", before), ("the run after", after)) if run.url]


def _seen(run_url: str | None) -> str:
    return f"\n\nLast looked at in {run_url}" if run_url else ""
