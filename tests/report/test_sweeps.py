"""Each arm's time over one parameter of a grid: right values at right places, and nothing where a mean would mislead."""

import pytest
from browsing import opened
from report_builders import case, comparison, pair
from test_html_report import rendered

from ci_bench.report.charts.sweeps import sweep_charts

ARMS = ("torch", "mine")


def grid(points, *, arms=ARMS, time=lambda arm, **_: {"torch": 0.001, "mine": 0.002}[arm]):
    """A comparison with a case for each point, a mapping of parameters."""

    def row(point):
        name = ",".join(f"{key}={value}" for key, value in point.items())
        pairs = tuple(
            pair(arm=arm, base=time(arm, **point), head=time(arm, **point)) for arm in arms
        )
        return case(
            f"functions/softmax[{name}]", pairs=pairs, arms=arms, reference=arms[0], speedups=()
        )

    return comparison(*map(row, points), headline="Passed")


def test_each_arm_has_its_time_at_each_place_in_the_order_of_size() -> None:
    points = [{"shape": f"{n}x64"} for n in (1024, 64, 256)]
    value = grid(
        points,
        time=lambda arm, shape: int(shape.split("x")[0]) * {"torch": 1e-6, "mine": 3e-6}[arm],
    )
    (chart,) = sweep_charts(value)
    assert (chart.name, chart.parameter, chart.places, chart.cases) == (
        "functions/softmax",
        "shape",
        ("64x64", "256x64", "1024x64"),
        1,
    )
    torch, mine = chart.curves
    assert [
        own / other for own, other in zip(mine.values, torch.values, strict=True)
    ] == pytest.approx([3, 3, 3])
    assert torch.values[2] / torch.values[0] == pytest.approx(16)


def test_where_another_parameter_varies_a_place_is_the_geometric_mean() -> None:
    points = [{"n": n, "dtype": dtype} for n in (1, 2, 4) for dtype in ("fp32", "bf16")]
    value = grid(points, time=lambda arm, n, dtype: 0.001 * {"fp32": 4, "bf16": 1}[dtype])
    (chart,) = sweep_charts(value)
    assert (chart.parameter, chart.cases, chart.places) == ("n", 2, ("1", "2", "4"))
    assert chart.unit == "ms"
    assert chart.curves[0].values == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(
    ("points", "arms"),
    [
        ([{"n": n} for n in (1, 2)], ARMS),
        ([{"n": n} for n in (1, 2, 4)], ("mine",)),
        ([{"kind": kind} for kind in ("a", "b", "c")], ARMS),
        ([*({"n": n, "m": 1} for n in (1, 2, 4)), {"n": 4, "m": 2}], ARMS),
        ([{"n": n, "m": n} for n in (1, 2, 4)], ARMS),
    ],
    ids=[
        "two places",
        "one arm",
        "words",
        "a place with more cases than others",
        "two that vary together",
    ],
)
def test_what_would_say_nothing_or_mislead_is_not_drawn(points, arms) -> None:
    value = grid(points, arms=arms, time=lambda arm, **_: 0.001)
    assert sweep_charts(value) == ()
    assert "Arms compared" not in rendered(value)


def test_the_page_draws_a_line_for_each_arm(browser, tmp_path) -> None:
    with opened(browser, rendered(grid([{"n": n} for n in (1, 2, 4)])), tmp_path) as seen:
        seen.page.locator("[data-chart=sweep]").scroll_into_view_if_needed()
        seen.page.wait_for_selector("[data-chart=sweep] svg")
        assert seen.page.locator("[data-chart=sweep] .curve path").count() == len(ARMS)
        assert seen.axe() == []
        assert seen.complaints == []
