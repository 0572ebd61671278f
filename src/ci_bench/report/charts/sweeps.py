"""Times of each arm over one parameter of a grid: providers, and where one overtakes another.

A parameter is drawn if its values are numbers, or shapes (``1024x64``), and every arm has a time at
each. If other parameters vary as well, a place is the geometric mean of head's times, and only if
each place has cases of the same other values: only the parameter's effect remains.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ci_bench.records.comparison import Comparison, Pair
from ci_bench.records.labels import parted
from ci_bench.records.metrics import STEP_TIME
from ci_bench.report.charts.values import Curve, SweepChart, axis, short

LEAST_PLACES = 3
"""Two are a pair of rows in the list of cases."""
MOST_PLACES = 100
MOST_SWEEPS = 12
_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:x\d+(?:\.\d+)?)*", re.ASCII)

Timed = tuple[Mapping[str, str], Mapping[str, Pair]]
"""A case's parameters, and head's time of each arm."""


def sweep_charts(comparison: Comparison) -> tuple[SweepChart, ...]:
    """Return a chart for every name with several arms and every drawn parameter.

    Those with most places come first.
    """
    cases_by_name: dict[str, list[Timed]] = {}
    for case in comparison.cases:
        name, parameters = parted(case.id)
        pairs = {
            pair.arm: pair
            for pair in case.pairs
            if pair.metric == STEP_TIME.name and pair.head and pair.head.figure > 0
        }
        if pairs:
            cases_by_name.setdefault(name, []).append((dict(parameters), pairs))
    charts = [chart for name, cases in cases_by_name.items() for chart in _sweeps(name, cases)]
    return tuple(sorted(charts, key=lambda chart: -len(chart.places))[:MOST_SWEEPS])


def _sweeps(name: str, cases: Sequence[Timed]) -> Iterator[SweepChart]:
    arms = [*dict.fromkeys(arm for _, pairs in cases for arm in pairs)]
    complete_cases = [(parameters, pairs) for parameters, pairs in cases if len(pairs) == len(arms)]
    if len(arms) < 2 or len(complete_cases) != len(cases):  # noqa: PLR2004 - a comparison has two arms
        return
    for parameter in dict.fromkeys(name for parameters, _ in cases for name in parameters):
        others: dict[str, set[frozenset[tuple[str, str]]]] = {}
        for parameters, _ in cases:
            rest = frozenset(parameters.items() - {(parameter, parameters.get(parameter, ""))})
            others.setdefault(parameters.get(parameter, ""), set()).add(rest)
        alike = all(rest == others[next(iter(others))] for rest in others.values())
        if (
            alike
            and LEAST_PLACES <= len(others) <= MOST_PLACES
            and all(map(_NUMBERS.fullmatch, others))
        ):
            yield _sweep(name, parameter, arms, cases, each=len(cases) // len(others))


def _sweep(
    name: str, parameter: str, arms: Sequence[str], cases: Sequence[Timed], *, each: int
) -> SweepChart:
    places = sorted({parameters[parameter] for parameters, _ in cases}, key=_size)
    logs = {arm: dict.fromkeys(places, 0.0) for arm in arms}
    for parameters, pairs in cases:
        for arm, pair in pairs.items():
            assert pair.head is not None  # noqa: S101 - looked at where they were chosen
            logs[arm][parameters[parameter]] += np.log(pair.head.figure) / each
    means = {arm: [float(np.exp(sums[place])) for place in places] for arm, sums in logs.items()}
    size, unit = axis(
        [time_s for times in means.values() for time_s in times], cases[0][1][arms[0]].unit
    )
    curves = (
        Curve(label=arm, colour=number, values=tuple(short(value / size) for value in means[arm]))
        for number, arm in enumerate(arms)
    )
    return SweepChart(
        name=name,
        parameter=parameter,
        unit=unit,
        places=tuple(places),
        cases=each,
        curves=tuple(curves),
    )


def _size(place: str) -> tuple[float, ...]:
    """Return a sort key: numbers by size, shapes by how many elements they have."""
    sides = [float(side) for side in place.split("x")]
    return (float(np.prod(sides)), *sides)
