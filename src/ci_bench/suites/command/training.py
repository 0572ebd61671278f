"""A command that trains: its reported steps become times and evidence on loss parity.

The command runs unchanged, with its own seeds. Weights of an unknown program cannot be perturbed,
so the effect of rounding on its losses is measured from outside. The same command runs in
environments that make torch sum in another order (`Losses.rounding`). It runs once more in each
launch, which shows differences between repetitions. All runs are of one seed, 0, and of the same
unknown data. Imports no torch.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ci_bench.formats.training_log import Log
from ci_bench.formats.training_steps import LogRecord
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import PEAK_ALLOCATED, STEP_TIME
from ci_bench.records.results import (
    MISSING,
    ArmMasks,
    Lane,
    Launch,
    Masks,
    Metric,
    NonFinite,
    ParityEvidence,
    RankSeries,
    Role,
    Trace,
)
from ci_bench.suites.command import ALLOCATED_GROWTH, STEPS_TO_TARGET, TIME_TO_TARGET
from ci_bench.suites.command.selecting import BadOutput
from ci_bench.suites.shared.worker.growth import growth

ROUNDING_VARIABLE = "CI_BENCH_ROUNDING"
"""The number of a run's environment, from 1: programs may shake their own numbers by it."""
MOST_SAMPLES = 1000
MOST_REPEATS = 8
MOST_READING = 1000
MOST_OTHERS = 5
LATEST = 5
"""Steps whose mean loss is compared with a target: one batch may be easy."""
LEAST_READINGS = 8
"""Readings between steps after those that warm up; fewer do not show growth."""
MOST_NAMED = 16
"""Ranks that get separate facts."""
AS_IT_IS, OWN_DATA = "as_it_is", "own"

Ranks = Sequence[Sequence[LogRecord]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceKind:
    """The purpose of a run, and the circumstances (`start`) in which it ran."""

    role: Role
    start: str = AS_IT_IS
    index: int = 0


def evidence(traces: Sequence[Trace], *, candidates: Sequence[str]) -> ParityEvidence:
    """Return the evidence on losses from runs of a program whose weights were not perturbed."""
    masks = [
        ArmMasks(arm=arm, masks=Masks.ALIGNED, detail="not probed: as the commands draw them")
        for arm in candidates
    ]
    steps = max((len(trace.loss) for trace in traces), default=1)
    return ParityEvidence(
        precision="own",
        epsilon=0.0,
        steps_per_epoch=steps,
        evaluation_rows=0,
        masks=tuple(masks),
        traces=tuple(traces),
        own_program=True,
    )


def trace_of(log: Log, arm: str, kind: TraceKind) -> Trace:
    """Return loss and gradient norm of each step: the mean over ranks, and each rank's if several.

    A norm is that of the first rank. Steps without one are marked holes.
    """
    ranks = log.ranks
    losses = [[record.loss for record in steps] for steps in ranks]
    norms = [[record.grad_norm for record in steps] for steps in ranks]
    loss = [statistics.fmean(step) for step in zip(*losses, strict=True)]
    norm = norms[0] if any(value is not None for value in norms[0]) else []
    return Trace(
        arm=arm,
        role=kind.role,
        seed=0,
        loss=tuple(map(_finite, loss)),
        grad_norm=tuple(map(_finite, norm)),
        start=kind.start,
        data=OWN_DATA,
        index=kind.index,
        non_finite=(*_holes("loss", loss), *_holes("grad_norm", norm)),
        ranks=_series(losses, norms) if len(ranks) > 1 else None,
        steps=tuple(record.label for record in ranks[0]) if ranks[0][0].label else (),
        evaluations=tuple(map(_finite, log.evaluations)),
        reading=_reading(log),
    )


def _reading(log: Log) -> str:
    """Describe in words which ranks were read, and what was left out."""
    ranks = f"rank {log.numbers[0]}" if len(log.ranks) == 1 else f"{len(log.ranks)} ranks"
    shown = ", ".join(map(repr, log.others[:MOST_OTHERS])) + (
        " …" if len(log.others) > MOST_OTHERS else ""
    )
    parts = [
        ranks,
        f"the loss is {log.loss!r}" if log.loss else "",
        f"not compared: {shown}" if shown else "",
        f"not training steps: {log.remarks}" if log.left_out else "",
    ]
    return "; ".join(filter(None, parts))[:MOST_READING]


def _series(
    losses: Sequence[Sequence[float]], norms: Sequence[Sequence[float | None]]
) -> RankSeries:
    complete = all(norm is not None for rank in norms for norm in rank)
    rank_norms = (
        tuple(tuple(None if norm is None else _finite(norm) for norm in rank) for rank in norms)
        if complete
        else ()
    )
    return RankSeries(
        own_rows=True,
        loss=tuple(tuple(map(_finite, rank)) for rank in losses),
        grad_norm=rank_norms,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None


def _holes(signal: str, values: Sequence[float | None]) -> list[NonFinite]:
    return [
        NonFinite(signal=signal, step=step, value=MISSING if value is None else str(value))
        for step, value in enumerate(values)
        if _finite(value) is None
    ]


def step_times(ranks: Ranks, stamps: Sequence[float] = ()) -> tuple[tuple[float, ...], ...]:
    """Return the seconds of each step of each rank; empty if they are unknown.

    They come from the records' own durations, else from differences of their clock, else from the
    arrival of each line (`stamps`). In the last case the first step has no start, and is left out;
    steps that arrived together share the time since the arrival before them.
    """
    records = [record for steps in ranks for record in steps]
    if all(record.time_s is not None for record in records):
        return tuple(tuple(record.time_s or 0.0 for record in steps) for steps in ranks)
    if all(record.clock_s is not None for record in records):
        return tuple(_differences([record.clock_s or 0.0 for record in steps]) for steps in ranks)
    if stamps and max(record.line for record in records) < len(stamps):
        rank_times = [_shared([stamps[record.line] for record in steps]) for steps in ranks]
        common = min(map(len, rank_times))
        return tuple(times[len(times) - common :] for times in rank_times) if common else ()
    return ()


def _shared(arrivals: Sequence[float]) -> tuple[float, ...]:
    """Return the seconds of each step after those that arrived first.

    A reader that is late finds several lines in a pipe.
    """
    together = Counter(arrivals)
    times: list[float] = []
    for earlier, later in pairwise(together):
        times += [(later - earlier) / together[later]] * together[later]
    return tuple(times)


def _differences(moments: Sequence[float]) -> tuple[float, ...]:
    return tuple(later - earlier for earlier, later in pairwise(moments))


def timing(
    ranks: Ranks, times: Sequence[Sequence[float]], arm: str, *, launch: int, warmup_steps: int
) -> tuple[Metric, ...]:
    """Return the time of a step as a metric: of each step that of the slowest rank.

    Raises:
        BadOutput: no step is left after those that warm up, or a step took no time.
    """
    slowest = [max(step) for step in zip(*times, strict=True)]
    warmup, values = slowest[:warmup_steps], slowest[warmup_steps:]
    if not values:
        raise BadOutput(
            f"losses.warmup_steps: {len(slowest)} steps have a time, and none is left after the"
            f" first {warmup_steps}"
        )
    if min(slowest) <= 0:
        raise BadOutput(
            f"step {slowest.index(min(slowest))} has no positive duration; check the field that"
            " holds its time"
        )
    sample = Launch(launch=launch, values=_thinned(values), warmup=_thinned(warmup))
    return (STEP_TIME.of(arm, sample, lane=Lane.WALL, items=_items(ranks)),)


def to_target(
    ranks: Ranks, times: Sequence[Sequence[float]], arm: str, *, launch: int, target: float | None
) -> tuple[Metric, ...]:
    """Return the steps, and seconds if known, until the loss is `target` or less.

    The loss is the mean of `LATEST` steps over all ranks.

    Empty if it never is. The seconds are those of the slowest rank in each step. The first step is
    left out if its time is unknown.
    """
    losses = [sum(record.loss for record in step) / len(step) for step in zip(*ranks, strict=True)]
    means = (sum(losses[end - LATEST : end]) / LATEST for end in range(LATEST, len(losses) + 1))
    reached = (
        None
        if target is None
        else next((step for step, loss in enumerate(means, LATEST) if loss <= target), None)
    )
    if reached is None:
        return ()
    steps = STEPS_TO_TARGET.of(
        arm, Launch(launch=launch, values=(float(reached),)), lane=Lane.COUNTERS
    )
    slowest = [max(step) for step in zip(*times, strict=True)]
    untimed = len(losses) - len(slowest)
    if not slowest or untimed > 1:
        return (steps,)
    sample = Launch(launch=launch, values=(sum(slowest[: reached - untimed]),))
    return (steps, TIME_TO_TARGET.of(arm, sample, lane=Lane.WALL))


def memory(ranks: Ranks, arm: str, *, launch: int, warmup_steps: int) -> tuple[Metric, ...]:
    """Return the growth of allocated memory over the steps, and on a GPU torch's peak.

    Each is of the rank with the most.
    """
    metrics = []
    allocated = [
        [record.allocated for record in steps[warmup_steps:] if record.allocated is not None]
        for steps in ranks
    ]
    if min(map(len, allocated)) >= LEAST_READINGS:
        sample = Launch(launch=launch, values=(max(map(growth, allocated)),))
        metrics.append(ALLOCATED_GROWTH.of(arm, sample, lane=Lane.COUNTERS))
    if peaks := [record.peak for steps in ranks for record in steps if record.peak]:
        sample = Launch(launch=launch, values=(float(max(peaks)),))
        metrics.append(PEAK_ALLOCATED.of(arm, sample, lane=Lane.COUNTERS))
    return tuple(metrics)


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(values[:: -(-len(values) // MOST_SAMPLES) or 1])


def _items(ranks: Ranks) -> int | None:
    """Return the tokens of a step, of all ranks, if every step has the same number."""
    sums = {sum(record.tokens or 0.0 for record in step) for step in zip(*ranks, strict=True)}
    tokens = sums.pop()
    return int(tokens) if not sums and tokens >= 1 else None


def facts(ranks: Ranks, times: Sequence[Sequence[float]]) -> Mapping[str, Fact]:
    """Return facts on the length of the training, and on how slow each rank is by its own clock.

    If known, they include the time that each rank computes in a step. This distinguishes ranks that
    wait for each other if waiting takes no processor time: on the CPU.
    """
    training_facts: dict[str, Fact] = {"training_steps": len(ranks[0])}
    if len(ranks) > 1:
        training_facts["training_ranks"] = len(ranks)
        typical = [statistics.median(rank) for rank in times if rank]
        training_facts |= {
            f"rank_{rank}_step_s": seconds for rank, seconds in enumerate(typical[:MOST_NAMED])
        }
        computed = [
            [record.cpu_s for record in steps if record.cpu_s is not None] for steps in ranks
        ]
        if all(computed):
            training_facts |= {
                f"rank_{rank}_cpu_s": statistics.median(cpu_seconds)
                for rank, cpu_seconds in enumerate(computed[:MOST_NAMED])
            }
    return training_facts
