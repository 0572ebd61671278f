"""pytest-codspeed's results of its walltime mode (``.codspeed/results_*.json``), read. Times only, in nanoseconds.

Rounds are not in the file, only figures of them: the median of a round's time per call stands for the benchmark. The simulation
mode leaves its numbers with CodSpeed, so that its file has none.
https://github.com/CodSpeedHQ/pytest-codspeed/blob/master/src/pytest_codspeed/instruments/walltime.py
"""

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Reading, Series, one_run
from ci_bench.records.results import Better, Fact

WALLTIME = "walltime"


def matches(root: Node) -> bool:
    """Whether it looks like this format."""
    return root.has("creator", "instrument", "benchmarks") and root.field("creator").has("name")


def read(root: Node) -> Reading:
    """The median time per call of every benchmark, by its place in the tree (``tests/test_x.py::test_sum[8]``)."""
    kind = root.field("instrument").field("type")
    if kind.value != WALLTIME:
        kind.wrong(f"{kind.text()!r} leaves no times in this file: measure with --codspeed-mode=walltime")
    creator = root.field("creator")
    version = creator.get("version")
    name = creator.field("name").text()
    return Reading(
        series=tuple(_series(one) for one in root.field("benchmarks").items()),
        tool=f"{name} {version.text()}" if version else name,
        machine=_machine(root),
    )


def _series(benchmark: Node) -> Series:
    name = benchmark.get("uri") or benchmark.field("name")
    median = benchmark.field("stats").field("median_ns").number()
    return Series(benchmark=name.text(), runs=one_run(median), unit="ns", better=Better.LOWER)


def _machine(root: Node) -> dict[str, Fact]:
    """The interpreter is all that the file tells of the machine."""
    python = root.get("python")
    build = python.get("sysconfig") if python else None
    facts = build.value if build is not None and isinstance(build.value, dict) else {}
    return known_facts((("python", facts.get("py_version") or facts.get("VERSION")), ("platform", facts.get("HOST_GNU_TYPE"))))
