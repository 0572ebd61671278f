"""Whole runs by the command line: each ending in the right row, each kind of evidence in its place."""

import csv
import json
import os
import subprocess
import sys

import pytest
import yaml
from torchbench_builders import FIXTURES, HERE

from ci_bench.cli import main
from ci_bench.formats import dynamo_csv
from ci_bench.records.config import Rule, Severity
from ci_bench.records.documents import read_comparison, read_results
from ci_bench.records.results import Outcome, Status

pytestmark = [pytest.mark.engine, pytest.mark.slow]

RUN = {
    "device": "cpu",
    "threads": 1,
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.2,
    "stage_timeout_s": 90,
}


def planted(model, **entry):
    entry = {"backend": "aot_eager", "mode": "inference", "perturbations": 1, **entry}
    return {"source": "own", "models": [f"planted_models:{model}"], **entry}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the one run takes place."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def rows(folder):
    """One run of cases that end differently, by model or backend."""
    table = folder / "table.yml"
    table.write_text(
        json.dumps(
            {"schema_version": 1, "rules": [{"models": ["vit"], "skip": "not on this machine"}]}
        )
    )
    entries = [
        {"models": ["mlp"], "backend": "aot_eager", "mode": "training"},
        {"models": ["vit"], "backend": "aot_eager", "mode": "inference", "tables": [str(table)]},
        planted("Plain", backend="planted_backends:refusing"),
        planted("Plain", backend="planted_backends:scaled_output"),
        planted("Crashing"),
        planted("Uncompiled"),
        planted("Greedy"),
        planted("raising"),
        planted("Plain", backend="planted_replays:by_address", perturbations=1),
    ]
    config = folder / "ci-bench.yml"
    config.write_text(
        yaml.safe_dump({"schema_version": 1, "run": RUN, "suites": {"torchbench": entries}})
    )
    environ = {
        **os.environ,
        "PYTHONPATH": f"{HERE}{os.pathsep}{FIXTURES}",
        "TORCHDYNAMO_SUPPRESS_ERRORS": "1",
    }
    command = [
        sys.executable,
        "-m",
        "ci_bench.cli",
        "gate",
        "--config",
        str(config),
        "--output",
        str(folder / "out"),
    ]
    subprocess.run(command, cwd=folder, env=environ, check=False, timeout=500, capture_output=True)
    results = read_results(folder / "out" / "results.json")
    return results, {
        row.case.name.removeprefix("planted_models_")
        + "/"
        + row.case.params["backend"].rpartition(":")[2]: row
        for row in results.cases
    }


def test_every_case_has_one_row(rows):
    assert len(rows[1]) == len(rows[0].cases) == 9


def test_a_sound_case_brings_everything(rows):
    row = rows[1]["mlp/aot_eager"]
    assert row.status is Status.OK
    assert {
        check.outcome
        for check in row.checks
        if check.name in {"compiled", "accuracy", "runner_rule", "finite_loss"}
    } == {Outcome.PASS}
    measured = {(metric.name, metric.arm) for metric in row.metrics}
    both = {"step_time", "forward_time", "backward_time", "optimizer_time", "peak_anonymous"}
    assert measured >= {(name, arm) for name in both for arm in ("eager", "aot_eager")}
    counted = (
        "graphs",
        "graph_breaks",
        "unique_graph_breaks",
        "recompiles",
        "ops_captured",
        "fallbacks",
        "cudagraph_skips",
    )
    assert measured >= {(name, "aot_eager") for name in ("compile_cold", *counted)}
    assert row.facts["parameters"] == 26378


def test_a_backend_that_replays_what_it_returned_before_fails_the_run(rows, folder):
    checks = {check.name: check for check in rows[1]["Plain/by_address"].checks}
    assert checks["accuracy"].outcome is Outcome.PASS
    assert checks["refereed"].outcome is Outcome.FAIL
    assert "differs from the reference" in checks["refereed"].detail
    assert {
        check.outcome for check in rows[1]["mlp/aot_eager"].checks if check.name == "refereed"
    } == {Outcome.PASS}
    failed = read_comparison(folder / "out" / "comparison.json").judgement.findings
    assert any(one.rule is Rule.CHECK_FAILED and "refereed" in one.message for one in failed)


@pytest.mark.parametrize(("case", "status", "word"), [
    ("vit/aot_eager", Status.SKIPPED, None),
    ("Plain/refusing", Status.FAILED, "fail_to_run"),
    ("Crashing/aot_eager", Status.CRASHED, "fail_to_run"),
    ("Greedy/aot_eager", Status.OUT_OF_MEMORY, "eager_1st_run_OOM"),
    ("raising/aot_eager", Status.FAILED, "model_fail_to_load"),
    ("Plain/scaled_output", Status.OK, "fail_accuracy"),
])  # fmt: skip
def test_each_ending_has_its_status_and_its_word(rows, case, status, word):
    row = rows[1][case]
    assert row.status is status, row.failure
    assert dynamo_csv.accuracy_word(row) == word


def test_a_candidate_that_silently_ran_eager_is_told(rows):
    row = rows[1]["Uncompiled/aot_eager"]
    checks = {check.name: check for check in row.checks}
    assert (checks["compiled"].outcome, checks["accuracy"].outcome) == (Outcome.FAIL, Outcome.PASS)


def test_the_run_can_be_exported(rows, folder, capsys):
    assert (
        main(
            ["convert", str(folder / "out"), "--to", "dynamo-csv", "--output", str(folder / "csv")]
        )
        == 0
    )
    text = (folder / "csv" / "aot_eager_zoo_fp32_training_cpu_performance.csv").read_text()
    (row,) = csv.DictReader(text.splitlines())
    assert float(row["speedup"]) > 0
    counters = (
        "unique_graphs",
        "graph_breaks",
        "unique_graph_breaks",
        "fallbacks_to_eager",
        "cudagraph_skips",
    )
    assert [row[name] for name in counters] == ["1", "0", "0", "0", "0"]
    assert int(row["calls_captured"]) > 1
    for to, name in (
        ("userbenchmark", "test_train[mlp-cpu-aot_eager]_latency"),
        ("oss-benchmark", '"speedup"'),
    ):
        capsys.readouterr()
        assert main(["convert", str(folder / "out"), "--to", to]) == 0
        assert name in capsys.readouterr().out


def test_the_report_has_means_over_the_cases_of_a_setting(rows, folder):
    """Of the four planted models under aot_eager none passes; the skipped one is none of them."""
    text = (folder / "out" / "report.md").read_text()
    (row,) = [
        line
        for line in text.splitlines()
        if line.startswith("| `torchbench` | `backend=aot_eager,mode=inference")
    ]
    assert [cell.strip() for cell in row.split("|")][3:6] == ["`aot_eager`", "4", "0.0\u00a0%"]


def test_what_went_wrong_fails_the_gate(rows, folder):
    failed = {
        finding.case.partition("[")[0]
        .removeprefix("torchbench/")
        .removeprefix("planted_models_"): finding.rule
        for finding in read_comparison(folder / "out" / "comparison.json").judgement.findings
        if finding.severity is Severity.FAIL
        and finding.case
        and "scaled_output" not in finding.case
    }
    ended = dict.fromkeys(("Plain", "Crashing", "Greedy", "raising"), Rule.CASE_FAILED)
    assert failed == {**ended, "Uncompiled": Rule.CHECK_FAILED}
