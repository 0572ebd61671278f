"""What a training said of its steps: JSON lines, transformers' trainer state, or lines of a log with names and numbers.

Owns which numbers of a record are its step, loss, gradient norm and time, and that each rank has each step once. Read are losses
as they were written: a log of four decimals keeps four, and the judge allows for that. What is not a step (evaluations, banners,
progress) is left out: a record is a step if it has a loss.

Lines of a log are a name, as a rule a colon or an equals sign, and a number, several on a line: so write nanoGPT
(``iter 0: loss 4.2312, time 31.20ms``), torchtitan (``step:  1  loss:  8.1234  grad_norm:  1.20``), Megatron-LM
(``iteration 1/ 9 | elapsed time per iteration (ms): 31.2 | lm loss: 1.03E+01``), and what transformers prints.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ci_bench.formats.series import Unreadable

FORMATS = ("auto", "jsonl", "trainer_state", "log")
MOST_STEPS = 100_000
MOST_RANKS = 1024
LONGEST_LINE = 100_000
MILLISECONDS = 1e-3
HISTORY = "log_history"

NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "iter", "iteration", "global_step"),
    "loss": ("loss", "lm loss", "train/loss"),
    "grad_norm": ("grad_norm", "grad norm", "gnorm", "train/grad_norm"),
    "time": ("step_time", "step_time_s", "step_time_ms", "elapsed time per iteration (ms)", "dt"),
    "clock": ("clock",),
    "cpu": ("step_cpu_time",),
    "tokens": ("tokens",),
    "rank": ("rank",),
}
"""What records call things, where nobody says it: the first name that a record has."""

_NUMBER = r"[-+]?(?:nan|inf(?:inity)?|\d[\d,]*\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One step as one process wrote it, at `line` (from 0).

    `time_s` is what it took, `cpu_s` what the process's threads computed meanwhile, `clock_s` when it ended.
    """

    step: int | None
    rank: int
    loss: float
    grad_norm: float | None = None
    time_s: float | None = None
    cpu_s: float | None = None
    clock_s: float | None = None
    tokens: float | None = None
    line: int = 0


def read(text: str, names: Mapping[str, str], form: str = "auto") -> tuple[tuple[Record, ...], ...]:
    """The steps of each rank, in their order; all ranks have the same ones.

    `names` says what records call their step, loss, grad_norm, time, clock, tokens or rank, where it is not one of `NAMES`.

    Raises:
        Unreadable: no record has a loss, a step is there twice, ranks have different steps, or a value is no number.
    """
    if form not in FORMATS:
        raise Unreadable(f"format: {form!r} is none of {', '.join(FORMATS)}")
    form = _form(text) if form == "auto" else form
    asked = {what: (names[what],) if what in names else NAMES[what] for what in NAMES}
    found = list(_of_log(text, asked) if form == "log" else of_objects(_objects(text, form), asked))
    if not found:
        raise Unreadable(f"no record of it has a loss, by the name of {' or '.join(map(repr, asked['loss']))}")
    must_say(names, found)
    return by_rank(found)


def must_say(names: Mapping[str, str], records: Sequence[Record]) -> None:
    """What somebody named is there: a misspelt gradient norm would leave the gate without a word.

    Raises:
        Unreadable: no record has it.
    """
    fields = {"step": "step", "grad_norm": "grad_norm", "time": "time_s", "clock": "clock_s", "tokens": "tokens"}
    for what, field in fields.items():
        if what in names and all(getattr(record, field) is None for record in records):
            raise Unreadable(f"{what}: no record with a loss has {names[what]!r}")


def _form(text: str) -> str:
    start = text.lstrip()
    if not start.startswith("{"):
        return "log"
    first = _object(start.partition("\n")[0])
    if isinstance(first, dict):
        return "trainer_state" if HISTORY in first else "jsonl"
    return "trainer_state" if isinstance(_object(start), dict) else "log"


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def of_objects(rows: Iterable[tuple[int, Mapping[str, Any]]], asked: Mapping[str, Sequence[str]]) -> Iterator[Record]:
    """The records of mappings by name, each with its position; those without a loss are left out."""
    for line, values in rows:
        record = _record(lambda what, values=values: _value(values, asked[what]), line)  # type: ignore[misc]
        if record is not None:
            yield record


def _objects(text: str, form: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if form == "trainer_state":
        whole = _object(text)
        history = whole.get(HISTORY) if isinstance(whole, dict) else None
        if not isinstance(history, list):
            raise Unreadable(f"it is no JSON object with a list {HISTORY!r}")
        yield from ((number, values) for number, values in enumerate(history) if isinstance(values, dict))
        return
    for number, line in enumerate(text.split("\n")):
        if line.strip():
            values = _object(line)
            if not isinstance(values, dict):
                raise Unreadable(f"line {number + 1} is no JSON object")
            yield number, values


def _value(values: Mapping[str, Any], names: Sequence[str]) -> tuple[float, bool] | None:
    """The first named number, and whether it is in milliseconds, which its name says; numbers may be texts, as some log them."""
    for name in names:
        value = values.get(name)
        if value is None or isinstance(value, bool):
            continue
        try:
            return float(value), _in_milliseconds(name)
        except (TypeError, ValueError, OverflowError):
            raise Unreadable(f"{name}: {str(value)[:50]!r} is no number") from None
    return None


def _of_log(text: str, asked: Mapping[str, Sequence[str]]) -> Iterator[Record]:
    for number, raw in enumerate(text.split("\n")):
        line = _COLOUR.sub("", raw[:LONGEST_LINE])
        record = _record(lambda what, line=line: _logged(line, what, asked[what]), number)  # type: ignore[misc]
        if record is not None:
            yield record


def _logged(line: str, what: str, names: Sequence[str]) -> tuple[float, bool] | None:
    for name in names:
        found = _named(name).search(line)
        if found:
            return float(found[1].replace(",", "")), bool(found[2]) or _in_milliseconds(name)
    if what == "time" and names is NAMES["time"]:
        found = _named("time").search(line)
        if found and found[2]:  # "time 31.20ms": without a unit it may be the time of day
            return float(found[1].replace(",", "")), True
    return None


@cache
def _named(name: str) -> re.Pattern[str]:
    """A name that no word stands before (``val loss`` is no loss), and its number, with ``ms`` behind it or not."""
    before, between, after = r"(?:^|[^A-Za-z_/\s\"'])\s*[\"']?", r"[\s:=\"']{1,40}", r"(?:(ms)|s|%)?(?![A-Za-z0-9_])"
    return re.compile(f"{before}{re.escape(name)}{between}({_NUMBER}){after}", re.IGNORECASE)


def _in_milliseconds(name: str) -> bool:
    return name.endswith(("_ms", "(ms)"))


def _record(value: Callable[[str], tuple[float, bool] | None], line: int) -> Record | None:
    """A record of whatever has a loss."""
    loss = value("loss")
    if loss is None:
        return None
    step, rank, norm, time, cpu, clock, tokens = map(value, ("step", "rank", "grad_norm", "time", "cpu", "clock", "tokens"))
    return Record(
        step=None if step is None else _whole(step[0], "step", 2**53),
        rank=0 if rank is None else _whole(rank[0], "rank", MOST_RANKS - 1),
        loss=loss[0],
        grad_norm=None if norm is None else norm[0],
        time_s=None if time is None else _positive(time[0], "time") * (MILLISECONDS if time[1] else 1.0),
        cpu_s=None if cpu is None else _positive(cpu[0], "cpu"),
        clock_s=None if clock is None else _positive(clock[0], "clock") * (MILLISECONDS if clock[1] else 1.0),
        tokens=None if tokens is None else _positive(tokens[0], "tokens"),
        line=line,
    )


def _whole(value: float, what: str, most: int) -> int:
    if not (0 <= value <= most and value == int(value)):
        raise Unreadable(f"{what}: {value:g} is no whole number from 0 to {most}")
    return int(value)


def _positive(value: float, what: str) -> float:
    if not (math.isfinite(value) and 0 <= value <= 1e12):  # noqa: PLR2004 - any time of this age, in ms
        raise Unreadable(f"{what}: {value:g} is no time or amount")
    return value


def by_rank(records: Sequence[Record]) -> tuple[tuple[Record, ...], ...]:
    """The steps of each rank, in their order.

    Raises:
        Unreadable: a step is there twice, or ranks have different steps.
    """
    if len(records) > MOST_STEPS:
        raise Unreadable(f"{len(records):,} records have a loss, and {MOST_STEPS:,} are the most that are read")
    ranks: dict[int, list[Record]] = {}
    numbered = any(record.step is not None for record in records)
    for record in records:
        if record.step is not None or not numbered:
            ranks.setdefault(record.rank, []).append(record)
    whole = [_in_order(rank, ranks.get(rank, [])) for rank in range(max(ranks) + 1)]
    first = [record.step for record in whole[0]]
    for rank, steps in enumerate(whole):
        if [record.step for record in steps] != first:
            raise Unreadable(f"rank {rank} wrote {len(steps)} steps that are not the {len(first)} of rank 0")
    return tuple(whole)


def _in_order(rank: int, records: Sequence[Record]) -> tuple[Record, ...]:
    steps = [record.step for record in records if record.step is not None]
    twice = next((step for before, step in zip(sorted(steps), sorted(steps)[1:], strict=False) if before == step), None)
    if twice is not None:
        raise Unreadable(f"step {twice} of rank {rank} is there twice")
    return tuple(sorted(records, key=lambda record: record.step or 0)) if steps else tuple(records)
