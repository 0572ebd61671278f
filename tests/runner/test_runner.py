"""Base and head side by side, with the fake suite: what each side's ledger holds, and who goes on when."""

import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_suite import QUICK, FakeRun, fake_environ, fake_plan

from ci_bench.checkouts.sides import Side
from ci_bench.errors import DeviceBusy, WrongDevice
from ci_bench.host.energy import EnergyCount
from ci_bench.records.config import Sampling
from ci_bench.records.metrics import SM_CLOCK
from ci_bench.records.results import Lane, Launch, Outcome, SideName, Status
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.turns import NoWatch
from ci_bench.suites.contract import StageKind
from processes import carrying

BASE, HEAD = SideName.BASE, SideName.HEAD
STEPS = frozenset({("step_time", "plain")})
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
        assert [(block.launch, block.block) for block in row.blocks] == [
            (at, block) for at in range(2) for block in range(4)
        ]
    assert {event.sides for event in run.events} == {(BASE, HEAD)}


def test_the_two_sides_are_different_processes_that_see_their_own_environment(
    tmp_path: Path,
) -> None:
    run = FakeRun(tmp_path)
    both = run.measure_both(
        {"name": "prints", "fault": "print_environment"}, base={"MARKER": "this is base"}
    )
    assert "MARKER=this is base" in both[BASE]["prints"].failure.log_tail
    assert "MARKER" not in both[HEAD]["prints"].failure.log_tail


@pytest.mark.parametrize("stages", [["time"], ["verify", "memory", "time"]])
def test_a_side_that_fails_loses_its_row_alone(tmp_path: Path, stages) -> None:
    run = FakeRun(tmp_path, environ=fake_environ())
    both = run.measure_both(
        {"name": "one", "stages": stages}, {"name": "two"}, base={"FAKE_FAIL": "one"}
    )
    assert {name: {case: row.status for case, row in rows.items()} for name, rows in both.items()} == {
        BASE: {"one": Status.FAILED, "two": Status.OK}, HEAD: {"one": Status.OK, "two": Status.OK},
    }  # fmt: skip
    (metric,) = [one for one in both[HEAD]["one"].metrics if one.name == "step_time"]
    assert len(metric.launches[0].values) == 2 * QUICK.blocks


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("crowded", "base and head do not fit into memory together"),
        ("crowded_library", "base and head do not fit into memory together"),
        ("crowded_device", "the GPU takes one process at a time"),
    ],
)
def test_sides_that_cannot_be_there_together_are_timed_one_after_the_other_and_say_so(
    tmp_path: Path, fault, reason
) -> None:
    run = FakeRun(tmp_path)
    both = run.measure_both({"name": "large", "fault": fault, "at": "open"})
    for rows in both.values():
        row = rows["large"]
        assert row.status is Status.OK, row.failure
        (check,) = [one for one in row.checks if one.name == "side_by_side"]
        assert check.detail.startswith(reason)
        assert [block.block for block in row.blocks] == [*range(QUICK.blocks)]


def test_sides_without_room_run_in_turn(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, environ=fake_environ(FAKE_TIGHT="yes"))
    both = run.measure_both({"name": "tight", "stages": ["time"]})
    for rows in both.values():
        assert [
            check.name
            for check in rows["tight"].checks
            if check.name in {"side_by_side", "short_of_memory"}
        ] == ["side_by_side"]
        assert [block.block for block in rows["tight"].blocks] == [*range(QUICK.blocks)]


GRAPHS = replace(QUICK, cuda_graph=True, launches=2, referee=False)


@pytest.mark.parametrize("spoilt_side", ["base", "head"])
def test_workers_that_a_failed_capture_spoilt_are_replaced_and_no_arm_has_graphs(
    tmp_path: Path, spoilt_side
) -> None:
    notes = tmp_path / "notes"
    spoilt = {"FAKE_SPOILT": "one", "FAKE_NOTES": str(notes)}
    run = FakeRun(
        tmp_path, options=GRAPHS, environ=fake_environ(**(spoilt if spoilt_side == "head" else {}))
    )
    base = spoilt if spoilt_side == "base" else {"FAKE_SPOILT": ""}
    both = run.measure_both(
        {"name": "one", "stages": ["time"]}, {"name": "two", "stages": ["time"]}, base=base
    )
    assert {row.status for rows in both.values() for row in rows.values()} == {Status.OK}
    for rows in both.values():
        told = [check for check in rows["one"].checks if check.name == "graphed"]
        assert {(check.arm, check.outcome) for check in told} == {
            (arm, Outcome.UNKNOWN) for arm in rows["one"].case.arms
        }
        assert "could not be captured, and the next does not run" in told[0].detail
        assert not [check for check in rows["two"].checks if check.name == "graphed"]
        (metric,) = [
            one for one in rows["one"].metrics if one.name == "step_time" and one.arm == "plain"
        ]
        assert len(metric.launches) == 2
    assert len(notes.read_text().split()) == 1, "a second launch does not try again"


@pytest.mark.parametrize("failed", [BASE, HEAD])
def test_beside_a_failed_set_up_nothing_is_measured(tmp_path: Path, failed: SideName) -> None:
    plan = fake_plan({"name": "one"}, {"name": "two"})
    ledger = Ledger.open(
        [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
    )
    run = FakeRun(tmp_path)
    why = "`make` ended with exit code 2: needs cmake"
    broken = {failed: f"{why}\nthe log\nneeds cmake"}
    measured = run.measure_sides(
        plan,
        ledger,
        [Side(name=name, environ=run.environ, failure=broken.get(name)) for name in (BASE, HEAD)],
    )
    told = {
        name: {
            (row.status, row.failure.stage, row.failure.reason, row.failure.log_tail)
            for row in ledger.rows.values()
        }
        for name, (_, ledger) in measured.items()
    }
    other = HEAD if failed is BASE else BASE
    log = "the log\nneeds cmake"
    assert told[failed] == {(Status.FAILED, "setup", why, log)}
    assert told[other] == {(Status.NOT_RUN, "setup", f"{failed} could not be set up: {why}", log)}
    assert run.events == [], "no process was started"
    assert len(run.recorded) == 2, "both documents are written"


def test_adaptive_sampling_takes_the_cases_that_the_judge_calls_open_and_no_others(
    tmp_path: Path,
) -> None:
    asked = []

    def still_open(launches, measured):
        asked.append((launches, {*measured}))
        return {"fake/two": STEPS} if launches < 3 else {}

    run = FakeRun(tmp_path, replace(QUICK, max_launches=9), still_open=still_open)
    both = run.measure_both({"name": "one"}, {"name": "two"})
    for rows in both.values():
        assert {name: len(medians(row)) for name, row in rows.items()} == {"one": 1, "two": 3}
        assert {row.status for row in rows.values()} == {Status.OK}
    assert asked == [(launches, {BASE, HEAD}) for launches in (1, 2, 3)]


def launches_of(row):
    return {(one.name, one.arm): [launch.launch for launch in one.launches] for one in row.metrics}


def test_a_case_that_goes_on_takes_only_the_stages_that_bring_what_is_open(tmp_path: Path) -> None:
    cold = frozenset({("compile_cold", "other")})
    answers = {1: STEPS | cold, 2: cold, 3: STEPS}
    run = FakeRun(
        tmp_path,
        replace(QUICK, max_launches=9),
        still_open=lambda done, _: {"fake/one": answers.get(done)} if done in answers else {},
    )
    both = run.measure_both({"name": "one", "stages": ["cold", "memory", "time"], **ARMS})
    for rows in both.values():
        taken = launches_of(rows["one"])
        assert taken["compile_cold", "other"] == [0, 1, 2]
        assert taken["step_time", "plain"] == taken["step_time", "other"] == [0, 1, 3]
        assert taken["peak_anonymous", "plain"] == [0]


def test_a_peak_that_waits_for_its_second_launch_gets_it_alone(tmp_path: Path) -> None:
    peaks = frozenset({("peak_anonymous", "plain")})
    run = FakeRun(
        tmp_path,
        replace(QUICK, max_launches=9),
        still_open=lambda done, _: {"fake/one": peaks} if done == 1 else {},
    )
    both = run.measure_both({"name": "one", "stages": ["memory", "time"]})
    for rows in both.values():
        taken = launches_of(rows["one"])
        assert (taken["peak_anonymous", "plain"], taken["step_time", "plain"]) == ([0, 1], [0])


@pytest.mark.parametrize(("budget_s", "times"), [(0.0, [0]), (3600.0, [0, 1, 2])])
def test_cold_compilations_are_repeated_within_their_budget(
    tmp_path: Path, budget_s, times
) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=3, compile_budget_s=budget_s))
    both = run.measure_both({"name": "one", "stages": ["cold", "time"], **ARMS})
    for rows in both.values():
        taken = launches_of(rows["one"])
        assert (taken["compile_cold", "other"], taken["step_time", "other"]) == (times, [0, 1, 2])


def test_adaptive_sampling_stops_at_its_limit(tmp_path: Path) -> None:
    run = FakeRun(
        tmp_path, replace(QUICK, max_launches=2), still_open=lambda *_: {"fake/one": STEPS}
    )
    both = run.measure_both({"name": "one"})
    assert [len(medians(rows["one"])) for rows in both.values()] == [2, 2]


def test_fixed_sampling_asks_nobody(tmp_path: Path) -> None:
    def still_open(*_):
        raise AssertionError

    run = FakeRun(
        tmp_path, replace(QUICK, launches=2, sampling=Sampling.FIXED), still_open=still_open
    )
    both = run.measure_both({"name": "one"})
    assert [len(medians(rows["one"])) for rows in both.values()] == [2, 2]


def test_a_case_that_spent_its_budget_gets_no_more_launches(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=3, case_budget_s=1e-6))
    both = run.measure_both({"name": "one"})
    assert [(rows["one"].status, len(medians(rows["one"]))) for rows in both.values()] == [
        (Status.OK, 1)
    ] * 2


def test_later_launches_take_the_cases_in_random_order(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=3, blocks=1))
    names = [f"case{number}" for number in range(6)]
    run.measure_both(*({"name": name} for name in names))
    orders = {
        launch: tuple(event.case for event in run.events if event.ended and event.launch == launch)
        for launch in range(3)
    }
    assert orders[0] == tuple(f"fake/{name}" for name in names)
    assert len({*orders.values()}) == 3


def test_a_side_that_goes_first_alone_in_one_launch_goes_second_in_the_next(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, replace(QUICK, launches=2, blocks=1))
    run.measure_both({"name": "one", "stages": ["memory", "time"]})
    alone = [
        (event.launch, event.sides)
        for event in run.events
        if event.stage == "alone" and event.ended
    ]
    assert alone == [(0, (BASE,)), (0, (HEAD,)), (1, (HEAD,)), (1, (BASE,))]


def test_the_machine_is_watched_and_what_it_was_like_is_kept(tmp_path: Path) -> None:
    class Watch:
        def __init__(self):
            self.log = []

        def __getattr__(self, name):
            return lambda *_: self.log.append(name)

        def facts(self, _):
            return {"load_1min": 0.5}

        def metrics(self, glances, *, arm, launch):
            assert [*glances] == [*range(QUICK.blocks)]
            return (
                SM_CLOCK.of(
                    arm,
                    Launch(launch=launch, values=(1.7e9,) * len(glances), blocks=tuple(glances)),
                    lane=Lane.DEVICE,
                ),
            )

    from ci_bench.runner.runner import Runner

    plan = fake_plan({"name": "one"})
    ledger = Ledger.open(
        [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
    )
    watch = Watch()
    runner = Runner(
        options=replace(QUICK, launches=1),
        scratch=tmp_path,
        observe=lambda _: None,
        watch=lambda environment: watch,
        seed="s",
    )
    measured = runner.run(
        plan, (Side(name=HEAD, environ=fake_environ()),), {HEAD: ledger}, lambda *_: None
    )
    (row,) = measured[HEAD][1].rows.values()
    assert [block.facts for block in row.blocks] == [{"load_1min": 0.5}] * QUICK.blocks
    assert (watch.log[0], watch.log[-1], watch.log.count("settle")) == ("vacate", "close", 1)
    seen = {metric.arm: metric.launches for metric in row.metrics if metric.name == "sm_clock"}
    assert {*seen} == {*row.case.arms}
    assert all(launch.values == (1.7e9,) * QUICK.blocks for (launch,) in seen.values())


@pytest.mark.alone
def test_energy_is_counted_through_the_engine_where_it_is_asked_for(tmp_path: Path) -> None:
    """Another try where the machine was interrupted: steps faster than as sampled tell nothing, slower ones draw more."""
    from ci_bench.runner.runner import Runner

    class Counting(NoWatch):
        def count(self):
            now = time.monotonic()
            return EnergyCount(at_s=now, joules=5.0 * now)

    def is_told(scratch: Path) -> bool:
        scratch.mkdir()
        plan = fake_plan({"name": "one", "arms": ["plain", "other"]})
        ledger = Ledger.open(
            [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
        )
        options = replace(QUICK, launches=1, blocks=1, energy_s=0.5)
        runner = Runner(
            options=options,
            scratch=scratch,
            observe=lambda _: None,
            watch=lambda environment: Counting(),
            seed="s",
        )
        measured = runner.run(
            plan, (Side(name=HEAD, environ=fake_environ()),), {HEAD: ledger}, lambda *_: None
        )
        (row,) = measured[HEAD][1].rows.values()
        found = {(metric.name, metric.arm): metric.launches[0].values for metric in row.metrics}
        counted = [check for check in row.checks if check.name == "energy_counted"]
        assert len(counted) == 2
        return all(
            check.outcome is Outcome.PASS and "5 W over" in check.detail for check in counted
        ) and all(
            found["energy_per_step", arm]
            == pytest.approx([5.0 * found["step_time", arm][0]] * 2, rel=0.5)
            for arm in row.case.arms
        )

    assert any(is_told(tmp_path / str(attempt)) for attempt in range(4))


def seeded(row):
    return [check.name for check in row.checks if check.name == "trained_over_seeds"]


@pytest.mark.parametrize("wanted", [True, False])
def test_trainings_over_seeds_take_place_on_both_sides_where_the_judge_wants_them(
    tmp_path: Path, wanted
) -> None:
    """It is asked once per case, with what both sides have verified by then."""
    asked = []

    def ask(base, head):
        asked.append(
            [(row.case.name, [check.name for check in row.checks]) for row in (base, head)]
        )
        return wanted and base.case.name == "one"

    run = FakeRun(tmp_path, replace(QUICK, launches=2), asked={StageKind.SEEDS: ask})
    stages = ["verify", "seeds", "time"]
    both = run.measure_both({"name": "one", "stages": stages}, {"name": "two", "stages": stages})
    assert asked == [[(name, ["prepared"])] * 2 for name in ("one", "two")]
    for rows in both.values():
        assert {row.status for row in rows.values()} == {Status.OK}
        assert [len(seeded(rows[name])) for name in ("one", "two")] == [int(wanted), 0]
    last = run.events[-1]
    assert last.done == last.total


def test_nobody_trains_over_seeds_without_a_judge_or_without_a_base(tmp_path: Path) -> None:
    entry = {"name": "one", "stages": ["verify", "seeds", "time"]}
    for name in ("no judge", "no base"):
        (tmp_path / name).mkdir()
    both = FakeRun(tmp_path / "no judge").measure_both(entry)
    alone = FakeRun(tmp_path / "no base", asked={StageKind.SEEDS: lambda *_: True}).measure(entry)
    assert [seeded(rows["one"]) for rows in (*both.values(), alone)] == [[], [], []]
    assert {rows["one"].status for rows in (*both.values(), alone)} == {Status.OK}


def test_a_side_that_cannot_train_over_seeds_fails_by_that_stage(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, asked={StageKind.SEEDS: lambda *_: True})
    both = run.measure_both(
        {
            "name": "one",
            "stages": ["verify", "seeds", "time"],
            "fault": "memory_error",
            "at": "seeds",
        }
    )
    assert {row["one"].failure.stage for row in both.values()} == {"seeds"}


def measured_of_rounding(row):
    return [
        check.name for check in row.checks if check.name in {"provisional", "trained_perturbed"}
    ]


ROUNDING = {"name": "one", "stages": ["verify", "rounding", "time"]}


@pytest.mark.parametrize("wanted", [True, False])
def test_more_of_rounding_is_measured_on_both_sides_where_the_judge_wants_it(
    tmp_path: Path, wanted
) -> None:
    run = FakeRun(tmp_path, asked={StageKind.ROUNDING: lambda *_: wanted})
    both = run.measure_both(ROUNDING)
    expected = ["provisional", *["trained_perturbed"][: int(wanted)]]
    assert [(rows["one"].status, measured_of_rounding(rows["one"])) for rows in both.values()] == [
        (Status.OK, expected)
    ] * 2
    last = run.events[-1]
    assert last.done == last.total


def test_without_a_judge_or_a_base_all_of_rounding_is_measured_at_once(tmp_path: Path) -> None:
    for name in ("no judge", "no base"):
        (tmp_path / name).mkdir()
    both = FakeRun(tmp_path / "no judge").measure_both(ROUNDING)
    alone = FakeRun(tmp_path / "no base", asked={StageKind.ROUNDING: lambda *_: False}).measure(
        ROUNDING
    )
    assert [measured_of_rounding(rows["one"]) for rows in (*both.values(), alone)] == [[], [], []]


def test_a_run_of_one_side_measures_more_of_rounding_where_the_judge_wants_it(
    tmp_path: Path,
) -> None:
    alone = FakeRun(tmp_path, asked={StageKind.ROUNDING: lambda base, head: base is head}).measure(
        ROUNDING
    )
    assert measured_of_rounding(alone["one"]) == ["trained_perturbed"]


def test_the_side_that_is_left_is_asked_about_by_itself(tmp_path: Path) -> None:
    """What it verified counted on a second look, whatever became of the other side."""
    asked = []

    def ask(base, head):
        asked.append((base is head, base.case.name))
        return True

    run = FakeRun(tmp_path, asked={StageKind.ROUNDING: ask})
    both = run.measure_both(ROUNDING, base={"FAKE_FAIL": "one"})
    assert {name: row["one"].status for name, row in both.items()} == {
        SideName.BASE: Status.FAILED,
        SideName.HEAD: Status.OK,
    }
    assert (asked, measured_of_rounding(both[SideName.HEAD]["one"])) == (
        [(True, "one")],
        ["provisional", "trained_perturbed"],
    )


def test_the_device_is_held_before_any_process_is_started_and_until_the_last_has_ended(
    tmp_path: Path,
) -> None:
    log = []

    @contextmanager
    def hold():
        log.append(("held", [path.name for path in (tmp_path / "head").iterdir()]))
        yield
        log.append(("let go", carrying(run.environ["FAKE_ROOM"])))

    run = FakeRun(tmp_path, hold=hold)
    assert run.measure({"name": "one"})["one"].status is Status.OK
    assert log == [("held", []), ("let go", [])]


def test_a_device_that_others_hold_is_not_touched(tmp_path: Path) -> None:
    def hold():
        raise DeviceBusy("another run measures on it")

    with pytest.raises(DeviceBusy):
        FakeRun(tmp_path, hold=hold).measure({"name": "one"})
    assert not [*(tmp_path / "head").iterdir()], "no process was started"


def test_another_device_than_was_asked_for_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    asked = []

    def refuse(environment) -> str:
        asked.append(environment.identity["device"])
        return "the CPU is not measured in a GPU's place" if len(asked) == 2 else ""

    run = FakeRun(tmp_path, refuse=refuse)
    with pytest.raises(WrongDevice, match="the CPU is not measured in a GPU's place"):
        run.measure_both({"name": "one"})
    assert asked == ["cpu", "cpu"], "both sides are asked"
    assert run.last()["one"].status is Status.NOT_RUN


@pytest.mark.parametrize("at", ["launch", "end"])
def test_what_was_changed_out_of_a_sides_reach_fails_every_case_of_both_by_its_name(
    tmp_path: Path, at: str
) -> None:
    """After the launch in which it is noticed nothing more is measured, and what was measured before does not count."""
    asked: list[bool] = []

    def inspect(everything: bool) -> tuple[str, ...]:
        asked.append(everything)
        noticed = len(asked) > 1 if at == "launch" else everything
        return ("base's tree was changed: bench.py was written",) if noticed else ()

    run = FakeRun(tmp_path, replace(QUICK, launches=3), inspect=inspect)
    both = run.measure_both({"name": "one"}, {"name": "two"})
    assert asked == ([False, False, True] if at == "launch" else [False, False, False, True])
    for rows in both.values():
        for row in rows.values():
            assert (row.status, row.failure.stage) == (Status.FAILED, "reach")
            assert (
                row.failure.reason
                == "while base and head were measured, base's tree was changed: bench.py was written"
            )
    assert {one.status for one in run.last().values()} == {Status.FAILED}
