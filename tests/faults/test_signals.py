"""A worker that any signal ends, at any stage, costs its own case alone."""

import signal
from dataclasses import replace

import pytest
from fake_suite import QUICK, FakeRun
from fault_checks import is_crash_of

from ci_bench.records.results import Status
from processes import carrying

LIMIT_S = 4.0
STOPPING = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
PASSING = {
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGURG,
    signal.SIGWINCH,
    signal.SIGPIPE,
    signal.SIGXFSZ,
}
"""Ignored by default, or by Python."""
FATAL = sorted({*signal.Signals} - STOPPING - PASSING - {signal.SIGINT} - {signal.SIGRTMIN})
STAGES = {
    "prepare": "prepare",
    "verify": "verify",
    "open": "time",
    "step": "time",
    "finish": "time",
}
"""Where in the worker's half it comes, and the stage of the row."""


def entries():
    """Every fatal signal at one stage each, in turns, so that each stage sees many; SIGKILL and SIGSEGV at all of them."""
    stages = list(STAGES)
    chosen = [(number, stages[index % len(stages)]) for index, number in enumerate(FATAL)]
    chosen += [(number, at) for number in (signal.SIGKILL, signal.SIGSEGV) for at in stages]
    chosen += [(number, "step") for number in (*PASSING, signal.SIGSTOP, signal.SIGINT)]
    return dict.fromkeys((int(number), at) for number, at in chosen)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = FakeRun(tmp_path_factory.mktemp("signals"), replace(QUICK, stage_timeout_s=LIMIT_S))
    broken = [
        {
            "name": f"signal_{number}_{at}",
            "fault": f"signal:{number}",
            "at": at,
            "stages": ["prepare", "verify", "time"],
        }
        for number, at in entries()
    ]
    run.measure(
        *(entry for index, one in enumerate(broken) for entry in (one, {"name": f"sound_{index}"}))
    )
    return run


@pytest.fixture(scope="module")
def rows(run):
    return run.last()


@pytest.mark.parametrize(("number", "at"), [key for key in entries() if key[0] in FATAL])
def test_a_signal_that_ends_a_worker_is_a_crash_of_its_stage(rows, number, at):
    row = rows[f"signal_{number}_{at}"]
    assert is_crash_of(row, number, STAGES[at]), row


@pytest.mark.parametrize("number", sorted(PASSING))
def test_a_signal_that_ends_nothing_disturbs_nothing(rows, number):
    assert rows[f"signal_{int(number)}_step"].status is Status.OK


def test_a_worker_that_is_stopped_runs_out_of_time(rows):
    assert rows[f"signal_{int(signal.SIGSTOP)}_step"].status is Status.TIMEOUT


def test_an_interrupt_inside_a_worker_is_its_failure_and_not_ours(rows):
    row = rows[f"signal_{int(signal.SIGINT)}_step"]
    assert (row.status, row.failure.reason) == (Status.FAILED, "KeyboardInterrupt")


def test_the_cases_around_them_are_measured(rows):
    sound = [row for name, row in rows.items() if name.startswith("sound_")]
    assert len(sound) == len(entries())
    assert {row.status for row in sound} == {Status.OK}


def test_nothing_of_them_is_left(run):
    assert run.last()
    assert carrying(run.environ["FAKE_ROOM"], within_s=2) == []


def test_each_signal_and_each_stage_is_tried():
    assert {number for number, _ in entries()} >= {*FATAL, signal.SIGKILL, *PASSING}
    assert {at for _, at in entries()} == {*STAGES}
    assert len(FATAL) > 20
