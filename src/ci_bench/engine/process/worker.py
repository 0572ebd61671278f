"""What a forked child does: one task, answered on a pipe.

Owns the way from a task to a measurement, and how a failure is told: a typed fault where Python can still speak. Imports no
torch: suites that need it bring it along (see `engine.timing.device`).
"""

import contextlib
import os
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

from ci_bench.engine.machine.probe import probe_environment
from ci_bench.engine.outputs.comparing import compare
from ci_bench.engine.outputs.keeping import Keeper
from ci_bench.engine.process.protocol import Abandoned, Answer, Channel, Fault, Task, decode_task, encode
from ci_bench.engine.timing.cuda_clock import SpoiltByCapture
from ci_bench.engine.timing.fence import select_device
from ci_bench.engine.timing.isolated import measure_alone
from ci_bench.engine.timing.phases import Stopwatch
from ci_bench.engine.timing.sampling import ResidentArms, serve_turns
from ci_bench.records.results import Phase, Progress, Status
from ci_bench.suites.base import (
    Context,
    Evidence,
    NotMeasured,
    SelfMeasuring,
    Stage,
    StageKind,
    TrainingOverSeeds,
    Unsupported,
    Workload,
)
from ci_bench.suites.memory_errors import is_out_of_memory

MAX_MESSAGE = 2000


def main(answers: int, orders: int, task_path: str) -> int:
    """Do the task in the file `task_path`; answer and take orders on these descriptors. Returns the exit code."""
    task = decode_task(Path(task_path).read_bytes())
    os.environ.update(task.environ)
    channel = Channel(answers, orders)
    try:
        line, code = _perform(task, channel)
    except Abandoned:
        return 1
    channel.send(line)
    return code


def _perform(task: Task, channel: Channel) -> tuple[bytes, int]:
    """The last line to say, and the exit code."""
    try:
        return encode(_answer(task, channel)), 0
    except Abandoned:
        raise
    except Unsupported as reason:
        fault = Fault(kind=Status.SKIPPED, message=_words(reason)[:MAX_MESSAGE])
    except NotMeasured as error:
        fault = Fault(kind=error.status, message=_words(error)[:MAX_MESSAGE])
    except BaseException as error:  # noqa: BLE001 - benched code may raise anything, SystemExit included
        with contextlib.suppress(Exception):  # it may have closed stderr, too
            traceback.print_exc()
        kind = Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.FAILED
        fault = Fault(kind=kind, message=_describe(error), spoilt=isinstance(error, SpoiltByCapture))
    return encode(Answer(fault=fault)), 1


def _answer(task: Task, channel: Channel) -> Answer:
    if task.files is not None:
        return Answer(beside=compare(task.files, base=task.base_digest))
    device = select_device(task.device, threads=task.options.threads)
    if task.case is None or task.stage is None or task.worker is None:
        return Answer(environment=probe_environment(device, task.options))

    def tell(arm: str, done: int, total: int) -> None:
        channel.say(Answer(progress=Progress(arm=arm, done=done, total=total)))

    stopwatch = Stopwatch()
    keeper = Keeper(folder=Path(task.scratch), keeping=task.keep)
    context = Context(
        device=device,
        scratch=Path(task.scratch),
        progress=tell,
        launch=task.launch,
        keep=keeper.keep,
        cuda_graph=task.options.cuda_graph,
    )
    with stopwatch.phase(Phase.BUILD):
        workload = import_module(task.worker).open_workload(task.case, context)
    evidence = _gather(task, workload, task.stage, context=context, channel=channel, stopwatch=stopwatch)
    if not isinstance(evidence, Evidence):
        message = f"{task.worker} returned {type(evidence).__name__} from {task.stage.kind}, not Evidence"
        raise TypeError(message)
    return Answer(evidence=replace(evidence, outputs=keeper.record, spent=stopwatch.read(task.stage.kind)))


def _gather(
    task: Task, workload: Workload, stage: Stage, *, context: Context, channel: Channel, stopwatch: Stopwatch
) -> Evidence:
    match stage.kind:
        case StageKind.PREPARE:
            with stopwatch.phase(Phase.PREPARE):
                workload.prepare()
            return Evidence()
        case StageKind.VERIFY:
            with stopwatch.phase(Phase.CHECKS):
                return workload.verify(stage.arms)
        case StageKind.SEEDS:
            trained = cast("TrainingOverSeeds", workload)
            with stopwatch.phase(Phase.CHECKS):
                return trained.train_over_seeds(stage.arms)
        case StageKind.TIME:
            resident = ResidentArms(options=task.options, context=context, stopwatch=stopwatch)
            return serve_turns(resident, workload, stage.arms, launch=task.launch, channel=channel)
        case StageKind.RUN:
            measuring = cast("SelfMeasuring", workload)
            with stopwatch.phase(Phase.SAMPLES):
                return measuring.measure(stage.arms)
        case StageKind.ALONE:
            return measure_alone(workload, stage, launch=task.launch, context=context, stopwatch=stopwatch)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {_words(error)[:MAX_MESSAGE]}".removesuffix(": ")


def _words(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - its class is benched code as well
        return ""
