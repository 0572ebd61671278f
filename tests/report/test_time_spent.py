"""Where the time of a run went: by stage and phase, and which share of it was samples."""

import io
from dataclasses import replace

import pytest
from records_builders import RESULTS
from rich.console import Console

from ci_bench.records import documents
from ci_bench.records.results import Phase, Spent
from ci_bench.report.time_spent import print_time, time_spent

START = Spent(stage="launch", phase=Phase.START, seconds=4.0)
SAMPLES = Spent(stage="time", phase=Phase.SAMPLES, arm="eager", seconds=2.0)
PEAKS = Spent(stage="alone", phase=Phase.SAMPLES, arm="eager", seconds=1.0)


def side(*, wall_s: float | None = 10.0, spent=(START,), of_case=(SAMPLES, PEAKS)):
    return replace(RESULTS, cases=(replace(RESULTS.cases[0], spent=of_case),), measured_s=wall_s, spent=spent)


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
    assert time_spent([side(of_case=(SAMPLES, other), spent=())]).rows == (("timing", "samples", (5.0,)),)


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
    assert [fault.path for fault in documents.validate(odd, documents.Kind.RESULTS)] == ["$.cases[0].spent[0].stage"]
