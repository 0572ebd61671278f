"""Reader of nvbench's JSON (``--json FILE``).

Its samples are in separate binary files (``--jsonbin``), which are not read.

The form is that of ``nvbench/json_printer.cu`` of version 1.0.0 of the format: numbers are written
as texts.
"""

from collections.abc import Iterator

from ci_bench.formats.importing import known_facts
from ci_bench.formats.parsing import Node
from ci_bench.formats.series import Absent, Reading, Series, Unreadable, one_run
from ci_bench.records.forms import Fact
from ci_bench.records.results import Better

_MAIN = (
    "nv/cold/time/gpu/median",
    "nv/cold/time/gpu/mean",
    "nv/cpu_only/time/cpu/median",
    "nv/cpu_only/time/cpu/mean",
)
"""The main time of a state: the first of these that it has."""
_DERIVED = {
    "nv/cold/time/cpu/mean": ("cpu_time", "s", Better.LOWER),
    "nv/batch/time/gpu/mean": ("batch_time", "s", Better.LOWER),
    "nv/cold/bw/global/bytes_per_second": ("bytes_per_second", "B/s", Better.HIGHER),
    "nv/cold/bw/item_rate": ("item_rate", "1/s", Better.HIGHER),
}
_OWN = "nv/"


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    benchmarks = root.get("benchmarks")
    return (
        root.has("devices")
        and benchmarks is not None
        and all(benchmark.has("name", "states") for benchmark in benchmarks.items())
    )


def read(root: Node) -> Reading:
    """Read the GPU time of every state (a benchmark with one value for each of its axes)."""
    series: list[Series] = []
    skipped: list[Absent] = []
    for benchmark in root.field("benchmarks").items():
        states = benchmark.get("states")
        for state in states.items() if states else ():
            name = f"{benchmark.field('name').text()}[{state.field('name').text()}]"
            if state.has("is_skipped") and state.field("is_skipped").value is True:
                reason = state.get("skip_reason")
                skipped.append(
                    Absent(
                        benchmark=name,
                        reason=str(reason.value) if reason else "no reason was given",
                    )
                )
            else:
                series += _series(name, state)
    return Reading(
        series=tuple(series), skipped=tuple(skipped), tool=_tool(root), machine=_machine(root)
    )


def _machine(root: Node) -> dict[str, Fact]:
    """Return the GPUs by name, each once."""
    names = [
        str(device.field("name").value)
        for device in root.field("devices").items()
        if device.get("name")
    ]
    return known_facts((("device", "cuda"), ("gpu", ", ".join(dict.fromkeys(names)))))


def _series(name: str, state: Node) -> Iterator[Series]:
    summaries = {
        summary.field("tag").text(): summary for summary in state.field("summaries").items()
    }
    main = next((tag for tag in _MAIN if tag in summaries), None)
    if main is not None:
        yield Series(
            benchmark=name, runs=one_run(_value(summaries[main])), unit="s", better=Better.LOWER
        )
    for tag, summary in summaries.items():
        if tag in _DERIVED:
            if _is_infinite(summary):
                continue
            measure, unit, better = _DERIVED[tag]
            value = one_run(_value(summary))
            yield Series(
                benchmark=name, measure=measure, runs=value, unit=unit, better=better, derived=True
            )
        elif not tag.startswith(_OWN) and _has_number(summary):
            yield Series(
                benchmark=name,
                measure=tag,
                runs=one_run(_value(summary)),
                unit="",
                better=None,
                derived=True,
            )


def _datum(summary: Node) -> Node | None:
    data = summary.get("data")
    entries = data.items() if data else iter(())
    return next(
        (
            entry
            for entry in entries
            if entry.has("name", "value") and entry.value["name"] == "value"
        ),
        None,
    )


def _is_infinite(summary: Node) -> bool:
    """Return whether it is a rate of no time."""
    datum = _datum(summary)
    return datum is not None and datum.value["value"] == "inf"


def _has_number(summary: Node) -> bool:
    try:
        return _value(summary) is not None
    except Unreadable:
        return False


def _value(summary: Node) -> float:
    datum = _datum(summary)
    if datum is None:
        summary.wrong("its data has no entry 'value'")
    value = datum.field("value")
    try:
        return Node(float(value.value), value.path).number()
    except (TypeError, ValueError, OverflowError):
        value.wrong(f"{value.value!r:.60} is not a number")


def _tool(root: Node) -> str:
    meta = root.get("meta")
    version = meta.get("version") if meta else None
    release = version.get("nvbench") if version else None
    text = release.get("string") if release else None
    return f"nvbench {text.text()}" if text else "nvbench"
