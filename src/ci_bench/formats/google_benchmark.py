"""Google Benchmark's JSON (``--benchmark_out=FILE --benchmark_out_format=json``), read and written.

https://github.com/google/benchmark/blob/main/docs/user_guide.md#output-formats
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from ci_bench.formats.exporting import Export, Written, split_times
from ci_bench.formats.importing import known_facts, listed
from ci_bench.formats.parsing import Node, is_missing, is_number
from ci_bench.formats.series import Absent, Reading, Runs, Series, one_run
from ci_bench.records.faults import show
from ci_bench.records.results import Better

_NO_COUNTERS = {
    "family_index",
    "per_family_instance_index",
    "repetitions",
    "repetition_index",
    "threads",
    "iterations",
    "real_time",
    "cpu_time",
}
_KNOWN: dict[str, tuple[str, Better | None, bool]] = {
    "bytes_per_second": ("B/s", Better.HIGHER, True),
    "items_per_second": ("1/s", Better.HIGHER, True),
    "allocs_per_iter": ("count", Better.LOWER, False),
    "max_bytes_used": ("bytes", Better.LOWER, False),
    "total_allocated_bytes": ("bytes", Better.LOWER, True),
}
"""Unit, direction and whether it is derived, of the counters that the library itself writes."""
_AGGREGATES = ("median", "mean")
_OLD_AGGREGATES = ("mean", "median", "stddev", "cv")
"""Endings of names of aggregates in files of version 1.4 and older."""
_FITS = ("BigO", "RMS")
"""Aggregates of a curve over several benchmarks, in separate rows."""
_NS_PER_S = 1e9


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    if not root.has("context", "benchmarks"):
        return False
    rows = list(root.field("benchmarks").items())
    return all(row.has("name") for row in rows) and not any(
        row.has("className", "metrics")  # androidx.benchmark's
        for row in rows
    )


def read(root: Node) -> Reading:
    """Read the real time per iteration.

    It is one number for each repetition, or the median if only aggregates were written.
    """
    groups = _groups(_with_aggregates(list(root.field("benchmarks").items())))
    series: list[Series] = []
    failed: list[Absent] = []
    skipped: list[Absent] = []
    for name, rows in groups.items():
        if errors := [row for row in rows if _is_true(row, "error_occurred")]:
            failed.append(Absent(benchmark=name, reason=_read_message(errors[0], "error_message")))
        elif skips := [row for row in rows if _is_skipped(row)]:
            skipped.append(Absent(benchmark=name, reason=_read_message(skips[0], "skip_message")))
        elif samples := _samples(rows):
            if any(row.has("real_time") and is_missing(row.value["real_time"]) for row in samples):
                failed.append(Absent(benchmark=name, reason="a repetition of it has no time"))
            else:
                series += _series(name, samples)
        elif other := [
            word for row in rows if (word := str(row.field("aggregate_name").value)) not in _FITS
        ]:
            reason = (
                f"the file has only the aggregates {', '.join(other)} of it, and no repetition,"
                " median or mean"
            )
            skipped.append(
                Absent(
                    benchmark=name,
                    reason=f"{reason}; run it without --benchmark_report_aggregates_only",
                )
            )
    version = root.field("context").get("library_version")
    tool = f"Google Benchmark {version.text()}" if version else "Google Benchmark"
    context = root.field("context").value
    facts = context if isinstance(context, dict) else {}
    machine = known_facts(
        (("cpu_count", facts.get("num_cpus")), ("build", facts.get("library_build_type")))
    )
    return Reading(
        series=tuple(series),
        failed=tuple(failed),
        skipped=tuple(skipped),
        tool=tool,
        machine=machine,
        notes=_lost(groups),
    )


def _with_aggregates(rows: Sequence[Node]) -> Sequence[Node]:
    """Add the fields that mark aggregates in newer files."""
    if any(row.has("run_type") for row in rows):
        return rows
    names = {row.field("name").text() for row in rows}
    return [_with_aggregate(row, names) for row in rows]


def _with_aggregate(row: Node, names: Collection[str]) -> Node:
    name, _, word = row.field("name").text().rpartition("_")
    if word not in _OLD_AGGREGATES or not {f"{name}_mean", f"{name}_stddev"} <= {*names}:
        return row
    return Node({**row.value, "run_name": name, "aggregate_name": word}, row.path)


def _groups(rows: Sequence[Node]) -> Mapping[str, Sequence[Node]]:
    """Return the rows of each benchmark by name, numbered if several have the same name."""
    groups: dict[tuple[str, ...], list[Node]] = {}
    for row in rows:
        name = (row.get("run_name") or row.field("name")).text()
        indices = (row.get("family_index"), row.get("per_family_instance_index"))
        key = (name, *(str(index.value) if index else "" for index in indices))
        groups.setdefault(key, []).append(row)
    counts: Counter[str] = Counter()
    by_name: dict[str, Sequence[Node]] = {}
    for (name, *_), group in groups.items():
        counts[name] += 1
        by_name[name if counts[name] == 1 else f"{name} #{counts[name]}"] = group
    return by_name


def _lost(groups: Mapping[str, Sequence[Node]]) -> tuple[str, ...]:
    """Return a note on counters without a number in some repetition, or nothing.

    The library writes NaN for unknown values.
    """
    lost: set[str] = set()
    for rows in groups.values():
        samples = _samples(rows)
        counters = {
            name for row in samples for name, node in row.fields() if isinstance(node.value, float)
        } - _NO_COUNTERS
        lost |= counters - {*(_counters(samples) if samples else ())}
    return (
        (f"counters without a number in each repetition are left out: {listed(sorted(lost))}",)
        if lost
        else ()
    )


def _is_true(row: Node, name: str) -> bool:
    return row.has(name) and row.field(name).value is True


def _is_skipped(row: Node) -> bool:
    skipped = row.get("skipped")
    if skipped is not None and isinstance(skipped.value, list | dict):
        skipped.wrong(f"{show(skipped.value)} is neither true nor false")
    return skipped is not None and bool(skipped.value)


def _read_message(row: Node, name: str) -> str:
    message = row.get(name)
    return str(message.value) if message else "no reason was given"


def _samples(rows: Sequence[Node]) -> Sequence[Node]:
    """Return the rows of single repetitions, or the best aggregate if there are only aggregates."""
    single = [row for row in rows if not row.get("aggregate_name")]
    by_name = {
        str(row.field("aggregate_name").value): row for row in rows if row.get("aggregate_name")
    }
    return single or [by_name[name] for name in _AGGREGATES if name in by_name][:1]


def _series(name: str, rows: Sequence[Node]) -> Iterator[Series]:
    unit = rows[0].get("time_unit")
    text = unit.text() if unit else "ns"
    for measure, derived in (("real_time", False), ("cpu_time", True)):
        if derived and any(row.has(measure) and is_missing(row.value[measure]) for row in rows):
            continue
        values = one_run(*(row.field(measure).number() for row in rows))
        label = "" if measure == "real_time" else measure
        yield Series(
            benchmark=name,
            measure=label,
            runs=values,
            unit=text,
            better=Better.LOWER,
            derived=derived,
        )
    for key in _counters(rows):
        unit_text, better, derived = _KNOWN.get(key, ("", None, True))
        values = one_run(*(row.field(key).number() for row in rows))
        yield Series(
            benchmark=name, measure=key, runs=values, unit=unit_text, better=better, derived=derived
        )


def _counters(rows: Sequence[Node]) -> list[str]:
    """Return the counters that are numbers in every row.

    The library writes NaN for unknown values.
    """
    fields = [dict(row.fields()) for row in rows]
    names = [name for name in fields[0] if name not in _NO_COUNTERS]
    return [
        name for name in names if all(name in row and is_number(row[name].value) for row in fields)
    ]


def write(export: Export) -> Written:
    """Write a repetition for each launch: the median of its samples.

    A case without measured launches becomes a benchmark with an error.
    """
    times, left_out = split_times(export)
    rows = [row for index, (name, runs) in enumerate(times) for row in _rows(index, name, runs)]
    rows += [_broken(len(times) + index, absent) for index, absent in enumerate(export.failed)]
    context = {
        "date": export.started_at,
        "executable": "ci-bench",
        "library_version": f"ci-bench {export.tool_version}",
        "json_schema_version": 1,
    }
    return Written(
        text=json.dumps({"context": context, "benchmarks": rows}, indent=2) + "\n",
        left_out=left_out,
    )


def _row(index: int, name: str, *, repetitions: int, repetition: int) -> dict[str, Any]:
    return {
        "name": name,
        "family_index": index,
        "per_family_instance_index": 0,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": repetitions,
        "repetition_index": repetition,
        "threads": 1,
        "iterations": 1,
    }


def _rows(index: int, name: str, runs: Runs) -> Iterator[dict[str, Any]]:
    for number, run in enumerate(runs):
        nanoseconds = median(run) * _NS_PER_S
        row = _row(index, name, repetitions=len(runs), repetition=number)
        yield {
            **row,
            "iterations": len(run),
            "real_time": nanoseconds,
            "cpu_time": nanoseconds,
            "time_unit": "ns",
        }


def _broken(index: int, absent: Absent) -> dict[str, Any]:
    row = _row(index, absent.benchmark, repetitions=1, repetition=0)
    error = {"error_occurred": True, "error_message": absent.reason}
    return {**row, **error, "iterations": 0, "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ns"}
