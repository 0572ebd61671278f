"""The comment as a whole: golden files, GitHub's parser as the judge, and the budget."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from endings import BUILDERS, compared
from hypothesis import given, settings
from hypothesis import strategies as st
from rendered import faults, render
from report_builders import (
    ENDINGS,
    SMALL,
    case,
    comparison,
    fail,
    failed_cases,
    memory,
    pair,
    parity,
    regressed,
)

from ci_bench.records.comparison import Comparison, RunVerdict, Verdict
from ci_bench.records.config import Rule
from ci_bench.report.markdown import render_comment, render_report, units
from ci_bench.report.rows import main_rows
from ci_bench.report.summary import badge

GOLDEN = Path(__file__).parents[1] / "golden"
MARKER = "<!-- ci-bench:v1 key=default -->"
LIMIT = 60000


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("CI_BENCH_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"{name} changed; on purpose? then run `make golden`"
    )


def many(number: int) -> Comparison:
    """A run far larger than a comment; every hundredth case fails in some way, the worst of them last."""
    ordinary = [
        case(f"fastrnns/net[number={n}]", parity=(parity(),), log_tail="x " * 90 + "\n" * 5)
        for n in range(number - 1)
    ]
    slower = (pair(verdict=Verdict.REGRESSED, base=0.1, head=0.1 + n / 1e5) for n in range(number))
    mixed = [
        replace(c, verdict=Verdict.REGRESSED, pairs=(next(slower), memory()))
        if n % 100 == 50
        else c
        for n, c in enumerate(ordinary)
    ]
    worst = case(
        "fastrnns/worst",
        Verdict.REGRESSED,
        pairs=(pair(verdict=Verdict.REGRESSED, base=0.1, head=0.9), memory()),
    )
    findings = tuple(
        fail(Rule.REGRESSED, "step_time is slower", c.id)
        for c in [worst, *mixed]
        if c.verdict is Verdict.REGRESSED
    )
    return comparison(*mixed, worst, headline="51 of 5,000 cases regressed.", findings=findings)


@pytest.mark.parametrize("ending", BUILDERS)
def test_comment_is_golden(ending: str) -> None:
    assert_golden(f"comment_{ending}.md", render_comment(compared(ending), marker=MARKER))


@pytest.mark.parametrize("ending", ENDINGS)
def test_github_renders_tables_and_nothing_else(ending: str) -> None:
    value = ENDINGS[ending]()
    comment = render_comment(value, marker=MARKER)
    tree = render(comment)
    assert faults(comment) == []
    assert [text.strip() for text in tree.comments] == ["ci-bench:v1 key=default"]
    main = next(table for table in tree.tables if "Step time" in table[0])
    place = main[0].index("Case")
    assert [cells[place].partition(" ")[0] for cells in main[1:]] == [
        row.label for row in main_rows(value)
    ]
    sizes = [
        sum(len(c.pairs) for c in value.cases),
        sum(len(c.speedups) for c in value.cases),
        sum(len(c.parity) for c in value.cases),
        sum(len(c.checks) for c in value.cases),
    ]
    heads = [{"Metric", "Reason"}, {"Reference"}, {"Steps"}, {"Check"}]
    tables = [
        table for table in tree.tables if table[0][:2] != ["Case", "Reference"]
    ]  # those of compile modes
    assert [len(table) - 1 for head in heads for table in tables if head <= {*table[0]}] == [
        size for size in sizes if size
    ]


def test_the_verdict_comes_first_and_the_worst_row_next() -> None:
    lines = render_comment(compared("regressed"), marker=MARKER).splitlines()
    assert lines[0] == MARKER
    assert (
        lines[2]
        .replace("\\", "")
        .startswith("### ❌ Failed: reviews[precision=fp32] (inductor): step time 8.0 % slower, ")
    )
    assert lines[4] == "| Verdict | Case | Metric | Base | Head | Change |"
    assert lines[6].startswith(
        "| ❌ regressed | `reviews[precision=fp32]` | step time (`inductor`) |"
    )
    assert next(line for line in lines[7:] if line.startswith("**")).startswith(
        "**Next:** Reproduce the worst case: `ci-bench "
    )
    assert render_comment(compared("passed")).startswith("### ✅ ")


def test_the_next_command_can_be_copied() -> None:
    value = regressed()
    command = f"ci-bench gate --base {'0123456789abcdef' * 2} --filter 'a@b#1'"
    again = replace(value, cases=tuple(replace(case, reproduce=command) for case in value.cases))
    line = next(line for line in render_comment(again).splitlines() if line.startswith("**Next:**"))
    assert line.endswith(f" `{command}`")


def test_a_pass_with_warnings_does_not_look_clean() -> None:
    value = regressed()
    warned = replace(
        value,
        judgement=replace(
            value.judgement, verdict=RunVerdict.PASSED, findings=value.judgement.findings[3:]
        ),
    )
    assert render_comment(warned).startswith("### ⚠️ ")


def test_what_is_not_decided_has_a_face_of_its_own() -> None:
    value = regressed()
    undecided = replace(
        value, judgement=replace(value.judgement, verdict=RunVerdict.UNDECIDED, findings=())
    )
    assert render_comment(undecided).startswith("### ❔ ")
    assert badge(undecided) == {
        "schemaVersion": 1,
        "label": "ci-bench",
        "message": "1 of 8 undecided",
        "color": "blueviolet",
        "isError": False,
    }


def test_no_baseline_says_what_to_do() -> None:
    comment = render_comment(compared("no_baseline"))
    assert comment.startswith(
        "### ❌ Not compared: there is no baseline: baseline.json does not exist."
    )
    assert "Run ci-bench on the base branch with the same configuration" in comment
    assert "| Change |" not in comment


def test_changes_beyond_ten_are_folded() -> None:
    value = compared("many_regressions")
    top, _, folded = render_comment(value).partition("<summary>More changes (2)</summary>")
    assert "… and 2 more under “More changes”." in top
    assert (
        top.count("| ❌ regressed |"),
        folded.partition("</details>")[0].count("| ❌ regressed |"),
    ) == (10, 2)
    assert render_report(value).partition("<details>")[0].count("| ❌ regressed |") == 12


def test_the_report_has_everything_and_whole_logs() -> None:
    value = replace(
        failed_cases(),
        cases=(case(SMALL, Verdict.FAILED, log_tail="\n".join(map(str, range(100)))),),
    )
    assert "\n0\n1\n2\n" in render_report(value)
    assert "\n79\n80\n" not in render_comment(value)
    assert faults(render_report(value)) == []


def test_a_report_of_many_rows_has_the_worst_of_each_table_and_says_how_to_get_the_rest() -> None:
    value = many(300)
    whole, cut = render_report(value), render_report(value, room=4_000)
    assert "--full" not in whole
    assert whole == render_report(value, room=None)
    assert faults(cut) == []
    rows = {
        part: re.search(
            rf"… and ([0-9]+) more {part}: `ci-bench show comparison.json --format markdown`", cut
        )
        for part in ("metrics", "commands")
    }
    left = {part: int(found[1]) for part, found in rows.items() if found}
    assert whole.count("| ✅ unchanged |") - cut.count("| ✅ unchanged |") >= left["metrics"] > 0
    assert whole.count("ci-bench run") - cut.count("ci-bench run") == left["commands"] > 0
    assert re.search(r"… and [0-9]+ more rows of the main table", cut)
    assert "fastrnns/worst" in cut
    assert cut.count("- ❌") == whole.count("- ❌")


def test_an_empty_run_is_still_a_comment() -> None:
    comment = render_comment(
        comparison(headline="Nothing was planned.", findings=(fail(Rule.EMPTY_RUN, "no cases"),))
    )
    assert faults(comment) == []
    assert render(comment).tables == [render(comment).tables[0]]


def test_five_thousand_cases_fit_and_the_worst_survive() -> None:
    value = many(5000)
    comment = render_comment(value, marker=MARKER, limit=LIMIT)
    tree = render(comment)
    assert LIMIT * 0.8 < units(comment) <= LIMIT
    assert faults(comment) == []
    assert comment.startswith(f"{MARKER}\n\n### ❌ 51 of 5,000 cases regressed.")
    main = next(table for table in tree.tables if "Peak memory" in table[0])
    assert [cells[1] for cells in main[1:3]] == ["worst (inductor)", "net[number=4950] (inductor)"]
    assert "✂️ Cut to fit: " in comment
    assert "of 10,000 checks" not in comment
    assert "The full text is in `report.md`." in comment
    assert comment.rstrip().endswith("ci-bench `0.1.0`</sub>")


@pytest.fixture(scope="module")
def crowd() -> Comparison:
    return many(120)


@settings(max_examples=25, deadline=None)
@given(limit=st.integers(min_value=8000, max_value=LIMIT))
def test_any_limit_cuts_whole_rows(crowd: Comparison, limit: int) -> None:
    comment = render_comment(crowd, marker=MARKER, limit=limit)
    whole = set(render_comment(crowd, marker=MARKER, limit=10**9).splitlines())
    assert units(comment) <= limit
    assert faults(comment) == []
    assert [
        line for line in comment.splitlines() if line not in whole and not line.startswith("✂️")
    ] == []


def test_the_limit_counts_utf_16_units() -> None:
    assert units("a🚀é") == 4
