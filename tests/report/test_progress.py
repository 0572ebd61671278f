"""What is seen while it measures: how long, how far, whose code, and what is left."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from ci_bench.records.events import Event
from ci_bench.records.results import SideName
from ci_bench.report.progress import ProgressDisplay, _span

EVENT = Event(
    case="s/a[x=1]", stage="time", arms=("eager", "jit"), launch=1, launches=5, done=0, total=12
)
BOTH = (SideName.BASE, SideName.HEAD)
WAITED_S = 300.0
"""Waiting for the device, before the first stage: no time counts it."""


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def lines(*steps, usual_s=None, **fields):
    """What is printed after events that end at these seconds, one stage each."""
    clock, text = Clock(), io.StringIO()
    with ProgressDisplay(Console(file=text, width=80), usual_s=usual_s, clock=clock) as display:
        clock.now += WAITED_S
        event = replace(EVENT, **fields)
        display(event)
        for number, second in enumerate(steps, start=1):
            clock.now = 100.0 + WAITED_S + second
            display(replace(event, done=number, ended="ok"))
    return text.getvalue().splitlines()


def test_a_line_says_how_long_how_far_and_what():
    assert lines(7) == ["[0:07, 1 of about 12] s/a[x=1]: launch 2, timing (eager, jit): ok"]


@pytest.mark.parametrize(
    ("sides", "said"),
    [((), "jit): ok"), (BOTH[:1], "jit) of base: ok"), (BOTH, "jit) of base and head: ok")],
)
def test_the_sides_are_told_apart(sides, said):
    (line,) = lines(7, sides=sides)
    assert line.endswith(said)


def test_the_estimate_of_the_run_is_shown_where_no_earlier_run_is_known():
    assert [line.partition("]")[0] for line in lines(10, 20, left_s=90.4)] == [
        "[0:10, 1 of about 12, about 1:30 left",
        "[0:20, 2 of about 12, about 1:30 left",
    ]


def test_the_run_before_tells_it_from_the_start():
    began, first, late = lines(10, 500, usual_s=300.0)
    assert began == "measuring: about 5:00, as the previous run took"
    assert first.startswith("[0:10, 1 of about 12, about 4:50 left]")
    assert late.startswith("[8:20, 2 of about 12]"), (
        "what took longer than before has no estimate any more"
    )


def test_nothing_is_left_at_the_end():
    assert lines(*range(10, 130, 10))[-1].startswith("[2:00, 12 of about 12]")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0:00"), (59.6, "1:00"), (760, "12:40"), (3725, "1:02:05")]
)
def test_a_span(seconds, said):
    assert _span(seconds) == said
