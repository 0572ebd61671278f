"""Whatever benched code does, each case ends in one row that says so, and the other cases are measured."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fake_suite import QUICK, FakeRun, fake_environ

from ci_bench.errors import LauncherFailed
from ci_bench.processes import resident
from ci_bench.records.results import CaseResult, Status
from processes import is_alive

LIMIT_S = 4.0


@dataclass(frozen=True)
class Expected:
    status: Status
    reason: str = ""
    signal: str | None = None
    log: str = ""
    at: str = "step"
    stage: str = "time"


def _verify(status: Status, reason: str) -> Expected:
    return Expected(status, reason, at="verify", stage="verify")


ENDINGS = {
    "sigkill": Expected(Status.CRASHED, "ran out of memory", "SIGKILL", "printed before the end"),
    "sigsegv": Expected(Status.CRASHED, "native code", "SIGSEGV", "Segmentation fault"),
    "sigabrt": Expected(Status.CRASHED, "native code", "SIGABRT", "printed before the end"),
    "sigrtmax": Expected(Status.CRASHED, "ended by signal 63", "63", "printed before the end"),
    "null_pointer": Expected(Status.CRASHED, "native code", "SIGSEGV", "string_at"),
    "hang": Expected(Status.TIMEOUT, "ended after 4 s (run.stage_timeout_s)"),
    "hang_in_native_code": Expected(Status.TIMEOUT, "ended after 4 s"),
    "hang_with_child": Expected(Status.TIMEOUT, "with all its processes"),
    "memory_error": Expected(Status.OUT_OF_MEMORY, "MemoryError", log="MemoryError"),
    "host_memory": Expected(Status.OUT_OF_MEMORY, "DefaultCPUAllocator", log="alloc_cpu"),
    "gpu_memory": Expected(Status.OUT_OF_MEMORY, "CUDA out of memory", log="OutOfMemoryError"),
    "library_memory": Expected(
        Status.OUT_OF_MEMORY, "CUBLAS_STATUS_ALLOC_FAILED", log="cublasCreate"
    ),
    "library_trouble": Expected(Status.FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", log="cublasSgemm"),
    "really_too_large": Expected(Status.OUT_OF_MEMORY, "MemoryError", log="Traceback"),
    "error": Expected(Status.FAILED, "ValueError: the step is broken", log="Traceback"),
    "half_surrogate": Expected(Status.FAILED, "ValueError"),
    "long_message": Expected(Status.FAILED, "xxx", log="xxx"),
    "unspeakable": Expected(Status.FAILED, "Unspeakable", log="Unspeakable"),
    "unsupported": Expected(Status.SKIPPED, "no flux capacitor"),
    "sys_exit": Expected(Status.FAILED, "SystemExit: 0", log="Traceback"),
    "interrupt": Expected(Status.FAILED, "KeyboardInterrupt", log="Traceback"),
    "os_exit": Expected(Status.CRASHED, "exited with code 0 and without an answer"),
    "os_exit_3": Expected(Status.CRASHED, "exited with code 3 and without an answer"),
    "leave_pipe_held": Expected(Status.CRASHED, "exited with code 0 and without an answer"),
    "pipe_garbage": Expected(Status.FAILED, "3 line(s) that are not answers"),
    "pipe_half_line": Expected(Status.FAILED, "1 line(s) that are not answers"),
    "pipe_infinity": Expected(Status.FAILED, "1 line(s) that are not answers"),
    "pipe_flood": Expected(Status.FAILED, "64 MiB"),
    "pipe_newlines": Expected(Status.FAILED, "64 MiB"),
    "forge_and_leave": Expected(Status.FAILED, "1 line(s) that are not answers"),
    "close_all": Expected(Status.CRASHED, "exited with code 70", log="Bad file descriptor"),
    "nan": _verify(Status.FAILED, "Out of range float values"),
    "infinity": _verify(Status.FAILED, "Out of range float values"),
    "zero_time": _verify(Status.FAILED, "0 is not a time"),
    "foreign_arm": _verify(Status.FAILED, "'other' is not one of the case's arms"),
    "no_evidence": _verify(Status.FAILED, "returned NoneType from verify, not Evidence"),
}
HARMLESS = ("child", "daemon", "print_garbage", "close_output", "chdir")
POINTS = {
    "workload": "time",
    "open": "time",
    "step": "time",
    "finish": "time",
    "prepare": "prepare",
    "verify": "verify",
}


def _entries() -> list[dict[str, object]]:
    """A sound case after each broken one."""
    stages = ["prepare", "verify", "time"]
    broken = [
        {"name": name, "fault": name, "at": one.at, "stages": [one.stage]}
        for name, one in ENDINGS.items()
    ]
    broken += [{"name": name, "fault": name} for name in HARMLESS]
    broken += [
        {"name": f"at_{point}", "fault": "error", "at": point, "stages": stages} for point in POINTS
    ]
    return [
        entry for index, one in enumerate(broken) for entry in (one, {"name": f"sound_{index}"})
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> FakeRun:
    folder = tmp_path_factory.mktemp("faults")
    notes = folder / "notes"
    notes.touch()
    run = FakeRun(
        folder, replace(QUICK, stage_timeout_s=LIMIT_S), fake_environ(FAKE_NOTES=str(notes))
    )
    run.measure(*_entries())
    return run


@pytest.mark.parametrize("name", ENDINGS)
def test_every_fault_ends_in_one_row_that_tells_it(run: FakeRun, name: str) -> None:
    expected, row = ENDINGS[name], run.last()[name]
    assert row.status is expected.status
    assert row.failure is not None
    assert expected.reason in row.failure.reason
    assert len(row.failure.reason) < 3000
    assert row.failure.signal == expected.signal
    assert expected.log in row.failure.log_tail
    assert (row.failure.stage, row.failure.arms) == (expected.stage, ("plain",))
    assert row.reproduce == f"run fake/{name}"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_disturbs_no_measurement_is_no_failure(run: FakeRun, name: str) -> None:
    assert _is_sound(run.last()[name])


@pytest.mark.parametrize("point", POINTS)
def test_an_error_is_reported_from_wherever_it_was_raised(run: FakeRun, point: str) -> None:
    row = run.last()[f"at_{point}"]
    first = "prepare" if point == "workload" else POINTS[point]
    assert (row.status, row.failure.stage if row.failure else None) == (Status.FAILED, first)


def test_the_other_cases_are_measured(run: FakeRun) -> None:
    sound = [row for name, row in run.last().items() if name.startswith("sound_")]
    assert len(sound) == len(ENDINGS) + len(HARMLESS) + len(POINTS)
    assert all(_is_sound(row) for row in sound)


def test_there_is_one_row_for_each_planned_case(run: FakeRun) -> None:
    assert [row.case.name for row in run.recorded[-1].rows.values()] == [
        entry["name"] for entry in _entries()
    ]


def test_nothing_that_a_worker_started_outlives_it(run: FakeRun) -> None:
    started = (run.folder / "notes").read_text().split()
    assert len(started) == 4  # hang_with_child, leave_pipe_held, child, daemon
    assert [pid for pid in started if is_alive(int(pid))] == []


def test_what_a_worker_left_behind_is_gone_when_the_next_case_begins(tmp_path: Path) -> None:
    """It would take part in what is measured next, and more of it with each case."""
    notes, alive = tmp_path / "notes", []

    class Watching(list):
        def append(self, event) -> None:
            super().append(event)
            if event.case == "fake/after" and not alive:
                alive.append([is_alive(int(pid)) for pid in notes.read_text().split()])

    run = FakeRun(tmp_path, environ=fake_environ(FAKE_NOTES=str(notes)), events=Watching())
    run.measure({"name": "daemon", "fault": "daemon"}, {"name": "after"})
    assert alive == [[False]]


def test_a_server_that_dies_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, environ=fake_environ(FAKE_NOTES=str(tmp_path / "notes")))
    with pytest.raises(LauncherFailed, match="stopped answering"):
        run.measure(
            {"name": "before"},
            {"name": "culprit", "fault": "kill_server", "at": "open"},
            {"name": "after"},
        )
    rows = run.last()
    assert rows["before"].metrics
    assert (rows["culprit"].status, rows["after"].status) == (Status.CRASHED, Status.NOT_RUN)
    assert "died during this stage" in rows["culprit"].failure.reason
    assert not is_alive(int((tmp_path / "notes").read_text()), within_s=5)


def test_a_server_that_no_longer_answers_cannot_hang_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(resident, "GRACE_S", 0.5)
    run = FakeRun(
        tmp_path,
        replace(QUICK, stage_timeout_s=0.5),
        fake_environ(FAKE_NOTES=str(tmp_path / "notes")),
    )
    started = time.monotonic()
    with pytest.raises(LauncherFailed, match="no word came that it ended"):
        run.measure({"name": "culprit", "fault": "stop_server"})
    assert time.monotonic() - started < 20
    assert not is_alive(int((tmp_path / "notes").read_text()), within_s=5)


def _is_sound(row: CaseResult) -> bool:
    return (
        row.status is Status.OK
        and row.failure is None
        and any(metric.name == "step_time" for metric in row.metrics)
    )
