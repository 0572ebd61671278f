"""Two large profiles on a page, with all kernels that changed, in a real browser: small, offline, accessible, both sides of one scale, within a narrow window."""

from dataclasses import replace

import pytest
from browsing import opened
from report_builders import explained

from ci_bench.commands.page_assets import page_assets
from ci_bench.judge.policy.kernels import MOST_CHANGES, MOST_LINE, MOST_LINES
from ci_bench.records.causes import KernelChange
from ci_bench.records.profiles import (
    MOST_CODE,
    MOST_NAME,
    MOST_ROWS,
    Profile,
    ProfileRow,
    RowKind,
    SourceLine,
)
from ci_bench.records.results import Case, CaseResult, Status
from ci_bench.report.charts.values import Material
from ci_bench.report.html.report import render_html

LARGEST = 3_000_000


def large(side: str) -> Profile:
    """As much as a document holds: each row with a long name, and a line of its own; head has each row 1.3 times as long."""
    longer = {"base": 1.0, "head": 1.3}[side]
    rows = tuple(
        ProfileRow(
            name=f"triton_poi_fused_{n}_{'add_mul_' * 40}"[:MOST_NAME],
            kind=tuple(RowKind)[n % 3],
            lines=(
                SourceLine(
                    place=f"model_{n % 7}.py:{n}", code=f"y = {'layer(' * 40}{n}"[:MOST_CODE]
                ),
            ),
            calls=3.0,
            seconds=longer * 0.001 / (1 + n % 40),
            error_s=1e-7,
            alive_bytes=1e6,
        )
        for n in range(MOST_ROWS)
    )
    return Profile(arm="inductor", step_s=sum(row.seconds for row in rows), steps=80, rows=rows)


def changed(number: int) -> KernelChange:
    """A generated kernel with as long a diff as is kept."""
    name = f"triton_poi_fused_{number}_{'add_mul_' * 40}"[:MOST_NAME]
    diff = "\n".join(
        f"{'+- '[line % 3]}{line:2} {'tmp = load(in_ptr + (x0 + 4096 * x1)) '.ljust(MOST_LINE - 5, 'x')}"
        for line in range(MOST_LINES)
    )
    return KernelChange(before=name, after=f"{name[:-1]}_", diff=diff)


def page() -> str:
    """The report of a case whose two sides were explained at length."""
    value = explained()
    first = value.cases[0]
    case = Case(
        id=first.id,
        suite="training_loss",
        name="reviews",
        params={},
        arms=("eager", "inductor"),
        reference="eager",
    )
    sides = [
        {first.id: CaseResult(case=case, status=Status.OK, reproduce="", profiles=(large(side),))}
        for side in ("base", "head")
    ]
    part = first.causes[0].parts[0]
    parts = tuple(
        replace(part, after=(row.name,), codes=(row.lines[0].code,))
        for row in large("head").rows[:60]
    )
    cause = replace(
        first.causes[0],
        parts=parts,
        kernels=tuple(changed(number) for number in range(MOST_CHANGES)),
    )
    at_length = replace(value, cases=(replace(first, causes=(cause,)), *value.cases[1:]))
    return render_html(
        at_length, material=Material(base=sides[0], head=sides[1]), assets=page_assets("report.js")
    )


def test_two_large_profiles_make_no_large_page() -> None:
    assert len(page().encode()) < LARGEST


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 480)])
def test_two_large_profiles_are_quiet_accessible_and_of_one_scale(
    browser, tmp_path, scheme: str, width: int
) -> None:
    with opened(browser, page(), tmp_path, scheme=scheme, width=width) as seen:
        seen.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        pictures = seen.page.locator("figure.icicles svg")
        assert pictures.count() == 2
        assert all(
            picture.get_attribute("role") == "img" and picture.get_attribute("aria-label")
            for picture in pictures.all()
        )
        widest = "all => all.map((one) => Math.max(...[...one.querySelectorAll('rect')].map((r) => r.getBoundingClientRect().width)))"
        base, head = pictures.evaluate_all(widest)
        assert head / base == pytest.approx(1.3, rel=0.03)
        sources = seen.page.locator("pre[aria-label^=Source]").all_inner_texts()
        assert [len(source.splitlines()) for source in sources] == [MOST_LINES] * MOST_CHANGES
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            "only what is wide scrolls"
        )
        assert (seen.axe(), seen.complaints) == ([], [])
        assert seen.requests == [(tmp_path / "page.html").as_uri()]
        seen.page.locator("figure.icicles").screenshot(path=str(tmp_path / "icicles.png"))
