"""What a killed run left is found and ended; what is a living run's, or nobody's of ours, is left alone."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ci_bench.errors import ScratchFailed
from ci_bench.processes import scratch
from ci_bench.processes.scratch import HELD, clear, run_folder
from processes import carrying, is_alive


def sleeper(**environ):
    return subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"], env={**os.environ, **environ}
    )


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def dead(parent, name="ci-bench-dead"):
    folder = parent / name
    (folder / "head" / "closed").mkdir(parents=True)
    (folder / HELD).touch()
    (folder / "head" / "closed").chmod(0)
    return folder


def test_a_dead_runs_folder_is_removed_with_its_processes(tmp_path):
    folder = dead(tmp_path)
    mine, other = (
        sleeper(CI_BENCH_FOLDER=str(folder / "head")),
        sleeper(CI_BENCH_FOLDER=str(tmp_path / "ci-bench-other")),
    )
    try:
        time.sleep(0.2)
        assert clear(tmp_path) == (folder,)
        assert mine.wait(5) == -signal.SIGKILL
        assert other.poll() is None
        assert not folder.exists()
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", ["with space", "with\ttab", "plain"])
def test_a_folder_for_temporary_files_with_a_space_is_not_used(tmp_path, monkeypatch, name):
    """Inductor does not quote the path of its cache for its compiler."""
    usual = tmp_path / name
    usual.mkdir()
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(usual))
    with run_folder() as folder:
        assert (Path(folder).parent == usual) is (name == "plain")
        assert not any(letter.isspace() for letter in folder)
    assert not Path(folder).exists()


def test_a_living_runs_folder_is_left_alone(temporary):
    with run_folder() as folder:
        assert clear(temporary) == ()
        with run_folder() as another:
            assert Path(folder).exists()
            assert Path(another).exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "kind", ["without a lock", "a link", "another user's", "a lock that is a link"]
)
def test_foreign_leftovers_are_kept(tmp_path, monkeypatch, kind):
    folder = dead(tmp_path / "elsewhere") if kind == "a link" else dead(tmp_path)
    if kind == "without a lock":
        (folder / HELD).unlink()
    elif kind == "a link":
        (tmp_path / "ci-bench-link").symlink_to(folder)
    elif kind == "a lock that is a link":
        (folder / HELD).unlink()
        (folder / HELD).symlink_to(tmp_path / "x")
        (tmp_path / "x").touch()
    else:
        monkeypatch.setattr(scratch.os, "geteuid", lambda: 12345)
    assert clear(tmp_path) == ()
    assert folder.exists()


def test_a_folder_that_another_run_clears_meanwhile_is_passed_over(tmp_path, monkeypatch):
    first, second = dead(tmp_path, "ci-bench-1"), dead(tmp_path, "ci-bench-2")
    monkeypatch.setattr(
        scratch, "_remove", lambda _: [shutil.rmtree(folder) for folder in (first, second)]
    )
    assert clear(tmp_path) == (first,)


def test_temporary_files_are_listed_once_and_need_not_be(temporary, monkeypatch):
    """A folder that has no more than mode 1733 takes files, and cannot be listed."""
    listed = []
    real = os.scandir

    def refuse(place):
        if place != temporary:
            return real(place)
        listed.append(place)
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(scratch.os, "scandir", refuse)
    with run_folder() as folder:
        assert (Path(folder) / HELD).exists()
    assert listed == [temporary]


def test_a_folder_is_held_before_anybody_can_take_it_for_dead(temporary, monkeypatch):
    """At no moment is there a lock file that is not locked."""
    seen = []
    real = fcntl.flock

    def look(stream, how):
        seen.extend(path.name for path in temporary.glob(f"ci-bench-*/{HELD}"))
        return real(stream, how)

    monkeypatch.setattr(scratch.fcntl, "flock", look)
    with run_folder() as folder:
        assert seen == []
        assert (Path(folder) / HELD).exists()


def test_a_folder_that_cannot_be_made_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(ScratchFailed, match="Not a directory"), run_folder():
        pass


def test_the_next_run_clears_away_what_a_killed_one_left(place):
    """SIGKILL for the run and for the process behind its workers, so that nobody can tidy: a worker goes on for ever."""
    place.configure({"name": "hangs", "fault": "hang"})
    room = f"leftover-{time.monotonic_ns()}"
    run = place.start("run", "--output", place.output, FAKE_ROOM=room)
    deadline = time.monotonic() + 60
    while (
        not list(place.temporary.glob("ci-bench-*/head/launch-0/002.log"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=30)
    (left,) = place.leftovers()
    stray = sleeper(
        CI_BENCH_FOLDER=str(place.temporary / left / "head")
    )  # as a worker in a state that no signal reaches yet
    place.configure({"name": "sound"})
    code, _, err = place.run("run", "--output", place.output)
    assert (
        code,
        f"an earlier run was killed: ended 1 of its processes and removed {place.temporary / left}"
        in err,
    ) == (
        0,
        True,
    ), err
    assert stray.wait(5) == -signal.SIGKILL
    assert place.leftovers() == []
    assert carrying(room, within_s=5) == []
    assert not is_alive(run.pid)
