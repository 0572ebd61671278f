"""The command that writes an entry for an intended change: accept.

An entry gives no right: it counts once it is reviewed (docs/github.md).
"""

import os
from datetime import UTC, date, datetime, timedelta

from ci_bench.checkouts.git import Git
from ci_bench.command_line.settings import Accepting
from ci_bench.commands.output import say
from ci_bench.configuration.accepting import read_bytes, with_entry
from ci_bench.errors import BadInput, ExitCode
from ci_bench.records import documents
from ci_bench.records.acceptance import Accepted, AcceptedChange, Direction

DAYS = 30
"""How long an entry counts unless its last day is named."""


def accept(settings: Accepting) -> int:
    """Add an entry to the file next to the configuration."""
    kinds = {
        Accepted.METRIC: settings.metric,
        Accepted.OUTPUTS: settings.outputs,
        Accepted.LEARNING: settings.learning,
    }
    chosen_kinds = [kind for kind, argument in kinds.items() if argument]
    if len(chosen_kinds) != 1:
        raise BadInput(
            "name what is accepted, and only one: --metric NAME, --outputs or --learning"
        )
    change = AcceptedChange(
        kind=chosen_kinds[0],
        case=settings.case,
        metric=settings.metric,
        direction=Direction(settings.direction) if settings.metric else None,
        bound=_bound(settings.bound),
        reason=settings.reason,
        author=_author(settings),
        pull_request=settings.pull_request,
        expires=settings.expires or _in_days(DAYS),
    )
    path = settings.here / documents.ACCEPTED_FILE
    documents.write_text(with_entry(read_bytes(path) if path.exists() else b"", change), path)
    say(
        f"{os.path.relpath(path)}: accepts {change.subject} up to {change.bound} in pull request"
        f" {change.pull_request}, until {change.expires}. Commit it; it counts once someone with"
        " write access has set the label 'ci-bench: accept' after your last push, or once it is on"
        " the base branch\n"
    )
    return int(ExitCode.OK)


def _bound(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def _author(settings: Accepting) -> str:
    author = settings.environ.get("GIT_AUTHOR_NAME") or Git.at(settings.here, settings.environ).ask(
        "config", "user.name"
    )
    name = (author or "").strip()
    if not name:
        raise BadInput("git knows no user.name; set it with git config user.name NAME")
    return name[:100]


def _in_days(days: int) -> str:
    today: date = datetime.now(UTC).date()
    return (today + timedelta(days=days)).isoformat()
