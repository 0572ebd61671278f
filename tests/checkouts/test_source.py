"""Which commit is measured."""

import os
import subprocess
from pathlib import Path

import pytest

from ci_bench.checkouts.git import describe_source
from ci_bench.records.results import Source


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    told = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "--initial-branch=topic")
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "--message=first")
    return tmp_path


def test_a_clean_commit(repository: Path) -> None:
    (repository / "untracked").touch()
    assert describe_source(repository, os.environ) == Source(
        commit=_git(repository, "rev-parse", "HEAD"), branch="topic", dirty=False
    )


def test_a_change_in_a_tracked_file_is_dirty(repository: Path) -> None:
    (repository / "file").write_text("two")
    assert describe_source(repository, os.environ).dirty is True


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    _git(repository, "checkout", "--detach")
    source = describe_source(repository, os.environ)
    assert (source.branch, source.dirty) == (None, False)


def test_a_subfolder_belongs_to_its_repository(repository: Path) -> None:
    (repository / "sub").mkdir()
    assert describe_source(repository / "sub", os.environ).commit == _git(
        repository, "rev-parse", "HEAD"
    )


def test_asking_leaves_the_repository_untouched(repository: Path) -> None:
    (repository / "file").touch()
    before = (repository / ".git" / "index").read_bytes()
    describe_source(repository, os.environ)
    assert (repository / ".git" / "index").read_bytes() == before


def test_a_repository_of_another_user_is_described(repository: Path) -> None:
    """As in a container; git alone would call its ownership dubious."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    commit = _git(repository, "rev-parse", "HEAD")
    for path in [repository, *repository.rglob("*")]:
        os.chown(path, 12345, 12345)
    hermetic = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    assert describe_source(repository, hermetic) == Source(
        commit=commit, branch="topic", dirty=False
    )
    refused = subprocess.run(
        ["git", "-C", str(repository), "status"],
        env=hermetic,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "dubious ownership" in refused.stderr


def test_a_hooks_environment_is_not_followed(repository: Path, tmp_path: Path) -> None:
    inside = {**os.environ, "GIT_DIR": str(tmp_path / "elsewhere")}
    assert describe_source(repository, inside).branch == "topic"


@pytest.mark.parametrize("what", ["no repository", "no commit", "no git", "no folder"])
def test_what_git_does_not_know_is_unknown(tmp_path: Path, monkeypatch, what: str) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    if what == "no commit":
        _git(tmp_path, "init")
    if what == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        describe_source(tmp_path / "missing" if what == "no folder" else tmp_path, os.environ)
        == Source()
    )
