"""The commands that talk to GitHub: publish, announce, fetch-baseline. They measure nothing, and need no torch.

`publish` is the trusted half of a gate: it has a token and runs none of the pull request's code. What it reads of the run that
measured is a stranger's; the verdict is computed anew from the raw samples, by the configuration of the base branch.
"""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.output import say, tell
from ci_bench.commands.trusted import telling
from ci_bench.commands.trusted.legs import RESULTS, Judged, JudgedLeg, judge_leg
from ci_bench.errors import CiBenchError, ExitCode, GitHubFailed

if TYPE_CHECKING:
    from ci_bench.commands.trusted.sources import Desk
    from ci_bench.github.baseline import FoundBaseline, NoBaseline
    from ci_bench.github.checks import Check
    from ci_bench.github.client import Client
    from ci_bench.github.context import Context
    from ci_bench.github.outcomes import Outcome
    from ci_bench.github.pulls import NoPullRequest, PullRequest
    from ci_bench.github.server import Server

Command = Callable[[argparse.Namespace], int]

OUTCOME = "baseline.json"
"""Beside a fetched baseline, or in its place: where it is from, or why there is none."""


def _defusing(command: Command) -> Command:
    """Errors may repeat what a stranger wrote, and a job's log is searched for commands."""

    @wraps(command)
    def defused(arguments: argparse.Namespace) -> int:
        from ci_bench.github import workflow

        try:
            return command(arguments)
        except CiBenchError as error:
            raise type(error)(workflow.defused(str(error))) from None

    return defused


@_defusing
def publish(arguments: argparse.Namespace) -> int:
    """Judge the documents of a run, tell its pull request, and exit by the verdict."""
    from ci_bench.commands.trusted.sources import Desk
    from ci_bench.github.context import load_context, server_of
    from ci_bench.github.outcomes import exit_code

    context = load_context(os.environ)
    with _client(server_of(os.environ), arguments) as client:
        desk = Desk(client=client, context=context, pull=_find_pull(client, context), arguments=arguments)
        judged = _judge(desk)
        outcomes = _publish(desk, judged)
    code = exit_code(judged.exit_code, outcomes, read_only=context.read_only)
    _write_reports(judged, outcomes, arguments.output, code)
    _tell(judged, outcomes, read_only=context.read_only)
    return code


@_defusing
def announce(arguments: argparse.Namespace) -> int:
    """Mark the commit as being measured, so that a required check waits for the verdict."""
    from ci_bench.github.checks import Check
    from ci_bench.github.context import load_context, server_of
    from ci_bench.github.outcomes import exit_code
    from ci_bench.github.publishing import CheckMode, Publication
    from ci_bench.github.publishing import publish as send

    context = load_context(os.environ)
    check = Check(
        name=arguments.check_name,
        key=arguments.key,
        run=context.run,
        head_sha=context.head.sha,
        conclusion=None,
        title="Measuring",
        summary="The verdict comes when the run has ended.",
        details_url=context.run_url,
    )
    with _client(server_of(os.environ), arguments) as client:
        outcomes = send(client, Publication(check=check, check_mode=CheckMode(arguments.check)))
    _tell(None, outcomes, read_only=context.read_only)
    return exit_code(ExitCode.OK, outcomes, read_only=context.read_only)


@_defusing
def fetch_baseline(arguments: argparse.Namespace) -> int:
    """Fetch the base side's results from an earlier run, or say why there are none: that is an outcome, and no failure."""
    from ci_bench.commands.trusted.sources import Desk, search
    from ci_bench.github.baseline import Absence, FoundBaseline
    from ci_bench.github.context import load_context, server_of

    context = load_context(os.environ)
    with _client(server_of(os.environ), arguments) as client:
        desk = Desk(client=client, context=context, pull=None, arguments=arguments)
        found = search(desk, arguments.baseline_artifact, arguments.output)
    said = _said(found)
    _write_text(arguments.output / OUTCOME, json.dumps(said, indent=1) + "\n")
    path = str(arguments.output / RESULTS) if isinstance(found, FoundBaseline) else ""
    _append_outputs({"found": str(bool(path)).lower(), "path": path, "reason": str(said.get("reason", ""))})
    tell(_defused(str(said["message"])))
    unanswered = not isinstance(found, FoundBaseline) and found.reason in {Absence.REFUSED, Absence.UNREACHABLE}
    return int(ExitCode.GITHUB if unanswered else ExitCode.OK)


@_defusing
def fetch_config(arguments: argparse.Namespace) -> int:
    """Fetch the base branch's configuration: what a pull request is measured by is not the pull request's to say."""
    from ci_bench.commands.trusted.sources import Desk, keep_config
    from ci_bench.github.context import load_context, server_of
    from ci_bench.github.pulls import NoPullRequest

    context = load_context(os.environ)
    with _client(server_of(os.environ), arguments) as client:
        pull = _find_pull(client, context)
        if isinstance(pull, NoPullRequest) and context.base_branch is None and not pull.answered:
            raise GitHubFailed(pull.reason)
        desk = Desk(client=client, context=context, pull=pull, arguments=arguments)
        said = keep_config(desk, arguments.output / "ci-bench.yml")
    tell(_defused(f"configuration: {said}"))
    return int(ExitCode.OK)


def absence(folder: Path) -> str | None:
    """Why `fetch_baseline` left no results in a folder, in its own words; `None` where it never ran or found some."""
    try:
        said = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    message = said.get("message") if isinstance(said, dict) and said.get("outcome") == "none" else None
    return message if isinstance(message, str) else None


def _client(server: "Server", arguments: argparse.Namespace) -> "Client":
    from ci_bench.github.client import Client

    return Client(server, patience_s=arguments.patience_s)


def _find_pull(client: "Client", context: "Context") -> "PullRequest | NoPullRequest":
    """The pull request; that GitHub could not be asked does not stop the verdict."""
    from ci_bench.github.pulls import NoPullRequest, find_pull

    try:
        return find_pull(client, context)
    except GitHubFailed as error:
        return NoPullRequest(reason=str(error), answered=False)


def _judge(desk: "Desk") -> Judged:
    """Every leg's verdict. A configuration or artifact that cannot be had fails the run: it must not look green."""
    from ci_bench.commands.trusted import sources

    try:
        config, notes = sources.base_config(desk)
        legs, look = sources.find_legs(desk), sources.baseline_finder(desk)
    except CiBenchError as error:
        return Judged(legs=(JudgedLeg(name="run", fault=error),))
    alone = len(legs) == 1
    judged = [
        judge_leg(
            leg,
            config=config,
            output=desk.output if alone else desk.output / "reports" / leg.name,
            find_base=partial(look, leg) if look else None,
        )
        for leg in legs
    ]
    if desk.context.conclusion not in {None, "success"}:
        notes = (*notes, f"_The run that measured ended as {desk.context.conclusion}._")
    return Judged(legs=tuple(judged), notes=notes)


def _publish(desk: "Desk", judged: Judged) -> tuple["Outcome", ...]:
    from ci_bench.github.comments import PART, Mode, Sticky
    from ci_bench.github.marker import Marker
    from ci_bench.github.outcomes import Outcome, State
    from ci_bench.github.publishing import CheckMode, Publication
    from ci_bench.github.publishing import publish as send
    from ci_bench.github.pulls import PullRequest

    arguments, context, pull = desk.arguments, desk.context, desk.pull
    check, mode = _check(context, arguments, judged), CheckMode(arguments.check)
    if not isinstance(pull, PullRequest):
        answered = pull is None or pull.answered
        reason = f"no pull request to comment on: {'' if pull is None else pull.reason}"
        nobody = Outcome(part=PART, state=State.SKIPPED if answered else State.FAILED, detail=reason)
        return send(desk.client, Publication(check=check, check_mode=mode, no_comment=nobody))
    marker = Marker(key=arguments.key, run=context.run, head=context.head.sha)
    sticky = Sticky(
        number=pull.number,
        marker=marker,
        text=telling.comment(judged, marker=str(marker)),
        author=arguments.comment_author,
        mode=Mode(arguments.comment),
        changed=telling.changed(judged),
    )
    return send(desk.client, Publication(check=check, check_mode=mode, sticky=sticky))


def _check(context: "Context", arguments: argparse.Namespace, judged: Judged) -> "Check":
    from ci_bench.github.checks import Check, Conclusion

    passed = Conclusion.SUCCESS if judged.compared else Conclusion.NEUTRAL
    return Check(
        name=arguments.check_name,
        key=arguments.key,
        run=context.run,
        head_sha=context.head.sha,
        conclusion=Conclusion.FAILURE if judged.exit_code else passed,
        title=telling.title(judged),
        summary=telling.comment(judged),
        annotations=telling.annotations(judged, arguments.config_path),
        details_url=context.run_url,
    )


def _write_reports(judged: Judged, outcomes: Sequence["Outcome"], output: Path, code: int) -> None:
    """The job's summary and outputs, where there is a job. Outputs are our own words, counts, paths and addresses, no names."""
    from ci_bench.github import workflow

    _write_text(output / "comment.md", telling.comment(judged))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        workflow.append_summary(Path(summary), telling.report(judged))
    check, comment = outcomes[0], outcomes[-1]
    urls = {"check_url": check.url or "", "comment_url": comment.url or ""}
    counted = {word: str(number) for word, number in telling.counts(judged).items()}
    verdict = "failed" if judged.exit_code else "passed"
    _append_outputs({"verdict": verdict, "exit_code": str(code), "report": str(output), **counted, **urls})


def _append_outputs(outputs: Mapping[str, str]) -> None:
    from ci_bench.github import workflow

    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        workflow.append(Path(path), workflow.outputs_text(outputs))


def _tell(judged: Judged | None, outcomes: Sequence["Outcome"], *, read_only: bool) -> None:
    """The verdict in the log, whatever became of the comment; what went wrong with that also as an annotation of the run."""
    from ci_bench.github import workflow
    from ci_bench.github.outcomes import State

    if judged is not None:
        say(f"{_defused(telling.title(judged))}\n")
    for one in outcomes:
        tell(_defused(f"{one.part}: {one.state}: {one.detail}"))
        expected = one.state is State.REFUSED and read_only
        if one.state in {State.REFUSED, State.FAILED} and os.environ.get("GITHUB_ACTIONS"):
            level = workflow.LogLevel.NOTICE if expected else workflow.LogLevel.WARNING
            say(f"{workflow.command(level, one.detail, title=f'ci-bench {one.part}')}\n")


def _said(found: "FoundBaseline | NoBaseline") -> Mapping[str, str | int]:
    """What was found, as the document that is left behind."""
    from ci_bench.github.baseline import FoundBaseline

    if not isinstance(found, FoundBaseline):
        return {"outcome": "none", "reason": found.reason.value, "message": found.message}
    return {
        "outcome": "found",
        "artifact": found.artifact.id,
        "run": found.artifact.run_id or 0,
        "commit": found.commit,
        "distance": found.distance,
        "created_at": found.artifact.created_at,
        "message": f"the baseline is of {found.commit[:12]}, {found.distance} commits before the base commit",
    }


def _write_text(path: Path, text: str) -> None:
    from ci_bench.records import documents

    documents.write_text(text, path)


def _defused(text: str) -> str:
    from ci_bench.github import workflow

    return workflow.defused(text)
