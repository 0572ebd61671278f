"""Parser of log lines: names and numbers, progress bars, prefixes of ranks, lines without a step.

A line has a name, as a rule a colon or an equals sign, and a number, several of them: so write
nanoGPT (``iter 0: loss 4.2312, time 31.20ms``), torchtitan
(``step: 1 loss: 8.1234 grad_norm: 1.20``), torchtune (``Step 1 | loss:1.23 lr:2e-05``), DeepSpeed
(``steps: 10 loss: 9.5 iter time (s): 0.5``), Megatron-LM
(``iteration 1/ 9 | elapsed time per iteration (ms): 31.2 | lm loss: 1.03E+01``), fairseq,
torchvision, Keras, and what transformers prints. A carriage return ends a record as a newline does,
so each redraw of a bar is one.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_numbers import NUMBER, Commas, NotANumber, parse, scale_of

LONGEST_LINE = 100_000
MOST_NAMED_LINES = 2000
EVALUATION, AVERAGE = "evaluation", "average"
EVALUATED = ("eval_loss", "val_loss", "valid_loss", "validation_loss", "test_loss", "eval/loss", "val/loss", "test/loss")
"""Names of the losses of evaluations."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BREAK = re.compile(r"[\r\n]")
_RANK = re.compile(r"^\s*\[(?:rank|default|\d+,)\s*(\d+)\](?:<\w+>)?:?", re.IGNORECASE)
_EVALUATION = re.compile(
    r"(?<![\w/.\-])(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing)(?![\w/.\-]|\s*=)", re.IGNORECASE
)
_AVERAGE = re.compile(r"(?<![\w/.\-])averaged?(?![\w/.\-])|\|\s*train\s*\|\s*epoch", re.IGNORECASE)
_EVALUATED = re.compile(
    rf"(?<![A-Za-z])(?:(?:eval|val|valid|validation|test)[ _/\-]loss|lm loss value)[\s:=\"']{{1,40}}((?>{NUMBER}))(?![\w.])",
    re.IGNORECASE,
)
_ANY_LOSS = re.compile(rf"(?<![A-Za-z])loss[\s:=\"']{{1,40}}((?>{NUMBER}))(?![\w.])", re.IGNORECASE)
_EPOCH = re.compile(r"(?<![A-Za-z_])epoch[\s:=#\[\"']{0,20}(\d{1,9})(?![\d.]*\.\d)", re.IGNORECASE)
_OF = re.compile(r"(?:^|[\s\[|(:,])(\d{1,12})\s{0,10}/\s{0,10}(\d{1,12})(?=[\s\]|):,\[]|$)")
_BEFORE_EPOCHS = re.compile(r"epochs?[\s:=#\[]*$", re.IGNORECASE)
_NAMED = re.compile(rf"([A-Za-z][\w./\-]*(?: [A-Za-z][\w./\-]*)?)[\"']?\s?[:=][\s\"']{{0,20}}{NUMBER}", re.IGNORECASE)

Values = dict[str, tuple[float, bool]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One record of a log: at the break `line` (from 0), which people count as line `number`.

    `values` are the numbers by meaning, each with whether it is in milliseconds. `part` is what the line is of, if not of a
    training step. `position` is the step that a bar or a counter shows; `bar` says that a carriage return ended or began it.
    """

    values: Values
    line: int = 0
    number: int = 1
    part: str = ""
    epoch: int | None = None
    position: int | None = None
    rank: int | None = None
    bar: bool = False
    evaluated: float | None = None


def read_lines(text: str, asked: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]]) -> list[LogLine]:
    """Read the records of a log by the names `asked`.

    Those in `defaults` were not set by the user.

    Raises:
        Unreadable: a loss or a gradient norm is a number of two readings. It names the line.
    """
    commas, found, number = _commas(text, asked), list[LogLine](), 1
    start = 0
    for position, end in enumerate(_ends(text)):
        piece = _COLOUR.sub("", text[start : min(end, start + LONGEST_LINE)])
        bar = "\r" in (text[end : end + 1], text[start - 1 : start]) and text[end : end + 2] != "\r\n"
        try:
            line = _line(piece, asked, defaults, commas)
        except NotANumber as error:
            raise Unreadable(f"line {number}: {error}") from None
        if line is not None:
            found.append(replace(line, line=position, number=number, bar=bar))
        number += text[end : end + 1] == "\n"
        start = end + 1
    return found


def names_in(text: str) -> list[str]:
    """The names that numbers have in a log, as they come first."""
    return list(
        dict.fromkeys(match[1].strip() for line in text.split("\n")[:MOST_NAMED_LINES] for match in _NAMED.finditer(line[:2000]))
    )


def _ends(text: str) -> Iterator[int]:
    yield from (found.start() for found in _BREAK.finditer(text))
    yield len(text)


def _commas(text: str, asked: Mapping[str, Sequence[str]]) -> Commas:
    """Return the use of commas in losses and norms.

    Logs without a comma in a number need no check.
    """
    if not re.search(r"\d,\d", text):
        return Commas()
    names = (*asked["loss"], *asked["grad_norm"])
    return Commas.of([match[1] for name in names for match in _named(name).finditer(text)])


def _line(
    piece: str, asked: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]], commas: Commas
) -> LogLine | None:
    """The record of a line, without its place; nothing for a line without a loss."""
    if (flat := _key_and_value(piece)) is not None:
        piece = flat
    evaluated = _EVALUATED.search(piece) if "loss" in piece.lower() and asked["loss"][0] not in EVALUATED else None
    loss = _find(piece, "loss", asked["loss"], defaults, commas)
    if loss is None and evaluated is None and "loss" in piece.lower() and _EVALUATION.search(piece):
        evaluated = _ANY_LOSS.search(piece)  # "Test set: Average loss: 0.0546"
    if loss is None and evaluated is None:
        return None
    values: Values = {} if loss is None else {"loss": loss[0]}
    for what in asked:
        if what != "loss" and (value := _find(piece, what, asked[what], defaults, commas)) is not None:
            values[what] = value[0]
    before = piece[: loss[1]] if loss else piece
    epoch = _EPOCH.search(before)
    return LogLine(
        values=values,
        part=_part(before) if loss else EVALUATION,
        epoch=int(epoch[1]) if epoch else None,
        position=_position(piece),
        rank=_rank(piece),
        evaluated=parse(evaluated[1], Commas(decimal=True)) if evaluated else None,
    )


def _part(before: str) -> str:
    if _EVALUATION.search(before):
        return EVALUATION
    return AVERAGE if _AVERAGE.search(before) else ""


def _rank(piece: str) -> int | None:
    found = _RANK.match(piece)
    return None if found is None else int(found[1])


def _position(piece: str) -> int | None:
    """Return the count of a bar or counter, ``10/ 80``.

    The count of epochs is ignored.
    """
    for match in _OF.finditer(piece[:2000]):
        if not _BEFORE_EPOCHS.search(piece[: match.start(1)]):
            return int(match[1])
    return None


def _key_and_value(piece: str) -> str | None:
    """MLPerf's lines name what their value is of: ``{"key": "train_loss", "value": 2.3, "metadata": {…}}``."""
    begin = piece.find('{"')
    if begin < 0 or '"key"' not in piece or '"value"' not in piece:
        return None
    try:
        entry: Any = json.loads(piece[begin:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        return None
    metadata = entry.get("metadata")
    more: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    return ", ".join(f"{name}: {value}" for name, value in {entry["key"]: entry.get("value"), **more}.items())


def _find(
    piece: str, what: str, names: Sequence[str], defaults: Mapping[str, Sequence[str]], commas: Commas
) -> tuple[tuple[float, bool], int] | None:
    """The first named number with whether it is in milliseconds, and where its name begins."""
    lowered = piece.lower()
    for name in names:
        if name.lower() not in lowered:  # much faster than the pattern
            continue
        for match in _named(name).finditer(piece):
            value = _value(match, what, name, commas)
            if value is not None:
                return value, match.start()
    if what == "time" and names is defaults["time"] and "time" in lowered:
        timed = _named("time").search(piece)
        if timed and timed[2] == "ms":  # "time 31.20ms": without a unit it may be the time of day
            return (parse(timed[1]), True), timed.start()
    return None


def _value(match: re.Match[str], what: str, name: str, commas: Commas) -> tuple[float, bool] | None:
    text, unit = match[1], match[2]
    signal = what in {"loss", "grad_norm"}
    if unit == "ms" and not signal:
        return parse(text), True
    scale = scale_of(unit)
    if scale is None:
        if signal:
            raise NotANumber(f"{name} is {text}{unit}, whose unit is not known")
        return None
    return parse(text, commas if signal else Commas(decimal=False)) * scale, in_milliseconds(name)


@cache
def _named(name: str) -> re.Pattern[str]:
    """Match a name, its number, and letters after it.

    No word may be before the name: ``val loss`` is not a loss.
    """
    before, between = r"(?:^|[^A-Za-z_/\s\"'])\s*[\"']?", r"[\s:=\"']{1,40}"
    return re.compile(f"{before}{re.escape(name)}{between}((?>{NUMBER}))([A-Za-z%]{{0,12}})(?![A-Za-z0-9_])", re.IGNORECASE)


def in_milliseconds(name: str) -> bool:
    """Return whether a name says that its numbers are in milliseconds."""
    return name.endswith(("_ms", "(ms)"))
