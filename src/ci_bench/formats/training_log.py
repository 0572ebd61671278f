"""Reader of a training's steps from logs.

It reads JSON lines, transformers' trainer state, tables, and lines of a log with names and numbers.

Owns which numbers of a record are its step, loss, gradient norm and time, that each rank has each
step once, and which records are not training steps: evaluations, averages, redrawn bars. Those are
counted, and evaluations kept as a separate series. Losses are read as they were written: a log of
four decimals keeps four, and the judge allows for that.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from ci_bench.formats import training_lines
from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_lines import AVERAGE, EVALUATION, LogLine, in_milliseconds
from ci_bench.formats.training_names import (
    OF_EVALUATION,
    canonical,
    counterpart,
    is_evaluated,
    is_loss,
    is_score,
    is_statistic,
)
from ci_bench.formats.training_numbers import MILLISECONDS, NotANumber, is_whole, parse_spelled
from ci_bench.formats.training_steps import (
    LogRecord,
    Ranks,
    by_rank,
    counts,
    with_steps,
    without_repeats,
)
from ci_bench.formats.training_tables import (
    HISTORY,
    Row,
    document_of,
    flat,
    is_columns,
    is_table,
    messages_of,
    names_of,
    rows_of_columns,
    rows_of_document,
    rows_of_drawing,
    rows_of_table,
)
from ci_bench.records.spelling import meant

FORMATS = ("auto", "jsonl", "trainer_state", "log", "csv", "columns", "json")
MOST_RANKS = 1024
MOST_TIME = 1e12
MOST_BYTES = 2**53
SHOWN = 10
MOST_BANNER = 50
"""Lines among which those of other programs may come before JSON."""
PLACEHOLDERS = (-1.0, 0.0)
"""Losses that a rank writes which has none, as pipelines do."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "steps", "iter", "iteration", "global_step"),
    "loss": ("loss", "lm loss", "train/loss"),
    "grad_norm": (
        "grad_norm", "grad norm", "gnorm", "train/grad_norm", "gradient_norm", "gradient norm",
        "total_grad_norm", "global_grad_norm", "optim/total_grad_norm", "gradnorm", "norm",
    ),
    "time": ("step_time", "step_time_s", "step_time_ms", "elapsed time per iteration (ms)", "dt"),
    "clock": ("clock",),
    "cpu": ("step_cpu_time",),
    "allocated": ("allocated_bytes",),
    "peak": ("peak_allocated_bytes",),
    "tokens": ("tokens",),
    "rank": ("rank",),
}  # fmt: skip
"""Default names in records: the first one that a record has counts."""

OTHER_LOSSES = (
    "train_loss", "train_loss_step", "lm_loss", "total_loss", "train/loss_step",
    "loss_metrics/global_avg_loss", "train/CrossEntropyLoss", "train loss", "training loss",
    "training_loss", "loss train",
    "loss/train", "loss/train/total", "reduced_train_loss",
)  # fmt: skip
"""Names of losses where no record has one by the names above."""
COUNTERS = (
    "_step", "current_steps", "num_updates", "train/global_step", "trainer/global_step",
    "global_steps", "it", "update", "batch", "time/total_timesteps", "time/iterations",
    "training_iteration", "#",
)  # fmt: skip
"""Names of numbers that may count steps where no record has a step."""
_MODES = ("mode", "split", "phase", "stage", "subset", "collection")
_OF_EVALUATION = ("val", "eval", "test", "dev")


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """Content of a log: steps of each rank, evaluations, and counts of skipped records."""

    ranks: Ranks
    """Steps of each rank; all ranks have the same ones."""
    numbers: tuple[int, ...] = (0,)
    """Numbers of the ranks, in the order of `ranks`."""
    others: tuple[str, ...] = ()
    """Names of losses that are not read, and of evaluations' scores."""
    loss: str = ""
    """Name of the loss, if it is read because it is the only one; else empty."""
    evaluations: tuple[float, ...] = ()
    """Losses of evaluations, in the order of the log."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Counts of skipped records, by their description in the plural."""

    @property
    def remarks(self) -> str:
        """Describe in one clause the records that are not training steps.

        Empty if nothing was left out.
        """
        return _counted(self.left_out)


def _counted(left_out: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count:,} {what.removesuffix('s') if count == 1 else what}"
        for what, count in left_out.items()
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _FoundLosses:
    """Records of training steps in their order, and the rest of the log."""

    records: list[LogRecord]
    """Records with a loss, as the log has them."""
    evaluations: list[float]
    """Losses of evaluations, in the order of the log."""
    left_out: Counter[str]
    """Counts of skipped records, by their description in the plural."""
    others: dict[str, None] = field(default_factory=dict)
    """Names of losses that are not read, in their order."""
    loss: str = ""
    """Name of the loss, if it is read because it is the only one; else empty."""


def read(text: str, names: Mapping[str, str], form: str = "auto") -> Log:
    """Return the steps of each rank, in their order; all ranks have the same ones.

    `names` says what records call their step, loss, grad_norm, time, clock, tokens or rank, where
    it is not one of `NAMES`.

    Raises:
        Unreadable: no record has a loss, a step is there twice, ranks have different steps, or a
            value is not a number.
    """
    if form not in FORMATS:
        raise Unreadable(f"format: {form!r} is not one of {', '.join(FORMATS)}")
    text = training_lines.without_colours(text)
    form = _form(text) if form == "auto" else form
    names_by_field = {what: (names[what],) if what in names else NAMES[what] for what in NAMES}
    rows = None if form == "log" else list(_rows(text, form))
    losses = _search(text, rows, names_by_field, set_by_user="loss" in names)
    if not losses.records and form == "jsonl" and (messages := messages_of(rows or ()).strip("\n")):
        text, rows = messages, None
        losses = _search(text, rows, names_by_field, set_by_user="loss" in names)
    if not losses.records and form == "log" and (drawn := rows_of_drawing(text)):
        losses = _search(text, drawn, names_by_field, set_by_user="loss" in names)
        rows = drawn
    if not losses.records:
        raise Unreadable(_no_loss(names_by_field["loss"], text, rows, losses))
    if "loss" not in names and counts([record.loss for record in losses.records]):
        raise Unreadable(
            "the loss counts: its values are whole numbers at equal distances; name the real one"
            " (`losses.loss`)"
        )
    must_say(names, losses.records)
    scores = training_lines.scores_in(text) if rows is None else filter(is_score, names_of(rows))
    twin = counterpart(names["loss"]) if "loss" in names else None
    losses.others.update(
        dict.fromkeys(name for name in scores if not (twin and twin.fullmatch(name)))
    )
    return _log(losses)


def _search(
    text: str,
    rows: Sequence[Row] | None,
    names_by_field: Mapping[str, Sequence[str]],
    *,
    set_by_user: bool,
) -> _FoundLosses:
    """Return the records with a loss by the names of each field.

    Without such records, other names of losses are tried, then the only one of the log, unless
    the user set a name. If every loss looks like one of an evaluation, the looks are ignored.
    """
    if set_by_user:
        return _read_losses(text, rows, names_by_field, lenient=True)
    losses = _read_losses(text, rows, names_by_field)
    if losses.records:
        return losses
    evaluations = sum(losses.left_out.values())
    other_names = {**names_by_field, "loss": OTHER_LOSSES}
    other = _read_losses(text, rows, other_names)
    if other.records and len(other.records) >= evaluations:
        return other
    loss_names = [
        name for name in _names_in(text, rows) if is_loss(name) and not is_statistic(name)
    ]
    if len(loss_names) == 1 and canonical(loss_names[0]) not in names_by_field["loss"]:
        only = {**names_by_field, "loss": tuple(loss_names)}
        return replace(_read_losses(text, rows, only, lenient=True), loss=loss_names[0])
    losses = _read_losses(text, rows, names_by_field, lenient=True)
    other = losses if losses.records else _read_losses(text, rows, other_names, lenient=True)
    return other if other.records else losses


def _names_in(text: str, rows: Sequence[Row] | None) -> list[str]:
    return training_lines.names_in(text) if rows is None else names_of(rows)


def _log(losses: _FoundLosses) -> Log:
    records, left_out = losses.records, losses.left_out
    records = with_steps(records)
    total = len(records)
    records = without_repeats(records)
    if len(records) < total:
        left_out["steps that a resumed run repeated"] += total - len(records)
    numbered = any(record.step is not None for record in records)
    if numbered and (without := sum(record.step is None for record in records)):
        left_out["losses without a step"] += without
    ranks, placeholders = _without_placeholders(by_rank(records))
    for rank, value in placeholders.items():
        left_out[f"steps of rank {rank}, which writes the placeholder {value:g}"] += len(ranks[0])
    numbers = tuple(steps[0].rank for steps in ranks)
    return Log(
        ranks=ranks,
        numbers=numbers,
        others=tuple(losses.others),
        loss=losses.loss,
        evaluations=tuple(losses.evaluations),
        left_out=dict(left_out),
    )


def _without_placeholders(ranks: Ranks) -> tuple[Ranks, dict[int, float]]:
    """Return the ranks that have a loss, without those that write -1 or 0 in every step."""
    empty = {
        steps[0].rank: steps[0].loss
        for steps in ranks
        if len(steps) > 1 and {step.loss for step in steps} in _ALL_SAME
    }
    if not empty or len(empty) == len(ranks):
        return ranks, {}
    return tuple(steps for steps in ranks if steps[0].rank not in empty), empty


_ALL_SAME = tuple({value} for value in PLACEHOLDERS)


def must_say(names: Mapping[str, str], records: Sequence[LogRecord]) -> None:
    """Check that names set by the user exist.

    Otherwise a misspelt gradient norm would drop out of the gate silently.

    Raises:
        Unreadable: no record has it.
    """
    fields = {
        "step": "step",
        "grad_norm": "grad_norm",
        "time": "time_s",
        "clock": "clock_s",
        "tokens": "tokens",
    }
    for what, attribute in fields.items():
        if what in names and all(getattr(record, attribute) is None for record in records):
            raise Unreadable(f"{what}: no record with a loss has {names[what]!r}")


def _no_loss(
    tried: Sequence[str], text: str, rows: Sequence[Row] | None, losses: _FoundLosses
) -> str:
    """Explain why the log has no steps, with the names that it has."""
    names = _names_in(text, rows)
    if losses.left_out:
        others = [repr(name[:100]) for name in names if is_loss(name)][:SHOWN]
        return (
            f"it has no training step, only {_counted(losses.left_out)}; name another loss with"
            f" `losses.loss`{': it has ' if others else ''}{', '.join(others)}"
        )
    reason = f"no record of it has a loss, by the name of {' or '.join(map(repr, tried))}"
    if not names:
        return f"{reason}; it has no names with numbers"
    near = next((hint for name in tried if (hint := meant(name, sorted(names)))), "")
    shown = sorted(names, key=lambda name: ("loss" not in name.lower(), names.index(name)))
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    examples = ", ".join(repr(name[:100]) for name in shown[:SHOWN]) + more
    return f"{reason}{near}; name it with `losses.loss`: it has {examples}"


def _form(text: str) -> str:
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[")):
        first = document_of(start.partition("\n")[0])
        if (
            isinstance(first, dict)
            and HISTORY not in first
            and (start.count("\n") > 1 or rows_of_document(first) is None)
        ):
            return "jsonl"
        document = document_of(start)
        if isinstance(document, dict):
            return (
                "trainer_state"
                if HISTORY in document or rows_of_document(document) is None
                else "json"
            )
        if isinstance(document, list):
            return "json"
    begin = [line for line in start.split("\n", MOST_BANNER)[:MOST_BANNER] if line.strip()]
    if 2 * sum(isinstance(document_of(line), dict) for line in begin) > len(begin):
        return "jsonl"
    return "csv" if is_table(start) else "columns" if is_columns(start) else "log"


def _rows(text: str, form: str) -> Iterator[Row]:
    if form == "csv":
        yield from rows_of_table(text)
    elif form == "columns":
        yield from rows_of_columns(text)
    elif form in {"trainer_state", "json"}:
        document = document_of(text)
        if form == "trainer_state" and not (
            isinstance(document, dict) and isinstance(document.get(HISTORY), list)
        ):
            raise Unreadable(
                f"it is not a JSON object with a list {HISTORY!r} or with values by step"
            )
        rows = rows_of_document(document)
        if rows is None:
            raise Unreadable(
                'it is not JSON that maps steps to values, such as {"loss": {"1": 4.2, "2": 4.1}}'
            )
        yield from rows
    else:
        for number, line in enumerate(text.split("\n")):
            if line.strip():
                values = document_of(line)
                if isinstance(values, dict):
                    yield number, flat(values)
                elif line.lstrip().startswith("{") or values is not None:
                    raise Unreadable(f"line {number + 1} is not a JSON object")


def _read_losses(
    text: str,
    rows: Sequence[Row] | None,
    names_by_field: Mapping[str, Sequence[str]],
    *,
    lenient: bool = False,
) -> _FoundLosses:
    """Return the losses by these names; `lenient` falls back on an evaluation's."""
    if rows is not None:
        return _of_rows(rows, names_by_field)
    return _of_lines(text, names_by_field, lenient=lenient)


def _of_rows(rows: Iterable[Row], names_by_field: Mapping[str, Sequence[str]]) -> _FoundLosses:
    losses = _FoundLosses(records=[], evaluations=[], left_out=Counter())
    for line, row in rows:
        values = {**{canonical(name): value for name, value in row.items()}, **row}
        part = _part_of(values)
        evaluated = [] if part else _evaluated(row, names_by_field["loss"])
        record = _record(lambda what, values=values: _value(values, names_by_field[what]), line)  # type: ignore[misc]
        if record is not None and not part:
            epoch = values.get("epoch")
            epoch = epoch if isinstance(epoch, int) else _integer(epoch)
            losses.records.append(replace(record, epoch=epoch, counters=_counters_of(values)))
        if not part and (record is None or len(losses.records) <= training_lines.MOST_FIRST):
            others = _other_losses(row, names_by_field["loss"], record)
            losses.others.update(dict.fromkeys(others))
        if part == AVERAGE:
            losses.left_out["averages"] += 1
        elif part and record is not None:
            evaluated = [record.loss]
        if evaluated:
            losses.left_out["evaluations"] += 1
            losses.evaluations.extend(evaluated)
    return losses


def _evaluated(values: Mapping[str, Any], loss_names: Sequence[str]) -> list[float]:
    """Return the losses of evaluations in a row."""
    losses: list[float] = []
    twin = counterpart(loss_names[0]) if len(loss_names) == 1 else None
    for name in values:
        if name not in loss_names and (is_evaluated(name) or (twin and twin.fullmatch(name))):
            with suppress(Unreadable):  # "n/a" until the first evaluation
                losses += [value[0]] if (value := _value(values, [name])) else []
    return losses


def _other_losses(
    values: Mapping[str, Any], loss_names: Sequence[str], record: LogRecord | None
) -> list[str]:
    """Return the names of a row's losses but the one that is read, which may have two."""
    names = {canonical(name): name for name in values}
    read = next((name for name in map(canonical, loss_names) if name in names), None)
    others = (name for name in values if canonical(name) != read and is_loss(name))
    return [
        name
        for name in others
        if (value := _number_of(values[name])) is not None
        and (record is None or value != record.loss)
    ]


def _number_of(value: Any) -> float | None:
    """Return a number of a row, which may be a text; `None` for anything else."""
    try:
        return parse_spelled(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _counters_of(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of a row that may count its steps."""
    counters = {name: _integer(values[name]) for name in COUNTERS if name in values}
    return {name: value for name, value in counters.items() if value is not None}


def _integer(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if is_whole(value, 2**53) else None
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= SHOWN
        else None
    )


def _part_of(values: Mapping[str, Any]) -> str:
    """Return the part that a row names: an evaluation, or the average of a run."""
    if training_lines.WHOLE_RUN in values:
        return AVERAGE
    modes = [mode.lower() for name in _MODES if isinstance(mode := values.get(name), str)]
    evaluated = any(
        mode.startswith(_OF_EVALUATION) or OF_EVALUATION & set(re.split(r"[^a-z]+", mode))
        for mode in modes
    )
    return EVALUATION if evaluated else ""


def of_objects(
    rows: Iterable[tuple[int, Mapping[str, Any]]], names_by_field: Mapping[str, Sequence[str]]
) -> Iterator[LogRecord]:
    """Yield the records of mappings by name, each with its position, if they have a loss."""
    for line, values in rows:
        record = _record(lambda what, values=values: _value(values, names_by_field[what]), line)  # type: ignore[misc]
        if record is not None:
            yield record


def _value(values: Mapping[str, Any], names: Sequence[str]) -> tuple[float, bool] | None:
    """Return the first named number, and true if its name puts it in milliseconds.

    Numbers may be texts, as some log them.
    """
    for name in names:
        value = values.get(name, values.get(canonical(name)))
        if value is None or isinstance(value, bool):
            continue
        try:
            return (
                parse_spelled(value) if isinstance(value, str) else float(value)
            ), in_milliseconds(name)
        except (TypeError, ValueError, OverflowError) as error:
            why = (
                str(error)
                if isinstance(error, NotANumber)
                else f"{str(value)[:50]!r} is not a number"
            )
            raise Unreadable(f"{name}: {why}") from None
    return None


def _of_lines(
    text: str, names_by_field: Mapping[str, Sequence[str]], *, lenient: bool
) -> _FoundLosses:
    """Return the steps of a log.

    If every line with a loss looks like one of an evaluation, `lenient` ignores the looks.
    """
    lines = training_lines.read_lines(text, names_by_field, NAMES)
    if lenient and not any("loss" in line.values and not line.part for line in lines):
        lines = [replace(line, part="") if "loss" in line.values else line for line in lines]
    has_steps = any("step" in line.values for line in lines)
    losses = _FoundLosses(records=[], evaluations=[], left_out=Counter())
    last = None
    for line, after in zip_longest(lines, lines[1:]):
        if (after is not None and _draws_again(line, after)) or (
            last is not None and _returns(last, line)
        ):
            losses.left_out["redrawn bars"] += 1
        elif line.part == AVERAGE:
            losses.left_out["averages"] += 1
        elif line.part:
            losses.left_out["evaluations"] += 1
            in_place = (line.values["loss"][0],) if "loss" in line.values else line.evaluated
            losses.evaluations.extend(in_place)
        elif not has_steps and line.bar and line.position == 0:
            losses.left_out["bars before the first step"] += 1
        else:
            last = line
            losses.records.append(_of_line(line))
            losses.others.update(dict.fromkeys(line.others))
            if line.evaluated:
                losses.left_out["evaluations"] += 1
                losses.evaluations.extend(line.evaluated)
    return losses


def _draws_again(line: LogLine, after: LogLine) -> bool:
    """Return whether the next record is the same step of a bar, drawn again."""
    where = line.bar and after.bar and after.line == line.line + 1 and line.position is not None
    return where and (line.position, line.epoch, line.rank) == (
        after.position,
        after.epoch,
        after.rank,
    )


def _returns(last: LogLine, line: LogLine) -> bool:
    """Return whether a bar repeats the last step of its epoch after an evaluation."""
    same = (last.position, last.epoch, last.rank) == (line.position, line.epoch, line.rank)
    has_place = line.position is not None and line.epoch is not None
    return (
        has_place and same and last.bar and line.bar and last.values["loss"] == line.values["loss"]
    )


def _of_line(line: LogLine) -> LogRecord:
    values = dict(line.values)
    if line.rank is not None:
        values.setdefault("rank", (float(line.rank), False))
    try:
        record = _record(values.get, line.line)
    except Unreadable as error:
        raise Unreadable(f"line {line.number}: {error}") from None
    assert record is not None, "a line of a step has a loss"  # noqa: S101 - our own bug if not
    return replace(record, epoch=line.epoch, counters=line.counters)


def _record(value: Callable[[str], tuple[float, bool] | None], line: int) -> LogRecord | None:
    """Return a record; `None` without a loss."""
    loss = value("loss")
    if loss is None:
        return None
    step, rank, norm, time, cpu, clock, tokens = map(
        value, ("step", "rank", "grad_norm", "time", "cpu", "clock", "tokens")
    )
    allocated, peak = map(value, ("allocated", "peak"))
    return LogRecord(
        step=None if step is None else _whole(step[0], "step", 2**53),
        rank=0 if rank is None else _whole(rank[0], "rank", MOST_RANKS - 1),
        loss=loss[0],
        grad_norm=None if norm is None else norm[0],
        time_s=(
            None
            if time is None
            else _positive(time[0], "time") * (MILLISECONDS if time[1] else 1.0)
        ),
        cpu_s=None if cpu is None else _positive(cpu[0], "cpu"),
        clock_s=(
            None
            if clock is None
            else _positive(clock[0], "clock") * (MILLISECONDS if clock[1] else 1.0)
        ),
        tokens=None if tokens is None else _positive(tokens[0], "tokens"),
        allocated=(
            None if allocated is None else _whole(allocated[0], "allocated_bytes", MOST_BYTES)
        ),
        peak=None if peak is None else _whole(peak[0], "peak_allocated_bytes", MOST_BYTES),
        line=line,
    )


def _whole(value: float, what: str, most: int) -> int:
    if not is_whole(value, most):
        raise Unreadable(f"{what}: {value:g} is not a whole number from 0 to {most}")
    return int(value)


def _positive(value: float, what: str) -> float:
    if not 0 <= value <= MOST_TIME:  # any time of this age, in ms
        raise Unreadable(f"{what}: {value:g} is not a valid time or amount")
    return value
