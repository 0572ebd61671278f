"""The first look at an artifact, before its run is asked for: it saves requests, and has to hold by itself."""

from dataclasses import replace

import pytest
from fake_github_state import FORK_ID, REPOSITORY, REPOSITORY_ID, WORKFLOW, sha_of

from ci_bench.github.artifacts import Artifact
from ci_bench.github.baseline import WantedBaseline, distrust

WANTED = WantedBaseline(
    name="b",
    branch="main",
    commit=sha_of("x"),
    workflow=WORKFLOW,
    repository=REPOSITORY,
    repository_id=REPOSITORY_ID,
)
SOUND = Artifact(
    id=1,
    name="b",
    size_bytes=1,
    created_at="2030-01-01T00:00:00Z",
    expired=False,
    digest=None,
    run_id=2,
    repository_id=REPOSITORY_ID,
    head_repository_id=REPOSITORY_ID,
    head_branch="main",
    head_sha=sha_of("x"),
)
STRANGERS = {
    "a fork's artifact": {"head_repository_id": FORK_ID},
    "another repository's": {"repository_id": FORK_ID, "head_repository_id": FORK_ID},
    "an artifact without a run": {"run_id": None},
    "an artifact without a source": {"head_repository_id": None},
    "another branch": {"head_branch": "feature"},
    "no branch": {"head_branch": None},
    "expired": {"expired": True},
}


def test_our_own_is_trusted():
    assert distrust(SOUND, WANTED) is None


@pytest.mark.parametrize("fields", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_not(fields):
    assert distrust(replace(SOUND, **fields), WANTED)
