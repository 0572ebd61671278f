"""The baseline artifact: nearest, trusted, whole; and for each reason why there is none, the reason."""

import pytest
from fake_github import READ_ONLY, RESET, TOKEN, Fault
from fake_github_state import REPOSITORY, REPOSITORY_ID, WORKFLOW, sha_of, zipped

from ci_bench.errors import GitHubMissing
from ci_bench.github import artifacts
from ci_bench.github.archive import ArchiveLimits, Contents
from ci_bench.github.baseline import (
    Absence,
    FoundBaseline,
    NoBaseline,
    WantedBaseline,
    find_baseline,
)
from ci_bench.github.commits import branch_point

NAME = "ci-bench-baseline"
CONTENTS = Contents(members=("results.json",))
HISTORY = [sha_of(f"main {number}") for number in range(110)]


@pytest.fixture
def state(fake):
    fake.state.history = list(HISTORY)
    return fake.state


def wanted(**fields):
    standard = {
        "name": NAME,
        "branch": "main",
        "commit": HISTORY[0],
        "workflow": WORKFLOW,
        "repository": REPOSITORY,
        "repository_id": REPOSITORY_ID,
    }
    return WantedBaseline(**{**standard, **fields})


def leave(state, commit, text="{}", *, artifact=None, **run):
    made = state.add_run(commit, **run)
    return state.add_artifact(made, {"results.json": text}, **(artifact or {}))


def look(client, accept=lambda *_: None, contents=CONTENTS, **fields):
    return find_baseline(client, wanted(**fields), contents, accept)


def absent(client, reason, **fields):
    found = look(client, **fields)
    assert isinstance(found, NoBaseline), found
    assert found.reason is reason, found
    return found.message


def test_the_nearest_ancestor_wins_over_newer_artifacts(client, state):
    leave(state, HISTORY[30], '{"at": 30}', artifact={"created_at": "2030-05-01T00:00:00Z"})
    near = leave(state, HISTORY[7], '{"at": 7}', artifact={"created_at": "2030-01-01T00:00:00Z"})
    found = look(client)
    assert isinstance(found, FoundBaseline)
    assert (found.members, found.distance, found.commit) == (
        {"results.json": b'{"at": 7}'},
        7,
        HISTORY[7],
    )
    assert found.artifact.id == near["id"]


def test_of_one_commit_the_newest_wins_whatever_the_order(client, state):
    made = state.add_run(HISTORY[0])
    for day in (2, 9, 5):
        state.add_artifact(
            made, {"results.json": f'{{"day": {day}}}'}, created_at=f"2030-01-0{day}T00:00:00Z"
        )
    assert look(client).members == {"results.json": b'{"day": 9}'}


def test_the_base_commit_itself_has_no_distance(client, state):
    leave(state, HISTORY[0])
    assert look(client).distance == 0


def test_it_is_found_on_a_later_page(fake, client, state):
    fake.per_page = 10
    leave(state, HISTORY[3])
    made = state.add_run(sha_of("a branch"), event="pull_request", head_branch="feature")
    for _ in range(35):
        state.add_artifact(made, {"results.json": "{}"})
    assert look(client).distance == 3


# Trust

STRANGERS = {
    "a fork's pull request from its own main": (
        {"fork": True, "event": "pull_request"},
        {},
        "1 from a fork",
    ),
    "a fork's push": ({"fork": True}, {}, "1 from a fork"),
    "a fork that is deleted": (
        {"head_repository": None},
        {},
        "1 of an unknown run or a deleted fork",
    ),
    "an artifact without a run": (
        {},
        {"workflow_run": None},
        "1 of an unknown run or a deleted fork",
    ),
    "another branch": ({"head_branch": "feature"}, {}, "1 of another branch than main"),
    "expired": ({}, {"expired": True}, "1 expired"),
    "a pull request of the repository's own main": (
        {"event": "pull_request"},
        {},
        "1 of an event that is not trusted",
    ),
    "pull_request_target": (
        {"event": "pull_request_target"},
        {},
        "1 of an event that is not trusted",
    ),
    "a merge queue": ({"event": "merge_group"}, {}, "1 of an event that is not trusted"),
    "another workflow": (
        {"path": ".github/workflows/other.yml"},
        {},
        "1 of another workflow than .github/workflows/ci-bench.yml",
    ),
    "a run that failed": ({"conclusion": "failure"}, {}, "1 of a run that did not succeed"),
    "a run that goes on": (
        {"conclusion": None, "status": "in_progress"},
        {},
        "1 of a run that did not succeed",
    ),
    "a run that was cancelled": (
        {"conclusion": "cancelled"},
        {},
        "1 of a run that did not succeed",
    ),
}


@pytest.mark.parametrize(("run", "artifact", "why"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_no_baseline_though_newer_and_nearer(client, state, run, artifact, why):
    leave(
        state,
        HISTORY[0],
        '{"hostile": 1}',
        artifact={"created_at": "2031-01-01T00:00:00Z", **artifact},
        **run,
    )
    assert why in absent(client, Absence.NOT_TRUSTED)
    leave(state, HISTORY[40], '{"own": 1}', artifact={"created_at": "2029-01-01T00:00:00Z"})
    assert look(client).members == {"results.json": b'{"own": 1}'}


def test_what_the_artifact_says_of_its_run_is_held_against_the_run(client, state):
    """The branch and commit in the artifact's record are right; the run's own record says otherwise."""
    one = leave(state, HISTORY[0])
    state.runs[one["workflow_run"]["id"]]["head_sha"] = sha_of("elsewhere")
    assert "of another branch or commit than it says" in absent(client, Absence.NOT_TRUSTED)


def test_a_run_whose_head_is_a_fork_is_not_trusted_though_the_artifact_says_ours(client, state):
    one = leave(state, HISTORY[0])
    state.runs[one["workflow_run"]["id"]]["head_repository"] = state.owner("mallory/octo-repo", 777)
    assert "from a fork" in absent(client, Absence.NOT_TRUSTED)


def test_a_run_whose_fork_was_deleted_meanwhile(client, state):
    one = leave(state, HISTORY[0])
    state.runs[one["workflow_run"]["id"]]["head_repository"] = None
    assert "from a fork" in absent(client, Absence.NOT_TRUSTED)


def test_a_run_that_is_gone(client, state):
    one = leave(state, HISTORY[0])
    del state.runs[one["workflow_run"]["id"]]
    assert "of a run that is gone" in absent(client, Absence.NOT_TRUSTED)


def test_a_workflow_of_a_tagged_reference_is_the_same_file(client, state):
    leave(state, HISTORY[0], path=f"{WORKFLOW}@refs/heads/main")
    assert look(client).distance == 0


# Absence


def test_nothing_yet(client, state):
    assert (
        absent(client, Absence.NO_ARTIFACT) == "no run has left an artifact ci-bench-baseline yet"
    )


def test_an_artifact_of_a_similar_name_is_not_meant(client, state):
    leave(state, HISTORY[0], artifact={"name": "ci-bench-baseline-2"})
    absent(client, Absence.NO_ARTIFACT)


def test_too_far_back(client, state):
    leave(state, HISTORY[101])
    assert "nor any of the 100 commits before it" in absent(client, Absence.NO_ANCESTOR)
    assert look(client, farthest=101).distance == 101


def test_a_commit_that_is_no_ancestor(client, state):
    leave(state, sha_of("thrown away by a forced push"))
    absent(client, Absence.NO_ANCESTOR)


def test_a_commit_that_github_does_not_know(client, state):
    leave(state, HISTORY[0])
    absent(client, Absence.NO_ANCESTOR, commit=sha_of("unknown"))


def test_an_unsafe_archive_is_passed_over(client, state):
    state.add_artifact(state.add_run(HISTORY[0]), zipped({"../results.json": "{}"}))
    assert "not read, because the name" in absent(client, Absence.UNREADABLE)
    leave(state, HISTORY[5])
    assert look(client).distance == 5


def test_what_the_caller_turns_down_is_passed_over(client, state):
    leave(state, HISTORY[0], '{"schema_version": 9}')
    leave(state, HISTORY[1], '{"schema_version": 1}')

    def accept(members, _):
        return "a newer schema" if b"9" in members["results.json"] else None

    assert look(client, accept).distance == 1
    assert look(client, lambda *_: "a newer schema").message.endswith(
        "2 not sound (a newer schema)"
    )


def test_no_more_than_a_few_are_looked_into(fake, client, state):
    for number in range(20):
        leave(state, HISTORY[number], "{")
    assert look(client, lambda *_: "not JSON").reason is Absence.UNREADABLE
    assert len(fake.storage.seen) == 5


def test_one_that_expires_meanwhile_is_passed_over(fake, client, state):
    leave(state, HISTORY[0])
    fake.plan("GET", "/zip", Fault(status=410, message="Artifact has expired"))
    assert "1 expired" in absent(client, Absence.UNREADABLE)


@pytest.mark.parametrize("status", [403, 404])
def test_a_missing_permission_is_a_reason_and_no_error(fake, client, state, status):
    headers = {"X-Accepted-GitHub-Permissions": "actions=read"}
    fake.plan(
        "GET",
        "artifacts",
        Fault(status=status, headers=headers, message="Resource not accessible by integration"),
    )
    assert "it needs actions=read" in absent(client, Absence.REFUSED)


def test_an_outage_is_a_reason_and_no_error(fake, client, state):
    fake.plan("GET", "artifacts", *[RESET] * 9)
    assert "no answer after 5 tries" in absent(client, Absence.UNREACHABLE)


def test_a_listing_that_was_cut_says_so(fake, client, state, monkeypatch):
    monkeypatch.setattr(artifacts, "MOST_PAGES", 1)
    fake.per_page = 1
    for _ in range(2):
        leave(state, HISTORY[0], head_branch="feature")
    assert absent(client, Absence.NOT_TRUSTED).endswith(
        "only the newest artifacts of this name were looked at"
    )


def test_a_read_only_token_can_fetch(connect, state):
    leave(state, HISTORY[0])
    assert look(connect(READ_ONLY)).distance == 0


# Downloads


def test_the_storage_gets_no_token_and_each_try_a_new_address(fake, client, state):
    """The address lasts a minute.

    Storage answers a token with 400, so none may arrive there, on no try.
    """
    leave(state, HISTORY[0])
    fake.storage.planned = [Fault(status=403), RESET]
    assert look(client).distance == 0
    signatures = [seen.query["sig"][0] for seen in fake.storage.seen]
    assert len({*signatures}) == len(signatures) == 3
    assert [
        name for seen in fake.storage.seen for name in seen.headers if TOKEN in seen.headers[name]
    ] == []
    assert ["Authorization" in seen.headers for seen in fake.storage.seen] == [False] * 3


def test_a_second_redirect_is_refused(fake, client, state):
    leave(state, HISTORY[0])
    fake.storage.planned = [
        Fault(status=302, headers={"Location": f"{fake.storage.url}/elsewhere"})
    ] * 3
    assert "answered 302" in absent(client, Absence.UNREACHABLE)
    assert {seen.path.rpartition("/")[0] for seen in fake.storage.seen} == {"/archives"}


def test_a_download_without_encryption_is_refused(fake, connect, state, monkeypatch):
    """Of an API that speaks HTTPS; the fake speaks plain HTTP, so the API's address is told otherwise."""
    one = leave(state, HISTORY[0])
    client = connect()
    plain = client.location(f"actions/artifacts/{one['id']}/zip")
    assert plain.startswith("http://")
    real = client.server
    monkeypatch.setattr(
        type(real), "url", lambda self, path: f"{fake.url}/repos/{self.repository}/{path}"
    )
    object.__setattr__(real, "api_url", "https://api.github.com")
    with pytest.raises(Exception, match="without a secure address"):
        client.location(f"actions/artifacts/{one['id']}/zip")


def test_a_download_that_is_not_what_was_uploaded_is_tried_again(fake, client, state):
    one = leave(state, HISTORY[0])
    fake.storage.planned = [Fault(status=200, raw=zipped({"results.json": "[]"}))]
    assert look(client).members == {"results.json": b"{}"}
    state.artifacts[one["id"]]["digest"] = "sha256:" + "0" * 64
    assert "its digest differs" in absent(client, Absence.UNREACHABLE)


def test_a_server_without_digests(client, state):
    leave(state, HISTORY[0], artifact={"digest": None})
    assert look(client).distance == 0


def test_what_is_larger_than_it_says_is_cut_off(fake, client, state):
    state.add_artifact(state.add_run(HISTORY[0]), b"PK\x03\x04" + bytes(50_000), size_in_bytes=10)
    contents = Contents(members=("results.json",), limits=ArchiveLimits(archive=10_000))
    assert "more than 10,000 bytes" in look(client, contents=contents).message


def test_what_says_that_it_is_too_large_is_not_downloaded(fake, client, state):
    leave(state, HISTORY[0], artifact={"size_in_bytes": 10**9})
    assert "the archive has 1,000,000,000 bytes" in absent(client, Absence.UNREADABLE)
    assert fake.storage.seen == []


# The base commit


def test_where_a_branch_began(client, state):
    state.parents[sha_of("head")] = HISTORY[4]
    assert branch_point(client, HISTORY[0], sha_of("head")) == HISTORY[4]


def test_a_base_that_is_not_there(client, state):
    with pytest.raises(GitHubMissing):
        branch_point(client, sha_of("unknown"), sha_of("head"))


def test_artifacts_of_a_run_newest_first(client, state):
    made = state.add_run(HISTORY[0])
    older = state.add_artifact(
        made, {"results.json": "1"}, name="ci-bench-h200", created_at="2030-01-02T00:00:00Z"
    )
    newest = state.add_artifact(
        made, {"results.json": "2"}, name="ci-bench-h200", created_at="2030-01-03T00:00:00Z"
    )
    state.add_artifact(made, {"results.json": "3"}, name="ci-bench-a100", expired=True)
    state.add_artifact(made, {"results.json": "4"}, name="coverage")
    state.add_artifact(state.add_run(HISTORY[1]), {"results.json": "5"}, name="ci-bench-b200")
    assert [one.id for one in artifacts.of_run(client, made["id"], "ci-bench-*")] == [
        newest["id"],
        older["id"],
    ]
