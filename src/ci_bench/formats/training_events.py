"""Steps by rank from a training's log for TensorBoard (event files) or W&B.

For W&B it is a run's own file, as it is written offline.

Owns the two containers, checksums included, and as much of the messages in them as numbers by name
and step need:

- TensorBoard: TFRecord (https://www.tensorflow.org/tutorials/load_data/tfrecord) of ``Event``
  (https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto).
- W&B: the log of LevelDB (https://github.com/google/leveldb/blob/main/doc/log_format.md), with
  zlib's CRC-32, of ``Record``
  (https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto).

Both are read without the tools' own libraries (docs/internals/adr/0058-your-own-training.md).
The content of a file is not trusted: a checksum that does not fit, a field that ends beyond its
message, or too much of anything is refused. A file that ends within a record is read up to there,
as both tools do; comparing runs reveals missing steps. `training_log` chooses the numbers that are
a step's loss and time.
"""

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ci_bench.formats import training_log
from ci_bench.formats.series import Unreadable
from ci_bench.formats.training_steps import LogRecord, by_rank
from ci_bench.records.spelling import meant

TENSORBOARD, WANDB = "tensorboard", "wandb"
FORMATS = (TENSORBOARD, WANDB)
MOST_BYTES = 64 << 20
"""Limit for all files together."""
MOST_MESSAGES = 1_000_000
MOST_NAMES = 10_000
LONGEST_NAME = 500
LONGEST_NUMBER = 100
SHOWN = 10
STEP, MOMENT = "_step", "_timestamp"
"""W&B's names for the step and the time of day of a row; rows of event files have them, too."""

NAMES: Mapping[str, tuple[str, ...]] = {
    **training_log.NAMES,
    "step": (*training_log.NAMES["step"], "train/global_step", "trainer/global_step", STEP),
    "loss": (
        *training_log.NAMES["loss"],
        "train_loss",
        "Loss/train",
        "loss/train",
        "loss_metrics/global_avg_loss",
    ),
    "grad_norm": (*training_log.NAMES["grad_norm"], "grad-norm"),
    "time": (*training_log.NAMES["time"], "iteration-time", "time_metrics/end_to_end(s)"),
    "clock": (*training_log.NAMES["clock"], MOMENT),
}
"""Default names to look for; the last ones are torchtitan's and Megatron-LM's tags."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK, _HEADER = 32768, 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

Field = int | bytes
Row = dict[str, float | str]


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file that a run wrote. Folder and name identify ranks and restarts."""

    folder: str
    name: str
    content: bytes


@dataclass(kw_only=True, slots=True)
class _Log:
    """Content of a file: requested numbers, a row per step or call, and names of all numbers.

    `run` is the key of files that continue each other: those of a folder (TensorBoard), of a run's
    id (W&B).
    """

    file: File
    run: str
    rows: list[Row]
    names: set[str]

    def note(self, name: str) -> None:
        """Note a name, requested or not."""
        if len(self.names) >= MOST_NAMES and name not in self.names:
            raise Unreadable(f"{self.file.name} has more than {MOST_NAMES:,} names of numbers")
        self.names.add(name)


def form_of(content: bytes) -> str | None:
    """Return the form of a file, by its first bytes; `None` for anything else."""
    if content.startswith(_MAGIC[:4]):
        return WANDB
    if len(content) >= 12 and checksum(content[:8]) == _uint32(content, 8):  # noqa: PLR2004 - a length and its checksum
        return TENSORBOARD
    return None


def read(
    files: Sequence[File], names: Mapping[str, str], form: str
) -> tuple[tuple[LogRecord, ...], ...]:
    """Return the steps of each rank, in their order.

    Files of one folder (W&B: of one run's id) are of one process that was restarted: a later one
    counts from its first step on. Each folder whose files have losses is a rank, in the order of
    the numbers in their names, unless a logged `rank` says it.

    Raises:
        Unreadable: a file is broken or too large, nothing is called like the loss, two processes
            wrote one run simultaneously, or steps of ranks differ.
    """
    if (size := sum(len(file.content) for file in files)) > MOST_BYTES:
        raise Unreadable(
            f"{size:,} bytes, but at most {MOST_BYTES:,} are read; log fewer pictures and"
            " histograms"
        )
    names_by_field = {what: (names[what],) if what in names else NAMES[what] for what in NAMES}
    row_names = {name for several in names_by_field.values() for name in several}
    reader = _tensorboard if form == TENSORBOARD else _wandb
    logs = [reader(file, row_names) for file in files]
    _must_have(names, {name for log in logs for name in log.names})
    runs: dict[str, list[tuple[_Log, list[LogRecord]]]] = {}
    for log in logs:
        if steps := _records(log, names_by_field):
            runs.setdefault(log.run, []).append((log, steps))
    if not runs:
        raise Unreadable(_no_loss(names_by_field["loss"], logs))
    joined = {run: _continued(parts) for run, parts in runs.items()}
    training_log.must_say(names, [record for records in joined.values() for record in records])
    ranks = set(names_by_field["rank"])
    return _by_rank(
        joined, form, has_ranks=any(ranks & row.keys() for log in logs for row in log.rows)
    )


def _records(log: _Log, names_by_field: Mapping[str, Sequence[str]]) -> list[LogRecord]:
    """Return the steps of one file.

    `line` is the position of the row.
    """
    return list(training_log.of_objects(enumerate(log.rows), names_by_field))


def _must_have(user_names: Mapping[str, str], log_names: set[str]) -> None:
    """Check that names set by the user exist: a misspelt one would leave a signal out."""
    for what, name in user_names.items():
        if name not in log_names | {STEP, MOMENT}:
            raise Unreadable(
                f"{what}: nothing is called {name!r}{meant(name, sorted(log_names))}; there is"
                f" {_list_names(log_names)}"
            )


def _no_loss(tried: Sequence[str], logs: Sequence[_Log]) -> str:
    log_names = {name for log in logs for name in log.names}
    if not log_names:
        return "it contains no numbers"
    near = next((hint for name in tried if (hint := meant(name, sorted(log_names)))), "")
    return (
        f"nothing is called {' or '.join(map(repr, tried))}{near}; name the loss with"
        f" `losses.loss`: it has {_list_names(log_names)}"
    )


def _list_names(names: set[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name[:100]) for name in sorted(names)[:SHOWN]) + more


def _continued(parts: Sequence[tuple[_Log, list[LogRecord]]]) -> list[LogRecord]:
    """Join the steps of a process over its restarts: a later file counts from its first step on.

    Raises:
        Unreadable: two files were written at the same time, and so by two processes.
    """
    ordered = sorted(parts, key=lambda part: _moment(part[0], part[1][0]))
    for (earlier, before), (later, after) in pairwise(ordered):
        if _moment(later, after[0]) < _moment(earlier, before[-1]):
            message = (
                f"{earlier.file.name} and {later.file.name} of {earlier.run or 'one folder'} were"
                " written at the same time"
            )
            raise Unreadable(f"{message}; give each process its own folder or run")
    steps: list[LogRecord] = []
    for _, records in ordered:
        begins = min(record.step or 0 for record in records)
        steps = [record for record in steps if (record.step or 0) < begins] + records
    return steps


def _moment(log: _Log, record: LogRecord) -> float:
    value = log.rows[record.line].get(MOMENT, 0.0)
    return 0.0 if isinstance(value, str) else float(value)


def _by_rank(
    runs: Mapping[str, list[LogRecord]], form: str, *, has_ranks: bool
) -> tuple[tuple[LogRecord, ...], ...]:
    """Return the steps of each rank: as the numbers name it, else a folder is a rank."""
    if has_ranks or len(runs) == 1:
        return by_rank([record for records in runs.values() for record in records])
    if form == WANDB:
        message = f"{len(runs)} runs of W&B have losses ({', '.join(sorted(runs)[:SHOWN])})"
        raise Unreadable(
            f"{message}, and which rank each is of is not known: log `rank` with the loss, or name"
            " the run in `output`"
        )
    folders = sorted(runs, key=_natural)
    try:
        return by_rank(
            [
                replace(record, rank=rank)
                for rank, folder in enumerate(folders)
                for record in runs[folder]
            ]
        )
    except Unreadable as error:
        raise Unreadable(
            f"{error}; each folder with losses is a rank: {', '.join(folders[:SHOWN])}"
        ) from error


def _natural(path: str) -> list[tuple[int, str]]:
    """Return a sort key that puts ``rank_10`` after ``rank_2``."""
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in re.split(r"(\d{1,18})", path)
    ]


def _tensorboard(file: File, row_names: set[str]) -> _Log:
    """Read the scalars of an event file.

    Those of one step are a row. A name that comes twice begins another row.
    """
    log, rows = _Log(file=file, run=file.folder, rows=[], names=set()), dict[int, Row]()
    for number, event in enumerate(_records_of_tf(file)):
        _bounded(number, file)
        moment, step, summary = 0.0, 0, b""
        for key, value in _fields(event, file):
            if key == 1 and isinstance(value, bytes):
                moment = _float64(value)
            elif key == 2 and isinstance(value, int):  # noqa: PLR2004 - field numbers are those of the messages
                step = value
            elif key == 5 and isinstance(value, bytes):  # noqa: PLR2004
                summary = value
        for name, scalar in _scalars(summary, file):
            log.note(name)
            if name not in row_names:
                continue
            if step not in rows or name in rows[step]:
                rows[step] = {STEP: step, MOMENT: moment}
                log.rows.append(rows[step])
            rows[step][name] = scalar
    return log


def _scalars(summary: bytes, file: File) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a ``Summary``, each with its tag.

    Pictures, texts and histograms are skipped.
    """
    for key, value in _fields(summary, file):
        if key != 1 or not isinstance(value, bytes):
            continue
        name, number = "", None
        for inner, content in _fields(value, file):
            if inner == 1 and isinstance(content, bytes):
                name = _name(content)
            elif inner == 2 and isinstance(content, bytes):  # noqa: PLR2004 - simple_value
                number = _float32(content)
            elif inner == 8 and isinstance(content, bytes):  # noqa: PLR2004 - tensor
                number = _of_tensor(content, file)
        if name and number is not None:
            yield name, number


_OF_DTYPE: Mapping[Field, tuple[int, str]] = {
    1: (5, "<f"),
    2: (6, "<d"),
    3: (7, "<i"),
    9: (10, "<q"),
}
"""DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64: the field with values of that kind, and their bytes in
`tensor_content`.
"""


def _of_tensor(tensor: bytes, file: File) -> float | None:
    """Return the number in a ``TensorProto``; `None` if it does not have exactly one."""
    fields = list(_fields(tensor, file))
    value_field, code = _OF_DTYPE.get(
        next((value for key, value in fields if key == 1), 0), (0, "")
    )
    for key, value in fields if value_field else ():
        if key not in {value_field, 4}:
            continue
        if isinstance(value, int):
            return float(value - (1 << 64) if value >> 63 else value)
        if len(value) == struct.calcsize(code):
            return float(struct.unpack(code, value)[0])
        if (
            key == value_field
            and code[1] in "iq"
            and (packed := _varint(value, 0, file))[1] == len(value)
        ):
            return float(packed[0] - (1 << 64) if packed[0] >> 63 else packed[0])
    return None


def _records_of_tf(file: File) -> Iterator[bytes]:
    """Yield the messages of a TFRecord file.

    It has a length and its checksum, a message and its checksum.
    """
    content, place = file.content, 0
    while place + 12 <= len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        if checksum(content[place : place + 8]) != _uint32(content, place + 8):
            raise _broken(file, place)
        end = place + 12 + length
        if end + 4 > len(content):
            return  # it was not written to its end
        message = content[place + 12 : end]
        if checksum(message) != _uint32(content, end):
            raise _broken(file, place)
        yield message
        place = end + 4


def _wandb(file: File, row_names: set[str]) -> _Log:
    """Read the arguments of ``wandb.log``, a row for each call."""
    log = _Log(file=file, run=file.name, rows=[], names=set())
    for number, record in enumerate(_records_of_leveldb(file)):
        _bounded(number, file)
        for key, value in _fields(record, file):
            if key == 17 and isinstance(value, bytes):  # noqa: PLR2004 - run
                ids = [
                    _name(text)
                    for inner, text in _fields(value, file)
                    if inner == 1 and isinstance(text, bytes)
                ]
                log.run = next(filter(None, ids), log.run)
            if key == 2 and isinstance(value, bytes):  # noqa: PLR2004 - history
                row: Row = {}
                for name, text in _items(value, file):
                    _add_item(log, row, name, text, row_names)
                log.rows.append(row)
    return log


def _add_item(log: _Log, row: Row, name: str, text: bytes, row_names: set[str]) -> None:
    """Add a number, or a text of one: W&B writes numbers that are not finite as texts."""
    if name in row_names and len(text) <= LONGEST_NUMBER:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise Unreadable(f"{name} in {log.file.name} is not JSON") from None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            row[name] = value
            log.note(name)
    elif text[:1] not in b'{["tfn':
        log.note(name)


def _items(history: bytes, file: File) -> Iterator[tuple[str, bytes]]:
    """Yield name and JSON of each item.

    Names of nested items are joined with dots, as W&B does.
    """
    for key, value in _fields(history, file):
        if key != 1 or not isinstance(value, bytes):
            continue
        name, nested, text = "", [], b""
        for inner, content in _fields(value, file):
            if not isinstance(content, bytes):
                continue
            if inner == 1:
                name = _name(content)
            elif inner == 2:  # noqa: PLR2004 - nested_key
                nested.append(_name(content))
            elif inner == 16:  # noqa: PLR2004 - value_json
                text = content
        yield name or ".".join(nested)[:LONGEST_NAME], text


def _records_of_leveldb(file: File) -> Iterator[bytes]:
    """Yield the messages of a log of LevelDB, joined if blocks cut them."""
    content, place, parts = file.content, _HEADER, list[bytes]()
    if content[:_HEADER] != _MAGIC:
        raise Unreadable(
            f"{file.name} does not begin as a run of W&B does, or in another version of its format"
        )
    while place + _HEADER <= len(content):
        room = _BLOCK - place % _BLOCK
        if room < _HEADER:
            place += room
            continue
        expected, length, kind = struct.unpack_from("<IHB", content, place)
        fits = (kind in {_WHOLE, _FIRST}) == (not parts) and kind in {
            _WHOLE,
            _FIRST,
            _MIDDLE,
            _LAST,
        }
        if length > room - _HEADER or not fits:
            raise _broken(file, place)
        if place + _HEADER + length > len(content):
            return  # it was not written to its end
        part = content[place + _HEADER : place + _HEADER + length]
        if zlib.crc32(part, zlib.crc32(bytes([kind]))) != expected:
            raise _broken(file, place)
        parts.append(part)
        if kind in {_WHOLE, _LAST}:
            yield b"".join(parts)
            parts.clear()
        place += _HEADER + length


def _fields(message: bytes, file: File) -> Iterator[tuple[int, Field]]:
    """Yield number and value of each field of a message in protobuf's wire format.

    Numbers of four and eight bytes come as bytes. The format is that of
    https://protobuf.dev/programming-guides/encoding.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place, file)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(message, place, file)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, place = _varint(message, place, file)
        elif kind in {_FIXED64, _FIXED32}:
            length = 8 if kind == _FIXED64 else 4
        else:
            raise _broken(file)
        if place + length > len(message):
            raise _broken(file)
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int, file: File) -> tuple[int, int]:
    """Return a number of seven bits a byte, and the place of its end."""
    value = 0
    for shift, byte in enumerate(message[place : place + _LONGEST_VARINT]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:  # noqa: PLR2004 - the highest bit says that more follow
            return value & (1 << 64) - 1, place + shift + 1
    raise _broken(file)


def _broken(file: File, place: int | None = None) -> Unreadable:
    where = (
        "a message in it is malformed"
        if place is None
        else f"the record at byte {place:,} is not what its checksum says"
    )
    return Unreadable(f"{file.name} is broken: {where}")


def _bounded(number: int, file: File) -> None:
    if number >= MOST_MESSAGES:
        raise Unreadable(f"{file.name} has more than {MOST_MESSAGES:,} records")


def _name(content: bytes) -> str:
    return content[: 4 * LONGEST_NAME].decode("utf-8", "replace")[:LONGEST_NAME]


def _float32(content: bytes) -> float | None:
    return float(struct.unpack("<f", content)[0]) if len(content) == 4 else None  # noqa: PLR2004 - bytes


def _float64(content: bytes) -> float:
    return float(struct.unpack("<d", content)[0]) if len(content) == 8 else 0.0  # noqa: PLR2004 - bytes


def _uint32(content: bytes, place: int) -> int:
    return int.from_bytes(content[place : place + 4], "little")


def _table() -> tuple[int, ...]:
    """Return the table of CRC-32C.

    Its polynomial is 0x82F63B78, reversed (RFC 3720, appendix B.4).
    """
    entries = list(range(256))
    for _ in range(8):
        entries = [entry >> 1 ^ (0x82F63B78 if entry & 1 else 0) for entry in entries]
    return tuple(entries)


_CRC32C = _table()


def checksum(content: bytes) -> int:
    """Return CRC-32C, turned by 15 bits and moved, as TFRecord has it."""
    crc, table = 0xFFFFFFFF, _CRC32C
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
