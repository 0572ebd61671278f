"""A check run on the measured commit; a commit status if check runs are not allowed.

Annotations are sent in portions. They are only ever appended, so after a lost answer the check is
read before a portion is sent again. Posting a status again does no harm.

Several runs can report about one commit under one name: two workflows, two events, a run and its
re-run. The newest attempt of each run counts, and the check shows the strictest of them, in
whatever order they report (docs/internals/adr/0014).
"""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from ci_bench.github.client import Client
from ci_bench.github.clipping import clipped, clipped_line, utf8_bytes, utf16_units
from ci_bench.github.context import RunId
from ci_bench.github.outcomes import PublishOutcome, State, attempt
from ci_bench.github.server import ApiRecord

logger = logging.getLogger(__name__)

PART = "check"
NO_CHECK = "none is set: a person started this run, or another job reports"
PORTION = 50
"""Annotations in one request, GitHub's limit."""
MOST_ANNOTATIONS = 500
TEXT_LIMIT, TITLE_LIMIT, MESSAGE_LIMIT = 65_535, 255, 60_000
_REPORT = re.compile(
    r"ci-bench:(?P<key>[A-Za-z0-9._-]+):(?P<run>[0-9]{1,18}):(?P<attempt>[0-9]{1,6})"
    r"(?::(?P<reporter>[0-9a-f]{0,16}):(?P<own>[a-z]+))?"
)
_PENDING = "pending"
_HELD = re.compile(r"(?:Failed|Not judged|Not decided) in run [0-9]+; (?P<own>[a-z]+) here: ")
_HELD_NOTE = "<!-- ci-bench:held -->"


class Conclusion(StrEnum):
    """Conclusion of a check, the mildest first.

    A required check lets `neutral` pass, which is for a run that the policy lets pass. `cancelled`
    is for a run that was not judged: it lets nothing pass, and blames no one.
    """

    SUCCESS = "success"
    NEUTRAL = "neutral"
    CANCELLED = "cancelled"
    FAILURE = "failure"


_WORDS = {
    Conclusion.FAILURE: "Failed",
    Conclusion.CANCELLED: "Not judged",
    Conclusion.NEUTRAL: "Not decided",
}


class AnnotationLevel(StrEnum):
    """Severity of an annotation."""

    NOTICE = "notice"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    """A message at a line of a file of the repository."""

    path: str
    """Path of the file from the repository's root."""
    line: int
    """The line, from 1."""
    level: AnnotationLevel
    """How severe it is."""
    title: str
    """The heading, of one line."""
    message: str
    """The text; it may have several lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One job's report about one attempt of a run.

    `own` is its conclusion, `None` while the run continues.
    """

    key: str
    run: RunId
    reporter: str
    own: Conclusion | None

    @classmethod
    def read(cls, text: str, shown: str | None) -> "Report | None":
        """Read what `str` wrote.

        An earlier version kept no conclusion there: then it is what the check has `shown`.
        """
        match = _REPORT.fullmatch(text)
        if match is None:
            return None
        run = RunId(id=int(match["run"]), attempt=int(match["attempt"]))
        conclusion = _conclusion(match["own"] or shown)
        return cls(key=match["key"], run=run, reporter=match["reporter"] or "", own=conclusion)

    def __str__(self) -> str:
        """Write it as one word."""
        run = f"{self.run.id}:{self.run.attempt}"
        return f"ci-bench:{self.key}:{run}:{self.reporter}:{self.own or _PENDING}"

    @property
    def gate(self) -> tuple[str, int, str]:
        """Return the key of reports of which only the newest attempt counts."""
        return self.key, self.run.id, self.reporter

    @property
    def rank(self) -> int:
        """Return its strictness; a running one has none yet."""
        return -1 if self.own is None else list(Conclusion).index(self.own)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRun:
    """The content of a check run."""

    name: str
    """Its name, which a branch's protection can require."""
    key: str
    """The name of one of several gates of a repository."""
    run: RunId
    """The run and attempt that it is about."""
    head_sha: str
    """The measured commit."""
    conclusion: Conclusion | None
    """The conclusion; `None` while the run continues."""
    title: str
    """The headline, of one line."""
    summary: str
    """The text below, in Markdown."""
    annotations: tuple[Annotation, ...] = ()
    """Messages at lines of the code."""
    details_url: str | None = None
    """The page that readers are sent to; `None` for GitHub's own."""
    reporter: str = ""
    """The name of one of several jobs that report about one run; may be empty."""
    restates: bool = True
    """If false, a second report of the same attempt is another gate's and loosens nothing."""

    @property
    def report(self) -> Report:
        """Return the report that the check makes."""
        return Report(key=self.key, run=self.run, reporter=self.reporter, own=self.conclusion)


def counting(reports: Iterable[Report]) -> tuple[Report, ...]:
    """Keep the newest finished attempt of each gate: a re-run replaces it once it has reported."""
    newest: dict[tuple[str, int, str], Report] = {}
    for report in reports:
        before = newest.get(report.gate)
        if report.own is not None and (before is None or report.run >= before.run):
            newest[report.gate] = report
    return tuple(newest.values())


def strictest(report: Report, counted: Iterable[Report]) -> Report:
    """Find the report whose conclusion the check of `report` shows.

    That is its own, unless a stricter one counts. A cancelled run says nothing against a newer one
    that was judged.
    """
    if report.own is None:
        return report
    others = [other for other in counted if other.gate != report.gate]
    newest = max(other.run.id for other in (report, *others))
    candidates = [
        other for other in others if other.own is not Conclusion.CANCELLED or other.run.id == newest
    ]
    return max((report, *candidates), key=lambda other: other.rank)


def _is_outdated(report: Report, counted: Iterable[Report]) -> bool:
    """Return whether a run was cancelled for a newer one.

    Then a newer check of it would only be in the way.
    """
    newer = (other for other in counted if other.run.id > report.run.id)
    return report.own is Conclusion.CANCELLED and any(
        other.own is not Conclusion.CANCELLED for other in newer
    )


def publish_check(client: Client, check: CheckRun) -> PublishOutcome:
    """Create or update the check run.

    Raises `GitHubFailed`: a personal token, for one, is not allowed to.
    """
    posted = _find(client, check)
    since = _since(check, [report for report, _ in posted])
    if since is not None:
        return PublishOutcome(part=PART, state=State.SKIPPED, detail=since)
    records = [
        record for report, record in posted if report == replace(check.report, own=report.own)
    ]
    announced = [
        record
        for report, record in posted
        if report == replace(check.report, reporter=report.reporter, own=None)
    ]
    shown = _show_strictest(
        check, strictest(check.report, counting(report for report, _ in posted))
    )
    existing = next(iter((*records, *announced)), None)
    if existing is None and _is_outdated(check.report, counting(report for report, _ in posted)):
        return PublishOutcome(
            part=PART, state=State.SKIPPED, detail="it was cancelled, and a newer run was judged"
        )
    if existing is None:
        created = _create(client, check, shown)
        record = _complete(
            client,
            check,
            shown,
            created,
            there=max(_count(created), min(PORTION, len(check.annotations))),
        )
    else:
        record = _complete(client, check, shown, existing, there=_count(existing), restate=True)
    _settle(client, check)
    return PublishOutcome(
        part=PART, state=State.DONE, detail="the check is up to date", url=record.text("html_url")
    )


def _since(check: CheckRun, reports: Iterable[Report]) -> str | None:
    """Explain why a report comes too late; `None` if it does not."""
    report = check.report
    for other in reports:
        if (other.key, other.run.id) != (report.key, report.run.id):
            continue
        later = other.run > report.run and (
            other.gate == report.gate or other.own is None or report.own is None
        )
        ended = report.own is None and other.own is not None and other.run == report.run
        stricter = (
            not check.restates
            and other.run == report.run
            and other.gate == report.gate
            and other.rank > report.rank
        )
        if later or ended or stricter:
            return f"attempt {other.run.attempt} of run {other.run.id} has checked already"
    return None


def _show_strictest(check: CheckRun, by: Report) -> CheckRun:
    """Return the check as it is shown.

    If another run's report is stricter, it has that conclusion, and its own in words.
    """
    if by.gate == check.report.gate or by.own is None or check.conclusion is None:
        return check
    title = f"{_WORDS[by.own]} in run {by.run.id}; {check.conclusion} here: {check.title}"
    note = (
        f"_Run {by.run.id} measured this commit, too, and its verdict is stricter: {by.own}. "
        "Both count. Run it again, or push another commit._"
    )
    return replace(
        check, conclusion=by.own, title=title, summary=f"{_HELD_NOTE}\n{note}\n\n{check.summary}"
    )


def _settle(client: Client, check: CheckRun) -> None:
    """Let every check of this name show the strictest report.

    That includes one that another job wrote meanwhile.
    """
    posted = _find(client, check)
    counted = counting(report for report, _ in posted)
    for report, record in posted:
        if report not in counted or report.own is None:
            continue
        title = _HELD.sub("", record.text("output", "title") or "", count=1)
        summary = record.text("output", "summary") or ""
        original = replace(
            check,
            key=report.key,
            run=report.run,
            reporter=report.reporter,
            conclusion=report.own,
            title=title,
            summary=summary.partition("\n\n")[2] if summary.startswith(_HELD_NOTE) else summary,
            details_url=None,
        )
        shown = _show_strictest(original, strictest(report, counted))
        published = (record.text("conclusion"), record.text("output", "title"))
        if published != (shown.conclusion, clipped_line(shown.title, TITLE_LIMIT)):
            client.write(
                "PATCH", f"check-runs/{record.need_number('id')}", _describe_check(shown, ())
            )


def _find(client: Client, check: CheckRun) -> list[tuple[Report, ApiRecord]]:
    """Return our checks of this name on the commit, of every key: a branch requires the name."""
    params = {"check_name": check.name, "filter": "all"}
    listing = client.pages(f"commits/{check.head_sha}/check-runs", params, key="check_runs")
    pairs = (
        (Report.read(record.text("external_id") or "", record.text("conclusion")), record)
        for record in ApiRecord.each(listing.items)
    )
    return [(report, record) for report, record in pairs if report is not None]


def _conclusion(word: str | None) -> Conclusion | None:
    return Conclusion(word) if word in {conclusion.value for conclusion in Conclusion} else None


def _create(client: Client, check: CheckRun, shown: CheckRun) -> ApiRecord:
    def landed() -> ApiRecord | None:
        return next(
            (record for report, record in _find(client, check) if report == check.report), None
        )

    body = {
        "name": check.name,
        "head_sha": check.head_sha,
        "external_id": str(check.report),
        **_describe_check(shown, check.annotations[:PORTION]),
    }
    return client.write("POST", "check-runs", body, seek=landed)


def _complete(
    client: Client,
    check: CheckRun,
    shown: CheckRun,
    record: ApiRecord,
    *,
    there: int,
    restate: bool = False,
) -> ApiRecord:
    """Send the annotations after the first `there`.

    `restate` sends the check's present text even without annotations.
    """
    path = f"check-runs/{record.need_number('id')}"
    annotations = check.annotations[:MOST_ANNOTATIONS]
    while restate or there < len(annotations):
        before, portion = there, annotations[there : there + PORTION]

        def landed(before: int = before) -> ApiRecord | None:
            now = client.get(path)
            return now if _count(now) > before else None

        body = {"external_id": str(check.report), **_describe_check(shown, portion)}
        record = client.write("PATCH", path, body, seek=landed if portion else None)
        there, restate = max(_count(record), before + len(portion)), False
    return record


def _count(record: ApiRecord) -> int:
    return record.number("output", "annotations_count") or 0


def _describe_check(check: CheckRun, annotations: tuple[Annotation, ...]) -> Mapping[str, Any]:
    """Return the body of a request, without the fields that identify the check."""
    ended = (
        {"status": "in_progress"}
        if check.conclusion is None
        else {"status": "completed", "conclusion": check.conclusion.value}
    )
    output: dict[str, Any] = {
        "title": clipped_line(check.title, TITLE_LIMIT),
        "summary": clipped(
            check.summary, TEXT_LIMIT, lambda text: max(utf16_units(text), utf8_bytes(text))
        ),
    }
    if annotations:
        output["annotations"] = [_annotation(annotation) for annotation in annotations]
    details = {"details_url": check.details_url} if check.details_url else {}
    return {**ended, **details, "output": output}


def _annotation(annotation: Annotation) -> Mapping[str, Any]:
    return {
        "path": annotation.path,
        "start_line": annotation.line,
        "end_line": annotation.line,
        "annotation_level": annotation.level.value,
        "title": clipped_line(annotation.title, TITLE_LIMIT),
        "message": clipped(annotation.message, MESSAGE_LIMIT, utf8_bytes) or "no message",
    }


STATUS_PART = "status"
DESCRIPTION_LIMIT = 140


class StatusState(StrEnum):
    """GitHub's words for a commit status."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckStatus:
    """A commit status."""

    context: str
    """Its name, which a branch's protection can require."""
    head_sha: str
    """The measured commit."""
    state: StatusState
    """GitHub's word for the conclusion."""
    description: str
    """The headline, of one line."""
    target_url: str | None = None
    """The page that it links to, or `None`; the run and attempt are read back from it."""
    report: Report | None = None
    """The report that it is made of; `None` sets the status without regard to others."""
    restates: bool = True
    """If false, a second report of the same attempt is another gate's and loosens nothing."""


STATES: Mapping[Conclusion, StatusState] = {
    Conclusion.SUCCESS: StatusState.SUCCESS,
    Conclusion.NEUTRAL: StatusState.SUCCESS,
    Conclusion.CANCELLED: StatusState.ERROR,
    Conclusion.FAILURE: StatusState.FAILURE,
}
_OWN = {
    StatusState.SUCCESS: Conclusion.SUCCESS,
    StatusState.ERROR: Conclusion.CANCELLED,
    StatusState.FAILURE: Conclusion.FAILURE,
}
_RUN = re.compile(r".*/runs/(?P<run>[0-9]{1,18})(?:/attempts/(?P<attempt>[0-9]{1,6}))?")


def mark(client: Client, check: CheckRun | None) -> PublishOutcome:
    """Set the check run or, if the token may not, a commit status of its name."""
    if check is None:
        return PublishOutcome(part=PART, state=State.SKIPPED, detail=NO_CHECK)
    marked = attempt(PART, partial(publish_check, client, check))
    if marked.state is not State.REFUSED:
        return marked
    return attempt(STATUS_PART, partial(publish_status, client, status_of(check)))


def status_of(check: CheckRun) -> CheckStatus:
    """Make the commit status that replaces a check.

    A re-run has a separate address.
    """
    url, number = check.details_url, check.run.attempt
    return CheckStatus(
        context=check.name,
        head_sha=check.head_sha,
        state=StatusState.PENDING if check.conclusion is None else STATES[check.conclusion],
        description=check.title,
        target_url=f"{url}/attempts/{number}" if url and number > 1 else url,
        report=check.report,
        restates=check.restates,
    )


def publish_status(client: Client, status: CheckStatus) -> PublishOutcome:
    """Set the status.

    The newest status of a context is the one that counts, so it reports the strictest of all runs.
    Raises `GitHubFailed`.
    """
    state, description = status.state, status.description
    report = None if status.report is None else replace(status.report, key="", reporter="")
    if report is not None and report.own is not None:
        before = _reports(client, status)
        same_run = [other for other in before if other.run.id == report.run.id]
        late = [other for other in same_run if other.run > report.run]
        stricter = [
            other for other in same_run if other.run == report.run and other.rank > report.rank
        ]
        if late or (stricter and not status.restates):
            return PublishOutcome(
                part=STATUS_PART,
                state=State.SKIPPED,
                detail="a newer or stricter status of this run is there",
            )
        if _is_outdated(report, counting(before)):
            return PublishOutcome(
                part=STATUS_PART,
                state=State.SKIPPED,
                detail="it was cancelled, and a newer run was judged",
            )
        by = strictest(report, counting(before))
        if by.own is not None and by.run.id != report.run.id:
            state = STATES[by.own]
            description = f"{_WORDS[by.own]} in run {by.run.id}; {report.own} here: {description}"
    body = {
        "state": state.value,
        "context": status.context,
        "description": clipped_line(description, DESCRIPTION_LIMIT),
        **({"target_url": status.target_url} if status.target_url else {}),
    }
    client.write(
        "POST", f"statuses/{status.head_sha}", body, seek=lambda: None
    )  # sent twice, it says the same
    return PublishOutcome(
        part=STATUS_PART, state=State.DONE, detail="the commit status is set", url=status.target_url
    )


def _reports(client: Client, status: CheckStatus) -> list[Report]:
    """Return the reports in the commit's statuses of this context, the oldest first.

    The last status of a run is the one that counts for it.
    """
    listing = client.pages(f"commits/{status.head_sha}/statuses")
    reports = (
        _report(record)
        for record in ApiRecord.each(listing.items)
        if record.text("context") == status.context
    )
    return [report for report in reports if report is not None][::-1]


def _report(record: ApiRecord) -> Report | None:
    run = _RUN.fullmatch(record.text("target_url") or "")
    if run is None:
        return None
    match = _HELD.match(record.text("description") or "")
    state = record.text("state")
    shown = (
        _OWN.get(StatusState(state)) if state in {member.value for member in StatusState} else None
    )
    conclusion = _conclusion(match["own"]) if match else shown
    return Report(
        key="",
        run=RunId(id=int(run["run"]), attempt=int(run["attempt"] or 1)),
        reporter="",
        own=conclusion,
    )
