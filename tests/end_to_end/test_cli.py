"""Every command from argv to exit code, with the documents on disk in between."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import fake_suite_cli
import pytest

from ci_bench.diagnostics import doctor
from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.results import CaseResult, Launch, Metric, RunState, Status

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
RESULTS = EXAMPLES / "valid" / "results.json"


def _results(path: Path, *, slower: float = 1.0, **identity: object) -> Path:
    """A run of three launches whose every sample takes `slower` times as long, on the machine of the example."""
    example = documents.read_results(RESULTS)
    row = example.cases[0]
    base = next(metric for metric in row.metrics if metric.name == "step_time")
    launches = tuple(
        Launch(
            launch=launch,
            values=tuple(
                slower * (0.01 + 1e-5 * ((7 * launch + 3 * sample) % 5)) for sample in range(8)
            ),
            steady=True,
        )
        for launch in range(3)
    )
    metrics = tuple(replace(base, arm=arm, launches=launches) for arm in row.case.arms)
    case = replace(row.case, suite="fake", id="fake/one", name="one", params={})
    alone = CaseResult(case=case, status=Status.OK, reproduce="run it", metrics=metrics)
    environment = replace(
        example.environment, identity={**example.environment.identity, **identity}
    )
    run = replace(
        example.run, id=path.stem
    )  # of another moment: the two sides of one run share its id
    documents.write(replace(example, run=run, cases=(alone,), environment=environment), path)
    return path


def _step_times(path: Path) -> list[Metric]:
    return [
        metric
        for row in documents.read_results(path).cases
        for metric in row.metrics
        if metric.name == "step_time"
    ]


# ---- commands that only read


def test_help_starts_in_a_blink_and_without_torch() -> None:
    took = []
    for _ in range(3):
        started = time.monotonic()
        told = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "ci_bench.cli", "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        took.append(time.monotonic() - started)
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}
    assert "compare" in told.stdout
    assert imported.isdisjoint(
        {
            "torch",
            "transformers",
            "numpy",
            "scipy",
            "rich",
            "msgspec",
            "jsonschema",
            "requests",
            "yaml",
        }
    )
    ours = {name for name in imported if name.startswith("ci_bench.")}
    package = "ci_bench.command_line"
    assert ours == {"ci_bench.errors", package, f"{package}.flags", f"{package}.parsers"}
    assert min(took) < 1.0


def test_the_plan_is_listed_without_measuring(ci_bench, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = ci_bench("list", "--config", "quickstart")
    assert code == 0
    assert (
        "training_loss/reviews[backend=aot_eager,precision=fp32]\n    a training and its losses; arms: eager (reference), aot_eager\n"
        in out
    )
    assert list(tmp_path.iterdir()) == []


def test_a_filter_that_fits_no_case_says_so(ci_bench, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = ci_bench("list", "--config", "quickstart", "--filter", "nonsense")
    assert (code, "no case id contains this" in err) == (2, True)


def test_a_whole_id_is_that_case_alone_and_each_filter_says_how_many_it_fits(
    ci_bench, plugin, configure
) -> None:
    configure({"name": "one"}, {"name": "one_more"}, {"name": "two"})
    _, out, err = ci_bench("list", "--filter", "fake/one")
    assert "fake/one_more" not in out
    assert "--filter fake/one: 1 of 3 cases" in err
    _, out, err = ci_bench("list", "--filter", "ake/one", "--filter", "fake/three")
    assert "fake/one\n" in out
    assert "fake/one_more\n" in out
    assert "--filter ake/one: 2 of 3 cases\n--filter fake/three: 0 of 3 cases" in err
    _, out, _ = ci_bench("list", "--filter", "fake/one", "--filter", "tw")
    assert "2 cases on device" in out


def test_a_reproduce_line_measures_its_case_alone(ci_bench, plugin, configure, tmp_path) -> None:
    configure({"name": "one"}, {"name": "one_more"}, launches=1)
    ci_bench("run", "--output", tmp_path / "out")
    line = documents.read_results(tmp_path / "out" / "results.json").cases[0].reproduce
    ci_bench(*shlex.split(line)[1:], "--output", tmp_path / "again")
    assert [
        row.case.id for row in documents.read_results(tmp_path / "again" / "results.json").cases
    ] == ["fake/one"]


def test_valid_documents_are_told_so(ci_bench) -> None:
    files = sorted((EXAMPLES / "valid").iterdir())
    code, out, err = ci_bench("validate", *files)
    assert (code, len(out.splitlines()), err) == (0, len(files), "")


def test_every_faulty_document_is_named_among_valid_ones(ci_bench) -> None:
    faulty = sorted((EXAMPLES / "invalid").iterdir())
    code, out, err = ci_bench("validate", RESULTS, *faulty)
    assert (code, len(out.splitlines())) == (2, 1)
    assert all(path.name in err for path in faulty)


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({}, 0, ""),
        ({"slower": 2.0}, 1, "regressed"),
        ({"slower": 0.5}, 0, "improved"),
        ({"gpu": "another"}, 4, "gpu"),
    ],
)
def test_comparing_exits_by_the_policy_and_writes_what_it_found(
    ci_bench, tmp_path, change, code, word
) -> None:
    base, head = _results(tmp_path / "base.json"), _results(tmp_path / "head.json", **change)
    found, out, _ = ci_bench(
        "compare", base, head, "--output", tmp_path / "out", "--format", "comment"
    )
    assert found == code
    assert word in out.lower()
    comparison = documents.read_comparison(tmp_path / "out" / "comparison.json")
    assert comparison.judgement.exit_code == code
    assert (tmp_path / "out" / "report.md").read_text()


BROKEN = {
    "truncated": lambda text: text[: len(text) // 2],
    "another version": lambda text: text.replace('"schema_version": 1', '"schema_version": 2'),
    "another kind": lambda text: text.replace('"kind": "results"', '"kind": "comparison"'),
    "not json": lambda text: "# results",
    "empty": lambda text: "",
    "missing": lambda text: None,
}


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_side_is_refused_and_nothing_is_written(ci_bench, tmp_path, how, side) -> None:
    paths = {name: _results(tmp_path / f"{name}.json") for name in ("base", "head")}
    broken = BROKEN[how](paths[side].read_text())
    paths[side].unlink() if broken is None else paths[side].write_text(broken)
    output = tmp_path / "out"
    output.mkdir()
    (output / "report.md").write_text("the one before")
    code, out, err = ci_bench("compare", paths["base"], paths["head"], "--output", output)
    assert (code, out) == (2, "")
    assert f"{side}.json" in err
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "report.md": "the one before"
    }


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("document", ["results.json", "comparison.json"])
def test_a_report_is_made_of_either_document(ci_bench, document, full) -> None:
    code, out, _ = ci_bench(
        "show", EXAMPLES / "valid" / document, "--format", "markdown" if full else "comment"
    )
    assert (code, "ci-bench" in out) == (0, True)


def test_a_report_of_something_else_is_refused(ci_bench, tmp_path) -> None:
    (tmp_path / "other.json").write_text('{"kind": "other"}')
    assert ci_bench("show", tmp_path / "other.json", "--format", "comment")[0] == 2


# ---- commands that measure


def test_a_gate_from_its_first_run_to_a_regression(
    ci_bench, plugin, configure, tmp_path, monkeypatch
) -> None:
    configure({"name": "one", "arms": ["plain", "other"], "stages": ["prepare", "verify", "time"]})
    gate = (
        "gate",
        "--baseline",
        tmp_path / "baseline",
        "--save-baseline",
        "--output",
        tmp_path / "out",
    )
    baseline = tmp_path / "baseline" / "results.json"

    code, _, err = ci_bench(*gate)
    assert (code, f"saved this run as the baseline: {baseline}" in err) == (0, True)
    first = baseline.read_text()

    code, out, err = ci_bench(*gate)
    assert code == 0, out
    comparison = documents.read_comparison(tmp_path / "out" / "comparison.json")
    assert comparison.base.run.id == json.loads(first)["run"]["id"]
    kept = baseline.read_text()
    assert kept != first

    monkeypatch.setenv("FAKE_STEP_S", "0.012")
    code, out, err = ci_bench(*gate, "--format", "comment")
    assert (code, "the policy is not met, so the baseline is unchanged" in err) == (1, True), out
    judgement = documents.read_comparison(tmp_path / "out" / "comparison.json").judgement
    assert {finding.rule for finding in judgement.findings if finding.severity == "fail"} == {
        "regressed"
    }
    assert baseline.read_text() == kept
    assert (
        min(
            value
            for one in _step_times(tmp_path / "out" / "results.json")
            for value in one.launches[0].values
        )
        >= 0.012
    )


def test_a_lost_case_is_no_pass(ci_bench, plugin, configure, tmp_path) -> None:
    configure({"name": "one"}, {"name": "two"}, launches=1)
    gate = (
        "gate",
        "--baseline",
        tmp_path / "baseline",
        "--save-baseline",
        "--output",
        tmp_path / "out",
    )
    assert ci_bench(*gate)[0] == 0
    configure({"name": "one"}, launches=1)
    code, out, _ = ci_bench(*gate, "--format", "comment")
    assert (code, "fake/two" in out) == (1, True)
    findings = documents.read_comparison(tmp_path / "out" / "comparison.json").judgement.findings
    assert ("case_removed", "fake/two") in {(finding.rule, finding.case) for finding in findings}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([{"name": "sound"}, {"name": "broken", "fault": "sigsegv"}], ExitCode.POLICY_NOT_MET),
        ([{"name": "broken", "fault": "error"}], ExitCode.MEASURING_FAILED),
        ([{"name": "sound"}, {"name": "lacking", "fault": "unsupported"}], ExitCode.OK),
        ([{"name": "sound"}, {"name": "greedy", "fault": "memory_error"}], ExitCode.POLICY_NOT_MET),
    ],
)
def test_what_failed_decides_the_exit_code(  # noqa: PLR0917 - by name
    ci_bench, plugin, configure, tmp_path, entries, code
) -> None:
    configure(*entries, launches=1)
    found, out, _ = ci_bench("gate", "--output", tmp_path / "out", "--format", "comment")
    assert found == code, out
    row = documents.read_results(tmp_path / "out" / "results.json").cases[-1]
    assert row.failure.reason.split("\n")[0][:30] in out
    assert row.reproduce == f"ci-bench gate --filter {row.case.id}"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([{"name": "sound"}, {"name": "broken", "fault": "error"}], ExitCode.MEASURING_FAILED),
        ([{"name": "sound"}, {"name": "broken", "fault": "sigsegv"}], ExitCode.MEASURING_FAILED),
        ([{"name": "broken", "fault": "error"}], ExitCode.MEASURING_FAILED),
        ([{"name": "sound"}, {"name": "lacking", "fault": "unsupported"}], ExitCode.OK),
        ([{"name": "lacking", "fault": "unsupported"}], ExitCode.MEASURING_FAILED),
        ([{"name": "sound"}], ExitCode.OK),
    ],
)
def test_a_run_that_could_not_measure_every_case_says_so(  # noqa: PLR0917 - by name
    ci_bench, plugin, configure, tmp_path, entries, code
) -> None:
    configure(*entries, launches=1)
    assert ci_bench("run", "--output", tmp_path / "out")[0] == code


def test_a_run_whose_budget_ended_before_a_case_says_so(
    ci_bench, plugin, configure, tmp_path
) -> None:
    configure({"name": "one"}, {"name": "two"}, launches=1)
    assert (
        ci_bench("run", "--output", tmp_path / "out", "--budget", "0.000001")[0]
        == ExitCode.MEASURING_FAILED
    )


def test_running_alone_writes_results_that_validate(ci_bench, plugin, configure, tmp_path) -> None:
    config = configure({"name": "one", "stages": ["memory", "time"]}, launches=2)
    code, _, err = ci_bench(
        "run",
        "--config",
        config,
        "--output",
        tmp_path / "out",
        "--launches",
        "1",
        "--filter",
        "one",
    )
    assert (code, "fake/one" in err) == (0, True)
    assert ci_bench("validate", tmp_path / "out" / "results.json")[0] == 0
    results = documents.read_results(tmp_path / "out" / "results.json")
    assert (results.run.state, len(results.cases[0].metrics[0].launches)) == (RunState.COMPLETE, 1)


def test_a_spent_budget_is_neither_pass_nor_failure(ci_bench, plugin, configure, tmp_path) -> None:
    configure({"name": "one"}, {"name": "two"}, launches=1)
    code, said, _ = ci_bench("gate", "--output", tmp_path / "out", "--budget", "0.000001")
    assert (code, "Not decided: " in said) == (ExitCode.OK, True), said
    configure(
        {"name": "one"},
        {"name": "two"},
        launches=1,
        severities={"baseline_missing": "warn", "undecided": "fail"},
    )
    code, said, _ = ci_bench("gate", "--output", tmp_path / "out", "--budget", "0.000001")
    assert (code, "not measured within the budget" in said) == (ExitCode.POLICY_NOT_MET, True), said
    rows = documents.read_results(tmp_path / "out" / "results.json").cases
    assert [(row.status, "raise run.budget_s" in row.failure.reason) for row in rows] == [
        (Status.NOT_RUN, True)
    ] * 2


def test_files_that_a_case_leaves_are_kept_named_and_gone_with_the_next_run(
    ci_bench, plugin, configure, tmp_path
) -> None:
    configure({"name": "one", "stages": ["verify", "time"], "attach": "hello"}, launches=1)
    code, _, err = ci_bench("run", "--output", tmp_path / "out")
    fact = documents.read_results(tmp_path / "out" / "results.json").cases[0].facts["file.note.txt"]
    assert (
        code,
        (tmp_path / "out" / fact).read_text(),
        f"wrote {tmp_path / 'out' / fact}" in err,
    ) == (0, "hello", True)
    configure({"name": "one"}, launches=1)
    assert ci_bench("run", "--output", tmp_path / "out")[0] == 0
    assert not (tmp_path / "out" / fact).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_what_it_measured_and_no_process(
    plugin, configure, tmp_path, number
) -> None:
    configure(
        {"name": "done"},
        {"name": "hangs", "fault": "hang_with_child"},
        {"name": "waits"},
        launches=1,
    )
    environ = {**os.environ, "FAKE_NOTES": str(tmp_path / "notes")}
    command = [*fake_suite_cli.COMMAND, "run", "--output", str(tmp_path / "out")]
    run = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (tmp_path / "notes").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    run.send_signal(number)
    _, err = run.communicate(timeout=30)
    assert (run.returncode, "interrupted" in err, "Traceback" in err) == (
        ExitCode.INTERRUPTED,
        True,
        False,
    )
    assert f"to continue: ci-bench run --output {tmp_path / 'out'} --resume\n" in err
    results = documents.read_results(tmp_path / "out" / "results.json")
    assert results.run.state is RunState.PARTIAL
    assert [(row.status, bool(row.metrics)) for row in results.cases] == [
        (Status.OK, True), (Status.NOT_RUN, False), (Status.NOT_RUN, False),
    ]  # fmt: skip
    assert not Path(f"/proc/{(tmp_path / 'notes').read_text().strip()}").exists()


@pytest.mark.parametrize("flags", [(), ("--verbose",)])
def test_verbose_tells_each_stage_with_its_end_and_time(plugin, configure, tmp_path, flags) -> None:
    configure({"name": "one"}, launches=1)
    command = [*fake_suite_cli.COMMAND, *flags, "run", "--output", str(tmp_path / "out")]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True, timeout=60)
    assert ("INFO: fake/one: time (plain): ok after" in run.stderr) is bool(flags)


def test_no_engine_is_told_with_the_command_that_installs_it(
    ci_bench, plugin, configure, tmp_path, monkeypatch
) -> None:
    configure({"name": "one"})
    monkeypatch.setattr(
        doctor, "_version", lambda package: None if package in {"torch", "datasets"} else "99.0"
    )
    code, _, err = ci_bench("run", "--output", tmp_path / "out")
    assert code == ExitCode.MEASURING_FAILED
    assert (
        "measuring needs torch, datasets, which are not installed here; run: pip install 'ci-bench[engine]'"
        in err
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
def test_a_device_that_is_not_there_is_told_before_measuring(
    ci_bench, plugin, configure, tmp_path
) -> None:
    pytest.importorskip("torch")
    configure({"name": "one"})
    code, _, err = ci_bench("run", "--output", tmp_path / "out", "--device", "cuda:77")
    assert (code, "device 'cuda:77' was asked for" in err, "Traceback" in err) == (
        ExitCode.MEASURING_FAILED,
        True,
        False,
    )
    results = documents.read_results(tmp_path / "out" / "results.json")
    assert (results.run.state, results.cases[0].status) == (RunState.PARTIAL, Status.NOT_RUN)


def test_a_broken_baseline_is_refused_before_anything_is_measured(
    ci_bench, plugin, configure, tmp_path
) -> None:
    configure({"name": "one"})
    (tmp_path / "baseline.json").write_text("{")
    code, _, _ = ci_bench(
        "gate", "--baseline", tmp_path / "baseline.json", "--output", tmp_path / "out"
    )
    assert (code, (tmp_path / "out").exists()) == (2, False)


def test_an_output_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    ci_bench, plugin, configure, tmp_path
) -> None:
    configure({"name": "one", "fault": "hang"})
    (tmp_path / "file").touch()
    code, _, err = ci_bench("run", "--output", tmp_path / "file" / "out")
    assert (code, "cannot be written" in err) == (2, True)


def test_a_token_in_the_environment_reaches_no_worker_and_no_file(
    ci_bench, plugin, configure, tmp_path, monkeypatch
) -> None:
    token = "ghs_" + "A1b2" * 9
    monkeypatch.setenv("GITHUB_TOKEN", token)
    monkeypatch.setenv("HARMLESS_NAME", token)
    configure({"name": "one", "fault": "print_environment"}, launches=1)
    code, out, err = ci_bench("--verbose", "gate", "--output", tmp_path / "out")
    row = documents.read_results(tmp_path / "out" / "results.json").cases[0]
    assert (code, "PATH=" in row.failure.log_tail) == (ExitCode.MEASURING_FAILED, True)
    assert token not in out + err + "".join(
        path.read_text() for path in (tmp_path / "out").iterdir()
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("flags", [[], ["--format", "comment"]])
def test_a_terminal_that_lacks_a_sign_still_shows_the_verdict(tmp_path, encoding, flags) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"results": [{"command": "sört", "mean": 1.0, "times": [1.0]}]}))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from ci_bench.cli import main; raise SystemExit(main())",
            "compare",
            path,
            path,
            *flags,
        ],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Not decided: " in done.stdout
    assert b"Traceback" not in done.stderr
