"""Execute one task in a forked child and answer on a pipe.

Owns the way from a task to a measurement, and the report of a failure: a typed fault if Python can
still report. Imports no torch: suites that need it bring it along (see `worker.clock`).
"""

import contextlib
import os
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import cast

from ci_bench.processes import noted
from ci_bench.processes.foreign import foreign_of
from ci_bench.processes.protocol import (
    Abandoned,
    Answer,
    Channel,
    Done,
    Task,
    WorkerFault,
    decode_task,
    encode,
)
from ci_bench.records.events import Progress
from ci_bench.records.results import Case, Phase, Status
from ci_bench.suites.contract import (
    Cache,
    Context,
    Evidence,
    NotMeasured,
    Ranks,
    SelfMeasuring,
    Sized,
    Stage,
    StageKind,
    TrainingOverSeeds,
    TrainingPerturbed,
    Unsupported,
    Workload,
)
from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory
from ci_bench.suites.shared.worker.torch_errors import with_cause
from ci_bench.worker.comparing import compare, judge
from ci_bench.worker.compile_workers import limit_workers
from ci_bench.worker.cuda_clock import SpoiltByCapture
from ci_bench.worker.fence import refuse_blocking_launches, select_device
from ci_bench.worker.isolated import measure_alone
from ci_bench.worker.keeping import Claimer, Keeper
from ci_bench.worker.memory import DeviceMemory, HostMemory, keep_heap, memory_of
from ci_bench.worker.phases import Stopwatch
from ci_bench.worker.probe import probe_environment
from ci_bench.worker.ranks import PATIENCE, Seat, is_of_a_peer, supervise
from ci_bench.worker.sampling import ResidentArms, make_clock, serve_turns, what_is_shared
from ci_bench.worker.sizing import find_largest_batch

MAX_MESSAGE = 2000
UNWATCHED = frozenset({StageKind.TIME, StageKind.RUN, StageKind.ALONE, StageKind.EXPLAIN})
"""The stages in which a hook would be called within samples."""
TIMED = frozenset({StageKind.TIME, StageKind.EXPLAIN})
"""The stages in which steps take as long as they take in a sample."""


def main(answers: int, orders: int, task_path: str) -> int:
    """Do the task in the file `task_path`; answer and take orders on these descriptors.

    Returns the exit code.
    """
    task = decode_task(Path(task_path).read_bytes())
    os.environ.update(task.environ)
    if task.cores:
        os.sched_setaffinity(0, task.cores)
    channel = Channel(answers, orders)
    try:
        if task.stage is not None and task.stage.processes > 1:
            return _perform_in_ranks(task, task.stage.processes, channel, (answers, orders))
        line, fault = _perform(partial(_answer, task, channel))
    except Abandoned:
        return 1
    channel.send(line)
    return int(fault is not None)


def _perform_in_ranks(task: Task, count: int, channel: Channel, pipes: tuple[int, int]) -> int:
    """Run the task in several processes, of which the first answers and takes orders.

    Returns the exit code.
    """

    def perform(seat: Seat) -> WorkerFault | None:
        if seat.rank:
            _, fault = _perform(partial(_follow, task, seat))
            return fault
        line, fault = _perform(partial(_answer, task, channel, seat))
        if fault is None:
            channel.send(line)
        return fault

    patience_s = PATIENCE * task.options.stage_timeout_s
    fault = supervise(
        count, scratch=Path(task.scratch), patience_s=patience_s, perform=perform, keep=pipes
    )
    if fault is None:
        return 0
    with contextlib.suppress(OSError):  # the parent may be gone
        channel.say(Answer(fault=fault))
    return 1


def _perform(answer: Callable[[], Answer]) -> tuple[bytes, WorkerFault | None]:
    """Return the last line to send, and the fault, if any."""
    try:
        return encode(answer()), None
    except Abandoned:
        raise
    except Unsupported as reason:
        fault = WorkerFault(kind=Status.SKIPPED, message=_words(reason)[:MAX_MESSAGE])
    except NotMeasured as error:
        fault = WorkerFault(kind=error.status, message=_words(error)[:MAX_MESSAGE])
    except BaseException as error:  # noqa: BLE001 - benched code may raise anything, SystemExit included
        with contextlib.suppress(Exception):  # it may have closed stderr, too
            traceback.print_exc()
        kind = Status.OUT_OF_MEMORY if is_out_of_memory(error) else Status.FAILED
        fault = WorkerFault(
            kind=kind,
            message=_describe(error),
            spoilt=isinstance(error, SpoiltByCapture),
            waited=is_of_a_peer(error),
        )
    return encode(Answer(fault=fault)), fault


def _follow(task: Task, seat: Seat) -> Answer:
    """Follow the orders of the first rank."""
    assert task.case is not None, "only a stage of a case has ranks"  # noqa: S101 - our own bug if not
    assert task.stage is not None, "only a stage has ranks"  # noqa: S101
    from ci_bench.worker.ranked import follow, join

    device = _select(task, seat)
    join(seat, device)
    context = Context(
        device=device,
        scratch=Path(task.scratch),
        progress=lambda *_: None,
        launch=task.launch,
        ranks=_ranks(seat),
    )
    if device != "cpu":
        limit_workers(os.environ)
    notes = _note(task)
    memory = memory_of(device) if task.stage.kind is StageKind.ALONE else None
    workload = import_module(str(task.worker)).open_workload(task.case, context)
    clock = make_clock(device, replace(task.options, cuda_graph=False))
    follow(workload, seat, context, clock, memory=memory)
    for check in notes.checks(""):
        raise NotMeasured(f"{check.name}: {check.detail}")
    return Answer(done=Done())


def _ranks(seat: Seat | None) -> Ranks | None:
    if seat is None:
        return None
    from ci_bench.worker.ranked import OrderlyRanks

    return OrderlyRanks(seat=seat)


def _answer(task: Task, channel: Channel, seat: Seat | None = None) -> Answer:
    if task.files is not None:
        return Answer(beside=compare(task.files, base=task.base_digest))
    if task.claims:
        return Answer(judged=judge(task.claims))
    device = _select(task, seat)
    if task.case is None or task.stage is None or task.worker is None:
        return Answer(environment=probe_environment(device, task.options))
    return _measure(task, task.case, task.stage, channel, device=device, seat=seat)


def _measure(
    task: Task, case: Case, stage: Stage, channel: Channel, *, device: str, seat: Seat | None
) -> Answer:
    """Run a stage of a case, and answer with its evidence."""
    if seat is not None:
        from ci_bench.worker.ranked import RankedWorkload, join

        join(seat, device)
        task = replace(task, options=replace(task.options, cuda_graph=False))

    def tell(arm: str, done: int, total: int) -> None:
        channel.say(Answer(progress=Progress(arm=arm, done=done, total=total)))

    stopwatch = Stopwatch()
    scratch = Path(task.scratch)
    keeper, claimer = Keeper(folder=scratch, keeping=task.keep), Claimer(folder=scratch)
    context = Context(
        device=device,
        scratch=scratch,
        progress=tell,
        launch=task.launch,
        keep=keeper.keep,
        claim=claimer.claim,
        cuda_graph=task.options.cuda_graph,
        ranks=_ranks(seat),
        largest_batch=task.largest_batch,
        provisional=stage.provisional,
        threads=task.options.threads,
    )
    _settle_process(device, stage)
    notes, foreign = _note(task), foreign_of(Path.cwd())
    if stage.kind not in UNWATCHED:
        foreign.watch()
    shared = what_is_shared(notes) if stage.kind is StageKind.TIME else None
    # The memory of importing the benchmarked code counts, too.
    memory = (
        memory_of(device) if stage.kind is StageKind.ALONE and stage.cache is Cache.SHARED else None
    )
    with stopwatch.phase(Phase.BUILD):
        workload = import_module(str(task.worker)).open_workload(case, context)
    if seat is not None:
        workload = RankedWorkload(workload=workload, seat=seat)
    resident = ResidentArms(
        options=task.options, context=context, stopwatch=stopwatch, untouched=shared
    )
    evidence = _gather(task, workload, stage, resident=resident, channel=channel, memory=memory)
    if not isinstance(evidence, Evidence):
        returned = f"{type(evidence).__name__} from {stage.kind}"
        raise TypeError(f"{task.worker} returned {returned}, not Evidence")
    checks = (
        *evidence.checks,
        *notes.checks(case.reference),
        *foreign.checks(case.reference),
    )
    claims, spent = tuple(claimer.records), stopwatch.read(stage.kind)
    return Answer(
        evidence=replace(evidence, checks=checks, outputs=keeper.record, claims=claims, spent=spent)
    )


def _note(task: Task) -> noted.Noted:
    """Note the functions that checks use before any code of the tree is imported.

    Includes a built-in suite's modules.
    """
    if str(task.worker).startswith(f"{noted.PACKAGE}."):
        import_module(str(task.worker))
    return noted.current()


def _select(task: Task, seat: Seat | None = None) -> str:
    """Make the task's device, or the rank's own, current.

    Refuses a device whose times are meaningless.
    """
    requested = task.device
    if seat is not None:
        from ci_bench.worker.ranked import own_device

        requested = own_device(seat, requested)
    device = select_device(requested, threads=task.options.threads)
    refuse_blocking_launches(device, os.environ)
    return device


def _settle_process(device: str, stage: Stage) -> None:
    """Fix the heap if steps are timed on the CPU; on a GPU, bound inductor's pool of processes."""
    if device != "cpu":
        limit_workers(os.environ)
    elif stage.kind in TIMED:
        keep_heap()


def _gather(  # noqa: PLR0911 - one for each kind
    task: Task,
    workload: Workload,
    stage: Stage,
    *,
    resident: ResidentArms,
    channel: Channel,
    memory: HostMemory | DeviceMemory | None,
) -> Evidence:
    context, stopwatch = resident.context, resident.stopwatch
    match stage.kind:
        case StageKind.PREPARE:
            with stopwatch.phase(Phase.PREPARE):
                workload.prepare()
            return Evidence()
        case StageKind.SIZE:
            with stopwatch.phase(Phase.PREPARE):
                return find_largest_batch(cast("Sized", workload), stage, context=context)
        case StageKind.VERIFY:
            with stopwatch.phase(Phase.CHECKS):
                return workload.verify(stage.arms)
        case StageKind.SEEDS:
            trained = cast("TrainingOverSeeds", workload)
            with stopwatch.phase(Phase.CHECKS):
                return trained.train_over_seeds(stage.arms)
        case StageKind.ROUNDING:
            perturbed = cast("TrainingPerturbed", workload)
            with stopwatch.phase(Phase.CHECKS):
                return perturbed.train_perturbed(stage.arms)
        case StageKind.TIME:
            return serve_turns(resident, workload, stage.arms, launch=task.launch, channel=channel)
        case StageKind.RUN:
            measuring = cast("SelfMeasuring", workload)
            with stopwatch.phase(Phase.SAMPLES):
                return measuring.measure(stage.arms)
        case StageKind.ALONE:
            return measure_alone(
                workload,
                stage,
                launch=task.launch,
                context=context,
                stopwatch=stopwatch,
                memory=memory,
            )
        case StageKind.EXPLAIN:
            with stopwatch.phase(Phase.EXPLAIN):
                return _explain(workload, stage, context=context, limit_s=task.limit_s)


def _explain(workload: Workload, stage: Stage, *, context: Context, limit_s: float) -> Evidence:
    from ci_bench.worker.profiling.arm import explain_arm  # only this worker needs it

    (arm,) = stage.arms
    return explain_arm(workload, arm, context=context, limit_s=limit_s)


def _describe(error: BaseException) -> str:
    return with_cause(f"{type(error).__name__}: {_words(error)[:MAX_MESSAGE]}".removesuffix(": "))


def _words(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - its class is benched code as well
        return ""
