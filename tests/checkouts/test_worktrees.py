"""The two trees, and the checkout that they are made of: it is left as it was, to the byte and the time stamp.

`prepared` of the fixtures shows that for each test here; `test_the_proof_sees` shows what it would
see.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from repositories import (
    Repository,
    environ,
    fingerprint,
    git,
    has_ended,
    left_alone,
    new_repository,
    prepared,
    run_python,
    topic_repository,
)

from ci_bench.checkouts import checkout as module
from ci_bench.checkouts.paired import Place, paired_sides
from ci_bench.checkouts.worktrees import remove
from ci_bench.errors import BadCheckout, CiBenchError, GitFailed, NoBase
from ci_bench.records.config import Setup
from ci_bench.records.results import Source

MARK = "import mark; print(mark.MARK)"


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".git"
    }


def test_each_side_has_its_own_code(tmp_path: Path) -> None:
    repository, start, head = topic_repository(tmp_path / "r")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["start", "topic"]
        why = "the merge base of HEAD and main"
        assert pair.base.source == Source(commit=start, branch="main", dirty=False, chosen_by=why)
        assert pair.head.source == Source(commit=head, branch="topic", dirty=False)
        assert (pair.base.failure, pair.head.failure) == (None, None)
        assert git(pair.base.folder, "rev-parse", "HEAD") == start
        assert len(str(pair.base.folder)) == len(str(pair.head.folder)), (
            "a longer path is one more difference"
        )


def test_uncommitted_changes_and_new_files_belong_to_head(tmp_path: Path) -> None:
    repository, _, head = topic_repository(tmp_path / "r")
    repository.commit(
        {
            ".gitignore": "*.log\nbuild/\n",
            "staged.txt": "1",
            "gone.txt": "1",
            "run.sh": "true",
            "removed.txt": "",
        }
    )
    repository.write(
        {
            "mark.py": "MARK = 'dirty'\n",
            "new/deep file.txt": "ä",
            "staged.txt": "2",
            "a.log": "",
            "build/x": "",
        }
    )
    git(repository.top, "add", "staged.txt")
    repository.write({"staged.txt": "3"})
    (repository.top / "gone.txt").unlink()
    git(repository.top, "rm", "--quiet", "--cached", "removed.txt")
    (repository.top / "run.sh").chmod(0o755)
    (repository.top / "link").symlink_to("mark.py")
    head = repository.head
    with prepared(repository.top, tmp_path / "s") as pair:
        assert files(pair.head.folder) == {
            ".gitignore": "*.log\nbuild/\n",
            "link": "MARK = 'dirty'\n",
            "mark.py": "MARK = 'dirty'\n",
            "new/deep file.txt": "ä",
            "old.txt": "old",
            "removed.txt": "",
            "run.sh": "true",
            "staged.txt": "3",
        }
        assert os.access(pair.head.folder / "run.sh", os.X_OK)
        assert (pair.head.folder / "link").is_symlink()
        assert pair.head.source == Source(commit=head, branch="topic", dirty=True)
        assert run_python(pair.base, MARK) == "start"


def test_a_new_file_alone_makes_head_dirty(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.write({"new.txt": ""})
    with prepared(repository.top, tmp_path / "s") as pair:
        assert pair.head.source.dirty is True
        assert (pair.head.folder / "new.txt").exists()


def test_on_main_uncommitted_changes_are_measured_against_their_commit(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "r")
    repository.commit({"mark.py": "MARK = 'one'\n"})
    head = repository.commit({"mark.py": "MARK = 'two'\n"})
    repository.write({"mark.py": "MARK = 'three'\n"})
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["two", "three"]
        assert pair.base.source.commit == pair.head.source.commit == head


def test_an_untracked_file_alone_does_not_make_main_its_own_base(tmp_path: Path) -> None:
    """What a step before left lying about in a job on main is no reason to compare main with itself."""
    repository = new_repository(tmp_path / "r")
    repository.commit({"mark.py": "MARK = 'one'\n"})
    repository.commit({"mark.py": "MARK = 'two'\n"})
    repository.write({"report.xml": ""})
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["one", "two"]


def test_a_change_of_equal_size_within_the_index_time_stamp_is_seen(tmp_path: Path) -> None:
    """What git calls racily clean: by the time stamps nothing happened."""
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "config", "core.trustctime", "false")
    moment = (1_700_000_000_000_000_000,) * 2
    os.utime(repository.top / "mark.py", ns=moment)
    git(repository.top, "add", "mark.py")
    repository.write({"mark.py": "MARK = 'after'\n"})
    for name in ("mark.py", ".git/index"):
        os.utime(repository.top / name, ns=moment)
    with prepared(repository.top, tmp_path / "s") as pair:
        assert run_python(pair.head, MARK) == "after"


def test_a_change_back_to_what_was_committed_before_touches_no_object(tmp_path: Path) -> None:
    """git touches an object, or a whole pack, that it would write again."""
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "gc", "--quiet")
    repository.write({"mark.py": "MARK = 'start'\n"})
    with prepared(repository.top, tmp_path / "s") as pair:
        assert run_python(pair.head, MARK) == "start"


def stash_and_pop(top: Path) -> None:
    git(top, "stash", "--quiet")
    git(top, "stash", "pop", "--quiet")


def refresh(top: Path) -> None:
    os.utime(top / "old.txt")
    git(top, "status")


def make_and_remove(top: Path) -> None:
    (top / "build").mkdir()
    (top / "build").rmdir()


PLANTS = {
    "a worktree": lambda top: git(top, "worktree", "add", "--quiet", str(top.parent / "w")),
    "an object": lambda top: git(top, "hash-object", "-w", "mark.py"),
    "a stash": stash_and_pop,
    "a refreshed index": refresh,
    "a touched file": lambda top: os.utime(top / "old.txt"),
    "an empty folder": make_and_remove,
}


@pytest.mark.parametrize("plant", PLANTS)
def test_the_proof_sees(tmp_path: Path, plant: str) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    top = repository.top
    repository.write({"mark.py": "MARK = 'x'\n"})
    with pytest.raises(AssertionError), left_alone(top):
        PLANTS[plant](top)


def test_what_is_built_on_a_side_stays_there(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with prepared(
        repository.top,
        tmp_path / "s",
        setup=Setup(commands=("mkdir build; echo x >build/out; echo y >>mark.py",)),
    ) as pair:
        assert (pair.head.folder / "build" / "out").exists()
        assert (pair.base.folder / "build" / "out").exists()


@pytest.mark.parametrize("commands", [(), ("test -f mark.py",)])
def test_a_path_with_blanks_and_other_signs(tmp_path: Path, commands: tuple[str, ...]) -> None:
    repository, _, _ = topic_repository(tmp_path / "my repo: 'a' \"b\" $c")
    repository.write({"mark.py": "MARK = 'dirty'\n"})
    with prepared(repository.top, tmp_path / "the scratch", setup=Setup(commands=commands)) as pair:
        assert [side.failure for side in pair.sides] == [None, None]
        assert [run_python(side, MARK) for side in pair.sides] == ["start", "dirty"]


def test_a_side_starts_in_the_folder_that_the_caller_is_in(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "r")
    repository.commit({"python/mark.py": "MARK = 'start'\n", "python/src/inner.py": ""})
    git(repository.top, "checkout", "--quiet", "-b", "topic")
    repository.commit({"python/mark.py": "MARK = 'topic'\n"})
    with prepared(repository.top / "python", tmp_path / "s") as pair:
        assert [side.folder.name for side in pair.sides] == ["python", "python"]
        assert [run_python(side, f"import inner; {MARK}") for side in pair.sides] == [
            "start",
            "topic",
        ]


def test_a_folder_that_base_does_not_have_is_its_failure(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.commit({"python/mark.py": "MARK = 'topic'\n"})
    with prepared(repository.top / "python", tmp_path / "s") as pair:
        assert pair.base.failure == "the folder python does not exist on this side"
        assert pair.head.failure is None


def test_a_detached_head_has_no_branch(tmp_path: Path) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "--detach")
    with prepared(repository.top, tmp_path / "s") as pair:
        assert (pair.head.source.branch, pair.base.source.commit) == (None, start)
    with prepared(
        repository.top, tmp_path / "s", environ=environ(GITHUB_HEAD_REF="feature")
    ) as pair:
        assert pair.head.source.branch == "feature"


def test_a_linked_worktree_is_a_checkout_too(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "worktree", "add", "--quiet", "-b", "second", str(tmp_path / "linked"))
    (tmp_path / "linked" / "mark.py").write_text("MARK = 'linked'\n")
    with prepared(tmp_path / "linked", tmp_path / "s", check=(repository.top,)) as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["start", "linked"]


def test_our_own_output_is_no_part_of_head(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.write({"ci-bench-results/results.json": "{}", "[x]/keep.txt": "", "x/keep.txt": ""})
    out = repository.top / "ci-bench-results"
    with prepared(
        repository.top,
        tmp_path / "s",
        leave_out=(out, repository.top / "[x]", tmp_path, repository.top),
    ) as pair:
        assert not (pair.head.folder / "ci-bench-results").exists()
        assert not (pair.head.folder / "[x]").exists()
        assert (pair.head.folder / "x" / "keep.txt").exists()


def test_tags_are_there_for_tools_that_read_versions_from_them(tmp_path: Path) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    git(repository.top, "tag", "--annotate", "--message=one", "v1.0", start)
    git(repository.top, "tag", "light", start)
    with prepared(repository.top, tmp_path / "s") as pair:
        assert git(pair.base.folder, "describe") == "v1.0"
        assert git(pair.head.folder, "describe").startswith("v1.0-1-g")


# Hooks, filters, configuration


def hook(path: Path, trace: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho ran >>'{trace}'\n")
    path.chmod(0o755)


HOOKS = (
    "post-checkout",
    "post-index-change",
    "pre-commit",
    "reference-transaction",
    "post-commit",
    "fsmonitor-watchman",
)


def test_no_hook_runs(tmp_path: Path) -> None:
    """Neither the repository's, nor those that the user has for all repositories, nor the file system monitor."""
    repository, _, _ = topic_repository(tmp_path / "r")
    for name in HOOKS:
        hook(repository.top / ".git" / "hooks" / name, tmp_path / "trace")
        hook(tmp_path / "hooks" / name, tmp_path / "trace")
    git(
        repository.top,
        "config",
        "core.fsmonitor",
        str(repository.top / ".git/hooks/fsmonitor-watchman"),
    )
    (tmp_path / "trace").unlink(missing_ok=True)
    settings = tmp_path / "gitconfig"
    settings.write_text(f"[core]\n\thooksPath = {tmp_path}/hooks\n")
    repository.write({"mark.py": "MARK = 'dirty'\n"})
    seen = environ(GIT_CONFIG_GLOBAL=str(settings))
    scratch = tmp_path / "s"
    scratch.mkdir()
    place = Place(repository=repository.top, scratch=scratch, logs=scratch / "logs", environ=seen)
    with paired_sides(place, base=None, setup=Setup()) as pair:
        assert run_python(pair.head, MARK) == "dirty"
        assert not (tmp_path / "trace").exists()
        subprocess.run(
            ["git", "-C", str(pair.head.folder), "checkout", "--quiet", "HEAD~1"],
            env=seen,
            check=True,
        )
        assert not (tmp_path / "trace").exists(), "nor where set-up uses git"
    subprocess.run(
        ["git", "-C", str(repository.top), "checkout", "--quiet", "HEAD", "--", "mark.py"],
        env=seen,
        check=True,
    )
    assert (tmp_path / "trace").exists(), "they would run"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def lfs_repository(tmp_path: Path) -> tuple[Repository, Path]:
    """A repository whose checkout has real files where its commits have pointers, and a user's configuration for git-lfs."""
    repository, _, _ = topic_repository(tmp_path / "r")
    pointer = POINTER.format(hashlib.sha256(b"weights").hexdigest(), 7)
    repository.commit(
        {
            ".gitattributes": "*.bin filter=lfs -text\n",
            "weights.bin": pointer,
            "a pointer.bin": pointer,
        }
    )
    repository.write({"weights.bin": "weights"})
    settings = tmp_path / "gitconfig"
    settings.write_text(
        '[filter "lfs"]\n\tsmudge = false\n\tprocess = false\n\tclean = false\n\trequired = true\n'
    )
    assert git_with(settings, repository.top, "diff", "--quiet").returncode > 1, (
        "git itself fails without git-lfs"
    )
    return repository, settings


def git_with(settings: Path, top: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    seen = environ(GIT_CONFIG_GLOBAL=str(settings))
    return subprocess.run(
        ["git", "-C", str(top), *arguments], env=seen, check=False, capture_output=True, text=True
    )


def test_large_files_stay_pointers_on_both_sides(tmp_path: Path) -> None:
    """Also where git-lfs is configured, but not installed; a real file in the checkout is no change."""
    repository, settings = lfs_repository(tmp_path)
    with prepared(
        repository.top, tmp_path / "s", environ=environ(GIT_CONFIG_GLOBAL=str(settings))
    ) as pair:
        for name in ("weights.bin", "a pointer.bin"):
            assert (pair.head.folder / name).read_text() == POINTER.format(
                hashlib.sha256(b"weights").hexdigest(), 7
            )
        assert pair.head.source.dirty is False


def test_a_large_file_that_was_changed_is_another_pointer(tmp_path: Path) -> None:
    repository, settings = lfs_repository(tmp_path)
    repository.write({"weights.bin": "more weights", "new, file.bin": "new"})
    with prepared(
        repository.top, tmp_path / "s", environ=environ(GIT_CONFIG_GLOBAL=str(settings))
    ) as pair:
        for name, content in {"weights.bin": b"more weights", "new, file.bin": b"new"}.items():
            expected = POINTER.format(hashlib.sha256(content).hexdigest(), len(content))
            assert (pair.head.folder / name).read_text() == expected
        assert pair.head.source.dirty is True


def test_the_environment_of_a_hook_does_not_lead_elsewhere(tmp_path: Path) -> None:
    """As when ci-bench is started by a pre-push hook of another repository."""
    repository, start, _ = topic_repository(tmp_path / "r")
    other = new_repository(tmp_path / "other")
    other.commit({"mark.py": "MARK = 'other'\n"})
    inside = environ(
        GIT_DIR=str(other.top / ".git"),
        GIT_WORK_TREE=str(other.top),
        GIT_INDEX_FILE=str(other.top / ".git/index"),
    )
    with prepared(repository.top, tmp_path / "s", environ=inside, check=(other.top,)) as pair:
        assert pair.base.source.commit == start


@pytest.mark.parametrize("form", ["split index", "sparse checkout", "no index", "sha256", "packed"])
def test_unusual_repositories(tmp_path: Path, form: str) -> None:
    if form == "sha256":
        (tmp_path / "r").mkdir()
        git(tmp_path / "r", "init", "--quiet", "--initial-branch=main", "--object-format=sha256")
        repository = type(new_repository(tmp_path / "unused"))(tmp_path / "r")
        repository.commit({"mark.py": "MARK = 'start'\n", "a/b/c.txt": "c"})
        git(repository.top, "checkout", "--quiet", "-b", "topic")
    else:
        repository, _, _ = topic_repository(tmp_path / "r")
    repository.commit({"a/b/c.txt": "c", "d/e.txt": "e"})
    match form:
        case "split index":
            git(repository.top, "update-index", "--split-index")
        case "sparse checkout":
            git(repository.top, "sparse-checkout", "set", "--cone", "d")
        case "no index":
            (repository.top / ".git" / "index").unlink()
        case "packed":
            git(repository.top, "gc", "--quiet")
    repository.write({"mark.py": "MARK = 'dirty'\n", "d/e.txt": "changed"})
    with prepared(repository.top, tmp_path / "s") as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["start", "dirty"]
        assert (pair.head.folder / "a/b/c.txt").read_text() == "c"
        assert (pair.head.folder / "d/e.txt").read_text() == "changed"


def test_a_sparse_index(tmp_path: Path) -> None:
    """Whatever git does with one, it touches the trees that it leaves out; `git status` too.

    So their times are not compared.
    """
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.commit({"a/b/c.txt": "c", "d/e.txt": "e"})
    git(repository.top, "sparse-checkout", "set", "--cone", "--sparse-index", "d")
    repository.write({"mark.py": "MARK = 'dirty'\n", "d/e.txt": "changed"})
    (tmp_path / "s").mkdir()
    place = Place(
        repository=repository.top,
        scratch=tmp_path / "s",
        logs=tmp_path / "s" / "logs",
        environ=environ(),
    )
    before = fingerprint(repository.top)
    with paired_sides(place, base=None, setup=Setup()) as pair:
        assert [run_python(side, MARK) for side in pair.sides] == ["start", "dirty"]
        assert (pair.head.folder / "a/b/c.txt").read_text() == "c"
    after = fingerprint(repository.top)
    assert before.keys() == after.keys()
    assert {
        name
        for name in before
        if before[name] != after[name] and not name.startswith(".git/objects/")
    } == set()


def test_a_checkout_of_another_user_is_trusted_by_its_exact_path(
    tmp_path: Path, monkeypatch
) -> None:
    """Containers run with another user id than the one that checked out; git calls that dubious ownership."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    repository, start, _ = topic_repository(tmp_path / "r")
    for path in [repository.top, *repository.top.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    done = subprocess.run(
        ["git", "-C", str(repository.top), "status"],
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "dubious ownership" in done.stderr, "git would refuse"
    scratch = tmp_path / "s"
    scratch.mkdir()
    place = Place(
        repository=repository.top, scratch=scratch, logs=scratch / "logs", environ=environ()
    )
    before = fingerprint(repository.top)
    with paired_sides(place, base=None, setup=Setup()) as pair:
        assert pair.base.source.commit == start
    assert fingerprint(repository.top) == before
    monkeypatch.setattr("ci_bench.checkouts.git.top_of", lambda folder: folder / "elsewhere")
    with (
        pytest.raises(BadCheckout, match="dubious ownership"),
        paired_sides(place, base=None, setup=Setup()),
    ):
        pass


def test_a_read_only_checkout_will_do(tmp_path: Path) -> None:
    """As it is mounted where untrusted code runs.

    Root may write anywhere, so the mount has to be read-only.
    """
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.write({"mark.py": "MARK = 'dirty'\n"})
    (tmp_path / "ro").mkdir()
    (tmp_path / "s").mkdir()
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':'); from pathlib import Path\n"
        "from repositories import *; top, scratch = Path('ro'), Path('s')\n"
        "try: (top / 'x').touch()\n"
        "except OSError: pass\n"
        "else: raise SystemExit('not read-only')\n"
        "place = Place(repository=top, scratch=scratch, logs=scratch / 'logs', environ=environ())\n"
        "with paired_sides(place, base=None, setup=Setup()) as pair: print(run_python(pair.head, 'import mark; print(mark.MARK)'))\n"
    )
    fixtures = Path(__file__).parents[1] / "fixtures"
    mount = f'mount --bind "$PWD/r" ro && mount -o remount,bind,ro ro && exec {os.sys.executable} -c "$0" "$1"'
    command = ["unshare", "--mount", "sh", "-c", mount, code, str(fixtures)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("this machine does not let tests mount")
    assert (done.stdout, done.stderr) == ("dirty\n", "")


# What cannot be measured


def test_no_checkout(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    seen = environ(GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    place = Place(
        repository=tmp_path, scratch=tmp_path / "s", logs=tmp_path / "s" / "logs", environ=seen
    )
    with (
        pytest.raises(BadCheckout, match=r"is not in a git checkout .*not a git repository"),
        paired_sides(place, base=None, setup=Setup()),
    ):
        pass
    assert [*(tmp_path / "s").iterdir()] == []


def test_nothing_committed_yet(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "r")
    with (
        pytest.raises(BadCheckout, match="this repository has no commit yet"),
        paired_sides(
            Place(
                repository=repository.top,
                scratch=tmp_path,
                logs=tmp_path / "logs",
                environ=environ(),
            ),
            base=None,
            setup=Setup(),
        ),
    ):
        pass


def refuse(top: Path, scratch: Path, error: type[CiBenchError], match: str, **more: object) -> None:
    with pytest.raises(error, match=match), prepared(top, scratch, **more):
        pass


def test_a_merge_under_way(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "-b", "rival", "main")
    repository.commit({"mark.py": "MARK = 'rival'\n"})
    with pytest.raises(AssertionError):
        git(repository.top, "merge", "topic")
    refuse(
        repository.top,
        tmp_path / "s",
        BadCheckout,
        "a merge is under way, and mark.py has conflicts",
    )


@pytest.mark.parametrize("ignored", ["out\n", "/out/\n", "ou*\n", "out/*\n", "nothing\n"])
def test_a_folder_for_documents_may_be_ignored_and_there_already(tmp_path: Path, ignored) -> None:
    """As it is in every second run of who keeps `ci-bench-results` out of git."""
    repository, _, _ = topic_repository(tmp_path / "r")
    repository.write({".gitignore": ignored, "out/results.json": "{}", "new.py": "NEW = 1\n"})
    with prepared(repository.top, tmp_path / "s", leave_out=(repository.top / "out",)) as pair:
        head = pair.head.folder
        assert (head / "new.py").exists()
        assert not (head / "out").exists()


def test_untracked_files_that_are_too_large(tmp_path: Path, monkeypatch) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    monkeypatch.setattr(module, "MOST_UNTRACKED_BYTES", 1000)
    repository.write({"data/train.bin": "x" * 900, "notes.txt": "y" * 200})
    refuse(
        repository.top,
        tmp_path / "s",
        BadCheckout,
        "the largest is data/train.bin; .* name them in .gitignore",
    )
    with prepared(repository.top, tmp_path / "s", leave_out=(repository.top / "data",)):
        pass


def test_a_missing_ref(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    refuse(
        repository.top,
        tmp_path / "s",
        NoBase,
        "^base: 'nowhere' is not a commit, branch or tag in this clone$",
        base="nowhere",
    )


def test_a_missing_commit(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    expected = "the base is 123456789012, as given, commit 123456789012, but that commit is not in this clone; fetch it"
    refuse(repository.top, tmp_path / "s", NoBase, expected, base="1234567890" * 4)


def test_without_git(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    (tmp_path / "bin").mkdir()
    refuse(
        repository.top,
        tmp_path / "s",
        GitFailed,
        "install git",
        environ={"PATH": str(tmp_path / "bin")},
    )


def test_a_git_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch) -> None:
    from ci_bench.checkouts.git import Git

    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\nsleep 600 & echo $! >{tmp_path}/child; wait\n")
    fake.chmod(0o755)
    git_ = Git.at(tmp_path, {"PATH": f"{fake.parent}:{os.environ['PATH']}"})
    with pytest.raises(GitFailed, match="`git fetch` did not end within 1 s and was ended"):
        git_.run("fetch", timeout_s=1)
    assert has_ended(int((tmp_path / "child").read_text()))


def test_a_password_in_an_address_is_not_repeated(tmp_path: Path) -> None:
    from ci_bench.checkouts.git import Git

    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'no https://me:s3cret@localhost/x.git' >&2; exit 1\n")
    fake.chmod(0o755)
    with pytest.raises(GitFailed) as caught:
        Git.at(tmp_path, {"PATH": str(fake.parent)}).run("ls-remote")
    assert str(caught.value) == "`git ls-remote` failed: no https://…@localhost/x.git"


def test_a_folder_whose_permissions_were_taken_away_is_removed(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "z").touch()
    (tmp_path / "x" / "y").chmod(0)
    remove(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    remove(tmp_path / "x")


def test_leftovers_of_a_killed_run_are_in_its_own_folder_alone(tmp_path: Path) -> None:
    """A run that was killed before it could tidy leaves nothing in the checkout, and does not disturb the next one."""
    repository, _, _ = topic_repository(tmp_path / "r")
    with left_alone(repository.top):
        with prepared(repository.top, tmp_path / "s") as pair:
            shutil.copytree(tmp_path / "s" / "paired", tmp_path / "kept", symlinks=True)
        shutil.move(tmp_path / "kept", tmp_path / "s" / "paired")
        with prepared(repository.top, tmp_path / "s") as pair:
            assert [run_python(side, MARK) for side in pair.sides] == ["start", "topic"]


CRLF = b"some text\r\n"


def phantom_repository(folder: Path) -> Repository:
    """A checkout whose notes.txt git calls modified, since it came before its attribute; mark.py became `second` last."""
    upstream = new_repository(folder / "up")
    upstream.commit({"mark.py": "MARK = 'first'\n"})
    (upstream.top / "notes.txt").write_bytes(CRLF)
    upstream.commit({})
    upstream.write({".gitattributes": "*.txt text eol=lf\n", "mark.py": "MARK = 'second'\n"})
    git(upstream.top, "add", ".gitattributes", "mark.py")
    git(upstream.top, "commit", "--quiet", "--message=attributes")
    git(upstream.top, "clone", "--quiet", f"file://{upstream.top}", str(folder / "clone"))
    return Repository(folder / "clone")


@pytest.mark.parametrize("where", [{}, {"CI": "true"}])
def test_files_as_committed_are_not_modified(tmp_path: Path, where: dict[str, str]) -> None:
    repository = phantom_repository(tmp_path)
    assert "notes.txt" in git(repository.top, "status", "--short"), "git calls it so"
    with prepared(repository.top, tmp_path / "s", environ=environ(**where)) as pair:
        assert pair.base.source.chosen_by == "the first parent of HEAD, which is on origin/main"
        assert pair.head.source.dirty is False
        assert [run_python(side, MARK) for side in pair.sides] == ["first", "second"]


def test_a_change_beside_a_phantom_counts(tmp_path: Path) -> None:
    repository = phantom_repository(tmp_path)
    repository.write({"mark.py": "MARK = 'mine'\n"})
    with prepared(repository.top, tmp_path / "s") as pair:
        assert "the uncommitted changes are what is measured" in pair.base.source.chosen_by
        assert [run_python(side, MARK) for side in pair.sides] == ["second", "mine"]
    (repository.top / "notes.txt").write_bytes(CRLF * 2)
    git(repository.top, "checkout", "--quiet", "mark.py")
    with prepared(repository.top, tmp_path / "t") as pair:
        assert pair.head.source.dirty is True


@pytest.mark.parametrize("how", ["content", "mode", "removed"])
def test_what_a_job_changed_is_named(tmp_path: Path, how: str) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "main")
    file = repository.top / "mark.py"
    if how == "content":
        file.write_text(file.read_text() + "# 1.2.dev3\n")
    elif how == "mode":
        file.chmod(0o755)
    else:
        file.unlink()
    with prepared(repository.top, tmp_path / "s", environ=environ(CI="true")) as pair:
        rule = "the first parent of HEAD, which is on main; modified in this checkout: mark.py"
        assert pair.base.source.chosen_by == rule
        assert pair.base.source.commit == git(repository.top, "rev-parse", "HEAD^")
        assert pair.head.source.dirty is True
