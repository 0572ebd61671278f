"""What benched code can do to the process it runs in, to the machine and to our files; the other cases are measured all the same."""

from dataclasses import dataclass, replace

import pytest
from fake_suite import QUICK, SUITE, FakeRun, FakeSuite, fake_environ, fake_plan
from fake_time import StageClock
from fault_checks import measured_truly, takes_at_least

from ci_bench.checkouts.sides import Side
from ci_bench.errors import LauncherFailed, ScratchFailed
from ci_bench.processes import resident
from ci_bench.records.results import SideName, Status
from ci_bench.runner.ledger import Ledger
from processes import carrying, is_alive

LIMIT_S = 4.0


@dataclass(frozen=True)
class Expected:
    status: Status
    reason: str = ""


OUTCOMES = {
    "exhaust_memory": Expected(Status.OUT_OF_MEMORY, "MemoryError"),
    "gpu_memory": Expected(Status.OUT_OF_MEMORY, "CUDA out of memory"),
    "hang_in_native_code": Expected(Status.TIMEOUT, "ended after 4 s"),
    "fork_bomb": Expected(Status.TIMEOUT, "with all its processes"),
    "print_without_end": Expected(Status.FAILED, "printed more than 4 MiB"),
    "write_to_a_full_disk": Expected(Status.FAILED, "No space left on device"),
    "fill_own_log": Expected(Status.FAILED, "No space left on device"),
    "sys_exit": Expected(Status.FAILED, "SystemExit"),
    "freeze_time": Expected(Status.OK),
    "daemon": Expected(Status.OK),
    "close_output": Expected(Status.OK),
    "chdir": Expected(Status.OK),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benched")
    notes = folder / "notes"
    notes.touch()
    run = FakeRun(
        folder, replace(QUICK, stage_timeout_s=LIMIT_S), fake_environ(FAKE_NOTES=str(notes))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resident, "MAX_LOG_BYTES", 4 << 20)
        patch.setattr(resident, "LOOK_S", 0.05)
        run.measure(
            *(
                one
                for name in OUTCOMES
                for one in ({"name": name, "fault": name}, {"name": f"sound_{name}"})
            )
        )
    return run


@pytest.mark.parametrize("name", OUTCOMES)
def test_it_ends_in_one_row_that_tells_it_and_the_next_case_is_measured(run, name):
    row, expected = run.last()[name], OUTCOMES[name]
    assert row.status is expected.status, row.failure
    assert expected.reason in (row.failure.reason if row.failure else "")
    assert run.last()[f"sound_{name}"].status is Status.OK


def test_a_frozen_clock_freezes_no_measurement(run):
    """What the worker's own code sees of the time is not what the engine measures with."""
    row = run.last()["freeze_time"]
    assert measured_truly(row), row


@pytest.mark.parametrize("at", ["workload", "step"])
def test_no_assignment_to_a_module_slows_a_clock(tmp_path, at):
    """All are made, one after the other, in every module of ours that the worker has."""
    row = FakeRun(tmp_path, QUICK, fake_environ(FAKE_STEP_S="0.05")).measure(
        {"name": "slowed", "fault": "slow_every_clock", "at": at}
    )["slowed"]
    assert takes_at_least(row, 0.049), row


def test_a_fork_bomb_is_ended_with_all_that_left_its_session(run):
    forked = [int(pid) for pid in (run.folder / "notes").read_text().split()]
    assert len(forked) > 40
    assert [pid for pid in forked if is_alive(pid)] == []
    assert carrying(run.environ["FAKE_ROOM"]) == []


def test_endless_output_is_ended_long_before_the_disk_is_full(run):
    sizes = [path.stat().st_size for path in run.folder.glob("head/launch-0/*.log")]
    assert max(sizes) < 2 << 30
    assert max(sizes) > 4 << 20


def test_an_import_that_ends_the_process_is_a_failure_of_its_case(tmp_path):
    class Exiting(FakeSuite):
        worker = "fake_suite_exiting_worker"

    (_, sound), (_, broken) = fake_plan({"name": "sound"}, {"name": "broken"})
    plan = ((Exiting(), broken), (SUITE, sound))
    run = FakeRun(tmp_path)
    run.measure_sides(
        plan,
        Ledger.open([broken, sound], reproduce={one.id: "" for one in (broken, sound)}),
        _sides(run),
    )
    assert {name: row.status for name, row in run.last().items()} == {
        "broken": Status.FAILED,
        "sound": Status.OK,
    }
    assert run.last()["broken"].failure.reason == "SystemExit: 0"


def test_a_preloaded_module_that_ends_the_process_fails_the_run_and_says_so(tmp_path):
    class Preloading(FakeSuite):
        preload = ("fake_suite_exiting_worker",)

    ((_, case),) = fake_plan({"name": "one"})
    run = FakeRun(tmp_path)
    with pytest.raises(LauncherFailed, match="stopped answering"):
        run.measure_sides(
            ((Preloading(), case),), Ledger.open([case], reproduce={case.id: ""}), _sides(run)
        )
    assert run.recorded[-1].rows[case.id].status is Status.NOT_RUN if run.recorded else True


def _sides(run):
    return (Side(name=SideName.HEAD, environ=run.environ),)


def test_a_run_whose_private_folder_is_deleted_keeps_what_it_measured(tmp_path):
    run = FakeRun(tmp_path, environ=fake_environ(FAKE_SCRATCH=str(tmp_path / "head")))
    with pytest.raises(ScratchFailed, match="was the run's private folder removed"):
        run.measure(
            {"name": "before"}, {"name": "culprit", "fault": "delete_scratch"}, {"name": "after"}
        )
    rows = run.last()
    assert rows["before"].metrics
    assert rows["after"].status is Status.NOT_RUN
    assert carrying(run.environ["FAKE_ROOM"], within_s=2) == []


def test_what_a_clock_that_jumps_does_to_a_budget(tmp_path):
    """Forwards, as after a suspended machine: the rest is not run, and says so.

    Backwards: nothing is lost.
    """
    forwards, backwards = StageClock(lambda _: 1e9), iter(range(0, -1000, -1))
    run = FakeRun(tmp_path / "a", replace(QUICK, budget_s=100.0), events=forwards, clock=forwards)
    (tmp_path / "a").mkdir()
    rows = run.measure({"name": "first"}, {"name": "second"})
    assert [row.status for row in rows.values()] == [Status.OK, Status.NOT_RUN]
    assert "raise run.budget_s" in rows["second"].failure.reason
    run = FakeRun(tmp_path / "b", replace(QUICK, budget_s=100.0), clock=lambda: next(backwards))
    (tmp_path / "b").mkdir()
    assert [row.status for row in run.measure({"name": "first"}, {"name": "second"}).values()] == [
        Status.OK
    ] * 2
