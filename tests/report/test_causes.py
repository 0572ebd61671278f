"""Why a case got worse, in the words of each renderer: three parts and no more, nothing where nothing is blamed, all of it harmless."""

import io
from dataclasses import replace

import pytest
from rendered import render
from report_builders import HALF, REVIEWS, explained, paired_run, turned
from rich.console import Console
from test_hostile import NASTY
from test_html_page import unpacked
from test_html_report import rendered

from ci_bench.commands.page_assets import page_assets
from ci_bench.records.causes import KernelChange
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.config import Rule
from ci_bench.records.profiles import Bundle, Profile, ProfileRow, RowKind, SourceLine
from ci_bench.records.results import Case, CaseResult, Status
from ci_bench.report.causes import bisect_command
from ci_bench.report.charts.values import Material
from ci_bench.report.html.icicles import icicle
from ci_bench.report.html.report import render_html
from ci_bench.report.markdown import render_comment
from ci_bench.report.next_step import next_step
from ci_bench.report.terminal import print_comparison


def lines_of(comment, word):
    """The lines of the findings in full that have a word in them."""
    folded = comment.partition("Findings in full")[2].partition("</details>")[0]
    return [line for line in folded.splitlines() if word in line]


def test_the_first_screen_names_the_first_cause_and_what_was_ruled_out() -> None:
    lines = (
        render_comment(replace(explained(), mode=BaselineMode.PAIRED))
        .partition("<details>")[0]
        .splitlines()
    )
    (line,) = [line for line in lines if "slower in" in line]
    assert line.startswith(
        "- `reviews[precision=fp32]`: slower in: `aten::copy_`, new (+5.50 ms a step, 81 % of the profiled change) at "
    )
    assert line.endswith(
        "not the machine (base and head took turns), not noise (0.41 % from launch to launch)"
    )


def test_the_next_step_names_the_line_of_the_largest_part() -> None:
    value = explained()
    known = next_step(value)
    unknown = next_step(
        replace(value, cases=tuple(replace(case, causes=()) for case in value.cases))
    )
    assert known is not None
    assert known.text == "Look at model.py:42, then reproduce the case:"
    assert unknown == replace(known, text="Reproduce the worst case:")


def test_the_comment_names_the_first_three_under_the_first_finding_of_the_case() -> None:
    comment = render_comment(explained())
    (line,) = lines_of(comment, "slower in")
    assert line == (
        "  - slower in: `aten::copy_`, new (+5.50 ms a step, 81 % of the profiled change) at `model.py:42`; `triton_poi_fused_add_0` for "
        "`triton_poi_fused_add_mul_0` (+1.20 ms a step, 18 % of the profiled change) at `model.py:7`; `sleep`, new (+200 µs a step, "
        "3.0 % of the profiled change) at `train.py:9`; 1 more in the report. 92 % of the change attributed"
    )
    folded = comment.partition("Findings in full")[2]
    assert folded.index("regressed**") < folded.index("slower in") < folded.index("11.5 % more")
    for word in (
        "new graph break: Data-dependent branching at `model.py:12`",
        "`aten::clone` (+16.0 MiB) at `model.py:42`",
    ):
        assert len(lines_of(comment, word)) == 1
    (unknown,) = lines_of(comment, "not explained")
    assert unknown.endswith("head: profiling took more than 90 s, its share of run.explain\\_s")


def test_what_is_slow_by_a_layout_says_whose_line_it_is() -> None:
    value = explained()
    laid_out = tuple(
        replace(
            case,
            causes=tuple(
                replace(one, parts=tuple(replace(part, by_layout=True) for part in one.parts))
                for one in case.causes
            ),
        )
        for case in value.cases
    )
    (line,) = lines_of(render_comment(replace(value, cases=laid_out)), "slower in")
    assert (
        "81 % of the profiled change) at `model.py:42`, where the layout that they read is made; "
        in line
    )


def test_a_part_of_more_than_the_whole_change_has_no_share() -> None:
    """Other parts became faster: "277 % of the change" explains nothing."""
    value = explained()
    parts = tuple(
        replace(
            case,
            causes=tuple(
                replace(one, parts=tuple(replace(part, share=2.77) for part in one.parts))
                for one in case.causes
            ),
        )
        for case in value.cases
    )
    (line,) = lines_of(render_comment(replace(value, cases=parts)), "slower in")
    assert "(+5.50 ms a step) at `model.py:42`" in line
    assert "277" not in line


def test_the_page_has_what_changed_of_generated_kernels_and_escapes_it() -> None:
    value = explained()
    changes = (
        KernelChange(
            before="cpp_fused_add_0",
            after="cpp_fused_add_1",
            diff="@@ -1 +1 @@\n-a\n+</code><script>alert(1)</script>",
        ),
        KernelChange(before="", after="cpp_fused_mul_0", diff="+b"),
        KernelChange(before="cpp_fused_sum_0", after="", diff="-c"),
    )
    known = tuple(
        replace(case, causes=tuple(replace(one, kernels=changes) for one in case.causes))
        for case in value.cases
    )
    inside, without = (
        unpacked(rendered(one, material_of({REVIEWS: profile("aten::mm")})))["cases"][0]["html"]
        for one in (replace(value, cases=known), value)
    )
    assert "Generated kernels that changed" in inside
    assert "Generated kernels that changed" not in without
    assert "cpp_fused_add_0 → cpp_fused_add_1" in inside
    assert "<code>@@ -1 +1 @@\n-a\n+&lt;/code&gt;&lt;script&gt;alert(1)" in inside
    assert "<script>alert(1)" not in inside


def test_the_terminal_says_the_same() -> None:
    stream = io.StringIO()
    print_comparison(explained(), Console(file=stream, width=200))
    text = " ".join(stream.getvalue().split())
    assert (
        "slower in: aten::copy_, new (+5.50 ms a step, 81 % of the profiled change) at model.py:42;"
        in text
    )


def test_what_was_not_judged_worse_is_blamed_for_nothing() -> None:
    value = explained()
    honest = tuple(
        replace(
            case, causes=tuple(replace(cause, slower=False, larger=False) for cause in case.causes)
        )
        for case in value.cases
    )
    comment = render_comment(replace(value, cases=honest))
    assert not any(
        word in comment
        for word in ("slower in", "graph break", "more memory at the peak", "not explained")
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"head_s": 0.12},
            "probably `aten::copy_`, new (+5.50 ms a step) at `model.py:42`; `triton_poi_fused_add_0` for",
        ),
        (
            {"head_s": 0.12, "parts": ()},
            "not explained: under the profiler the step as a whole was no slower",
        ),
        ({"attributed": 0.01}, "than its noise"),
    ],
)
def test_a_profile_that_does_not_show_the_change_says_so(change, says) -> None:
    value = explained()
    first = value.cases[0]
    causes = (replace(first.causes[0], **change), *first.causes[1:])
    comment = render_comment(
        replace(value, cases=(replace(first, causes=causes), *value.cases[1:]))
    )
    assert "slower in" not in comment
    assert says in comment


def test_the_finding_has_the_command_that_looks_for_the_commit() -> None:
    value = explained()
    commits = [side.source.commit[:12] for side in (value.base, value.head)]
    command = f"ci-bench history bisect {' '.join(commits)} --filter '{REVIEWS}' --metric step_time"
    assert bisect_command(value, value.cases[0]) == command
    assert f"  - find the commit: `{command}`" in render_comment(value)
    dirty = replace(value, head=replace(value.head, source=replace(value.head.source, dirty=True)))
    unborn = replace(
        value, base=replace(value.base, source=replace(value.base.source, commit=None))
    )
    same = replace(value, base=value.head)
    for one in (dirty, unborn, same, replace(value, base=None)):
        assert bisect_command(one, one.cases[0]) == ""
    unclear = next(case for case in paired_run().cases if case.id == HALF)
    assert bisect_command(paired_run(), unclear) == "", "nothing to follow where nothing is certain"


def compiling(*, causes=None, verdict=Verdict.REGRESSED):
    """The explained case, of which cold compilation alone takes longer: two phases by 1.5 s and 0.5 s; one is shorter."""
    value = explained()
    whole = turned("compile_cold", verdict=verdict, base=10.0, by=1.2)
    phases = (
        ("compile_cold_dynamo", 1.0, 1.5),
        ("compile_cold_inductor", 5.0, 1.3),
        ("compile_cold_aot", 2.0, 0.9),
    )
    pairs = (whole, *(turned(name, base=base, by=by, detail=True) for name, base, by in phases))
    first = value.cases[0]
    own = (
        tuple(replace(cause, slower=False, larger=False) for cause in first.causes)
        if causes is None
        else causes
    )
    return replace(value, cases=(replace(first, pairs=pairs, causes=own), *value.cases[1:]))


def test_compiling_that_takes_longer_is_told_by_phase_and_by_kernel() -> None:
    comment = render_comment(compiling())
    assert lines_of(comment, "compiling takes longer") == [
        "  - compiling takes longer in: Inductor (+1.50 s); Dynamo (+500 ms)"
    ]
    assert lines_of(comment, "kernels:") == [
        "  - kernels: new: `triton_poi_fused_add_0`; gone: `triton_poi_fused_add_mul_0`"
    ]
    assert len(lines_of(comment, "new graph break")) == 1
    assert not lines_of(comment, "slower in"), "no step was judged slower"
    assert not lines_of(comment, "under the profiler")


def test_phases_are_told_of_an_arm_that_was_not_explained() -> None:
    assert lines_of(render_comment(compiling(causes=())), "compiling takes longer")


def test_nothing_is_said_of_compiling_that_was_not_judged_worse() -> None:
    comment = render_comment(compiling(verdict=Verdict.UNCHANGED))
    assert not any(
        word in comment for word in ("compiling takes longer", "kernels:", "new graph break")
    )


def with_bundle(*, rule, path="files/case-1/repro-inductor.pyz"):
    bundle = Bundle(
        file="repro-inductor.pyz", says="inductor: output 0 is off by 3, of values of 1", path=path
    )
    value = explained()
    causes = (replace(value.cases[0].causes[0], slower=False, larger=False, bundle=bundle),)
    cases = (replace(value.cases[0], causes=causes), *value.cases[1:])
    found = replace(value.judgement.findings[0], rule=rule)
    return replace(value, cases=cases, judgement=replace(value.judgement, findings=(found, found)))


@pytest.mark.parametrize(
    "rule", [Rule.ACCURACY_BROKEN, Rule.CHECK_FAILED, Rule.CASE_FAILED, Rule.PARITY_BROKEN]
)
def test_what_is_wrong_has_the_command_that_shows_it_once(rule) -> None:
    (line,) = lines_of(render_comment(with_bundle(rule=rule)), "reproduce `")
    assert line == (
        "  - reproduce `inductor`: `python files/case-1/repro-inductor.pyz`: inductor: output 0 is off by 3, of values of 1"
    )
    stream = io.StringIO()
    print_comparison(with_bundle(rule=rule), Console(file=stream, width=200))
    assert stream.getvalue().count("python files/case-1/repro-inductor.pyz") == 1, stream.getvalue()


def test_what_is_not_wrong_has_no_such_command_and_a_file_that_is_not_there_is_not_named() -> None:
    assert "reproduce `" not in render_comment(with_bundle(rule=Rule.REGRESSED))
    for path in ("", "files/x`; rm -rf /.pyz", "<script>", "files/../../elsewhere.pyz"):
        wrong = with_bundle(rule=Rule.CHECK_FAILED, path=path)
        (line,) = lines_of(render_comment(wrong), "its file was not kept")
        assert "python" not in line
        assert "<code>python" not in render_html(wrong, assets=page_assets("report.js"))


def test_the_command_is_whole_whatever_its_length() -> None:
    path = f"files/{'long-' * 30}/repro-inductor.pyz"
    assert lines_of(
        render_comment(with_bundle(rule=Rule.CHECK_FAILED, path=path)), f"`python {path}`"
    )


def profile(*names, step_s=0.01):
    rows = tuple(
        ProfileRow(
            name=name,
            kind=RowKind.OPERATOR,
            lines=(SourceLine(place=f"{name}:{at}", code=name),),
            seconds=step_s / len(names),
        )
        for at, name in enumerate(names)
    )
    return Profile(arm="inductor", step_s=step_s, steps=9, rows=rows, notes=names[:1])


def test_the_page_has_a_picture_of_each_side_and_all_parts_in_a_table() -> None:
    material = material_of({REVIEWS: profile("aten::mm", "aten::add")})
    inside = unpacked(rendered(explained(), material))["cases"][0]["html"]
    assert inside.count('<svg viewBox="0 0 1000 72" role=img') == 2
    assert (
        'aria-label="head: a step of 10.0 ms by line and operator; the table has the figures"'
        in inside
    )
    assert "<title>aten::mm: 5.00 ms</title>" in inside
    for name in (
        "aten::copy_",
        "aten::mul",
        "aten::sum",
        "y = y.contiguous()",
        "triton_poi_fused_add_mul_0",
    ):
        assert name in inside


def material_of(profiles):
    rows = {
        name: CaseResult(
            case=Case(
                id=name,
                suite="training_loss",
                name="reviews",
                params={},
                arms=("eager", "inductor"),
                reference="eager",
            ),
            status=Status.OK,
            reproduce="",
            profiles=(one,),
        )
        for name, one in profiles.items()
    }
    return Material(head=rows, base=rows)


@pytest.mark.parametrize("text", [*NASTY, "</svg><script>alert(1)</script>", "]]>", '" onload="x'])
def test_no_name_breaks_out_of_the_picture_or_the_comment(text) -> None:
    markup = str(icicle(profile(text or "x", f"{text}y"), scale_s=0.01, side="head"))
    assert markup.count("<svg") == markup.count("</svg>") == 1
    assert not any(word in markup for word in ("<script", 'onload="x', "</details", "<img"))
    value = explained()
    first = value.cases[0]
    (poisoned,) = (replace(one, after=(text,), places=(text,)) for one in first.causes[0].parts[:1])
    causes = (replace(first.causes[0], parts=(poisoned,)), *first.causes[1:])
    tree = render(
        render_comment(replace(value, cases=(replace(first, causes=causes), *value.cases[1:])))
    )
    assert not {"script", "img", "a"} & {tag.split()[0] for tag in tree.tags}


def test_a_picture_of_very_many_rows_stays_small() -> None:
    markup = str(icicle(profile(*(f"aten::op{n}" for n in range(150))), scale_s=0.01, side="head"))
    assert len(markup) < 60_000
    assert "aten::op0" in markup
    narrow = str(
        icicle(
            profile(*(f"aten::op{n}" for n in range(150)), step_s=1e-5), scale_s=0.01, side="head"
        )
    )
    assert "aten::op" not in narrow, "what is narrower than a line is in the table alone"
