"""What a forked child does: one task, answered on a pipe.

Owns the way from a task to a measurement, and how a failure is told: a typed fault where Python can still speak.
"""

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

from ci_bench.engine.task import Answer, Fault, Task, decode_task, encode
from ci_bench.records.case import Status
from ci_bench.records.progress import Progress
from ci_bench.suites.base import Context, Evidence, StageKind, Unsupported, Workload

OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "std::bad_alloc")


def main(answers: int, task_path: str) -> int:
    """Do the task in the file `task_path` and answer on the descriptor `answers`. Returns the exit code."""
    task = decode_task(Path(task_path).read_bytes())
    os.environ.update(task.environ)
    try:
        answer = _answer(task, lambda arm, done, total: _say(answers, Answer(progress=Progress(arm=arm, done=done, total=total))))
    except Unsupported as reason:
        answer = Answer(fault=Fault(kind=Status.SKIPPED, message=str(reason)))
    except BaseException as error:  # noqa: BLE001 - benched code may raise anything, SystemExit included
        traceback.print_exc()
        answer = Answer(fault=Fault(kind=_kind(error), message=_describe(error)))
    sys.stdout.flush()
    _say(answers, answer)
    return 0 if answer.fault is None else 1


def _answer(task: Task, progress: object) -> Answer:
    from ci_bench.engine.device import select_device
    from ci_bench.engine.probe import probe_environment

    device = select_device(task.device, threads=task.options.threads)
    if task.case is None or task.stage is None or task.worker is None:
        return Answer(environment=probe_environment(device))
    context = Context(device=device, scratch=Path(task.scratch), progress=progress)  # type: ignore[arg-type] # one closure
    workload: Workload = import_module(task.worker).open_workload(task.case, context)
    return Answer(evidence=_perform(task, workload, context))


def _perform(task: Task, workload: Workload, context: Context) -> Evidence:
    from ci_bench.engine.alone import measure_alone
    from ci_bench.engine.sampling import measure_in_turns

    stage = task.stage
    assert stage is not None, "the caller has checked that there is a stage"
    match stage.kind:
        case StageKind.PREPARE:
            workload.prepare()
            return Evidence()
        case StageKind.VERIFY:
            return workload.verify(stage.arms)
        case StageKind.TIME:
            return measure_in_turns(workload, stage.arms, launch=task.launch, options=task.options, context=context)
        case StageKind.ALONE:
            return measure_alone(workload, stage, launch=task.launch, options=task.options, context=context)


def _kind(error: BaseException) -> Status:
    """A memory error by any name is `out_of_memory`; torch raises RuntimeError for the host's memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Status.OUT_OF_MEMORY
    text = str(error).lower()
    if isinstance(error, RuntimeError | OSError) and any(words in text for words in OUT_OF_MEMORY_WORDS):
        return Status.OUT_OF_MEMORY
    return Status.FAILED


def _describe(error: BaseException) -> str:
    first_lines = str(error).strip()[:2000]
    return f"{type(error).__name__}: {first_lines}" if first_lines else type(error).__name__


def _say(answers: int, answer: Answer) -> None:
    data = memoryview(encode(answer))
    while data:
        data = data[os.write(answers, data) :]
