"""Required properties of results, and whether their run may be judged at all.

They come from GitHub's records and the base branch's configuration.

The configuration is planned here; no code of the tree is run for it, and no torch is needed.
`judge.policy.binding` compares results with the outcome. A run without a verdict is never green. A
run that waits for approval, or that was skipped, is not reported: a required check continues to
wait. One that was cancelled, and one whose pull request is closed or has moved on, ends its check
as `cancelled`, which lets nothing pass and blames no one. docs/internals/outcomes.md has the table.
"""

import re
from dataclasses import dataclass, replace

from ci_bench import __version__
from ci_bench.commands.trusted.machine_results import MeasuredMachine
from ci_bench.commands.trusted.sources import PublishContext
from ci_bench.errors import ExitCode, GitHubMissing
from ci_bench.github.client import Client
from ci_bench.github.commits import branch_point, is_on, parents, resolve, tree
from ci_bench.github.context import BY_HAND, EventContext
from ci_bench.github.pulls import NoPullRequest, PullRequest
from ci_bench.judge.policy import binding
from ci_bench.judge.policy.binding import BASE, Commits, Expected
from ci_bench.judge.policy.rules import Scope
from ci_bench.records.acceptance import Acceptance
from ci_bench.records.config import Config, Machine, Policy, Rule, Severity
from ci_bench.records.declarations import Declaration
from ci_bench.records.results import Case, Results, WorkflowRun
from ci_bench.runner import planning
from ci_bench.suites.registry import plans_from_tree

Pulls = tuple[PullRequest, ...] | NoPullRequest

SILENT = {
    "action_required": "the run waits for approval",
    "skipped": "every job of the run was skipped, so nothing was measured",
}
"""Reasons to stay silent, by the conclusion of the run that measured."""
CANCELLED = {
    "cancelled": "the run was cancelled before its end",
    "stale": "GitHub abandoned the unfinished run",
}
"""Reasons for a cancelled check, by the same conclusions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Halt:
    """Reason why nothing is judged.

    If it is `told`, the commit's check ends as `cancelled`; else nothing is written anywhere.
    """

    reason: str
    told: bool

    @property
    def exit_code(self) -> ExitCode:
        """Success if nothing has to be reported; a missing verdict has not met the policy."""
        return ExitCode.POLICY_NOT_MET if self.told else ExitCode.OK


def halted(context: EventContext, pulls: Pulls) -> Halt | None:
    """Explain why a run is not judged; `None` if it is."""
    ended = context.conclusion or ""
    if ended in SILENT:
        return Halt(reason=SILENT[ended], told=False)
    if ended in CANCELLED:
        return Halt(reason=CANCELLED[ended], told=True)
    if isinstance(pulls, NoPullRequest) and pulls.answered and context.is_for_pull_request:
        return Halt(reason=pulls.reason, told=True)
    return None


def waits(client: Client, context: EventContext) -> str | None:
    """Explain why the measuring run is not announced; `None` if it is under way.

    Raises `GitHubFailed`.

    The event is older than we are: the run may wait for approval, or have ended, by now.
    """
    if not context.reports_for_another_run:
        return None
    try:
        run = client.get(f"actions/runs/{context.run.id}")
    except GitHubMissing:
        ended, status = context.conclusion, None
    else:
        ended, status = run.text("conclusion"), run.text("status")
        if run.number("run_attempt") != context.run.attempt:
            return "another attempt of the run has started"
    if "action_required" in {ended, status} or status == "waiting":
        return SILENT["action_required"]
    return f"the run has ended already ({ended or status})" if status == "completed" else None


PAIRED = "paired"
_MODES = {PAIRED, "artifact", "none"}
_WHOLE = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REMOTE = "origin/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expecting:
    """Requirements of one pull request, or one branch, for a run.

    It asks GitHub for the commits that its machines name. `accepted` are the intended changes that
    count.
    """

    publishing: PublishContext
    config: Config
    accepted: tuple[Acceptance, ...] = ()

    @property
    def policy(self) -> Policy:
        """The base branch's policy.

        Runs that a person started by hand are narrowed on purpose, and set no check. A baseline is
        not: cases that it lacks would look new.
        """
        policy, compares = self.config.policy, self.publishing.settings.baseline != "none"
        by_hand = compares and self.publishing.context.event == BY_HAND
        return (
            replace(policy, severities={**policy.severities, Rule.NARROWED: Severity.WARN})
            if by_hand
            else policy
        )

    def of(self, machine: MeasuredMachine, head: Results) -> Expected:
        """Return the required properties of a machine's results.

        Raises `GitHubFailed`, and `BadConfig` if planning fails.
        """
        config, context = self.config, self.publishing.context
        cases, foreign = plan_here(config)
        paired = self.publishing.settings.baseline == PAIRED
        return Expected(
            cases=cases,
            foreign=foreign,
            config_digest=planning.digest(config),
            device=(config.written or config.run).device,
            machine=config.machines.get(machine.declared or "", Machine()),
            workflow=WorkflowRun(
                repository=context.repository, run=context.run.id, attempt=context.run.attempt
            ),
            head=self._head(head.source.commit),
            base=self._base(head, machine) if paired else None,
            tool_version=__version__,
            filters=self.publishing.settings.filter if context.is_requested else (),
        )

    def scope(self, head: Results, expected: Expected, base: Results | None = None) -> Scope:
        """Describe the measured part of the plan, and flags of this job that narrow or change it.

        The workflow that reports on another run, or answers a request, is the default branch's; a
        pull request's own job can set any flag.
        """
        scope, settings, config = (
            binding.scope(head, expected, base),
            self.publishing.settings,
            self.config,
        )
        moved: dict[str, str] = {}
        if settings.baseline == "artifact" and settings.base not in {None, config.base}:
            moved[BASE] = str(settings.base)
        gated = (
            isinstance(self.publishing.pull, PullRequest)
            or self.publishing.context.event == "merge_group"
        )
        if settings.baseline != config.baseline and (
            config.baseline in _MODES or (settings.baseline == "none" and gated)
        ):
            moved["baseline"] = settings.baseline
        if self.publishing.context.reports_for_another_run or self.publishing.context.is_requested:
            return scope
        return replace(
            scope,
            narrowed=(
                *scope.narrowed,
                *(binding.moved_by(name, (value,)) for name, value in moved.items()),
            ),
        )

    def _head(self, commit: str | None) -> Commits:
        """Return the measured commit, or GitHub's test merge of it.

        A test merge is a commit of the base branch with the measured one, in this order.
        """
        context, branch = self.publishing.context, self.publishing.base_branch
        sha, for_pull = (
            context.head.sha,
            isinstance(self.publishing.pull, PullRequest) or context.is_for_pull_request,
        )
        if not for_pull or branch is None:
            return Commits(
                accepted=(sha,), words=f"the commit that this run ({context.event}) is for"
            )
        words = f"the head of the pull request, or GitHub's merge of it into {branch}"
        if commit is None or commit == sha or not _WHOLE.fullmatch(commit):
            return Commits(accepted=(sha,), words=words)
        try:
            first, *others = parents(self.publishing.client, commit) or ("",)
            merged = others == [sha] and is_on(self.publishing.client, branch, first)
            is_githubs = self._is_githubs(commit, first, sha) if merged else False
        except GitHubMissing:
            is_githubs = False
        if is_githubs is False:
            return Commits(accepted=(sha,), words=words)
        doubt = (
            None
            if is_githubs
            else f"GitHub no longer knows the merge {commit[:12]} that was measured; run it again"
        )
        return Commits(accepted=(sha, commit), words=words, doubt=doubt)

    def _is_githubs(self, commit: str, first: str, sha: str) -> bool | None:
        """Return whether this merge of `sha` into `first` is GitHub's; `None` if no longer known.

        Anyone can push a merge with these parents and any content. GitHub keeps only its newest
        test merge, so an older one is recognised only by its content.
        """
        client, pull = self.publishing.client, self.publishing.pull
        newest = pull.merge_sha if isinstance(pull, PullRequest) else None
        if commit in {newest, self.publishing.context.merge_sha}:
            return True
        content = tree(client, commit)
        if branch_point(client, first, sha) == first:
            return content == tree(
                client, sha
            )  # nothing is new on the branch: the merge is head's own content
        try:
            same = newest is not None and parents(client, newest) == (first, sha)
            return content == tree(client, newest) if newest is not None and same else None
        except GitHubMissing:
            return None

    def _base(self, head: Results, machine: MeasuredMachine) -> Commits:
        """Return the base commit of a paired run, by the configuration, else by head's own commit.

        For a run on request, `answer-request` chose it by the same rules. So the results do not
        decide.
        """
        commit, context = head.source.commit, self.publishing.context
        allowed = self.policy.severity(Rule.NARROWED) is not Severity.FAIL
        name = (
            next(iter(head.run.asked.get(BASE, ())), None)
            if allowed and not context.is_requested
            else None
        )
        if commit is None or not _WHOLE.fullmatch(commit):
            return Commits(accepted=(), words="head's commit is not known")
        return self.base_of(commit, machine, name=name)

    def base_of(self, commit: str, machine: MeasuredMachine, *, name: str | None = None) -> Commits:
        """Return the base commits of a head: by `name`, the configuration, or head's history."""
        context, name = self.publishing.context, name or self.config.base
        try:
            if name is not None:
                return self._resolve_name(name, commit, machine)
            if context.event == "merge_group" and context.base_branch is not None:
                point = branch_point(self.publishing.client, context.base_branch, commit)
                words = f"the base of the merge group, or where it left {context.base_branch}"
                return Commits(accepted=tuple(filter(None, (context.base_sha, point))), words=words)
            return self._of_head(commit)
        except GitHubMissing as error:
            return Commits(
                accepted=(), words=f"GitHub does not report which commit it should be: {error}"
            )

    def _of_head(self, commit: str) -> Commits:
        """Return the base that `checkouts.bases` chooses.

        That is head's first parent on the target branch, or else the commit where head left it.
        """
        publishing = self.publishing
        for_pull = (
            isinstance(publishing.pull, PullRequest) or publishing.context.is_for_pull_request
        )
        target = publishing.base_branch if for_pull else publishing.context.default_branch
        if target is None:
            return Commits(
                accepted=(),
                words="this event does not name head's target branch; name one with `base:`",
            )
        before = parents(publishing.client, commit)
        if before and (
            is_on(publishing.client, target, commit)
            or (len(before) > 1 and is_on(publishing.client, target, before[0]))
        ):
            return Commits(accepted=before[:1], words=f"head's first parent, which is on {target}")
        point = branch_point(publishing.client, target, commit)
        if point == commit:
            return Commits(
                accepted=(),
                words="head is the first commit: there is nothing before it to compare with",
            )
        return Commits(accepted=(point,), words=f"where head left {target}")

    def _resolve_name(self, name: str, commit: str, machine: MeasuredMachine) -> Commits:
        """Return the commit of a name.

        Of a branch it may be any commit since head left it: the branch may have moved while
        measuring.
        """
        client, (start, dots, end) = self.publishing.client, name.partition("...")
        if dots:
            sides = (
                commit if side in {"", "HEAD"} else side.removeprefix(_REMOTE)
                for side in (start, end)
            )
            return Commits(
                accepted=(branch_point(client, *sides),), words=f"the merge base of {name}"
            )
        branch = name.removeprefix(_REMOTE)
        tip, point = resolve(client, branch), branch_point(client, branch, commit)
        measured = machine.base_commit()
        since = (
            measured is not None
            and is_on(client, branch, measured)
            and branch_point(client, measured, point) == point
        )
        return Commits(
            accepted=(tip, str(measured)) if since else (tip,),
            words=f"what `base: {name}` stands for",
        )


def plan_here(config: Config) -> tuple[tuple[Case, ...], tuple[Declaration, ...]]:
    """Return the cases that can be planned without the tree, and declarations of the others.

    It reads no local file: its origin would be unknown.

    Raises `BadConfig`.
    """
    entries = tuple(zip(config.entries, planning.declarations(config), strict=True))
    of_tree = [plans_from_tree(entry.suite, entry.options) for entry, _ in entries]
    here = tuple(
        replace(entry, cases=None)
        for (entry, _), foreign in zip(entries, of_tree, strict=True)
        if not foreign
    )
    declared = dict.fromkeys(
        declaration for (_, declaration), foreign in zip(entries, of_tree, strict=True) if foreign
    )
    return tuple(case for _, case in planning.plan(replace(config, entries=here), ())), tuple(
        declared
    )
