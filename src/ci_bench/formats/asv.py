"""A results file of airspeed velocity (``results/MACHINE/COMMIT-ENVIRONMENT.json``), read.

A benchmark's name contains the kind of its figure, as in asv itself. The file has neither unit nor
direction for ``track_`` benchmarks. https://asv.readthedocs.io/en/stable/dev.html#benchmark-results
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, one_run
from ci_bench.records.faults import show
from ci_bench.records.forms import Fact
from ci_bench.records.results import Better

_VERSION = 2
_KINDS = {
    "time": ("s", Better.LOWER),
    "timeraw": ("s", Better.LOWER),
    "mem": ("bytes", Better.LOWER),
    "peakmem": ("bytes", Better.LOWER),
}
_PEAK = "peakmem"


@dataclass(kw_only=True, slots=True)
class _FoundSeries:
    series: list[Series] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    failed: list[Absent] = field(default_factory=list)
    skipped: list[Absent] = field(default_factory=list)


def matches(root: Node) -> bool:
    """Return whether it looks like this format, or its first version, which had no columns."""
    return root.has("result_columns", "results") or root.has("results", "commit_hash", "params")


def read(root: Node) -> Reading:
    """Read every benchmark with every combination of its parameters.

    Its numbers are its samples if asv recorded them, else its result.
    """
    version = root.get("version")
    if version is None or version.value != _VERSION:
        actual = "no version" if version is None else f"version {show(version.value)}"
        root.wrong(
            f"it is not of version {_VERSION} of asv's results, but of {actual}; run `asv update`"
        )
    columns = [column.text() for column in root.field("result_columns").items()]
    collected = _FoundSeries()
    for name, row in root.field("results").fields():
        _read_row(name, row, columns, collected)
    return Reading(
        series=tuple(collected.series),
        failed=tuple(collected.failed),
        skipped=tuple(collected.skipped),
        tool="asv",
        machine=_machine(root),
        versions=collected.versions,
    )


def _machine(root: Node) -> dict[str, Fact]:
    """Return the machine by the name that asv's user gave it, and the interpreter."""
    params = root.get("params")
    return known_facts(
        (name, parameter.value)
        for name in ("machine", "python")
        if params and (parameter := params.get(name))
    )


def _read_row(name: str, row: Node, columns: list[str], collected: _FoundSeries) -> None:
    if row.value is None:
        collected.failed.append(Absent(benchmark=name, reason="asv has no result of it"))
        return
    # asv drops columns at the end that hold nothing
    cells = dict(zip(columns, row.items(), strict=False))
    if "result" not in cells:
        row.wrong("the column 'result' is missing")
    results, samples = cells["result"], cells.get("samples")
    if results.value is None:
        collected.failed.append(Absent(benchmark=name, reason="it failed"))
        return
    version = cells.get("version")
    sample_lists = (
        list(samples.items()) if samples is not None and samples.value is not None else []
    )
    for index, (label, result) in enumerate(
        zip(_labels(name, cells.get("params"), results), results.items(), strict=True)
    ):
        if version is not None and isinstance(version.value, str):
            collected.versions[label] = version.value
        if result.value is None:
            collected.failed.append(Absent(benchmark=label, reason="it failed"))
        elif isinstance(result.value, float) and math.isnan(result.value):
            collected.skipped.append(Absent(benchmark=label, reason="asv skipped it"))
        else:
            values = (
                sample_lists[index].numbers()
                if index < len(sample_lists) and sample_lists[index].value
                else (result.number(),)
            )
            collected.series.append(_series(name, label, values))


def _labels(name: str, params: Node | None, results: Node) -> Iterator[str]:
    """Return name and parameters as asv shows them, in the order of its results.

    The last parameter changes fastest.
    """
    count = len(results.value) if isinstance(results.value, list) else 0
    choices = (
        [[str(setting.value) for setting in choice.items()] for choice in params.items()]
        if params and params.value
        else []
    )
    if math.prod(map(len, choices)) != count:
        results.wrong(
            f"{count} results for {math.prod(map(len, choices))} combinations of parameters"
        )
    return islice(
        (
            f"{name}({', '.join(combination)})" if combination else name
            for combination in product(*choices)
        ),
        count,
    )


def _series(name: str, label: str, values: tuple[float, ...]) -> Series:
    kind = name.rpartition(".")[2].partition("_")[0].lower()
    unit, better = _KINDS.get(kind, ("", None))
    return Series(
        benchmark=label, runs=one_run(*values), unit=unit, better=better, peak=kind == _PEAK
    )
