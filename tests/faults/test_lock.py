"""One run at a time on a device: the second waits, says so, and gives up in time; a lock never outlives its holder."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ci_bench.engine.machine.lock import device_key, device_lock
from ci_bench.errors import DeviceBusy, ExitCode
from ci_bench.records.results import Environment

HOLD = """
import sys, time
from pathlib import Path
from ci_bench.engine.machine.lock import device_lock
with device_lock("gpu-1", folder=Path(sys.argv[1]), limit_s=0):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "locks")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_run_waits_says_for_whom_and_gives_up_in_time(tmp_path, holder):
    said, slept = [], []
    clock = iter(range(100))
    with pytest.raises(DeviceBusy, match=rf"gpu-1 \(process {holder.pid}, since .*did not end within 3 s.*run.lock_timeout_s"):  # noqa: SIM117
        with device_lock(
            "gpu-1", folder=tmp_path / "locks", limit_s=3, say=said.append, clock=lambda: next(clock), sleep=slept.append
        ):
            raise AssertionError("two runs hold one device")
    assert len(said) == 1
    assert f"waiting for gpu-1: another run of ci-bench measures on it (process {holder.pid}" in said[0]
    assert 1 <= len(slept) <= 3


def test_it_goes_on_as_soon_as_the_holder_is_gone_however_it_went(tmp_path, holder):
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


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b'{"pid": "\\u001b[31m", "since": "x"}', b'{"pid": 1}'])
def test_who_holds_it_is_not_believed(tmp_path, holder, content):
    (tmp_path / "locks" / "gpu-1.lock").write_bytes(content)
    with pytest.raises(DeviceBusy, match="it does not say which"), device_lock("gpu-1", folder=tmp_path / "locks", limit_s=0):
        pass
    assert holder.poll() is None


def test_where_no_lock_can_be_made_measuring_goes_on_and_says_so(tmp_path):
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
    assert (code, "another run of ci-bench measures on cpu-" in err) == (ExitCode.MEASURING_FAILED, True), err
    place.configure({"name": "one"}, lock_timeout_s=60, budget_s=2.5)
    second = place.start("run", "--output", place.output, CI_BENCH_LOCKS=str(locks))
    assert any("waiting for cpu-" in line for line in second.stderr)
    time.sleep(3)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
