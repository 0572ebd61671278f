"""The trend page fits its window: forty series of long names, changes close together, an outlier; each beside a planted defect."""

from dataclasses import replace

import numpy as np
from browsing import opened
from fitting import faults, planted
from history_builders import H200, points, whole
from test_trend_page import RUNS, draw_all, series

from ci_bench.commands.page_assets import page_assets
from ci_bench.history.alarms import alarms_of
from ci_bench.history.lines import lines_of
from ci_bench.history.page import Sheet, render
from ci_bench.records.config import Policy

GPU = {
    **H200,
    "gpu_memory_bytes": 150_754_820_096,
    "imported_from": "/opt/checkouts/" + "folder/" * 8,
}
NEW = {**GPU, "torch": "2.14.0"}


def stepping() -> list[float]:
    """Changes every twenty runs."""
    return (np.array(series(1.0, 5)) * 1.15 ** (np.arange(RUNS) // 20)).tolist()


def disturbed() -> list[float]:
    """Ten milliseconds a step, but 5 s in one run."""
    values = series(1.0, 6)
    values[33] = 5.0
    return values


SPECIAL = {0: stepping, 1: disturbed}


def text() -> str:
    made = whole(series(1.05, 0), identities=(GPU, NEW), machines=[0] * 60 + [1] * 20)
    names = [
        f"pytest/benchmark_test_speed_py_{'test_html_readme_of_a_long_name_' * 3}[size={number:05d}]"
        for number in range(39)
    ]
    more = [
        points(name, range(RUNS), SPECIAL[number]() if number in SPECIAL else series(1.05, number))
        for number, name in enumerate(names)
    ]
    made = replace(made, series=(*more[:1], *made.series, *more[1:]))
    lines = lines_of(made, least=lambda _: 0.01)
    sheet = Sheet(
        title="Trend",
        lines=lines,
        alarms=alarms_of(lines, Policy()),
        commits="https://github.com/o/r/commit",
    )
    return render(sheet, page_assets("page.js", package="ci_bench.history"))


def test_forty_series_fit_every_window_and_an_outlier_squashes_no_chart(browser, tmp_path) -> None:
    with opened(browser, text(), tmp_path, width=1440) as seen:
        page = seen.page
        draw_all(page)
        chart = page.locator("div.trend", has=page.locator("g.beyond"))
        assert chart.count() == 1
        assert "5000 ms" in chart.locator("g.beyond title").text_content()
        heights = chart.locator(".runs circle").evaluate_all(
            "all => all.map((one) => Number(one.getAttribute('cy')))"
        )
        assert len(heights) == RUNS - 1
        assert max(heights) - min(heights) > 100
        assert page.locator(".said text").count() > len(page.query_selector_all("div.trend"))
        assert "gpu memory 140 GiB" in page.inner_text("#series")
        assert "150754820096" not in page.inner_text("body")
        assert "gpu_memory_bytes=150754820096" in page.get_attribute(
            "#series td:nth-child(5)", "title"
        )
        assert faults(page) == []
        wide = "document.querySelector('#series th').style.minWidth = '3000px'"
        assert any("columns cut off: series" in fault for fault in planted(page, wide))
        colliding = """(() => {
          const texts = [...document.querySelectorAll('.said text')];
          const two = texts.find((text, i) => i && text.closest('svg') === texts[i - 1].closest('svg'));
          two.replaceWith(texts[texts.indexOf(two) - 1].cloneNode(true));
        })()"""
        assert any("collides" in fault for fault in planted(page, colliding))
