"""Which commit head is compared with, by which rule."""

from pathlib import Path

import pytest
from repositories import Repository, environ, git, new_repository, topic_repository

from ci_bench.checkouts.bases import Base, choose_base
from ci_bench.checkouts.git import Git
from ci_bench.errors import NoBase


def choose(top: Path, given: str | None = None, *, is_dirty: bool = False, **more: str) -> Base:
    return choose_base(
        Git.at(top, environ()),
        git(top, "rev-parse", "HEAD"),
        base=given,
        is_dirty=is_dirty,
        environ=more,
    )


def clone(repository: Repository, folder: Path, *options: str) -> Path:
    git(repository.top, "clone", "--quiet", *options, f"file://{repository.top}", str(folder))
    return folder


def test_a_topic_is_compared_with_where_it_started(tmp_path: Path) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    assert choose(repository.top) == Base(
        commit=start, branch="main", rule="the merge base of HEAD and main"
    )


def test_uncommitted_changes_on_a_topic_do_not_move_the_base(tmp_path: Path) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    assert choose(repository.top, is_dirty=True).commit == start


def test_a_detached_head_is_compared_like_its_branch(tmp_path: Path) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "--detach")
    assert choose(repository.top).commit == start


def test_the_default_branch_is_what_the_remote_says(tmp_path: Path) -> None:
    """A clone without a local main, whose origin calls its branch something else."""
    upstream, start, _ = topic_repository(tmp_path / "r")
    git(upstream.top, "branch", "--move", "main", "trunk")
    git(upstream.top, "checkout", "--quiet", "trunk")
    top = clone(upstream, tmp_path / "clone")
    git(top, "checkout", "--quiet", "topic")
    git(top, "branch", "--delete", "--force", "trunk")
    assert choose(top) == Base(
        commit=start, branch="trunk", rule="the merge base of HEAD and origin/trunk"
    )


def test_a_local_branch_beside_the_remotes_is_not_named_in_its_place(tmp_path: Path) -> None:
    """The local main stayed behind: what was used is the remote's, and the message says so."""
    upstream, start, _ = topic_repository(tmp_path / "r")
    git(upstream.top, "checkout", "--quiet", "main")
    top = clone(upstream, tmp_path / "clone")
    git(top, "checkout", "--quiet", "topic")
    git(top, "branch", "--force", "main", start)
    chosen = choose(top)
    assert (chosen.branch, chosen.rule) == ("main", "the merge base of HEAD and origin/main")
    git(top, "checkout", "--quiet", "--detach", "origin/main")
    assert choose(top).rule == "the first parent of HEAD, which is on origin/main"
    assert choose(top, is_dirty=True).rule.startswith("HEAD, which is on origin/main: ")


def test_a_pull_request_into_another_branch_is_compared_with_that(tmp_path: Path) -> None:
    repository, _, middle = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "-b", "upper")
    repository.commit({"upper.txt": "stacked"})
    top = clone(repository, tmp_path / "clone")
    git(top, "checkout", "--quiet", "--detach", "origin/upper")
    assert choose(top, GITHUB_BASE_REF="topic") == Base(
        commit=middle, branch="topic", rule="the merge base of HEAD and origin/topic"
    )


def merge_ref(repository: Repository, into: str, what: str) -> str:
    """As GitHub makes one of a pull request. Returns what it was merged into."""
    git(repository.top, "checkout", "--quiet", "--detach", into)
    first = repository.head
    git(repository.top, "merge", "--quiet", "--no-ff", "--no-edit", what)
    return first


def test_a_pull_requests_merge_commit_is_compared_with_what_it_was_merged_into(
    tmp_path: Path,
) -> None:
    """Not with where the topic started: main has gone on, and that is on both sides."""
    repository, start, _ = topic_repository(tmp_path / "r")
    first = merge_ref(repository, "main", "topic")
    assert first != start
    assert choose(repository.top) == Base(
        commit=first, branch=None, rule="the first parent of HEAD, which is a merge commit"
    )
    assert choose(repository.top, GITHUB_BASE_REF="main").branch == "main"


def test_a_stacked_pull_requests_merge_commit_is_compared_with_what_it_was_merged_into(
    tmp_path: Path,
) -> None:
    repository, _, middle = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "-b", "upper")
    repository.commit({"upper.txt": "stacked"})
    assert merge_ref(repository, "topic", "upper") == middle
    assert choose(repository.top).commit == middle


def test_a_topic_that_merged_main_is_compared_with_main(tmp_path: Path) -> None:
    """Its first parent is the topic of yesterday."""
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "merge", "--quiet", "--no-ff", "--no-edit", "main")
    main = git(repository.top, "rev-parse", "main")
    assert choose(repository.top) == Base(
        commit=main, branch="main", rule="the merge base of HEAD and main"
    )


def test_on_the_default_branch_a_commit_is_compared_with_the_one_before(tmp_path: Path) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "main")
    assert choose(repository.top) == Base(
        commit=start, branch="main", rule="the first parent of HEAD, which is on main"
    )


def test_on_the_default_branch_uncommitted_changes_are_compared_with_their_commit(
    tmp_path: Path,
) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "main")
    base = choose(repository.top, is_dirty=True)
    assert base.commit == repository.head
    assert "the uncommitted changes are what is measured" in base.rule


def test_a_merge_without_a_known_default_branch_is_compared_with_its_first_parent(
    tmp_path: Path,
) -> None:
    repository, _, head = topic_repository(tmp_path / "r")
    git(repository.top, "merge", "--quiet", "--no-ff", "--no-edit", "main")
    git(repository.top, "branch", "--move", "main", "unknown")
    assert choose(repository.top).commit == head


@pytest.mark.parametrize(
    "given", ["main", "refs/heads/main", "v1", "HEAD~1", "a commit", "a short commit"]
)
def test_a_given_commit_is_taken_as_it_is(tmp_path: Path, given: str) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    main = git(repository.top, "rev-parse", "main")
    git(repository.top, "tag", "--annotate", "--message=one", "v1", start)
    expected = start if given in {"v1", "HEAD~1"} else main
    name = {"a commit": main, "a short commit": main[:10]}.get(given, given)
    base = choose(repository.top, name)
    assert (base.commit, base.rule) == (expected, f"{name}, as given")
    assert base.branch == ("main" if "main" in given else None)


def test_a_branch_that_was_only_fetched_is_found_at_origin(tmp_path: Path) -> None:
    repository, _, head = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "main")
    top = clone(repository, tmp_path / "clone")
    assert choose(top, "topic") == Base(commit=head, branch="topic", rule="origin/topic, as given")


@pytest.mark.parametrize("given", ["main...HEAD", "main...", "...main"])
def test_three_dots_are_the_merge_base_as_for_git(tmp_path: Path, given: str) -> None:
    repository, start, _ = topic_repository(tmp_path / "r")
    assert choose(repository.top, given).commit == start


@pytest.mark.parametrize(
    "given", ["nowhere", "v9...HEAD", "--help", "-q", "", "main:mark.py", "main^{tree}", "a b"]
)
def test_a_name_that_git_does_not_know_is_said_so(tmp_path: Path, given: str) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with pytest.raises(NoBase, match=r"^base: "):
        choose(repository.top, given)


def test_the_first_commit_has_nothing_before_it(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "r")
    repository.commit({"a": "a"})
    rule = "HEAD itself, which is the first commit: nothing came before it"
    assert choose(repository.top) == Base(commit=repository.head, branch="main", rule=rule)
    with pytest.raises(NoBase, match="is the first commit: there is nothing before it"):
        choose(repository.top, CI="true")


@pytest.mark.parametrize("where", [{"CI": "true"}, {"GITHUB_ACTIONS": "true"}, {"CI": "1"}])
def test_in_ci_changes_do_not_move_the_base(tmp_path: Path, where: dict[str, str]) -> None:
    """Nobody made them there: a filter or an earlier step did, and the commit is what was pushed."""
    repository, start, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "main")
    chosen = choose(repository.top, is_dirty=True, **where)
    assert chosen == Base(
        commit=start, branch="main", rule="the first parent of HEAD, which is on main"
    )


@pytest.mark.parametrize("value", ["", "0", "false", "False"])
def test_a_variable_that_denies_ci_counts(tmp_path: Path, value: str) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "main")
    assert choose(repository.top, is_dirty=True, CI=value).commit == repository.head


def test_without_a_default_branch_the_base_has_to_be_named(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "branch", "--move", "main", "trunk")
    with pytest.raises(NoBase, match=r"no default branch is known here .* base: REF"):
        choose(repository.top)


def test_histories_without_a_common_commit_are_said_so(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    git(repository.top, "checkout", "--quiet", "--orphan", "other")
    repository.commit({"b": "b"})
    with pytest.raises(NoBase, match="HEAD and main have no commit in common"):
        choose(repository.top)
