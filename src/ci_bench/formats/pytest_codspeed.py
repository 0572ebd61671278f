"""Results of pytest-codspeed's walltime mode (``.codspeed/results_*.json``), read.

Times only, in nanoseconds.

Rounds are not in the file, only figures of them: the median of a round's time per call stands for
the benchmark. The simulation mode leaves its numbers with CodSpeed, so its file has none.
https://github.com/CodSpeedHQ/pytest-codspeed/blob/master/src/pytest_codspeed/instruments/walltime.py
"""

import posixpath

from ci_bench.formats.importing import known_facts, without_patch
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Reading, Series, one_run
from ci_bench.records.forms import Fact
from ci_bench.records.results import Better

WALLTIME = "walltime"


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    return root.has("creator", "instrument", "benchmarks") and root.field("creator").has("name")


def read(root: Node) -> Reading:
    """Read the median time per call of every benchmark.

    Its name is its place in the tree (``tests/test_x.py::test_sum[8]``).
    """
    kind = root.field("instrument").field("type")
    if kind.value != WALLTIME:
        kind.wrong(
            f"{kind.text()!r} leaves no times in this file: measure with --codspeed-mode=walltime"
        )
    creator = root.field("creator")
    version = creator.get("version")
    tool = creator.field("name").text()
    benchmarks = list(root.field("benchmarks").items())
    names = _names(
        [(benchmark.get("uri") or benchmark.field("name")).text() for benchmark in benchmarks]
    )
    return Reading(
        series=tuple(
            _series(name, benchmark) for name, benchmark in zip(names, benchmarks, strict=True)
        ),
        tool=f"{tool} {version.text()}" if version else tool,
        machine=_machine(root),
    )


def _names(places: list[str]) -> list[str]:
    """Return places in the tree.

    Outside of a git repository the tool writes whole paths; the folder that all share is removed.
    """
    if not places or not all(place.startswith("/") for place in places):
        return places
    folder = posixpath.commonpath([posixpath.dirname(place.partition("::")[0]) for place in places])
    return [place.removeprefix(folder).removeprefix("/") for place in places]


def _series(name: str, benchmark: Node) -> Series:
    median = benchmark.field("stats").field("median_ns").number()
    return Series(benchmark=name, runs=one_run(median), unit="ns", better=Better.LOWER)


def _machine(root: Node) -> dict[str, Fact]:
    """Return the interpreter, the file's only fact about the machine."""
    python = root.get("python")
    build = python.get("sysconfig") if python else None
    facts = build.value if build is not None and isinstance(build.value, dict) else {}
    return known_facts(
        (
            ("python", without_patch(facts.get("py_version") or facts.get("VERSION"))),
            ("platform", facts.get("HOST_GNU_TYPE")),
        )
    )
