"""Where calibrations lie, and what a calibrating run leaves out."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_suite import fake_plan

from ci_bench.judge.times.audit import Audit
from ci_bench.judge.times.calibration import NoiseFloor, fingerprint
from ci_bench.records import documents
from ci_bench.records.calibration import Calibration, PastRun, PastSeries
from ci_bench.records.comparison import Interval
from ci_bench.runner.noise_floor import NoiseFolder, default_folder, times_only, told
from ci_bench.suites.contract import StageKind


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CI_BENCH_NOISE": "/kept", "XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/kept"),
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/ci-bench/noise"),
        ({"HOME": "/home/me"}, "/home/me/.local/state/ci-bench/noise"),
    ],
)
def test_the_folder_is_the_callers_word_or_that_of_the_platform(environ, expected) -> None:
    assert default_folder(environ) == Path(expected)


def test_an_empty_folder_knows_nothing(tmp_path: Path) -> None:
    assert NoiseFolder(path=tmp_path / "none").find({"cpu": "x"}) is None


IDENTITY = {"cpu": "x"}


def known(*ratios: float) -> Calibration:
    series = PastSeries(
        case="s/a",
        metric="step_time",
        arm="eager",
        ratios=ratios,
        within=(None,) * len(ratios),
        runs=(0,) * len(ratios),
    )
    run = PastRun(id="r", at="2026-01-01T00:00:00Z")
    return Calibration(
        tool_version="1",
        fingerprint=fingerprint(IDENTITY),
        identity=IDENTITY,
        runs=(run,),
        series=(series,),
    )


@pytest.fixture
def folder(tmp_path: Path) -> NoiseFolder:
    made = NoiseFolder(path=tmp_path)
    made.keep(known(0.01, -0.01))
    return made


def test_what_is_written_after_sealing_is_not_used(folder: NoiseFolder) -> None:
    sealed = folder.seal()
    (file,) = folder.path.glob("*.json")
    before = file.read_bytes()
    documents.write(known(0.3, -0.3), file)
    assert sealed.find(IDENTITY) == known(0.01, -0.01)
    assert f"{file} was written while code of the tree ran" in sealed.restore(IDENTITY)
    assert (file.read_bytes(), len([*folder.path.glob("*.changed")])) == (before, 1)
    assert sealed.restore(IDENTITY) == ""


def test_a_calibration_that_appears_is_taken_away(tmp_path: Path) -> None:
    sealed = NoiseFolder(path=tmp_path).seal()
    NoiseFolder(path=tmp_path).keep(known(0.3))
    assert sealed.find(IDENTITY) is None
    assert "was written while" in sealed.restore(IDENTITY)
    assert NoiseFolder(path=tmp_path).find(IDENTITY) is None


def test_what_a_gate_learns_is_added_to_what_was_sealed(folder: NoiseFolder) -> None:
    sealed = folder.seal()
    taught = replace(known(0.02), runs=(PastRun(id="gate", at="2026-01-02T00:00:00Z", gate=True),))
    assert [one.id for one in sealed.keep(taught).runs] == ["r", "gate"]
    assert sealed.find(IDENTITY) == known(0.01, -0.01)


def test_a_removed_calibration_comes_back(folder: NoiseFolder) -> None:
    sealed = folder.seal()
    (file,) = folder.path.glob("*.json")
    file.unlink()
    assert sealed.restore(IDENTITY)
    assert folder.find(IDENTITY) == known(0.01, -0.01)


def test_a_calibrating_run_verifies_nothing_and_measures_everything_else() -> None:
    plan = fake_plan({"name": "one", "stages": ["prepare", "verify", "seeds", "memory", "time"]})
    ((suite, case),) = times_only(plan)
    kinds = [stage.kind for stage in suite.stages(case)]
    assert kinds == [StageKind.PREPARE, StageKind.ALONE, StageKind.TIME]
    assert (suite.name, suite.worker, suite.needs_network(case)) == (
        "fake",
        "fake_suite_worker",
        False,
    )


@pytest.mark.parametrize(("low", "warned"), [(0.0, False), (0.2, True)])
def test_a_rule_that_breaks_its_promise_here_is_said(low, warned) -> None:
    floor = NoiseFloor(
        case="s/a",
        metric="step_time",
        arm="eager",
        past=8,
        spread=0.004,
        launches=3,
        resolvable=0.013,
    )
    answer = Audit(
        runs=8,
        alarms=(),
        improved=0,
        share=0.0,
        interval=Interval(low=low, high=0.5, level=0.95),
        promised=0.01,
    )
    lines = told([floor], answer).splitlines()
    assert (
        lines[0]
        == "s/a: step_time (eager): launch-to-launch sd 0.4 %; resolvable 1.3 % at 3 launches"
    )
    assert lines[1].startswith("0 of 8 runs of unchanged code would have been called regressed")
    assert any("do not gate" in line for line in lines) is warned
