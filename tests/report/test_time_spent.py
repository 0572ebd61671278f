"""Where the time of a run went: by stage and phase, and which share of it was samples."""

import io
import re
from dataclasses import replace

import pytest
from records_builders import RESULTS
from report_builders import passed
from rich.console import Console

from ci_bench.commands.page_assets import page_assets
from ci_bench.records import documents
from ci_bench.records.results import Phase, Spent
from ci_bench.report.charts.values import Material
from ci_bench.report.html.report import render_html
from ci_bench.report.terminal import print_time
from ci_bench.report.time_spent import TimeSpent, sides_of, time_spent

ASSETS = page_assets("report.js")
START = Spent(stage="launch", phase=Phase.START, seconds=4.0)
SAMPLES = Spent(stage="time", phase=Phase.SAMPLES, arm="eager", seconds=2.0)
PEAKS = Spent(stage="alone", phase=Phase.SAMPLES, arm="eager", seconds=1.0)


def side(*, wall_s: float | None = 10.0, spent=(START,), of_case=(SAMPLES, PEAKS)):
    return replace(
        RESULTS, cases=(replace(RESULTS.cases[0], spent=of_case),), measured_s=wall_s, spent=spent
    )


def printed(*sides, names=("base", "head")) -> str:
    written = io.StringIO()
    print_time(names[-len(sides) :], time_spent(sides), Console(width=80, file=written))
    return written.getvalue()


def test_longest_first_with_the_seconds_of_each_side() -> None:
    found = time_spent([side(spent=(replace(START, seconds=5.0),)), side(spent=())])
    assert found.rows == (
        ("between cases", "starting processes", (5.0, 0.0)),
        ("timing", "samples", (2.0, 2.0)),
        ("memory, compiling", "samples", (1.0, 1.0)),
    )
    assert (found.wall_s, found.sampled_s, found.useful) == (10.0, 4.0, pytest.approx(0.4))


def test_arms_and_launches_of_a_phase_are_summed() -> None:
    other = replace(SAMPLES, arm="inductor", seconds=3.0)
    assert time_spent([side(of_case=(SAMPLES, other), spent=())]).rows == (
        ("timing", "samples", (5.0,)),
    )


def test_what_loaded_beside_other_work_is_a_row_of_its_own_and_no_sample() -> None:
    found = time_spent([side(spent=(START, replace(START, stage="ahead", seconds=3.0)))])
    assert found.rows[:2] == (
        ("between cases", "starting processes", (4.0,)),
        ("alongside other work", "starting processes", (3.0,)),
    )
    assert found.sampled_s == 2.0


def test_what_is_printed_fits_a_terminal_and_ends_with_the_share() -> None:
    text = printed(side(), side())
    assert max(map(len, text.splitlines())) <= 80
    assert "starting processes" in text
    assert text.rstrip().endswith("10.0 s in all, of which 4.0 s (40%) are samples of steps")


def test_without_a_clock_there_is_no_share_and_without_phases_it_is_said() -> None:
    assert "in all" not in printed(side(wall_s=None))
    assert "don't say where the time went" in printed(side(wall_s=None, spent=(), of_case=()))


@pytest.mark.parametrize("stage", ["[bold]time", "time\x1b[2J", "Time", ""])
def test_a_stage_that_would_be_read_as_more_than_a_word_is_refused(stage) -> None:
    odd = documents.to_json(side(of_case=(replace(SAMPLES, stage=stage),)))
    assert [fault.path for fault in documents.validate(odd, documents.Kind.RESULTS)] == [
        "$.cases[0].spent[0].stage"
    ]


def test_a_base_of_another_run_has_a_clock_of_its_own() -> None:
    one = side()
    assert list(sides_of(one, one)) == ["base", "head"]
    assert (
        list(sides_of(replace(one, run=replace(one.run, id="another")), one))
        == list(sides_of(None, one))
        == ["head"]
    )


def test_parts_are_samples_first_then_the_longest_then_the_rest() -> None:
    rows = tuple(("timing", f"phase {number}", (10.0 - number, 1.0)) for number in range(9))
    found = TimeSpent(
        rows=(*rows, ("timing", "samples", (0.5, 0.25))), wall_s=1.0, sampled_s=0.75
    ).parts(4)
    assert [name for name, _ in found] == [
        "timing: samples",
        "timing: phase 0",
        "timing: phase 1",
        "the rest",
    ]
    assert [seconds for _, seconds in found] == [
        0.75,
        11.0,
        10.0,
        sum(11.0 - number for number in range(2, 9)),
    ]
    assert len(TimeSpent(rows=rows[:4], wall_s=1.0, sampled_s=0.0).parts(4)) == 4


def test_the_page_has_a_bar_of_the_same_seconds_with_all_of_them_in_a_table() -> None:
    spent = time_spent([side(), side()])
    page = render_html(
        passed(), assets=ASSETS, material=Material(spent=spent, timed=("base", "head"))
    )
    part = page[page.index("Where the time went") : page.index("<h2>Machines")]
    assert "10.0 s in all, of which 4.0 s (40%) are samples of steps" in part
    widths = [float(width) for width in re.findall(r"<rect [^>]*width=([0-9.]+)", part)]
    assert widths == pytest.approx([1000 * seconds / 14 for seconds in (4.0, 8.0, 2.0)], abs=0.1)
    assert re.findall(r"</span>([^<]*)<", part) == [
        "timing: samples, 4.0 s", "between cases: starting processes, 8.0 s", "memory, compiling: samples, 2.0 s",
    ]  # fmt: skip
    assert "base (s)" in part


def test_a_page_of_results_that_do_not_say_has_no_such_part() -> None:
    nothing = time_spent([side(wall_s=None, spent=(), of_case=())])
    for material in (Material(), Material(spent=nothing, timed=("head",))):
        assert "Where the time went" not in render_html(passed(), assets=ASSETS, material=material)
