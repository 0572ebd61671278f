"""Functions under `triton.testing.perf_report`: a case per x, a provider per line.

The callable for `do_bench` is timed. The function runs once each time that a provider is opened: it
draws its inputs, from the same seed for all lines, and hands a callable to `do_bench`
(`stand_ins`). All plots of a function with the same lines are one benchmark, whose `args` are
parameters like those of x.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ci_bench.suites.contract import NotMeasured
from ci_bench.suites.functions.collecting.collected import (
    Collected,
    apart,
    collected,
    has_name,
    shown,
    still_callable,
)
from ci_bench.suites.functions.collecting.recognising import Format
from ci_bench.suites.functions.collecting.stand_ins import stand_ins, taking
from ci_bench.suites.functions.grids import GridDeclaration, label_of


@dataclass(frozen=True, kw_only=True)
class PlotLine:
    """One point of one plot."""

    arguments: Mapping[str, Any]
    """Arguments of the function, without that of the line."""
    line_arg: str
    """Name of the line's argument."""
    line_vals: Mapping[str, Any]
    """Values of the line's argument, by arm."""


def collect(file: str, module: ModuleType) -> tuple[Collected, ...]:
    """Collect the module's own functions with `perf_report`.

    Raises `BadConfig` if a plot contradicts itself.
    """
    return tuple(benchmark for mark in _marks(module) for benchmark in _of_mark(file, mark))


def _marks(module: ModuleType) -> Iterator[Any]:
    """Yield Triton's `Mark`, or its stand-in."""
    for value in {id(member): member for member in vars(module).values()}.values():
        if (
            type(value).__name__ == "Mark"
            and callable(value.fn)
            and value.fn.__module__ == module.__name__
        ):
            yield value


def _of_mark(file: str, mark: Any) -> Iterator[Collected]:
    function, plots = mark.fn, mark.benchmarks
    line = function.__code__.co_firstlineno
    groups: dict[tuple[str, ...], list[Any]] = {}
    for plot in plots if isinstance(plots, list | tuple) else [plots]:
        groups.setdefault(_arms(plot), []).append(plot)
    for name, (arms, alike) in zip(
        _names(function.__name__, [*groups.values()]), groups.items(), strict=True
    ):
        where = GridDeclaration(file=file, line=line, function=name, origin=Format.PERF_REPORT)
        cases = [case for plot in alike for case in _points(where, plot, arms)]
        yield collected(where, apart(cases), _opener(function, f"{file}:{line}: {name}"), arms=arms)


def _names(function: str, groups: list[list[Any]]) -> list[str]:
    """Return a name for each group of plots with the same lines.

    The only group has the function's name; several add the title of their first plot, and a number
    if titles repeat.
    """
    if len(groups) == 1:
        return [function]
    titles = [re.sub(r"[^A-Za-z0-9_]+", "_", plots[0].plot_name) for plots in groups]
    numbers = [
        f"_{place + 1}" if titles.count(title) > 1 else "" for place, title in enumerate(titles)
    ]
    return [
        f"{function}.{title}"[: 60 - len(number)] + number
        for title, number in zip(titles, numbers, strict=True)
    ]


def _arms(plot: Any) -> tuple[str, ...]:
    """Return names for the lines as arms: their values, or their titles if values have no name."""
    titles = [
        *plot.line_names,
        *(f"line{place}" for place in range(len(plot.line_names), len(plot.line_vals))),
    ]
    words = [
        label_of(value) if has_name(value) else str(title)
        for value, title in zip(plot.line_vals, titles, strict=False)
    ]
    return tuple(re.sub(r"[^A-Za-z0-9_.:+-]+", "_", word)[:80] for word in words)


def _points(
    where: GridDeclaration, plot: Any, arms: tuple[str, ...]
) -> Iterator[tuple[Mapping[str, Any], str, PlotLine]]:
    for place, x in enumerate(plot.x_vals):
        values = list(x) if isinstance(x, list | tuple) else [x] * len(plot.x_names)
        if len(values) != len(plot.x_names):
            names = ", ".join(plot.x_names)
            raise where.fault(
                "x_vals", f"{x!r} has {len(values)} values for {len(plot.x_names)} names ({names})"
            )
        arguments = {**dict(zip(plot.x_names, values, strict=True)), **plot.args}
        name = f"{plot.plot_name}-{place}"
        line = PlotLine(
            arguments=arguments,
            line_arg=plot.line_arg,
            line_vals=dict(zip(arms, plot.line_vals, strict=True)),
        )
        yield shown(arguments, name), name, line


def _opener(
    function: Callable[..., Any], place: str
) -> Callable[[str, PlotLine], Callable[[], Any]]:
    def open_case(arm: str, line: PlotLine) -> Callable[[], Any]:
        with stand_ins([Format.PERF_REPORT]), taking() as calls:
            function(**line.arguments, **{line.line_arg: line.line_vals[arm]})
        if len(calls) != 1:
            how = (
                "does not call triton.testing.do_bench"
                if not calls
                else f"calls triton.testing.do_bench {len(calls)} times"
            )
            raise NotMeasured(f"{place}: {arm} {how}, but exactly one call is timed")
        still_callable(calls[0], place, "do_bench")
        return calls[0]

    return open_case
