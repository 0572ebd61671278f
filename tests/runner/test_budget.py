"""A budget is a promise: a run ends within it and what its last stage takes, and uses it while something is open that fits."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fake_suite import QUICK, STAGES, FakeRun, fake_plan
from fake_time import Ended, StageClock

from ci_bench.records.config import Explain, Sampling
from ci_bench.records.open_cases import OpenCase
from ci_bench.records.results import Outcome, Status
from ci_bench.runner import budget, runner
from ci_bench.runner.budget import Budget, can_wait, kept_for_explaining

WHOLE = ["verify", "memory", "cold", "time"]
OPEN = frozenset(
    {
        ("step_time", "plain"),
        ("step_time", "other"),
        ("peak_anonymous", "plain"),
        ("peak_anonymous", "other"),
    }
)


def gate(
    folder,
    monkeypatch,
    *names,
    budget_s,
    took_s,
    needs=lambda _: 100,
    start_s=0.0,
    usual_s=None,
    stages=WHOLE,
    worse=(),
    **more,
):
    """A paired run in simulated time: `took_s` of each event, `needs` is how many launches decide a case.

    Those of `worse` look changed for the worse until then.
    """
    clock = StageClock(took_s)
    Ended(clock=clock, start_s=start_s).into(monkeypatch)

    def still_open(launches, _):
        return {
            f"fake/{name}": OpenCase(
                metrics=OPEN, worse=needs(name) - launches if name in worse else 0
            )
            for name in names
            if launches < needs(name)
        }

    if usual_s:
        monkeypatch.setattr(
            runner, "Budget", lambda **given: Budget(**{**given, "usual_s": usual_s})
        )
    options = replace(QUICK, budget_s=budget_s, max_launches=16)
    run = FakeRun(folder, options, events=clock, clock=clock, still_open=still_open, **more)
    return clock, run.measure_both(
        *({"name": name, "arms": ["plain", "other"], "stages": stages} for name in names)
    )


def launches(rows, name):
    (metric,) = [
        one for one in rows["head"][name].metrics if (one.name, one.arm) == ("step_time", "plain")
    ]
    return [one.launch for one in metric.launches]


def test_a_further_launch_that_would_not_fit_is_not_begun(tmp_path, monkeypatch):
    """A launch of 10 s: three of them fit into 35 s, and a fourth would end after 40."""
    clock, rows = gate(
        tmp_path, monkeypatch, "one", budget_s=35.0, took_s=lambda _: 10.0, stages=["time"]
    )
    assert (clock.now, launches(rows, "one"), rows["head"]["one"].status) == (
        30.0,
        [0, 1, 2],
        Status.OK,
    )


def test_the_control_a_budget_that_looks_only_at_what_is_spent_is_overrun(tmp_path, monkeypatch):
    monkeypatch.setattr(Budget, "expected_s", lambda *_: 0.0)
    clock, _ = gate(
        tmp_path, monkeypatch, "one", "two", budget_s=35.0, took_s=lambda _: 10.0, stages=["time"]
    )
    assert clock.now > 35.0


def test_starting_processes_is_part_of_a_launch(tmp_path, monkeypatch):
    """Two launchers of 3 s and 10 s of turns: two launches are 32 s, where the turns alone would fit a third time."""
    clock, rows = gate(
        tmp_path,
        monkeypatch,
        "one",
        budget_s=45.0,
        took_s=lambda _: 10.0,
        start_s=3.0,
        stages=["time"],
    )
    assert (clock.now, launches(rows, "one")) == (32.0, [0, 1])


def test_where_not_all_fits_the_cases_that_take_least_go_on(tmp_path, monkeypatch):
    """After the first launch (24 s) 11 s are left: the case of 16 s would take them all and more, the others fit once more."""
    took_s = {"fake/long": 16.0, "fake/short": 3.0, "fake/middle": 5.0}
    clock, rows = gate(
        tmp_path,
        monkeypatch,
        *("long", "short", "middle"),
        budget_s=35.0,
        took_s=lambda event: took_s[event.case],
        stages=["time"],
    )
    assert {name: launches(rows, name) for name in rows["head"]} == {
        "long": [0],
        "short": [0, 1, 2],
        "middle": [0, 1],
    }
    assert clock.now == 35.0


def where_one_looks_worse(folder, monkeypatch, *, budget_s, worse, decides=5):
    """Cases of 16, 3 and 5 s a launch, 24 s in all; whether the long one looks worse, which so many launches decide."""
    took_s = {"fake/long": 16.0, "fake/short": 3.0, "fake/middle": 5.0}
    clock, rows = gate(
        folder,
        monkeypatch,
        *("long", "short", "middle"),
        budget_s=budget_s,
        took_s=lambda event: took_s[event.case],
        needs=lambda name: decides if name == "long" else 100,
        stages=["time"],
        worse=worse,
    )
    return clock.now, {name: len(launches(rows, name)) for name in rows["head"]}


def test_where_not_all_fits_what_looks_worse_goes_on_to_its_verdict_first(tmp_path, monkeypatch):
    """After the first launch (24 s) the long case has its four others (64 s) set aside, and the short one gets what is left."""
    assert where_one_looks_worse(tmp_path, monkeypatch, budget_s=92.0, worse=["long"]) == (
        91.0,
        {"long": 5, "short": 2, "middle": 1},
    )


def test_the_control_what_does_not_look_worse_goes_by_what_it_takes(tmp_path, monkeypatch):
    _, taken = where_one_looks_worse(tmp_path, monkeypatch, budget_s=92.0, worse=[])
    assert taken["long"] < 5 <= min(taken["short"], taken["middle"])


def test_a_verdict_that_does_not_fit_any_more_takes_nothing_from_the_others(tmp_path, monkeypatch):
    """Four launches of 16 s do not fit into 60: the long case is like all others then."""
    (again := tmp_path / "again").mkdir()
    told = where_one_looks_worse(tmp_path, monkeypatch, budget_s=84.0, worse=["long"])
    assert told == where_one_looks_worse(again, monkeypatch, budget_s=84.0, worse=[])


@pytest.mark.parametrize(
    ("left_s", "chosen"),
    [(51.9, ["worse", "other"]), (52.0, ["worse"]), (60.9, ["worse"]), (61.0, ["worse", "other"])],
    ids=["no-verdict-fits", "a-verdict-fits", "and-no-more", "and-the-other-beside-it"],
)
def test_starting_the_later_launches_of_what_looks_worse_is_set_aside_too(left_s, chosen):
    """Four more launches of 10 s that start for 3 s are 52 s; the other case takes 9 s in the first of them."""
    plan = [(None, SimpleNamespace(id=name)) for name in ("worse", "other")]
    own = Budget(
        limit_s=left_s,
        clock=lambda: 0.0,
        start_s=3.0,
        took_s={("worse", "time"): 10.0, ("other", "time"): 9.0},
    )
    asked = {"worse": OpenCase(metrics=OPEN, worse=4), "other": OpenCase(metrics=OPEN)}
    assert [case.id for _, case in own.affordable(plan, lambda *_: ["time"], asked)] == chosen


def test_memory_peaks_come_last_within_budget(tmp_path, monkeypatch):
    clock, rows = gate(tmp_path, monkeypatch, "one", "two", budget_s=50.0, took_s=lambda event: 2.0)
    assert [event.case for event in clock if event.stage == "time" and not event.ended and not event.launch] == [
        "fake/one", "fake/two",
    ]  # fmt: skip
    first = [event.stage for event in clock if not event.ended and not event.launch]
    assert first.index("time") < len(first) - first[::-1].index("time") < len(first)
    assert not any(row.checks for row in rows["head"].values())

    took_s = {"verify": 0.0, "alone": 2.0, "time": 2.0}
    clock, rows = gate(
        tmp_path, monkeypatch, "one", "two", budget_s=11.0, took_s=lambda event: took_s[event.stage]
    )
    assert clock.now == 12.0
    assert {row.status for side in rows.values() for row in side.values()} == {Status.OK}
    (check,) = rows["head"]["two"].checks
    assert (check.name, check.outcome, check.informative) == (
        "within_budget",
        Outcome.UNKNOWN,
        False,
    )
    assert (
        check.detail
        == "the budget of 11 s was spent before its peaks of memory were measured; raise run.budget_s"
    )
    assert rows["base"]["two"].checks == rows["head"]["two"].checks
    assert {
        len(metric.launches) for metric in rows["head"]["two"].metrics if metric.name == "step_time"
    } == {1}


def test_parity_comes_first_within_a_budget(tmp_path, monkeypatch):
    """Both cases are verified before one is timed, so a budget for one of them still judges what both compute."""
    took_s = {"verify": 5.0, "time": 10.0}
    clock, rows = gate(
        tmp_path,
        monkeypatch,
        "one",
        "two",
        budget_s=28.0,
        took_s=lambda event: took_s[event.stage],
        stages=["verify", "time"],
    )
    begun = list(dict.fromkeys((event.stage, event.case) for event in clock))
    assert begun[:2] == [("verify", "fake/one"), ("verify", "fake/two")]
    assert {stage for stage, _ in begun[2:]} == {"time"}
    assert rows["head"]["one"].status is Status.OK


@pytest.mark.parametrize(("explains", "timed"), [(True, 4), (False, 5)])
def test_a_part_of_the_budget_is_kept_for_explaining(tmp_path, monkeypatch, explains, timed):
    """Five launches of 20 s fill a budget of 100 s.

    A tenth of it is kept if something may be explained.
    """
    asked = []
    monkeypatch.setattr(runner, "arms_to_explain", lambda *given: asked.append(given) or ())
    more = {"to_explain": lambda _: {}} if explains else {}
    clock, rows = gate(
        tmp_path, monkeypatch, "one", budget_s=100.0, took_s=lambda _: 20.0, stages=["time"], **more
    )
    assert len(launches(rows, "one")) == timed
    assert bool(asked) is explains
    assert clock.now == 20.0 * timed


@pytest.mark.parametrize(
    ("options", "kept_s"),
    [
        ({"budget_s": 100.0}, 10.0),
        ({"budget_s": 100.0, "explain_s": 4.0}, 4.0),
        ({"budget_s": 100.0, "explain": Explain.NEVER}, 0.0),
        ({"budget_s": None}, 0.0),
    ],
)
def test_nothing_is_kept_without_need(options, kept_s):
    plan = fake_plan({"name": "one", "stages": ["time"]})
    assert kept_for_explaining(plan, replace(QUICK, **options)) == kept_s
    assert (
        kept_for_explaining(
            fake_plan({"name": "one", "stages": ["verify"]}), replace(QUICK, **options)
        )
        == 0.0
    )


def test_the_second_side_is_not_begun_where_the_first_took_what_was_left(tmp_path, monkeypatch):
    """A compilation from cold that nobody had seen takes 30 s on base: head's would end after 60 of 40."""
    stages = ["cold", "time"]
    clock, rows = gate(
        tmp_path, monkeypatch, "one", budget_s=40.0, took_s=lambda _: 30.0, stages=stages
    )
    assert clock.now == 30.0
    for side in ("base", "head"):
        assert rows[side]["one"].status is Status.NOT_RUN
        assert rows[side]["one"].failure.reason == (
            "of the budget of 40 s 10 s were left, and the other side took 30 s for this stage; raise run.budget_s"
        )
    clock, rows = gate(
        tmp_path, monkeypatch, "one", budget_s=90.0, took_s=lambda _: 30.0, stages=stages
    )
    assert (clock.now, rows["head"]["one"].status) == (90.0, Status.OK)


def test_without_a_budget_the_order_is_the_suites(tmp_path, monkeypatch):
    clock, _ = gate(
        tmp_path, monkeypatch, "one", "two", budget_s=None, took_s=lambda _: 1.0, needs=lambda _: 1
    )
    begun = list(dict.fromkeys((event.case, event.stage) for event in clock))
    assert begun == [
        (f"fake/{name}", stage) for name in ("one", "two") for stage in ("verify", "alone", "time")
    ]


def test_what_the_run_before_took_is_not_begun_where_it_does_not_fit(tmp_path, monkeypatch):
    """And what takes less still is."""
    clock, rows = gate(
        tmp_path,
        monkeypatch,
        *("huge", "small"),
        budget_s=30.0,
        took_s=lambda event: 100.0 if event.case == "fake/huge" else 5.0,
        usual_s={"fake/huge": (0.0, 90.0)},
        needs=lambda _: 1,
        stages=["time"],
    )
    assert {name: row.status for name, row in rows["head"].items()} == {
        "huge": Status.NOT_RUN,
        "small": Status.OK,
    }
    assert rows["head"]["huge"].failure.reason == (
        "of the budget of 30 s 30 s were left, and this case took 90 s in the previous run; raise run.budget_s"
    )
    assert clock.now == 5.0


def test_only_peaks_of_memory_wait():
    kinds = {
        name: [can_wait(stage) for stage in make(("plain", "other"))]
        for name, make in STAGES.items()
    }
    assert {name for name, waits in kinds.items() if any(waits)} == {"memory"}
    assert all(kinds["memory"])


@pytest.mark.parametrize("seed", range(60))
def test_no_run_is_over_by_more_than_what_nobody_had_seen_or_ends_with_time_left_for_what_is_open(
    tmp_path, monkeypatch, seed
):
    draw = random.Random(seed)
    names = [f"case{number}" for number in range(draw.randint(1, 5))]
    stages = [name for name in WHOLE if name == "time" or draw.random() < 0.6]
    seconds = {
        (f"fake/{name}", kind): draw.choice([0.5, 2.0, 7.0, 20.0]) * draw.uniform(0.8, 1.2)
        for name in names
        for kind in ("verify", "alone", "time")
    }
    needs = {name: draw.randint(1, 17) for name in names}
    budget_s, start_s = draw.choice([1.0, 20.0, 60.0, 200.0, 1000.0]), draw.uniform(0.0, 2.0)
    clock, rows = gate(
        tmp_path,
        monkeypatch,
        *names,
        budget_s=budget_s,
        took_s=lambda event: seconds[event.case, event.stage],
        needs=needs.__getitem__,
        start_s=start_s,
        stages=stages,
    )
    first_s = 2 * start_s + sum(
        seconds[event.case, event.stage] for event in clock if event.ended and event.launch == 0
    )
    peaks_s = (
        4 * max(took for (_, kind), took in seconds.items() if kind == "alone")
        if "memory" in stages
        else 0.0
    )
    assert first_s <= budget_s + max(2 * start_s, peaks_s, *seconds.values()) + 1e-6
    assert clock.now <= max(budget_s, first_s) + 1e-6

    measured = [name for name in names if rows["head"][name].status is Status.OK]
    done = 1 + max((event.launch for event in clock), default=0)
    left_s = budget_s - clock.now - 2 * start_s
    for name in measured if done < 16 else ():
        if done < needs[name]:
            again_s = min(
                sum(
                    seconds[one.case, one.stage]
                    for one in clock
                    if one.ended and one.case == f"fake/{name}" and one.launch == at
                )
                for at in {one.launch for one in clock if one.case == f"fake/{name}"}
            )
            assert again_s > left_s, name


@pytest.mark.parametrize(
    ("every", "share"), [(budget.WRITING_EVERY, 0.06), (0.0, 0.67)], ids=["as it is", "the control"]
)
def test_writing_what_many_cases_have_takes_little_of_a_run_and_the_last_time_all_of_it(
    tmp_path, monkeypatch, every, share
):
    """Cases of one second, and documents that take two to write: written after each case, they would take most of the run."""
    clock, names = StageClock(lambda _: 1.0), [f"case-{number}" for number in range(200)]
    Ended(clock=clock).into(monkeypatch)
    monkeypatch.setattr(budget, "WRITING_EVERY", every)
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=clock))
    run = FakeRun(
        tmp_path, replace(QUICK, launches=1, sampling=Sampling.FIXED), events=clock, clock=clock
    )
    told, writing_s = run._record, 0.0

    def record(*given):
        nonlocal writing_s
        clock.now, writing_s = clock.now + 2.0, writing_s + 2.0
        told(*given)

    run._record = record
    run.measure(*({"name": name, "stages": ["time"]} for name in names))
    assert writing_s / clock.now == pytest.approx(share, abs=0.06)
    assert {row.status for row in run.last().values()} == {Status.OK}
    assert len(run.last()) == len(names)


@pytest.mark.parametrize(
    ("left_s", "cases", "share_s"), [(600.0, 100, 3.0), (600.0, 1, 300.0), (600.0, 0, 300.0)]
)
def test_what_is_left_is_for_two_launches_of_each_case_that_is_to_come(left_s, cases, share_s):
    assert Budget(limit_s=700.0, clock=lambda: 700.0 - left_s).share_s(cases) == share_s
    assert Budget(limit_s=None, clock=lambda: 0.0).share_s(cases) == math.inf
