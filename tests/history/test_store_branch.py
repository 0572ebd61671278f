"""A store on a branch: the checkout stays as it is, runs that append at once lose nothing, compaction leaves one commit."""

import threading

import pytest
from history_builders import ids, record
from repositories import environ, git, left_alone, new_repository

from ci_bench.checkouts.git import Git
from ci_bench.errors import CannotWrite, GitFailed
from ci_bench.history.branch import BranchStore, repository_of
from ci_bench.history.compaction import compact
from ci_bench.history.store import Moved, file_of

NAME = "ci-bench-history"


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    """A checkout and where its history branch is: in itself, or in the repository that it was cloned from."""
    repository = new_repository(tmp_path / "checkout")
    repository.commit({"code.py": "print()\n"})
    if request.param == "local":
        return repository.top, None
    git(tmp_path, "init", "--quiet", "--bare", str(tmp_path / "origin.git"))
    git(repository.top, "remote", "add", "origin", str(tmp_path / "origin.git"))
    return repository.top, "origin"


def shelf_of(place, pause=lambda _: None, make=Git.at):
    top, remote = place
    return BranchStore(git=make(top, environ()), name=NAME, remote=remote, pause=pause)


def log_of(place):
    top, remote = place
    where = top.parent / "origin.git" if remote else top
    return git(where, "log", "--format=%s", NAME).splitlines()


def test_runs_are_added_read_and_compacted(place):
    store = shelf_of(place)
    assert ids(store.read().history) == []
    for number in (1, 0):
        store.append(file_of(record(number)))
    assert ids(store.read().history) == ["run-0", "run-1"]
    assert len(log_of(place)) == 2
    compact(store)
    assert ids(store.read().history) == ["run-0", "run-1"]
    assert log_of(place) == ["compact the history"], (
        "what was thrown away does not stay in the repository"
    )
    store.append(file_of(record(2)))
    assert ids(store.read().history) == ["run-0", "run-1", "run-2"]


def test_working_tree_index_and_head_stay_as_they_are(place):
    top, _ = place
    (top / "code.py").write_text("changed\n")
    git(top, "add", "code.py")
    (top / "new.txt").write_text("untracked")
    before = {path: path.read_bytes() for path in (top / ".git" / "index", top / ".git" / "HEAD")}
    told = git(top, "status", "--porcelain")
    store = shelf_of(place)
    store.append(file_of(record(0)))
    compact(store)
    store.read()
    assert {path: path.read_bytes() for path in before} == before
    assert git(top, "status", "--porcelain") == told
    assert sorted(path.name for path in top.iterdir()) == [".git", "code.py", "new.txt"]


def test_reading_a_local_branch_writes_nothing_at_all(tmp_path):
    repository = new_repository(tmp_path / "checkout")
    repository.commit({"code.py": "print()\n"})
    place = repository.top, None
    shelf_of(place).append(file_of(record(0)))
    with left_alone(repository.top):
        assert ids(shelf_of(place).read().history) == ["run-0"]


def test_jobs_that_append_at_once_lose_nothing(place):
    import time

    errors = []

    def add(number):
        try:
            shelf_of(place, pause=lambda s: time.sleep(min(s, 0.3))).append(file_of(record(number)))
        except Exception as error:  # noqa: BLE001 - told by the assertion
            errors.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ids(shelf_of(place).read().history) == [f"run-{number}" for number in range(4)]


class Between(Git):
    """Lets something happen right before the branch is moved."""

    happen = None

    def call(self, *arguments, **named):
        if arguments[0] in {"update-ref", "push"} and Between.happen:
            happen, Between.happen = Between.happen, None
            happen()
        return super().call(*arguments, **named)


def test_a_run_added_while_another_compacts_is_not_lost(place):
    store = shelf_of(place)
    store.append(file_of(record(0)))
    store.append(file_of(record(1)))
    Between.happen = lambda: store.append(file_of(record(2)))
    compact(shelf_of(place, make=Between.at))
    assert ids(store.read().history) == ["run-0", "run-1", "run-2"]
    assert log_of(place) == ["compact the history"]


def test_compacting_what_moved_is_refused(place):
    store = shelf_of(place)
    store.append(file_of(record(0)))
    state = store.read().state
    store.append(file_of(record(1)))
    with pytest.raises(Moved):
        store.replace(file_of(record(0), pack=True), [], state)
    assert ids(store.read().history) == ["run-0", "run-1"]


class Blind(BranchStore):
    """Moves the branch without saying from where."""

    def _swap(self, new, old):
        ref = f"refs/heads/{self.name}"
        if self.remote is None:
            self.git.run("update-ref", ref, new)
        else:
            self.git.run("push", "--quiet", self.remote, f"+{new}:{ref}")
        return ""


def test_these_tests_see_a_branch_that_is_moved_blindly(place):
    store = shelf_of(place)
    store.append(file_of(record(0)))
    store.append(file_of(record(1)))
    blind = Blind(git=store.git, name=NAME, remote=store.remote)
    read = blind.read()
    store.append(file_of(record(2)))
    blind.replace(file_of(record(0), pack=True), [file.name for file in read.files], read.state)
    assert "run-2" not in ids(store.read().history)


class Killed(BaseException):
    """Stands for a kill: nothing may catch it."""


class Mortal(Git):
    """Dies at its n-th call of git, before or after it was made."""

    left, when = 0, "before"

    def call(self, *arguments, **named):
        Mortal.left -= 1
        if Mortal.left == 0 and Mortal.when == "before":
            raise Killed
        answer = super().call(*arguments, **named)
        if Mortal.left == 0:
            raise Killed
        return answer


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_nothing_is_lost_on_a_kill_at_any_call_of_git(when, place):
    store = shelf_of(place)
    for number in range(2):
        store.append(file_of(record(number)))
    Mortal.when = when
    kills = 0
    for call in range(
        1, 200, 4 if place[1] else 2
    ):  # after one call is before the next; some suffice
        Mortal.left = call
        mortal = shelf_of(place, make=Mortal.at)
        try:
            mortal.append(file_of(record(2 + call)))
            compact(mortal)
        except Killed:
            kills += 1
        found = store.read()
        assert found.passed == ()
        assert {"run-0", "run-1"} <= {*ids(found.history)}
        if Mortal.left > 0:
            break
    assert kills >= 3
    assert {"run-0", "run-1", f"run-{2 + call}"} <= {*ids(store.read().history)}


def test_a_hostile_branch_leads_nowhere(place, tmp_path):
    """Links, and files that are no records."""
    top, remote = place
    store = shelf_of(place)
    store.append(file_of(record(0)))
    (name,) = file_of(record(1))
    (tmp_path / "secret").write_text("secret")
    link = tmp_path / "link"
    link.write_text(str(tmp_path / "secret"))
    source = store.git
    blob = source.run("hash-object", "-w", str(link)).strip()
    index = {"GIT_INDEX_FILE": str(tmp_path / "index")}
    source.run("read-tree", store.read().state, more=index)
    source.run("update-index", "--add", "--cacheinfo", f"120000,{blob},{name}", more=index)
    source.run("update-index", "--add", "--cacheinfo", f"100644,{blob},.gitattributes", more=index)
    tree = source.run("write-tree", more=index).strip()
    new = git(top, "commit-tree", tree, "-m", "evil")
    if remote:
        git(top, "push", "--quiet", "origin", f"+{new}:refs/heads/{NAME}")
    else:
        git(top, "update-ref", f"refs/heads/{NAME}", new)
    found = store.read()
    assert ids(found.history) == ["run-0"]
    assert len(found.passed) == 2
    assert "secret" not in " ".join(passed.reason for passed in found.passed)


def test_a_remote_that_refuses_is_said(tmp_path):
    repository = new_repository(tmp_path / "checkout")
    repository.commit({"code.py": "print()\n"})
    git(repository.top, "remote", "add", "origin", str(tmp_path / "nowhere.git"))
    with pytest.raises(GitFailed, match="ls-remote"):
        shelf_of((repository.top, "origin")).append(file_of(record(0)))


def test_a_branch_that_is_always_ahead_gives_up_with_a_word(place, monkeypatch):
    store = shelf_of(place)
    monkeypatch.setattr(BranchStore, "_swap", lambda *_: "it moved")
    with pytest.raises(CannotWrite, match="in 12 tries"):
        store.append(file_of(record(0)))


def test_a_name_that_is_none_is_refused(tmp_path):
    repository = new_repository(tmp_path / "checkout")
    repository.commit({"code.py": "print()\n"})
    with pytest.raises(GitFailed, match="not a valid branch name"):
        repository_of(Git.at(repository.top, environ()), "a..b")
