"""What would be found wrong only after measuring is found before: no worker is started for it, and no lock is taken."""

import json

import pytest
from end_to_end_builders import git

from ci_bench.commands.measuring import Measurement
from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.results import RunState

pytestmark = pytest.mark.usefixtures("plugin")
FAIL = {"baseline_missing": "fail"}


class Measured(Exception):  # noqa: N818 - what must not happen, or has to
    """Measuring would begin now."""


@pytest.fixture
def idle(monkeypatch, configure):
    """A configuration whose policy fails without a baseline; measuring raises `Measured`."""

    def measure(*_, **__):
        raise Measured

    configure({"name": "one"}, severities=FAIL)
    monkeypatch.setattr(Measurement, "measure", measure)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("pared", "paired"), ("Paired", "paired"), ("artefact", "artifact"), ("nnoe", "none")],
)
@pytest.mark.parametrize("more", [(), ("--save-baseline",)])
def test_a_misspelt_baseline_is_no_path(idle, ci_bench, word, meant, more) -> None:
    code, _, said = ci_bench("gate", "--baseline", word, *more)
    assert code == ExitCode.BAD_INPUT
    assert f"did you mean '{meant}'?" in said
    assert f"./{word}" in said


def test_a_path_of_such_a_name_is_a_path(idle, ci_bench, tmp_path) -> None:
    with pytest.raises(Measured):
        ci_bench("gate", "--baseline", "./pared", "--save-baseline")
    (tmp_path / "pared").mkdir()
    with pytest.raises(Measured):
        ci_bench("gate", "--baseline", "pared", "--save-baseline")


def test_a_baseline_that_is_not_there_is_refused_where_that_fails_the_run(idle, ci_bench) -> None:
    code, _, said = ci_bench("gate", "--baseline", "saved/main")
    assert code == ExitCode.BAD_INPUT
    assert "there is nothing at saved/main/results.json" in said
    assert "--save-baseline" in said


def test_where_the_policy_lets_it_pass_it_is_told_and_head_is_measured(
    idle, configure, ci_bench, capsys
) -> None:
    configure({"name": "one"}, severities={"baseline_missing": "warn"})
    with pytest.raises(Measured):
        ci_bench("gate", "--baseline", "saved/main")
    assert "no baseline: there is nothing at saved/main/results.json yet" in capsys.readouterr().err


def test_a_first_run_that_is_to_be_saved_needs_no_baseline(idle, ci_bench) -> None:
    with pytest.raises(Measured):
        ci_bench("gate", "--baseline", "saved/main", "--save-baseline")


def test_where_a_baseline_cannot_be_saved_nothing_is_measured(idle, ci_bench, tmp_path) -> None:
    (tmp_path / "file").touch()
    code, _, said = ci_bench("gate", "--baseline", tmp_path / "file" / "saved", "--save-baseline")
    assert code == ExitCode.BAD_INPUT
    assert "file/saved/results.json: cannot be written" in said


def test_where_a_calibration_cannot_be_kept_nothing_is_measured(idle, ci_bench, tmp_path) -> None:
    (tmp_path / "file").touch()
    code, _, said = ci_bench("calibrate", "--noise", tmp_path / "file" / "noise")
    assert code == ExitCode.BAD_INPUT
    assert "cannot be written" in said
    with pytest.raises(Measured):
        ci_bench("calibrate", "--noise", tmp_path / "noise")


@pytest.mark.parametrize(
    "event", ["pull_request", "pull_request_target", "merge_group", "workflow_run", "issue_comment"]
)
def test_code_that_nobody_merged_teaches_no_noise(
    repository, ci_bench, tmp_path, monkeypatch, event
) -> None:
    monkeypatch.setenv("GITHUB_EVENT_NAME", event)
    paired = (
        "gate",
        "--baseline",
        "paired",
        "--base",
        "HEAD",
        "--learn",
        "--output",
        tmp_path / "out",
    )
    code, _, said = ci_bench(*paired)
    assert (code, f"--learn is not allowed on {event}" in said) == (ExitCode.BAD_INPUT, True)
    assert not (tmp_path / "noise").exists()
    assert not (tmp_path / "out").exists()


def test_only_a_paired_gate_learns(repository, ci_bench, tmp_path) -> None:
    code, _, said = ci_bench("gate", "--baseline", "none", "--learn", "--output", tmp_path / "out")
    assert (code, "--learn needs --baseline paired" in said) == (ExitCode.BAD_INPUT, True)


@pytest.mark.parametrize(
    "command", [("gate", "--baseline", "paired", "--base", "HEAD"), ("calibrate",)]
)
def test_a_broken_calibration_of_this_machine_is_told_before_a_sample_is_taken(
    repository, ci_bench, tmp_path, monkeypatch, command
) -> None:
    from ci_bench.runner.noise_floor import NoiseFolder

    def broken(self, identity):
        assert identity["device"], "the machine was seen"
        return documents.read_calibration(tmp_path / "broken.json")

    (tmp_path / "broken.json").write_text("{")
    monkeypatch.setattr(NoiseFolder, "find", broken)
    code, _, said = ci_bench(*command, "--output", tmp_path / "out")
    assert (code, "broken.json" in said) == (ExitCode.BAD_INPUT, True)
    results = documents.read_results(tmp_path / "out" / "results.json")
    assert (results.run.state, [row.metrics for row in results.cases]) == (RunState.PARTIAL, [()])


def test_a_metric_that_no_suite_has_is_told_before_a_commit_is_measured(
    idle, ci_bench, tmp_path
) -> None:
    git(tmp_path, "init")
    for message in ("one", "two"):
        git(tmp_path, "commit", "--allow-empty", "-m", message)
    config = {"schema_version": 1, "suites": {"training_loss": [{"name": "one"}]}}
    (tmp_path / "own.yml").write_text(json.dumps(config))
    code, _, said = ci_bench(
        "history", "bisect", "HEAD~1", "HEAD", "--config", "own.yml", "--metric", "step_tme"
    )
    assert (code, "did you mean 'step_time'?" in said) == (ExitCode.BAD_INPUT, True)


def test_an_issue_without_a_token_is_told_before_commits_are_measured(
    ci_bench, tmp_path, monkeypatch
) -> None:
    from test_history_command import results

    from ci_bench.commands.trend import history as trend

    for name in ("GITHUB_TOKEN", "GH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    ci_bench("history", "add", results(tmp_path / "runs", 0))
    monkeypatch.setattr(trend, "_confirmed", lambda *_: pytest.fail("commits were measured"))
    code, _, said = ci_bench("history", "check", "--confirm", "--issue")
    assert (code, "GITHUB_TOKEN" in said) == (ExitCode.BAD_INPUT, True)
