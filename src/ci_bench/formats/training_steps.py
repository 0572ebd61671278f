"""Steps of a training's log: which number counts them, and that each rank has each step once.

Logs name their steps (`step`), or count them in a bar (`10/80`), in brackets, in a line above, or
by epoch. A counter is believed if no rank has a number twice, but for iterations that restart with
each epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ci_bench.formats.series import Unreadable

MOST_STEPS = 100_000
UNIQUE = "label"
"""A counter that restarts in no epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRecord:
    """One step as one process wrote it, at `line` (from 0).

    `epoch` is there where steps restart with each. `time_s` is what it took, `cpu_s` what the
    process's threads computed meanwhile, `clock_s` when it ended. `allocated` are the bytes in use
    after it, `peak` the most so far on a GPU. `counters` are other numbers that may count steps, by
    name.
    """

    step: int | None
    rank: int
    loss: float
    epoch: int | None = None
    grad_norm: float | None = None
    time_s: float | None = None
    cpu_s: float | None = None
    clock_s: float | None = None
    tokens: float | None = None
    allocated: int | None = None
    peak: int | None = None
    line: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The step as the log has it; empty if it has none."""
        if self.step is None:
            return "" if self.epoch is None else f"epoch {self.epoch}"
        return (
            str(self.step) if self.epoch is None else f"epoch {self.epoch}, iteration {self.step}"
        )


Ranks = tuple[tuple[LogRecord, ...], ...]


def with_steps(records: Sequence[LogRecord]) -> list[LogRecord]:
    """The records with the steps that the log names, else with those of the first counter that all records have.

    Steps that are there twice may be those of several tasks, by the label of their lines, or there
    may be another counter.
    """
    named = any(record.step is not None for record in records)
    if named and (not all(record.rank == 0 for record in records) or _is_valid(records)):
        return list(records)
    if named:
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
    """The records with the first counter that can be their step; none if none can.

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
    """The records of a training that was resumed, once: a later attempt replaces the steps from its first one on.

    Steps of several processes or epochs are left as they are.
    """
    kept: list[LogRecord] = []
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
        if kept and resumed and step <= (kept[-1].step or 0):
            return list(records)
        if kept and step <= (kept[-1].step or 0):
            if step == kept[-1].step or step <= (kept[0].step or 0):
                return list(records)
            resumed = True
            kept = [earlier for earlier in kept if (earlier.step or 0) < step]
        elif kept and resumed:
            resumed = False
        kept.append(record)
    return kept


def _is_valid(records: Sequence[LogRecord]) -> bool:
    try:
        by_rank(records)
    except Unreadable:
        return False
    return True


def by_rank(records: Sequence[LogRecord]) -> Ranks:
    """The steps of each rank that wrote any, in their order.

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
    whole = {rank: _in_order(rank, ranks[rank]) for rank in sorted(ranks)}
    lead = next(iter(whole))
    first = [record.label for record in whole[lead]]
    for rank, steps in whole.items():
        if [record.label for record in steps] != first:
            raise Unreadable(
                f"rank {rank} wrote {len(steps)} steps that are not the {len(first)} of rank {lead}"
            )
    return tuple(whole.values())


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
    seen: dict[int, int] = {}
    for record in records:
        if record.step in seen:
            where = f"records {seen[record.step] + 1:,} and {record.line + 1:,}"
            raise Unreadable(
                f"step {record.step} of rank {rank} is there twice ({where}); have one process log,"
                " or name its `rank` and `step`"
            )
        seen[record.step or 0] = record.line
    raise AssertionError("some step is there twice")


def _by_epoch(records: Sequence[LogRecord]) -> tuple[LogRecord, ...] | None:
    """Records whose steps restart with each epoch: as the log counts epochs, else as often as steps begin again."""
    keys = [(record.epoch, record.step) for record in records]
    if all(record.epoch is not None for record in records) and len(set(keys)) == len(keys):
        return tuple(sorted(records, key=lambda record: (record.epoch or 0, record.step or 0)))
    epoch, before, first, found = 1, -1, records[0].step or 0, []
    for record in records:
        step = record.step or 0
        if step <= before:
            if step == before or step > first:
                return None
            epoch += 1
        before = step
        found.append(replace(record, epoch=epoch))
    return tuple(found)
