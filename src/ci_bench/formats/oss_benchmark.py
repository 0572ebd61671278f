"""Records of PyTorch's OSS benchmark database (v3), read and written.

https://github.com/pytorch/pytorch/wiki/How-to-integrate-with-PyTorch-OSS-benchmark-database

Read are a list of records, one record, or one on each line. A record has neither unit nor
direction; they are taken from ``metric.unit``, ``metric.extra_info`` (``unit``, ``better``) or the
metric's name (``latency(ms)``, ``token_per_sec``), if a writer put them there. The direction of a
time, a rate, memory or energy follows from the unit. Records of PyTorch's dynamo runner are read as
its tables: the last one of a metric counts, and its words of accuracy are in ``metric.extra_info``.

The writer makes one JSON array, one record per metric. A record names benchmark, model and metric;
all samples go into ``benchmark_values``. Metrics have one type, numbers: how a case ended is in
``extra_info``, and in the metric ``passed``, 0 or 1, which failed and skipped cases have as well.
Paths, command lines and environments are left out. Losses: launches and blocks of samples,
warm-ups, details of checks.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ci_bench.formats.dynamo_csv import (
    MAIN,
    accuracy_word,
    candidates,
    device_of,
    model_of,
    of_models,
    speedup_of,
)
from ci_bench.formats.exporting import Files, Written, one_file
from ci_bench.formats.importing import known_facts, listed
from ci_bench.formats.parsing import Node, is_missing, parse_each, parse_json
from ci_bench.formats.series import Reading, Series, Unreadable, one_run
from ci_bench.formats.units import direction_of, unit_in
from ci_bench.records.forms import Fact
from ci_bench.records.results import Better, CaseResult, Outcome, Results, Status


def is_lines(text: str) -> bool:
    """Return whether it is one JSON text on each of several lines."""
    first, newline, rest = text.strip().partition("\n")
    try:
        return bool(newline and rest) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def parse(text: str) -> Node:
    """Parse one JSON text, or one on each line, or several in a row, as a list.

    Raises `Unreadable`.
    """
    if is_lines(text):
        lines = enumerate(text.strip().splitlines(), 1)
        return Node([_line(number, line) for number, line in lines if line.strip()], "$")
    try:
        return parse_json(text)
    except Unreadable:
        if (several := parse_each(text)) is None:
            raise
        return several


def _line(number: int, line: str) -> Any:
    try:
        return parse_json(line).value
    except Unreadable as error:
        raise Unreadable(f"line {number}: {str(error).removeprefix('line 1, ')}") from error


def matches(root: Node) -> bool:
    """Return whether it looks like this format."""
    records = list(root.items()) if isinstance(root.value, list) else [root]
    return bool(records) and all(record.has("benchmark", "metric") for record in records)


def read(root: Node) -> Reading:
    """Read all values of each metric.

    A benchmark is named by benchmark, model, backend, mode, data type, device, inputs and
    arguments.
    """
    records = list(root.items()) if isinstance(root.value, list) else [root]
    reading = of_models(_rows([record for record in records if _is_of_runner(record)]))
    others = [(record, record.field("metric")) for record in records if not _is_of_runner(record)]
    texts = [metric.field("name").text() for _, metric in others if _texts(metric)]
    without = [
        metric.field("name").text()
        for _, metric in others
        if not _texts(metric) and _is_empty(metric)
    ]
    groups = (
        ("texts are not compared", texts),
        ("metrics without a number are not compared", without),
    )
    return replace(
        reading,
        series=(
            *reading.series,
            *(
                _series(record)
                for record, metric in others
                if not _texts(metric) and not _is_empty(metric)
            ),
        ),
        tool="PyTorch OSS benchmark v3",
        machine=_machine(records),
        notes=tuple(
            f"{words}: {listed([*dict.fromkeys(names)])}" for words, names in groups if names
        ),
    )


def _machine(records: Sequence[Node]) -> dict[str, Fact]:
    """Return the runner that the database's own records name, if all name the same one."""
    runners = {
        str([_fact(runner, name) for name in ("type", "gpu_info")]): runner
        for record in records
        for runner in _runners(record)
    }
    if len(runners) != 1:
        return {}
    (runner,) = runners.values()
    return known_facts((("runner", _fact(runner, "type")), ("gpu", _fact(runner, "gpu_info"))))


def _runners(record: Node) -> Sequence[Node]:
    node = record.get("runners")
    return list(node.items()) if node is not None and isinstance(node.value, list) else []


def _fact(runner: Node, name: str) -> object:
    node = runner.get(name)
    return None if node is None else node.value


_RUNNER = "TorchInductor"
"""The benchmark's name in records of ``benchmarks/dynamo/common.py`` (``output_json``)."""


def _is_of_runner(record: Node) -> bool:
    return bool(record.field("benchmark").field("name").value == _RUNNER)


def _rows(records: Sequence[Node]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the runner's records as rows of its tables, by the name of each model.

    Settings distinguish several rows of a model.
    """
    names = [" ".join(_words(record)) for record in records]
    settings = [_settings(record) for record in records]
    several = Counter(name for name, _ in {*zip(names, settings, strict=True)})
    rows: dict[str, tuple[str, dict[str, str]]] = {}
    for record, name, setting in zip(records, names, settings, strict=True):
        metric = record.field("metric")
        measure = metric.field("name").text()
        values = _texts(metric) or [
            repr(value) for value in _values(metric) if measure == MAIN or not math.isnan(value)
        ]
        row = rows.setdefault(
            f"{name} ({setting})" if several[name] > 1 else name, (record.path, {})
        )[1]
        if values:  # other figures that are NaN are left out
            row[measure] = values[-1]
    return rows


def _settings(record: Node) -> str:
    """Return the runner's settings without the batch size, since a model that failed has 0."""
    info = record.field("benchmark").get("extra_info")
    settings = info.value if info and isinstance(info.value, dict) else {}
    return _spelt(
        {name: value for name, value in settings.items() if name not in {"device", "batch_size"}}
    )


def _texts(metric: Node) -> list[str]:
    """Return the words of a metric without numbers, such as an accuracy's ``pass``."""
    info, numbers = metric.get("extra_info"), metric.get("benchmark_values")
    words = info.get("benchmark_values") if info and not (numbers and numbers.value) else None
    return [str(word.value) for word in words.items()] if words else []


def _is_empty(metric: Node) -> bool:
    """Return whether the list of numbers holds none."""
    values = list(metric.field("benchmark_values").items())
    return all(is_missing(value.value) for value in values)


def _values(metric: Node) -> Sequence[float]:
    """Return the numbers of a metric, NaN included, which the runner writes for missing ones."""
    field = metric.field("benchmark_values")
    values = [math.nan if is_missing(node.value) else node.number() for node in field.items()]
    return values or field.wrong("the list is empty")


def _series(record: Node) -> Series:
    metric = record.field("metric")
    info = metric.get("extra_info")
    about, better = (info.get("unit"), info.get("better")) if info else (None, None)
    name, unit = metric.field("name").text(), metric.get("unit") or about
    unit_text = unit.text() if unit else unit_in(name)
    values = [
        node.number()
        for node in metric.field("benchmark_values").items()
        if not is_missing(node.value)
    ]
    return Series(
        benchmark=" ".join(_words(record)),
        measure=name,
        runs=one_run(*values),
        unit=unit_text,
        better=(
            Better(better.value)
            if better is not None and better.value in tuple(Better)
            else direction_of(name, unit_text)
        ),
    )


def _words(record: Node) -> Iterator[str]:
    """Yield the words that distinguish benchmarks, as far as the record has them."""
    benchmark, model = record.field("benchmark"), record.get("model")
    yield benchmark.field("name").text()
    info = benchmark.get("extra_info")
    places = (
        (model, "name"),
        (model, "backend"),
        (benchmark, "mode"),
        (benchmark, "dtype"),
        (info, "device"),
        (info, "case"),
    )
    for node, name in places:
        part = node.get(name) if node is not None else None
        if part is not None and part.value:
            yield part.text()
    for name, part in (
        ("", record.get("inputs")),
        ("", info and info.get("input_config")),
        ("args", info and info.get("args")),
    ):
        words = _spelt(part.value) if part is not None and part.value else ""
        if words:
            yield f"{name}({words})"


MAX_WORDS = 300


def _spelt(value: Any) -> str:
    """Spell out inputs or arguments to distinguish sets of them.

    A digest replaces the end of a long one.
    """
    words = _flat(value)
    if len(words) <= MAX_WORDS:
        return words
    return (
        f"{words[:MAX_WORDS]}… {hashlib.sha256(words.encode('utf-8', 'replace')).hexdigest()[:6]}"
    )


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        parts = ((key, _flat(inner)) for key, inner in value.items())
        joined = ((key, words, isinstance(value[key], dict)) for key, words in parts if words)
        return ", ".join(
            words if key == "extra_info" else f"{key} {words}" if deep else f"{key}={words}"
            for key, words, deep in joined
        )
    if isinstance(value, list):
        return " ".join(filter(None, map(_flat, value)))
    return "" if value is None else str(value)


NAME = "ci-bench"


def write(results: Results) -> Files:
    """Write all records of a run, of every suite.

    Values that only one suite has are in ``extra_info``.
    """
    device = device_of(results)
    records = [record for row in results.cases for record in _records(row, device)]
    return one_file(Written(text=json.dumps(records, indent=1, allow_nan=False) + "\n"))


def _records(row: CaseResult, device: str) -> Iterator[dict[str, Any]]:
    for metric in row.metrics:
        values = [value for launch in metric.launches for value in launch.values]
        yield _record(
            row,
            device,
            metric.arm,
            metric.name,
            values=values,
            about={"unit": str(metric.unit), "better": str(metric.better)},
        )
    for arm in candidates(row):
        speedup = speedup_of(row, arm)
        if speedup is not None:
            yield _record(
                row,
                device,
                arm,
                "speedup",
                values=[speedup],
                about={"unit": "x", "better": str(Better.HIGHER)},
            )
        yield _record(
            row,
            device,
            arm,
            "passed",
            values=[float(_passed(row, arm))],
            about={"better": str(Better.HIGHER)},
        )


def _passed(row: CaseResult, arm: str) -> bool:
    """Return whether a case ended well, and no check of the arm or of its reference failed."""
    checks = [
        check
        for check in row.checks
        if check.arm in {arm, row.case.reference} or len(candidates(row)) == 1
    ]
    return row.status is Status.OK and not any(
        check.outcome is Outcome.FAIL and not check.informative for check in checks
    )


def _record(
    row: CaseResult,
    device: str,
    arm: str,
    name: str,
    *,
    values: list[float],
    about: Mapping[str, str],
) -> dict[str, Any]:
    params = row.case.params
    settings = params.get("settings")
    batch = next((measured.items for measured in row.metrics if measured.items), None) or (
        settings or {}
    ).get("batch_size")
    extra = {
        "device": device,
        "suite": row.case.suite,
        "case": row.case.id,
        "status": str(row.status),
        "batch_size": batch,
    }
    word = accuracy_word(row, arm)
    return {
        "benchmark": {
            "name": NAME,
            "mode": params.get("mode", ""),
            "dtype": params.get("precision", ""),
            "extra_info": extra | ({} if word is None else {"accuracy": word}),
        },
        "model": {
            "name": model_of(row),
            "type": str(params.get("source", row.case.suite)),
            "backend": arm,
            "origins": ["pytorch"],
        },
        "metric": {"name": name, "benchmark_values": values, "extra_info": dict(about)},
    }
