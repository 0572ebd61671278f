"""Both sides as a whole: prepared in one process and measured in another, and measured by real workers."""

import json
import shutil
from pathlib import Path

import pytest
from repositories import (
    Repository,
    environ,
    git,
    left_alone,
    new_repository,
    run_python,
    topic_repository,
)

from ci_bench.checkouts.paired import Place, prepare_sides, reopen_sides
from ci_bench.errors import CannotWrite, NotPrepared
from ci_bench.records.config import Setup

MARK = "import mark; print(mark.MARK)"


def place(top: Path, scratch: Path, **more: str) -> Place:
    scratch.mkdir(exist_ok=True)
    return Place(repository=top, scratch=scratch, logs=scratch / "logs", environ=environ(**more))


@pytest.mark.parametrize(
    "commands", [(), ("echo 'MARK += \" set up\"' >>mark.py",), ("[ $CI_BENCH_SIDE = head ]",)]
)
def test_what_one_process_prepares_another_can_measure(
    tmp_path: Path, commands: tuple[str, ...]
) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    (repository.top / "new.txt").write_text("not committed, so that head is a snapshot")
    setup = Setup(commands=commands)
    with left_alone(repository.top):
        made = prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=setup)
        assert reopen_sides(place(repository.top, tmp_path / "s"), base=None, setup=setup) == made
        more = place(repository.top, tmp_path / "s", MORE="1", GITHUB_REF="x")
        again = reopen_sides(more, base=None, setup=setup)
    assert again.head.environ["MORE"] == "1"
    assert "GITHUB_REF" not in again.head.environ
    assert run_python(again.head, MARK) == (
        "topic set up" if "set up" in str(commands) else "topic"
    )
    assert (again.base.failure is None) == ("= head" not in str(commands))
    assert again.base.source.chosen_by == "the merge base of HEAD and main"
    assert again.head.source.chosen_by is None


def test_what_is_kept_has_no_variables(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    prepare_sides(
        place(repository.top, tmp_path / "s", PRIVATE_WORD="a-word"), base=None, setup=Setup()
    )
    assert "a-word" not in (tmp_path / "s" / "paired" / "sides.json").read_text()


def test_what_was_moved_is_the_failure_of_its_side(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup())
    shutil.move(tmp_path / "s", tmp_path / "t")
    for side in reopen_sides(place(repository.top, tmp_path / "t"), base=None, setup=Setup()).sides:
        assert (side.failure or "").endswith("mount them at the path where they were made")


def another_commit(repository: Repository, _: pytest.MonkeyPatch) -> None:
    repository.commit({"mark.py": "MARK = 'later'\n"})


def a_change(repository: Repository, _: pytest.MonkeyPatch) -> None:
    repository.write({"mark.py": "MARK = 'changed'\n"})


def a_lost_file(repository: Repository, _: pytest.MonkeyPatch) -> None:
    (repository.top / "mark.py").unlink()


def another_engine(_: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ci_bench.__version__", "0.0.1")


@pytest.mark.parametrize(
    ("spoil", "asked", "said"),
    [
        (another_commit, {}, r"head was commit \w{12}, now \w{12} is checked out"),
        (a_change, {}, r"files have changed since: mark\.py;"),
        (a_lost_file, {}, r"files have changed since: mark\.py;"),
        (another_engine, {}, r"version was .*, now it is 0\.0\.1"),
        (None, {"base": "HEAD~1"}, r"base was left to choose, now it is HEAD~1"),
        (None, {"setup": Setup(commands=("true",))}, r"setup\.commands has changed"),
    ],
)
def test_sides_prepared_for_something_else_are_refused(
    tmp_path: Path, monkeypatch, spoil, asked, said
) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup())
    if spoil:
        spoil(repository, monkeypatch)
    with pytest.raises(NotPrepared, match=said):
        reopen_sides(
            place(repository.top, tmp_path / "s"), **{"base": None, "setup": Setup(), **asked}
        )


def test_sides_of_another_checkout_are_refused(tmp_path: Path) -> None:
    first, _, _ = topic_repository(tmp_path / "r")
    second, _, _ = topic_repository(tmp_path / "other")
    prepare_sides(place(first.top, tmp_path / "s"), base=None, setup=Setup())
    with pytest.raises(NotPrepared, match="it belongs to the checkout"):
        reopen_sides(place(second.top, tmp_path / "s"), base=None, setup=Setup())


def test_files_that_a_job_leaves_lying_about_spoil_nothing_that_was_prepared(
    tmp_path: Path,
) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup())
    repository.write({"log.txt": "something was done"})
    assert (
        reopen_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup()).head.failure
        is None
    )


def test_what_lies_where_sides_are_to_be_made_is_not_removed(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    treasure = tmp_path / "s" / "paired" / "treasure.txt"
    treasure.parent.mkdir(parents=True)
    treasure.write_text("mine")
    with pytest.raises(CannotWrite, match="holds something else"):
        prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup())
    assert treasure.read_text() == "mine"


@pytest.mark.parametrize(
    "content", [None, "", "{}", "[1]", '{"checkout": "", "rule": "", "sides": []}']
)
def test_nothing_prepared(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "paired").mkdir()
    if content is not None:
        (tmp_path / "paired" / "sides.json").write_text(content)
    with pytest.raises(
        NotPrepared, match=r"no prepared sides can be read there .* prepare them first"
    ):
        reopen_sides(place(tmp_path, tmp_path), base=None, setup=Setup())


@pytest.mark.engine
def test_a_worker_of_each_side_runs_its_own_code(tmp_path: Path) -> None:
    """Forked by the engine's own server, which each side starts with its interpreter, environment and folder."""
    from ci_bench.processes.launch import Launcher
    from ci_bench.processes.protocol import Task

    repository = new_repository(tmp_path / "my repo")
    code = "import pathlib\npathlib.Path('ran').write_text({!r})\n"
    repository.commit({"marker.py": code.format("base")})
    git(repository.top, "checkout", "--quiet", "-b", "topic")
    repository.commit({"marker.py": code.format("head")})
    pair = prepare_sides(
        place(repository.top, tmp_path / "s"), base=None, setup=Setup(commands=("true",))
    )
    for side in pair.sides:
        launch = Launcher(
            preload=("marker",),
            environ=side.environ,
            folder=tmp_path / side.name,
            python=side.python,
            cwd=side.folder,
        )
        with launch as launcher:
            ended = launcher.run(probe(Task, tmp_path), timeout_s=60, on_answer=lambda _: None)
        assert (side.folder / "ran").read_text() == side.name
        told = next(answer.environment for answer in ended.answers if answer.environment)
        assert told["identity"]["torch"], json.dumps(told)


def probe(task: type, scratch: Path):
    from ci_bench.records.config import RunOptions

    return task(launch=0, device="cpu", options=RunOptions(threads=1), scratch=str(scratch))
