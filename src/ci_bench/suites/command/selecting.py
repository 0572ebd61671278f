"""Selection of the series of a reading that become metrics: names, units and directions. Pure.

A direction is never guessed. A series is not used, and is reported, if neither the tool nor a rule
gives its better direction. Names are what results allow (`[a-z0-9_]{1,60}`), made from the tools'
names for their series. A name depends only on the series itself, so a benchmark that comes or goes
renames no other. A name that loses characters gets six characters of a digest, so two different
names stay different.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ci_bench.formats.importing import LONGEST_TITLE, metric_name, metric_of
from ci_bench.formats.series import Absent, Reading, Series, Unreadable
from ci_bench.records.results import Better, Metric
from ci_bench.suites.command.options import SelectionRule
from ci_bench.suites.contract import NotMeasured

SHOWN = 8


class BadOutput(NotMeasured):
    """The output of a command cannot be used. The message explains what to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesSelection:
    """The used part of a reading, of one arm and launch."""

    metrics: tuple[Metric, ...]
    """Selected series as metrics."""
    names: Mapping[str, str]
    """The tool's name of each metric's series, by the metric's name."""
    tool: str
    """Name of the tool that wrote the output; empty if unknown."""
    failed: tuple[Absent, ...]
    """Benchmarks that failed, without those that a rule ignores."""
    skipped: tuple[Absent, ...]
    """Benchmarks that the tool skipped, without those that a rule ignores."""
    undirected: tuple[str, ...]
    """Names of series left out because their better direction is unknown."""


@dataclass(kw_only=True, slots=True)
class _Picked:
    """Series collected from a reading; `used` are the positions of rules that matched."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    undirected: list[str] = field(default_factory=list)


def select(
    reading: Reading, rules: Sequence[SelectionRule], *, arm: str, launch: int
) -> SeriesSelection:
    """Apply the first rule that fits a series.

    Without a rule, series with a direction that are not derived are used.

    Raises:
        BadOutput: a rule fits nothing, two series get one name, a number cannot be judged, or
            nothing is left.
    """
    picked = _Picked()
    for series in reading.series:
        _pick(series, rules, picked, arm=arm, launch=launch)
    failed = _not_ignored(reading.failed, rules, picked.used)
    skipped = _not_ignored(reading.skipped, rules, picked.used)
    for position, rule in enumerate(rules):
        if position not in picked.used:
            raise BadOutput(
                f"metrics[{position}].match: {rule.match!r} matches nothing; the output has"
                f" {_describe_series(reading)}"
            )
    if not picked.metrics and not failed:
        raise BadOutput(_nothing_left(reading, picked))
    return SeriesSelection(
        metrics=tuple(picked.metrics.values()),
        names=picked.names,
        tool=reading.tool,
        failed=failed,
        skipped=skipped,
        undirected=tuple(picked.undirected),
    )


def _pick(
    series: Series, rules: Sequence[SelectionRule], picked: _Picked, *, arm: str, launch: int
) -> None:
    position = _first_fitting(rules, series.label)
    rule = rules[position] if position is not None else None
    if position is not None:
        picked.used.add(position)
    if (rule is None and series.derived) or (rule is not None and not rule.use):
        return
    better = (rule.better if rule else None) or series.better
    if better is None:
        if rule is not None:
            raise BadOutput(
                f"metrics[{position}]: the tool does not say which way {series.label!r} is better;"
                " add `better`"
            )
        picked.undirected.append(series.label)
        return
    name = (rule.name if rule else None) or metric_name(series.benchmark, series.measure)
    if name in picked.metrics:
        raise BadOutput(
            f"{series.label!r} and {picked.names[name]!r} would both be called {name}; give one"
            " another `name`"
        )
    unit = (rule.unit if rule else None) or series.unit
    metric = _metric(name, series, unit, better, arm=arm, launch=launch)
    picked.metrics[name] = (
        metric if rule and rule.name else replace(metric, title=_title(name, series))
    )
    picked.names[name] = series.label


def _metric(
    name: str, series: Series, unit: str, better: Better, *, arm: str, launch: int
) -> Metric:
    """Convert a series to a metric.

    One run of a command is one launch, whatever it started itself.
    """
    try:
        return metric_of(
            series, (series.values,), name=name, unit=unit, better=better, arm=arm, first=launch
        )
    except Unreadable as error:
        raise BadOutput(f"{error}; leave it out: `metrics: [{{match: …, use: false}}]`") from error


def _title(name: str, series: Series) -> str:
    """Return the tool's name if it differs from the metric's, else an empty text."""
    return "" if series.label == name else series.label[:LONGEST_TITLE]


def _not_ignored(
    absences: Sequence[Absent], rules: Sequence[SelectionRule], used: set[int]
) -> tuple[Absent, ...]:
    reported = []
    for absent in absences:
        position = _first_fitting(rules, absent.benchmark)
        used |= {position} if position is not None else set()
        if position is None or rules[position].use:
            reported.append(absent)
    return tuple(reported)


def _first_fitting(rules: Sequence[SelectionRule], label: str) -> int | None:
    return next((position for position, rule in enumerate(rules) if _fits(rule.match, label)), None)


def _fits(glob: str, label: str) -> bool:
    """Return true if a glob fits all of a name.

    ``*`` is anything, ``?`` one character. Brackets are literal, since many names have them.
    """
    form = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in glob)
    return re.fullmatch(form, label, re.DOTALL) is not None


def _nothing_left(reading: Reading, picked: _Picked) -> str:
    if picked.undirected:
        example = f"`metrics: [{{match: {picked.undirected[0]!r}, better: lower}}]`"
        return (
            f"the tool does not say which way its numbers are better; say it, as in {example}. The"
            f" output has {_describe_series(reading)}"
        )
    return f"nothing of the output is used; it has {_describe_series(reading)}"


def _describe_series(reading: Reading) -> str:
    """List the first names of a reading."""
    labels = [series.label for series in reading.series] + [
        absent.benchmark for absent in (*reading.failed, *reading.skipped)
    ]
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(repr(label[:100]) for label in labels[:SHOWN]) + more
