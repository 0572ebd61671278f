"""One run at a time on a device: the second waits, says so, and gives up in time; a lock never outlives its holder."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from ci_bench.errors import DeviceBusy, ExitCode
from ci_bench.host.lock import device_key, device_lock
from ci_bench.records.results import Environment

HOLD = """
import sys, time
from pathlib import Path
from ci_bench.host.lock import device_lock
with device_lock("gpu-1", folder=Path(sys.argv[1]), limit_s=0):
    print("held", flush=True)
    time.sleep(600)
"""


QUEUE = """
import sys
from pathlib import Path
from ci_bench.host.lock import device_lock
folder, name, order = sys.argv[1:]
with device_lock("gpu-1", folder=Path(folder), limit_s=600, run=f"run {name}", say=lambda line: print(line, flush=True)):
    with open(order, "a") as stream:
        stream.write(f"{name}\\n")
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "locks")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_run_waits_says_for_whom_and_gives_up_in_time(tmp_path, holder):
    said, slept = [], []
    clock = iter(range(100))
    with pytest.raises(  # noqa: SIM117
        DeviceBusy,
        match=rf"gpu-1 \(process {holder.pid}, since .*did not end within 3 s.*run.lock_timeout_s",
    ):
        with device_lock(
            "gpu-1",
            folder=tmp_path / "locks",
            limit_s=3,
            say=said.append,
            clock=lambda: next(clock),
            sleep=slept.append,
        ):
            raise AssertionError("two runs hold one device")
    assert len(said) == 1
    assert (
        f"waiting for gpu-1: another run of ci-bench measures on it (process {holder.pid}"
        in said[0]
    )
    assert 1 <= len(slept) <= 3


def test_waiter_starts_when_holder_ends(tmp_path, holder):
    held = []
    with device_lock(
        "gpu-1",
        folder=tmp_path / "locks",
        limit_s=30,
        say=lambda _: None,
        sleep=lambda _: (holder.send_signal(signal.SIGKILL), holder.wait()),
    ):
        held.append(True)
    assert held


class Runs:
    """Runs that queue for one device, each in a process of its own; what they say and the order in which they held it."""

    def __init__(self, folder):
        self.folder, self.order, self.started = folder, folder / "order", {}
        self.order.touch()

    def start(self, name, *, through="locks"):
        process = subprocess.Popen(
            [sys.executable, "-c", QUEUE, str(self.folder / through), name, str(self.order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started[name] = process
        return process

    def queue(self, name, **where):
        """Started, and waiting: the next to come is behind it."""
        process = self.start(name, **where)
        line = process.stdout.readline()
        until(
            lambda: len([*(self.folder / "locks").glob("*.ticket")]) >= self.waiting(),
            what=f"{name} has no ticket",
        )
        return line

    def waiting(self):
        return sum(process.poll() is None for process in self.started.values()) - 1

    def held(self):
        return self.order.read_text().split()

    def end(self, name):
        self.started[name].communicate("go\n", timeout=60)

    def kill(self, name):
        self.started[name].kill()
        self.started[name].wait()


def until(holds, *, what, limit_s=60):
    ends = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.02)


@pytest.fixture
def runs(tmp_path):
    made = Runs(tmp_path)
    yield made
    for process in made.started.values():
        process.kill()
        process.communicate()


def test_they_are_served_in_the_order_they_came(runs):
    assert runs.start("first").stdout.readline() == "held\n"
    lines = [runs.queue(name) for name in ("second", "third", "fourth")]
    assert "waiting for gpu-1: another run of ci-bench measures on it (process" in lines[0]
    assert ", run first, since" in lines[0]
    assert ["before this one" in line for line in lines] == [False, True, True]
    assert "2 more runs wait before this one" in lines[2]
    for now, following in pairwise(["first", "second", "third", "fourth"]):
        runs.end(now)
        until(lambda name=following: name in runs.held(), what=f"{following} never held it")
    assert runs.held() == ["first", "second", "third", "fourth"]
    runs.end("fourth")
    assert not [*(runs.folder / "locks").glob("*.ticket")], "numbers are given back"


def test_killed_runs_release_the_queue(runs):
    runs.start("first").stdout.readline()
    for name in ("second", "third", "fourth"):
        runs.queue(name)
    runs.kill("third")
    runs.kill("first")
    until(lambda: "second" in runs.held(), what="the next never held it")
    runs.kill("second")
    until(lambda: "fourth" in runs.held(), what="who came behind a dead one never held it")
    assert runs.held() == ["first", "second", "fourth"]


def test_containers_that_see_the_folder_by_other_paths_queue_together(runs):
    (runs.folder / "container").symlink_to(runs.folder)
    runs.start("first").stdout.readline()
    runs.queue("second", through="container/locks")
    runs.queue("third")
    assert runs.held() == ["first"]
    runs.end("first")
    until(lambda: len(runs.held()) == 2, what="nobody came next")
    assert runs.held() == ["first", "second"]


def test_a_wait_is_told_of_again_each_minute_with_the_time_so_far(tmp_path, holder):
    said, now = [], iter(range(0, 10_000, 20))
    with (
        pytest.raises(DeviceBusy),
        device_lock(
            "gpu-1",
            folder=tmp_path / "locks",
            limit_s=200,
            say=said.append,
            clock=lambda: next(now),
            sleep=lambda _: None,
        ),
    ):
        pass
    assert holder.poll() is None
    assert [line.partition(":")[0] for line in said] == [
        "waiting for gpu-1",
        *(f"waiting for gpu-1 for {seconds} s so far" for seconds in (80, 140, 200)),
    ][: len(said)]
    assert len(said) >= 3


def test_a_lock_file_that_was_removed_locks_nothing_and_the_new_one_counts(tmp_path, holder):
    """Who waits on the old file would otherwise hold something that nobody else looks at."""
    locks, slept = tmp_path / "locks", []

    def sleep(_):
        slept.append(True)
        if len(slept) == 1:
            (locks / "gpu-1.lock").unlink()
            holder.kill()
            holder.wait()

    with device_lock("gpu-1", folder=locks, limit_s=30, say=lambda _: None, sleep=sleep):
        assert (locks / "gpu-1.lock").exists()
        with pytest.raises(DeviceBusy), device_lock("gpu-1", folder=locks, limit_s=0):
            pass


@pytest.mark.parametrize("name", ["a\nb", "x" * 500, "::error::", "\x1b[2J"])
def test_what_a_run_calls_itself_cannot_change_a_message(tmp_path, name):
    with (  # noqa: SIM117
        device_lock("gpu-1", folder=tmp_path, limit_s=0, run=name),
        pytest.raises(DeviceBusy) as busy,
    ):
        with device_lock("gpu-1", folder=tmp_path, limit_s=0):
            pass
    assert f"process {os.getpid()}, since" in str(busy.value)


def test_another_device_is_not_waited_for(tmp_path, holder):
    assert holder.poll() is None
    with device_lock("gpu-2", folder=tmp_path / "locks", limit_s=0):
        pass


def test_what_a_holder_starts_does_not_hold_it_for_longer(tmp_path):
    with device_lock("cpu", folder=tmp_path, limit_s=0):
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    with device_lock("cpu", folder=tmp_path, limit_s=0):
        assert child.poll() is None, "it lives, and holds nothing"
    child.kill()
    child.wait()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[" * 100_000, b'{"pid": "\\u001b[31m", "since": "x"}', b'{"pid": 1}'],
)
def test_who_holds_it_is_not_believed(tmp_path, holder, content):
    (tmp_path / "locks" / "gpu-1.lock").write_bytes(content)
    with (
        pytest.raises(DeviceBusy, match="it does not say which"),
        device_lock("gpu-1", folder=tmp_path / "locks", limit_s=0),
    ):
        pass
    assert holder.poll() is None


def test_missing_lock_is_reported(tmp_path):
    (tmp_path / "file").touch()
    said = []
    with device_lock("cpu", folder=tmp_path / "file" / "locks", limit_s=0, say=said.append):
        pass
    assert ["no lock for cpu can be made" in line for line in said] == [True]


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "cpu.lock").symlink_to(tmp_path / "victim")
    said = []
    with device_lock("cpu", folder=tmp_path / "locks", limit_s=0, say=said.append):
        pass
    assert said
    assert not (tmp_path / "victim").exists()


def test_all_users_can_hold_a_lock_and_none_can_remove_anothers(tmp_path):
    before = os.umask(0o077)
    try:
        with device_lock("cpu", folder=tmp_path / "locks", limit_s=0):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777
    assert (tmp_path / "locks" / "cpu.lock").stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize(
    ("identity", "condition", "key"),
    [
        ({"device": "cuda", "gpu": "NVIDIA H200"}, {"gpu_uuid": "GPU-12-ab"}, "gpu-12-ab"),
        ({"device": "cuda", "gpu": "NVIDIA H200"}, {"gpu_uuid": "12-ab"}, "gpu-12-ab"),
        ({"device": "cuda", "gpu": "NVIDIA H200"}, {}, "gpu-NVIDIA_H200"),
        ({"device": "cuda", "gpu": "../../x"}, {}, "gpu-_x"),
        ({"device": "cpu"}, {}, "cpu-0000-1"),
    ],
)
def test_what_tells_devices_apart(tmp_path, identity, condition, key):
    (tmp_path / "boot_id").write_text("0000-1\n")
    environment = Environment(identity=identity, condition=condition)
    assert device_key(environment, boot_id=tmp_path / "boot_id") == key


def test_a_run_waits_for_another_and_leaves_its_budget_untouched(place):
    locks = place.folder.parent / "locks"
    place.configure({"name": "hangs", "fault": "hang"}, stage_timeout_s=600)
    first = place.start("run", "--output", place.folder / "first", CI_BENCH_LOCKS=str(locks))
    deadline = time.monotonic() + 60
    while not list(locks.glob("*.lock")) and time.monotonic() < deadline:
        time.sleep(0.05)
    place.configure({"name": "one"}, lock_timeout_s=0)
    code, _, err = place.run("run", "--output", place.output, CI_BENCH_LOCKS=str(locks))
    assert (code, "another run of ci-bench measures on cpu-" in err) == (
        ExitCode.MEASURING_FAILED,
        True,
    ), err
    place.configure({"name": "one"}, lock_timeout_s=60, budget_s=6)
    second = place.start("run", "--output", place.output, CI_BENCH_LOCKS=str(locks))
    assert any("waiting for cpu-" in line for line in second.stderr)
    time.sleep(6.5)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
