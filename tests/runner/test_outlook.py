"""What is left of a run follows from the stages so far, each kind by itself."""

import pytest

from ci_bench.records.config import RunOptions
from ci_bench.runner.outlook import Outlook, jobs, usual_launches
from ci_bench.suites.contract import Stage, StageKind

VERIFY, TIME, ALONE = (
    Stage(kind=kind, arms=("eager",), launches=None)
    for kind in (StageKind.VERIFY, StageKind.TIME, StageKind.ALONE)
)
SECONDS = {VERIFY: 9.0, ALONE: 3.0, TIME: 8.0}
FIRST, LATER = (VERIFY, ALONE, ALONE, TIME), (ALONE, TIME)
OPENING_S = 6.0


def run(*, cases, launches):
    """The run's length and, after each stage, the time so far and the estimate (s)."""
    outlook, clock, seen = Outlook(sides=2), 0.0, []
    plans = [[*FIRST] * cases, *([*LATER] * cases for _ in range(launches - 1))]
    for number, stages in enumerate(plans):
        later = plans[number:]
        outlook.expect(
            [stage for plan in later for stage in plan], launches=launches, later=len(later) - 1
        )
        clock += OPENING_S
        outlook.opened(OPENING_S)
        for stage in stages:
            clock += SECONDS[stage]
            seen.append((clock, outlook.left_s(stage.kind)))
            outlook.ended(stage, SECONDS[stage])
    return clock, seen


@pytest.mark.parametrize("cases", [4, 9, 30])
@pytest.mark.parametrize("launches", [1, 2, 3])
def test_after_a_quarter_the_estimate_is_within_a_quarter(cases, launches):
    whole_s, seen = run(cases=cases, launches=launches)
    later = [(spent_s, left_s) for spent_s, left_s in seen if spent_s >= whole_s / 4]
    assert len(later) > len(seen) / 2
    for spent_s, left_s in later:
        assert left_s is not None
        assert abs(spent_s + left_s - whole_s) <= 0.25 * whole_s


def test_nothing_is_left_at_the_end():
    assert run(cases=3, launches=3)[1][-1][1] == 0


def test_two_stages_predict_nothing():
    outlook = Outlook(sides=1)
    outlook.expect([VERIFY, TIME, ALONE], launches=1, later=0)
    outlook.ended(VERIFY, 1.0)
    outlook.ended(TIME, 1.0)
    assert outlook.left_s() is None
    outlook.ended(ALONE, 1.0)
    assert outlook.left_s() == 0


def test_a_stage_that_no_one_needs_takes_no_time():
    outlook = Outlook(sides=2)
    outlook.expect([VERIFY, ALONE, TIME, VERIFY], launches=1, later=0)
    for stage in (VERIFY, ALONE, TIME):
        outlook.ended(stage, 5.0)
    assert outlook.left_s() == 5.0
    outlook.skip(VERIFY)
    assert (outlook.left_s(), outlook.done) == (0, 2)


def test_sides_that_take_turns_are_one_job():
    outlook = Outlook(sides=2)
    outlook.expect([TIME, VERIFY], launches=1, later=0)
    assert outlook.total == 3
    assert (jobs(TIME, 0), jobs(TIME, 2), jobs(VERIFY, 2)) == (0, 1, 2)


@pytest.mark.parametrize(("most", "usual"), [(1, 1), (2, 2), (16, 3)])
def test_a_limit_of_launches_limits_what_is_expected(most, usual):
    assert usual_launches(RunOptions(max_launches=most)) == usual
