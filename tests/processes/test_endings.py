"""Every way in which a worker can end has one status and a sentence."""

import pytest

from ci_bench.processes.protocol import Answer, WorkerFault
from ci_bench.processes.resident import Ended, explain, signal_name
from ci_bench.records.results import Status
from ci_bench.suites.contract import Evidence

DONE = (Answer(evidence=Evidence()),)


def _fault(kind: str) -> tuple[Answer, ...]:
    return (Answer(fault=WorkerFault(kind=kind, message="why")),)


def _ended(code: int = 0, answers: tuple[Answer, ...] = (), **more) -> Ended:
    return Ended(**{"code": code, "timed_out": False, "answers": answers, **more})


CASES = [
    (_ended(0, DONE), Status.OK, "", None),
    (_ended(1, _fault("failed")), Status.FAILED, "why", None),
    (_ended(1, _fault("out_of_memory")), Status.OUT_OF_MEMORY, "why", None),
    (_ended(1, _fault("skipped")), Status.SKIPPED, "why", None),
    (_ended(0, _fault("failed")), Status.FAILED, "why", None),
    (_ended(0, (*DONE, *_fault("failed"))), Status.FAILED, "why", None),
    (_ended(1, _fault("ok")), Status.FAILED, "why", None),
    (_ended(1, _fault("not a status")), Status.FAILED, "why", None),
    (_ended(0), Status.CRASHED, "exited with code 0 and without an answer", None),
    (_ended(3), Status.CRASHED, "exited with code 3", None),
    (_ended(3, DONE), Status.CRASHED, "exited with code 3", None),
    (_ended(0, DONE, garbled=2), Status.FAILED, "2 line(s) that are not answers", None),
    (_ended(1, _fault("failed"), garbled=2), Status.FAILED, "why", None),
    (_ended(-9), Status.CRASHED, "SIGKILL; often the kernel", "SIGKILL"),
    (_ended(-11, DONE), Status.CRASHED, "SIGSEGV; a bug in native code", "SIGSEGV"),
    (_ended(-6), Status.CRASHED, "SIGABRT; native code gave up", "SIGABRT"),
    (_ended(-7), Status.CRASHED, "SIGBUS; often a full disk", "SIGBUS"),
    (_ended(-15), Status.CRASHED, "ended by SIGTERM", "SIGTERM"),
    (_ended(-63), Status.CRASHED, "ended by signal 63", "63"),
    (
        _ended(-9, DONE, timed_out=True),
        Status.TIMEOUT,
        "ended after 12.5 s (run.stage_timeout_s)",
        None,
    ),
    (_ended(-9, _fault("failed"), timed_out=True, flooded=True), Status.TIMEOUT, "12.5 s", None),
    (_ended(-9, DONE, flooded=True), Status.FAILED, "64 MiB", None),
]


@pytest.mark.parametrize(("ended", "status", "words", "signal"), CASES)
def test_an_ending_has_one_status_and_words_for_it(
    ended: Ended, status: Status, words: str, signal: str | None
) -> None:
    found, reason = explain(ended, limit_s=12.5)
    assert found is status
    assert words in reason
    assert bool(reason) is (status is not Status.OK)
    assert signal_name(ended) == signal
