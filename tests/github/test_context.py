"""What a workflow knows, for every event a gate sees; and what is said where it is no workflow at all."""

import pytest
from fake_github_events import (
    BASE,
    HEAD,
    RUN,
    environment,
    issue_comment,
    merge_group,
    payload,
    pull_request,
    push,
    workflow_run,
)
from fake_github_state import FORK_ID, REPOSITORY_ID, WORKFLOW, State, sha_of

from ci_bench.errors import BadInput, NotOnGitHub
from ci_bench.github.comments import Marker, read_marker
from ci_bench.github.context import Head, RunId, load_context, server_of


@pytest.fixture
def read(tmp_path):
    return lambda name, event, **more: load_context(environment(tmp_path, name, event, **more))


def test_a_pull_request_is_about_its_head_and_not_about_the_merge_commit(read):
    context = read("pull_request", pull_request())
    assert context.head == Head(
        sha=HEAD, branch="feature", owner="octo-org", repository_id=REPOSITORY_ID
    )
    assert (context.base_branch, context.base_sha, context.pull_number) == ("main", BASE, 7)
    assert (context.run, context.workflow) == (RunId(id=RUN, attempt=1), WORKFLOW)
    assert context.run_url == f"https://github.example/octo-org/octo-repo/actions/runs/{RUN}"
    assert not context.read_only


READ_ONLY = {
    "a fork": (pull_request(fork=True), {}, True),
    "a fork that is deleted": (pull_request(deleted=True), {}, True),
    "dependabot": (pull_request(user="dependabot[bot]"), {}, True),
    "dependabot's, run again by a person": (
        pull_request(user="dependabot[bot]"),
        {"GITHUB_ACTOR": "someone"},
        True,
    ),
    "run by dependabot": (pull_request(), {"GITHUB_ACTOR": "dependabot[bot]"}, True),
    "our own": (pull_request(), {}, False),
}


@pytest.mark.parametrize(("event", "more", "read_only"), READ_ONLY.values(), ids=READ_ONLY)
def test_whose_token_can_only_read(read, event, more, read_only):
    assert read("pull_request", event, **more).read_only is read_only


def test_a_workflow_run_is_about_the_run_that_measured(read):
    """Its own commit is the tip of the default branch, and its own run is not the one that measured."""
    context = read("workflow_run", workflow_run(attempt=3, conclusion="failure"))
    assert context.run == RunId(id=RUN, attempt=3)
    assert context.head == Head(sha=HEAD, branch="feature", owner="mallory", repository_id=FORK_ID)
    assert (context.event, context.conclusion, context.workflow) == (
        "pull_request",
        "failure",
        WORKFLOW,
    )
    assert (context.pull_number, context.base_branch, context.read_only) == (None, None, False)
    assert context.reports_for_another_run


def test_a_workflow_run_of_a_deleted_fork(read):
    context = read("workflow_run", workflow_run(deleted=True))
    assert (context.head.owner, context.head.repository_id) == (None, None)


def test_the_pull_requests_that_a_workflow_run_lists_are_not_believed(read):
    """They are those that match by branch, and empty for forks."""
    context = read("workflow_run", workflow_run(pull_requests=[{"number": 666}]))
    assert context.pull_number is None


def test_a_push_starts_from_what_was_there_before(read):
    context = read("push", push())
    assert (context.head.sha, context.head.branch, context.base_branch, context.base_sha) == (
        HEAD,
        "main",
        "main",
        BASE,
    )


def test_a_push_of_a_new_branch_has_nothing_before(read):
    assert read("push", push() | {"before": "0" * 40}).base_sha is None


def test_a_merge_group(read):
    context = read(
        "merge_group", merge_group(), GITHUB_REF="refs/heads/gh-readonly-queue/main/pr-7"
    )
    assert (context.head.sha, context.base_branch, context.base_sha) == (HEAD, "main", BASE)
    assert context.pull_number is None


@pytest.mark.parametrize(
    ("name", "event"),
    [("schedule", {"schedule": "0 3 * * *"}), ("workflow_dispatch", payload("workflow_dispatch"))],
)
def test_a_run_for_a_branch_alone(read, name, event):
    context = read(name, event)
    assert (context.head.sha, context.head.branch, context.base_branch) == (
        sha_of("the merge commit"),
        "main",
        "main",
    )
    assert (context.pull_number, context.base_sha) == (None, None)


def test_a_comment_is_about_the_granted_commit(tmp_path):
    comment = State().add_comment(7, "/ci-bench run")
    context = load_context(
        environment(tmp_path, "issue_comment", issue_comment(comment)), head=HEAD
    )
    assert context.head == Head(sha=HEAD)
    assert (context.pull_number, context.comment_id, context.base_branch) == (
        7,
        comment["id"],
        None,
    )
    assert context.is_requested
    assert not context.has_own_rules


@pytest.mark.parametrize(
    ("event", "gates"),
    [
        ("pull_request", True),
        ("merge_group", True),
        ("push", True),
        ("schedule", True),
        ("workflow_dispatch", False),
    ],
)
def test_a_run_by_hand_gates_nothing(read, event, gates):
    assert (
        read(
            event,
            {"pull_request": pull_request, "merge_group": merge_group, "push": push}.get(
                event, dict
            )(),
        ).gates
        is gates
    )


def names(read, key):
    """The check's name of a pull request, of the default branch, of its baseline, and of another branch."""
    pull, main = read("pull_request", pull_request()), read("push", push())
    other = read("push", push() | {"ref": "refs/heads/other"}, GITHUB_REF="refs/heads/other")
    return [
        pull.check_name(key),
        pull.check_name(key, compares=False),
        main.check_name(key),
        main.check_name(key, compares=False),
        other.check_name(key),
    ]


def test_a_check_is_named_after_its_key(read):
    assert names(read, "default") == [
        "ci-bench",
        "ci-bench",
        "ci-bench",
        "ci-bench [push]",
        "ci-bench [push]",
    ]
    assert names(read, "gpu") == [*["ci-bench (gpu)"] * 3, *["ci-bench (gpu) [push]"] * 2]


@pytest.mark.parametrize("key", ["push", "push]", "default [push]", " [push]"])
def test_no_key_makes_the_name_of_a_branchs_own_rules(read, key):
    """A pull request may require the check of any key; one by a branch's own rules passes by them."""
    assert not {*names(read, key)[:3]} & {*names(read, "default")[3:]}


def test_a_granted_commit_changes_no_other_event(tmp_path):
    environ = environment(tmp_path, "push", push())
    assert load_context(environ, head=sha_of("other")) == load_context(environ)


def test_a_tag_is_no_branch(read):
    context = read("push", push() | {"ref": "refs/tags/v1"}, GITHUB_REF="refs/tags/v1")
    assert context.head.branch is None


def test_a_closed_pull_request_is_still_one(read):
    assert read("pull_request", pull_request(state="closed")).pull_number == 7


def test_no_event_file_leaves_the_environment(read):
    context = read("pull_request", None)
    assert (context.head.sha, context.pull_number) == (sha_of("the merge commit"), None)


def test_outside_of_a_workflow_everything_that_is_missing_is_named():
    with pytest.raises(
        NotOnGitHub, match="GITHUB_REPOSITORY, GITHUB_RUN_ID, GITHUB_EVENT_NAME, GITHUB_SHA not set"
    ):
        load_context({})


BROKEN = {
    "an event file that is gone": {"GITHUB_EVENT_PATH": "/nowhere/event.json"},
    "a run that is no number": {"GITHUB_RUN_ID": "x"},
    "a commit that is none": {"GITHUB_SHA": "main"},
}


@pytest.mark.parametrize("more", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_is_named(read, more):
    with pytest.raises(NotOnGitHub, match=next(iter(more))):
        read("push", {"ref": "refs/heads/main"}, **more)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "\xff"])
def test_an_event_file_that_is_no_json(tmp_path, text):
    environ = environment(tmp_path, "push", {})
    (tmp_path / "event.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(NotOnGitHub, match="cannot be read"):
        load_context(environ)


def test_an_event_that_is_no_object(tmp_path):
    environ = environment(tmp_path, "push", [])
    assert load_context(environ).head.sha == sha_of("the merge commit")


# The server


def test_the_server_is_the_environments():
    server = server_of(
        {
            "GITHUB_REPOSITORY": "a/b",
            "GITHUB_TOKEN": " ghs_x\n",
            "GITHUB_API_URL": "https://ghe.example/api/v3",
        }
    )
    assert server.url("pulls") == "https://ghe.example/api/v3/repos/a/b/pulls"
    assert server.token.endswith("x")


def test_an_own_token_wins_over_the_jobs():
    assert server_of(
        {"GITHUB_REPOSITORY": "a/b", "GITHUB_TOKEN": "ghs_x", "CI_BENCH_GITHUB_TOKEN": "ghs_own"}
    ).token.endswith("own")


def test_no_token_says_where_to_get_one():
    with pytest.raises(NotOnGitHub, match="no token: set GITHUB_TOKEN"):
        server_of({"GITHUB_REPOSITORY": "a/b"})


# The marker


def test_a_marker_is_read_back():
    marker = Marker(key="gpu.h200-1", run=RunId(id=17, attempt=2), head=HEAD)
    assert read_marker(f"{marker}\n\nwords") == marker


@pytest.mark.parametrize("key", ["", "a b", "-->", "x" * 65, "a\n", "ключ"])
def test_a_key_that_could_end_the_comment_is_refused(key):
    with pytest.raises(BadInput, match="the key is"):
        Marker(key=key, run=RunId(id=1), head=HEAD)


NO_MARKERS = [
    "",
    "words",
    f"> <!-- ci-bench:v1 key=default run=1 attempt=1 head={HEAD} -->",
    f"<!-- ci-bench:v2 key=default run=1 attempt=1 head={HEAD} -->",
    f"<!-- ci-bench:v1 key=default run=-1 attempt=1 head={HEAD} -->",
    f"<!-- ci-bench:v1 key=default run={'9' * 30} attempt=1 head={HEAD} -->",
    "<!-- ci-bench:v1 key=default run=1 attempt=1 head=main -->",
    f"<!-- ci-bench:v1 key=default run=1 attempt=1 head={HEAD} --> words",
]


@pytest.mark.parametrize("body", NO_MARKERS)
def test_what_is_no_marker(body):
    assert read_marker(body) is None
