"""The base side's results from an earlier run on the base branch: the nearest artifact that may be trusted, fetched.

That there is none is an outcome with a reason, not an error. Which may be trusted is in `trust`; what is in the documents is
for the caller, who may turn one down.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ci_bench.errors import GitHubFailed, GitHubInvalid, GitHubMissing, GitHubRefused
from ci_bench.github.archive import Contents, UnsafeArchive
from ci_bench.github.artifacts import Artifact, download, named
from ci_bench.github.client import PER_PAGE, Client
from ci_bench.github.fields import Record
from ci_bench.github.trust import Wanted, distrust, distrust_run

_LOOKED_INTO = 5
"""How many artifacts are downloaded before giving up."""
_REASONS = 6


class Absence(StrEnum):
    """Why there is no baseline."""

    NO_ARTIFACT = "no_artifact"
    NOT_TRUSTED = "not_trusted"
    NO_ANCESTOR = "no_ancestor"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundBaseline:
    """The members of the artifact, and where it is from: `distance` commits before the one that was asked for."""

    members: Mapping[str, bytes]
    artifact: Artifact
    commit: str
    distance: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NoBaseline:
    """That there is none, and why, in words for a reader."""

    reason: Absence
    message: str


Accept = Callable[[Mapping[str, bytes]], str | None]
"""Says what is wrong with the members of an artifact, or `None`."""


def branch_point(client: Client, base: str, head: str) -> str:
    """The commit where `head` left `base`, both given as commits, also across forks. Raises `GitHubFailed`."""
    compared = client.get(f"compare/{base}...{head}", {"per_page": 1})
    return compared.need_text("merge_base_commit", "sha")


def find_baseline(client: Client, wanted: Wanted, contents: Contents, accept: Accept) -> FoundBaseline | NoBaseline:
    """The nearest trusted artifact that `accept` has nothing against. Never raises `GitHubFailed`: that is an absence too."""
    try:
        return _Search(client, wanted).find(contents, accept)
    except (GitHubRefused, GitHubMissing) as error:
        return NoBaseline(reason=Absence.REFUSED, message=f"GitHub did not let the baseline be looked for: {error}")
    except GitHubFailed as error:
        return NoBaseline(reason=Absence.UNREACHABLE, message=f"the baseline could not be looked for: {error}")


class _Search:
    """One search, with what it turned down and why."""

    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client, self._wanted = client, wanted
        self._turned_down: Counter[str] = Counter()
        self._runs: dict[int | None, Record | None] = {}

    def find(self, contents: Contents, accept: Accept) -> FoundBaseline | NoBaseline:
        wanted = self._wanted
        listed, complete = named(self._client, wanted.name)
        if not listed:
            return _none(Absence.NO_ARTIFACT, f"no run has left an artifact {wanted.name} yet", complete=complete)
        sound = [one for one in listed if self._keep(distrust(one, wanted))]
        if not sound:
            why = f"no artifact {wanted.name} can be trusted as a baseline: {self._why()}"
            return _none(Absence.NOT_TRUSTED, why, complete=complete)
        distances = self._ancestors()
        near = [one for one in sound if one.head_sha in distances]
        if not near:
            why = f"neither {wanted.commit[:12]} nor any of the {wanted.farthest} commits before it has an artifact {wanted.name}"
            return _none(Absence.NO_ANCESTOR, why, complete=complete)
        return self._first_good(_nearest_first(near, distances), contents, accept)

    def _first_good(
        self, ordered: Iterator[tuple[int, Artifact]], contents: Contents, accept: Accept
    ) -> FoundBaseline | NoBaseline:
        looked_into = 0
        for distance, artifact in ordered:
            if looked_into < _LOOKED_INTO and self._keep(self._distrust_run(artifact)):
                looked_into += 1
                found = self._look_into(artifact, contents, accept)
                if found is not None:
                    return FoundBaseline(members=found, artifact=artifact, commit=str(artifact.head_sha), distance=distance)
        reason = Absence.UNREADABLE if looked_into else Absence.NOT_TRUSTED
        return _none(reason, f"no artifact {self._wanted.name} can be used as a baseline: {self._why()}", complete=True)

    def _keep(self, complaint: str | None) -> bool:
        if complaint is not None:
            self._turned_down[complaint] += 1
        return complaint is None

    def _why(self) -> str:
        return "; ".join(f"{count} {reason}" for reason, count in self._turned_down.most_common(_REASONS))

    def _ancestors(self) -> Mapping[str, int]:
        """The commits from the wanted one back, each with its distance; none where GitHub does not know the commit."""
        pages = -(-(self._wanted.farthest + 1) // PER_PAGE)
        try:
            listing = self._client.pages("commits", {"sha": self._wanted.commit}, most=pages)
        except (GitHubMissing, GitHubInvalid):
            return {}
        shas = [record.need_text("sha") for record in Record.each(listing.items)]
        return {sha: distance for distance, sha in enumerate(shas[: self._wanted.farthest + 1])}

    def _distrust_run(self, artifact: Artifact) -> str | None:
        """What speaks against the run that made an artifact; each run is asked for once."""
        if artifact.run_id not in self._runs:
            try:
                self._runs[artifact.run_id] = self._client.get(f"actions/runs/{artifact.run_id}")
            except GitHubMissing:
                self._runs[artifact.run_id] = None
        run = self._runs[artifact.run_id]
        return "of a run that is gone" if run is None else distrust_run(run, artifact, self._wanted)

    def _look_into(self, artifact: Artifact, contents: Contents, accept: Accept) -> Mapping[str, bytes] | None:
        try:
            found = download(self._client, artifact, contents)
        except UnsafeArchive as error:
            self._keep(f"not read, because {error}")
            return None
        except GitHubMissing:
            self._keep("expired")
            return None
        complaint = accept(found)
        return found if self._keep(None if complaint is None else f"not sound ({complaint})") else None


def _none(reason: Absence, message: str, *, complete: bool) -> NoBaseline:
    more = "" if complete else "; only the newest artifacts of this name were looked at"
    return NoBaseline(reason=reason, message=f"{message}{more}")


def _nearest_first(artifacts: Collection[Artifact], distances: Mapping[str, int]) -> Iterator[tuple[int, Artifact]]:
    """By distance, of one commit the newest first: GitHub promises no order."""
    newest = sorted(artifacts, key=lambda one: (one.created_at, one.id), reverse=True)
    ordered = sorted(newest, key=lambda one: distances[str(one.head_sha)])
    return ((distances[str(one.head_sha)], one) for one in ordered)
