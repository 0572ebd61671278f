"""Faults of documents, with their paths, found by a schema or by checks beyond it.

Pure: values in, faults out; reading and writing is the business of `documents`. A document may come
from a stranger's pull request, so how much of it a message repeats is bounded. jsonschema is
imported where it is used: it costs more time than a command that does not need it.
"""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ci_bench.records.metrics import ENGINE, IMPORTED
from ci_bench.records.results import CaseResult, Metric, Results, Trace, Unit
from ci_bench.records.spelling import Places, find_places, meant, unknown_field
from ci_bench.records.units import TIMES

if TYPE_CHECKING:  # a configuration has faults, too, and is read without it
    from ci_bench.records.comparison import Comparison

MAX_FAULTS = 50
COUNTED_FAULTS = 1000
"""Counting stops here: a hostile document can hold millions of faults."""
MAX_LINE = 300
MAX_PATH = 150
MAX_VALUE = 60
MAX_NAMES = 12

SoundPart = Callable[[str, Any], bool]
"""Returns whether a value is certainly sound under a reference (`soundness.compiled_parts`)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a document, and where: ``$.cases[0].status``."""

    path: str
    message: str

    def __str__(self) -> str:
        """Return the line of a message, `MAX_LINE` characters at most."""
        line = f"{self.path}: {self.message}"
        return line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"


def oddities(value: Any, path: str) -> Iterator[Fault]:
    """Yield faults that Python's JSON lets through.

    They are duplicate fields, NaN and infinities, and half a surrogate pair.
    """
    if isinstance(value, dict):
        yield from (
            Fault(step(path, name), "the field comes twice") for name in getattr(value, "twice", ())
        )
        for key, item in value.items():
            yield from oddities(item, step(path, key))
    elif isinstance(value, list | tuple) and not _all_finite(value):
        for index, item in enumerate(value):
            yield from oddities(item, step(path, index))
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
    """Sort by path, `cases[2]` before `cases[10]`, and drop duplicates.

    Takes `COUNTED_FAULTS` at most.
    """
    return tuple(sorted(set(islice(faults, COUNTED_FAULTS)), key=_natural))


def _natural(fault: Fault) -> list[str | int]:
    return [
        int(part) if index % 2 else part
        for index, part in enumerate(re.split("([0-9]+)", str(fault)))
    ]


def capped(lines: Iterable[object], indent: str = "  ") -> str:
    """One line for each fault, and how many were left out."""
    texts = [f"{indent}{line}" for line in lines]
    more = len(texts) - MAX_FAULTS
    atleast = "at least " if len(texts) >= COUNTED_FAULTS else ""
    return "\n".join(
        texts[:MAX_FAULTS] + ([f"{indent}and {atleast}{more} more"] if more > 0 else [])
    )


def step(path: str, part: str | int) -> str:
    """Extend a JSON path, within bounds, by a field or an index; odd names are quoted."""
    if isinstance(part, int):
        return f"{path}[{part}]"[:MAX_PATH]
    return (
        f"{path}.{part}"
        if re.fullmatch("[A-Za-z0-9_]{1,60}", part)
        else f"{path}[{part[:MAX_VALUE]!r}]"
    )[:MAX_PATH]


def show(value: Any) -> str:
    """Return a value for a message: short, on one line, with nothing invisible."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = repr(value[:MAX_VALUE] if isinstance(value, str) else value)
    return text if len(text) <= MAX_VALUE + 2 else text[:MAX_VALUE] + "…"


def form_faults(
    raw: Any, form: Mapping[str, Any], is_sound: SoundPart | None = None
) -> tuple[Fault, ...]:
    """List faults of JSON or under a schema; a value that JSON forbids is reported only once."""
    oddity_faults = tuple(islice(oddities(raw, "$"), COUNTED_FAULTS))
    places = {fault.path for fault in oddity_faults}
    return ordered(
        chain(
            oddity_faults,
            (fault for fault in schema_faults(raw, form, is_sound) if fault.path not in places),
        )
    )


def schema_faults(
    raw: Any, schema: Mapping[str, Any], is_sound: SoundPart | None = None
) -> Iterator[Fault]:
    """Word every way in which a value breaks a JSON Schema.

    Raises `RecursionError` if the value is nested too deep.

    Values that `is_sound` accepts are not checked again: most of a faulty document is sound.
    """
    errors = _validator(is_sound)(schema).iter_errors(raw)
    places = cache(lambda: find_places(schema))
    return (
        fault for error in errors for leaf in _leaves(error) for fault in _explain(leaf, places)
    )


@cache
def _validator(is_sound: SoundPart | None) -> Any:
    from jsonschema import Draft202012Validator, validators

    def items(validator: Any, schema: Any, instance: Any, parent: Any) -> Iterator[Any]:
        too_many = isinstance(instance, list) and len(instance) > parent.get(
            "maxItems", math.inf
        )  # which is fault enough
        if not too_many and not _plain_numbers(schema, instance):
            yield from Draft202012Validator.VALIDATORS["items"](validator, schema, instance, parent)

    def pattern(validator: Any, form: str, instance: Any, parent: Any) -> Iterator[Any]:
        # Python's `$` also matches before a last newline, which must not slip into an id.
        yield from Draft202012Validator.VALIDATORS["pattern"](
            validator, re.sub(r"\$$", r"\\Z", form), instance, parent
        )

    def reference(validator: Any, target: str, instance: Any, parent: Any) -> Iterator[Any]:
        if is_sound is None or not is_sound(target, instance):
            yield from Draft202012Validator.VALIDATORS["$ref"](validator, target, instance, parent)

    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: type(value) is int
    )
    extend: Any = validators.extend
    return extend(
        Draft202012Validator,
        {"items": items, "pattern": pattern, "$ref": reference},
        type_checker=types,
    )


_NUMBERS: Mapping[str, set[type]] = {"number": {float, int}, "integer": {int}, "null": {type(None)}}


def _plain_numbers(schema: Any, values: Any) -> bool:
    """Return whether a list of samples is sound, in one pass.

    jsonschema takes far longer, item by item.
    """
    if not (
        isinstance(values, list)
        and isinstance(schema, dict)
        and "type" in schema
        and schema.keys() <= {"type", "minimum"}
    ):
        return False
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not {*map(type, values)} <= set().union(*(_NUMBERS.get(name, set()) for name in names)):
        return False
    least = schema.get("minimum", -math.inf)
    return all(value is None or value >= least for value in values)


def _leaves(error: Any) -> Iterator[Any]:
    """Yield the errors of the value, if a schema allows a value or null."""
    if error.validator != "anyOf":
        yield error
    for child in error.context:
        if child.relative_schema_path[0] == 0:
            yield from _leaves(child)


def _explain(error: Any, places: Callable[[], Places]) -> Iterator[Fault]:
    path = "$"
    for part in error.absolute_path:
        path = step(path, part)
    value, limit = error.instance, error.validator_value
    if error.validator == "additionalProperties":
        fields = tuple(error.schema.get("properties", {}))
        here = [part for part in error.absolute_path if isinstance(part, str)]
        for key in value:
            if key not in fields:
                yield Fault(step(path, key), unknown_field(key, fields, here, places()))
    elif error.validator == "required":
        yield from (Fault(step(path, key), "missing") for key in limit if key not in value)
    elif error.validator != "pattern" or len(value) <= error.schema.get("maxLength", math.inf):
        subject = "the name " if "propertyNames" in list(error.absolute_schema_path)[-2:] else ""
        example = (
            f"; for example {show(error.schema['examples'][0])}"
            if "examples" in error.schema
            else ""
        )
        sentence = _SENTENCES.get(error.validator, lambda v, _: f"{show(v)} is refused")
        yield Fault(path, subject + sentence(value, limit) + example)


_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "a mapping",
}


def _one_of(value: Any, allowed: Sequence[Any]) -> str:
    names = [str(name) for name in allowed]
    rest = ", …" if len(names) > MAX_NAMES else ""
    return f"{show(value)} is not one of {', '.join(names[:MAX_NAMES])}{rest}{meant(value, names)}"


_SENTENCES: Mapping[str | None, Callable[[Any, Any], str]] = {
    "type": lambda v, want: (
        f"{show(v)} is not"
        f" {' or '.join(_TYPES[t] for t in ([want] if isinstance(want, str) else want))}"
    ),
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


def twice(path: str, keys: Iterable[Hashable]) -> Iterator[Fault]:
    """Yield a fault for each item of a list whose key an earlier one has."""
    first: dict[Hashable, int] = {}
    for index, key in enumerate(keys):
        if first.setdefault(key, index) != index:
            yield Fault(
                f"{path}[{index}]", f"{show(key)} is there already, as {path}[{first[key]}]"
            )


def not_moments(path: str, texts: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault for each item whose `at` is not a moment of time (ISO 8601)."""
    for index, text in enumerate(texts):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            yield Fault(f"{path}[{index}].at", f"{show(text)} is not a moment of time")


def results_faults(results: Results) -> Iterator[Fault]:
    """Yield faults beyond the schema: duplicate ids, unknown arms, series that do not match."""
    yield from twice("$.cases", [row.case.id for row in results.cases])
    for index, row in enumerate(results.cases):
        yield from _row_faults(f"$.cases[{index}]", row)
        yield from _origin_faults(f"$.cases[{index}]", row, len(results.parts))
    yield from twice("$.parts", [part.run.id for part in results.parts])


def _origin_faults(path: str, row: CaseResult, parts: int) -> Iterator[Fault]:
    """Check that a merged document names the origin of each launch, and no other does."""
    yield from twice(f"{path}.origins", [origin.launch for origin in row.origins])
    yield from twice(f"{path}.origins", [(origin.part, origin.number) for origin in row.origins])
    if any(origin.part >= parts for origin in row.origins):
        yield Fault(f"{path}.origins", f"names a part that is not one of the {parts} in $.parts")
    measured = (
        {launch.launch for metric in row.metrics for launch in metric.launches} if parts else set()
    )
    for number in sorted(measured - {origin.launch for origin in row.origins}):
        yield Fault(f"{path}.origins", f"does not say where launch {number} comes from")


def _row_faults(path: str, row: CaseResult) -> Iterator[Fault]:
    parity = row.parity
    sources = (parity, parity.twin, parity.without_dropout) if parity else ()
    traces = tuple(trace for source in sources if source for trace in source.traces)
    arms = [(f"{path}.case.reference", row.case.reference)]
    arms += [(f"{path}.metrics[{i}].arm", metric.arm) for i, metric in enumerate(row.metrics)]
    arms += [(f"{path}.checks[{i}].arm", check.arm) for i, check in enumerate(row.checks)]
    arms += [(f"{path}.parity.traces[{i}].arm", trace.arm) for i, trace in enumerate(traces)]
    arms += [(f"{path}.outputs.arm", row.outputs.arm)] if row.outputs else []
    yield from (
        Fault(where, f"{arm!r} is not one of the case's arms")
        for where, arm in arms
        if arm not in row.case.arms
    )
    yield from twice(f"{path}.case.arms", row.case.arms)
    yield from twice(f"{path}.metrics", [(metric.name, metric.arm) for metric in row.metrics])
    for index, metric in enumerate(row.metrics):
        yield from _metric_faults(
            f"{path}.metrics[{index}]", metric, foreign=row.case.suite == IMPORTED
        )
    for index, trace in enumerate(traces):
        yield from _trace_faults(f"{path}.parity.traces[{index}]", trace)


def _metric_faults(path: str, metric: Metric, *, foreign: bool) -> Iterator[Fault]:
    """In `foreign` files a value that another tool cannot show is 0."""
    signed = metric.unit is Unit.COUNT and metric.name not in ENGINE
    yield from twice(f"{path}.launches", [launch.launch for launch in metric.launches])
    for index, launch in enumerate(metric.launches):
        if launch.blocks and len(launch.blocks) != len(launch.values):
            yield Fault(
                f"{path}.launches[{index}].blocks",
                f"{len(launch.blocks)} blocks for {len(launch.values)} values",
            )
        if metric.unit in TIMES and 0 in launch.values and not foreign:
            yield Fault(
                f"{path}.launches[{index}].values",
                "0 is not a time; a sample that is unknown is left out",
            )
        if not signed and min(launch.values, default=0.0) < 0:
            at, least = next((at, value) for at, value in enumerate(launch.values) if value < 0)
            yield Fault(f"{path}.launches[{index}].values[{at}]", f"{least:g} is less than 0")


def _trace_faults(path: str, trace: Trace) -> Iterator[Fault]:
    if trace.grad_norm and len(trace.loss) != len(
        trace.grad_norm
    ):  # a program of the user's may tell no norm
        yield Fault(
            path, f"{len(trace.loss)} steps of loss, and {len(trace.grad_norm)} of grad_norm"
        )
    entries = {(entry.signal, entry.step) for entry in trace.non_finite}
    series = {"loss": trace.loss, "grad_norm": trace.grad_norm}
    holes = {
        (name, step)
        for name, values in series.items()
        for step, value in enumerate(values)
        if value is None
    }
    yield from (
        Fault(f"{path}.{name}[{index}]", "null without an entry in non_finite")
        for name, index in holes - entries
    )
    yield from (
        Fault(f"{path}.non_finite", f"{name}[{index}] is not null in its series")
        for name, index in entries - holes
    )


def comparison_faults(comparison: "Comparison") -> Iterator[Fault]:
    """Yield faults beyond the schema: duplicate ids, and an absence in spite of a base."""
    yield from twice("$.cases", [case.id for case in comparison.cases])
    if (comparison.base is None) == (comparison.absence is None):
        yield Fault("$.absence", "text where base is null, and null where it is not")
    for index, case in enumerate(comparison.cases):
        yield from twice(
            f"$.cases[{index}].pairs", [(pair.metric, pair.arm) for pair in case.pairs]
        )
