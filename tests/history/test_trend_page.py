"""The trend page: what it says, harmless whatever is in the history; and in a real browser quiet, usable, with the right points."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
from browsing import opened, until
from history_builders import H200, commit, points, whole
from looks import MOST_APART, apart, assert_looks_as_kept, kept, screenshot

from ci_bench.commands.page_assets import page_assets
from ci_bench.history.alarms import alarms_of
from ci_bench.history.lines import lines_of
from ci_bench.history.page import Sheet, render
from ci_bench.records.config import Policy

RUNS = 80
NEW = {**H200, "torch": "2.14.0"}
ATTACK = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
DOTS = ".runs circle"


def series(step, seed):
    jitter = np.exp(0.003 * np.random.Generator(np.random.PCG64(seed)).standard_normal(RUNS))
    return (0.01 * jitter * np.where(np.arange(RUNS) < 60, 1.0, step)).tolist()


def history(identities=(H200, NEW)):
    made = whole(series(1.05, 0), identities=identities, machines=[0] * 60 + [1] * 20)
    more = [
        points(f"fake/{name}", range(RUNS), series(step, seed))
        for seed, (name, step) in enumerate({"better": 0.9, "steady": 1.0}.items(), 1)
    ]
    return replace(made, series=(*made.series, *more))


def sheet(made=None, **fields):
    lines = lines_of(made or history(), least=lambda _: 0.01)
    return Sheet(
        title="Trend",
        lines=lines,
        alarms=alarms_of(lines, Policy()),
        commits="https://github.com/o/r/commit",
        **fields,
    )


def page(made=None, **fields):
    return render(sheet(made, **fields), page_assets("page.js", package="ci_bench.history"))


def data_of(html):
    return json.loads(zlib.decompress(b64decode(re.search(r'id="data">([^<]*)<', html)[1])))


def test_it_says_what_is_open_between_which_commits_and_what_else_changed():
    text = page()
    assert "1 open change for the worse" in text
    assert f"https://github.com/o/r/commit/{commit(60)}" in text
    assert "https://github.com/o/r/actions/runs/59" in text
    assert "torch: 2.13.0 → 2.14.0" in text


def test_every_point_band_move_and_change_of_the_software_is_in_the_data():
    data = data_of(page())
    assert len(data["runs"]) == RUNS
    line = next(line for line in data["lines"] if line["name"].startswith("fake/one "))
    assert len(line["values"]) == len(line["runs"]) == RUNS
    assert [move[0] for move in line["moves"]] == [60]
    assert line["changes"] == [[60, "torch: 2.13.0 → 2.14.0"]]
    assert [level[:2] for level in line["levels"]] == [[0, 59], [60, 79]]
    assert line["levels"][0][3] == pytest.approx(2 * 0.003 * 0.01, rel=0.4)


def drifting():
    """One series that drifts over forty of its runs, for the worse."""
    jitter = np.exp(0.002 * np.random.Generator(np.random.PCG64(3)).standard_normal(RUNS))
    return whole((0.01 * jitter * 1.003 ** np.clip(np.arange(RUNS) - 20, 0, 40)).tolist())


def test_a_drift_is_a_slope_in_the_data_and_has_its_pace_in_words():
    text = page(made=drifting())
    (line,) = data_of(text)["lines"]
    ((place, said, worse, until, pace),) = line["moves"]
    assert (place, until) == (pytest.approx(21, abs=3), pytest.approx(60, abs=3))
    assert (said.startswith("drift, 1"), worse, pace) == (True, True, pytest.approx(0.003, rel=0.1))
    ((first, last, before, half, after),) = line["slopes"]
    assert (first, last) == (place - 1, until)
    assert (before, after) == (
        pytest.approx(0.01, rel=0.005),
        pytest.approx(0.01 * 1.003**40, rel=0.005),
    )
    assert half == pytest.approx(2 * 0.002 * (before + after) / 2, rel=0.4)
    assert [level[:2] for level in line["levels"]] == [[0, place - 1], [until, RUNS - 1]]
    assert (line["name"], line["title"]) == (
        "fake/one step_time (eager)",
        "fake/one step time (eager)",
    )
    assert f"% a run over {until - place + 1} runs" in text
    assert data_of(page())["lines"][0]["slopes"] == []


def test_in_a_browser_a_drift_is_drawn_as_a_slope_and_not_as_an_upright(browser, tmp_path):
    with opened(browser, page(made=drifting()), tmp_path) as seen:
        draw_all(seen.page)
        counted = {
            name: seen.page.locator(f"div.trend g.{name} > *, div.trend .{name} path").count()
            for name in ("slope", "drift", "move")
        }
        assert (counted["slope"] > 0, counted["drift"] > 0, counted["move"]) == (True, True, 0)
        assert "drift, " in seen.page.inner_text("div.trend")
        assert seen.complaints == []
    with opened(browser, page(), tmp_path) as seen:
        draw_all(seen.page)
        assert seen.page.locator("div.trend g.drift > *").count() == 0
        assert seen.page.locator("div.trend g.move > *").count() == 2


def test_an_empty_history_has_a_page_too():
    empty = Sheet(title="Trend", lines=(), alarms=(), passed=("'x': it was cut short",))
    text = render(empty, page_assets("page.js", package="ci_bench.history"))
    assert "holds no series yet" in text
    assert "cut short" in text


def test_a_strangers_words_are_text():
    made = history(identities=({**H200, "gpu": ATTACK}, {**H200, "gpu": ATTACK, "torch": ATTACK}))
    text = render(sheet(made, passed=(ATTACK,)), page_assets("page.js", package="ci_bench.history"))
    assert ATTACK not in text
    assert "<img" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_it_is_quiet_self_contained_and_accessible(browser, tmp_path, scheme):
    made = history(identities=({**H200, "driver": ATTACK}, NEW))
    text = render(sheet(made), page_assets("page.js", package="ci_bench.history"))
    with opened(browser, text, tmp_path, scheme=scheme) as seen:
        draw_all(seen.page)
        assert seen.complaints == []
        assert seen.requests == [(tmp_path / "page.html").as_uri()]
        assert seen.page.evaluate("window.pwned") is None
        assert seen.axe() == []


def draw_all(page):
    drawn = "[...document.querySelectorAll('div.trend')].every((one) => one.dataset.drawn || one.closest('section').hidden)"
    missing = "[...document.querySelectorAll('div.trend')].find((one) => !one.dataset.drawn && !one.closest('section').hidden)"
    until(page, f"{drawn} || ({missing}.scrollIntoView(), false)")


def test_in_a_browser_charts_have_their_points_and_the_axis_can_be_time(browser, tmp_path):
    with opened(browser, page(), tmp_path) as seen:
        draw_all(seen.page)
        counts = seen.page.eval_on_selector_all(
            "div.trend", f"all => all.map((one) => one.querySelectorAll('{DOTS}').length)"
        )
        assert counts == [RUNS] * 3
        seen.page.locator("details.listing summary").first.click()
        until(seen.page, "document.querySelectorAll('details.listing a').length > 0")
        links = seen.page.eval_on_selector_all(
            "details.listing a", "all => all.map((one) => one.href)"
        )
        assert links == [
            f"https://github.com/o/r/actions/runs/{run}" for run in reversed(range(RUNS))
        ]
        labels = seen.page.eval_on_selector_all(
            "div.trend svg[role=img]", "all => all.map((one) => one.getAttribute('aria-label'))"
        )
        assert any(
            "fake/one step time (eager), lower is better. 80 runs" in label and "worse" in label
            for label in labels
        )
        seen.page.select_option("#axis", "at")
        draw_all(seen.page)
        assert "2030" in seen.page.inner_text("#lines") or "Jan" in seen.page.inner_text("#lines")
        assert seen.complaints == []


def test_in_a_browser_the_table_searches_filters_and_sorts_and_the_charts_follow(browser, tmp_path):
    with opened(browser, page(), tmp_path) as seen:
        shown = "#series tbody tr:not([hidden])"
        assert seen.page.locator(shown).count() == 3
        seen.page.select_option("select.filter", "worse")
        assert seen.page.locator(shown).count() == 1
        assert seen.page.locator("#lines > section:not([hidden])").count() == 1
        seen.page.select_option("select.filter", "")
        seen.page.fill("#search", "steady")
        assert seen.page.inner_text("#count") == "1 of 3 series shown"
        seen.page.fill("#search", "")
        seen.page.get_by_role("button", name="Level now").click()
        first = seen.page.locator("#series tbody tr").first.inner_text()
        assert "fake/better" in first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_it_looks_as_it_did(browser, tmp_path, scheme):
    assert_looks_as_kept(
        screenshot(browser, page(), tmp_path, scheme, charts="div.trend"), f"trend_{scheme}"
    )


def test_a_page_that_lost_its_style_would_be_seen(browser, tmp_path):
    bare = page().replace(
        "max-width: 1180px", "max-width: 700px", 1
    )  # its digest no longer fits the policy
    assert (
        apart(screenshot(browser, bare, tmp_path, "light", charts="div.trend"), kept("trend_light"))
        > 2 * MOST_APART
    )
    assert apart(kept("trend_dark"), kept("trend_light")) > 2 * MOST_APART


@pytest.mark.slow
def test_in_a_browser_a_page_of_long_series_costs_its_main_thread_less_than_two_seconds(
    browser, tmp_path
):
    """Seconds of the processor, not of a clock: how busy a machine is with other things says nothing about a page."""
    values = np.exp(0.01 * np.random.Generator(np.random.PCG64(9)).standard_normal((100, 2_000)))
    made = whole(values[0].tolist())
    made = replace(
        made,
        series=tuple(
            points(f"fake/case-{row}", range(2_000), values[row].tolist()) for row in range(100)
        ),
    )
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    session = context.new_cdp_session(shown)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    (tmp_path / "large.html").write_text(
        render(sheet(made), page_assets("page.js", package="ci_bench.history"))
    )
    shown.goto((tmp_path / "large.html").as_uri())
    shown.wait_for_selector("html[data-ready]", timeout=60_000, state="attached")
    metrics = {
        metric["name"]: metric["value"]
        for metric in session.send("Performance.getMetrics")["metrics"]
    }
    context.close()
    assert 0.01 < metrics["TaskDuration"] < 2.0
