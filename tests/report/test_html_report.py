"""The HTML report as text: order, figures, size, what it shows without raw documents, and that no name can break it."""

import pytest
from hypothesis import HealthCheck, given, settings
from report_builders import ENDINGS, REVIEWS
from report_documents import DIVERGES, THROTTLED, alone, paired
from test_hostile import hostile, poisoned
from test_html_page import parsed, unpacked

from ci_bench.commands.page_assets import page_assets
from ci_bench.records.comparison import Comparison
from ci_bench.report.charts.values import Material
from ci_bench.report.html.report import render_html
from ci_bench.report.rows import main_rows

ASSETS = page_assets("report.js")
MOST_BYTES = 2_000_000


def rendered(comparison: Comparison, material: Material | None = None) -> str:
    return render_html(comparison, assets=ASSETS, material=material or Material())


def main_part(page: str) -> str:
    return page[page.index("<main") : page.index("</main>")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_verdict_and_policy_come_before_anything_else(ending: str) -> None:
    value = ENDINGS[ending]()
    text = "".join(parsed(main_part(rendered(value))).text)
    judgement = value.judgement
    policy = "The policy is met" if judgement.met else "The policy is not met"
    places = [
        text.index(part)
        for part in (
            judgement.headline,
            f"{policy}: exit code {judgement.exit_code}",
            "Cases",
            "Machines",
        )
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_case_has_its_rows_and_its_place(ending: str) -> None:
    value = ENDINGS[ending]()
    page = rendered(value)
    elements = parsed(main_part(page)).found
    rows = [
        attributes for name, attributes in elements if name == "tr" and "data-case" in attributes
    ]
    folds = [
        attributes["id"]
        for name, attributes in elements
        if name == "details" and attributes.get("class") == "case"
    ]
    assert len(rows) == len(main_rows(value))
    assert (
        sorted(folds)
        == sorted({row["data-case"] for row in rows})
        == sorted(f"case-{n}" for n in range(len(value.cases)))
    )
    assert [case["id"] for case in unpacked(page)["cases"]] == [case.id for case in value.cases]


def test_findings_lead_to_their_case() -> None:
    elements = parsed(main_part(rendered(ENDINGS["regressed"]())))
    links = [
        attributes["href"]
        for name, attributes in elements.found
        if name == "a" and attributes.get("href", "").startswith("#case")
    ]
    assert "#case-1" in links
    assert any(REVIEWS in text for text in elements.text)


def test_a_case_shows_its_samples_its_curves_and_where_it_parted() -> None:
    case = unpacked(paired().html)["cases"][0]
    (chart,) = case["samples"]
    assert [one["label"] for one in chart["series"]] == [
        "base · eager",
        "head · eager",
        "base · inductor",
        "head · inductor",
    ]
    assert (chart["metric"], chart["unit"], len(chart["starts"])) == ("step_time", "ms", 5)
    head = chart["series"][-1]
    assert len(head["values"]) == len(chart["places"][head["places"]][0]) == 48
    assert head["doubtful"] == [14, 15]
    assert set(head["doubts"]) == {THROTTLED}
    low, high = head["interval"]
    assert low < head["median"] < high
    assert [(one["signal"], one["first_step"], len(one["steps"])) for one in case["curves"]] == [
        ("loss", DIVERGES, 40),
        ("grad_norm", None, 40),
    ]
    loss = case["curves"][0]
    assert len(loss["low"]) == len(loss["high"]) == 40
    assert all(
        low <= value <= high
        for low, value, high in zip(
            loss["low"], loss["curves"][0]["values"], loss["high"], strict=True
        )
    )
    assert [dots["title"] for dots in case["dots"]] == ["Memory", "Compilation"]


def test_what_a_case_holds_is_all_there() -> None:
    inside = parsed(unpacked(paired().html)["cases"][2]["html"])
    text = "".join(inside.text)
    assert "ci-bench run --filter 'training_loss/net002" in text
    assert "step 1\n  step 2\n    ^~~~" in text
    machine = "".join(parsed(unpacked(paired().html)["cases"][0]["html"]).text)
    assert "sm_clock_mhz" in machine
    assert THROTTLED in machine


def test_the_machines_tell_what_differs_first() -> None:
    text = "".join(parsed(main_part(paired().html)).text)
    part = text[text.index("Machines") :]
    assert part.index("temperature (°C)") < part.index("gpu (identity)")


def test_without_documents_medians_are_drawn_and_nothing_is_missing() -> None:
    page = rendered(paired().comparison)
    case = unpacked(page)["cases"][0]
    assert (case["samples"], case["curves"], case["scores"]) == ([], [], [])
    assert [dots["title"] for dots in case["dots"]] == ["Memory", "Compilation", "Times"]
    assert case["html"].count("<td>") > 50


def test_a_run_alone_shows_its_arms() -> None:
    (chart,) = unpacked(alone().html)["cases"][0]["samples"]
    assert [one["label"] for one in chart["series"]] == ["eager", "inductor"]
    assert chart["series"][1]["interval"] is not None


def test_two_hundred_cases_of_long_trainings_and_many_samples_stay_small() -> None:
    assert len(paired(200, 20, 200).html.encode()) < MOST_BYTES


def test_the_oracle_sees_what_is_not_escaped(monkeypatch) -> None:
    attack = "<img src=x onerror=y>"
    monkeypatch.setattr("ci_bench.report.html.markup._text", lambda text: text)
    found = shape(rendered(poisoned(ENDINGS["failed_cases"](), attack, {})))
    assert ("img", ("src", "onerror")) in found


TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "a",
        "button",
        "main",
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "section",
        "div",
    ),
    *(
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "span",
        "details",
        "summary",
        "label",
        "input",
        "select",
        "option",
    ),
    *("noscript", "pre", "code", "ul", "li", "script"),
}


def shape(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """The elements and the names of their attributes, of the page and of what it unpacks; values may be anybody's."""
    parts = [page, *(case["html"] for case in unpacked(page)["cases"])]
    return [(name, tuple(attributes)) for part in parts for name, attributes in parsed(part).found]


@pytest.mark.parametrize("ending", ["failed_cases", "parity_broken", "paired"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=hostile)
def test_no_name_adds_an_element_an_attribute_or_a_script(ending: str, text: str) -> None:
    page = rendered(poisoned(ENDINGS[ending](), text, {}))
    found = shape(page)
    assert {name for name, _ in found} <= TAGS
    assert [name for name, _ in found].count("script") == 1 + len(ASSETS.scripts)
    assert not {
        name
        for _, names in found
        for name in names
        if name.startswith("on") or name in {"style", "src", "srcdoc"}
    }
    links = [attributes.get("href") for name, attributes in parsed(page).found if name == "a"]
    assert all(link.startswith("#") for link in links)
