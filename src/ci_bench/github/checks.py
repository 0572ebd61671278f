"""A check run on the measured commit, its annotations sent in portions; a commit status where check runs are not allowed.

Annotations are only ever appended, so after a lost answer the check is read before a portion is sent again. Of two attempts of
one run the older never overwrites the newer's check. Posting a status again does no harm.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ci_bench.github.client import Client
from ci_bench.github.clipping import clipped, clipped_line, utf8_bytes, utf16_units
from ci_bench.github.context import RunId
from ci_bench.github.outcomes import Outcome, State
from ci_bench.github.server import Record

logger = logging.getLogger(__name__)

PART = "check"
PORTION = 50
"""Annotations in one request, GitHub's limit."""
MOST_ANNOTATIONS = 500
TEXT_LIMIT, TITLE_LIMIT, MESSAGE_LIMIT = 65_535, 255, 60_000
_EXTERNAL = re.compile(r"ci-bench:(?P<key>[A-Za-z0-9._-]+):(?P<run>[0-9]{1,18}):(?P<attempt>[0-9]{1,6})")


class Conclusion(StrEnum):
    """How a check ended.

    A required check lets `neutral` pass, so that is for a run that the policy lets pass. `cancelled` is for what was not judged:
    it lets nothing pass, and blames nobody.
    """

    SUCCESS = "success"
    NEUTRAL = "neutral"
    FAILURE = "failure"
    CANCELLED = "cancelled"


class Level(StrEnum):
    """How grave an annotation is."""

    NOTICE = "notice"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    """A message at a line of a file of the repository."""

    path: str
    line: int
    level: Level
    title: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What a check run says; `conclusion` is `None` while the run goes on. `key` tells several gates of one repository apart."""

    name: str
    key: str
    run: RunId
    head_sha: str
    conclusion: Conclusion | None
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()
    details_url: str | None = None


def publish_check(client: Client, check: Check) -> Outcome:
    """Create or update the check run. Raises `GitHubFailed`: a personal token is not allowed to, for one."""
    own = _find(client, check)
    newest = max((run for run, _ in own), default=check.run)
    if newest > check.run:
        return Outcome(part=PART, state=State.SKIPPED, detail=f"attempt {newest.attempt} of run {newest.id} has checked already")
    found = next((record for run, record in own if run == check.run), None)
    if found is None:
        created = _create(client, check)
        record = _complete(client, check, created, there=max(_count(created), min(PORTION, len(check.annotations))))
    else:
        record = _complete(client, check, found, there=_count(found), restate=True)
    return Outcome(part=PART, state=State.DONE, detail="the check is up to date", url=record.text("html_url"))


def _find(client: Client, check: Check) -> list[tuple[RunId, Record]]:
    """Our checks of this key on the commit, whichever attempt made them."""
    params = {"check_name": check.name, "filter": "all"}
    listing = client.pages(f"commits/{check.head_sha}/check-runs", params, key="check_runs")
    found = ((_EXTERNAL.fullmatch(record.text("external_id") or ""), record) for record in Record.each(listing.items))
    return [
        (RunId(id=int(match["run"]), attempt=int(match["attempt"])), record)
        for match, record in found
        if match is not None and match["key"] == check.key
    ]


def _create(client: Client, check: Check) -> Record:
    def landed() -> Record | None:
        return next((record for run, record in _find(client, check) if run == check.run), None)

    body = {
        "name": check.name,
        "head_sha": check.head_sha,
        "external_id": _external(check),
        **_said(check, check.annotations[:PORTION]),
    }
    return client.write("POST", "check-runs", body, seek=landed)


def _complete(client: Client, check: Check, record: Record, *, there: int, restate: bool = False) -> Record:
    """Send the annotations beyond the first `there`; `restate` what the check says by now, even if there are none to send."""
    path = f"check-runs/{record.need_number('id')}"
    wanted = check.annotations[:MOST_ANNOTATIONS]
    while restate or there < len(wanted):
        before, portion = there, wanted[there : there + PORTION]

        def landed(before: int = before) -> Record | None:
            now = client.get(path)
            return now if _count(now) > before else None

        record = client.write("PATCH", path, _said(check, portion), seek=landed if portion else None)
        there, restate = max(_count(record), before + len(portion)), False
    return record


def _count(record: Record) -> int:
    return record.number("output", "annotations_count") or 0


def _external(check: Check) -> str:
    return f"ci-bench:{check.key}:{check.run.id}:{check.run.attempt}"


def _said(check: Check, annotations: tuple[Annotation, ...]) -> Mapping[str, Any]:
    """The body of a request, but for what tells which check it is."""
    ended = (
        {"status": "in_progress"} if check.conclusion is None else {"status": "completed", "conclusion": check.conclusion.value}
    )
    output: dict[str, Any] = {
        "title": clipped_line(check.title, TITLE_LIMIT),
        "summary": clipped(check.summary, TEXT_LIMIT, lambda text: max(utf16_units(text), utf8_bytes(text))),
    }
    if annotations:
        output["annotations"] = [_annotation(one) for one in annotations]
    details = {"details_url": check.details_url} if check.details_url else {}
    return {**ended, **details, "output": output}


def _annotation(one: Annotation) -> Mapping[str, Any]:
    return {
        "path": one.path,
        "start_line": one.line,
        "end_line": one.line,
        "annotation_level": one.level.value,
        "title": clipped_line(one.title, TITLE_LIMIT),
        "message": clipped(one.message, MESSAGE_LIMIT, utf8_bytes) or "no message",
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
class Status:
    """A commit status under a `context`, the name that a branch's protection can require."""

    context: str
    head_sha: str
    state: StatusState
    description: str
    target_url: str | None = None


def publish_status(client: Client, status: Status) -> Outcome:
    """Set the status. Raises `GitHubFailed`."""
    body = {
        "state": status.state.value,
        "context": status.context,
        "description": clipped_line(status.description, DESCRIPTION_LIMIT),
        **({"target_url": status.target_url} if status.target_url else {}),
    }
    client.write("POST", f"statuses/{status.head_sha}", body, seek=lambda: None)  # sent twice, it says the same
    return Outcome(part=STATUS_PART, state=State.DONE, detail="the commit status is set", url=status.target_url)
