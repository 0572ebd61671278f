"""All documents but the configuration: read, write, validate.

The only module of records with input and output.

Owns the way from bytes to values and back, and how the JSON is laid out on lines for people to read
and compare; what can be wrong with a document is in `faults`. A document may come from a stranger's
pull request: its size and its depth are bounded. msgspec and the values of each kind are imported
where they are used: they cost more time than what a command does that needs none of them, such as
checking a configuration.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from json.encoder import encode_basestring
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_bench.errors import BadDocument, CannotWrite
from ci_bench.records.faults import (
    Fault,
    capped,
    comparison_faults,
    form_faults,
    oddities,
    ordered,
    results_faults,
    show,
)
from ci_bench.records.results import SideName
from ci_bench.records.soundness import compiled, compiled_parts

if TYPE_CHECKING:
    from ci_bench.records.calibration import Calibration
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.history import History
    from ci_bench.records.results import Case, Results

    Document = Results | Comparison | Calibration | History

one_line = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
"""Raises `ValueError` if a number is not finite."""


def many_lines(value: Any, indent: str = "") -> str:
    """One line for each field and for each list of numbers.

    Raises `ValueError` if a number is not finite.
    """
    inner = indent + " "
    if isinstance(value, list | tuple):
        if any(isinstance(item, dict | list | tuple) for item in value):
            return (
                "[\n"
                + ",\n".join([inner + many_lines(item, inner) for item in value])
                + f"\n{indent}]"
            )
        if value and {*map(type, value)} == _FLOATS and all(map(isfinite, value)):
            return f"[{', '.join(map(repr, value))}]"
    elif isinstance(value, Mapping) and value:
        fields = []
        for key, item in value.items():
            write = _writer(type(item))
            fields.append(
                f"{inner}{_name(key)}: {write(item) if write else many_lines(item, inner)}"
            )
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    return one_line(value)


@lru_cache(maxsize=1_000)
def _name(key: str) -> str:
    return one_line(key)


def _float(value: float) -> str:
    return repr(value) if isfinite(value) else one_line(value)


_FLOATS = {float}
_WRITERS: Mapping[type, Callable[[Any], str]] = {
    str: encode_basestring,
    float: _float,
    int: repr,
    type(None): lambda _: "null",
}
"""Writes a value as the encoder does, without the preparations that it makes for each."""
_writer = _WRITERS.get

MAX_BYTES = 100_000_000
MAX_VALUES = 5_000_000
MAX_FIELDS = 10_000
"""Most fields of one object. Both limits are far beyond measured documents.

Without them, a small file could keep a reader busy for long.
"""

_GZIP = b"\x1f\x8b"


class Kind(StrEnum):
    """The kinds of document that have a schema."""

    RESULTS = "results"
    COMPARISON = "comparison"
    CALIBRATION = "calibration"
    HISTORY = "history"
    CONFIG = "config"
    ACCEPTED = "accepted"


RESULTS = "results.json"
"""The document of one side of a run."""
ACCEPTED_FILE = "ci-bench-accepted.yml"
"""Name of the file with accepted changes, in the folder of the configuration."""
_YAML = (Kind.CONFIG, Kind.ACCEPTED)
_JSON = tuple(kind for kind in Kind if kind not in _YAML)


def read_results(path: Path, *, max_bytes: int = MAX_BYTES) -> "Results":
    """Read and check a results document. Raises `BadDocument` with every fault."""
    from ci_bench.records.results import Results

    document = _read(path, Kind.RESULTS, max_bytes)
    assert isinstance(document, Results)  # noqa: S101 - only a bug of ours breaks it
    return document


def parse_results(content: bytes, path: Path) -> "Results":
    """Check a results document that was read from `path` before.

    Raises `BadDocument` with every fault.
    """
    from ci_bench.records.results import Results

    document = _checked(_loaded(path, content, MAX_BYTES), path, Kind.RESULTS)
    assert isinstance(document, Results)  # noqa: S101 - only a bug of ours breaks it
    return document


def read_comparison(path: Path, *, max_bytes: int = MAX_BYTES) -> "Comparison":
    """Read and check a comparison document. Raises `BadDocument` with every fault."""
    from ci_bench.records.comparison import Comparison

    document = _read(path, Kind.COMPARISON, max_bytes)
    assert isinstance(document, Comparison)  # noqa: S101 - only a bug of ours breaks it
    return document


def read_calibration(path: Path, *, max_bytes: int = MAX_BYTES) -> "Calibration":
    """Read and check a calibration document. Raises `BadDocument` with every fault."""
    from ci_bench.records.calibration import Calibration

    document = _read(path, Kind.CALIBRATION, max_bytes)
    assert isinstance(document, Calibration)  # noqa: S101 - only a bug of ours breaks it
    return document


def parse_calibration(content: bytes, path: Path) -> "Calibration":
    """Check a calibration document that was read from `path` before.

    Raises `BadDocument` with every fault.
    """
    from ci_bench.records.calibration import Calibration

    document = _checked(_loaded(path, content, MAX_BYTES), path, Kind.CALIBRATION)
    assert isinstance(document, Calibration)  # noqa: S101 - only a bug of ours breaks it
    return document


def read_history(path: Path, *, max_bytes: int = MAX_BYTES) -> "History":
    """Read and check a history document, compressed (gzip) or not.

    Raises `BadDocument` with every fault.
    """
    from ci_bench.records.history import History

    document = _read(path, Kind.HISTORY, max_bytes)
    assert isinstance(document, History)  # noqa: S101 - only a bug of ours breaks it
    return document


def packed(document: "Document") -> bytes:
    """Compress a document as one line of JSON, always to the same bytes.

    Raises `BadDocument` if a number is not finite.
    """
    import gzip

    import msgspec

    try:
        text = one_line(msgspec.to_builtins(document))
    except ValueError as error:
        raise BadDocument(f"a number that is not finite cannot be written: {error}") from error
    return gzip.compress(text.encode("utf-8", "replace"), compresslevel=9, mtime=0)


def document_kind(path: Path, *, max_bytes: int = MAX_BYTES) -> Kind:
    """Return the kind of a file: by its name where its ending is YAML's, else by its `kind`.

    Raises `BadDocument`.
    """
    if path.suffix in {".yml", ".yaml"}:
        return Kind.ACCEPTED if path.name == ACCEPTED_FILE else Kind.CONFIG
    raw = _load(path, max_bytes)
    word = raw.get("kind") if isinstance(raw, dict) else None
    if word in _JSON:
        return Kind(word)
    names = f"{', '.join(map(repr, map(str, _JSON[:-1])))} or {_JSON[-1].value!r}"
    raise BadDocument(
        f"{path}: $.kind is {show(word)}, not {names}; ci-bench did not write this file"
    )


def validate(raw: Any, kind: Kind, form: Mapping[str, Any] | None = None) -> tuple[Fault, ...]:
    """List the faults of parsed JSON or YAML by path; empty if it is a sound document.

    `form` replaces the kind's own schema, which lets plugins extend the configuration.
    """
    return _form_faults(raw, kind, form or schema(kind)) if kind in _YAML else _parse(raw, kind)[1]


def case_faults(case: "Case") -> tuple[Fault, ...]:
    """Return faults of a planned case that would make a results document unreadable."""
    import msgspec

    raw, place = json.loads(json.dumps(msgspec.to_builtins(case))), "#/$defs/case"
    if _sound_part(Kind.RESULTS)(place, raw):
        return ()
    return form_faults(raw, {"$ref": place, "$defs": schema(Kind.RESULTS)["$defs"]})


def to_json(document: "Document") -> dict[str, Any]:
    """Turn a document into what its file holds. Raises `BadDocument` if a number is not finite."""
    fields: dict[str, Any] = json.loads(text_of(document))
    return fields


def write(document: "Document", path: Path) -> None:
    """Write a document so that a reader sees the old file or the new one, never a part.

    Creates the folder. Half a surrogate pair, which a log can hold and UTF-8 cannot, becomes a
    question mark. Raises `CannotWrite`, and `BadDocument` if a number is not finite.
    """
    write_text(text_of(document), path)


def write_text(text: str, path: Path) -> None:
    """Write any text under the same promise as `write`. Raises `CannotWrite`."""
    content = text.encode("utf-8", "replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _ignore(path)
        _replace(path, content)
    except OSError as error:
        raise CannotWrite(
            f"{path}: cannot be written: {error.strerror or error}; choose another output folder"
        ) from error


OUTPUT = "ci-bench-results"
"""The name of the default output folder."""


def _ignore(path: Path) -> None:
    """Keep the default output folder out of git, as long as it has no ``.gitignore``."""
    folder = next((folder for folder in path.parents if folder.name == OUTPUT), None)
    if folder is not None and not (folder / ".gitignore").exists():
        _replace(folder / ".gitignore", b"*\n")


def require_writable(path: Path) -> None:
    """Check that `write` could write there, as far as possible without writing.

    Raises `CannotWrite`.

    For what is written after hours of measuring.
    """
    nearest = next(
        (folder for folder in path.absolute().parents if os.path.lexists(folder)), Path("/")
    )
    if path.is_dir():
        why = "it is a folder"
    elif not nearest.is_dir():
        why = f"{nearest} is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = f"{nearest} may not be written to"
    else:
        return
    raise CannotWrite(f"{path}: cannot be written: {why}; choose another output folder")


def _replace(path: Path, content: bytes) -> None:
    """Write next to the target and rename.

    Not with `tempfile`: its files are readable only by their owner.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with beside.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def text_of(document: "Document") -> str:
    """Return a document's text. Raises `BadDocument` if a number is not finite."""
    import msgspec

    fields = msgspec.to_builtins(document)
    try:
        return many_lines(fields) + "\n"
    except ValueError as error:
        raise BadDocument(
            f"a number that is not finite cannot be written:\n{capped(oddities(fields, '$'))}"
        ) from error


def _read(path: Path, kind: Kind, max_bytes: int) -> "Document":
    return _checked(_load(path, max_bytes), path, kind)


def _checked(raw: Any, path: Path, kind: Kind) -> "Document":
    document, faults = _parse(raw, kind)
    if document is None or faults:
        raise BadDocument(f"{path}: not a sound {kind} document:\n{capped(faults)}")
    return document


class _Repeated(dict[str, Any]):
    """An object that names a field twice, which JSON leaves open and an attacker can use."""

    twice: tuple[str, ...]


class _TooManyError(ValueError):
    """An object has more fields than any of ours."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_FIELDS:
        raise _TooManyError
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    repeated = _Repeated(fields)
    repeated.twice = tuple(
        name for name, count in Counter(name for name, _ in pairs).items() if count > 1
    )
    return repeated


def _load(path: Path, max_bytes: int) -> Any:
    """Parse a file as JSON.

    Fields that come twice and infinite numbers are kept for `faults.oddities`, which knows the
    path.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise BadDocument(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; check the path"
        ) from error
    return _loaded(path, content, max_bytes)


def _loaded(path: Path, content: bytes, max_bytes: int) -> Any:
    if len(content) > max_bytes:
        raise BadDocument(f"{path}: larger than {max_bytes:,} bytes, the most that is read")
    content = _unpacked(path, content, max_bytes) if content.startswith(_GZIP) else content
    if content.count(b",") > MAX_VALUES:
        raise BadDocument(f"{path}: holds more than {MAX_VALUES:,} values, the most that are read")
    if not content.strip():
        raise BadDocument(
            f"{path}: the file is empty; look at the log of the run that should have written it"
        )
    try:
        return json.loads(content.decode(), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BadDocument(
            f"{path}: not UTF-8 at byte {error.start}; ci-bench did not write this file"
        ) from error
    except json.JSONDecodeError as error:
        text = error.doc.strip()
        cut = "; the file is cut short" if text.startswith("{") and not text.endswith("}") else ""
        raise BadDocument(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}{cut}"
        ) from error
    except RecursionError as error:
        raise BadDocument(f"{path}: nested too deep; ci-bench did not write this file") from error
    except _TooManyError as error:
        raise BadDocument(
            f"{path}: an object has more than {MAX_FIELDS:,} fields; ci-bench did not write this"
            " file"
        ) from error
    except ValueError as error:
        raise BadDocument(
            f"{path}: an integer has too many digits; ci-bench did not write this file"
        ) from error


def _unpacked(path: Path, content: bytes, max_bytes: int) -> bytes:
    """Unpack gzip, up to `max_bytes`: a small file can hold any amount of zeros."""
    import zlib

    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise BadDocument(
            f"{path}: a broken gzip file: {error}; it was cut short or changed"
        ) from error
    if len(unpacked) > max_bytes:
        raise BadDocument(f"{path}: holds more than {max_bytes:,} bytes, the most that is read")
    if not unpacker.eof or unpacker.unused_data:
        raise BadDocument(
            f"{path}: a gzip file that"
            f" {'goes on after its end' if unpacker.eof else 'is cut short'}"
        )
    return unpacked


def _form_faults(raw: Any, kind: Kind, form: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Check in the order that helps: is it our document, its version, its form."""
    has_own_schema = form is schema(kind)
    try:
        is_sound = has_own_schema and _sound(kind)(raw)
        return _head(raw, kind) or (
            ()
            if is_sound
            else form_faults(raw, form, _sound_part(kind) if has_own_schema else None)
        )
    except RecursionError:
        return (Fault("$", "nested too deep"),)


def _parse(raw: Any, kind: Kind) -> "tuple[Document | None, tuple[Fault, ...]]":
    """Convert a document of sound form, and list the faults that no schema can express."""
    import msgspec

    if faults := _form_faults(raw, kind, schema(kind)):
        return None, faults
    form_of, faults_of = _reader(kind)
    try:
        document = msgspec.convert(
            _of_earlier_versions(raw) if kind is Kind.RESULTS else raw, form_of
        )
        return document, ordered(faults_of(document))
    except RecursionError:
        return None, (Fault("$", "nested too deep"),)
    except msgspec.ValidationError as error:
        return None, (Fault("$", str(error)),)


def _of_earlier_versions(results: dict[str, Any]) -> dict[str, Any]:
    """Add to results of earlier versions whether evidence is of a user's program.

    Earlier, only such evidence had an epsilon of 0.
    """
    cases = [
        (
            case | {"parity": {"own_program": case["parity"]["epsilon"] == 0, **case["parity"]}}
            if case.get("parity")
            else case
        )
        for case in results["cases"]
    ]
    return results | {"cases": cases}


def _reader(kind: Kind) -> "tuple[type[Document], Callable[[Any], Iterable[Fault]]]":
    """Return the type for a kind of JSON document, and the check for faults beyond the schema."""
    match kind:
        case Kind.RESULTS:
            from ci_bench.records.results import Results

            return Results, results_faults
        case Kind.COMPARISON:
            from ci_bench.records.comparison import Comparison

            return Comparison, comparison_faults
        case Kind.CALIBRATION:
            from ci_bench.records.calibration import Calibration, calibration_faults

            return Calibration, calibration_faults
        case Kind.HISTORY:
            from ci_bench.records.history import History, history_faults

            return History, history_faults
        case Kind.CONFIG | Kind.ACCEPTED:
            raise AssertionError("YAML is read by `config` and `accepting`")


def _head(raw: Any, kind: Kind) -> tuple[Fault, ...]:
    if not isinstance(raw, dict):
        return (
            Fault(
                "$",
                f"{show(raw)} is not a mapping, and {'an' if kind is Kind.ACCEPTED else 'a'} {kind}"
                " document is one",
            ),
        )
    if kind not in _YAML and raw.get("kind") != kind:
        problem = f"{show(raw['kind'])} is not" if "kind" in raw else "missing; it should be"
        return (Fault("$.kind", f"{problem} {kind.value!r}"),)
    version = raw.get("schema_version")
    if type(version) is int and version > 1:
        origin = "is for" if kind in _YAML else "was written by"
        return (
            Fault(
                "$.schema_version",
                f"schema_version {show(version)} {origin} a newer ci-bench; this one reads 1",
            ),
        )
    return ()


@cache
def _sound(kind: Kind) -> Callable[[Any], bool]:
    return compiled(schema(kind))


@cache
def _sound_part(kind: Kind) -> Callable[[str, Any], bool]:
    return compiled_parts(schema(kind))


@cache
def schema(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of one kind of document, shared: copy it before changing it."""
    from importlib.resources import files

    loaded: dict[str, Any] = json.loads(
        files("ci_bench").joinpath("schemas", f"{kind}.json").read_text(encoding="utf-8")
    )
    return loaded


def place(folder: Path, name: SideName) -> Path:
    """Return the path of a side's results in a run's folder."""
    return folder / RESULTS if name is SideName.HEAD else folder / name / RESULTS
