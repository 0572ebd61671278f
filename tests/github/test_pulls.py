"""Which pull request a run is for: by GitHub's word, the very commit, and out of the very repository."""

import pytest
from fake_github import RESET
from fake_github_events import BASE, HEAD, environment, pull_request, push, workflow_run
from fake_github_state import FORK_ID, sha_of

from ci_bench.errors import GitHubUnreachable
from ci_bench.github.context import load_context
from ci_bench.github.pulls import NoPullRequest, PullRequest, find_pulls


@pytest.fixture
def resolve(fake, client, tmp_path):
    fake.state.history = [BASE]
    return lambda name, event, **more: find_pulls(
        client, load_context(environment(tmp_path, name, event, **more))
    )


def test_a_forks_pull_request_is_found_by_its_branch_and_commit(fake, resolve):
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.add_pull(8, sha_of("another"), branch="other", fork=True)
    assert resolve("workflow_run", workflow_run()) == (
        PullRequest(number=7, base_branch="main", base_sha=BASE, from_fork=True),
    )
    assert fake.seen[-1].query["head"] == ["mallory:feature"]


def test_our_own_branch_of_the_same_name_is_not_meant(fake, resolve):
    """A fork may call its branch as ours is called, and be at the same commit."""
    fake.state.add_pull(7, HEAD)
    assert isinstance(resolve("workflow_run", workflow_run()), NoPullRequest)
    assert [pull.number for pull in resolve("workflow_run", workflow_run(fork=False))] == [7]


def test_a_branch_of_the_same_name_out_of_another_repository_is_not_meant(fake, resolve):
    fake.state.add_pull(7, HEAD, fork=True)["head"]["repo"]["id"] = FORK_ID + 1
    assert isinstance(resolve("workflow_run", workflow_run()), NoPullRequest)


NOBODY = {
    "no pull request": (lambda state: None, "no open pull request has mallory:feature"),
    "one that has moved on": (
        lambda state: state.add_pull(7, sha_of("newer"), fork=True),
        "no open pull request has",
    ),
    "one that is closed": (
        lambda state: state.add_pull(7, HEAD, fork=True, state="closed"),
        "no open pull request has",
    ),
    "one into another repository": (
        lambda state: state.add_pull(7, HEAD, fork=True)["base"]["repo"].update(id=FORK_ID),
        "no open pull request has",
    ),
}


@pytest.mark.parametrize(("prepare", "reason"), NOBODY.values(), ids=NOBODY)
def test_where_none_can_be_told_none_is_commented_on(fake, resolve, prepare, reason):
    prepare(fake.state)
    found = resolve("workflow_run", workflow_run())
    assert isinstance(found, NoPullRequest)
    assert reason in found.reason


def test_all_pull_requests_of_one_head_are_found_the_events_own_first(fake, resolve):
    for number in (6, 7, 8):
        fake.state.add_pull(number, HEAD, base=f"release-{number}")
    assert [pull.number for pull in resolve("workflow_run", workflow_run(fork=False))] == [6, 7, 8]
    assert [pull.base_branch for pull in resolve("pull_request", pull_request())] == [
        "release-7",
        "release-6",
        "release-8",
    ]


MOVED = {"closed": {"state": "closed"}, "moved on": {"head": {"sha": sha_of("newer")}}}


@pytest.mark.parametrize(("reason", "fields"), MOVED.items(), ids=MOVED)
def test_an_events_own_pull_request_that_is_not_what_it_was(fake, resolve, reason, fields):
    pull = fake.state.add_pull(7, HEAD)
    pull |= {
        "state": fields.get("state", "open"),
        "head": {**pull["head"], **fields.get("head", {})},
    }
    assert reason in resolve("pull_request", pull_request()).reason


def test_a_deleted_fork_has_none(fake, resolve):
    fake.state.add_pull(7, HEAD, fork=True)
    assert "is gone" in resolve("workflow_run", workflow_run(deleted=True)).reason
    assert fake.seen == []


def test_a_pull_requests_own_event_names_it(fake, resolve):
    fake.state.add_pull(7, HEAD)
    assert [pull.number for pull in resolve("pull_request", pull_request())] == [7]


def test_one_that_is_gone(resolve):
    assert isinstance(resolve("pull_request", pull_request()), NoPullRequest)


def test_a_push_to_a_branch_with_a_pull_request(fake, resolve):
    fake.state.add_pull(7, HEAD)
    event = push() | {"ref": "refs/heads/feature"}
    assert [pull.number for pull in resolve("push", event, GITHUB_REF="refs/heads/feature")] == [7]


def test_a_push_to_main_has_none(fake, resolve):
    fake.state.add_pull(7, HEAD)
    assert isinstance(resolve("push", push()), NoPullRequest)


def test_an_outage_is_an_error_and_not_an_absence(fake, resolve):
    fake.plan("GET", "pulls", *[RESET] * 9)
    with pytest.raises(GitHubUnreachable):
        resolve("workflow_run", workflow_run())
