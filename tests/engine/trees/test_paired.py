"""Both sides as a whole: prepared in one process and measured in another, and measured by real workers."""

import json
import shutil
from pathlib import Path

import pytest
from repositories import environ, git, left_alone, new_repository, run_python, topic_repository

from ci_bench.engine.trees.paired import Place, prepare_sides, reopen_sides
from ci_bench.errors import BadDocument
from ci_bench.records.config import Setup

MARK = "import mark; print(mark.MARK)"


def place(top: Path, scratch: Path, **more: str) -> Place:
    scratch.mkdir(exist_ok=True)
    return Place(repository=top, scratch=scratch, logs=scratch / "logs", environ=environ(**more))


@pytest.mark.parametrize("commands", [(), ("echo 'MARK += \" set up\"' >>mark.py",), ("[ $CI_BENCH_SIDE = head ]",)])
def test_what_one_process_prepares_another_can_measure(tmp_path: Path, commands: tuple[str, ...]) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    with left_alone(repository.top):
        made = prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup(commands=commands))
    assert reopen_sides(tmp_path / "s", environ()) == made
    again = reopen_sides(tmp_path / "s", environ(MORE="1", GITHUB_REF="x"))
    assert again.head.environ["MORE"] == "1"
    assert "GITHUB_REF" not in again.head.environ
    assert run_python(again.head, MARK) == ("topic set up" if "set up" in str(commands) else "topic")
    assert (again.base.failure is None) == ("= head" not in str(commands))


def test_what_is_kept_has_no_variables(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    prepare_sides(place(repository.top, tmp_path / "s", PRIVATE_WORD="a-word"), base=None, setup=Setup())
    assert "a-word" not in (tmp_path / "s" / "paired" / "sides.json").read_text()


def test_what_was_moved_is_the_failure_of_its_side(tmp_path: Path) -> None:
    repository, _, _ = topic_repository(tmp_path / "r")
    prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup())
    shutil.move(tmp_path / "s", tmp_path / "t")
    for side in (reopened := reopen_sides(tmp_path / "t", environ())).sides:
        assert (side.failure or "").endswith("mount it at the path where it was made")
    assert reopened.rule == "the merge base of HEAD and main"


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"checkout": "", "rule": "", "sides": []}'])
def test_nothing_prepared(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "paired").mkdir()
    if content is not None:
        (tmp_path / "paired" / "sides.json").write_text(content)
    with pytest.raises(BadDocument, match=r"no prepared sides can be read there .* prepare them first"):
        reopen_sides(tmp_path, environ())


@pytest.mark.engine
def test_a_worker_of_each_side_runs_its_own_code(tmp_path: Path) -> None:
    """Forked by the engine's own server, which each side starts with its interpreter, environment and folder."""
    from ci_bench.engine.process.launch import Launcher
    from ci_bench.engine.process.task import Task

    repository = new_repository(tmp_path / "my repo")
    code = "import pathlib\npathlib.Path('ran').write_text({!r})\n"
    repository.commit({"marker.py": code.format("base")})
    git(repository.top, "checkout", "--quiet", "-b", "topic")
    repository.commit({"marker.py": code.format("head")})
    pair = prepare_sides(place(repository.top, tmp_path / "s"), base=None, setup=Setup(commands=("true",)))
    for side in pair.sides:
        launch = Launcher(
            preload=("marker",), environ=side.environ, folder=tmp_path / side.name, python=side.python, cwd=side.folder
        )
        with launch as launcher:
            ended = launcher.run(probe(Task, tmp_path), timeout_s=60, on_answer=lambda _: None)
        assert (side.folder / "ran").read_text() == side.name
        told = next(answer.environment for answer in ended.answers if answer.environment)
        assert told["identity"]["torch"], json.dumps(told)


def probe(task: type, scratch: Path):
    from ci_bench.records.config import RunOptions

    return task(launch=0, device="cpu", options=RunOptions(threads=1), scratch=str(scratch))
