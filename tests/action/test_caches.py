"""What set-up keeps: a branch's own runs write it, a pull request's read a copy, and no other branch sees it."""

import os
from pathlib import Path

import pytest
from gpu_runner import defaults

import caches
import containers

PUSH = {
    "GITHUB_EVENT_NAME": "push",
    "GITHUB_REF": "refs/heads/main",
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_REPOSITORY_ID": "7",
}
PULL = {
    **PUSH,
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_REF": "refs/pull/3/merge",
    "GITHUB_BASE_REF": "main",
}


@pytest.fixture
def job(tmp_path):
    """Makes the state of one job after the other; all have the same folder of the runner for their caches."""
    (tmp_path / "kept").mkdir()

    def make(name, *, cache=True, apart=False):
        work = tmp_path / name
        (work / "cache").mkdir(parents=True)
        settings = {**defaults(), "cache": str(tmp_path / "kept") if cache else ""}
        return {"settings": settings, "work": str(work), "apart": apart}

    return make


def own(state, part="."):
    return Path(state["work"]) / "cache" / part


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def filled(state, environ, text, part="."):
    own(state, part).mkdir(exist_ok=True)
    (own(state, part) / "wheel").write_text(text)
    caches.keep(state, environ)


def test_what_a_branch_kept_its_next_run_and_its_pull_requests_have(job):
    filled(job("first"), PUSH, "one")
    for name, environ in {"next": PUSH, "pull": PULL}.items():
        state = job(name)
        caches.seed(state, environ)
        assert files(own(state)) == {"wheel": "one"}


@pytest.mark.parametrize(
    "event", ["pull_request", "merge_group", "pull_request_target", "workflow_run"]
)
def test_a_pull_request_changes_nothing_that_others_read(job, event):
    filled(job("first"), PUSH, "one")
    pull = job("pull")
    caches.seed(pull, PULL)
    filled(pull, {**PULL, "GITHUB_EVENT_NAME": event}, "planted")
    for name, environ in {"next": PUSH, "another": PULL}.items():
        state = job(name)
        caches.seed(state, environ)
        assert files(own(state)) == {"wheel": "one"}


@pytest.mark.parametrize(
    "other",
    [
        {"GITHUB_REF": "refs/heads/topic"},
        {"GITHUB_REPOSITORY_ID": "8"},
        {"GITHUB_REF": "refs/tags/main"},
    ],
)
def test_another_branch_or_repository_does_not_see_it(job, other):
    filled(job("first"), PUSH, "one")
    state = job("other")
    caches.seed(state, {**PUSH, **other})
    assert files(own(state)) == {}


def test_names_of_branches_are_no_paths(job, tmp_path):
    for branch in ("../../x", "a/b", "a_b"):
        filled(
            job(branch.replace("/", "-")), {**PUSH, "GITHUB_REF": f"refs/heads/{branch}"}, branch
        )
    kept = {folder.parent for folder in (tmp_path / "kept").iterdir()}
    assert kept == {tmp_path / "kept"}
    assert len([*(tmp_path / "kept").iterdir()]) == 3


def test_the_newer_takes_the_olders_place_whole(job, tmp_path):
    first = job("first")
    (own(first) / "gone").write_text("x")
    filled(first, PUSH, "one")
    filled(job("second"), PUSH, "two")
    (kept,) = (tmp_path / "kept").iterdir()
    assert files(kept) == {"wheel": "two"}


def test_where_base_and_head_are_users_each_has_a_copy_and_heads_is_kept(job):
    first = job("first", apart=True)
    assert containers.apart(first)
    own(first, "base").mkdir()
    (own(first, "base") / "wheel").write_text("base's")
    filled(first, PUSH, "head's", "head")
    state = job("next", apart=True)
    caches.seed(state, PULL)
    assert files(own(state)) == {"base/wheel": "head's", "head/wheel": "head's"}


def test_links_stay_links(job, tmp_path):
    (tmp_path / "secret").write_text("token")
    first = job("first")
    (own(first) / "link").symlink_to(tmp_path / "secret")
    filled(first, PUSH, "one")
    state = job("next")
    caches.seed(state, PUSH)
    assert (own(state) / "link").is_symlink()


def test_without_the_input_nothing_is_kept(job, tmp_path):
    filled(job("first", cache=False), PUSH, "one")
    assert [*(tmp_path / "kept").iterdir()] == []


def test_a_copy_that_fails_leaves_a_job_without_a_cache_and_says_so(
    job, tmp_path, monkeypatch, capsys
):
    filled(job("first"), PUSH, "one")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cp").write_text(
        '#!/bin/sh\nfor last; do :; done\ntouch "$last/half"; exit 1\n'
    )
    (tmp_path / "bin" / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    state = job("next")
    caches.seed(state, PUSH)
    assert files(own(state)) == {}
    assert "this job begins without one" in capsys.readouterr().out
    filled(state, PUSH, "two")
    (kept,) = (tmp_path / "kept").iterdir()
    assert files(kept) == {"wheel": "one"}
