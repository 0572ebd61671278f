"""Base and head side by side, with the fake suite: what each side's ledger holds, and who goes on when."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_suite import QUICK, FakeRun, fake_environ, fake_plan

from ci_bench.engine.ledger import Ledger
from ci_bench.engine.trees.sides import Side
from ci_bench.records.case import SideName, Status
from ci_bench.records.config import Sampling

BASE, HEAD = SideName.BASE, SideName.HEAD
ARMS = {"arms": ["plain", "other"]}


def medians(row, name="step_time"):
    (metric,) = [one for one in row.metrics if (one.name, one.arm) == (name, "plain")]
    return [sorted(launch.values)[len(launch.values) // 2] for launch in metric.launches]


def test_each_side_runs_its_own_code_in_the_same_launches_and_blocks(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=2, blocks=4))
    both = run.measure_both({"name": "one", **ARMS}, base={"FAKE_STEP_S": "0.004"})
    base, head = (both[name]["one"] for name in (BASE, HEAD))
    assert (base.status, head.status) == (Status.OK, Status.OK)
    assert all(slow > 2 * fast for slow, fast in zip(medians(base), medians(head), strict=True))
    for row in (base, head):
        for metric in row.metrics:
            if metric.name == "step_time":
                assert [(one.launch, one.blocks) for one in metric.launches] == [
                    (launch, (0, 0, 1, 1, 2, 2, 3, 3)) for launch in range(2)
                ]
        assert [(block.launch, block.block) for block in row.blocks] == [(at, block) for at in range(2) for block in range(4)]
    assert {event.sides for event in run.events} == {(BASE, HEAD)}


def test_the_two_sides_are_different_processes_that_see_their_own_environment(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    both = run.measure_both({"name": "prints", "fault": "print_environment"}, base={"MARKER": "this is base"})
    assert "MARKER=this is base" in both[BASE]["prints"].failure.log_tail
    assert "MARKER" not in both[HEAD]["prints"].failure.log_tail


@pytest.mark.parametrize("stages", [["time"], ["verify", "memory", "time"]])
def test_a_side_that_fails_loses_its_row_alone(tmp_path: Path, stages) -> None:
    run = FakeRun(tmp_path, environ=fake_environ())
    both = run.measure_both({"name": "one", "stages": stages}, {"name": "two"}, base={"FAKE_FAIL": "one"})
    assert {name: {case: row.status for case, row in rows.items()} for name, rows in both.items()} == {
        BASE: {"one": Status.FAILED, "two": Status.OK}, HEAD: {"one": Status.OK, "two": Status.OK},
    }  # fmt: skip
    (metric,) = [one for one in both[HEAD]["one"].metrics if one.name == "step_time"]
    assert len(metric.launches[0].values) == 2 * QUICK.blocks


def test_sides_that_do_not_fit_into_memory_together_are_timed_one_after_the_other_and_say_so(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    both = run.measure_both({"name": "large", "fault": "crowded", "at": "open"})
    for rows in both.values():
        row = rows["large"]
        assert row.status is Status.OK, row.failure
        (check,) = [one for one in row.checks if one.name == "side_by_side"]
        assert check.detail.startswith("base and head do not fit into memory together")
        assert [block.block for block in row.blocks] == [*range(QUICK.blocks)]


def test_a_side_that_was_never_set_up_has_a_row_for_every_case_and_the_other_is_measured(tmp_path: Path) -> None:
    plan = fake_plan({"name": "one"}, {"name": "two"})
    ledger = Ledger.open([case for _, case in plan], reproduce={case.id: "again" for _, case in plan})
    run = FakeRun(tmp_path)
    sides = (Side(name=BASE, environ=run.environ, failure="`make` ended with exit code 2"), Side(name=HEAD, environ=run.environ))
    measured = run.measure_sides(plan, ledger, sides)
    base, head = (measured[name][1].rows.values() for name in (BASE, HEAD))
    assert {(row.status, row.failure.stage, row.failure.reason) for row in base} == {
        (Status.FAILED, "setup", "`make` ended with exit code 2")
    }
    assert {row.status for row in head} == {Status.OK}


def test_adaptive_sampling_takes_the_cases_that_the_judge_calls_open_and_no_others(tmp_path: Path) -> None:
    asked = []

    def still_open(launches, measured):
        asked.append((launches, {*measured}))
        return frozenset({"fake/two"} if launches < 3 else ())

    run = FakeRun(tmp_path, replace(QUICK, max_launches=9), still_open=still_open)
    both = run.measure_both({"name": "one"}, {"name": "two"})
    for rows in both.values():
        assert {name: len(medians(row)) for name, row in rows.items()} == {"one": 1, "two": 3}
        assert {row.status for row in rows.values()} == {Status.OK}
    assert asked == [(launches, {BASE, HEAD}) for launches in (1, 2, 3)]


def test_adaptive_sampling_stops_at_its_limit(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, max_launches=2), still_open=lambda *_: frozenset({"fake/one"}))
    both = run.measure_both({"name": "one"})
    assert [len(medians(rows["one"])) for rows in both.values()] == [2, 2]


def test_fixed_sampling_asks_nobody(tmp_path: Path) -> None:
    def still_open(*_):
        raise AssertionError

    run = FakeRun(tmp_path, replace(QUICK, launches=2, sampling=Sampling.FIXED), still_open=still_open)
    both = run.measure_both({"name": "one"})
    assert [len(medians(rows["one"])) for rows in both.values()] == [2, 2]


def test_a_case_that_spent_its_budget_gets_no_more_launches(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=3, case_budget_s=1e-6))
    both = run.measure_both({"name": "one"})
    assert [(rows["one"].status, len(medians(rows["one"]))) for rows in both.values()] == [(Status.OK, 1)] * 2


def test_later_launches_take_the_cases_in_random_order(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=3, blocks=1))
    names = [f"case{number}" for number in range(6)]
    run.measure_both(*({"name": name} for name in names))
    orders = {launch: tuple(event.case for event in run.events if event.ended and event.launch == launch) for launch in range(3)}
    assert orders[0] == tuple(f"fake/{name}" for name in names)
    assert len({*orders.values()}) == 3


def test_a_side_that_goes_first_alone_in_one_launch_goes_second_in_the_next(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=2, blocks=1))
    run.measure_both({"name": "one", "stages": ["memory", "time"]})
    alone = [(event.launch, event.sides) for event in run.events if event.stage == "alone" and event.ended]
    assert alone == [(0, (BASE,)), (0, (HEAD,)), (1, (HEAD,)), (1, (BASE,))]


def test_the_machine_is_watched_and_what_it_was_like_is_kept(tmp_path: Path) -> None:
    class Watch:
        def __init__(self):
            self.log = []

        def __getattr__(self, name):
            return lambda *_: self.log.append(name)

        def facts(self, _):
            return {"load_1min": 0.5}

    from ci_bench.engine.runner import Engine

    plan = fake_plan({"name": "one"})
    ledger = Ledger.open([case for _, case in plan], reproduce={case.id: "again" for _, case in plan})
    watch = Watch()
    engine = Engine(
        options=replace(QUICK, launches=1), scratch=tmp_path, observe=lambda _: None, watch=lambda environment: watch, seed="s"
    )
    measured = engine.measure(plan, (Side(name=HEAD, environ=fake_environ()),), {HEAD: ledger}, lambda *_: None)
    (row,) = measured[HEAD][1].rows.values()
    assert [block.facts for block in row.blocks] == [{"load_1min": 0.5}] * QUICK.blocks
    assert (watch.log[0], watch.log[-1], watch.log.count("settle")) == ("vacate", "close", 1)
