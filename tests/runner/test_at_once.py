"""Stages that nobody times run on base and head at once, where the machine has room for both."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_suite import QUICK, FakeRun, fake_environ

from ci_bench.host import headroom
from ci_bench.records.metrics import COMPILE_WARM, STEP_TIME
from ci_bench.records.results import Environment, Phase, SideName, Status
from ci_bench.runner.side_run import may_get_ready_at_once, may_run_at_once
from ci_bench.suites.contract import Cache, Stage, StageKind

ROOMY = replace(QUICK, threads=1)
VERIFIED = {"name": "one", "stages": ["verify", "time"], "at": "verify"}


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(headroom, "cores", lambda: 2)


def measure(folder: Path, options, *, meet_s="3", **case):
    notes = folder / "notes"
    notes.touch()
    run = FakeRun(folder, options, environ=fake_environ(FAKE_NOTES=str(notes), FAKE_MEET_S=meet_s))
    return {name: rows["one"] for name, rows in run.measure_both({**VERIFIED, **case}).items()}, run


def met(rows):
    return [
        next(check.detail for check in row.checks if check.name == "met") for row in rows.values()
    ]


def test_verification_of_both_sides_goes_on_at_the_same_time(tmp_path: Path) -> None:
    rows, run = measure(tmp_path, ROOMY, fault="meet")
    assert met(rows) == ["another", "another"]
    (ended,) = [event for event in run.events if event.stage == "verify" and event.ended]
    assert (ended.sides, ended.done, ended.ended) == ((SideName.BASE, SideName.HEAD), 2, "ok")
    assert run.events[-1].done == run.events[-1].total


@pytest.mark.parametrize(
    "options",
    [replace(ROOMY, overlap=False), replace(ROOMY, threads=2), QUICK],
    ids=["off", "threads", "all"],
)
def test_one_side_after_the_other_where_that_is_asked_for_or_cores_are_few(
    tmp_path: Path, options
) -> None:
    rows, _ = measure(tmp_path, options, meet_s="0.5", fault="meet")
    assert met(rows) == ["nobody", "nobody"]


STEPS = frozenset({(STEP_TIME.name, "fast")})


def ready(folder: Path, options=ROOMY, *, meet_s="2"):
    """What the two launches of a case brought, and whom each opening arm met."""
    (folder / "notes").touch()
    run = FakeRun(
        folder,
        replace(options, max_launches=2),
        environ=fake_environ(FAKE_NOTES=str(folder / "notes"), FAKE_MEET_S=meet_s),
        still_open=lambda done, _: {"fake/one": STEPS} if done == 1 else {},
    )
    sides = run.measure_both(
        {"name": "one", "arms": ["plain", "fast"], "fault": "meet", "at": "open"}
    )
    rows = [rows["one"] for rows in sides.values()]
    assert [row.status for row in rows] == [Status.OK, Status.OK]
    for row in rows:
        launches = {
            (metric.name, metric.arm): [one.launch for one in metric.launches]
            for metric in row.metrics
        }
        assert launches[STEP_TIME.name, "fast"] == launches[COMPILE_WARM.name, "fast"] == [0, 1]
    whom = (folder / "met").read_text().split()
    return rows, whom[:4], whom[4:]


def test_both_sides_get_ready_at_the_same_time_in_every_launch(tmp_path: Path) -> None:
    rows, first, second = ready(tmp_path)
    assert (first, second) == (["another"] * 4, ["another"] * 4)
    for row in rows:
        seconds = {(one.stage, one.phase): one.seconds for one in row.spent}
        assert sum(one.seconds for one in row.spent) == pytest.approx(row.duration_s, abs=0.001)
        assert ("time", Phase.BUILD) in seconds


@pytest.mark.parametrize(
    "options", [replace(ROOMY, overlap=False), replace(ROOMY, threads=2)], ids=["off", "threads"]
)
def test_one_side_gets_ready_after_the_other_where_that_is_asked_for_or_cores_are_few(
    tmp_path: Path, options
) -> None:
    _, first, second = ready(tmp_path, options, meet_s="0.3")
    assert (first, second) == (["nobody"] * 4, ["nobody"] * 4)


CORES = sorted(os.sched_getaffinity(0))


def cold(folder: Path, options, *, meet_s):
    """Whom each compilation from cold met, and on which cores it was, with how many what it starts finds."""
    (folder / "notes").touch()
    case = {
        "name": "one",
        "arms": ["plain", "fast"],
        "stages": ["cold"],
        "fault": "meet_on_own_cores",
        "at": "open",
    }
    environ = fake_environ(FAKE_NOTES=str(folder / "notes"), FAKE_MEET_S=meet_s)
    rows = FakeRun(folder, options, environ=environ).measure_both(case)
    assert [row["one"].status for row in rows.values()] == [Status.OK] * 2
    return (folder / "met").read_text().split(), sorted((folder / "cores").read_text().split())


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_both_sides_compile_from_cold_at_the_same_time_each_on_its_own_cores(
    tmp_path: Path,
) -> None:
    met, cores = cold(tmp_path, ROOMY, meet_s="3")
    assert (met, cores) == (["another"] * 2, sorted(f"{core}/1" for core in CORES[:2]))


@pytest.mark.parametrize(
    "options", [replace(ROOMY, overlap=False), replace(ROOMY, threads=2)], ids=["off", "threads"]
)
def test_one_side_compiles_from_cold_after_the_other_on_all_cores_where_cores_are_few(
    tmp_path: Path, options
) -> None:
    met, cores = cold(tmp_path, options, meet_s="0.3")
    assert (met, cores) == (["nobody"] * 2, [f"{','.join(map(str, CORES))}/{len(CORES)}"] * 2)


@pytest.mark.parametrize(("device", "may"), [("cpu", True), ("cuda", False), (None, False)])
def test_on_a_gpu_no_side_compiles_and_warms_up_beside_the_other(device, may) -> None:
    environment = Environment(identity={} if device is None else {"device": device}, condition={})
    runs = [SimpleNamespace(environment=environment)] * 2
    assert may_get_ready_at_once(runs, ROOMY) is may
    cold = Stage(kind=StageKind.ALONE, arms=("fast",), cache=Cache.COLD)
    assert may_run_at_once(cold, runs, ROOMY) is may
    assert not may_run_at_once(cold, runs[:1], ROOMY)


def test_what_fits_into_memory_only_alone_is_done_once_more_alone(tmp_path: Path) -> None:
    rows, _ = measure(tmp_path, ROOMY, fault="crowded_check")
    assert [(row.status, row.failure) for row in rows.values()] == [(Status.OK, None)] * 2


def test_where_memory_runs_short_one_side_waits(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(headroom.Headroom, "is_short", lambda _: True)
    rows, _ = measure(tmp_path, ROOMY, fault="meet")
    assert [row.status for row in rows.values()] == [Status.OK] * 2
    assert met(rows)[1] == "nobody"


@pytest.mark.parametrize(
    ("fault", "status"), [("sigkill", Status.CRASHED), ("memory_error", Status.OUT_OF_MEMORY)]
)
def test_what_fails_alone_too_fails(tmp_path: Path, fault, status) -> None:
    rows, _ = measure(tmp_path, ROOMY, fault=fault)
    assert [row.status for row in rows.values()] == [status] * 2


def test_a_document_says_where_the_time_went(tmp_path: Path) -> None:
    rows, run = measure(tmp_path, ROOMY, stages=["verify", "memory", "time"], at="finish")
    for row in rows.values():
        seconds = {(one.stage, one.phase): one.seconds for one in row.spent}
        assert seconds["time", Phase.SAMPLES] > 0
        assert {stage for stage, _ in seconds} == {"verify", "alone", "time"}
        assert ("alone", Phase.COMPILE) in seconds
        assert sum(one.seconds for one in row.spent) == pytest.approx(row.duration_s, abs=0.001)
    ended = run.recorded[-1]
    assert {(one.stage, one.phase) for one in ended.spent} >= {
        ("launch", Phase.START),
        ("launch", Phase.WRITE),
    }
    assert ended.measured_s > 0


def test_the_time_limit_counts_what_both_wait_for(tmp_path: Path) -> None:
    rows, _ = measure(tmp_path, replace(ROOMY, stage_timeout_s=1.0), fault="hang")
    for row in rows.values():
        assert (row.status, row.duration_s) == (Status.TIMEOUT, pytest.approx(1.0, abs=0.4))
