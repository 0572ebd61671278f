"""Launches of the fake suite: what is measured, in which order, with which limits, and what is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_suite import FIXTURES, QUICK, FakeRun, fake_environ
from fake_time import StageClock

from ci_bench.errors import LauncherFailed, MeasuringFailed
from ci_bench.processes import launch as launch_module
from ci_bench.processes.launch import Launcher
from ci_bench.processes.protocol import Task
from ci_bench.records.results import Status

PARENT = """
import sys
from pathlib import Path
from fake_suite import FakeRun
FakeRun(Path(sys.argv[1])).measure({"name": "hangs", "fault": "hang_with_child"})
"""


def _probe_task(folder: Path) -> Task:
    return Task(launch=0, device="cpu", options=QUICK, scratch=str(folder))


def test_every_arm_is_sampled_in_every_launch(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=2, blocks=3))
    rows = run.measure(
        {
            "name": "two",
            "arms": ["plain", "other"],
            "stages": ["prepare", "verify", "memory", "time"],
        }
    )
    metrics = {(metric.name, metric.arm): metric for metric in rows["two"].metrics}
    assert rows["two"].status is Status.OK
    assert set(metrics) == {
        ("step_time", "plain"), ("step_time", "other"), ("compile_warm", "other"),
        *((name, arm) for name in ("peak_anonymous", "file_backed", "memory_growth", "memory_kept") for arm in ("plain", "other")),
    }  # fmt: skip
    for arm in ("plain", "other"):
        taken = metrics["step_time", arm].launches
        assert [(one.launch, one.blocks) for one in taken] == [
            (0, (0, 0, 1, 1, 2, 2)),
            (1, (0, 0, 1, 1, 2, 2)),
        ]
        assert all(value >= 0.001 for one in taken for value in one.values)
        assert len(metrics["peak_anonymous", arm].launches) == 2
    assert 0.01 < metrics["compile_warm", "other"].launches[0].values[0] < 0.5
    assert {check.name for check in rows["two"].checks} == {
        "prepared",
        "steady",
        "ran",
        "witnessed",
    }


def test_the_display_is_told_of_each_stage_and_its_end(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.measure({"name": "one", "stages": ["verify", "time"]}, {"name": "broken", "fault": "error"})
    ended = [
        (event.stage, event.ended, event.done, event.total) for event in run.events if event.ended
    ]
    assert ended == [("verify", "ok", 1, 3), ("time", "ok", 2, 3), ("time", "failed", 3, 3)]
    assert any(event.progress for event in run.events)


def test_a_worker_without_torch_in_its_plan_never_imports_it(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, environ=fake_environ(PYTHONPROFILEIMPORTTIME="1"))
    run.measure({"name": "one", "stages": ["memory", "time"]})
    lines = [line for log in tmp_path.rglob("*.log") for line in log.read_text().splitlines()]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "ci_bench.processes.protocol" in imported
    assert imported.isdisjoint({"torch", "transformers", "scipy"})
    assert (
        run.environments[-1].identity["device"],
        "threads" in run.environments[-1].identity,
    ) == ("cpu", False)


def test_preparing_is_online_only_where_a_case_needs_it_and_measuring_never_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    stages = ["prepare", "verify"]
    rows = FakeRun(tmp_path).measure(
        {"name": "local", "stages": stages}, {"name": "hub", "stages": stages, "network": True}
    )
    assert {name: row.checks[0].detail for name, row in rows.items()} == {
        "local": "1",
        "hub": "online",
    }
    assert (tmp_path / "head" / "online").exists()


def test_a_spent_budget_leaves_rows_that_say_so(tmp_path: Path) -> None:
    clock = StageClock(lambda _: 3.0)
    run = FakeRun(tmp_path, replace(QUICK, launches=3, budget_s=2.5), events=clock, clock=clock)
    rows = run.measure({"name": "first"}, {"name": "second"}, {"name": "third"})
    assert {name: row.status for name, row in rows.items()} == {
        "first": Status.OK, "second": Status.NOT_RUN, "third": Status.NOT_RUN,
    }  # fmt: skip
    for name in ("second", "third"):
        assert (
            rows[name].failure.reason
            == "the budget of 2.5 s was spent before this stage; raise run.budget_s"
        )
        assert (rows[name].failure.stage, rows[name].duration_s) == ("time", None)
    assert [path.name for path in (tmp_path / "head").glob("launch-*")] == ["launch-0"]


def test_a_case_measured_in_fewer_launches_than_planned_is_a_result(tmp_path: Path) -> None:
    clock = StageClock(lambda _: 2.0)
    run = FakeRun(tmp_path, replace(QUICK, launches=3, budget_s=2.5), events=clock, clock=clock)
    row = run.measure({"name": "only"})["only"]
    assert (row.status, [len(metric.launches) for metric in row.metrics]) == (Status.OK, [1])


def test_a_failure_in_a_later_launch_keeps_the_evidence_of_the_first(
    tmp_path: Path, monkeypatch
) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=2))
    original = Launcher.begin

    def begin_or_time_out(self, task, *, timeout_s, on_answer):
        return original(
            self, task, timeout_s=0.0 if task.launch else timeout_s, on_answer=on_answer
        )

    monkeypatch.setattr(Launcher, "begin", begin_or_time_out)
    row = run.measure({"name": "one"})["one"]
    assert (row.status, [len(metric.launches) for metric in row.metrics]) == (Status.TIMEOUT, [1])


def test_the_ledger_is_complete_whenever_it_is_recorded(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=2))
    run.measure({"name": "first"}, {"name": "second"})
    assert all(list(ledger.rows) == ["fake/first", "fake/second"] for ledger in run.recorded)
    assert {row.status for row in run.recorded[0].rows.values()} == {Status.NOT_RUN}
    assert {row.status for row in run.recorded[-1].rows.values()} == {Status.OK}


def test_a_machine_that_lacks_the_device_is_told_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(MeasuringFailed, match="NoSuchDevice: device 'cuda:7' was asked for"):
        FakeRun(tmp_path, replace(QUICK, device="cuda:7")).measure({"name": "one"})


def test_a_module_that_cannot_be_preloaded_is_told_with_the_servers_last_words(
    tmp_path: Path,
) -> None:
    with (
        pytest.raises(LauncherFailed, match="No module named 'no_such_module'"),
        _launcher(tmp_path, "no_such_module"),
    ):
        pass


def test_a_suites_own_module_that_cannot_be_imported_is_the_business_of_its_workers() -> None:
    code = (
        "from ci_bench.processes import forkserver; forkserver._import(('ci_bench.suites.none', 'json'));"
        "import sys; print('json' in sys.modules); forkserver._import(('ci_bench.none',))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "True\n"
    assert "No module named 'ci_bench.none'" in ended.stderr


TOUCHES_THE_GPU = """
import os, pathlib, sys, types
with open(pathlib.Path(__file__).with_name("imports"), "a") as imports:
    imports.write("once\\n")
SERVER = os.getpid()
sys.modules["torch"] = types.SimpleNamespace(
    cuda=types.SimpleNamespace(
        is_initialized=lambda: {context}, _is_in_bad_fork=lambda: {polled} and os.getpid() != SERVER
    )
)
"""


@pytest.mark.parametrize(
    ("context", "polled", "touched"),
    [(True, True, True), (False, True, True), (False, False, False)],
)
def test_where_a_preloaded_module_touches_the_gpu_workers_are_forked_without_it(
    tmp_path: Path, context, polled, touched
) -> None:
    """A fork of a process that has a CUDA context, or asked the CUDA runtime for devices, has no GPU."""
    code = TOUCHES_THE_GPU.replace("{context}", str(context)).replace("{polled}", str(polled))
    (tmp_path / "reaches_out.py").write_text(code)
    environ = fake_environ(PYTHONPATH=str(tmp_path))
    with Launcher(
        preload=("reaches_out",), environ=environ, folder=tmp_path / "launch"
    ) as launcher:
        assert launcher.has_touched_gpu is touched
        command = Path(f"/proc/{launcher._server.pid}/cmdline").read_text().split("\0")
        worker = launcher.run(_probe_task(tmp_path), timeout_s=20, on_answer=lambda _: None)
    assert ("reaches_out" in command) is not touched
    assert (tmp_path / "imports").read_text() == "once\n"
    assert (
        worker.answers if touched else worker.answers[0].fault
    )  # what stands for torch here is none


def test_what_is_imported_before_forking_is_frozen_and_not_looked_through() -> None:
    code = (
        "import gc; from ci_bench.processes import forkserver; before = gc.get_stats();"
        "forkserver._import(('json',)); now = gc.get_stats();"
        "print(gc.get_freeze_count() > 1000, gc.isenabled(), now == before)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "True", "True"]


@pytest.mark.parametrize(
    ("said", "told"), [({}, "1"), ({"PYTORCH_NVML_BASED_CUDA_CHECK": "0"}, "0")]
)
def test_looking_for_a_gpu_while_importing_asks_the_driver_and_makes_no_context(
    said, told, tmp_path: Path
) -> None:
    with Launcher(preload=(), environ=fake_environ(**said), folder=tmp_path) as launcher:
        environ = Path(f"/proc/{launcher._server.pid}/environ").read_text().split("\0")
    assert f"PYTORCH_NVML_BASED_CUDA_CHECK={told}" in environ


def test_each_launch_has_its_own_hash_seed(tmp_path: Path) -> None:
    seeds = set()
    for name in ("one", "two"):
        with Launcher(preload=(), environ=fake_environ(), folder=tmp_path / name) as launcher:
            environ = Path(f"/proc/{launcher._server.pid}/environ").read_text().split("\0")
        seeds |= {text for text in environ if text.startswith("PYTHONHASHSEED=")}
    assert len(seeds) == 2


def test_an_end_that_comes_together_with_the_start_is_not_missed(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(launch_module, "SERVER", "fake_suite_server")
    with _launcher(tmp_path) as launcher:
        ended = launcher.run(_probe_task(tmp_path), timeout_s=5, on_answer=lambda _: None)
    assert (ended.timed_out, ended.code, ended.answers[0].fault.message) == (False, 1, "quick")
    assert ended.duration_s < 4


def test_what_a_worker_does_before_its_start_is_told_counts_as_its_time(
    tmp_path: Path, monkeypatch
) -> None:
    told_at_once = Launcher.expect

    def told_late(self: Launcher, word: str, *rest: float, **how: str) -> int:
        said = told_at_once(self, word, *rest, **how)
        time.sleep(0.3 * (word == "started"))
        return said

    monkeypatch.setattr(Launcher, "expect", told_late)
    with _launcher(tmp_path) as launcher:
        ended = launcher.run(_probe_task(tmp_path), timeout_s=5, on_answer=lambda _: None)
    assert ended.duration_s >= 0.3


def test_an_error_of_the_display_is_its_own_and_ends_the_worker(tmp_path: Path) -> None:
    def hang_up(_: object) -> None:
        raise BrokenPipeError

    with _launcher(tmp_path) as launcher, pytest.raises(BrokenPipeError):
        launcher.run(_probe_task(tmp_path), timeout_s=20, on_answer=hang_up)


def test_launches_leave_no_descriptor_and_no_process_and_their_end_is_not_slept_for(
    tmp_path: Path, monkeypatch
) -> None:
    before = _open_descriptors()
    with _launcher(tmp_path) as launcher:
        for _ in range(5):
            launcher.run(_probe_task(tmp_path), timeout_s=20, on_answer=lambda _: None)
        server = launcher._server.pid
        monkeypatch.setattr(
            time, "sleep", lambda _: pytest.fail("the server's end was looked for again and again")
        )
    launcher.close()
    assert _open_descriptors() == before
    assert not Path(f"/proc/{server}").exists()


def test_a_server_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    before = _open_descriptors()
    with pytest.raises(LauncherFailed, match="No such file"):
        _launcher(tmp_path, python=Path("/no/such/python"))
    assert _open_descriptors() == before


@pytest.mark.parametrize("victim", ["parent", "server"])
def test_no_worker_survives_the_process_above_it(tmp_path: Path, victim: str) -> None:
    environ = {**os.environ, **fake_environ(FAKE_NOTES=str(tmp_path / "notes"))}
    family: list[int] = []
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], env=environ, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until(
            lambda: (
                (tmp_path / "notes").exists() and (tmp_path / "notes").read_text().endswith("\n")
            )
        )
        family = _descendants(parent.pid)
        assert len(family) == 3  # server, worker, and what the worker started
        if victim == "server":
            os.kill(parent.pid, signal.SIGSTOP)  # so that it is not the parent who cleans up
        os.kill(parent.pid if victim == "parent" else family[0], signal.SIGKILL)
        _wait_until(lambda: not [pid for pid in family[:2] if _is_alive(pid)])
        assert victim == "server" or not _is_alive(family[2])
    finally:
        parent.kill()
        parent.wait()
        for pid in family:
            if _is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_paused_server_does_nothing_until_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(0.2)")
    environ = fake_environ(PYTHONPATH=os.pathsep.join([str(FIXTURES), str(tmp_path)]))
    launcher = Launcher(preload=("slow",), environ=environ, folder=tmp_path / "launch")
    try:
        launcher.pause()
        assert launcher.is_loading()
        _wait_until(lambda: _state(launcher._server.pid) == "T")
        time.sleep(0.4)
        assert launcher.is_loading()
        launcher.go_on()
        _wait_until(lambda: not launcher.is_loading())
        launcher.pause()
        _wait_until(lambda: _state(launcher._server.pid) == "T")
        with launcher:  # goes on by itself
            assert (
                launcher.run(_probe_task(tmp_path), timeout_s=20, on_answer=lambda _: None).code
                == 0
            )
            assert not launcher.is_loading()
    finally:
        launcher.close()
    assert not _is_alive(launcher._server.pid)


def test_a_server_that_is_not_needed_ends_at_once_paused_or_not(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    environ = fake_environ(PYTHONPATH=os.pathsep.join([str(FIXTURES), str(tmp_path)]))
    for is_paused in (True, False):
        launcher = Launcher(preload=("slow",), environ=environ, folder=tmp_path / "launch")
        begun = time.monotonic()
        if is_paused:
            launcher.pause()
        launcher.close()
        assert time.monotonic() - begun < launch_module.GRACE_S
        assert not _is_alive(launcher._server.pid)


def test_a_server_that_somebody_ended_is_not_paused_but_told(tmp_path: Path) -> None:
    launcher = _launcher(tmp_path, "no_such_module")
    launcher._server.wait()
    launcher.pause()  # its word is there; that it is gone shows once it is needed
    with pytest.raises(LauncherFailed, match="No module named 'no_such_module'"), launcher:
        pass
    launcher = _launcher(tmp_path)
    os.kill(launcher._server.pid, signal.SIGKILL)
    with pytest.raises(LauncherFailed, match="stopped answering"):
        launcher.pause()
    launcher.close()


def test_the_end_of_a_launch_leaves_the_server_of_the_next_alone(
    tmp_path: Path, monkeypatch
) -> None:
    spared = []
    monkeypatch.setattr(launch_module, "end_all", lambda _user, sessions: spared.append(sessions))
    first, second = _launcher(tmp_path / "one"), _launcher(tmp_path / "two")
    first.successor = second
    first.close()
    second.close()
    second.close()
    assert spared == [(second._server.pid,), ()]
    third, fourth = _launcher(tmp_path / "three"), _launcher(tmp_path / "four")
    third.successor = fourth
    fourth.close()
    third.close()
    assert spared[2:] == [(), ()], "whose number may be another's by now"


STARTS_AHEAD = """
import os, sys, time
from pathlib import Path
from fake_suite import fake_environ
from ci_bench.processes.launch import Launcher
folder = Path(sys.argv[1])
launcher = Launcher(preload=(), environ=fake_environ(), folder=folder / "launch")
launcher.pause()
(folder / "server").write_text(f"{launcher._server.pid} ")
time.sleep(600)
"""


def test_a_paused_server_does_not_survive_the_process_that_paused_it(tmp_path: Path) -> None:
    environ, told = {**os.environ, **fake_environ()}, tmp_path / "server"
    parent = subprocess.Popen([sys.executable, "-c", STARTS_AHEAD, str(tmp_path)], env=environ)
    try:
        _wait_until(lambda: told.exists() and told.read_text().endswith(" "))
        server = int(told.read_text())
        _wait_until(lambda: _state(server) == "T")
        parent.kill()
        _wait_until(lambda: not _is_alive(server))
    finally:
        parent.kill()
        parent.wait()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _launcher(folder: Path, *preload: str, **more: Path) -> Launcher:
    environ = fake_environ(PYTHONPATH=str(FIXTURES))
    return Launcher(preload=preload, environ=environ, folder=folder / "launch", **more)


def _open_descriptors() -> set[str]:
    """By number and target, so that a number that is used again does not hide a leak."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            found.add(f"{entry.name} {entry.readlink()}")
    return found


def _descendants(pid: int) -> list[int]:
    """Child, grandchild and so on, each being the only one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.read_text().rpartition(")")[2].split()[1])] = int(stat.parent.name)
        except OSError:
            continue
    line = []
    while pid in parents:
        pid = parents[pid]
        line.append(pid)
    return line


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_until(is_so, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
