"""A test that hangs on the clock has the machine to itself, and gets its turn."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import beside
import pytest
from beside import Groups, pytest_xdist_make_scheduler, turn


@pytest.fixture
def places(tmp_path):
    """A room and a queue of their own: this test is in a turn itself."""
    for name in ("room", "queue"):
        (tmp_path / name).touch()
    return {name: tmp_path / name for name in ("room", "queue")}


def within(places, alone, inside, seconds=0.2):
    """A thread that is in its turn so long, and notes who else was."""

    def go():
        with turn(alone=alone, **places):
            inside.append(alone)
            seen.extend(inside)
            time.sleep(seconds)
            seen.extend(inside)
            inside.remove(alone)

    seen = []
    thread = threading.Thread(target=go)
    thread.start()
    return thread, seen


def test_others_go_on_beside_each_other(places):
    inside = []
    threads = [within(places, alone=False, inside=inside) for _ in range(2)]
    for thread, _ in threads:
        thread.join()
    assert max(seen.count(False) for _, seen in threads) >= 3


def test_nobody_is_beside_one_that_wants_to_be_alone(places):
    inside = []
    threads = [
        within(places, alone, inside, 0.05) for alone in (False, True, False, True, False, False)
    ]
    for thread, _ in threads:
        thread.join()
    assert [seen for _, seen in threads if True in seen] == [[True, True], [True, True]]


def test_it_does_not_wait_for_those_that_come_later(places):
    """Others that take turns without a pause between them never leave the room empty."""
    inside, ended = [], threading.Event()

    def others(seconds):
        while not ended.is_set():
            with turn(alone=False, **places):
                time.sleep(seconds)

    crowd = [threading.Thread(target=others, args=(seconds,)) for seconds in (0.013, 0.02, 0.029)]
    for thread in crowd:
        thread.start()
    alone, seen = within(places, alone=True, inside=inside)
    alone.join(timeout=10)
    ended.set()
    for thread in crowd:
        thread.join()
    assert seen == [True, True]


def test_what_fails_leaves_the_room(places):
    with pytest.raises(KeyError), turn(alone=True, **places):
        raise KeyError
    with turn(alone=True, **places):
        pass


def test_the_tests_of_a_file_go_to_one_worker_and_so_do_all_that_want_the_image():
    scope = Groups.__new__(Groups)._split_scope
    assert scope("tests/runner/test_beside.py::test_a[x::y]") == scope(
        "tests/runner/test_beside.py::test_b"
    )
    assert scope("tests/runner/test_beside.py::test_a") != scope("tests/test_lock.py::test_a")
    assert (
        scope("tests/image/test_image.py::test_a")
        == scope("tests/action/test_real_image.py::test_a")
        == "image"
    )


def test_those_that_want_to_be_alone_are_one_group_whatever_file_they_are_in():
    scope = Groups.__new__(Groups)._split_scope
    by_function = "tests/end_to_end/test_paired_gate.py::test_a_commit_is_judged_against_the_one_before_it[0.008-expected0]"
    by_file = "tests/benchmarks/test_overhead.py::test_every_figure_is_there"
    assert scope(by_function) == scope(by_file) == "alone"
    beside_it = (
        "tests/end_to_end/test_paired_gate.py::test_changes_that_are_not_committed_are_measured_too"
    )
    assert scope(beside_it) == "tests/end_to_end/test_paired_gate.py"


def test_the_run_asks_for_these_groups(request):
    impls = request.config.hook.pytest_xdist_make_scheduler.get_hookimpls()
    assert pytest_xdist_make_scheduler in {impl.function for impl in impls}


def test_what_hangs_is_told_and_not_waited_for(places):
    with (
        turn(alone=False, **places),
        pytest.raises(TimeoutError, match="room for too long: it hangs"),
        turn(alone=True, patience_s=0.05, **places),
    ):
        pass


INNER = "def test_inside(): pass"
STARTS_A_RUN = """
import subprocess, sys, time, pathlib
import beside, fcntl

def waited_for():
    with open(beside.QUEUE) as queue:
        try:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

def test_that_starts_a_run():
    pathlib.Path("begun").touch()
    while not waited_for():
        time.sleep(0.01)
    time.sleep(0.1)
    subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/inner.py"], check=True, timeout=PATIENCE)

def test_second(): pass
def test_third(): pass
"""
"""With more than one test, so that it is the other worker that xdist hands the next group to."""
WANTS_TO_BE_ALONE = """
import pathlib, time, pytest

def test_waits_for_the_other():
    while not pathlib.Path("begun").exists():
        time.sleep(0.01)

@pytest.mark.alone
def test_that_wants_to_be_alone():
    pass
"""


@pytest.mark.parametrize(
    ("takes_turns", "patience_s", "told"),
    [("worker", 60, "5 passed"), ("True", 6, "1 failed, 4 passed")],
    ids=["as it is", "defect"],
)
def test_a_run_that_a_test_starts_does_not_wait_for_the_one_that_waits_for_this_test(
    tmp_path, takes_turns, patience_s, told
):
    tests = tmp_path / "tests"
    source = Path(beside.__file__).read_text()
    assert source.count(" if worker else ") == 1
    for name, text in {
        "fixtures/beside.py": source.replace(" if worker else ", f" if {takes_turns} else "),
        "conftest.py": "from beside import *\n",
        "../pytest.ini": "[pytest]\npythonpath = tests/fixtures\nmarkers = alone\n",
        "inner.py": INNER,
        "test_one.py": STARTS_A_RUN.replace("PATIENCE", str(patience_s)),
        "test_other.py": WANTS_TO_BE_ALONE,
    }.items():
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        (tests / name).write_text(text)
    program = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--numprocesses",
        "2",
        "--no-loadscope-reorder",
    ]
    ended = subprocess.run(
        program, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=150
    )
    assert told in ended.stdout, ended.stdout + ended.stderr
