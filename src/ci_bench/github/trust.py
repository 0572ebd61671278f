"""Which artifact may be a baseline. Pure: GitHub's words in, what speaks against it out.

Artifacts of forks' runs lie in the same list under the same name, and a fork may call its branch as ours is called, so that a
branch's name alone proves nothing. What GitHub leaves out, as it does once a fork is deleted, is not trusted.
"""

from dataclasses import dataclass

from ci_bench.github.artifacts import Artifact
from ci_bench.github.fields import Record

EVENTS = ("push", "schedule", "workflow_dispatch")
"""Whose runs measure what is on the branch. Not `merge_group`: its commits may never get there."""
FARTHEST = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which baseline: the artifact `name`, from a run of `workflow` (the path of its file) for `branch`, nearest to `commit`.

    `repository` is ``owner/name``; `farthest` is how many commits back the baseline may be.
    """

    name: str
    branch: str
    commit: str
    workflow: str
    repository: str
    repository_id: int
    events: tuple[str, ...] = EVENTS
    farthest: int = FARTHEST


def distrust(artifact: Artifact, wanted: Wanted) -> str | None:
    """What speaks against an artifact by itself, before its run is asked for."""
    if artifact.expired:
        return "expired"
    if None in {artifact.run_id, artifact.repository_id, artifact.head_repository_id}:
        return "of an unknown run or a deleted fork"
    if {artifact.repository_id, artifact.head_repository_id} != {wanted.repository_id}:
        return "from a fork"
    if artifact.head_branch != wanted.branch:
        return f"of another branch than {wanted.branch}"
    return None


def distrust_run(run: Record, artifact: Artifact, wanted: Wanted) -> str | None:
    """What speaks against the run that made an artifact, by GitHub's own record of the run."""
    repositories = {run.number("repository", "id"), run.number("head_repository", "id")}
    name = run.text("head_repository", "full_name") or ""
    if repositories != {wanted.repository_id} or name.casefold() != wanted.repository.casefold():
        return "from a fork"
    if (run.text("path") or "").partition("@")[0] != wanted.workflow:
        return f"of another workflow than {wanted.workflow}"
    if run.text("event") not in wanted.events:
        return "of an event that is not trusted"
    if run.text("head_branch") != wanted.branch or run.text("head_sha") != artifact.head_sha:
        return "of another branch or commit than it says"
    if run.text("conclusion") != "success":
        return "of a run that did not succeed"
    return None
