"""Submodules on both sides, from the clones that are here."""

import shutil
from pathlib import Path

import pytest
from repositories import Repository, environ, git, new_repository, prepared

from ci_bench.records.config import Setup


def add(repository: Repository, library: Repository, path: str) -> None:
    git(repository.top, "submodule", "--quiet", "add", f"file://{library.top}", path)


def project(tmp_path: Path) -> tuple[Repository, Repository]:
    """Base uses a library's first commit, head its second. Returns project and library."""
    library = new_repository(tmp_path / "library")
    first = library.commit({"lib.txt": "first"})
    library.commit({"lib.txt": "second"})
    repository = new_repository(tmp_path / "my project")
    repository.commit({"a.txt": "a"})
    add(repository, library, "third party/lib")
    git(repository.top / "third party/lib", "checkout", "--quiet", first)
    repository.commit({})
    git(repository.top, "checkout", "--quiet", "-b", "topic")
    git(repository.top / "third party/lib", "checkout", "--quiet", "main")
    repository.commit({})
    return repository, library


def read(side, name: str) -> str:
    return (side.folder / "third party/lib" / name).read_text()


def test_each_side_has_the_submodule_at_its_commit(tmp_path: Path) -> None:
    repository, library = project(tmp_path)
    shutil.rmtree(library.top)
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [side.failure for side in pair.sides] == [None, None]
        assert [read(side, "lib.txt") for side in pair.sides] == ["first", "second"]
        assert pair.head.source.dirty is False
        assert git(pair.head.folder, "status", "--porcelain") == ""
        assert git(pair.base.folder / "third party/lib", "log", "--format=%H") == git(
            library_of(repository), "rev-parse", "HEAD~1"
        )


def library_of(repository: Repository) -> Path:
    return repository.top / "third party/lib"


def test_without_submodules_the_folder_is_empty(tmp_path: Path) -> None:
    repository, _ = project(tmp_path)
    with prepared(repository.top, tmp_path / "s", setup=Setup(submodules=False)) as pair:
        assert [list((side.folder / "third party/lib").iterdir()) for side in pair.sides] == [
            [],
            [],
        ]


def test_uncommitted_changes_in_a_submodule_belong_to_head(tmp_path: Path) -> None:
    repository, _ = project(tmp_path)
    (library_of(repository) / "lib.txt").write_text("dirty")
    (library_of(repository) / "new.txt").write_text("new")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [read(side, "lib.txt") for side in pair.sides] == ["first", "dirty"]
        assert read(pair.head, "new.txt") == "new"
        assert pair.head.source.dirty is True


def test_a_submodule_at_another_commit_than_is_recorded_is_taken_as_it_lies_there(
    tmp_path: Path,
) -> None:
    repository, _ = project(tmp_path)
    git(library_of(repository), "checkout", "--quiet", "HEAD~1")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert read(pair.head, "lib.txt") == "first"
        assert pair.head.source.dirty is True


def test_submodules_of_submodules(tmp_path: Path) -> None:
    inner = new_repository(tmp_path / "inner")
    inner.commit({"inner.txt": "inner"})
    library = new_repository(tmp_path / "library")
    library.commit({"lib.txt": "first"})
    add(library, inner, "deep")
    library.commit({})
    repository = new_repository(tmp_path / "r")
    repository.commit({"a.txt": "a"})
    add(repository, library, "lib")
    repository.commit({})
    git(repository.top, "submodule", "--quiet", "update", "--init", "--recursive")
    repository.commit({"a.txt": "b"})
    (repository.top / "lib/deep/inner.txt").write_text("dirty")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [(side.folder / "lib/deep/inner.txt").read_text() for side in pair.sides] == [
            "inner",
            "dirty",
        ]
        assert pair.head.source.dirty is True


def test_what_the_user_has_not_initialised_stays_empty(tmp_path: Path) -> None:
    repository, _ = project(tmp_path)
    git(repository.top, "submodule", "--quiet", "deinit", "--force", "third party/lib")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [side.failure for side in pair.sides] == [None, None]
        assert [list((side.folder / "third party/lib").iterdir()) for side in pair.sides] == [
            [],
            [],
        ]


def two_libraries(tmp_path: Path) -> Repository:
    """Head has dropped one of base's two submodules."""
    repository, library = project(tmp_path)
    git(repository.top, "checkout", "--quiet", "-b", "more")
    add(repository, library, "second")
    repository.commit({})
    git(repository.top, "branch", "--force", "main", "more")
    git(repository.top, "rm", "--quiet", "--force", "second")
    repository.commit({})
    return repository


def test_a_submodule_that_head_dropped_comes_from_the_clone_that_git_kept(tmp_path: Path) -> None:
    repository = two_libraries(tmp_path)
    with prepared(repository.top, tmp_path / "s") as pair:
        assert pair.base.failure is None
        assert (pair.base.folder / "second/lib.txt").read_text() == "second"
        assert not (pair.head.folder / "second").exists()


def test_a_submodule_that_is_nowhere_here_is_the_failure_of_that_side_alone(tmp_path: Path) -> None:
    repository = two_libraries(tmp_path)
    shutil.rmtree(repository.top / ".git/modules/second")
    with prepared(repository.top, tmp_path / "s") as pair:
        commit = git(library_of(repository), "rev-parse", "HEAD")[:12]
        assert (pair.base.failure or "").startswith(
            f"commit {commit} of the submodule second is in no clone on this machine; "
        )
        assert "`git submodule update --init --recursive`" in (pair.base.failure or "")
        assert pair.head.failure is None
        assert read(pair.head, "lib.txt") == "second"


def allowed() -> dict[str, str]:
    """git fetches submodules from files only where it is told that it may."""
    return environ(
        GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="protocol.file.allow", GIT_CONFIG_VALUE_0="always"
    )


@pytest.mark.parametrize("address", ["absolute", "relative"])
def test_a_submodule_that_is_nowhere_here_is_fetched_where_that_is_allowed(
    tmp_path: Path, address: str
) -> None:
    repository = two_libraries(tmp_path)
    if address == "relative":
        git(repository.top, "checkout", "--quiet", "main")
        git(repository.top, "config", "--file=.gitmodules", "submodule.second.url", "../library")
        repository.commit({})
        git(repository.top, "remote", "add", "origin", f"file://{tmp_path}/upstream")
        git(repository.top, "checkout", "--quiet", "-b", "later")
        git(repository.top, "rm", "--quiet", "--force", "second")
        repository.commit({})
    shutil.rmtree(repository.top / ".git/modules/second")
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(network=True), environ=allowed()
    ) as pair:
        assert pair.base.failure is None
        assert (pair.base.folder / "second/lib.txt").read_text() == "second"


def test_a_submodule_that_cannot_be_fetched_is_a_failure(tmp_path: Path) -> None:
    repository = two_libraries(tmp_path)
    shutil.rmtree(repository.top / ".git/modules/second")
    shutil.rmtree(tmp_path / "library")
    with prepared(
        repository.top, tmp_path / "s", setup=Setup(network=True), environ=allowed()
    ) as pair:
        assert (
            "the submodule second is in no clone on this machine, and it could not be fetched: "
            in (pair.base.failure or "")
        )
        assert pair.head.failure is None


def test_a_password_in_the_remotes_address_is_not_written_down(tmp_path: Path) -> None:
    """A relative address of a submodule starts from it."""
    repository = two_libraries(tmp_path)
    git(repository.top, "checkout", "--quiet", "main")
    git(repository.top, "config", "--file=.gitmodules", "submodule.second.url", "../library")
    repository.commit({})
    git(repository.top, "remote", "add", "origin", "https://me:s3cret@localhost:1/x.git")
    git(repository.top, "checkout", "--quiet", "-b", "later")
    git(repository.top, "rm", "--quiet", "--force", "second")
    repository.commit({})
    shutil.rmtree(repository.top / ".git/modules/second")
    with prepared(repository.top, tmp_path / "s", setup=Setup(network=True)) as pair:
        assert "https://localhost:1/library" in (pair.base.failure or "")
        files = [
            path for path in (tmp_path / "s").rglob("*") if path.is_file() and not path.is_symlink()
        ]
        assert [path for path in files if b"s3cret" in path.read_bytes()] == []


def test_a_shallow_submodule_lacks_the_commit_of_base(tmp_path: Path) -> None:
    """As `git clone --recurse-submodules --shallow-submodules` leaves them."""
    repository, library = project(tmp_path)
    modules = repository.top / ".git/modules/third party/lib"
    shutil.rmtree(modules)
    shutil.rmtree(library_of(repository))
    git(
        tmp_path,
        "clone",
        "--quiet",
        "--depth=1",
        f"file://{library.top}",
        str(library_of(repository)),
    )
    with prepared(repository.top, tmp_path / "s") as pair:
        assert "is in no clone on this machine" in (pair.base.failure or "")
        assert pair.head.failure is None


@pytest.mark.parametrize("name", ["../../../library/.git", "{}/library/.git"])
def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path, name: str) -> None:
    """The measured commit chooses the names of its submodules."""
    repository = two_libraries(tmp_path)
    git(repository.top, "checkout", "--quiet", "main")
    section = f'[submodule "{name.format(tmp_path)}"]\n\tpath = second\n\turl = x\n'
    (repository.top / ".gitmodules").write_text(section)
    repository.commit({})
    git(repository.top, "checkout", "--quiet", "-b", "later")
    git(repository.top, "rm", "--quiet", "--cached", "second")
    shutil.rmtree(repository.top / "second")
    git(repository.top, "commit", "--quiet", "--message=dropped")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert "is in no clone on this machine" in (pair.base.failure or "")
