"""Explain one arm: open its program as timing does, warm it up, and profile a few steps.

No time here is a sample. The process is a new one that only explains, after the last launch. The
compiler's cache is cold, so its kernels report their lines. CUDA graphs are not captured, since a
replay hides its parts.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, TypeVar

from ci_bench.records.profiles import (
    MOST_BREAKS,
    MOST_LINES,
    MOST_NOTES,
    MOST_REASON,
    MOST_ROWS,
    Bundle,
    GeneratedKernel,
    Profile,
    ProfileRow,
    RowKind,
    SourceLine,
)
from ci_bench.suites.contract import Compiler, Context, Evidence, Program, Workload, no_mark
from ci_bench.worker.fence import (
    close,
    hold_garbage_collector,
    synchronizer,
    time_calls,
    torch_is_loaded,
)
from ci_bench.worker.memory import keep_freed_memory
from ci_bench.worker.profiling.annotating import annotated
from ci_bench.worker.profiling.bundles import Graphs
from ci_bench.worker.profiling.compiled import (
    Kernels,
    breaks_of,
    has_compiled,
    may_compile,
    recompiles,
)
from ci_bench.worker.profiling.operators import (
    STEP,
    Key,
    Lines,
    PythonTime,
    Typical,
    middle,
    quiet,
    spread,
    steps_of,
    typical,
)
from ci_bench.worker.profiling.snapshots import MemoryHistory
from ci_bench.worker.profiling.sources import FrameSources


class _Look(Protocol):
    whole_s: float

    def least(self, others: Any) -> None:
        """Take the least of each figure."""


T = TypeVar("T", bound=_Look)

WARM_UP_CALLS = 3
FEWEST_STEPS, MOST_STEPS, LOOK_S = 12, 80, 2.0
"""Enough steps for some quiet ones, limited in number and time (s)."""
BATCHES = 3
"""The number of moments at which steps are taken: one of them may be quiet."""
TRIES = 3
"""The number of looks at one step for shares: the smallest of each figure counts."""
MOST_OF_LIMIT = 0.3
"""The share of the available time for plain steps."""
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def explain_arm(workload: Workload, arm: str, *, context: Context, limit_s: float) -> Evidence:
    """Profile one arm; attach a trace of a step and a GPU's memory snapshot.

    `limit_s` is its approximate duration. If a compiled graph of the arm is wrong in isolation, the
    bundle that shows it is an attachment, too (`bundles`). Raises the program's errors, except a
    compiler's error that a bundle shows: then the profile has only the bundle.
    """
    if not torch_is_loaded():
        return Evidence(
            profiles=(Profile(arm=arm, step_s=None, unknown="this suite computes without torch"),)
        )
    if getattr(workload, "keeps_freed_memory", False):
        keep_freed_memory()
    sources = FrameSources(Path.cwd())
    begun = time.monotonic()
    history = MemoryHistory(context.device)
    program = workload.open(arm)
    looking = _Looking(program=program, sources=sources, context=context)
    try:
        step_s = looking.warm_up()
    except Exception as error:
        bundle = looking.bundle(arm, limit_s=limit_s - (time.monotonic() - begun))
        if bundle is None:
            raise
        unknown = " ".join(f"{type(error).__name__}: {error}".split())[:MOST_REASON]
        return Evidence(profiles=(Profile(arm=arm, step_s=None, unknown=unknown, bundle=bundle),))
    history.keep(context.attachments / f"memory-{_PLAIN.sub('_', arm)}.json.gz")
    looking.notes += [history.note] if history.note else []
    left_s = max(0.0, limit_s - (time.monotonic() - begun))
    steps = max(
        FEWEST_STEPS, min(MOST_STEPS, int(min(LOOK_S, MOST_OF_LIMIT * left_s) / max(step_s, 1e-6)))
    )
    rows, left_out = _most(looking.profile(arm, steps))
    looking.keep_trace(arm)
    bundle = looking.bundle(arm, limit_s=limit_s - (time.monotonic() - begun))
    close(program)
    return Evidence(
        profiles=(
            Profile(
                arm=arm,
                step_s=looking.step_s,
                steps=steps,
                rows=rows,
                left_out=len(left_out),
                left_out_s=sum(row.seconds for row in left_out),
                breaks=breaks_of(sources),
                recompiles=recompiles()[:MOST_BREAKS],
                notes=tuple(looking.notes)[:MOST_NOTES],
                bundle=bundle,
                kernels=looking.generated,
            ),
        )
    )


def _most(rows: Sequence[ProfileRow]) -> tuple[tuple[ProfileRow, ...], tuple[ProfileRow, ...]]:
    """Return the rows that a document holds, and the rest.

    Selected by seconds, then the few with the most memory.
    """
    by_time = sorted(rows, key=lambda row: row.seconds, reverse=True)
    by_memory = sorted(
        (row for row in by_time if row.alive_bytes), key=lambda row: row.alive_bytes, reverse=True
    )
    selected = {id(row) for row in (*by_memory[: MOST_ROWS // 5], *by_time)[:MOST_ROWS]}
    return tuple(row for row in by_time if id(row) in selected), tuple(
        row for row in by_time if id(row) not in selected
    )


class _Looking:
    """Looks at steps of one program.

    An error in a look that only adds to the first one is noted, and its figures are left out.
    """

    def __init__(self, *, program: Program, sources: FrameSources, context: Context) -> None:
        self.notes: list[str] = []
        self.step_s = 0.0
        self._program, self._sources, self._context = program, sources, context
        self._synchronize = synchronizer(context.device)
        self._on_gpu = context.device != "cpu"
        self._trace: Any = None
        self._kernels: Kernels | None = None
        self._graphs = Graphs()
        self._compiled = program.compiler is Compiler.DYNAMO

    def warm_up(self) -> float:
        """Return the seconds of a warm step.

        Its compilation is recorded from before the first call.
        """
        if self._compiled or may_compile():
            self._kernels = Kernels(self._sources)
            self._graphs.listen()
            self.notes += [self._kernels.note] if self._kernels.note and self._compiled else []
        calls_s = [
            time_calls(self.explained_step, calls=1, synchronize=self._synchronize)
            for _ in range(WARM_UP_CALLS)
        ]
        self._compiled = self._compiled or has_compiled()
        return calls_s[-1]

    def explained_step(self) -> None:
        """Run one step. The profiler knows it by its name."""
        self._program.step(no_mark)

    def profile(self, arm: str, steps: int) -> list[ProfileRow]:
        """Return all rows of a step."""
        batches = [steps_of(self._look(max(steps // BATCHES, 1)).events())]
        self._context.progress(arm, 1, 3)
        lines = self._quickest(self._with_lines, "no lines and no memory")
        batches.append(steps_of(self._look(max(steps // BATCHES, 1)).events()))
        self._context.progress(arm, 2, 3)
        python = self._quickest(self._with_stacks, "no stacks")
        batches.append(steps_of(self._look(max(steps // BATCHES, 1)).events()))
        self._context.progress(arm, 3, 3)
        quiet_steps = quiet([step for batch in batches for step in batch])
        if not quiet_steps:
            raise RuntimeError("torch's profiler saw no step")
        self.step_s = fmean(step.whole_s for step in quiet_steps)
        host = middle([step.host_s for step in quiet_steps], [1] * len(quiet_steps))
        return [
            *_operators(typical(quiet_steps), lines, python, self._kernels),
            *_python(host, python),
        ]

    def _quickest(self, look: Callable[[], T], lack: str) -> T | None:
        """Return the look that disturbed least.

        `None`, with a note on the missing figures, if benchmarked code does not allow such a look.
        """
        try:
            looks = sorted((look() for _ in range(TRIES)), key=lambda candidate: candidate.whole_s)
        except Exception as error:  # noqa: BLE001 - the seconds stand without it
            self.notes.append(f"{lack}: {type(error).__name__}: {error}"[:MOST_REASON])
            return None
        looks[0].least(looks[1:])
        return looks[0]

    def _look(
        self,
        steps: int,
        *,
        mode: Callable[[], Any] = nullcontext,
        stacks: bool = False,
        memory: bool = False,
    ) -> Any:
        """Run steps under torch's profiler, each annotated, except those with stacks."""
        from torch.profiler import ProfilerActivity, profile, record_function

        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        self._synchronize()
        with (
            hold_garbage_collector(),
            profile(activities=activities, with_stack=stacks, profile_memory=memory) as looked,
        ):
            for _ in range(steps):
                with nullcontext() if stacks else record_function(STEP), mode():
                    self.explained_step()
                    self._synchronize()
        return looked

    def _with_lines(self) -> Lines:
        """Profile one step with memory, and operators' lines if Python calls them one by one."""
        table: list[SourceLine] = []
        eager = not self._compiled
        mode = (lambda: annotated(table, self._sources)) if eager else nullcontext
        lines = Lines(lines=table)
        with _deep_trees():
            lines.read(
                _tree(self._look(1, mode=mode, memory=True)),
                device=_device_type(self._context.device),
            )
        return lines

    def _with_stacks(self) -> PythonTime:
        """Profile one step with Python's calls."""
        self._trace = self._look(1, stacks=True)
        python = PythonTime(sources=self._sources, entered=self.explained_step.__name__)
        with _deep_trees():
            python.read(_tree(self._trace))
        return python

    @property
    def generated(self) -> tuple[GeneratedKernel, ...]:
        """Return the kernels that were compiled so far."""
        return tuple(self._kernels.generated) if self._kernels else ()

    def bundle(self, arm: str, *, limit_s: float) -> Bundle | None:
        """Write the graph that is wrong in isolation to a file."""
        bundle = self._graphs.bundle(
            self._context.attachments, _PLAIN.sub("_", arm), limit_s=limit_s
        )
        self.notes += [self._graphs.note] if self._graphs.note and bundle is None else []
        return bundle

    def keep_trace(self, arm: str) -> None:
        """Store the step with stacks, for Perfetto or chrome://tracing."""
        if self._trace is not None:
            try:
                self._trace.export_chrome_trace(
                    str(self._context.attachments / f"trace-{_PLAIN.sub('_', arm)}.json.gz")
                )
            except (OSError, RuntimeError) as error:
                self.notes.append(f"no trace: {error}"[:MOST_REASON])


@contextmanager
def _deep_trees() -> Iterator[None]:
    """Allow trees of events as deep as Python's stack and its operators were."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _tree(looked: Any) -> Any:
    return looked.profiler.kineto_results.experimental_event_tree()


def _device_type(device: str) -> Any:
    import torch

    return torch.device(device).type


def _operators(
    figures: dict[Key, Typical],
    lines: Lines | None,
    python: PythonTime | None,
    kernels: Kernels | None,
) -> Iterator[ProfileRow]:
    """Return a row for each operator and place, and for each kernel.

    Live memory has separate rows if its seconds are unknown.
    """
    alive = dict(lines.alive) if lines else {}
    for (kind, name), figure in figures.items():
        fused = kernels.lines(name) if kernels else ()
        weights = dict(lines.seconds.get((kind, name), {})) if lines else {}
        if not any(weights) and python is not None:
            weights = dict(python.operators.get((kind, name), {}))
        for place, share in spread(weights if not fused else {}).items():
            yield ProfileRow(
                name=name,
                kind=kind,
                lines=place or fused,
                calls=figure.calls * share,
                seconds=figure.seconds * share,
                error_s=figure.error_s * share,
                alive_bytes=alive.pop(((kind, name), place), 0.0),
                laid_out=(
                    tuple(lines.laid_out.get(((kind, name), place), ()))[:MOST_LINES]
                    if lines
                    else ()
                ),
            )
    for ((kind, name), place), alive_bytes in alive.items():
        yield ProfileRow(name=name, kind=kind, lines=place, alive_bytes=alive_bytes)


def _python(host: Typical, python: PythonTime | None) -> Iterator[ProfileRow]:
    """Share out Python's time outside operators as in the step with stacks.

    A row without a name holds all of it if the stacks show nothing.
    """
    seconds = python.seconds if python else {}
    total_s = sum(seconds.values())
    for (name, place), function_s in seconds.items():
        share = function_s / total_s if total_s > 0 else 0.0
        yield ProfileRow(
            name=name,
            kind=RowKind.PYTHON,
            lines=place,
            seconds=host.seconds * share,
            error_s=host.error_s * share,
        )
    if total_s <= 0:
        yield ProfileRow(
            name="outside of operators",
            kind=RowKind.PYTHON,
            seconds=host.seconds,
            error_s=host.error_s,
        )
