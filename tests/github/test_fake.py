"""The fake is held against GitHub's description in both directions: what breaks it, on either side, is seen."""

import copy

import pytest
import requests
from fake_github import TOKEN, serve
from fake_github_contract import description, faults_of, operation, operations
from fake_github_state import REPOSITORY, sha_of

CHECK = {
    "name": "ci-bench",
    "head_sha": sha_of("head"),
    "status": "completed",
    "conclusion": "success",
}


def annotations(number):
    one = {
        "path": "x",
        "start_line": 1,
        "end_line": 1,
        "annotation_level": "notice",
        "message": "x",
    }
    return {**CHECK, "output": {"title": "x", "summary": "x", "annotations": [one] * number}}


REQUESTS = {
    "an unknown parameter": ("GET", "pulls?order=up", None, "query order: not a parameter"),
    "a word for a number": ("GET", "issues/abc/comments", None, "path issue_number"),
    "a word for a page": ("GET", "issues/7/comments?page=x", None, "query page"),
    "a value that is none of those": ("GET", "pulls?state=merged", None, "query state"),
    "another field": ("POST", "issues/7/comments", {"text": "x"}, "'body' is a required property"),
    "no body": ("POST", "issues/7/comments", None, "body $"),
    "a level that there is not": (
        "POST",
        "check-runs",
        {**CHECK, "conclusion": "great"},
        "'great' is not one of",
    ),
    "51 annotations": ("POST", "check-runs", annotations(51), "is too long"),
    "a status that there is not": (
        "POST",
        f"statuses/{sha_of('head')}",
        {"state": "great"},
        "'great' is not one of",
    ),
    "a body where none belongs": ("GET", "pulls", {"x": 1}, "a body, where none belongs"),
}


@pytest.mark.parametrize(("method", "path", "body", "fault"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_breaks_the_description_is_seen(method, path, body, fault):
    with serve() as fake:
        url = f"{fake.url}/repos/{REPOSITORY}/{path}"
        answer = requests.request(
            method, url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5
        )
        assert answer.status_code == 422
        assert fault in fake.faults[0]


def wrong_total(state):
    state.add_artifact(state.add_run(sha_of("x")), {"a": "b"}, size_in_bytes="two")


def wrong_run(state):
    del next(iter(state.runs.values()))["head_branch"]


def wrong_comment(state):
    state.add_comment(7, "x")["created_at"] = None


REPLIES = {
    "a size in words": (wrong_total, "actions/artifacts", "'two' is not of type 'integer'"),
    "a run without a branch": (
        lambda state: state.add_run(sha_of("x"), id=5) and wrong_run(state),
        "actions/runs/5",
        "'head_branch' is a required property",
    ),
    "a comment without a date": (
        wrong_comment,
        "issues/7/comments",
        "None is not of type 'string'",
    ),
}


@pytest.mark.parametrize(("prepare", "path", "fault"), REPLIES.values(), ids=REPLIES)
def test_a_reply_that_breaks_the_description_is_seen(prepare, path, fault):
    with serve() as fake:
        prepare(fake.state)
        url = f"{fake.url}/repos/{REPOSITORY}/{path}"
        requests.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5)
        assert fault in fake.faults[0]


def test_a_route_that_github_does_not_describe_is_not_there():
    with serve() as fake:
        url = f"{fake.url}/repos/{REPOSITORY}/actions/secrets"
        assert (
            requests.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5).status_code
            == 404
        )


def test_storage_refuses_a_token_as_the_real_one_does():
    with serve() as fake:
        url = fake.storage.sign(1, b"content")
        assert requests.get(url, timeout=5).content == b"content"
        assert (
            requests.get(url, headers={"Authorization": "Bearer x"}, timeout=5).status_code == 400
        )


def test_every_route_is_described_and_every_description_has_a_route():
    with serve() as fake:
        described = {
            (one.method, one.path.removeprefix("/repos/{owner}/{repo}/")) for one in operations()
        }
        assert {*fake.routes.table} == described


def test_what_the_description_gets_wrong_is_put_right_with_a_reason():
    run = operation("GET", "actions/runs/{run_id}")
    orphan = {**run.example(200), "head_repository": None}
    assert run.reply_faults(200, orphan) == []
    assert all(
        "github/rest-api-description#1586" in why for why in description()["truths"].values()
    )
    without = copy.deepcopy(orphan)
    del without["head_repository"]
    assert faults_of(without, run.raw["replies"]["200"]["schema"])
