"""The change of each case over two parameters: the figures are in the cells, the parameters are those of the group."""

import re

import pytest
from browsing import opened
from report_builders import ENDINGS, comparison
from test_groups import GRID, PLANTED, places, run
from test_html_report import rendered

from ci_bench.report.groups import groups
from ci_bench.report.html.heat_maps import LEAST_CASES, MOST_MAPS, drawn_maps, heat_maps


def drawn(value) -> str:
    return str(drawn_maps(heat_maps(value, groups(value))))


def test_a_map_is_drawn_over_the_parameters_of_the_group_with_figures_and_words_in_its_cells() -> (
    None
):
    value = run(PLANTED)
    (one,) = heat_maps(value, groups(value))
    assert (one.name, one.down, one.across) == ("functions/attention", "dtype", "head")
    assert one.columns == ("16", "32", "64", "96", "128", "256")  # by size
    assert len(one.cells["bf16", "128"]) == 12
    markup = drawn(value)
    assert markup.count("regressed") == 1
    assert re.search(r'<td class="?w2"?>\+4\.0 %<div class="?muted"?>regressed</div>', markup)
    assert markup.count("<td") == 7 * 6
    assert markup.count("<td>") == 7 * 6 - 1  # what did not move has no colour


def test_a_cell_of_which_only_some_cases_moved_says_how_many() -> None:
    value = run([*PLANTED[1:], PLANTED[0] + 12])
    assert "regressed: 11 of 12" in drawn(value)
    assert "regressed: 1 of 12" in drawn(value)


def test_what_became_faster_is_of_the_other_colour_and_larger_changes_are_darker() -> None:
    assert "class=b2>−3.9 %" in drawn(run((), places(head={16}))).replace('"', "")
    assert "class=w4>+25 %" in drawn(run(PLANTED, size=0.25)).replace('"', "")


def test_with_no_group_the_parameters_with_most_values_are_drawn() -> None:
    points = [
        (dtype, head, shape) for dtype in ("a", "b") for head in (1, 2, 3) for shape in range(4)
    ]
    (one,) = heat_maps(run((), points=points), ())
    assert (one.down, one.across) == ("shape", "head")


@pytest.mark.parametrize(
    "points",
    [
        GRID[: LEAST_CASES - 1],
        [("a", 1, shape) for shape in range(30)],
        [("a", head, 1) for head in range(30)],
    ],
    ids=["few cases", "one parameter", "too many values"],
)
def test_without_a_grid_there_is_no_map(points) -> None:
    value = run((), points=points)
    assert heat_maps(value, ()) == ()
    assert "Over the grid" not in rendered(value)


def test_names_are_escaped_and_there_are_only_so_many_maps() -> None:
    points = [("<i>x</i>", head, shape) for head in (1, 2) for shape in range(12)]
    assert "<i>" not in rendered(run((), points=points))
    value = run((), points=[point for point in GRID if point[0] in {"bf16", "fp32"}])
    many = [
        one.__class__(
            **{
                **{name: getattr(one, name) for name in one.__slots__},
                "id": one.id.replace("attention", f"f{number}"),
            }
        )
        for number in range(MOST_MAPS + 2)
        for one in value.cases
    ]
    markup = drawn(comparison(*many, headline="many"))
    assert (markup.count("<details"), "2 more grids are not drawn" in markup) == (MOST_MAPS, True)


def test_endings_without_a_grid_are_as_they_were() -> None:
    assert not [name for name, ending in ENDINGS.items() if heat_maps(ending(), groups(ending()))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_asks_nobody_for_anything(browser, tmp_path, scheme) -> None:
    points = [point for point in GRID if point[0] in {"bf16", "fp32"} and point[2] in {0, 1, 2}]
    page = rendered(run(range(0, 36, 7), range(1, 36, 7), points=points, size=0.12))
    with opened(browser, page, tmp_path, scheme=scheme) as seen:
        seen.page.evaluate(
            "document.querySelectorAll('details:not(.case)').forEach((one) => { one.open = true; })"
        )
        assert seen.page.locator("table.heat td").count() > 0
        assert seen.axe() == []
        assert seen.complaints == []
        assert seen.requests == [(tmp_path / "page.html").as_uri()]
