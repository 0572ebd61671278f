"""Where the budget is not enough for all cases, those that tell most for their time are measured."""

import re
from dataclasses import replace

import pytest
from fake_suite import QUICK, FakeRun, fake_plan
from fake_time import StageClock
from judge_builders import metric, result, results

from ci_bench.checkouts.sides import Side
from ci_bench.records import documents
from ci_bench.records.config import Policy, Rule, Severity, SuitePolicy
from ci_bench.records.results import Launch, Phase, SideName, Spent, Status
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.planning import coverage, rank, usual_seconds
from ci_bench.runner.runner import Runner

PLAN = fake_plan(
    {"name": "long"},
    {"name": "undecided"},
    {"name": "quick"},
    {"name": "never"},
    {"name": "failed"},
)


def row(name, *, status=Status.OK, duration_s=1.0):
    return replace(result(id=f"fake/{name}", status=status), duration_s=duration_s)


KNOWN = results(
    row("long", duration_s=60.0),
    row("undecided", duration_s=90.0),
    row("quick"),
    row("failed", status=Status.TIMEOUT, duration_s=5.0),
)


def order(*arguments):
    places = rank(PLAN, *arguments)
    return [name.removeprefix("fake/") for name in sorted(places, key=places.get)]


def test_what_was_not_measured_comes_first_then_what_was_undecided_then_what_is_quick():
    assert order(Policy(), KNOWN, frozenset({"fake/undecided"})) == [
        "never",
        "failed",
        "undecided",
        "quick",
        "long",
    ]


def test_what_cannot_fail_the_run_comes_last():
    lenient = Policy(suites={"fake": SuitePolicy(severities={Rule.REGRESSED: Severity.NOTE})})
    assert order(lenient, KNOWN, frozenset()) == order(Policy(), KNOWN, frozenset())
    both = rank(
        (*PLAN, *[(suite, replace(case, id="x/a", suite="x")) for suite, case in PLAN[:1]]),
        lenient,
        KNOWN,
        frozenset(),
    )
    assert both["x/a"] == 0


def test_without_anything_known_it_is_the_plans_order():
    assert order(Policy(), None, frozenset()) == [case.name for _, case in PLAN]


def test_what_the_run_before_took_is_one_launch_and_what_is_done_once():
    spent = (
        Spent(stage="verify", phase=Phase.CHECKS, seconds=30.0),
        Spent(stage="time", phase=Phase.SAMPLES, seconds=8.0),
        Spent(stage="time", phase=Phase.COMPILE, seconds=2.0),
        Spent(stage="alone", phase=Phase.CHECKS, seconds=4.0),
    )
    launches = tuple(Launch(launch=at, values=(1.0,)) for at in range(2))
    timed = replace(row("long"), metrics=(metric(launches),), spent=spent)
    assert usual_seconds(
        results(timed, row("quick"), replace(timed, status=Status.TIMEOUT, case=row("failed").case))
    ) == {"fake/long": (30.0, 30.0 + 5.0 + 2.0)}
    assert usual_seconds(None) == {}


@pytest.mark.parametrize(
    ("budget_s", "covered"), [(4.9, 0), (14.9, 0), (15.0, 1), (44.9, 1), (45.0, 2), (1000.0, 2)]
)
def test_one_line_says_how_many_cases_a_budget_covers(budget_s, covered):
    """Verifying takes 5 s, then timing takes 10 s and 30 s; the third case was never measured."""
    usual_s = {"fake/long": (2.0, 32.0), "fake/undecided": (3.0, 13.0)}
    places = {"fake/undecided": 0, "fake/long": 1, "fake/quick": 2}
    line = coverage(PLAN[:3], places, usual_s, budget_s)
    assert f"enough to time {covered} of 3 cases" in line
    assert "no earlier run" in coverage(PLAN[:3], {}, {}, budget_s)


@pytest.mark.parametrize("ranked", [True, False])
def test_with_a_budget_the_most_informative_cases_come_first(tmp_path, ranked):
    """And the document keeps the order of the plan, with a row for each of the others."""
    clock = StageClock(lambda _: 2.0)
    run = FakeRun(tmp_path)
    runner = Runner(
        options=replace(QUICK, budget_s=3.5),
        scratch=tmp_path,
        observe=clock.append,
        clock=clock,
        rank=rank(PLAN, Policy(), KNOWN, frozenset()) if ranked else {},
    )
    ledger = Ledger.open([case for _, case in PLAN], reproduce={case.id: "" for _, case in PLAN})
    sides = (Side(name=SideName.HEAD, environ=run.environ),)
    _, ended = runner.run(PLAN, sides, {SideName.HEAD: ledger}, run._record)[SideName.HEAD]
    measured = [one.case.name for one in ended.rows.values() if one.status is Status.OK]
    assert measured == (["never", "failed"] if ranked else ["long", "undecided"])
    assert [one.case.name for one in ended.rows.values()] == [case.name for _, case in PLAN]
    assert {one.failure.reason for one in ended.rows.values() if one.failure} == {
        "the budget of 3.5 s was spent before this stage; raise run.budget_s"
    }


def test_a_second_run_with_a_budget_begins_with_what_the_first_left_out(place):
    place.configure({"name": "one"})
    assert place.run("run", "--output", place.output)[0] == 0
    place.configure({"name": "one"}, {"name": "two"}, {"name": "three"}, budget_s=600)
    code, _, err = place.run("--verbose", "run", "--output", place.output)
    assert (code, re.findall(r"INFO: fake/(\w+): time", err)) == (0, ["two", "three", "one"]), err
    assert [
        row.case.name for row in documents.read_results(place.output / "results.json").cases
    ] == ["one", "two", "three"]
