"""The HTML report in a real browser: it draws, filters, sorts and copies, by mouse and by keyboard, and asks nobody for anything."""

import pytest
from browsing import opened, until
from looks import MOST_APART, apart, assert_looks_as_kept, kept, screenshot
from report_builders import ENDINGS
from report_documents import DIVERGES, alone, paired
from test_hostile import poisoned

from ci_bench.commands.page_assets import page_assets
from ci_bench.report.html.markup import Html
from ci_bench.report.html.page import render_page
from ci_bench.report.html.report import render_html

PAGES = {"paired": paired, "alone": alone}
ATTACK = '</script><script>window.pwned=1</script><img src="http://evil.example/x" onerror="window.pwned=1">"><svg onload=window.pwned=1>'
EVERY_CASE = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"


def draw_all(page) -> None:
    """Open every case and wait until its charts are drawn, each of which comes into view in turn."""
    page.evaluate(EVERY_CASE)
    drawn = "[...document.querySelectorAll('[data-chart]')].every((one) => one.dataset.drawn)"
    until(
        page,
        f"{drawn} || (document.querySelector('[data-chart]:not([data-drawn])').scrollIntoView(), false)",
    )
    page.evaluate("scrollTo(0, 0)")


def verdicts(page) -> list[str]:
    return page.eval_on_selector_all(
        "#cases tbody tr:not([hidden])", "rows => rows.map((row) => row.cells[0].dataset.filter)"
    )


def case_names(page) -> list[str]:
    return page.eval_on_selector_all(
        "#cases tbody tr:not([hidden])", "rows => rows.map((row) => row.cells[1].textContent)"
    )


@pytest.mark.parametrize(
    ("name", "scheme"), [("paired", "light"), ("paired", "dark"), ("alone", "light")]
)
def test_a_page_is_quiet_self_contained_and_accessible(
    browser, tmp_path, name: str, scheme: str
) -> None:
    with opened(browser, PAGES[name]().html, tmp_path, scheme=scheme) as seen:
        draw_all(seen.page)
        assert name == "alone" or seen.axe() == []
        assert seen.complaints == []
        assert seen.requests == [(tmp_path / "page.html").as_uri()]


@pytest.mark.parametrize("ending", ["no_baseline", "incomparable", "failed_cases", "common_shift"])
def test_every_ending_opens_without_raw_documents(browser, tmp_path, ending: str) -> None:
    page = render_html(ENDINGS[ending](), assets=page_assets("report.js"))
    with opened(browser, page, tmp_path) as seen:
        draw_all(seen.page)
        assert (seen.complaints, seen.axe()) == ([], [])


def test_curves_and_samples_have_the_right_number_of_points(browser, tmp_path) -> None:
    with opened(browser, paired().html, tmp_path) as seen:
        draw_all(seen.page)
        case = seen.page.locator("#case-0")
        loss = case.locator("[data-chart=curves]").first
        paths = loss.locator("g.curve path").evaluate_all(
            "all => all.map((one) => one.getAttribute('d').split('L').length)"
        )
        assert paths == [40, 40, 40]
        assert loss.locator("g.envelope path").count() == 1
        assert loss.locator("g.divergence text").text_content() == f"diverges at step {DIVERGES}"
        order = case.locator("[data-chart=order]")
        assert [
            one.locator("path, circle").count() for one in order.locator("g.samples").all()
        ] == [48, 48, 48, 48]
        assert order.locator("g.doubtful circle").count() == 8
        assert case.locator("[data-chart=spread] g.interval line").count() == 2
        assert (
            seen.page.locator("#changes g.change path").count()
            == seen.page.locator("#changes g.interval line").count()
            > 0
        )
        labels = seen.page.eval_on_selector_all(
            "[data-chart] svg[role=img]", "all => all.map((one) => one.getAttribute('aria-label'))"
        )
        assert any("first divergent step 7" in label for label in labels)
        assert any("2 doubtful" in label for label in labels)
        assert all(len(label) > 20 for label in labels)


def test_search_and_filters_leave_what_was_asked_for(browser, tmp_path) -> None:
    with opened(browser, paired().html, tmp_path) as seen:
        page = seen.page
        every = verdicts(page)
        page.fill("#search", "net003 inductor")
        assert case_names(page) == ["net003"]
        assert page.text_content("#count") == f"1 of {len(every)} rows shown"
        assert page.eval_on_selector_all(
            "details.case:not([hidden])", "all => all.map((one) => one.id)"
        ) == ["case-3"]
        page.fill("#search", "no such thing")
        assert verdicts(page) == []
        page.fill("#search", "")
        page.select_option("select[data-column='0']", "crashed")
        assert set(verdicts(page)) == {"crashed"}
        page.select_option("select[data-column='0']", "")
        assert verdicts(page) == every


def test_columns_sort_by_their_values_and_say_so(browser, tmp_path) -> None:
    with opened(browser, paired().html, tmp_path) as seen:
        page = seen.page
        head = page.locator("#cases th", has_text="Step time")
        head.locator("button").focus()
        page.keyboard.press("Enter")
        values = "rows => rows.map((row) => Number(row.cells[3].dataset.sort))"
        rising = page.eval_on_selector_all("#cases tbody tr", values)
        assert (rising == sorted(rising), head.get_attribute("aria-sort")) == (True, "ascending")
        page.keyboard.press("Enter")
        falling = page.eval_on_selector_all("#cases tbody tr", values)
        assert (falling == sorted(rising, reverse=True), head.get_attribute("aria-sort")) == (
            True,
            "descending",
        )
        page.locator("#cases th button", has_text="Case").click()
        assert case_names(page) == sorted(case_names(page))
        assert page.locator("#cases th[aria-sort=descending]").count() == 0


def test_the_keyboard_alone_leads_to_a_case_and_its_command(browser, tmp_path) -> None:
    with opened(browser, paired().html, tmp_path) as seen:
        page = seen.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.locator("#cases a[href='#case-3']").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#case-3[open]")
        assert page.evaluate("document.activeElement.closest('details').id") == "case-3"
        page.locator("#case-3 .copy").focus()
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#case-3 .copy').textContent !== 'Copy'")
        assert (
            page.text_content("#case-3-command")
            == "ci-bench run --filter 'training_loss/net003[backend=inductor,precision=fp32]'"
        )
        page.keyboard.press("Control+c")
        assert seen.complaints == []


def test_the_theme_follows_the_system_until_the_reader_chooses(browser, tmp_path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, paired().html, tmp_path, scheme="dark") as seen:
        dark = seen.page.evaluate(ground)
        seen.page.click("#theme")
        assert seen.page.evaluate(ground) == "rgb(255, 255, 255)" != dark
        seen.page.click("#theme")
        assert seen.page.evaluate(ground) == dark


def test_a_narrow_window_scrolls_tables_not_the_page(browser, tmp_path) -> None:
    with opened(browser, paired().html, tmp_path, width=400) as seen:
        draw_all(seen.page)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("ending", ["failed_cases", "parity_broken"])
def test_hostile_names_run_nothing_and_reach_nobody(browser, tmp_path, ending: str) -> None:
    page = render_html(poisoned(ENDINGS[ending](), ATTACK, {}), assets=page_assets("report.js"))
    with opened(browser, page, tmp_path) as seen:
        draw_all(seen.page)
        assert seen.page.evaluate("window.pwned") is None
        assert (seen.complaints, len(seen.requests)) == ([], 1)
        assert "</script><script>window.pwned=1</script>" in seen.page.text_content("#cases")


@pytest.mark.parametrize(
    "planted",
    [
        "<img src='http://evil.example/x' alt=x>",
        "<p style='color:red'>x</p>",
        "<script>window.pwned = 1</script>",
        "<button onclick='window.pwned = 1'>x</button>",
    ],
)
def test_what_is_planted_is_stopped_by_the_policy_and_seen(browser, tmp_path, planted: str) -> None:
    assets = page_assets("report.js")
    page = render_page(
        title="x", body=Html(f"<h1>x</h1>{planted}"), assets=assets, data={"cases": []}
    )
    with opened(browser, page, tmp_path) as seen:
        for button in seen.page.query_selector_all("button:not(#theme)"):
            button.click()
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate("window.pwned") is None
        assert any("Content Security Policy" in line for line in seen.complaints)


def test_what_nobody_can_read_is_seen_by_axe(browser, tmp_path) -> None:
    page = render_page(
        title="x",
        body=Html("<h1>x</h1><input type=text>"),
        assets=page_assets("report.js"),
        data={"cases": []},
    )
    with opened(browser, page, tmp_path) as seen:
        assert [line.partition(":")[0] for line in seen.axe()] == ["label"]


# Screenshots


CHARTS = "#changes [data-chart]"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_looks_as_it_did(browser, tmp_path, scheme: str) -> None:
    assert_looks_as_kept(
        screenshot(browser, paired().html, tmp_path, scheme, charts=CHARTS), f"report_{scheme}"
    )


def test_a_report_that_lost_its_style_or_its_charts_would_be_seen(browser, tmp_path) -> None:
    bare = paired().html.replace(
        "max-width: 1180px", "max-width: 700px", 1
    )  # its digest no longer fits the policy
    assert (
        apart(screenshot(browser, bare, tmp_path, "light", charts=CHARTS), kept("report_light"))
        > 2 * MOST_APART
    )
    assert apart(kept("report_dark"), kept("report_light")) > 2 * MOST_APART
