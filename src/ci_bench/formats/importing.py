"""Other tools' files as a results document that the judge takes: a case for each benchmark, a launch for each process.

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
from ci_bench.formats.units import interpret
from ci_bench.records.faults import show
from ci_bench.records.metrics import IMPORTED
from ci_bench.records.results import (
    Better,
    Case,
    CaseResult,
    Environment,
    Fact,
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
    """A stable name: ``matmul``, ``matmul__memory``, ``bm_sum_64_k3x2ab``."""
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
    """A benchmark's name with ``_`` for all that has no place in the parameters of a case id."""
    return re.sub(r"[^A-Za-z0-9_.,=+:/-]", "_", benchmark)


def case_id(benchmark: str) -> str:
    """A benchmark's id, which depends on nothing but its name; what loses something on the way gets a digest of the whole."""
    plain = plain_name(benchmark)
    if plain == benchmark and len(plain) <= _LONGEST_ID and not {",", "="} & {*plain}:
        return f"{SUITE}/benchmark[name={plain}]"
    return f"{SUITE}/benchmark[name={plain[-_LONGEST_ID:]},digest={_digest(benchmark)}]"


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
    """A series as a metric, a launch for each of `runs`, numbered from `first`.

    Raises:
        Unreadable: the number is missing or impossible: a zero time, unless `zero_allowed`.
        Incomparable: a time, rate, energy or memory is below zero; counts and scores may be.
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
    negative = least < 0 and measured.unit is not Unit.COUNT
    if not values or negative or (timed and least * measured.scale == 0 and not zero_allowed):
        said = f"is {least:g} {unit}".rstrip() if values else "has no number"
        fault = Incomparable if negative else Unreadable
        raise fault(f"{listed([series.label])} {said}, which cannot be compared")
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
    )


def thinned(values: tuple[T, ...]) -> tuple[T, ...]:
    """At most `MOST_VALUES`, evenly spread over all."""
    if len(values) <= MOST_VALUES:
        return values
    return tuple(values[index * len(values) // MOST_VALUES] for index in range(MOST_VALUES))


class Incomparable(Unreadable):
    """A number that was measured and read, and of which no ratio means anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A side as `results`, and what is not in them or only in part.

    `launches` is the number of launches of the benchmark with the fewest. `undirected` are series
    without a direction, `gaps` benchmarks that not every file has, each with how many do;
    `incomparable` series with numbers below zero, each with why. `counters` are the measures of
    derived series without a direction.
    """

    results: Results
    launches: int
    undirected: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    incomparable: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True)
class _ImportedRow:
    """Data of one benchmark; `seen` counts the files that have it."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    incomparable: dict[str, str] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    skips: list[str] = field(default_factory=list)
    seen: int = 0


def import_results(files: Mapping[str, Reading], *, run: Run, tool_version: str) -> Imported:
    """The files of one side, by name, as one document: the launches of each file after those of the one before.

    Raises:
        Unreadable: they are of several formats or machines, differ in a unit, or nothing in them can be compared.
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
        raise Unreadable(_without_direction(list(undirected)))
    counts = [len(metric.launches) for case in cases for metric in case.metrics]
    one = next(iter(files.values()))
    return Imported(
        results=Results(
            tool_version=tool_version,
            run=run,
            source=Source(),
            environment=Environment(
                identity={FORMAT: one.form, **one.machine},
                condition={"measured_by": one.tool or None, "files": len(files)},
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


def _counters(readings: Iterable[Reading]) -> tuple[str, ...]:
    series = (one for reading in readings for one in reading.series)
    return tuple(
        dict.fromkeys(
            one.measure for one in series if one.derived and one.better is None and one.measure
        )
    )


def _gather(reading: Reading, rows: dict[str, _ImportedRow], undirected: dict[str, None]) -> None:
    """Add what one file says to the `rows` of its side, and series without a direction to `undirected`."""
    mains = {one.benchmark: _main(one) for one in reading.series if not one.measure}
    named = [one.benchmark for one in reading.series] + [
        one.benchmark for one in (*reading.failed, *reading.skipped)
    ]
    for name in dict.fromkeys(named):
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
    """Launches of one side are of one tool, on one machine."""
    (first, one), *others = files.items()
    for name, other in others:
        if other.form != one.form:
            raise Unreadable(
                f"{name} is a file of {other.form}, and {first} one of {one.form}; a side is of one"
                " format"
            )
        if other.machine != one.machine:
            facts = sorted(
                fact
                for fact in {*one.machine, *other.machine}
                if one.machine.get(fact) != other.machine.get(fact)
            )
            raise Unreadable(
                f"{name} and {first} were measured on two machines, which differ in"
                f" {', '.join(facts)}"
            )


def _add(row: _ImportedRow, series: Series, name: str) -> None:
    """The launches of a series, after those that earlier files have of it."""
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
    """The main series by its kind; a measure by its own name, apart from what the main one is called."""
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
    """A digest of the versions of a benchmark's code; empty without any."""
    joined = "\0".join(sorted(versions))
    return hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest()[:16] if joined else ""


def _without_direction(undirected: Sequence[str]) -> str:
    if not undirected:
        return "all its numbers are derived from other numbers, so nothing can be compared"
    return (
        f"it does not say which way {listed(undirected)} is better: give a unit that does (ms, MB,"
        " 1/s), a direction where the format has one, or write the numbers as `measurements`;"
        " files of the form [{name, unit, value}] are read with --from customSmallerIsBetter or"
        " customBiggerIsBetter"
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """Some of the names as people read them, the end of a long one, and how many more there are."""
    shown = [show(name if len(name) <= LONGEST else f"…{name[-LONGEST + 1 :]}") for name in names]
    return _some(shown, most)


def _some(words: Sequence[str], most: int = 3, *, between: str = ", ") -> str:
    """Some of the words, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def without_patch(version: object) -> object:
    """A version of Python as far as it decides what is compared: ``3.14.2 (64-bit)`` is ``3.14 (64-bit)``."""
    return (
        re.sub(r"^(\d+\.\d+)\.\d+(?=$| \()", r"\1", version)
        if isinstance(version, str)
        else version
    )


def known_facts(facts: Iterable[tuple[str, object]]) -> dict[str, Fact]:
    """Return a file's facts about its machine: texts and numbers, without empty ones."""
    known: dict[str, Fact] = {}
    for name, value in facts:
        if isinstance(value, str) and value.strip():
            known[name] = " ".join(value.split())[:200]
        elif isinstance(value, int | float) and is_number(value) and value:
            known[name] = value
    return known
