"""Servers that are started before their launch: when they load, what becomes of them, and that nothing is timed meanwhile."""

import os
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_suite import QUICK, FakeRun, FakeSuite, fake_environ, fake_plan
from simulated_gate import FOLDER, Script

from ci_bench.checkouts.sides import Side
from ci_bench.errors import LauncherFailed
from ci_bench.host import headroom
from ci_bench.processes.launch import Launcher
from ci_bench.records.config import Sampling
from ci_bench.records.results import Environment, Phase, SideName, Spent
from ci_bench.runner import servers as module
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.servers import Servers
from processes import is_alive

BASE, HEAD = SideName.BASE, SideName.HEAD
FREE_BYTES = 1 << 40
"""Of which the servers of both sides may take half."""


def planned(*modules, worker="fake_worker"):
    return [(SimpleNamespace(preload_of=lambda _: modules, worker=worker), None)]


PLAN, LESS, MORE = planned("torch", "fake"), planned("torch"), planned("torch", "other")


class FakeLauncher:
    """Loads until it is told that it is done."""

    has_touched_gpu = False

    def __init__(self, log, side, name, preload, addresses):
        self.log, self.who, self.preload, self.addresses = log, f"{side} {name}", preload, addresses
        self.loads, self.paused, self.closed, self.broken, self.successor = (
            True,
            False,
            False,
            False,
            None,
        )
        self.is_let_go = False
        self.say("start")

    def say(self, what):
        self.log.append(f"{what} {self.who}")

    def is_loading(self):
        return self.loads

    def pause(self):
        if self.broken:
            raise LauncherFailed("it is gone")
        if not self.paused:
            self.say("pause")
        self.paused = True

    def go_on(self):
        if self.paused:
            self.say("go on")
        self.paused = False

    def wait_until_ready(self):
        if self.broken:
            self.close()
            raise LauncherFailed("it is gone")
        self.go_on()
        self.loads = False

    def __enter__(self):
        self.wait_until_ready()
        return self

    def __exit__(self, *_):
        self.close()

    def let_go(self):
        self.is_let_go = True

    def close(self):
        if not self.closed:
            self.say("end")
        self.closed = True

    def resident_bytes(self):
        return FREE_BYTES // 4


class FakeSide:
    """Starts fake launchers."""

    def __init__(self, log, name, device):
        self.log, self.side = log, SimpleNamespace(name=name, failure=None)
        self.environment = Environment(identity={"device": device}, condition={})
        self.ledger = Ledger.open([], reproduce={})
        self.refuses = False

    def launcher(self, name, preload, *, offline, addresses):
        assert offline
        if self.refuses:
            raise LauncherFailed("no process can be started")
        return FakeLauncher(self.log, self.side.name, name, preload, addresses)

    def spending(self, _phase):
        return nullcontext()


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(headroom, "cores", lambda: 2)
    monkeypatch.setattr(headroom, "available_bytes", lambda: FREE_BYTES)


def opened(log, *, device="cuda", options=QUICK, plan=PLAN):
    """A launch that another one may follow."""
    servers = Servers(
        runs=(FakeSide(log, BASE, device), FakeSide(log, HEAD, device)), options=options
    )
    stack = ExitStack()
    servers.open(stack, "one", plan)
    log.clear()
    servers.foresee("two", plan)
    return servers, stack


def test_servers_of_both_sides_end_at_the_same_time(monkeypatch):
    servers, stack = opened([])
    seen = []
    monkeypatch.setattr(
        FakeLauncher,
        "close",
        lambda _: seen.append([one.is_let_go for one in servers.current.values()]),
    )
    stack.close()
    assert seen == [[True, True], [True, True]]


def test_servers_of_both_sides_have_the_same_addresses_and_each_launch_another():
    servers, _ = opened([])
    first = {one.addresses for one in servers.current.values()}
    window(servers), window(servers)
    ahead = {spare.launcher.addresses for spare in servers.spares.values()}
    other, _ = opened([])
    assert len(servers.spares) == len(servers.current) == 2
    assert (len(first), len(ahead), len(first | ahead)) == (1, 1, 2)
    assert {one.addresses for one in other.current.values()} != first, "each run draws its own"


def window(servers):
    """Loads beside what nobody times; returns the processes that do."""
    with servers.beside():
        return sorted(
            spare.launcher.who for spare in servers.spares.values() if not spare.launcher.paused
        )


def test_servers_of_the_next_launch_load_one_after_the_other_where_one_core_is_left_and_stop_with_the_window():
    servers, _ = opened(log := [])
    assert window(servers) == ["base two"]
    assert window(servers) == ["head two"]
    assert log == ["start base two", "pause base two", "start head two", "pause head two"]
    servers.spares[BASE].launcher.loads = False
    assert window(servers) == ["head two"]
    assert window(servers) == ["head two"]
    assert [spare.launcher.paused for spare in servers.spares.values()] == [True, True]


def test_where_one_core_is_left_none_is_much_further_than_the_other(monkeypatch):
    """They have the rest of it to load at the same time, while the card waits for the last."""
    now, taken = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    servers, _ = opened([])
    for lasts_s in (3.0, 0.5, 3.0, 0.5, 3.0, 0.5):
        with servers.beside():
            taken += [
                spare.launcher.who for spare in servers.spares.values() if not spare.launcher.paused
            ]
            now[0] += lasts_s
    assert taken == ["base two", "head two", "head two", "base two", "base two", "head two"]
    assert {name: spare.loaded_s for name, spare in servers.spares.items()} == {
        BASE: 6.5,
        HEAD: 4.0,
    }


def test_they_load_at_the_same_time_where_cores_are_left_for_both(monkeypatch):
    monkeypatch.setattr(headroom, "cores", lambda: 3)
    servers, _ = opened([])
    assert window(servers) == ["base two", "head two"]


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ("the CPU", {"device": "cpu"}),
        ("nobody looked", {"device": None}),
        ("off", {"options": replace(QUICK, overlap=False)}),
        ("nothing to import", {"plan": planned()}),
        ("no torch", {"plan": planned("json")}),
    ],
)
def test_none_is_started_ahead(why, how):
    servers, _ = opened(log := [], **how)
    assert (window(servers), log) == ([], []), why


@pytest.mark.parametrize(
    ("what", "to"), [("cores", 1), ("available_bytes", FREE_BYTES - 8), ("available_bytes", None)]
)
def test_none_is_started_where_there_is_no_room(monkeypatch, what, to):
    monkeypatch.setattr(headroom, what, lambda: to)
    servers, _ = opened(log := [])
    assert (window(servers), log) == ([], [])


def test_none_is_started_where_imports_touch_the_gpu(monkeypatch):
    monkeypatch.setattr(FakeLauncher, "has_touched_gpu", True)
    servers, _ = opened(log := [])
    assert (window(servers), log) == ([], [])


def test_the_end_of_a_launch_is_told_what_to_leave_alone():
    servers, _ = opened([])
    assert servers.current[BASE].successor is None
    window(servers)
    assert servers.current[BASE].successor is servers.spares[BASE].launcher
    assert servers.current[HEAD].successor is None


@pytest.mark.parametrize("plan", [PLAN, LESS])
def test_the_next_launch_uses_them_and_starts_what_is_missing(plan):
    servers, stack = opened(log := [])
    window(servers)
    servers.go_on()
    stack.close()
    (spare,) = [one.launcher for one in servers.spares.values()]
    log.clear()
    with ExitStack() as then:
        current = servers.open(then, "two", plan)
        assert current[BASE] is spare
        assert log == ["start head two"]
        assert (servers.spares, servers.foreseen, spare.closed) == ({}, None, False)
    assert log[1:] == ["end head two", "end base two"]


def test_for_how_long_a_server_loaded_beside_other_work_is_recorded(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    servers, stack = opened([])
    for _ in range(3):
        with servers.beside():
            now[0] += 2.0
        now[0] += 100.0
    stack.close()
    servers.open(ExitStack(), "two", PLAN)
    assert [one.ledger.spent for one in servers.runs] == [
        (Spent(stage="ahead", phase=Phase.START, seconds=seconds),) for seconds in (4.0, 2.0)
    ]


@pytest.mark.parametrize(("name", "plan"), [("three", PLAN), ("two", MORE), ("explain", PLAN)])
def test_what_another_launch_cannot_use_is_ended_before_it_starts(name, plan):
    servers, stack = opened(log := [])
    window(servers)
    stack.close()
    log.clear()
    servers.open(ExitStack(), name, plan)
    assert log == ["end base two", f"start base {name}", f"start head {name}"]


def test_what_nobody_asks_for_is_ended():
    servers, stack = opened(log := [])
    window(servers)
    stack.close()
    servers.close()
    servers.close()
    assert log[-1] == "end base two"
    assert log.count("end base two") == 1
    assert (servers.spares, window(servers)) == ({}, [])


def test_one_that_somebody_ended_is_let_be_until_its_launch_which_starts_another():
    """Its end would end all processes of its user, also those that are measured."""
    servers, stack = opened(log := [])
    with servers.beside():
        (spare,) = servers.spares.values()
        spare.launcher.broken = True
    assert spare.failed
    assert window(servers) == ["base two", "head two"]
    assert "end base two" not in log
    servers.go_on()
    stack.close()
    log.clear()
    current = servers.open(ExitStack(), "two", PLAN)
    assert log[:2] == ["end base two", "start base two"]
    assert current[BASE] is not spare.launcher


def test_where_no_process_can_be_started_ahead_the_launch_goes_on():
    servers, _ = opened(log := [])
    servers.runs[0].refuses = True
    assert (window(servers), window(servers), log) == ([], [], [])


@pytest.mark.parametrize(
    ("plan", "modules"),
    [
        (planned("torch", "fake") + planned("torch"), ("torch", "fake", *module.TIMING)),
        (
            planned("torch", worker="ci_bench.suites.own.run"),
            ("torch", "ci_bench.suites.own.run", *module.TIMING),
        ),
        (planned("json", worker="ci_bench.suites.command.run"), ("json",)),
    ],
)
def test_what_workers_need_of_ours_is_imported_once_where_they_compute_with_torch(plan, modules):
    assert module.preload_of(plan) == modules


@pytest.mark.engine
def test_a_worker_that_times_imports_nothing_of_ours_and_nothing_large():
    pytest.importorskip("torch")
    code = """
import importlib, sys
from ci_bench.runner.servers import preload_of
from ci_bench.suites.functions.plan import SUITE
modules = preload_of([(SUITE, None)])
for module in ("ci_bench.worker.worker", *modules):
    importlib.import_module(module)
before = {*sys.modules}
importlib.import_module(SUITE.worker)
importlib.import_module("ci_bench.processes.noted").current()
importlib.import_module("ci_bench.worker.referee")
fence = importlib.import_module("ci_bench.worker.fence")
fence.is_steady([1.0] * fence.WINDOWS * fence.WINDOW_SAMPLES)
print(sorted({*sys.modules} - before), "scipy.special" in sys.modules)
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == ["[]", "False"]


class Heavy(FakeSuite):
    """Takes a while to import."""

    preload = ("torch",)


@pytest.fixture
def ends(monkeypatch):
    """Of each server, as its launch ends: its folder, and that of the server after it, where it is there by then."""
    found, close = [], Launcher.close

    def look_and_close(self):
        after = self.successor
        if not self._is_closed:
            found.append(
                (
                    self._folder.name,
                    after._folder.name if after and is_alive(after._server.pid) else None,
                )
            )
        close(self)

    monkeypatch.setattr(Launcher, "close", look_and_close)
    return found


def measured(folder: Path, device: str):
    """Two launches on a simulated card, or beside it; returns for how long servers loaded beside other work (s)."""
    pytest.importorskip("torch")
    environ = fake_environ(SIMULATED_CARD=str(Script().write(folder / "card.json")))
    environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(FOLDER)])
    run = FakeRun(
        folder,
        replace(QUICK, device=device, threads=1, launches=2, sampling=Sampling.FIXED),
        environ=environ,
    )
    plan = [(Heavy(), case) for _, case in fake_plan({"name": "one"})]
    ledger = Ledger.open(
        [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
    )
    (found,) = run.measure_sides(plan, ledger, (Side(name=HEAD, environ=environ),)).values()
    (row,) = found[1].rows.values()
    assert row.status == "ok", row.failure
    return sum(one.seconds for one in found[1].spent if one.stage == "ahead")


@pytest.mark.engine
def test_on_a_card_the_server_of_a_launch_is_there_before_the_launch_before_it_ended(
    tmp_path, ends
):
    assert measured(tmp_path, "cuda") > 0
    assert ends == [("launch-0", "launch-1"), ("launch-1", None)]


@pytest.mark.engine
def test_on_the_cpu_a_server_is_started_when_the_launch_before_it_has_ended(tmp_path, ends):
    assert measured(tmp_path, "cpu") == 0
    assert ends == [("launch-0", None), ("launch-1", None)]
