"""Decide which entries of ``ci-bench-accepted.yml`` count for a run, and ask for missing ones.

An entry counts for the pull request that it names: from the base branch, where a reviewed merge put
it, or from the pull request itself once someone with write access has set the label. Without the
label, the head's file never counts. On a push to the default branch, entries count whose pull
request this very commit merged.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import PurePosixPath

from ci_bench.commands.trusted.judging import Judged
from ci_bench.commands.trusted.sources import PublishContext, fetch_file
from ci_bench.configuration.accepting import read_accepted
from ci_bench.errors import BadAcceptance, GitHubFailed, GitHubMissing
from ci_bench.github.labels import ACCEPT, Granted, NotGranted, accepting_label
from ci_bench.github.pulls import PullRequest
from ci_bench.judge.policy.accepting import suggested
from ci_bench.records.acceptance import Acceptance, AcceptedChange
from ci_bench.records.comparison import CaseComparison, Finding
from ci_bench.records.config import Severity
from ci_bench.records.documents import ACCEPTED_FILE
from ci_bench.report.text import code, plain

_GROUP = re.compile(r"gh-readonly-queue/.+/pr-(?P<number>[0-9]{1,9})-[0-9a-f]{40}")
MOST_PULLS = 10
"""Most pull requests that are asked for after a push, the newest first."""
MOST_SUGGESTED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Grants:
    """The entries that count, and `notes` in Markdown on those that do not."""

    accepted: tuple[Acceptance, ...] = ()
    notes: tuple[str, ...] = ()


def grants(publishing: PublishContext) -> Grants:
    """Return the entries that count.

    A file that cannot be read, and a missing answer of GitHub, accept nothing.
    """
    number = _number(publishing)
    try:
        if number is not None:
            return _of_pull(publishing, number)
        return _of_push(publishing) if _is_push(publishing) else Grants()
    except GitHubFailed as error:
        return Grants(notes=(_note(f"no accepted change counts: {error}"),))


def _number(publishing: PublishContext) -> int | None:
    """Return the number of the judged pull request, if any.

    In a merge queue, the branch's name contains it.
    """
    if isinstance(publishing.pull, PullRequest):
        return publishing.pull.number
    context = publishing.context
    match = _GROUP.fullmatch(context.head.branch or "") if context.event == "merge_group" else None
    return int(match["number"]) if match else None


def _is_push(publishing: PublishContext) -> bool:
    return publishing.context.event == "push" and not publishing.context.has_own_rules


def _of_pull(publishing: PublishContext, number: int) -> Grants:
    name = _path(publishing)
    branch = publishing.base_branch
    merged, faults = _entries(
        publishing, branch, number, f"{name} of {branch or 'the default branch'}"
    )
    proposed, more = _entries(
        publishing, publishing.context.head.sha, number, f"{name} of this branch"
    )
    proposed = [entry for entry in proposed if entry not in merged]
    today = _today(publishing)
    accepted = [
        _acceptance(entry, f"{entry.author}, on {branch or 'the default branch'}", today)
        for entry in merged
    ]
    notes = [*faults, *more]
    if proposed:
        label = _label(publishing, number)
        if isinstance(label, Granted):
            accepted += [
                _acceptance(entry, f"{label.login}, by label", today) for entry in proposed
            ]
        else:
            subjects = ", ".join(entry.subject for entry in proposed[:MOST_SUGGESTED])
            notes.append(
                f"{name} of this branch has entries that do not count ({subjects}): {label.reason}."
                f" Someone with write access reviews them, sets the label {ACCEPT!r} after the last"
                " push, and re-runs this report"
            )
    return Grants(accepted=tuple(accepted), notes=tuple(map(_note, notes)))


def _label(publishing: PublishContext, number: int) -> Granted | NotGranted:
    """Return whether the label counts, by the runs of a measuring workflow that base has as well.

    A pull request could change the events that start it. Then a push would have no run, and an
    earlier label would seem to be newer.
    """
    path = publishing.context.workflow
    file = None if path is None else path.partition("@")[0]
    ours = None if file is None else fetch_file(publishing, publishing.base_branch, file)
    if (
        file is None
        or ours is None
        or ours != fetch_file(publishing, publishing.context.head.sha, file)
    ):
        where = publishing.base_branch or "the default branch"
        return NotGranted(
            reason=(
                f"the measuring workflow ({file}) differs from that of {where}, so no label counts"
            )
        )
    return accepting_label(publishing.client, number, workflow=file)


def _of_push(publishing: PublishContext) -> Grants:
    """Return the entries whose pull request was merged by the pushed commit."""
    sha, today = publishing.context.head.sha, _today(publishing)
    entries, faults = _entries(publishing, sha, None, _path(publishing))
    numbers = sorted({entry.pull_request for entry in entries}, reverse=True)[:MOST_PULLS]
    landed = {number for number in numbers if _merged_as(publishing, number) == sha}
    where = publishing.context.head.branch
    accepted = (
        _acceptance(entry, f"{entry.author}, on {where}", today)
        for entry in entries
        if entry.pull_request in landed
    )
    return Grants(accepted=tuple(accepted), notes=tuple(map(_note, faults)))


def _merged_as(publishing: PublishContext, number: int) -> str | None:
    try:
        pull = publishing.client.get(f"pulls/{number}")
    except GitHubMissing:
        return None
    return pull.text("merge_commit_sha") if pull.truth("merged") else None


def _entries(
    publishing: PublishContext, ref: str | None, number: int | None, origin: str
) -> tuple[list[AcceptedChange], list[str]]:
    """Return a commit's or branch's entries for a pull request, and why its file cannot be read."""
    content = fetch_file(publishing, ref, _path(publishing))
    if content is None:
        return [], []
    try:
        entries = read_accepted(content, origin)
    except BadAcceptance as error:
        return [], [f"none of its entries counts: {error}"]
    return [entry for entry in entries if number in {None, entry.pull_request}], []


def _acceptance(change: AcceptedChange, granted: str, today: date) -> Acceptance:
    return Acceptance(
        change=change, granted=granted, expired=date.fromisoformat(change.expires) < today
    )


def _path(publishing: PublishContext) -> str:
    """Return the path of the file next to the configuration."""
    return str(PurePosixPath(publishing.settings.config_path).parent / ACCEPTED_FILE)


def _today(publishing: PublishContext) -> date:
    return datetime.fromtimestamp(publishing.client.clock.now(), UTC).date()


def _note(text: str) -> str:
    return f"_{plain(text, cap=700)}._"


def suggestion(judged: Judged, publishing: PublishContext) -> tuple[str, ...]:
    """Return a note with the commands that would accept the changes that fail a pull request."""
    number = _number(publishing)
    commands = list(_commands(judged, number))[:MOST_SUGGESTED] if number is not None else []
    if not commands:
        return ()

    bullets = "\n".join(f"- {code(command, cap=1000)}" for command in commands)
    return (f"If a change is intended, propose an entry for review on this branch:\n\n{bullets}",)


def _commands(judged: Judged, number: int | None) -> Iterator[str]:
    for machine in judged.machines:
        comparison = machine.comparison
        if comparison is not None:
            cases = {case.id: case for case in comparison.cases}
            yield from dict.fromkeys(_of_findings(comparison.judgement.findings, cases, number))


def _of_findings(
    findings: Iterable[Finding], cases: dict[str, CaseComparison], number: int | None
) -> Iterator[str]:
    for finding in findings:
        case = cases.get(finding.case or "")
        words: Sequence[str] = (
            suggested(finding.rule, case) if case and finding.severity is Severity.FAIL else ()
        )
        if case and words:
            command = (
                "ci-bench",
                "accept",
                case.id,
                *words,
                "--pull-request",
                str(number),
                "--reason",
                "…",
            )
            yield shlex.join(command)
