"""Import of other tools' files as a results document that the judge takes.

A benchmark is a case, a process is a launch.

Facts missing from a file stay unknown: a benchmark with only a summary becomes a launch of one
value, and the machine is as far as the file describes it. Series without a direction and derived
ones do not become metrics. Pure: files are the edge's business.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ci_bench.formats import FORMAT
from ci_bench.formats.parsing import is_number
from ci_bench.formats.series import Reading, Runs, Series, Unreadable
from ci_bench.formats.units import interpret, is_convertible
from ci_bench.records.faults import show
from ci_bench.records.forms import Fact
from ci_bench.records.metrics import ENGINE, IMPORTED
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Environment,
    Failure,
    Lane,
    Launch,
    Metric,
    Results,
    Run,
    Source,
    Status,
    Unit,
)
from ci_bench.records.units import TIMES

T = TypeVar("T")

SUITE = ARM = IMPORTED
CUSTOM = "github-action-benchmark"
"""Format whose custom files have no direction."""
MAIN = {Unit.SECONDS: "time", Unit.BYTES: "bytes", Unit.PER_SECOND: "rate"}
PEAK, VALUE = "memory", "value"
"""Names of a benchmark's main series by its unit, and of a process's peak of memory.

Any other is a value.
"""
MAINS = (*MAIN.values(), PEAK, VALUE)
LONGEST = 60
LONGEST_TITLE = 200
_JOINT = "__"
_DIGEST = 6
_LONGEST_ID, _LONGEST_NAME = 400, 80
MOST_VALUES = 1000
"""Samples of one launch, and launches, beyond this are thinned: they tell nothing more, and results
have to be carried around.
"""


def metric_name(benchmark: str, measure: str) -> str:
    """Return a stable name: ``matmul``, ``matmul__memory``, ``bm_sum_64_k3x2ab``."""
    parts = [part for part in (benchmark, measure) if part]
    words = [re.sub(r"[^a-z0-9]+", "_", part.lower()).strip("_") for part in parts]
    name = _JOINT.join(filter(None, words))
    if words == parts and len(name) <= LONGEST:
        return name
    tail = _digest(f"{benchmark}\0{measure}")
    # The end of a long name says more than its start: most tools put the file first and the
    # parameters last.
    stem = name[-(LONGEST - _DIGEST - 1) :].strip("_")
    return f"{stem}_{tail}" if stem else tail


def plain_name(benchmark: str) -> str:
    """Replace by ``_`` all that has no place in the parameters of a case id."""
    return re.sub(r"[^A-Za-z0-9_.,=+:/-]", "_", benchmark)


def case_id(benchmark: str) -> str:
    """Return a benchmark's id, which depends only on its name.

    A name that loses something on the way gets a digest of the whole.
    """
    cleaned = plain_name(benchmark)
    if cleaned == benchmark and len(cleaned) <= _LONGEST_ID and not {",", "="} & {*cleaned}:
        return f"{SUITE}/benchmark[name={cleaned}]"
    return f"{SUITE}/benchmark[name={cleaned[-_LONGEST_ID:]},digest={_digest(benchmark)}]"


def _digest(text: str) -> str:
    return (
        base64.b32encode(hashlib.sha256(text.encode("utf-8", "replace")).digest())
        .decode()
        .lower()[:_DIGEST]
    )


def metric_of(
    series: Series,
    runs: Runs,
    *,
    name: str,
    unit: str,
    better: Better,
    arm: str,
    first: int = 0,
    zero_allowed: bool = False,
) -> Metric:
    """Convert a series to a metric, a launch for each of `runs`, numbered from `first`.

    Raises:
        Unreadable: the number is missing or impossible: a zero time, unless `zero_allowed`.
        Incomparable: a time, rate, energy, memory or count of the engine is below zero; other
            counts, and scores, may be.
    """
    measured = interpret(unit)
    timed = measured.unit in TIMES
    values = [value for run in runs for value in run]
    least = min(values, default=0.0)
    furthest = max(values, default=0.0, key=abs)
    if not is_number(furthest * measured.scale):
        raise Unreadable(
            f"{listed([series.label])} is {furthest:g} {unit}, which no computer can measure"
        )
    signed = measured.unit is Unit.COUNT and name not in ENGINE
    negative = least < 0 and not signed
    if not values or negative or (timed and least * measured.scale == 0 and not zero_allowed):
        problem = f"is {least:g} {unit}".rstrip() if values else "has no number"
        fault = Incomparable if negative else Unreadable
        raise fault(f"{listed([series.label])} {problem}, which cannot be compared")
    launches = enumerate(thinned(tuple(run for run in runs if run)), start=first)
    return Metric(
        name=name,
        arm=arm,
        unit=measured.unit,
        better=better,
        lane=Lane.WALL if timed else Lane.COUNTERS,
        launches=tuple(
            Launch(launch=number, values=tuple(value * measured.scale for value in thinned(run)))
            for number, run in launches
        ),
        unscaled=_unscaled(unit)[:LONGEST_TITLE],
    )


def thinned(values: tuple[T, ...]) -> tuple[T, ...]:
    """Return at most `MOST_VALUES` values, evenly spread over all."""
    if len(values) <= MOST_VALUES:
        return values
    return tuple(values[index * len(values) // MOST_VALUES] for index in range(MOST_VALUES))


class Incomparable(Unreadable):
    """A number that was measured and read, and of which no ratio means anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A side as results, and what is not in them or only in part."""

    results: Results
    """The document for the judge."""
    launches: int
    """Number of launches of the metric with the fewest; 0 without metrics."""
    undirected: tuple[str, ...] = ()
    """Labels of series without a direction, which are not in `results`."""
    counters: tuple[str, ...] = ()
    """Measures of derived series without a direction, which are not in `results`."""
    gaps: tuple[str, ...] = ()
    """Benchmarks that not every file has, each with the number of files that have it."""
    incomparable: tuple[str, ...] = ()
    """Descriptions of series with numbers below zero, which are not in `results`."""


@dataclass(kw_only=True, slots=True)
class _ImportedRow:
    """Data of one benchmark."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    """Metrics by name, with the launches of all files so far."""
    failures: list[str] = field(default_factory=list)
    """Reasons of failures."""
    incomparable: dict[str, str] = field(default_factory=dict)
    """Reasons by label of series that cannot be compared."""
    versions: set[str] = field(default_factory=set)
    """Versions of the benchmark's code that the files name."""
    skips: list[str] = field(default_factory=list)
    """Reasons of skips."""
    seen: int = 0
    """Number of files that have the benchmark."""


def import_results(files: Mapping[str, Reading], *, run: Run, tool_version: str) -> Imported:
    """Convert the files of one side, by name, to one document.

    The launches of each file follow those of the previous one.

    Raises:
        Unreadable: they are of several formats or machines, differ in a unit, or nothing in them
            can be compared.
    """
    _require_one(files)
    rows: dict[str, _ImportedRow] = {}
    undirected: dict[str, None] = {}
    for reading in files.values():
        _gather(reading, rows, undirected)
    cases = tuple(
        _case(name, row) for name, row in rows.items() if row.metrics or row.failures or row.skips
    )
    incomparable = tuple(words for row in rows.values() for words in row.incomparable.values())
    if not cases and incomparable:
        raise Unreadable(f"nothing in it can be compared: {_some(incomparable, between='; ')}")
    if not cases:
        raise Unreadable(_nothing_to_compare(list(files.values()), list(undirected)))
    counts = [len(metric.launches) for case in cases for metric in case.metrics]
    first = next(iter(files.values()))
    return Imported(
        results=Results(
            tool_version=tool_version,
            run=run,
            source=Source(),
            environment=Environment(
                identity={FORMAT: first.form, **first.machine},
                condition={"measured_by": first.tool or None, "files": len(files)},
            ),
            cases=cases,
        ),
        launches=min(counts, default=0),
        undirected=tuple(undirected),
        counters=_counters(files.values()),
        incomparable=incomparable,
        gaps=tuple(
            f"{name} ({row.seen} of {len(files)} files)"
            for name, row in rows.items()
            if row.seen < len(files)
        ),
    )


_PLAIN = frozenset({"", "count", "counts", "#"})
"""Spellings of no unit."""


def _unscaled(unit: str) -> str:
    """Return a unit that cannot be converted; empty for any other."""
    return "" if is_convertible(unit) or unit in _PLAIN else unit


def require_same_units(files: Sequence[tuple[str, Reading]]) -> None:
    """Check that all files, by name, have the same unit if it cannot be converted.

    Raises:
        Unreadable: the same series is in two such units, ``W`` and ``mW``.
    """
    units: dict[tuple[str, str, Unit], tuple[str, str]] = {}
    for name, reading in files:
        for series in reading.series:
            if series.derived or series.better is None:
                continue
            unit = _unscaled(series.unit)
            key = (series.benchmark, series.measure, interpret(series.unit).unit)
            other, first = units.setdefault(key, (unit, name))
            if other != unit:
                raise Unreadable(
                    f"{listed([series.label])} has the unit {show(series.unit)} in {name}, and"
                    f" {show(other) if other else 'another'} in {first}; convert one of them, or"
                    " give the benchmark another name"
                )


def _counters(readings: Iterable[Reading]) -> tuple[str, ...]:
    series = (entry for reading in readings for entry in reading.series)
    return tuple(
        dict.fromkeys(
            entry.measure
            for entry in series
            if entry.derived and entry.better is None and entry.measure
        )
    )


def _gather(reading: Reading, rows: dict[str, _ImportedRow], undirected: dict[str, None]) -> None:
    """Add one file to the `rows` of its side, and series without a direction to `undirected`."""
    mains = {entry.benchmark: _main(entry) for entry in reading.series if not entry.measure}
    benchmarks = [entry.benchmark for entry in reading.series] + [
        entry.benchmark for entry in (*reading.failed, *reading.skipped)
    ]
    for name in dict.fromkeys(benchmarks):
        rows.setdefault(name, _ImportedRow()).seen += 1
    for series in reading.series:
        if not series.derived and series.better is None:
            undirected.setdefault(series.label)
        elif not series.derived:
            _add(rows[series.benchmark], series, _name(series, mains.get(series.benchmark)))
    for name, version in reading.versions.items():
        if name in rows:
            rows[name].versions.add(version)
    for absent in reading.failed:
        rows[absent.benchmark].failures.append(absent.reason)
    for absent in reading.skipped:
        rows[absent.benchmark].skips.append(absent.reason)


def _require_one(files: Mapping[str, Reading]) -> None:
    """Check that launches of one side are of one tool, on one machine."""
    (first, reading), *others = files.items()
    for name, other in others:
        if other.form != reading.form:
            raise Unreadable(
                f"{name} is a file of {other.form}, and {first} one of {reading.form}; a side is of"
                " one format"
            )
        if other.machine != reading.machine:
            facts = sorted(
                fact
                for fact in {*reading.machine, *other.machine}
                if reading.machine.get(fact) != other.machine.get(fact)
            )
            raise Unreadable(
                f"{name} and {first} were measured on two machines, which differ in"
                f" {', '.join(facts)}"
            )


def _add(row: _ImportedRow, series: Series, name: str) -> None:
    """Add the launches of a series after those of earlier files."""
    assert series.better is not None  # noqa: S101 - only a bug of ours breaks it
    before = row.metrics.get(name)
    try:
        metric = metric_of(
            series,
            series.runs,
            name=name,
            unit=series.unit,
            better=series.better,
            arm=ARM,
            first=len(before.launches) if before else 0,
            zero_allowed=True,
        )
    except Incomparable as error:
        row.incomparable.setdefault(series.label, str(error))
        return
    except Unreadable as error:
        row.failures.append(str(error))
        return
    if before is not None and (before.unit, before.better) != (metric.unit, metric.better):
        raise Unreadable(
            f"{show(series.label)} has another unit or direction in another file of the same side"
        )
    launches = (*before.launches, *metric.launches) if before else metric.launches
    title = series.measure[:LONGEST_TITLE] if series.measure != name else ""
    row.metrics[name] = replace(metric, launches=thinned(launches), title=title)


def _main(series: Series) -> str:
    if series.peak:
        return PEAK
    return MAIN.get(interpret(series.unit).unit, VALUE)


def _name(series: Series, main: str | None) -> str:
    """Return the main series' name by its kind, or a measure's own name.

    A measure with the main name gets a suffix.
    """
    name = metric_name("", series.measure) if series.measure else _main(series)
    return f"{name}{_JOINT}measure" if series.measure and name == main else name


def _case(benchmark: str, row: _ImportedRow) -> CaseResult:
    status, reasons = (
        (Status.FAILED, row.failures)
        if row.failures
        else (Status.OK if row.metrics else Status.SKIPPED, row.skips)
    )
    reason = "; ".join(dict.fromkeys(reasons))[:2000]
    return CaseResult(
        case=Case(
            id=case_id(benchmark),
            suite=SUITE,
            name=re.sub(r"[^A-Za-z0-9_.-]", "_", benchmark)[-_LONGEST_NAME:],
            params={},
            arms=(ARM,),
            reference=ARM,
            title=benchmark[:LONGEST_TITLE],
            body=_body(row.versions),
        ),
        status=status,
        reproduce="",
        failure=None if status is Status.OK else Failure(stage="benchmark", arms=(), reason=reason),
        metrics=tuple(row.metrics.values()),
    )


def _body(versions: Iterable[str]) -> str:
    """Return a digest of the versions of a benchmark's code; empty without any."""
    joined = "\0".join(sorted(versions))
    return hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:16] if joined else ""


def _nothing_to_compare(readings: Sequence[Reading], undirected: Sequence[str]) -> str:
    if not undirected:
        derived = dict.fromkeys(
            series.measure or series.benchmark for reading in readings for series in reading.series
        )
        return (
            f"all its numbers ({listed([*derived])}) are derived from other numbers, so nothing can"
            " be compared: have the tool write its times too, or write the numbers as"
            " `measurements`"
        )
    which = f"it does not say which way {listed(undirected)} is better"
    if readings[0].form == CUSTOM:
        return (
            f"{which}: name it with --from customSmallerIsBetter or --from customBiggerIsBetter; if"
            " it has both kinds, write them as two files, or as `measurements`"
        )
    return (
        f"{which}: give a unit that does (ms, MB, 1/s), a direction where the format has one, or"
        " write the numbers as `measurements`"
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return some of the names for people, long ones shortened, and the number of others."""
    shown = [show(name if len(name) <= LONGEST else f"…{name[-LONGEST + 1 :]}") for name in names]
    return _some(shown, most)


def _some(words: Sequence[str], most: int = 3, *, between: str = ", ") -> str:
    """Return some of the words, and the number of others."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def without_patch(version: object) -> object:
    """Return a version of Python without its patch: ``3.14.2 (64-bit)`` is ``3.14 (64-bit)``."""
    return (
        re.sub(r"^(\d+\.\d+)\.\d+(?=$| \()", r"\1", version)
        if isinstance(version, str)
        else version
    )


def known_facts(facts: Iterable[tuple[str, object]]) -> dict[str, Fact]:
    """Return a file's facts about its machine: texts and numbers, without empty ones."""
    cleaned: dict[str, Fact] = {}
    for name, value in facts:
        if isinstance(value, str) and value.strip():
            cleaned[name] = " ".join(value.split())[:200]
        elif isinstance(value, int | float) and is_number(value) and value:
            cleaned[name] = value
    return cleaned
