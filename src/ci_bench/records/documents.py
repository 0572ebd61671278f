"""Results and comparison documents: read, write, validate. The only module of records with input and output.

Owns the way from bytes to values and back, and the wording of what breaks a schema. A document may come from a stranger's pull
request: its size, its depth, and how much of it a message repeats are bounded. jsonschema and msgspec are imported where they are
used, because together they cost more time than a command that needs neither.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ci_bench.errors import BadDocument, CannotWrite
from ci_bench.records.case import CaseResult, Metric, Trace, Unit
from ci_bench.records.comparison import Comparison
from ci_bench.records.results import Results

MAX_BYTES = 100_000_000
MAX_FAULTS = 50
COUNTED_FAULTS = 1000
"""Where counting ends: a hostile document can hold millions of faults."""
MAX_LINE = 300
MAX_PATH = 150
MAX_VALUE = 60
MAX_NAMES = 12


class Kind(StrEnum):
    """The kinds of document that have a schema."""

    RESULTS = "results"
    COMPARISON = "comparison"
    CONFIG = "config"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a document, and where: ``$.cases[0].status``."""

    path: str
    message: str

    def __str__(self) -> str:
        line = f"{self.path}: {self.message}"
        return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"


def read_results(path: Path, *, max_bytes: int = MAX_BYTES) -> Results:
    """Read and check a results document. Raises `BadDocument` with every fault."""
    document = _read(path, Kind.RESULTS, max_bytes)
    assert isinstance(document, Results)
    return document


def read_comparison(path: Path, *, max_bytes: int = MAX_BYTES) -> Comparison:
    """Read and check a comparison document. Raises `BadDocument` with every fault."""
    document = _read(path, Kind.COMPARISON, max_bytes)
    assert isinstance(document, Comparison)
    return document


def document_kind(path: Path, *, max_bytes: int = MAX_BYTES) -> Kind:
    """Tell which reader a file is for: by its ending where that is YAML's, else by its `kind`. Raises `BadDocument`."""
    if path.suffix in {".yml", ".yaml"}:
        return Kind.CONFIG
    raw = _load(path, max_bytes)
    named = raw.get("kind") if isinstance(raw, dict) else None
    if named in (Kind.RESULTS, Kind.COMPARISON):
        return Kind(named)
    raise BadDocument(f"{path}: $.kind is {show(named)}, not 'results' or 'comparison'; ci-bench did not write this file")


def validate(raw: Any, kind: Kind, form: Mapping[str, Any] | None = None) -> tuple[Fault, ...]:
    """List what is wrong with parsed JSON or YAML, by path; empty where it is a sound document of this kind.

    `form` stands in for the kind's own schema, so that plugins can extend the configuration.
    """
    return _parse(raw, kind, form or schema(kind))[1]


def to_json(document: Results | Comparison) -> dict[str, Any]:
    """Turn a document into what its file holds. Raises `BadDocument` where a number is not finite."""
    plain: dict[str, Any] = json.loads(_text(document))
    return plain


def write(document: Results | Comparison, path: Path) -> None:
    """Write a document so that a reader sees the old file or the new one, never a part.

    Creates the folder. Half a surrogate pair, which a log can hold and UTF-8 cannot, becomes a question mark.
    Raises `CannotWrite`, and `BadDocument` where a number is not finite.
    """
    write_text(_text(document), path)


def write_text(text: str, path: Path) -> None:
    """Write any text under the same promise as `write`. Raises `CannotWrite`."""
    content = text.encode("utf-8", "replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}; choose another output folder") from error


def _replace(path: Path, content: bytes) -> None:
    """Write beside the target and rename. Not `tempfile`: its files can be read by nobody but their owner."""
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with beside.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _text(document: Results | Comparison) -> str:
    import msgspec

    plain = msgspec.to_builtins(document)
    try:
        return _render(plain, "") + "\n"
    except ValueError as error:
        raise BadDocument(f"a number that is not finite cannot be written:\n{capped(_oddities(plain, '$'))}") from error


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


def _render(value: Any, indent: str) -> str:
    """JSON with one line for each field and for each list of numbers, so that a document can be read and compared by eye."""
    inner = indent + " "
    if isinstance(value, Mapping) and value:
        fields = (f"{inner}{_encode(key)}: {_render(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value):
        return "[\n" + ",\n".join(inner + _render(item, inner) for item in value) + f"\n{indent}]"
    return _encode(value)


def _read(path: Path, kind: Kind, max_bytes: int) -> Results | Comparison:
    document, faults = _parse(_load(path, max_bytes), kind, schema(kind))
    if document is None or faults:
        raise BadDocument(f"{path}: not a sound {kind} document:\n{capped(faults)}")
    return document


class _Repeated(dict[str, Any]):
    """An object that names a field twice, which JSON leaves open and an attacker can use."""

    twice: tuple[str, ...]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    repeated = _Repeated(fields)
    repeated.twice = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return repeated


def _load(path: Path, max_bytes: int) -> Any:
    """Parse a file as JSON. Fields that come twice and infinite numbers are kept for `_oddities`, which knows the path."""
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise BadDocument(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; check the path") from error
    if len(content) > max_bytes:
        raise BadDocument(f"{path}: larger than {max_bytes:,} bytes, the most that is read")
    if not content.strip():
        raise BadDocument(f"{path}: the file is empty; look at the log of the run that should have written it")
    try:
        return json.loads(content.decode(), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise BadDocument(f"{path}: not UTF-8 at byte {error.start}; ci-bench did not write this file") from error
    except json.JSONDecodeError as error:
        text = error.doc.strip()
        cut = "; the file is cut short" if text.startswith("{") and not text.endswith("}") else ""
        raise BadDocument(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}{cut}") from error
    except RecursionError as error:
        raise BadDocument(f"{path}: nested too deep; ci-bench did not write this file") from error
    except ValueError as error:
        raise BadDocument(f"{path}: an integer has too many digits; ci-bench did not write this file") from error


def _parse(raw: Any, kind: Kind, form: Mapping[str, Any]) -> tuple[Results | Comparison | None, tuple[Fault, ...]]:
    """Check in the order that helps: is it our document, its version, its form, then what a schema cannot say."""
    import msgspec

    try:
        faults = _head(raw, kind) or _form_faults(raw, form)
        if faults or kind is Kind.CONFIG:
            return None, faults
        if kind is Kind.RESULTS:
            results = msgspec.convert(raw, Results)
            return results, ordered(_results_faults(results))
        comparison = msgspec.convert(raw, Comparison)
        return comparison, ordered(_comparison_faults(comparison))
    except RecursionError:
        return None, (Fault("$", "nested too deep"),)
    except msgspec.ValidationError as error:
        return None, (Fault("$", str(error)),)


def _form_faults(raw: Any, form: Mapping[str, Any]) -> tuple[Fault, ...]:
    """What JSON or the schema forbids; of a value that JSON forbids, the schema's word adds nothing."""
    odd = tuple(islice(_oddities(raw, "$"), COUNTED_FAULTS))
    places = {fault.path for fault in odd}
    return ordered(chain(odd, (fault for fault in schema_faults(raw, form) if fault.path not in places)))


def _head(raw: Any, kind: Kind) -> tuple[Fault, ...]:
    if not isinstance(raw, dict):
        return (Fault("$", f"{show(raw)} is not a mapping, and a {kind} document is one"),)
    if kind is not Kind.CONFIG and raw.get("kind") != kind:
        found = f"{show(raw['kind'])} is not" if "kind" in raw else "missing; it should be"
        return (Fault("$.kind", f"{found} {kind.value!r}"),)
    version = raw.get("schema_version")
    if type(version) is int and version > 1:
        made = "is for" if kind is Kind.CONFIG else "was written by"
        return (Fault("$.schema_version", f"schema_version {show(version)} {made} a newer ci-bench; this one reads 1"),)
    return ()


def _oddities(value: Any, path: str) -> Iterator[Fault]:
    """What Python's JSON lets through: fields that come twice, NaN and infinities, half a surrogate pair."""
    if isinstance(value, dict):
        yield from (Fault(step(path, name), "the field comes twice") for name in getattr(value, "twice", ()))
        for key, item in value.items():
            yield from _oddities(item, step(path, key))
    elif isinstance(value, list | tuple) and not _all_finite(value):
        for index, item in enumerate(value):
            yield from _oddities(item, step(path, index))
    elif isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        yield Fault(path, "holds half of a surrogate pair")
    elif isinstance(value, float | int) and not _all_finite([value]):
        yield Fault(path, f"{show(value)} is not a finite number; an unknown value is null")


def _all_finite(values: Sequence[Any]) -> bool:
    try:
        return all(map(math.isfinite, values))
    except (TypeError, OverflowError):
        return False


def ordered(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Sort by path, `cases[2]` before `cases[10]`, and drop what is said twice. Takes `COUNTED_FAULTS` at most."""
    return tuple(sorted(set(islice(faults, COUNTED_FAULTS)), key=_natural))


def _natural(fault: Fault) -> list[str | int]:
    return [int(part) if odd % 2 else part for odd, part in enumerate(re.split("([0-9]+)", str(fault)))]


def capped(lines: Iterable[object], indent: str = "  ") -> str:
    """One line for each fault, and how many were left out."""
    texts = [f"{indent}{line}" for line in lines]
    more = len(texts) - MAX_FAULTS
    atleast = "at least " if len(texts) >= COUNTED_FAULTS else ""
    return "\n".join(texts[:MAX_FAULTS] + ([f"{indent}and {atleast}{more} more"] if more > 0 else []))


def step(path: str, part: str | int) -> str:
    """Extend a JSON path by a field or an index; what is not a plain name is quoted, and no path grows without bound."""
    if isinstance(part, int):
        return f"{path}[{part}]"[:MAX_PATH]
    return (f"{path}.{part}" if re.fullmatch("[A-Za-z0-9_]{1,60}", part) else f"{path}[{part[:MAX_VALUE]!r}]")[:MAX_PATH]


def show(value: Any) -> str:
    """A value as it can be repeated in a message: short, on one line, with nothing invisible."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = repr(value[:MAX_VALUE] if isinstance(value, str) else value)
    return text if len(text) <= MAX_VALUE + 2 else text[:MAX_VALUE] + "…"


def nearest(word: str, words: Iterable[str]) -> str:
    """The end of a sentence that suggests the nearest spelling, or else names what is known."""
    known = list(words)
    return _meant(word, known) or f"; known are {', '.join(known)}"


def _meant(word: Any, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word[:MAX_VALUE], known, 1) if isinstance(word, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


@cache
def schema(kind: Kind) -> dict[str, Any]:
    """The JSON Schema of one kind of document, shared: copy it before changing it."""
    from importlib.resources import files

    loaded: dict[str, Any] = json.loads(files("ci_bench").joinpath("schemas", f"{kind}.json").read_text(encoding="utf-8"))
    return loaded


def schema_faults(raw: Any, schema: Mapping[str, Any]) -> Iterator[Fault]:
    """Word every way in which a value breaks a JSON Schema. Raises `RecursionError` where the value is nested too deep."""
    return (fault for error in _validator()(schema).iter_errors(raw) for leaf in _leaves(error) for fault in _explain(leaf))


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators

    def items(validator: Any, schema: Any, instance: Any, parent: Any) -> Iterator[Any]:
        if not _plain_numbers(schema, instance):
            yield from Draft202012Validator.VALIDATORS["items"](validator, schema, instance, parent)

    def pattern(validator: Any, form: str, instance: Any, parent: Any) -> Iterator[Any]:
        # Python's `$` also matches before a last newline, which must not slip into an id.
        yield from Draft202012Validator.VALIDATORS["pattern"](validator, re.sub(r"\$$", r"\\Z", form), instance, parent)

    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    extend: Any = validators.extend
    return extend(Draft202012Validator, {"items": items, "pattern": pattern}, type_checker=types)


_NUMBERS: Mapping[str, set[type]] = {"number": {float, int}, "integer": {int}, "null": {type(None)}}


def _plain_numbers(schema: Any, values: Any) -> bool:
    """Whether a list of samples is sound, seen in one pass: item by item takes jsonschema far longer."""
    if not (isinstance(values, list) and isinstance(schema, dict) and "type" in schema and schema.keys() <= {"type", "minimum"}):
        return False
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not {*map(type, values)} <= set().union(*(_NUMBERS.get(name, set()) for name in names)):
        return False
    least = schema.get("minimum", -math.inf)
    return all(value is None or value >= least for value in values)


def _leaves(error: Any) -> Iterator[Any]:
    """Where a schema says this-or-null, what matters is why it is not this."""
    if error.validator != "anyOf":
        yield error
    for child in error.context:
        if child.relative_schema_path[0] == 0:
            yield from _leaves(child)


def _explain(error: Any) -> Iterator[Fault]:
    path = "$"
    for part in error.absolute_path:
        path = step(path, part)
    value, limit = error.instance, error.validator_value
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        yield from (Fault(step(path, key), f"unknown field{nearest(key, known)}") for key in value if key not in known)
    elif error.validator == "required":
        yield from (Fault(step(path, key), "missing") for key in limit if key not in value)
    elif error.validator != "pattern" or len(value) <= error.schema.get("maxLength", math.inf):
        subject = "the name " if "propertyNames" in list(error.absolute_schema_path)[-2:] else ""
        example = f"; for example {show(error.schema['examples'][0])}" if "examples" in error.schema else ""
        sentence = _SENTENCES.get(error.validator, lambda v, _: f"{show(v)} is refused")
        yield Fault(path, subject + sentence(value, limit) + example)


_TYPES = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null",
          "array": "a list", "object": "a mapping"}  # fmt: skip


def _one_of(value: Any, allowed: Sequence[Any]) -> str:
    names = [str(name) for name in allowed]
    rest = ", …" if len(names) > MAX_NAMES else ""
    return f"{show(value)} is not one of {', '.join(names[:MAX_NAMES])}{rest}{_meant(value, names)}"


_SENTENCES: Mapping[str | None, Callable[[Any, Any], str]] = {
    "type": lambda v, want: f"{show(v)} is not {' or '.join(_TYPES[t] for t in ([want] if isinstance(want, str) else want))}",
    "enum": _one_of,
    "const": lambda v, want: f"{show(v)} is not {show(want)}",
    "pattern": lambda v, want: f"{show(v)} does not have the form {want}",
    "minimum": lambda v, least: f"{show(v)} is less than {least}",
    "maximum": lambda v, most: f"{show(v)} is more than {most}",
    "exclusiveMinimum": lambda v, bound: f"{show(v)} is not more than {bound}",
    "exclusiveMaximum": lambda v, bound: f"{show(v)} is not less than {bound}",
    "minLength": lambda v, least: f"{len(v)} of at least {least} characters",
    "maxLength": lambda v, most: f"{len(v)} of at most {most} characters",
    "minItems": lambda v, least: f"{len(v)} of at least {least} items",
    "maxItems": lambda v, most: f"{len(v)} of at most {most} items",
    "minProperties": lambda v, least: f"{len(v)} of at least {least} fields",
    "maxProperties": lambda v, most: f"{len(v)} of at most {most} fields",
    "uniqueItems": lambda _, __: "an item comes twice",
}


def _twice(path: str, keys: Iterable[Hashable]) -> Iterator[Fault]:
    first: dict[Hashable, int] = {}
    for index, key in enumerate(keys):
        if first.setdefault(key, index) != index:
            yield Fault(f"{path}[{index}]", f"{show(key)} is there already, as {path}[{first[key]}]")


def _results_faults(results: Results) -> Iterator[Fault]:
    yield from _twice("$.cases", [row.case.id for row in results.cases])
    for index, row in enumerate(results.cases):
        yield from _row_faults(f"$.cases[{index}]", row)


def _row_faults(path: str, row: CaseResult) -> Iterator[Fault]:
    traces = row.parity.traces if row.parity else ()
    arms = [(f"{path}.case.reference", row.case.reference)]
    arms += [(f"{path}.metrics[{i}].arm", metric.arm) for i, metric in enumerate(row.metrics)]
    arms += [(f"{path}.checks[{i}].arm", check.arm) for i, check in enumerate(row.checks)]
    arms += [(f"{path}.parity.traces[{i}].arm", trace.arm) for i, trace in enumerate(traces)]
    yield from (Fault(where, f"{arm!r} is not one of the case's arms") for where, arm in arms if arm not in row.case.arms)
    yield from _twice(f"{path}.case.arms", row.case.arms)
    yield from _twice(f"{path}.metrics", [(metric.name, metric.arm) for metric in row.metrics])
    for index, metric in enumerate(row.metrics):
        yield from _metric_faults(f"{path}.metrics[{index}]", metric)
    for index, trace in enumerate(traces):
        yield from _trace_faults(f"{path}.parity.traces[{index}]", trace)


def _metric_faults(path: str, metric: Metric) -> Iterator[Fault]:
    yield from _twice(f"{path}.launches", [launch.launch for launch in metric.launches])
    for index, launch in enumerate(metric.launches):
        if launch.blocks and len(launch.blocks) != len(launch.values):
            yield Fault(f"{path}.launches[{index}].blocks", f"{len(launch.blocks)} blocks for {len(launch.values)} values")
        if metric.unit in {Unit.SECONDS, Unit.PER_SECOND} and 0 in launch.values:
            yield Fault(f"{path}.launches[{index}].values", "0 is not a time; a sample that is unknown is left out")


def _trace_faults(path: str, trace: Trace) -> Iterator[Fault]:
    if len(trace.loss) != len(trace.grad_norm):
        yield Fault(path, f"{len(trace.loss)} steps of loss, and {len(trace.grad_norm)} of grad_norm")
    named = {(entry.signal, entry.step) for entry in trace.non_finite}
    series = {"loss": trace.loss, "grad_norm": trace.grad_norm}
    holes = {(name, step) for name, values in series.items() for step, value in enumerate(values) if value is None}
    yield from (Fault(f"{path}.{name}[{index}]", "null without an entry in non_finite") for name, index in holes - named)
    yield from (Fault(f"{path}.non_finite", f"{name}[{index}] is not null in its series") for name, index in named - holes)


def _comparison_faults(comparison: Comparison) -> Iterator[Fault]:
    yield from _twice("$.cases", [case.id for case in comparison.cases])
    if (comparison.base is None) == (comparison.absence is None):
        yield Fault("$.absence", "text where base is null, and null where it is not")
    for index, case in enumerate(comparison.cases):
        yield from _twice(f"$.cases[{index}].pairs", [(pair.metric, pair.arm) for pair in case.pairs])
