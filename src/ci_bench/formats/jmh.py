"""JMH's JSON (``-rf json``), read: the primary metric of each benchmark, a launch for each fork.

https://github.com/openjdk/jmh (``JSONResultFormat``)
"""

import math
from collections.abc import Iterator

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series
from ci_bench.formats.units import direction
from ci_bench.records.results import Better

_THROUGHPUT, _NONE, _ALLOCATED = "thrpt", "NaN", "B/op"
_MACHINE = {"jdk": "jdkVersion", "vm": "vmName"}


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return (
        isinstance(root.value, list)
        and bool(root.value)
        and all(row.has("benchmark", "mode", "primaryMetric") for row in root.items())
    )


def read(root: Node) -> Reading:
    """Read the scores by fork and iteration.

    Of secondary metrics, bytes per operation count; others (collections, rates of allocation) are
    used only on request. Parameters, mode and threads are part of a benchmark's name. A benchmark
    without a score failed.
    """
    rows = list(root.items())
    without = [row for row in rows if not _is_known(row.field("primaryMetric"))]
    facts = [
        known_facts(
            (fact, part.value) for fact, name in _MACHINE.items() if (part := row.get(name))
        )
        for row in rows
    ]
    return Reading(
        series=tuple(series for row in rows for series in _series(row)),
        failed=tuple(
            Absent(benchmark=_name(row), reason="JMH has no score of it") for row in without
        ),
        tool="JMH",
        machine=facts[0] if facts and all(machine == facts[0] for machine in facts) else {},
    )


def _series(row: Node) -> Iterator[Series]:
    name, primary, secondary = _name(row), row.field("primaryMetric"), row.get("secondaryMetrics")
    if not _is_known(primary):
        return
    better = direction(primary.field("scoreUnit").text())
    better = better or (Better.HIGHER if row.field("mode").text() == _THROUGHPUT else Better.LOWER)
    yield _metric(name, "", primary, better, derived=False)
    for measure, metric in secondary.fields() if secondary else ():
        if metric.get("rawData") and _is_known(metric):
            allocated = metric.field("scoreUnit").value == _ALLOCATED
            better = Better.LOWER if allocated else None
            yield _metric(name, measure, metric, better, derived=not allocated)


def _is_known(metric: Node) -> bool:
    """Return whether no score is the text ``NaN``, which JMH writes if it could not measure."""
    raw, score = metric.get("rawData"), metric.get("score")
    forks = [fork.value for fork in raw.items()] if raw else []
    scores = [number for fork in forks if isinstance(fork, list) for number in fork] or [
        score.value if score else None
    ]
    return not any(
        number == _NONE or (isinstance(number, float) and math.isnan(number)) for number in scores
    )


def _name(row: Node) -> str:
    params, threads = row.get("params"), row.get("threads")
    words = [f"{key}={value.value}" for key, value in params.fields()] if params else []
    words += [f"threads={threads.value}"] if threads and threads.value != 1 else []
    return f"{row.field('benchmark').text()}[{', '.join([row.field('mode').text(), *words])}]"


def _metric(
    name: str, measure: str, metric: Node, better: Better | None, *, derived: bool
) -> Series:
    raw = metric.get("rawData")
    runs = (
        tuple(fork.numbers() for fork in raw.items())
        if raw and raw.value
        else ((metric.field("score").number(),),)
    )
    return Series(
        benchmark=name,
        measure=measure,
        runs=tuple(run for run in runs if run) or ((metric.field("score").number(),),),
        unit=metric.field("scoreUnit").text(),
        better=better,
        derived=derived,
    )
