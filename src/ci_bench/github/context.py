"""Context of a workflow: repository, run, event, commit, from its environment and event file.

The event file is the runner's own and is believed; nothing here comes out of an artifact. In a
`workflow_run` workflow, run and commit are those of the workflow that measured, not of the one that
reports.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.errors import NotOnGitHub
from ci_bench.github.server import PUBLIC_API, ApiRecord, GithubServer

MAX_EVENT_BYTES = 30_000_000
TOKENS = ("CI_BENCH_GITHUB_TOKEN", "GITHUB_TOKEN")
DEPENDABOT = "dependabot[bot]"
COMMENT = "issue_comment"
"""GitHub's event for a comment on an issue or a pull request."""
BY_HAND = "workflow_dispatch"
"""GitHub's event for a run that a person started."""
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCH = "refs/heads/"
_GROUP = re.compile(r"gh-readonly-queue/(?P<branch>.+)/pr-[0-9]+-(?P<base>[0-9a-f]{40})")
_NEEDED = ("GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_EVENT_NAME", "GITHUB_SHA")


@dataclass(frozen=True, kw_only=True, order=True, slots=True)
class RunId:
    """A run of a workflow and its attempt; a later one is larger."""

    id: int
    attempt: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The measured commit and its origin.

    A field is `None` if the event doesn't say, as for a deleted fork.
    """

    sha: str
    branch: str | None = None
    owner: str | None = None
    repository_id: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EventContext:
    """The workflow's view of the run that measured."""

    repository: str
    """This repository, ``owner/name``."""
    repository_id: int | None
    """GitHub's id of it; `None` if neither event nor environment says."""
    run: RunId
    """The run that measured, and its attempt."""
    event: str
    """The event that started that run."""
    reports_for_another_run: bool
    """Whether this workflow reports, and another one measured."""
    head: Head
    """The measured commit."""
    workflow: str | None = None
    """Path of the workflow file that measured; `None` if unknown."""
    base_branch: str | None = None
    """The branch that head is to be merged into; `None` if the event does not say."""
    base_sha: str | None = None
    """Its commit, as far as the event says."""
    pull_number: int | None = None
    """Number of the pull request; `None` for events without one."""
    read_only: bool = False
    """Whether the token can only read, as intended: a fork's or Dependabot's pull request."""
    run_url: str | None = None
    """The page of the run that measured; `None` if unknown."""
    conclusion: str | None = None
    """How the run that measured ended, if this is another run."""
    default_branch: str | None = None
    """The repository's default branch; `None` if the event does not say."""
    reporter: str = ""
    """The reporting job: its workflow's path and its name, equal when it is run again."""
    merge_sha: str | None = None
    """The test merge that a pull request's own run checked out, by the runner's word."""
    comment_id: int | None = None
    """The comment that requested the run; `None` for other events."""

    @property
    def is_for_pull_request(self) -> bool:
        """Return whether the measured commit is a pull request's."""
        return self.event.startswith("pull_request") or self.is_requested

    @property
    def is_requested(self) -> bool:
        """Return whether a person requested the run in a comment."""
        return self.event == COMMENT

    @property
    def gates(self) -> bool:
        """Return whether the run sets a check.

        One that a person started, by hand or in a comment, does not.
        """
        return self.event not in {COMMENT, BY_HAND}

    @property
    def has_own_rules(self) -> bool:
        """Return whether it is a branch that chooses its own rules.

        That is one that is neither the default branch nor a merge group.

        Anyone who can push a branch can change its configuration.
        """
        if self.is_for_pull_request or self.event == "merge_group":
            return False
        return self.head.branch != self.default_branch

    def check_name(self, key: str, *, compares: bool = True) -> str:
        """Return its check's name.

        A check by a branch's own rules, or of a branch that is compared with nothing, is not the
        one that a pull request requires. No key makes that name, which ends in a bracket.
        """
        name = "ci-bench" if key == "default" else f"ci-bench ({key})"
        proposed = self.is_for_pull_request or self.event == "merge_group"
        required = not self.has_own_rules and (compares or proposed)
        return name if required else f"{name} [{self.event}]"


def server_of(environ: Mapping[str, str]) -> GithubServer:
    """Return GitHub's address and the credentials.

    Raises `NotOnGitHub`.
    """
    token = next((environ[name].strip() for name in TOKENS if environ.get(name, "").strip()), "")
    if not token:
        raise NotOnGitHub(
            "no token: set GITHUB_TOKEN to ${{ github.token }} in the `env:` of this step only"
        )
    api_url = environ.get("GITHUB_API_URL") or PUBLIC_API
    return GithubServer(
        repository=environ.get("GITHUB_REPOSITORY", ""), token=token, api_url=api_url
    )


def load_context(environ: Mapping[str, str], *, head: str | None = None) -> EventContext:
    """Read the context of a workflow.

    Raises `NotOnGitHub`, naming everything that is missing. `head` is the commit that a comment's
    request was granted for, since its event names none.
    """
    missing = [name for name in _NEEDED if not environ.get(name)]
    if missing:
        raise NotOnGitHub(
            f"{', '.join(missing)} not set: this command is for a GitHub workflow; elsewhere use"
            " `ci-bench compare`"
        )
    event = read_event(environ)
    name = environ["GITHUB_EVENT_NAME"]
    pull, measured, group = (
        event.inner("pull_request"),
        event.inner("workflow_run"),
        event.inner("merge_group"),
    )
    if name == "workflow_run" and measured is not None:
        return _of_measured(environ, event, measured)
    if pull is not None and name.startswith("pull_request"):
        return _of_pull(environ, event, pull)
    if name == COMMENT:
        return _of_comment(environ, event, head)
    if name == "merge_group" and group is not None:
        return _of_branch(
            environ,
            event,
            head=group.text("head_sha"),
            base=group.text("base_ref"),
            base_sha=group.text("base_sha"),
        )
    before = event.text("before") if name == "push" else None
    head = event.text("after") if name == "push" else None
    return _of_branch(environ, event, head=head, base=environ.get("GITHUB_REF"), base_sha=before)


def read_event(environ: Mapping[str, str]) -> ApiRecord:
    """Read the event file; without one, it has no fields.

    Raises `NotOnGitHub` if it is broken.
    """
    path = environ.get("GITHUB_EVENT_PATH")
    if not path:
        return ApiRecord({})
    try:
        with Path(path).open("rb") as stream:
            raw = json.loads(stream.read(MAX_EVENT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise NotOnGitHub(
            f"the event file {path} (GITHUB_EVENT_PATH) cannot be read: {type(error).__name__}"
        ) from error
    return ApiRecord(raw if isinstance(raw, dict) else {})


def _of_measured(environ: Mapping[str, str], event: ApiRecord, measured: ApiRecord) -> EventContext:
    """Return the context of a workflow that reports: all from the run that measured."""
    sha, run = _sha(measured.text("head_sha")), measured.number("id")
    base, base_sha = _base_of_measured(event, measured)
    if sha is None or run is None:
        raise NotOnGitHub("the event file has no id and head_sha of the workflow_run that measured")
    return EventContext(
        repository=environ["GITHUB_REPOSITORY"],
        repository_id=event.number("repository", "id")
        or _number(environ.get("GITHUB_REPOSITORY_ID")),
        run=RunId(id=run, attempt=measured.number("run_attempt") or 1),
        event=measured.text("event") or "unknown",
        reports_for_another_run=True,
        head=Head(
            sha=sha,
            branch=measured.text("head_branch"),
            owner=measured.text("head_repository", "owner", "login"),
            repository_id=measured.number("head_repository", "id"),
        ),
        workflow=measured.text("path") or event.text("workflow", "path"),
        base_branch=base,
        base_sha=base_sha,
        run_url=measured.text("html_url"),
        conclusion=measured.text("conclusion"),
        default_branch=event.text("repository", "default_branch"),
        reporter=_reporter(environ),
    )


def _base_of_measured(event: ApiRecord, measured: ApiRecord) -> tuple[str | None, str | None]:
    """Return the target of a run without a pull request.

    It is a branch of this repository, or the target of a merge group.

    GitHub names the branch of a merge group ``gh-readonly-queue/BRANCH/pr-NUMBER-COMMIT``, with the
    commit that it is made on.
    """
    branch, kind = measured.text("head_branch"), measured.text("event")
    ours = measured.number("head_repository", "id") == event.number("repository", "id")
    if branch is None or not ours or kind is None or kind.startswith("pull_request"):
        return None, None
    group = _GROUP.fullmatch(branch) if kind == "merge_group" else None
    return (group["branch"], group["base"]) if group else (branch, None)


def _of_pull(environ: Mapping[str, str], event: ApiRecord, pull: ApiRecord) -> EventContext:
    ours, theirs = pull.number("base", "repo", "id"), pull.number("head", "repo", "id")
    bot = DEPENDABOT in {environ.get("GITHUB_ACTOR"), pull.text("user", "login")}
    context = _of_branch(
        environ,
        event,
        head=pull.text("head", "sha"),
        base=pull.text("base", "ref"),
        base_sha=pull.text("base", "sha"),
    )
    return EventContext(
        repository=context.repository,
        repository_id=context.repository_id,
        run=context.run,
        event=context.event,
        reports_for_another_run=False,
        head=Head(
            sha=context.head.sha,
            branch=pull.text("head", "ref"),
            owner=pull.text("head", "repo", "owner", "login"),
            repository_id=theirs,
        ),
        workflow=context.workflow,
        base_branch=context.base_branch,
        base_sha=context.base_sha,
        pull_number=pull.number("number"),
        read_only=(theirs != ours or bot) and context.event == "pull_request",
        run_url=context.run_url,
        default_branch=context.default_branch,
        reporter=context.reporter,
        merge_sha=_sha(environ["GITHUB_SHA"]) if context.event == "pull_request" else None,
    )


def _of_comment(environ: Mapping[str, str], event: ApiRecord, head: str | None) -> EventContext:
    """Return the context of a requested run.

    The workflow is the default branch's, and the head the pull request's.
    """
    number, comment = event.number("issue", "number"), event.number("comment", "id")
    if number is None or comment is None or event.inner("issue", "pull_request") is None:
        raise NotOnGitHub("the event file names no comment on a pull request")
    if (sha := _sha(head)) is None:
        raise NotOnGitHub(
            "a comment names no commit: pass the output `head_sha` of `answer-request` by --head"
        )
    context = _of_branch(environ, event, head=sha, base=None, base_sha=None)
    return replace(context, head=Head(sha=sha), pull_number=number, comment_id=comment)


def _of_branch(
    environ: Mapping[str, str],
    event: ApiRecord,
    *,
    head: str | None,
    base: str | None,
    base_sha: str | None,
) -> EventContext:
    repository = environ["GITHUB_REPOSITORY"]
    run = RunId(
        id=_needed_number(environ, "GITHUB_RUN_ID"),
        attempt=_number(environ.get("GITHUB_RUN_ATTEMPT")) or 1,
    )
    number = event.number("repository", "id") or _number(environ.get("GITHUB_REPOSITORY_ID"))
    ref = environ.get("GITHUB_REF", "")
    sha = _sha(head) or _sha(environ["GITHUB_SHA"])
    if sha is None:
        raise NotOnGitHub(f"GITHUB_SHA is {environ['GITHUB_SHA']!r:.80}, which is not a commit")
    server = environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
    return EventContext(
        repository=repository,
        repository_id=number,
        run=run,
        event=environ["GITHUB_EVENT_NAME"],
        reports_for_another_run=False,
        head=Head(
            sha=sha,
            branch=ref.removeprefix(_BRANCH) if ref.startswith(_BRANCH) else None,
            owner=repository.partition("/")[0],
            repository_id=number,
        ),
        workflow=_workflow(environ.get("GITHUB_WORKFLOW_REF", ""), repository),
        base_branch=(base or "").removeprefix(_BRANCH) or None,
        base_sha=_sha(base_sha),
        run_url=f"{server}/{repository}/actions/runs/{run.id}",
        default_branch=event.text("repository", "default_branch"),
        reporter=_reporter(environ),
    )


def _reporter(environ: Mapping[str, str]) -> str:
    return (
        f"{environ.get('GITHUB_WORKFLOW_REF', '').partition('@')[0]}"
        f" {environ.get('GITHUB_JOB', '')}"
    )


def _workflow(reference: str, repository: str) -> str | None:
    """Return the file of a reference: ``owner/name/.github/workflows/x.yml@refs/heads/main``.

    It is `None` for a file elsewhere.
    """
    path = reference.removeprefix(f"{repository}/").partition("@")[0]
    return path if path.startswith(".github/workflows/") else None


def _sha(text: str | None) -> str | None:
    """Return a commit; the row of zeros before the push of a new branch gives `None`."""
    return text if text and _SHA.fullmatch(text) and text.strip("0") else None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else None


def _needed_number(environ: Mapping[str, str], name: str) -> int:
    number = _number(environ[name])
    if number is None:
        raise NotOnGitHub(f"{name} is {environ[name]!r:.80}, which is not a number")
    return number
