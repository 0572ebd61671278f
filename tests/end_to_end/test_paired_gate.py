"""`gate --baseline paired` and `calibrate` from argv to exit code, on repositories made here."""

import pytest
import yaml
from end_to_end_builders import commit, git, outcome

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.results import Status

pytestmark = pytest.mark.usefixtures("plugin")


@pytest.mark.alone
@pytest.mark.parametrize(
    ("step_s", "expected"),
    [
        ("0.008", (ExitCode.POLICY_NOT_MET, Verdict.REGRESSED)),
        ("0.002", (ExitCode.OK, Verdict.IMPROVED)),
    ],
)
def test_a_commit_is_judged_against_the_one_before_it(
    repository, tmp_path, ci_bench, step_s, expected
) -> None:
    commit(repository, step_s)
    exit_code, _, said = ci_bench(
        "gate", "--baseline", "paired", "--base", "HEAD~1", "--output", tmp_path / "out"
    )
    comparison = outcome(tmp_path / "out")
    assert (exit_code, comparison.cases[0].verdict) == expected, said
    assert comparison.mode is BaselineMode.PAIRED
    base, head = (
        documents.read_results(tmp_path / "out" / name)
        for name in ("base/results.json", "results.json")
    )
    assert (base.source.commit, head.source.commit) == (
        git(repository, "rev-parse", "HEAD~1"),
        git(repository, "rev-parse", "HEAD"),
    )
    assert base.run.id == head.run.id
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "worktree", "list").count("\n") == 0


@pytest.mark.alone
def test_a_commit_against_itself_passes_and_costs_no_more_launches_than_it_needs(
    repository, tmp_path, ci_bench
) -> None:
    code, _, said = ci_bench(
        "gate", "--baseline", "paired", "--base", "HEAD", "--output", tmp_path / "out"
    )
    comparison = outcome(tmp_path / "out")
    assert code == ExitCode.OK, said
    assert comparison.cases[0].verdict in {Verdict.UNCHANGED, Verdict.INCONCLUSIVE}
    launches = (
        documents.read_results(tmp_path / "out" / "results.json").cases[0].metrics[0].launches
    )
    assert 1 <= len(launches) <= 16


def test_changes_that_are_not_committed_are_measured_too(repository, tmp_path, ci_bench) -> None:
    (repository / "fake_step_s").write_text("0.008")
    before = git(repository, "status", "--porcelain")
    code, _, _ = ci_bench(
        "gate", "--baseline", "paired", "--base", "HEAD", "--output", tmp_path / "out"
    )
    assert (code, outcome(tmp_path / "out").cases[0].verdict) == (
        ExitCode.POLICY_NOT_MET,
        Verdict.REGRESSED,
    )
    assert documents.read_results(tmp_path / "out" / "results.json").source.dirty
    assert git(repository, "status", "--porcelain") == before


def test_the_configuration_may_ask_for_it_and_set_the_sides_up(
    repository, tmp_path, ci_bench
) -> None:
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config |= {"baseline": "paired", "base": "HEAD~1", "setup": {"commands": ["test ! -e broken"]}}
    config["run"] |= {"sampling": "fixed", "launches": 1}
    (repository / "broken").touch()
    git(repository, "add", ".")
    git(repository, "commit", "-m", "break it")
    git(repository, "rm", "broken")
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))
    git(repository, "commit", "-a", "-m", "mend it")
    assert ci_bench("gate", "--output", tmp_path / "out")[0] == ExitCode.MEASURING_FAILED
    base, head = (
        documents.read_results(tmp_path / "out" / name).cases[0]
        for name in ("base/results.json", "results.json")
    )
    assert (base.status, head.status, base.failure.stage) == (
        Status.FAILED,
        Status.NOT_RUN,
        "setup",
    )
    assert "test ! -e broken" in base.failure.reason
    assert "base could not be set up" in outcome(tmp_path / "out").judgement.headline


def test_a_base_that_is_not_there_is_told_before_anything_is_measured(
    repository, tmp_path, ci_bench
) -> None:
    code, _, said = ci_bench(
        "gate", "--baseline", "paired", "--base", "no-such-branch", "--output", tmp_path / "out"
    )
    assert code == ExitCode.BAD_INPUT
    assert "no-such-branch" in said
    assert not (tmp_path / "out" / "results.json").exists()


def test_outside_a_repository_pairing_is_refused_with_a_way_out(
    tmp_path, configure, ci_bench
) -> None:
    configure({"name": "one"})
    code, _, said = ci_bench("gate", "--baseline", "paired", "--output", tmp_path / "out")
    assert code == ExitCode.BAD_INPUT
    assert "git" in said


@pytest.mark.alone
def test_calibrating_tells_and_keeps_the_noise_of_this_machine_and_a_gate_uses_it(
    repository, tmp_path, ci_bench
) -> None:
    code, told, said = ci_bench("calibrate", "--launches", "4", "--output", tmp_path / "calibrate")
    assert code == ExitCode.OK, said
    assert "fake/one: step_time (plain): launch-to-launch sd" in told
    assert "0 of 1 run of unchanged code would have been called regressed" in told
    (file,) = (tmp_path / "noise").iterdir()
    assert len(documents.read_calibration(file).series[0].ratios) == 4
    assert ci_bench("validate", file)[0] == ExitCode.OK
    ci_bench("calibrate", "--launches", "2", "--output", tmp_path / "calibrate")
    assert len(documents.read_calibration(file).series[0].ratios) == 6
    ci_bench("gate", "--baseline", "paired", "--base", "HEAD", "--output", tmp_path / "out")
    assert {
        pair.calibrated
        for pair in outcome(tmp_path / "out").cases[0].pairs
        if pair.metric == "step_time"
    } == {True}


@pytest.mark.alone
def test_a_gate_that_learns_keeps_its_first_launches_and_is_judged_by_what_was_known_before(
    repository, tmp_path, ci_bench, monkeypatch
) -> None:
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    for _ in range(2):
        code, _, said = ci_bench(
            "gate",
            "--baseline",
            "paired",
            "--base",
            "HEAD",
            "--learn",
            "--output",
            tmp_path / "out",
        )
        assert code == ExitCode.OK, said
        assert f"kept the first launches of 1 time(s) in {tmp_path / 'noise'}" in said
    (file,) = (tmp_path / "noise").iterdir()
    kept = documents.read_calibration(file)
    assert ([run.gate for run in kept.runs], len(kept.series[0].ratios)) == ([True, True], 2)
    assert len(documents.read_calibration(tmp_path / "out" / "calibration.json").runs) == 1


def test_a_broken_calibration_is_named_and_left_as_it_is(repository, tmp_path, ci_bench) -> None:
    ci_bench("calibrate", "--launches", "1", "--output", tmp_path / "calibrate")
    (file,) = (tmp_path / "noise").iterdir()
    file.write_text("{}")
    code, _, said = ci_bench("calibrate", "--launches", "1", "--output", tmp_path / "calibrate")
    assert code == ExitCode.BAD_INPUT
    assert str(file) in said
    assert file.read_text() == "{}"
