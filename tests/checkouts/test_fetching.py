"""Clones without the base: what to do is said, or the base is fetched where that is allowed.

The clone stays as it is.
"""

from pathlib import Path

import pytest
from repositories import Repository, environ, git, prepared, run_python, topic_repository

from ci_bench.errors import NoBase
from ci_bench.records.config import Setup

MARK = "import mark; print(mark.MARK)"
NETWORK = Setup(network=True)
SHALLOW = (
    "it is a shallow clone: check out with all history .`fetch-depth: 0`.*`setup.network: true`"
)


def clone(repository: Repository, folder: Path, *options: str) -> Repository:
    git(repository.top, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(repository.top, "config", "uploadpack.allowFilter", "true")
    git(repository.top, "checkout", "--quiet", "main")
    git(folder.parent, "clone", "--quiet", *options, f"file://{repository.top}", str(folder))
    return Repository(folder)


def pull_request(tmp_path: Path) -> tuple[Repository, Repository]:
    """What `actions/checkout` makes of a pull request with its default of one commit.

    Returns upstream and clone.
    """
    upstream, _, _ = topic_repository(tmp_path / "upstream")
    git(upstream.top, "checkout", "--quiet", "--detach", "main")
    upstream.write({"mark.py": "MARK = 'main'\n"})
    git(upstream.top, "commit", "--quiet", "--all", "--message=main goes on")
    main = upstream.head
    git(upstream.top, "branch", "--force", "main", main)
    git(
        upstream.top,
        "merge",
        "--quiet",
        "--no-ff",
        "--strategy-option=theirs",
        "--no-edit",
        "topic",
    )
    git(upstream.top, "update-ref", "refs/pull/7/merge", "HEAD")
    git(upstream.top, "checkout", "--quiet", "main")
    top = tmp_path / "clone"
    top.mkdir()
    git(top, "init", "--quiet")
    git(top, "remote", "add", "origin", f"file://{upstream.top}")
    git(upstream.top, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(
        top,
        "fetch",
        "--quiet",
        "--no-tags",
        "--depth=1",
        "origin",
        "+refs/pull/7/merge:refs/remotes/pull/7/merge",
    )
    git(top, "checkout", "--quiet", "--force", "refs/remotes/pull/7/merge")
    return upstream, Repository(top)


def refuse(top: Path, scratch: Path, match: str, **more: object) -> None:
    with pytest.raises(NoBase, match=match), prepared(top, scratch, **more):
        pass


def test_a_shallow_pull_request_names_the_base_that_it_lacks(tmp_path: Path) -> None:
    upstream, checkout = pull_request(tmp_path)
    main = git(upstream.top, "rev-parse", "main")
    expected = f"the first parent of HEAD, which is a merge commit, commit {main[:12]}, but that commit is not in this clone; {SHALLOW}"
    refuse(checkout.top, tmp_path / "s", expected)


def test_a_shallow_pull_request_fetches_its_base(tmp_path: Path) -> None:
    upstream, checkout = pull_request(tmp_path)
    main = git(upstream.top, "rev-parse", "main")
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK, check=(upstream.top,)) as pair:
        assert pair.base.source.commit == main
        assert [run_python(side, MARK) for side in pair.sides] == ["main", "topic"]


def test_a_pull_request_with_two_commits_of_history_needs_nothing(tmp_path: Path) -> None:
    _, checkout = pull_request(tmp_path)
    git(
        checkout.top,
        "fetch",
        "--quiet",
        "--depth=2",
        "origin",
        "+refs/pull/7/merge:refs/remotes/pull/7/merge",
    )
    with prepared(checkout.top, tmp_path / "s") as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["main", "topic"]


def test_a_shallow_branch_says_what_to_do(tmp_path: Path) -> None:
    upstream, _, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    refuse(checkout.top, tmp_path / "s", f"no default branch is known here .*; {SHALLOW}")


@pytest.mark.parametrize("pushed", [True, False])
def test_a_shallow_branch_fetches_the_history_that_it_lacks(tmp_path: Path, pushed: bool) -> None:
    """Also where head was never pushed."""
    upstream, start, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    if not pushed:
        checkout.commit({"mark.py": "MARK = 'local'\n"})
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK, check=(upstream.top,)) as pair:
        assert (pair.base.source.commit, pair.base.source.chosen_by) == (
            start,
            "the merge base of HEAD and origin/main",
        )
        assert [run_python(side, MARK) for side in pair.sides] == [
            "start",
            "topic" if pushed else "local",
        ]


def test_a_shallow_branch_fetches_the_branch_that_the_pull_request_is_meant_for(
    tmp_path: Path,
) -> None:
    upstream, _, middle = topic_repository(tmp_path / "upstream")
    git(upstream.top, "checkout", "--quiet", "-b", "upper")
    upstream.commit({"mark.py": "MARK = 'upper'\n"})
    checkout = clone(
        upstream, tmp_path / "clone", "--depth=1", "--branch=upper", "--no-single-branch"
    )
    git(checkout.top, "update-ref", "-d", "refs/remotes/origin/topic")
    refuse(
        checkout.top,
        tmp_path / "s",
        "the branch topic is not known here",
        environ=environ(GITHUB_BASE_REF="topic"),
    )
    with prepared(
        checkout.top, tmp_path / "s", setup=NETWORK, environ=environ(GITHUB_BASE_REF="topic")
    ) as pair:
        assert (pair.base.source.commit, pair.base.source.chosen_by) == (
            middle,
            "the merge base of HEAD and origin/topic",
        )


def test_a_shallow_main_knows_its_parent_by_name(tmp_path: Path) -> None:
    upstream, start, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1")
    refuse(
        checkout.top,
        tmp_path / "s",
        f"the first parent of HEAD, which is on origin/main, commit {start[:12]}.*{SHALLOW}",
    )
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK) as pair:
        assert pair.base.source.commit == start


@pytest.mark.parametrize("given", ["release", "v1", "refs/heads/release", "a commit"])
def test_a_given_base_is_fetched(tmp_path: Path, given: str) -> None:
    upstream, start, _ = topic_repository(tmp_path / "upstream")
    git(upstream.top, "branch", "release", start)
    git(upstream.top, "tag", "v1", start)
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic", "--no-tags")
    name = start if given == "a commit" else given
    refuse(checkout.top, tmp_path / "s", "base|the base is .* as given", base=name)
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK, base=name) as pair:
        assert pair.base.source.commit == start
        assert (
            pair.base.source.chosen_by == f"{name[:12]}, as given"
            if given == "a commit"
            else f"{name}, as given"
        )
        assert run_python(pair.base, MARK) == "start"


@pytest.mark.parametrize("given", ["nowhere", "0123456789" * 4])
def test_a_base_that_the_remote_does_not_have_either(tmp_path: Path, given: str) -> None:
    upstream, _, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    refuse(
        checkout.top,
        tmp_path / "s",
        "could not be fetched from its remote `origin`: ",
        setup=NETWORK,
        base=given,
    )


@pytest.mark.parametrize("given", ["HEAD~7", "--upload-pack=touch x", "a b", "+main", "main:main"])
def test_what_is_no_name_is_not_asked_for(tmp_path: Path, given: str) -> None:
    upstream, _, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    refuse(
        checkout.top,
        tmp_path / "s",
        "not a commit, branch or tag|could not be fetched",
        setup=NETWORK,
        base=given,
    )
    assert not (checkout.top / "x").exists()


def test_a_remote_that_does_not_answer(tmp_path: Path) -> None:
    upstream, _, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    git(checkout.top, "remote", "set-url", "origin", "https://me:s3cret@localhost:1/x.git")
    with (
        pytest.raises(NoBase) as caught,
        prepared(checkout.top, tmp_path / "s", setup=NETWORK, base="main"),
    ):
        pass
    assert "could not be fetched" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_no_remote_at_all(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    refuse(repository.top, tmp_path / "s", "could not be fetched", setup=NETWORK, base="nowhere")


def test_the_clones_credentials_are_used_and_written_nowhere(tmp_path: Path) -> None:
    """As `actions/checkout` leaves a token: git sends it, and neither the trees nor any command line show it."""
    upstream, _, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    git(
        checkout.top,
        "config",
        "http.https://github.com/.extraheader",
        "AUTHORIZATION: basic dG9rZW4=",
    )
    git(checkout.top, "config", "url.file:///.insteadOf", "secret-host://dG9rZW4=")
    git(checkout.top, "remote", "set-url", "origin", f"secret-host://dG9rZW4={upstream.top}")
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    real = git_path()
    wrapper.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{tmp_path}/commands"\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    seen = environ()
    seen["PATH"] = f"{wrapper.parent}:{seen['PATH']}"
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK, base="main", environ=seen) as pair:
        assert pair.base.failure is None
        files = [
            path for path in (tmp_path / "s").rglob("*") if path.is_file() and not path.is_symlink()
        ]
        assert [path for path in files if b"dG9rZW4" in path.read_bytes()] == []
        for side in pair.sides:
            assert "dG9rZW4" not in git(side.folder, "config", "--list")
            assert not [value for value in side.environ.values() if "dG9rZW4" in value]
    commands = (tmp_path / "commands").read_text()
    assert " fetch " in commands
    assert "dG9rZW4" not in commands


def git_path() -> str:
    import shutil

    return shutil.which("git") or "git"


def test_a_remote_may_be_a_relative_path(tmp_path: Path) -> None:
    upstream, start, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--depth=1", "--branch=topic")
    git(checkout.top, "remote", "set-url", "origin", "../upstream")
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK, base="main") as pair:
        assert pair.base.source.commit == git(upstream.top, "rev-parse", "main") != start


def test_a_partial_clone_lacks_files_of_the_base(tmp_path: Path) -> None:
    upstream, start, _ = topic_repository(tmp_path / "upstream")
    checkout = clone(upstream, tmp_path / "clone", "--filter=blob:none", "--branch=topic")
    expected = "this clone is partial .--filter., and files of base are not in it; clone without --filter, or set `setup.network: true`"
    refuse(checkout.top, tmp_path / "s", expected, environ=environ(GIT_NO_LAZY_FETCH="1"))
    with prepared(checkout.top, tmp_path / "s", setup=NETWORK) as pair:
        assert pair.base.source.commit == start
        assert [run_python(side, MARK) for side in pair.sides] == ["start", "topic"]
