"""Explaining comes after the last launch, in processes that measure nothing; what goes wrong in it changes nothing else."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_suite import QUICK, FakeRun, fake_environ, fake_plan

from ci_bench.checkouts.sides import Side
from ci_bench.processes.protocol import Answer, decode_answer, encode
from ci_bench.processes.resident import Ended
from ci_bench.records.config import Explain
from ci_bench.records.profiles import Profile, ProfileRow, RowKind, SourceLine
from ci_bench.records.results import (
    Better,
    Check,
    Lane,
    Launch,
    Metric,
    Outcome,
    SideName,
    Status,
    Unit,
)
from ci_bench.runner import runner
from ci_bench.runner.explaining import Explaining, Unexplained, arms_to_explain, unknown
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.side_run import SideRun
from ci_bench.suites.contract import Evidence, Stage, StageKind

BASE, HEAD = SideName.BASE, SideName.HEAD
ROW = ProfileRow(
    name="aten::mm", kind=RowKind.OPERATOR, lines=(SourceLine(place="m.py:1"),), seconds=0.01
)
PROFILE = Profile(arm="plain", step_s=0.01, steps=9, rows=(ROW,))


class Asking(FakeRun):
    """A run whose judge wants everything explained, and notes when it is asked."""

    wanted: dict[str, tuple[str, ...]]
    launches_seen: list[int]

    def measure_sides(self, plan, ledger, sides):
        from ci_bench.runner.runner import Runner

        def ask(measured):
            rows = [row for _, own in measured.values() for row in own.rows.values()]
            self.launches_seen = [
                len(metric.launches)
                for row in rows
                for metric in row.metrics
                if metric.name == "step_time"
            ]
            return self.wanted

        runner = Runner(
            options=self.options,
            scratch=self.folder,
            observe=self.events.append,
            to_explain=ask,
            seed="fake",
        )
        return runner.run(plan, sides, {side.name: ledger for side in sides}, self._record)


def run_of(folder, wanted, **options):
    run = Asking(folder, replace(QUICK, launches=2, **options))
    run.wanted = wanted
    return run


def test_it_comes_after_the_last_launch_once_for_each_side_and_leaves_no_sample(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with_it, without = (
        run_of(tmp_path / name, {"fake/one": ("plain",)}, explain=how)
        for name, how in (("a", Explain.ALWAYS), ("b", Explain.NEVER))
    )
    both, plain = with_it.measure_both({"name": "one"}), without.measure_both({"name": "one"})
    assert with_it.launches_seen == [2, 2], (
        "all samples of all launches are there before the judge is asked"
    )
    stages = [event.stage for event in with_it.events]
    assert stages.index("explain") > max(
        place for place, stage in enumerate(stages) if stage == "time"
    )
    assert "explain" not in [event.stage for event in without.events]
    for side in (BASE, HEAD):
        row, other = both[side]["one"], plain[side]["one"]
        (profile,) = row.profiles
        assert profile.unknown == "this suite computes without torch"
        assert other.profiles == ()
        assert shape(row) == shape(other), "the same metrics, launches and numbers of samples"
        assert row.status is Status.OK
        assert [one.stage for one in row.spent if one.phase == "explain"] == ["explain"]


def shape(row):
    return [
        (one.name, one.arm, [(launch.launch, len(launch.values)) for launch in one.launches])
        for one in row.metrics
    ]


@pytest.mark.parametrize("wanted", [{}, {"fake/one": ()}, {"fake/one": ("stranger",)}])
def test_nothing_starts_where_nothing_is_wanted(tmp_path: Path, wanted) -> None:
    run = run_of(tmp_path, wanted)
    assert run.measure({"name": "one"})["one"].profiles == ()
    assert not (tmp_path / "head" / "explain").exists()


def test_cases_that_failed_or_are_not_timed_are_not_explained(tmp_path: Path) -> None:
    wanted = {f"fake/{name}": ("plain",) for name in ("bad", "seen", "one")}
    rows = run_of(tmp_path, wanted).measure(
        {"name": "bad", "fault": "raise", "at": "verify", "stages": ["verify", "time"]},
        {"name": "seen", "stages": ["verify"]},
        {"name": "one"},
    )
    assert [name for name, row in rows.items() if row.profiles] == ["one"]


@pytest.mark.parametrize("fault", ["signal:11", "raise", "exit"])
def test_a_program_that_dies_when_it_is_explained_costs_its_profile_alone(
    tmp_path: Path, fault
) -> None:
    explaining, run = explaining_of(tmp_path, {"name": "one", "fault": fault, "at": "workload"})
    (wanted,) = arms_to_explain(
        fake_plan({"name": "one", "fault": fault, "at": "workload"}),
        {"fake/one": ("plain",)},
        [run],
    )
    with run.launcher("explain", (), offline=True) as launcher:
        replace_launchers(explaining, {HEAD: launcher})
        explaining.explain([wanted])
    row = run.ledger.rows["fake/one"]
    assert row.status is Status.NOT_RUN
    assert row.profiles[0].step_s is None
    assert row.profiles[0].unknown


def explaining_of(folder, entry, *, budget_s=60.0, clock=lambda: 0.0):
    plan = fake_plan(entry)
    ledger = Ledger.open(
        [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
    )

    side = Side(name=HEAD, environ=fake_environ())
    run = SideRun(
        side=side,
        options=QUICK,
        folder=folder / "head",
        ledger=ledger,
        numbers={case.id: 0 for _, case in plan},
    )
    (folder / "head").mkdir(parents=True, exist_ok=True)
    return Explaining(
        runs=[run], launchers={}, budget_s=budget_s, clock=clock, observe=lambda _: None, launch=0
    ), run


def replace_launchers(explaining, launchers):
    explaining.launchers = launchers


def test_a_spent_budget_is_said(tmp_path: Path) -> None:
    seconds = iter(range(0, 10_000, 200))
    explaining, run = explaining_of(
        tmp_path, {"name": "one"}, budget_s=100.0, clock=lambda: float(next(seconds))
    )
    replace_launchers(explaining, {HEAD: object()})
    explaining.explain(arms_to_explain(fake_plan({"name": "one"}), {"fake/one": ("plain",)}, [run]))
    assert (
        "its budget of 100 s was spent; raise run.explain_s"
        in run.ledger.rows["fake/one"].profiles[0].unknown
    )


def test_what_several_processes_run_is_not_explained_as_if_one_did(tmp_path: Path) -> None:
    ((_, case),) = fake_plan({"name": "one", "arms": ["plain", "shared"]})
    suite = SimpleNamespace(
        stages=lambda _: (Stage(kind=StageKind.TIME, arms=case.arms, launches=None, processes=2),)
    )
    arms = [Unexplained(suite=suite, case=case, arm=arm) for arm in case.arms]
    assert [one.processes for one in arms] == [1, 2]
    explaining, run = explaining_of(tmp_path, {"name": "one", "arms": ["plain", "shared"]})
    replace_launchers(explaining, {HEAD: object()})
    explaining.explain(arms[1:])
    (profile,) = run.ledger.rows["fake/one"].profiles
    assert profile.unknown.startswith("its step runs in 2 processes")


@pytest.mark.parametrize(
    ("budget_s", "explain_s", "given"),
    [
        (None, 60.0, (60.0, "run.explain_s")),
        (1e6, 60.0, (60.0, "run.explain_s")),
        (1000.0, 2000.0, "run.budget_s"),
    ],
)
def test_explaining_takes_no_more_than_the_run_has_left(
    tmp_path: Path, monkeypatch, budget_s, explain_s, given
) -> None:
    seen = []
    monkeypatch.setattr(
        runner.Explaining, "explain", lambda self, _: seen.append((self.budget_s, self.whose))
    )
    run_of(tmp_path, {"fake/one": ("plain",)}, budget_s=budget_s, explain_s=explain_s).measure(
        {"name": "one"}
    )
    ((left_s, whose),) = seen
    if isinstance(given, tuple):
        assert (left_s, whose) == given
    else:
        assert 0 < left_s < 1000.0
        assert whose == given


class Launched:
    """Stands for a launch whose worker sends what it is given."""

    def __init__(self, *answers: Answer, code: int = 0) -> None:
        self._ended = Ended(code=code, timed_out=False, answers=answers, duration_s=1.0)

    def run(self, _task, *, timeout_s, on_answer):
        return self._ended


def settled(folder, *answers, code=0):
    explaining, run = explaining_of(folder, {"name": "one"})
    replace_launchers(explaining, {HEAD: Launched(*answers, code=code)})
    explaining.explain(arms_to_explain(fake_plan({"name": "one"}), {"fake/one": ("plain",)}, [run]))
    return run.ledger.rows["fake/one"]


def test_an_honest_profile_is_kept_and_nothing_else_of_what_comes_with_it(tmp_path: Path) -> None:
    sample = Metric(
        name="step_time",
        arm="plain",
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=(Launch(launch=0, values=(1.0,)),),
    )
    failed = Check(name="ran", arm="plain", outcome=Outcome.FAIL, detail="")
    stranger = replace(PROFILE, arm="stranger")
    row = settled(
        tmp_path,
        Answer(
            evidence=Evidence(
                profiles=(stranger, PROFILE), metrics=(sample,), checks=(failed,), facts={"a": 1}
            )
        ),
    )
    assert (row.profiles, row.metrics, row.checks, row.facts) == ((PROFILE,), (), (), {})


@pytest.mark.parametrize(
    "hostile",
    [
        replace(PROFILE, rows=(replace(ROW, name="x" * 100_000),)),
        replace(PROFILE, rows=(replace(ROW, name=""),)),
        replace(PROFILE, rows=(ROW,) * 151),
        replace(
            PROFILE, rows=(replace(ROW, lines=(SourceLine(place="m.py:1", code="x" * 10_000),)),)
        ),
        replace(PROFILE, rows=(replace(ROW, lines=ROW.lines * 9),)),
        replace(PROFILE, rows=(replace(ROW, seconds=-1.0),)),
        replace(PROFILE, rows=(replace(ROW, seconds=1e300),)),
        replace(PROFILE, step_s=float("nan")),
        replace(PROFILE, recompiles=("guard",) * 1000),
        replace(PROFILE, notes=("\ud800",)),
    ],
)
def test_what_no_document_can_hold_is_refused_and_the_case_stays_as_it_is(
    tmp_path: Path, hostile
) -> None:
    row = settled(tmp_path, Answer(evidence=Evidence(profiles=(hostile,))))
    (profile,) = row.profiles
    assert (profile.step_s, profile.rows, row.status) == (None, (), Status.NOT_RUN)
    assert profile.unknown.startswith("the suite sent what no results document can hold")
    assert len(profile.unknown) <= 300


def test_numbers_that_are_none_do_not_pass_the_pipe() -> None:
    line = encode(Answer(evidence=Evidence(profiles=(PROFILE,)))).replace(
        b'"seconds": 0.01', b'"seconds": NaN'
    )
    with pytest.raises(ValueError, match="NaN"):
        decode_answer(line)
    with pytest.raises(ValueError, match="step_s"):
        decode_answer(
            encode(Answer(evidence=Evidence(profiles=(PROFILE,)))).replace(
                b'"step_s": 0.01', b'"step_s": "x"'
            )
        )


@pytest.mark.parametrize(
    ("answers", "code", "says"),
    [((), 1, "exited with code 1"), ((Answer(evidence=Evidence()),), 0, "sent no profile")],
)
def test_without_a_profile_it_says_why(tmp_path: Path, answers, code, says) -> None:
    assert says in settled(tmp_path, *answers, code=code).profiles[0].unknown


def test_a_reason_is_one_line_and_bounded() -> None:
    assert unknown("plain", "a\n b" + "x" * 1000).unknown.startswith("a bx")
    assert len(unknown("plain", "x" * 1000).unknown) == 300


def test_the_default_explains_what_changed() -> None:
    assert QUICK.explain is Explain.ON_CHANGE
