"""What a worker's end means: a typed status and a sentence for the user. Pure."""

import signal

from ci_bench.engine.launch import Ended
from ci_bench.records.case import Status

SIGNAL_HINTS = {
    signal.SIGKILL: "; often the kernel ending a process because the machine ran out of memory (see `dmesg`)",
    signal.SIGSEGV: "; a bug in native code (a kernel, an extension, or the compiler's output)",
    signal.SIGBUS: "; often a full disk or a full /dev/shm",
    signal.SIGABRT: "; native code gave up, its message is in the log",
}


def explain(ended: Ended, *, limit_s: float) -> tuple[Status, str]:
    """The status of a stage and why. `ok` only if the worker said that it finished and sent nothing garbled.

    What the worker says of itself (a typed fault) counts before its exit code; a time limit counts before both.
    """
    if ended.timed_out:
        return Status.TIMEOUT, f"ended after {limit_s:g} s (run.stage_timeout_s) with all its processes"
    if ended.code is not None and ended.code < 0:
        return Status.CRASHED, _signal_sentence(-ended.code)
    fault = next((answer.fault for answer in ended.answers if answer.fault), None)
    if fault is not None:
        return _status(fault.kind), fault.message
    if ended.garbled:
        return Status.FAILED, f"the worker sent {ended.garbled} line(s) that are not answers: something wrote into its pipe"
    if ended.code != 0 or not ended.answers:
        return Status.CRASHED, f"the worker left with exit code {ended.code} and without an answer"
    return Status.OK, ""


def _status(kind: str) -> Status:
    known = {Status.SKIPPED, Status.OUT_OF_MEMORY}
    return Status(kind) if kind in known else Status.FAILED


def _signal_sentence(number: int) -> str:
    try:
        name = signal.Signals(number)
    except ValueError:
        return f"ended by signal {number}"
    return f"ended by {name.name}{SIGNAL_HINTS.get(name, '')}"
