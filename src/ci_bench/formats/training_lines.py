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
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_names import (
    counterpart,
    is_loss,
    is_metric,
    is_score,
)
from ci_bench.formats.training_numbers import NUMBER, Commas, NotANumber, parse, scale_of
from ci_bench.formats.training_steps import UNIQUE

LONGEST_LINE = 100_000
SEPARATOR = r"(?:\s{1,3}is)?[\s:=\"']{1,40}"
"""Text between a name and its number: ``loss: 2.3``, ``loss is 2.3``."""
MOST_NAMED_LINES, MOST_FIRST = 2000, 20
EVALUATION, AVERAGE = "evaluation", "average"
WHOLE_RUN = "train_runtime"
"""A name of transformers' record of the whole run."""
_COUNTS = {"step", "rank"}
"""Numbers without a unit: ``Steps: 5%`` is not a step."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BREAK = re.compile(r"[\r\n]")
_LEVEL = re.compile(r"\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?)\b|(?<=\d)Z(?=\s)")
"""The level or the end of the time before a message: no word of a name."""
_AMOUNT = re.compile(
    r"(?<![\w.,])([-+]?(?:\d[\d.,]*[A-Za-z%]{1,4}(?:/\w{1,7})?|nan|inf))\s(?=\w)", re.IGNORECASE
)
"""A number with its unit, or none: it ends before the next name, as in ``loss nan step 3``."""
_WRAPPED = re.compile(
    r"\b(?:tensor|[Aa]rray|DeviceArray|(?:np\.|numpy\.|jnp\.|torch\.)?float\d{0,2})\(\[?(?=[-+.\dni])"
)
"""A number as the representation of a tensor or scalar: ``tensor(2.3, device='cuda:0')``."""
_RANK = re.compile(r"^\s*(?:\[(?:rank|default|gpu)\s*(\d+)\]|\[\d+,\s*(\d+)\]<\w+>)", re.IGNORECASE)
_OF_RANKS = re.compile(r"\[[\w.]{1,40}\.py:\d{1,6}\]\s\((\d{1,4})/\d{1,4}\)\s")
"""The rank after the place in the code, as icefall logs it: ``[train.py:898] (0/4) Epoch 1``."""
_NUMBERED = re.compile(
    r"(?<![\w/.\-])(?!(?:global_)?(?:step|iter|iteration|epoch|batch|update|rank|gpu)_)[A-Za-z]\w{0,30}_\d{1,3}$",
    re.IGNORECASE,
)
"""A word that is a part of the name after it: ``mtp_1 loss`` is not the loss."""
_LABEL = re.compile(r"^\s*(\d{1,9}):\s")
"""The number of the task, as ``srun --label`` prints it, or that of the step."""
_EVALUATION = re.compile(
    r"(?<![\w/.\-])(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing)(?![\w/.\-]|\s*=)"
    r"|(?<![\w/.\-])(?:dev\s?(?::\s(?!\d)|$)|saving dict for global step)"
    r"|(?<![A-Za-z])(?:collection|mode|split|phase|stage|subset)[=:][\"']?\w{0,20}_(?:eval|val|test)",
    re.IGNORECASE,
)
_AVERAGE = re.compile(
    r"(?<![\w/.\-])averaged?(?![\w/.\-])|\|\s*train\s*\|\s*epoch|epoch results:"
    r"|epoch\s\d{1,9}\s(?:done|finished|completed?)(?!\w)",
    re.IGNORECASE,
)
_EVALUATED = re.compile(
    r"(?<![A-Za-z])((?:(?:eval|val|valid|validation|test)(?:_?\d{1,2})?(?:'s)?[ _/\-]"
    r"|dev(?:_?\d)?[_/\-])"
    r"(?:[\w./\-]{0,80}?[ _/.\-]|m)?(?:log)?loss(?:_(?!scale|weight)[a-z]\w{0,20})?"
    r"|\w{1,20} loss value)"
    rf"{SEPARATOR}((?>{NUMBER}))(?![\w.])",
    re.IGNORECASE,
)
_ANY_LOSS = re.compile(rf"(?<![A-Za-z])loss{SEPARATOR}((?>{NUMBER}))(?![\w.])", re.IGNORECASE)
_EPOCH = re.compile(r"(?<![A-Za-z_])epoch[\s:=#\[\"']{0,20}(\d{1,9})(?![\d.]*\.\d)", re.IGNORECASE)
_TRAIN_EPOCH = re.compile(r"(?<![\w/])train:\s(\d{1,9})\s\[", re.IGNORECASE)
"""Epoch before the steps of it, as timm prints them: ``Train: 0 [  50/1251 (  4%)]``."""
_OF = re.compile(
    r"(?:^|[\s\[|(:,'\"])(\d{1,12})\s{0,10}/\s{0,10}(\d{1,12})(?!\s\d\d:\d\d)(?=[\s\]|):,\['\"]|$)"
)
"""A count of all, but no date before a time."""
_EPOCH_AND_STEP = re.compile(r"\[(\d{1,9})/\d{1,9}\]\s?\[(\d{1,12})/\d{1,12}(?=\]|$)")
"""Counts of epochs and of steps: ``Train: [0/300][10/1251]``."""
_BEFORE_EPOCHS = re.compile(r"epochs?[\s:=#\[]*$", re.IGNORECASE)
_BRACKET = re.compile(r"(?:^|[\s\]])\[(?:step\s)?(\d{1,12})\](?=[\s:]|$)", re.IGNORECASE)
_PAIR = re.compile(r"^\s*\[(\d{1,9}),\s*(\d{1,12})\](?!<)")
"""Epoch and step, as PyTorch's tutorials print them: ``[1,  2000] loss: 2.173``."""
_COUNTED = (
    r"(step|iteration|iter|itr|it|update|num_updates|up\.|batch|batch_idx)s?"
    r"[\s:=#\[\"']{1,20}(\d{1,12})(?!\w|[.,]\d)"
)
_WORD = re.compile(
    rf"(?<![\w/.\-])(?<!micro )(?<!mini )(?<!val )(?<!eval )(?<!test ){_COUNTED}", re.IGNORECASE
)
_HEADER = re.compile(
    rf"(?<![\w/.\-])(?<!micro )(?<!mini ){_COUNTED}(?:\s?(?:/|of)\s?\d+)?\s*(?=[\])|:,;=\-]|$)",
    re.IGNORECASE,
)
"""The step of a record whose loss is on a later line."""
_EPOCH_HEADER = re.compile(
    r"^\W{0,20}epoch[\s:#\[]{0,10}(\d{1,9})(?:\s?(?:/|of)\s?\d+)?\W*$", re.IGNORECASE
)
_NAMED = re.compile(
    r"([A-Za-z][\w./\-]*(?:'s)?(?:"
    rf" [A-Za-z][\w./\-]*)?)[\"']?(?:\s?[:=]|(?<=loss)(?:\sis)?)[\s\"']{{0,20}}"
    rf"(?<=[\s:=\"']){NUMBER}",
    re.IGNORECASE,
)

_MAY_BE_EVALUATED = re.compile(r"val|test|dev", re.IGNORECASE)

Values = dict[str, tuple[float, bool]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One record of a log."""

    values: Values
    """Numbers by field, each with true if it is in milliseconds."""
    line: int = 0
    """Number of the break that ends the record, from 0; a carriage return is a break."""
    number: int = 1
    """Number of the line as people count it, from 1."""
    part: str = ""
    """``evaluation`` or ``average``; empty for a training step."""
    epoch: int | None = None
    """Epoch of the record; `None` if the line has none."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Numbers of the line that may count its steps, by name, the likeliest first."""
    rank: int | None = None
    """Number of the process in the line's prefix; `None` without one."""
    bar: bool = False
    """True if a carriage return ended or began the record."""
    evaluated: tuple[float, ...] = ()
    """Losses of evaluations in the line."""
    place: int = -1
    """Place of the loss in the line; -1 without one."""
    others: tuple[str, ...] = ()
    """Names of other losses in the line; those after the first lines are not looked for."""

    @property
    def position(self) -> int | None:
        """The count of a bar, ``10/80``."""
        return self.counters.get("of")


@dataclass(kw_only=True, slots=True)
class _Block:
    """Step, epoch and gradient norm of a record of several lines, and its place among all."""

    step: int | None = None
    """Number of the step; `None` before a line has it."""
    epoch: int | None = None
    """Number of the epoch; `None` before a line has it."""
    norm: tuple[float, bool] | None = None
    """Gradient norm, as `Values` has it; `None` before a line has it."""
    place: int | None = None
    """Place of the record among all; `None` before its loss."""
    others: dict[str, None] = field(default_factory=dict)
    """Names of losses in lines without the one that is read."""


def read_lines(
    text: str, names_by_field: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]]
) -> list[LogLine]:
    """Read the records of a log by the names of each field.

    Those in `defaults` were not set by the user.

    Raises:
        Unreadable: a loss or a gradient norm is a number of two readings. It names the line.
    """
    commas, records, number = _commas(text, names_by_field), list[LogLine](), 1
    start, block = 0, _Block()
    for position, end in enumerate(_ends(text)):
        piece = _strip_markup(text[start : min(end, start + LONGEST_LINE)])
        bar = (
            "\r" in (text[end : end + 1], text[start - 1 : start]) and text[end : end + 2] != "\r\n"
        )
        try:
            line = _line(piece, names_by_field, defaults, commas)
            norm = (
                _find(piece, "grad_norm", names_by_field["grad_norm"], defaults, commas)
                if line is None
                else None
            )
        except NotANumber as error:
            raise Unreadable(f"line {number}: {error}") from None
        if line is None:
            _note(piece, None if norm is None else norm[0], block, records)
            block.others.update(dict.fromkeys(_other_losses(piece)))
        else:
            line = replace(line, line=position, number=number, bar=bar)
            if len(records) < MOST_FIRST:
                line = replace(line, others=_other_losses(piece, line.place))
            records.append(_of_block(line, block, len(records)))
        number += text[end : end + 1] == "\n"
        start = end + 1
    if records:
        records[-1] = replace(records[-1], others=(*records[-1].others, *block.others))
    return records


def without_colours(text: str) -> str:
    """Remove the codes by which a terminal colours text or moves its cursor."""
    return _COLOUR.sub("", text) if "\x1b" in text else text


def _strip_markup(piece: str) -> str:
    """Remove colours, levels, and representations of numbers from a line."""
    if "\x1b" in piece:
        piece = _COLOUR.sub("", piece)
    if "(" in piece:
        piece = _WRAPPED.sub("", piece)
    return _AMOUNT.sub(r"\1 | ", _LEVEL.sub("|", piece))


def _note(
    piece: str, norm: tuple[float, bool] | None, block: _Block, records: list[LogLine]
) -> None:
    """Note the numbers that a line without a loss has for the records around it."""
    if (epoch := _EPOCH_HEADER.match(piece)) is not None:
        block.epoch = int(epoch[1])
    elif (step := _HEADER.search(piece)) is not None:
        block.step, block.norm, block.place = int(step[2]), norm, None
    elif norm is not None and block.place is not None:
        record = records[block.place]
        records[block.place] = replace(record, values={"grad_norm": norm, **record.values})
    elif norm is not None:
        block.norm = norm


def _of_block(line: LogLine, block: _Block, place: int) -> LogLine:
    """Complete the record with the numbers of the lines above."""
    if line.part:
        return line
    if block.others:
        line = replace(line, others=(*line.others, *block.others))
        block.others = {}
    if line.epoch is None:
        line = replace(line, epoch=block.epoch)
    if block.step is None or "step" in line.values:
        return line
    values = line.values if block.norm is None else {"grad_norm": block.norm, **line.values}
    line = replace(line, values=values, counters={"header": block.step, **line.counters})
    block.step, block.norm, block.place = None, None, place
    return line


def names_in(text: str) -> list[str]:
    """Return the names that numbers have in a log, in the order of their first lines."""
    lines = (_strip_markup(line[:2000]) for line in re.split(r"[\r\n]", text)[:MOST_NAMED_LINES])
    return list(
        dict.fromkeys(match[1].strip() for line in lines for match in _NAMED.finditer(line))
    )


def scores_in(text: str) -> list[str]:
    """Return the names of evaluations' scores in a log, in the order of their lines."""
    names: dict[str, None] = {}
    for line in filter(_MAY_BE_EVALUATED.search, re.split(r"[\r\n]", text)):
        piece = _strip_markup(line[:2000])
        evaluation = _EVALUATION.search(piece)
        for match in _NAMED.finditer(piece):
            name = match[1].strip()
            scored = evaluation and evaluation.start() < match.start() and is_metric(name)
            if scored or is_score(name):
                names[name] = None
    return list(names)


def _ends(text: str) -> Iterator[int]:
    yield from (match.start() for match in _BREAK.finditer(text))
    yield len(text)


def _commas(text: str, names_by_field: Mapping[str, Sequence[str]]) -> Commas:
    """Return the use of commas in losses and norms.

    Logs without a comma in a number need no check.
    """
    if not re.search(r"\d,\d", text):
        return Commas()
    lowered = text.lower()
    names = (*names_by_field["loss"], *names_by_field["grad_norm"])
    names = tuple(name for name in names if name.lower() in lowered)  # faster than the patterns
    return Commas.of(
        [match[1] for name in names for match in _compile_pattern(name).finditer(text)]
    )


def _line(
    piece: str,
    names_by_field: Mapping[str, Sequence[str]],
    defaults: Mapping[str, Sequence[str]],
    commas: Commas,
) -> LogLine | None:
    """Return the record of a line, without its place; `None` for a line without a loss."""
    if (flat := _key_and_value(piece)) is not None:
        piece = flat
    evaluated = _evaluated(piece, names_by_field["loss"])
    loss = _find(piece, "loss", names_by_field["loss"], defaults, commas)
    if loss is None and not evaluated and "loss" in piece.lower() and _EVALUATION.search(piece):
        first = _ANY_LOSS.search(piece)  # "Test set: Average loss: 0.0546"
        evaluated = [first[1]] if first else []
    if loss is None and not evaluated:
        return None
    values: Values = {} if loss is None else {"loss": loss[0]}
    for what in names_by_field:
        if (
            what != "loss"
            and (value := _find(piece, what, names_by_field[what], defaults, commas)) is not None
        ):
            values[what] = value[0]
    before = piece[: loss[2]] if loss else piece
    return LogLine(
        values=values,
        place=loss[1] if loss else -1,
        part=_part(before) if loss else EVALUATION,
        epoch=_epoch(before),
        counters=_counters(piece),
        rank=_rank(piece),
        evaluated=tuple(parse(value, Commas(decimal=True)) for value in evaluated),
    )


def _evaluated(piece: str, loss_names: Sequence[str]) -> list[str]:
    """Return the losses of evaluations in a line, as it has them."""
    values: list[str] = []
    if "loss" in _lowered(piece):
        values = [match[2] for match in _EVALUATED.finditer(piece) if match[1] not in loss_names]
    if len(loss_names) == 1 and (pattern := _counterpart(loss_names[0])) is not None:
        values += [match[1] for match in pattern.finditer(piece)]
    return values


@cache
def _counterpart(name: str) -> re.Pattern[str] | None:
    """Match the name and number of an evaluation's loss that is not called a loss."""
    pattern = None if "loss" in name.lower() else counterpart(name)
    return pattern and re.compile(
        rf"{pattern.pattern}{SEPARATOR}((?>{NUMBER}))(?![\w.])", re.IGNORECASE
    )


def _epoch(before: str) -> int | None:
    epoch = (
        _EPOCH.search(before)
        or _PAIR.match(before)
        or _EPOCH_AND_STEP.search(before)
        or _TRAIN_EPOCH.search(before)
    )
    return int(epoch[1]) if epoch else None


def _counters(piece: str) -> dict[str, int]:
    """Return the numbers of a line that may count its steps, the likeliest first."""
    begin = piece[:2000]
    counters = {word[1].lower(): int(word[2]) for word in reversed(list(_WORD.finditer(begin)))}
    if (pair := _PAIR.match(begin)) is not None:
        counters["pair"] = int(pair[2])
    if (both := _EPOCH_AND_STEP.search(begin)) is not None:
        counters["of"] = int(both[2])
    for match in () if both else _OF.finditer(begin):
        if not _BEFORE_EPOCHS.search(begin[: match.start(1)]):
            counters["of"] = int(match[1])
            break
    if (bracket := _BRACKET.search(begin)) is not None:
        counters["bracket"] = int(bracket[1])
    if (label := _LABEL.match(begin)) is not None:
        counters[UNIQUE] = int(label[1])
    return counters


def _other_losses(piece: str, place: int = -1) -> tuple[str, ...]:
    """Return the names of losses in a line but the one whose number is read at `place`."""
    begin = piece[:2000]
    if "loss" not in begin.lower() or WHOLE_RUN in begin:
        return ()
    matches = list(_NAMED.finditer(begin))
    read = {match[1].strip() for match in matches if match.start() <= place < match.end()}
    names = dict.fromkeys(match[1].strip() for match in matches)
    return tuple(name for name in names if name not in read and is_loss(name))


def _part(before: str) -> str:
    if _EVALUATION.search(before):
        return EVALUATION
    return AVERAGE if _AVERAGE.search(before) else ""


def _rank(piece: str) -> int | None:
    if (match := _OF_RANKS.search(piece[:200])) is not None:
        return int(match[1])
    match = _RANK.match(piece)
    return None if match is None else int(match[1] or match[2])


def _key_and_value(piece: str) -> str | None:
    """Return a line of MLPerf as names and values; `None` for other lines.

    Such a line is ``{"key": "train_loss", "value": 2.3, "metadata": {…}}``.
    """
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
    return ", ".join(
        f"{name}: {value}" for name, value in {entry["key"]: entry.get("value"), **more}.items()
    )


def _find(
    piece: str,
    what: str,
    names: Sequence[str],
    defaults: Mapping[str, Sequence[str]],
    commas: Commas,
) -> tuple[tuple[float, bool], int, int] | None:
    """Return the first named number, true if it is in milliseconds, its place, and its name's."""
    lowered = _lowered(piece)
    for name in names:
        if name.lower() not in lowered:  # much faster than the pattern
            continue
        for match in _matches(_compile_pattern(name), piece):
            value = _value(match, what, name, commas)
            if value is not None:
                return value, match.start(1), match.start()
    if what == "time" and names is defaults["time"] and "time" in lowered:
        timed = _compile_pattern("time").search(piece)
        if timed and timed[2] == "ms":  # "time 31.20ms": without a unit it may be the time of day
            return (parse(timed[1]), True), timed.start(1), timed.start()
    return None


def _matches(pattern: re.Pattern[str], piece: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a name, but for those that are the end of a longer name."""
    match = pattern.search(piece)
    while match is not None:
        begin = match.start()
        if not _NUMBERED.search(piece, max(0, begin - 40), begin + 1):
            yield match
        match = pattern.search(piece, match.end(1) - 1)


@lru_cache(maxsize=1)
def _lowered(piece: str) -> str:
    return piece.lower()


def _value(match: re.Match[str], what: str, name: str, commas: Commas) -> tuple[float, bool] | None:
    text, unit = match[1], match[2]
    signal = what in {"loss", "grad_norm"}
    if unit == "ms" and not signal:
        return parse(text), True
    scale = scale_of(unit) if what not in _COUNTS or not unit else None
    if scale is None:
        if signal:
            raise NotANumber(f"{name} is {text}{unit}, whose unit is not known")
        return None
    return parse(text, commas if signal else Commas(decimal=False)) * scale, in_milliseconds(name)


@cache
def _compile_pattern(name: str) -> re.Pattern[str]:
    """Match a name, its number, and letters after it.

    No word may be before the name, unless columns part them: ``val loss`` is not a loss. A name of
    two words says which it is.
    """
    before = r"(?:(?:^|[^A-Za-z_/\s\"'])\s*|(?<=\s\s)|(?<=\t)|(?<=[\"']\s))[\"']?"
    if " " in name and name.lower().endswith("loss"):
        before = r"(?<![\w/.\-])[\"']?"
    return re.compile(
        f"{before}{re.escape(name)}{SEPARATOR}((?>{NUMBER}))([A-Za-z%]{{0,12}})(?![A-Za-z0-9_#]|:\\d)",
        re.IGNORECASE,
    )


def in_milliseconds(name: str) -> bool:
    """Return whether a name says that its numbers are in milliseconds."""
    return name.endswith(("_ms", "(ms)"))
