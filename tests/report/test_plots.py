"""Picture files: the same charts, drawn by matplotlib. What is drawn is asked of the figures, how it looks of small pictures."""

import io
import re
from collections.abc import Iterator

import pytest
from report_builders import ENDINGS, regressed
from report_documents import DIVERGES, STEPS, paired
from test_hostile import poisoned
from test_html_page import parsed

from ci_bench.commands.judging import material
from ci_bench.commands.report import _saver
from ci_bench.report.charts.values import Material
from ci_bench.report.plots import PALETTE, figures

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


@pytest.fixture(scope="module")
def drawn() -> dict:
    made = paired()
    return dict(figures(made.comparison, material(made.head, made.base)))


def texts(figure) -> Iterator[str]:
    from matplotlib.text import Text

    return (one.get_text() for one in figure.findobj(Text))


def test_every_chart_is_a_figure_with_a_name_that_is_safe(drawn) -> None:
    names = list(drawn)
    assert names[0] == "changes"
    assert [name.removeprefix("001-training-loss-net000-backend-inductor-precision-fp32-") for name in names[1:6]] == [
        "step-time",
        "Memory",
        "Compilation",
        "loss-0",
        "grad-norm-0",
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9-]+", name) for name in names)
    assert len(set(names)) == len(names)


def test_curves_have_every_step_the_envelope_and_the_divergence(drawn) -> None:
    figure = drawn["001-training-loss-net000-backend-inductor-precision-fp32-loss-0"]
    curves, scores = figure.axes
    assert [len(line.get_xdata()) for line in curves.lines[:3]] == [STEPS] * 3
    assert len(curves.collections) == 1
    assert f"diverges at step {DIVERGES}" in list(texts(figure))
    assert scores.get_yscale() == "log"


def test_samples_are_all_there_and_the_doubtful_ones_ringed(drawn) -> None:
    spread, order = drawn["001-training-loss-net000-backend-inductor-precision-fp32-step-time"].axes
    dots = [line for line in order.lines if line.get_fillstyle() == "full" and line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in dots] == [48] * 4
    rings = [line for line in order.lines if line.get_fillstyle() == "none"]
    assert [len(line.get_xdata()) for line in rings] == [2] * 4
    assert spread.get_xlabel() == "ms"


def test_the_colours_are_those_of_the_page() -> None:
    from ci_bench.commands.page_assets import page_assets

    light = page_assets("report.js").style.partition("@media")[0]
    assert tuple(re.findall(r"--c\d: (#[0-9a-f]{6})", light)) == PALETTE


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_picture_is_the_same_each_time(drawn, kind: str) -> None:
    save = _saver(kind)
    files = [io.BytesIO() for _ in range(2)]
    for file in files:
        save(drawn["changes"], file)
    assert files[0].getvalue() == files[1].getvalue()
    assert len(files[0].getvalue()) > 1000


@pytest.mark.parametrize("text", ["$\\frac{1}$ _x 🚀", "<script>\x1b[31m\n%s {0}"])
def test_names_are_text_never_mathematics_or_markup(text: str) -> None:
    save = _saver("svg")
    for _, figure in figures(poisoned(regressed(), text, {}), Material()):
        file = io.BytesIO()
        save(figure, file)
        assert "script" not in {name for name, _ in parsed(file.getvalue().decode()).found}
        assert not [
            one
            for one in figure.findobj(lambda artist: hasattr(artist, "get_parse_math"))
            if one.get_parse_math() and "$" in one.get_text()
        ]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_drawn_from_the_comparison_alone(ending: str) -> None:
    assert list(figures(ENDINGS[ending](), Material()))
