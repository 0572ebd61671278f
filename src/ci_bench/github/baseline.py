"""Results of an earlier run on the base branch: the nearest artifact that may be trusted.

Owns which artifact may be a baseline. Artifacts of forks' runs are in the same list under the same
name, and a fork may give its branch the name of ours, so a branch's name proves nothing. Fields
that GitHub leaves out, as it does once a fork is deleted, are not trusted. A missing baseline is an
outcome with a reason, not an error. The caller checks the documents' content, and may reject them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ci_bench.errors import GitHubFailed, GitHubInvalid, GitHubMissing, GitHubRefused
from ci_bench.github.archive import Contents, UnsafeArchive
from ci_bench.github.artifacts import Artifact, download, named
from ci_bench.github.client import PER_PAGE, Client
from ci_bench.github.server import ApiRecord

EVENTS = ("push", "schedule", "workflow_dispatch")
"""Events whose runs measure what is on the branch.

Not `merge_group`: its commits may never get there.
"""
FARTHEST = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedBaseline:
    """The requested baseline: the trusted artifact nearest to a commit."""

    name: str
    """Name of the artifact."""
    branch: str
    """The branch that its run was for."""
    commit: str
    """The commit that it should be nearest to."""
    workflow: str
    """Path of the workflow file that made it."""
    repository: str
    """The repository, ``owner/name``."""
    repository_id: int
    """GitHub's id of the repository."""
    events: tuple[str, ...] = EVENTS
    """The events whose runs are trusted."""
    farthest: int = FARTHEST
    """The largest number of commits that it may be behind `commit`."""


def distrust(artifact: Artifact, request: WantedBaseline) -> str | None:
    """Return the objection to an artifact itself, before its run is requested."""
    if artifact.expired:
        return "expired"
    if None in {artifact.run_id, artifact.repository_id, artifact.head_repository_id}:
        return "of an unknown run or a deleted fork"
    if {artifact.repository_id, artifact.head_repository_id} != {request.repository_id}:
        return "from a fork"
    if artifact.head_branch != request.branch:
        return f"of another branch than {request.branch}"
    return None


def distrust_run(run: ApiRecord, artifact: Artifact, request: WantedBaseline) -> str | None:
    """Return the objection to the run that made an artifact, by GitHub's own record of the run."""
    repositories = {run.number("repository", "id"), run.number("head_repository", "id")}
    name = run.text("head_repository", "full_name") or ""
    if repositories != {request.repository_id} or name.casefold() != request.repository.casefold():
        return "from a fork"
    if (run.text("path") or "").partition("@")[0] != request.workflow:
        return f"of another workflow than {request.workflow}"
    if run.text("event") not in request.events:
        return "of an event that is not trusted"
    if run.text("head_branch") != request.branch or run.text("head_sha") != artifact.head_sha:
        return "of another branch or commit than it says"
    if run.text("conclusion") != "success":
        return "of a run that did not succeed"
    return None


_LOOKED_INTO = 5
"""The most artifacts that are downloaded before giving up."""
_REASONS = 6


class Absence(StrEnum):
    """Reason for a missing baseline."""

    NO_ARTIFACT = "no_artifact"
    NOT_TRUSTED = "not_trusted"
    NO_ANCESTOR = "no_ancestor"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundBaseline:
    """The members of the artifact, and its origin: `distance` commits before the requested one."""

    members: Mapping[str, bytes]
    artifact: Artifact
    commit: str
    distance: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NoBaseline:
    """A missing baseline, and the reason, in words for a reader."""

    reason: Absence
    message: str


Accept = Callable[[Mapping[str, bytes], Artifact], str | None]
"""Says what is wrong with the members of an artifact, or `None`."""


def find_baseline(
    client: Client, request: WantedBaseline, contents: Contents, accept: Accept
) -> FoundBaseline | NoBaseline:
    """Return the nearest trusted artifact that `accept` does not object to.

    Never raises `GitHubFailed`: that is an absence too.
    """
    try:
        return _Search(client, request).find(contents, accept)
    except (GitHubRefused, GitHubMissing) as error:
        return NoBaseline(
            reason=Absence.REFUSED,
            message=f"GitHub did not let the baseline be looked for: {error}",
        )
    except GitHubFailed as error:
        return NoBaseline(
            reason=Absence.UNREACHABLE, message=f"the baseline could not be looked for: {error}"
        )


class _Search:
    """One search, with what it turned down and why."""

    def __init__(self, client: Client, request: WantedBaseline) -> None:
        self._client, self._request = client, request
        self._turned_down: Counter[str] = Counter()
        self._runs: dict[int | None, ApiRecord | None] = {}

    def find(self, contents: Contents, accept: Accept) -> FoundBaseline | NoBaseline:
        request = self._request
        artifacts, complete = named(self._client, request.name)
        if not artifacts:
            return _none(
                Absence.NO_ARTIFACT,
                f"no run has left an artifact {request.name} yet",
                complete=complete,
            )
        sound = [artifact for artifact in artifacts if self._keep(distrust(artifact, request))]
        if not sound:
            why = f"no artifact {request.name} can be trusted as a baseline: {self._why()}"
            return _none(Absence.NOT_TRUSTED, why, complete=complete)
        distances = self._ancestors()
        near = [artifact for artifact in sound if artifact.head_sha in distances]
        if not near:
            why = (
                f"neither {request.commit[:12]} nor any of the {request.farthest} commits before it"
                f" has an artifact {request.name}"
            )
            return _none(Absence.NO_ANCESTOR, why, complete=complete)
        return self._first_good(_nearest_first(near, distances), contents, accept)

    def _first_good(
        self, ordered: Iterator[tuple[int, Artifact]], contents: Contents, accept: Accept
    ) -> FoundBaseline | NoBaseline:
        looked_into = 0
        for distance, artifact in ordered:
            if looked_into < _LOOKED_INTO and self._keep(self._distrust_run(artifact)):
                looked_into += 1
                members = self._look_into(artifact, contents, accept)
                if members is not None:
                    return FoundBaseline(
                        members=members,
                        artifact=artifact,
                        commit=str(artifact.head_sha),
                        distance=distance,
                    )
        reason = Absence.UNREADABLE if looked_into else Absence.NOT_TRUSTED
        return _none(
            reason,
            f"no artifact {self._request.name} can be used as a baseline: {self._why()}",
            complete=True,
        )

    def _keep(self, complaint: str | None) -> bool:
        if complaint is not None:
            self._turned_down[complaint] += 1
        return complaint is None

    def _why(self) -> str:
        return "; ".join(
            f"{count} {reason}" for reason, count in self._turned_down.most_common(_REASONS)
        )

    def _ancestors(self) -> Mapping[str, int]:
        """Return the commits from the requested one back, each with its distance.

        It is empty if GitHub does not know the commit.
        """
        pages = -(-(self._request.farthest + 1) // PER_PAGE)
        try:
            listing = self._client.pages("commits", {"sha": self._request.commit}, most=pages)
        except (GitHubMissing, GitHubInvalid):
            return {}
        shas = [record.need_text("sha") for record in ApiRecord.each(listing.items)]
        return {sha: distance for distance, sha in enumerate(shas[: self._request.farthest + 1])}

    def _distrust_run(self, artifact: Artifact) -> str | None:
        """Return the objection to the run that made an artifact; each run is requested once."""
        if artifact.run_id not in self._runs:
            try:
                self._runs[artifact.run_id] = self._client.get(f"actions/runs/{artifact.run_id}")
            except GitHubMissing:
                self._runs[artifact.run_id] = None
        run = self._runs[artifact.run_id]
        return (
            "of a run that is gone" if run is None else distrust_run(run, artifact, self._request)
        )

    def _look_into(
        self, artifact: Artifact, contents: Contents, accept: Accept
    ) -> Mapping[str, bytes] | None:
        try:
            members = download(self._client, artifact, contents)
        except UnsafeArchive as error:
            self._keep(f"not read, because {error}")
            return None
        except GitHubMissing:
            self._keep("expired")
            return None
        complaint = accept(members, artifact)
        return (
            members
            if self._keep(None if complaint is None else f"not sound ({complaint})")
            else None
        )


def _none(reason: Absence, message: str, *, complete: bool) -> NoBaseline:
    more = "" if complete else "; only the newest artifacts of this name were looked at"
    return NoBaseline(reason=reason, message=f"{message}{more}")


def _nearest_first(
    artifacts: Collection[Artifact], distances: Mapping[str, int]
) -> Iterator[tuple[int, Artifact]]:
    """Sort by distance, and for one commit the newest first: GitHub promises no order."""
    newest = sorted(
        artifacts, key=lambda artifact: (artifact.created_at, artifact.id), reverse=True
    )
    ordered = sorted(newest, key=lambda artifact: distances[str(artifact.head_sha)])
    return ((distances[str(artifact.head_sha)], artifact) for artifact in ordered)
