"""JMH's JSON (``-rf json``), read: the primary metric of each benchmark, a launch for each fork.

https://github.com/openjdk/jmh (``JSONResultFormat``)
"""

from collections.abc import Iterator

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Reading, Series
from ci_bench.records.results import Better

_THROUGHPUT = "thrpt"
_MACHINE = {"jdk": "jdkVersion", "vm": "vmName"}


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return (
        isinstance(root.value, list)
        and bool(root.value)
        and all(one.has("benchmark", "mode", "primaryMetric") for one in root.items())
    )


def read(root: Node) -> Reading:
    """Scores by fork and iteration; secondary metrics (allocation rates and the like) only if they are asked for.

    Parameters, mode and threads are part of a benchmark's name.
    """
    rows = list(root.items())
    facts = [known_facts((fact, part.value) for fact, name in _MACHINE.items() if (part := row.get(name))) for row in rows]
    return Reading(
        series=tuple(series for row in rows for series in _series(row)),
        tool="JMH",
        machine=facts[0] if facts and all(one == facts[0] for one in facts) else {},
    )


def _series(row: Node) -> Iterator[Series]:
    mode = row.field("mode").text()
    better = Better.HIGHER if mode == _THROUGHPUT else Better.LOWER
    name = _name(row, mode)
    yield _metric(name, "", row.field("primaryMetric"), better, derived=False)
    secondary = row.get("secondaryMetrics")
    for measure, metric in secondary.fields() if secondary else ():
        if metric.get("rawData"):
            yield _metric(name, measure, metric, None, derived=True)


def _name(row: Node, mode: str) -> str:
    params, threads = row.get("params"), row.get("threads")
    words = [f"{key}={value.value}" for key, value in params.fields()] if params else []
    words += [f"threads={threads.value}"] if threads and threads.value != 1 else []
    return f"{row.field('benchmark').text()}[{', '.join([mode, *words])}]"


def _metric(name: str, measure: str, metric: Node, better: Better | None, *, derived: bool) -> Series:
    raw = metric.get("rawData")
    runs = tuple(fork.numbers() for fork in raw.items()) if raw and raw.value else ((metric.field("score").number(),),)
    return Series(
        benchmark=name,
        measure=measure,
        runs=tuple(run for run in runs if run) or ((metric.field("score").number(),),),
        unit=metric.field("scoreUnit").text(),
        better=better,
        derived=derived,
    )
