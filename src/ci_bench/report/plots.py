"""The charts of the report as matplotlib figures, for slides and for places that show no HTML. Saving them is the caller's.

Owns the drawing of picture files only: what is drawn comes from `charts`, as for the HTML report. matplotlib (the extra `plots`)
is imported where it is used. Names are never read as mathematics, whatever dollar signs they hold.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ci_bench.records.comparison import Comparison
from ci_bench.report.charts.overview import case_charts, change_chart
from ci_bench.report.charts.values import CaseCharts, ChangeChart, Curve, CurveChart, DotChart, Material, SampleChart, ScoreChart
from ci_bench.report.text import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0b62a6", "#c2500a", "#1a7f4b", "#8a4fb0", "#a8326b", "#5b6470", "#8a6a00", "#00737d")
"""The colours of the light theme (shell.css)."""
_MOODS: Mapping[str, str] = {
    "bad": "#b3261e",
    "open": "#5a3d99",
    "unsure": "#7a4b00",
    "new": "#0b5a8a",
    "better": "#116329",
    "good": "#5b6470",
}
_BAD, _QUIET, _BAND = "#b3261e", "#57606a", "#8c959f"
_DASHES = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)))
_SIGNALS = {"loss": "loss", "grad_norm": "gradient norm"}
_FLOOR = 1e-3
_LABEL = 60


def figures(comparison: Comparison, material: Material) -> Iterator[tuple[str, "Figure"]]:
    """The figures with their names, which are safe as names of files: the changes of the run, then case by case."""
    changes = change_chart(comparison)
    if changes.rows:
        yield (
            "changes",
            _figure(_changes(changes), title="Judged changes, the worst first", height=1.2 + 0.28 * len(changes.rows)),
        )
    for number, case in enumerate(comparison.cases, start=1):
        for name, figure in _case(case_charts(case, material)):
            yield f"{number:03d}-{_slug(case.id)}-{name}", figure


def _case(charts: CaseCharts) -> Iterator[tuple[str, "Figure"]]:
    for sampled in charts.samples:
        height = 1.6 + 0.55 * len(sampled.series)
        yield (
            _slug(sampled.metric),
            _figure(_spread(sampled), _order(sampled), title=f"{charts.id}: {sampled.title}", height=height),
        )
    for dots in charts.dots:
        yield (
            _slug(dots.title),
            _figure(
                _dots(dots),
                title=f"{charts.id}: {dots.title}{f' of {dots.arm}' if dots.arm else ''}",
                height=1.4 + 0.32 * len(dots.rows),
            ),
        )
    for curve in charts.curves:
        near = [score for score in charts.scores if (score.signal, score.seed) == (curve.signal, curve.seed)]
        title = f"{charts.id}: {_SIGNALS[curve.signal]}, seed {curve.seed}"
        name = f"{_slug(curve.signal)}-{curve.seed}"
        yield name, _figure(_curves(curve), *(_scores(score) for score in near), title=title, height=3.4)


Draw = Callable[["Axes"], None]


def _figure(*draws: Draw, title: str, height: float) -> "Figure":
    """A figure with a panel for each drawing, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(draws), max(2.2, height)), layout="constrained", facecolor="white")
    figure.suptitle(_name(title, 110), fontsize=11, parse_math=False)
    panels: Any = figure.subplots(1, len(draws), squeeze=False)[0]
    for axes, draw in zip(panels, draws, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#000000", alpha=0.08)
        draw(axes)
    return figure


def _changes(chart: ChangeChart) -> Draw:
    def draw(axes: "Axes") -> None:
        for place, row in enumerate(chart.rows):
            colour = _MOODS[row.mood]
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
            axes.plot(row.change, place, "o", color=colour, markersize=5)
            axes.plot(row.threshold, place, "|", color=_QUIET, markersize=11)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_xlabel("change in % (right is worse)")
        _names(axes, [row.label for row in chart.rows])

    return draw


def _spread(chart: SampleChart) -> Draw:
    def draw(axes: "Axes") -> None:
        for place, one in enumerate(chart.series):
            colour = _colour(one.colour)
            axes.plot(one.values, [place] * len(one.values), "|", color=colour, alpha=0.45, markersize=16)
            axes.plot(one.median, place, "|", color=colour, markersize=20, markeredgewidth=3.5)
            if one.interval:
                axes.plot(one.interval, [place + 0.36] * 2, color=colour, linewidth=4, solid_capstyle="butt")
            rings = [one.values[index] for index in one.doubtful]
            axes.plot(rings, [place] * len(rings), "o", fillstyle="none", color=_BAD)
        axes.set_xlabel(chart.unit)
        _names(axes, [one.label for one in chart.series])

    return draw


def _order(chart: SampleChart) -> Draw:
    def draw(axes: "Axes") -> None:
        for start in chart.starts:
            axes.axvline(start, color=_QUIET, linewidth=0.8, linestyle=":")
        for number, one in enumerate(chart.series):
            at, marker = chart.places[one.places].at, "os^D"[number % 4]
            axes.plot(at, one.values, marker, color=_colour(one.colour), markersize=3.5, label=_name(one.label, _LABEL))
            rings = [at[index] for index in one.doubtful], [one.values[index] for index in one.doubtful]
            axes.plot(*rings, "o", fillstyle="none", color=_BAD, markersize=9)
        axes.set_xticks([])
        axes.set_xlabel("order taken (dotted: a new launch; ringed: throttled or disturbed)")
        axes.set_ylabel(chart.unit)
        _legend(axes)

    return draw


def _dots(chart: DotChart) -> Draw:
    def draw(axes: "Axes") -> None:
        for place, row in enumerate(chart.rows):
            if row.base is not None and row.head is not None:
                axes.plot([row.base, row.head], [place, place], color=_MOODS[row.mood], linewidth=2, alpha=0.6)
            if row.base is not None:
                axes.plot(row.base, place, "o", fillstyle="none", color=PALETTE[0], markersize=8, label="base")
            if row.head is not None:
                axes.plot(row.head, place, "o", color=PALETTE[1], markersize=5, label="head")
        axes.set_xlabel(chart.unit)
        _names(axes, [row.label for row in chart.rows])
        _legend(axes)

    return draw


def _curves(chart: CurveChart) -> Draw:
    def draw(axes: "Axes") -> None:
        known = chart.steps[: len(chart.low)]
        if known:
            axes.fill_between(
                known, chart.low, chart.high, color=_BAND, alpha=0.4, linewidth=0, label="noise envelope, at the limit"
            )
        _lines(axes, chart.steps, chart.curves, floor=None)
        _divergence(axes, chart.first_step)
        axes.set_ylabel(_SIGNALS[chart.signal])
        _legend(axes)

    return draw


def _scores(chart: ScoreChart) -> Draw:
    def draw(axes: "Axes") -> None:
        _lines(axes, chart.steps, chart.curves, floor=_FLOOR)
        axes.axhline(chart.limit, color=_BAD, linewidth=1.2, label="parity ends here")
        _divergence(axes, chart.first_step)
        axes.set_yscale("log")
        axes.set_ylabel("rounding envelopes from the reference")
        _legend(axes)

    return draw


def _lines(axes: "Axes", steps: tuple[int, ...], curves: tuple[Curve, ...], *, floor: float | None) -> None:
    for number, curve in enumerate(curves):
        missing = float("nan")
        values = [missing if value is None else value if floor is None else max(value, floor) for value in curve.values]
        style: Any = _DASHES[number % len(_DASHES)]
        axes.plot(steps, values, color=_colour(curve.colour), linestyle=style, label=_name(curve.label, _LABEL))
    axes.set_xlabel("step")


def _divergence(axes: "Axes", step: int | None) -> None:
    if step is not None:
        axes.axvline(step, color=_BAD, linewidth=1.2, linestyle="--", label=f"diverges at step {step}")


def _names(axes: "Axes", labels: list[str]) -> None:
    """Names down the side, the first on top."""
    axes.set_yticks(range(len(labels)), [_name(label, _LABEL) for label in labels], fontsize=8, parse_math=False)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _legend(axes: "Axes") -> None:
    """Each name once."""
    handles, labels = axes.get_legend_handles_labels()
    first = {label: handle for handle, label in reversed(list(zip(handles, labels, strict=True)))}
    ordered = dict.fromkeys(labels)
    legend = axes.legend([first[label] for label in ordered], list(ordered), fontsize=7, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _name(text: str, cap: int) -> str:
    """A name as text; matplotlib leaves those that begin with an underscore out of a legend."""
    shown = clean(text, cap=cap)
    return f" {shown}" if shown.startswith("_") else shown


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def _slug(text: str) -> str:
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in text)
    return "-".join(part for part in kept.split("-") if part)[:80] or "x"
