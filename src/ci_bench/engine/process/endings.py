"""What a worker's end means: a typed status and a sentence for the user. Pure."""

import signal

from ci_bench.engine.process.answers import MAX_BYTES
from ci_bench.engine.process.resident import MAX_LOG_BYTES, Ended
from ci_bench.records.case import Status

SIGNAL_HINTS = {
    signal.SIGKILL: "; often the kernel ending a process because the machine ran out of memory (see `dmesg`)",
    signal.SIGSEGV: "; a bug in native code (a kernel, an extension, or the compiler's output)",
    signal.SIGBUS: "; often a full disk or a full /dev/shm",
    signal.SIGABRT: "; native code gave up, its message is in the log",
}
FOREIGN = "something other than ci-bench wrote into its pipe"


def explain(ended: Ended, *, limit_s: float) -> tuple[Status, str]:  # noqa: PLR0911 - one line per ending, in order
    """The status of a stage and why. `ok` only if the worker said what it found, left well and sent nothing garbled.

    A time limit counts first, then a signal, then what the worker says of itself (a typed fault), then its exit code.
    """
    if ended.timed_out:
        return Status.TIMEOUT, f"ended after {limit_s:g} s (run.stage_timeout_s) with all its processes"
    if ended.flooded:
        return Status.FAILED, f"the worker sent more than {MAX_BYTES >> 20} MiB, or too much that is no answer: {FOREIGN}"
    if ended.overfull:
        return Status.FAILED, f"it printed more than {MAX_LOG_BYTES >> 20} MiB and was ended; have it print less"
    if ended.code < 0:
        return Status.CRASHED, _signal_sentence(ended.code)
    fault = next((answer.fault for answer in ended.answers if answer.fault), None)
    if fault is not None:
        return _status(fault.kind), fault.message
    if ended.garbled:
        return Status.FAILED, f"the worker sent {ended.garbled} line(s) that are not answers: {FOREIGN}"
    if ended.code != 0 or not ended.answers:
        return Status.CRASHED, f"the worker left with exit code {ended.code} and without an answer"
    return Status.OK, ""


def signal_name(ended: Ended) -> str | None:
    """The signal that ended the worker, such as ``SIGSEGV``; `None` where none did, or where it was ended on purpose."""
    if ended.code >= 0 or ended.timed_out or ended.flooded or ended.overfull:
        return None
    try:
        return signal.Signals(-ended.code).name
    except ValueError:
        return str(-ended.code)


def _status(kind: str) -> Status:
    known = {Status.SKIPPED, Status.OUT_OF_MEMORY, Status.TIMEOUT}
    return Status(kind) if kind in known else Status.FAILED


def _signal_sentence(code: int) -> str:
    try:
        known = signal.Signals(-code)
    except ValueError:
        return f"ended by signal {-code}"
    return f"ended by {known.name}{SIGNAL_HINTS.get(known, '')}"
