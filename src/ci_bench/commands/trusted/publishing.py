"""The actions of `ci-bench github` except answer-request. They measure nothing, and need no torch.

`publish` is the trusted half of a gate: it has a token and runs none of the pull request's code.
The results that it reads come from a stranger; the verdict is computed again from the raw samples,
by the configuration of the base branch.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path

from ci_bench.command_line.settings import Publishing
from ci_bench.commands.baseline_files import OUTCOME
from ci_bench.commands.output import say, tell
from ci_bench.commands.trusted import comment_text, sources
from ci_bench.commands.trusted.expecting import Expecting, Halt, Pulls, halted, waits
from ci_bench.commands.trusted.granting import grants, suggestion
from ci_bench.commands.trusted.judging import Judged, JudgedMachine, judge_machine
from ci_bench.commands.trusted.machine_results import RESULTS
from ci_bench.commands.trusted.sources import PublishContext, keep_config, search
from ci_bench.errors import CiBenchError, ExitCode, GitHubFailed
from ci_bench.github import workflow
from ci_bench.github.baseline import Absence, FoundBaseline, NoBaseline
from ci_bench.github.checks import CheckRun, Conclusion, mark
from ci_bench.github.client import Client
from ci_bench.github.comments import PART, CommentMode, Marker, Sticky, publish_comment
from ci_bench.github.context import EventContext, load_context, server_of
from ci_bench.github.outcomes import PublishOutcome, State, attempt, exit_code
from ci_bench.github.pulls import NoPullRequest, PullRequest, find_pulls
from ci_bench.records import documents
from ci_bench.records.comparison import RunVerdict

PATIENCE_S = 120.0
"""Time for all waits together in the job that measures: a GPU is idle meanwhile."""
HOSTED_PATIENCE_S = 600.0
"""The same elsewhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedJudgement:
    """The verdict for one pull request, or for a branch, and the context of its publishing."""

    publishing: PublishContext
    judged: Judged


Command = Callable[[Publishing], int]


def defusing(command: Command) -> Command:
    """Wrap a command, and defuse its errors.

    They may repeat a stranger's text, and a job's log is searched for commands.
    """

    @wraps(command)
    def defused(settings: Publishing) -> int:
        try:
            return command(settings)
        except CiBenchError as error:
            raise type(error)(workflow.defused(str(error))) from None

    return defused


@defusing
def publish(settings: Publishing) -> int:
    """Judge the documents of a run, report to its pull request, and exit by the verdict."""
    context = load_context(settings.environ, head=settings.head)
    settings = _for_request(settings, context)
    with client_of(settings) as client:
        pulls = _find_pulls(client, context)
        halt = halted(context, pulls)
        if halt is not None:
            return _halt(client, context, settings, halt)
        judgements = _judge_each(
            PublishContext(client=client, context=context, pull=None, settings=settings), pulls
        )
        judged = strictest(judgements)
        outcomes = _publish(judgements, judged)
    read_only = _is_read_only(context, settings)
    code = exit_code(judged.exit_code, outcomes, read_only=read_only)
    _write_reports(judged, outcomes, settings, code)
    _tell(settings, judged, outcomes, read_only=read_only)
    return code


@defusing
def announce(settings: Publishing) -> int:
    """Mark the commit as being measured, which makes a required check wait for the verdict."""
    context = load_context(settings.environ)
    check = CheckRun(
        name=context.check_name(settings.key),
        key=settings.key,
        run=context.run,
        head_sha=context.head.sha,
        conclusion=None,
        title="Measuring",
        summary="The verdict comes when the run has ended.",
        details_url=context.run_url,
        reporter=_reporter(context, settings),
        restates=context.reports_for_another_run,
    )
    with client_of(settings) as client:
        why = waits(client, context)
        if why is not None:
            tell(_defused(f"nothing is announced: {why}"))
            return int(ExitCode.OK)
        outcomes = send(client, check if context.gates else None)
    _tell(settings, None, outcomes, read_only=context.read_only)
    return exit_code(ExitCode.OK, outcomes, read_only=context.read_only)


@defusing
def fetch_baseline(settings: Publishing) -> int:
    """Fetch the base side's results from an earlier run, or report why they are missing.

    Missing results do not fail.
    """
    context = load_context(settings.environ, head=settings.head)
    with client_of(settings) as client:
        publishing = PublishContext(client=client, context=context, pull=None, settings=settings)
        baseline = search(publishing, settings.baseline_artifact, settings.output)
    document = _describe_search(baseline)
    _write_text(settings.output / OUTCOME, json.dumps(document, indent=1) + "\n")
    path = str(settings.output / RESULTS) if isinstance(baseline, FoundBaseline) else ""
    append_outputs(
        settings,
        {"found": str(bool(path)).lower(), "path": path, "reason": str(document.get("reason", ""))},
    )
    tell(_defused(str(document["message"])))
    unanswered = not isinstance(baseline, FoundBaseline) and baseline.reason in {
        Absence.REFUSED,
        Absence.UNREACHABLE,
    }
    return int(ExitCode.GITHUB if unanswered else ExitCode.OK)


@defusing
def fetch_config(settings: Publishing) -> int:
    """Fetch the base branch's configuration: a pull request must not choose its own rules."""
    context = load_context(settings.environ, head=settings.head)
    with client_of(settings) as client:
        pulls = _find_pulls(client, context)
        pull = pulls if isinstance(pulls, NoPullRequest) else pulls[0]
        if isinstance(pull, NoPullRequest) and context.base_branch is None and not pull.answered:
            raise GitHubFailed(pull.reason)
        publishing = PublishContext(client=client, context=context, pull=pull, settings=settings)
        origin, waits = keep_config(publishing, settings.output / "ci-bench.yml")
    note = f": {waits} yet, so this run can fail and never pass" if waits else ""
    tell(_defused(f"configuration: {origin}{note}"))
    append_outputs(settings, {"configured": "head" if waits else "true"})
    return int(ExitCode.OK)


def client_of(settings: Publishing) -> Client:
    """Return a client of the repository that the job runs for. Raises `NotOnGitHub`."""
    holds_gpu = bool(settings.folders) or settings.action in {"fetch-baseline", "fetch-config"}
    return Client(
        server_of(settings.environ), patience_s=PATIENCE_S if holds_gpu else HOSTED_PATIENCE_S
    )


def _for_request(settings: Publishing, context: EventContext) -> Publishing:
    """Give a run on request a separate comment, whatever the workflow says: it gates nothing."""
    return (
        replace(settings, key=f"request-{context.comment_id}") if context.is_requested else settings
    )


def _find_pulls(client: Client, context: EventContext) -> Pulls:
    """Return the pull requests; a failure of GitHub becomes a reason for having none."""
    try:
        return find_pulls(client, context)
    except GitHubFailed as error:
        return NoPullRequest(reason=str(error), answered=False)


def _judge_each(publishing: PublishContext, pulls: Pulls) -> tuple[PublishedJudgement, ...]:
    """Return the verdict for each pull request, by its own base branch, or the branch's verdict."""
    if isinstance(pulls, NoPullRequest):
        alone = replace(publishing, pull=pulls)
        return (PublishedJudgement(publishing=alone, judged=_judge(alone)),)
    contexts = [
        replace(publishing, pull=pull, folder=f"pull-{pull.number}" if index else None)
        for index, pull in enumerate(pulls)
    ]
    return tuple(
        PublishedJudgement(publishing=context, judged=_judge(context)) for context in contexts
    )


def strictest(judgements: Sequence[PublishedJudgement]) -> Judged:
    """Return the verdict for the commit's check: the worst of its pull requests, which share it."""
    return max(
        judgements, key=lambda judgement: list(RunVerdict).index(judgement.judged.verdict)
    ).judged


def _judge(publishing: PublishContext) -> Judged:
    """Judge every machine.

    A configuration or artifact that cannot be read fails the run: it must not look green.
    """
    if (
        isinstance(publishing.pull, NoPullRequest)
        and not publishing.pull.answered
        and publishing.base_branch is None
    ):
        reason = f"the branch whose rules apply is unknown: {publishing.pull.reason}"
        return Judged(machines=(JudgedMachine(name="run", fault=GitHubFailed(reason)),))
    try:
        rules = sources.base_config(publishing)
        config, notes = rules.config, rules.notes
        machines, look = (
            sources.find_machines(publishing, config),
            sources.baseline_finder(publishing),
        )
    except CiBenchError as error:
        return Judged(machines=(JudgedMachine(name="run", fault=error),))
    alone, granted = len(machines) == 1, grants(publishing)
    expecting = Expecting(publishing=publishing, config=config, accepted=granted.accepted)
    judged = [
        judge_machine(
            machine,
            expecting=expecting,
            output=publishing.output if alone else publishing.output / "reports" / machine.name,
            find_base=partial(look, machine) if look else None,
        )
        for machine in machines
    ]
    if publishing.context.is_requested:
        notes = (*notes, comment_text.on_request(publishing.settings.filter))
    if publishing.context.has_own_rules:
        notes = (*notes, comment_text.OWN_RULES)
    if publishing.context.conclusion not in {None, "success"}:
        notes = (*notes, f"_The run that measured ended as {publishing.context.conclusion}._")
    notes = (*notes, *granted.notes)
    is_part = sources.is_part(publishing, config)
    if not rules.waits:
        complete = Judged(machines=tuple(judged), notes=notes, is_part=is_part)
        return replace(complete, notes=(*notes, *suggestion(complete, publishing)))
    measured = tuple(machine for machine in judged if machine.fault is None)
    missing = tuple(
        comment_text.not_measured(machine) for machine in judged if machine.fault is not None
    )
    return Judged(machines=measured, notes=(*notes, *missing), waits=rules.waits, is_part=is_part)


def _halt(client: Client, context: EventContext, settings: Publishing, halt: Halt) -> int:
    """Report that nothing is judged: in a check that passes nothing, in a comment, or nowhere."""
    say(f"{_defused(f'Not judged: {halt.reason}')}\n")
    append_outputs(
        settings,
        {"verdict": "failed" if halt.told else "none", "exit_code": str(int(halt.exit_code))},
    )
    if not halt.told:
        return int(halt.exit_code)
    check = CheckRun(
        name=_check_name(context, settings),
        key=settings.key,
        run=context.run,
        head_sha=context.head.sha,
        conclusion=Conclusion.CANCELLED,
        title="Not judged",
        summary=comment_text.not_judged(halt.reason),
        details_url=context.run_url,
        reporter=_reporter(context, settings),
        restates=context.reports_for_another_run,
    )
    sticky = _not_judged(context, settings, halt.reason)
    outcomes = send(client, check if context.gates else None, sticky)
    read_only = _is_read_only(context, settings)
    _tell(settings, None, outcomes, read_only=read_only)
    return exit_code(halt.exit_code, outcomes, read_only=read_only)


def _not_judged(context: EventContext, settings: Publishing, reason: str) -> tuple[Sticky, ...]:
    """Return the comment on a requested run without a verdict; other runs have a check for that."""
    if not context.is_requested or context.pull_number is None:
        return ()
    marker = Marker(key=settings.key, run=context.run, head=context.head.sha)
    text = f"{marker}\n\n{comment_text.not_judged_on_request(reason)}\n"
    mode, author = CommentMode(settings.comment), settings.comment_author
    return (Sticky(number=context.pull_number, marker=marker, text=text, author=author, mode=mode),)


def _publish(
    judgements: Sequence[PublishedJudgement], judged: Judged
) -> tuple[PublishOutcome, ...]:
    """Publish the strictest verdict as the commit's check, and each pull request's as a comment.

    If results belong to another pull request's base, that one's run reports to its pull request;
    here only the check does.
    """
    first = judgements[0].publishing
    sets_check = first.context.gates and not any(
        judgement.judged.is_part for judgement in judgements
    )
    check = _check(first.context, first.settings, judged) if sets_check else None
    if not isinstance(first.pull, PullRequest):
        answered = first.pull is None or first.pull.answered
        reason = f"no pull request to comment on: {'' if first.pull is None else first.pull.reason}"
        nobody = PublishOutcome(
            part=PART, state=State.SKIPPED if answered else State.FAILED, detail=reason
        )
        return (*send(first.client, check), nobody)
    spoken = [judgement for judgement in judgements if judgement.judged.speaks]
    stickies = tuple(_sticky(judgement, strict=judged) for judgement in spoken or judgements)
    return send(first.client, check, stickies)


def send(
    client: Client, check: CheckRun | None, stickies: Sequence[Sticky] = ()
) -> tuple[PublishOutcome, ...]:
    """Write the check, which can be required, and then a comment on each pull request.

    Each has an outcome, whatever becomes of the others. Never raises `GitHubFailed`.
    """
    return mark(client, check), *(
        attempt(PART, partial(publish_comment, client, sticky)) for sticky in stickies
    )


def _sticky(judgement: PublishedJudgement, *, strict: Judged) -> Sticky:
    publishing, judged = judgement.publishing, judgement.judged
    assert isinstance(publishing.pull, PullRequest)  # noqa: S101 - only those are commented on
    marker = Marker(
        key=publishing.settings.key, run=publishing.context.run, head=publishing.context.head.sha
    )
    shown = (
        judged
        if judged.exit_code or not strict.exit_code
        else replace(judged, notes=(*judged.notes, comment_text.SHARED))
    )
    return Sticky(
        number=publishing.pull.number,
        marker=marker,
        text=comment_text.comment(shown, marker=str(marker)),
        author=publishing.settings.comment_author,
        mode=CommentMode(publishing.settings.comment),
        changed=comment_text.changed(judged),
    )


def _reporter(context: EventContext, settings: Publishing) -> str:
    """Return an id that distinguishes jobs that report about one run, also those of a matrix.

    Each has its own artifact.
    """
    text = f"{context.reporter} {settings.artifact}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _check_name(context: EventContext, settings: Publishing) -> str:
    return context.check_name(settings.key, compares=settings.baseline != "none")


def _is_read_only(context: EventContext, settings: Publishing) -> bool:
    """Return whether the token may lack write access: a fork's, or a job's that only measures."""
    return context.read_only or settings.measures_only


def _check(context: EventContext, settings: Publishing, judged: Judged) -> CheckRun:
    decided = judged.compared and judged.verdict is RunVerdict.PASSED
    met = Conclusion.SUCCESS if decided and not context.has_own_rules else Conclusion.NEUTRAL
    return CheckRun(
        name=_check_name(context, settings),
        key=settings.key,
        run=context.run,
        head_sha=context.head.sha,
        conclusion=Conclusion.FAILURE if judged.verdict is RunVerdict.FAILED else met,
        title=comment_text.title(judged),
        summary=comment_text.comment(judged),
        annotations=comment_text.annotations(judged, settings.config_path),
        details_url=context.run_url,
        reporter=_reporter(context, settings),
        restates=context.reports_for_another_run,
    )


def _write_reports(
    judged: Judged, outcomes: Sequence[PublishOutcome], settings: Publishing, code: int
) -> None:
    """Write the comment's file, and the job's summary and outputs if there is a job.

    Outputs are our own words, counts, paths and addresses, no names.
    """
    _write_text(settings.output / "comment.md", comment_text.comment(judged))
    summary = settings.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        workflow.append_summary(
            Path(summary), comment_text.report(judged, closed=_closed(outcomes))
        )
    check, comment = outcomes[0], outcomes[min(1, len(outcomes) - 1)]
    urls = {"check_url": check.url or "", "comment_url": comment.url or ""}
    counted = {word: str(number) for word, number in comment_text.counts(judged).items()}
    append_outputs(
        settings,
        {
            "verdict": str(judged.verdict),
            "exit_code": str(code),
            "report": str(settings.output),
            **counted,
            **urls,
        },
    )


def _closed(outcomes: Sequence[PublishOutcome]) -> tuple[str, ...]:
    """List the reasons why GitHub could not be written to, although the token may write."""
    return tuple(
        f"no {outcome.part}: {outcome.detail}"
        for outcome in outcomes
        if outcome.state is State.CLOSED
    )


def append_outputs(settings: Publishing, outputs: Mapping[str, str]) -> None:
    """Write outputs of the step, if there is one. Raises `CannotWrite`."""
    path = settings.environ.get("GITHUB_OUTPUT")
    if path:
        workflow.append(Path(path), workflow.outputs_text(outputs))


def _tell(
    settings: Publishing,
    judged: Judged | None,
    outcomes: Sequence[PublishOutcome],
    *,
    read_only: bool,
) -> None:
    """Print the verdict to the log, whatever became of the comment.

    Problems with the comment or the check are also annotations of the run.
    """
    if judged is not None:
        say(f"{_defused(comment_text.title(judged))}\n")
    for outcome in outcomes:
        tell(_defused(f"{outcome.part}: {outcome.state}: {outcome.detail}"))
        expected = outcome.state is State.CLOSED or (outcome.state is State.REFUSED and read_only)
        if outcome.state in {State.CLOSED, State.REFUSED, State.FAILED} and settings.environ.get(
            "GITHUB_ACTIONS"
        ):
            level = workflow.LogLevel.NOTICE if expected else workflow.LogLevel.WARNING
            say(f"{workflow.command(level, outcome.detail, title=f'ci-bench {outcome.part}')}\n")


def _describe_search(baseline: FoundBaseline | NoBaseline) -> Mapping[str, str | int]:
    """Return the result of the search, as the document in the folder."""
    if not isinstance(baseline, FoundBaseline):
        return {"outcome": "none", "reason": baseline.reason.value, "message": baseline.message}
    return {
        "outcome": "found",
        "artifact": baseline.artifact.id,
        "run": baseline.artifact.run_id or 0,
        "commit": baseline.commit,
        "distance": baseline.distance,
        "created_at": baseline.artifact.created_at,
        "message": (
            f"the baseline is of {baseline.commit[:12]}, {baseline.distance} commits before the"
            " base commit"
        ),
    }


def _write_text(path: Path, text: str) -> None:
    documents.write_text(text, path)


def _defused(text: str) -> str:
    return workflow.defused(text)
