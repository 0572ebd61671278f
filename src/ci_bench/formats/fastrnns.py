"""Output of PyTorch's ``benchmarks/fastrnns``, written from a run of the suite `fastrnns`.

The forms are table, `oss` and `pep`.

Groups, names, columns and widths are the old tool's, so its readers keep working; times are
milliseconds on every device, where the old tool wrote seconds on the CPU. An average is the mean of
all samples of all launches and a deviation is theirs (n - 1), as before. A variant that gave no
times stays out of both JSON forms, as before, but has its row in the table with its status. These
forms cannot hold launches, warm-ups, intervals, the reference and the speedup over it, checks,
memory, compile latency, units and sizes. Cases of one variant are distinguished by the brackets in
their ids.
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ci_bench.formats.exporting import Files, Written, one_file
from ci_bench.records.results import CaseResult, Results, Status

SUITE = "fastrnns"
COLUMNS = ("name", "avg_fwd", "std_fwd", "info_fwd", "avg_bwd", "std_bwd", "info_bwd")
WIDTH = 16
MILLI = 1e3
PREFIX = "Caffe2Observer "
"""Prefix of each line of `pep`."""
GROUPS = {"vl_lstm": "variable-length sequence LSTM", "lstm": "LSTM", "resnet": "ResNet"}
"""The old tool's groups in its order, with the words of its headings."""
NO_INFO = "None"


@dataclass(frozen=True, kw_only=True, slots=True)
class _FastrnnsRow:
    """One variant."""

    group: str
    """Key of the variant's group in `GROUPS`."""
    name: str
    """Name of the variant, with the arm or the brackets of its case if there are several."""
    forward: tuple[float, ...]
    """Samples of the forward pass in milliseconds; empty if not measured."""
    backward: tuple[float, ...]
    """Samples of the backward pass in milliseconds; empty if not measured."""
    ending: str
    """Status of the case; empty if it is ok."""


def write_table(results: Results, *, sep: str = " ") -> Written:
    """Write the old tool's tables, one for each group.

    Each cell is 16 characters wide, and numbers have four significant digits.
    """
    rows = list(_rows(results))
    lines: list[str] = []
    for group, title in GROUPS.items():
        group_rows = [row for row in rows if row.group == group]
        if group_rows:
            lines += [
                f"Benchmarking {title}s...",
                sep.join(map(_cell, COLUMNS)),
                *(sep.join(_cells(row)) for row in group_rows),
                "",
            ]
    return Written(text="\n".join(lines), left_out=_left_out(results))


def write_oss(results: Results) -> Written:
    """Write ``{group: {variant: mean}, group-backward: {variant: mean}}`` on one line."""
    means: dict[str, dict[str, float]] = {}
    for group, name, values in _series(results):
        means.setdefault(group, {})[name] = statistics.fmean(values)
    return Written(text=json.dumps(means) + "\n", left_out=_left_out(results))


def write_pep(results: Results) -> Written:
    """Write a line for each sample: type NET, metric group-variant, unit ms, the value as text."""
    lines = [
        PREFIX
        + json.dumps(
            {"type": "NET", "metric": f"{group}-{name}", "unit": "ms", "value": str(value)}
        )
        for group, name, values in _series(results)
        for value in values
    ]
    return Written(text="".join(f"{line}\n" for line in lines), left_out=_left_out(results))


def _series(results: Results) -> Iterator[tuple[str, str, tuple[float, ...]]]:
    """Yield group, name and samples of each direction, in the order of the old documents."""
    rows = list(_rows(results))
    for group in GROUPS:
        group_rows = [row for row in rows if row.group == group]
        yield from ((group, row.name, row.forward) for row in group_rows if row.forward)
        yield from (
            (f"{group}-backward", row.name, row.backward) for row in group_rows if row.backward
        )


def _rows(results: Results) -> Iterator[_FastrnnsRow]:
    cases = [row for row in results.cases if row.case.suite == SUITE]
    times = Counter(_variant(row) for row in cases)
    for row in cases:
        variant = _variant(row)
        name = variant if times[variant] == 1 else variant + row.case.id[row.case.id.find("[") :]
        arms = tuple(arm for arm in row.case.arms if arm != row.case.reference) or row.case.arms
        for arm in arms:
            yield _FastrnnsRow(
                group=_group(variant),
                name=name if len(arms) == 1 else f"{name} {arm}",
                forward=_samples(row, arm, "forward_time"),
                backward=_samples(row, arm, "backward_time"),
                ending="" if row.status is Status.OK else row.status.value,
            )


def _variant(row: CaseResult) -> str:
    return str(row.case.params.get("variant", row.case.name))


def _group(variant: str) -> str:
    if variant.startswith("vl_"):
        return "vl_lstm"
    return "resnet" if variant.startswith("resnet") else "lstm"


def _samples(row: CaseResult, arm: str, metric: str) -> tuple[float, ...]:
    """Return all samples of an arm of the variant.

    The reference has a separate row if it was requested.
    """
    metrics = [entry for entry in row.metrics if (entry.name, entry.arm) == (metric, arm)]
    return tuple(
        value * MILLI for entry in metrics for launch in entry.launches for value in launch.values
    )


def _cells(row: _FastrnnsRow) -> Iterator[str]:
    yield _cell(row.name)
    for values in (row.forward, row.backward):
        mean = f"{statistics.fmean(values):.4g}" if values else row.ending or "not measured"
        yield _cell(mean)
        yield _cell(f"{statistics.stdev(values):.4g}" if len(values) > 1 else "nan")
        yield _cell(NO_INFO)


def _cell(text: str) -> str:
    return text.rjust(WIDTH) if len(text) < WIDTH else text[:WIDTH]


def _left_out(results: Results) -> tuple[str, ...]:
    """Return the cases of other suites, which these forms have no group for."""
    return tuple(row.case.id for row in results.cases if row.case.suite != SUITE)


def export_table(results: Results) -> Files:
    """Return the old tool's tables as a file."""
    return one_file(write_table(results))


def export_oss(results: Results) -> Files:
    """Return the text of `write_oss` as a file."""
    return one_file(write_oss(results))


def export_pep(results: Results) -> Files:
    """Return the text of `write_pep` as a file."""
    return one_file(write_pep(results))
