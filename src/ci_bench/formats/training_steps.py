"""Steps of a training's log: which number counts them, and that each rank has each step once.

Logs name their steps (`step`), or count them in a bar (`10/80`), in brackets, in a line above, or
by epoch. A counter is believed if no rank has a number twice, but for iterations that restart with
each epoch.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ci_bench.formats.series import Unreadable

MOST_STEPS = 100_000
LEAST_COUNTED, MOSTLY = 5, 0.8
UNIQUE = "label"
"""A counter that restarts in no epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRecord:
    """One step as one process wrote it."""

    step: int | None
    """Number of the step; `None` if the log has none."""
    rank: int
    """Number of the process among those that train together."""
    loss: float
    """Loss of the step."""
    epoch: int | None = None
    """Epoch of the step; `None` unless steps restart with each epoch."""
    grad_norm: float | None = None
    """Norm of the gradients; `None` if the log has none."""
    time_s: float | None = None
    """Seconds that the step took; `None` if the log has no times."""
    cpu_s: float | None = None
    """CPU seconds of the process's threads in the step; `None` if the log has none."""
    clock_s: float | None = None
    """Moment of the step's end in seconds; `None` if the log has none."""
    tokens: float | None = None
    """Tokens of the step; `None` if the log has none."""
    allocated: int | None = None
    """Bytes in use after the step; `None` if the log has none."""
    peak: int | None = None
    """Most bytes in use so far on a GPU; `None` if the log has none."""
    line: int = 0
    """Position of the record in the log, from 0."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Other numbers that may count steps, by name."""

    @property
    def label(self) -> str:
        """The step as the log has it; empty if it has none."""
        if self.step is None:
            return "" if self.epoch is None else f"epoch {self.epoch}"
        return (
            str(self.step) if self.epoch is None else f"epoch {self.epoch}, iteration {self.step}"
        )


Ranks = tuple[tuple[LogRecord, ...], ...]


def counts(losses: Sequence[float]) -> bool:
    """Return whether losses count steps: whole numbers, most by the same distance above the last.

    `Train loss 12 2.48` has such a number first.
    """
    if len(losses) < LEAST_COUNTED or not all(float(loss).is_integer() for loss in losses):
        return False
    distances = Counter(later - loss for loss, later in pairwise(losses))
    distance, times = distances.most_common(1)[0]
    return distance > 0 and times >= MOSTLY * (len(losses) - 1)


def with_steps(records: Sequence[LogRecord]) -> list[LogRecord]:
    """Return the records with the steps that the log names, else with those of a counter.

    The counter is the first that all records have. Steps that occur twice may be those of several
    tasks, by the label of their lines, or there may be another counter.
    """
    has_steps = any(record.step is not None for record in records)
    if has_steps and (not all(record.rank == 0 for record in records) or _is_valid(records)):
        return list(records)
    if has_steps:
        labelled = [
            replace(record, rank=record.counters.get(UNIQUE, record.rank)) for record in records
        ]
        return labelled if _is_valid(labelled) else _counted(records, again=False) or list(records)
    if counted := _counted(records, again=True):
        return counted
    by_epoch = {(record.rank, record.epoch) for record in records if record.epoch is not None}
    if len(by_epoch) == len(records) and len({epoch for _, epoch in by_epoch}) > 1:
        return sorted(records, key=lambda record: record.epoch or 0)
    return [replace(record, epoch=None) for record in records]


def _counted(records: Sequence[LogRecord], *, again: bool) -> list[LogRecord]:
    """Return the records with the first counter that can be their step; none if none can.

    Counters other than labels may begin `again` with each epoch.
    """
    for name in records[0].counters:
        if not all(name in record.counters for record in records):
            continue
        counted = [replace(record, step=record.counters[name]) for record in records]
        once = len({(record.rank, record.step) for record in counted}) == len(counted)
        if (once or (again and name != UNIQUE)) and _is_valid(counted):
            return counted
    return []


def without_repeats(records: Sequence[LogRecord]) -> list[LogRecord]:
    """Return the records of a resumed training, each step once.

    A later attempt replaces the steps from its first one on. Steps of several processes or epochs
    are left as they are.
    """
    merged: list[LogRecord] = []
    steps = [record.step for record in records]
    if (
        None in steps
        or len(set(steps)) == len(steps)
        or {record.rank for record in records} != {records[0].rank}
    ):
        return list(records)
    resumed = False
    for record in records:
        step = record.step or 0
        if merged and resumed and step <= (merged[-1].step or 0):
            return list(records)
        if merged and step <= (merged[-1].step or 0):
            if step == merged[-1].step or step <= (merged[0].step or 0):
                return list(records)
            resumed = True
            merged = [earlier for earlier in merged if (earlier.step or 0) < step]
        elif merged and resumed:
            resumed = False
        merged.append(record)
    return merged


def _is_valid(records: Sequence[LogRecord]) -> bool:
    try:
        by_rank(records)
    except Unreadable:
        return False
    return True


def by_rank(records: Sequence[LogRecord]) -> Ranks:
    """Return the steps of each rank that wrote any, in their order.

    Raises:
        Unreadable: a step is there twice, or ranks have different steps.
    """
    if len(records) > MOST_STEPS:
        raise Unreadable(f"{len(records):,} records have a loss; at most {MOST_STEPS:,} are read")
    ranks: dict[int, list[LogRecord]] = {}
    numbered = any(record.step is not None for record in records)
    for record in records:
        if record.step is not None or not numbered:
            ranks.setdefault(record.rank, []).append(record)
    ordered = {rank: _in_order(rank, ranks[rank]) for rank in sorted(ranks)}
    lead = next(iter(ordered))
    first = [record.label for record in ordered[lead]]
    for rank, steps in ordered.items():
        if [record.label for record in steps] != first:
            raise Unreadable(
                f"rank {rank} wrote {len(steps)} steps that are not the {len(first)} of rank {lead}"
            )
    return tuple(ordered.values())


def _in_order(rank: int, records: Sequence[LogRecord]) -> tuple[LogRecord, ...]:
    steps = [record.step for record in records if record.step is not None]
    if not steps:
        return tuple(records)
    if len(set(steps)) == len(steps):
        return tuple(
            sorted(
                (replace(record, epoch=None) for record in records),
                key=lambda record: record.step or 0,
            )
        )
    epochs = _by_epoch(records)
    if epochs is not None:
        return epochs
    keys = {(record.epoch, record.step) for record in records}
    if len(keys) == len(records) or len({epoch for epoch, _ in keys}) == 1:
        records = [replace(record, epoch=None) for record in records]  # it does not matter
    line_of_step: dict[str, int] = {}
    for record in records:
        step = record.label if record.epoch is not None else f"step {record.step}"
        if step in line_of_step:
            where = f"records {line_of_step[step] + 1:,} and {record.line + 1:,}"
            raise Unreadable(
                f"{step} of rank {rank} is there twice ({where}); have one process log, keep one"
                " attempt of a run that was started again, or name its `rank` and `step`"
            )
        line_of_step[step] = record.line
    raise AssertionError("some step is there twice")


def _by_epoch(records: Sequence[LogRecord]) -> tuple[LogRecord, ...] | None:
    """Return records whose steps restart with each epoch; `None` if they do not.

    Epochs are as the log counts them, else a new one begins when steps restart. A run that was
    started again has such steps, too, but its first part is shorter.
    """
    keys = [(record.epoch, record.step) for record in records]
    if all(record.epoch is not None for record in records):
        if len(set(keys)) == len(keys):
            return tuple(sorted(records, key=lambda record: (record.epoch or 0, record.step or 0)))
        if len({epoch for epoch, _ in keys}) > 1:
            return None
    epoch, before, first, counted = 1, -1, records[0].step or 0, []
    starts = {first}
    for record in records:
        step = record.step or 0
        if step <= before:
            if step == before or step > first:
                return None
            epoch += 1
            starts.add(step)
        before = step
        counted.append(replace(record, epoch=epoch))
    lengths = Counter(record.epoch for record in counted)
    again = len(starts) == 1 and max(lengths.values()) > lengths[1] + 1
    return None if again else tuple(counted)
