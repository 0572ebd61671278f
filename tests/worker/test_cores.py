"""Whether what is timed uses one core at a time, and keeping it to one."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from ci_bench.worker import cores
from ci_bench.worker.cores import Cores

BUSY_S = 0.3
SPIN = f"import time\nend = time.process_time() + {BUSY_S}\nwhile time.process_time() < end: pass\n"

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@pytest.fixture(autouse=True)
def allowed() -> Iterator[set[int]]:
    """The cores of this process, given back afterwards; torch has one thread."""
    own, threads = os.sched_getaffinity(0), torch.get_num_threads()
    torch.set_num_threads(1)
    yield own
    os.sched_setaffinity(0, own)
    torch.set_num_threads(threads)


def compute(seconds: float = BUSY_S) -> None:
    """Use one core, without the interpreter's lock, for so many seconds of this thread's time."""
    value, end = torch.ones(256, 256), time.thread_time() + seconds
    while time.thread_time() < end:
        value @ value


def uses_one(work: Callable[[], object]) -> bool:
    used = Cores()
    used.begin()
    work()
    used.end()
    return used.one


def two_threads() -> None:
    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_thread_after_the_other() -> None:
    for _ in range(2):
        thread = threading.Thread(target=compute, args=(BUSY_S / 2,))
        thread.start()
        thread.join()


@pytest.mark.parametrize("work", [compute, lambda: time.sleep(0.1), one_thread_after_the_other])
def test_what_uses_one_core_at_a_time_is_seen(work: Callable[[], object]) -> None:
    assert uses_one(work)


def test_what_a_child_has_used_is_counted_once_it_has_ended() -> None:
    before = cores._of_children_s()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert cores._of_children_s() - before > 0.9 * BUSY_S


def test_what_a_child_uses_is_counted_while_it_lives() -> None:
    before = cores._of_children_s()
    child = subprocess.Popen(
        [sys.executable, "-c", f"{SPIN}print(flush=True)\ntime.sleep(60)"], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert cores._of_children_s() - before > 0.9 * BUSY_S
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("own_s", "of_children_s", "one"),
    [
        (0.0, 0.0, True),
        (2.09, 0.0, True),
        (2.11, 0.0, False),
        (4.0, 0.0, False),
        (1.0, 0.09, True),
        (1.0, 0.11, False),
    ],
)
def test_more_than_one_core_is_more_of_the_processor_than_of_the_clock_or_anything_of_children(
    own_s: float, of_children_s: float, one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_of_children_s", iter([7.0, 7.0 + of_children_s]).__next__)
    clocks = {
        "perf_counter": iter([100.0, 102.0]).__next__,
        "process_time": iter([50.0, 50.0 + own_s]).__next__,
    }
    monkeypatch.setattr(cores, "time", SimpleNamespace(**clocks))
    assert uses_one(lambda: None) is one


def test_what_waits_for_a_child_that_computes_does_not_use_one_core_itself() -> None:
    assert not uses_one(lambda: subprocess.run([sys.executable, "-c", SPIN], check=True))


def test_threads_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two at once, whoever else has the cores: as if the clock had gone as far as one of them computed."""
    used: list[float] = []
    clocks = {"perf_counter": lambda: 1.2 * BUSY_S * len(used), "process_time": time.process_time}
    monkeypatch.setattr(cores, "time", SimpleNamespace(**clocks))

    def work() -> None:
        two_threads()
        used.append(1.0)

    assert not uses_one(work)


def test_a_thread_is_kept_to_a_core_and_released(allowed: set[int]) -> None:
    kept = Cores(one=True)
    kept.keep_to(max(allowed))
    assert os.sched_getaffinity(0) == {max(allowed)}
    kept.keep_to(min(allowed))
    assert os.sched_getaffinity(0) == {min(allowed)}
    kept.release()
    assert os.sched_getaffinity(0) == allowed


def test_a_core_that_is_not_ours_is_not_kept_to(allowed: set[int]) -> None:
    Cores().keep_to(max(allowed) + 1)
    assert os.sched_getaffinity(0) == allowed


def test_what_has_chosen_its_own_cores_keeps_them(allowed: set[int]) -> None:
    def choose() -> None:
        os.sched_setaffinity(0, {min(allowed)})

    assert not uses_one(choose)
