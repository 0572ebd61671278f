"""The suite under the engine: what goes wrong in one case ends in one typed row, and the rest goes on."""

import json
from pathlib import Path
from statistics import median

import pytest
import yaml
from transformers_builders import ONE_LAYER

from ci_bench import cli
from ci_bench.records import documents
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import Outcome, Status

pytest.importorskip("torch")
pytestmark = [pytest.mark.engine, pytest.mark.slow]

HERE = Path(__file__).parent
RUN = {
    "device": "cpu",
    "threads": 1,
    "launches": 1,
    "blocks": 2,
    "warmup_s": 0.3,
    "stage_timeout_s": 200,
    "sample_s": 0.002,
}
SMALL = {"batch_size": 2, "sequence_length": 8, "new_tokens": 3}
TRAINING = {"mode": "training", "memory": False}
PLANTED = "planted_compilers:{}"
SHAPED = {"dynamic": True, "varies": ["batch", "sequence"], "dynamic_shapes": "marked"}
LARGEST = {"batch_size": "largest", "largest_batch": {"most": 3, "memory_bytes": 1_000_000_000}}
RED = {
    "stale": {"agrees", "refereed", "timed_output_agrees"},
    "accumulating": {"agrees", "refereed"},
    "elsewhere": {"agrees", "refereed", "updates_weights"},
}
"""The checks that each planted defect of an arm fails."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Measures entries of the suite; returns the rows by the beginning of their ids."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.chdir(tmp_path)

    def measure(*entries):
        config = {
            "schema_version": 1,
            "run": RUN,
            "suites": {"transformers": [{**SMALL, **entry} for entry in entries]},
        }
        (tmp_path / "ci-bench.yml").write_text(yaml.safe_dump(config))
        measure.code = cli.main(["gate", "--output", "out"])
        return documents.read_results(tmp_path / "out" / "results.json")

    return measure


def small(family, name=None, **config):
    return {"path": family, "name": name or family, "config": {**ONE_LAYER[family], **config}}


def by_name(results):
    rows = {row.case.name: row for row in results.cases}
    assert len(rows) == len(results.cases)
    return rows


def test_each_fault_is_one_typed_row_and_the_rest_goes_on(run, tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text(
        json.dumps({"model_type": "bert", "architectures": ["BertForNothing"]})
    )
    huge = small("bert", "huge", vocab_size=2_000_000)
    rows = by_name(
        run(
            {"model": [huge], "candidate": "none", "memory_limit_bytes": 100_000_000},
            {"model": "./odd", "candidate": "none"},
            {"model": small("gpt2", "uncompiled"), "candidate": PLANTED.format("no_compiler")},
            {"model": small("llama", "greedy"), "candidate": PLANTED.format("greedy_for_memory")},
            {
                "model": small("bert", "stale"),
                "candidate": PLANTED.format("stale"),
                "memory": False,
            },
            {
                "model": small("bert", "accumulating"),
                **TRAINING,
                "candidate": PLANTED.format("accumulating"),
            },
            {
                "model": small("bert", "elsewhere"),
                **TRAINING,
                "candidate": PLANTED.format("optimizer_elsewhere"),
            },
            {"model": small("bert", "silent"), "mode": "generation", "candidate": "none"},
            {
                "model": small("vit", "healthy"),
                "candidate": PLANTED.format("sound"),
                "memory": False,
            },
        )
    )
    ended = {
        name: (row.status, row.failure.stage if row.failure else "") for name, row in rows.items()
    }
    assert ended == {
        "huge": (Status.OUT_OF_MEMORY, "verify"),
        "odd": (Status.FAILED, "prepare"),
        "uncompiled": (Status.FAILED, "alone"),
        "greedy": (Status.OUT_OF_MEMORY, "alone"),
        "stale": (Status.OK, ""),
        "accumulating": (Status.OK, ""),
        "elsewhere": (Status.OK, ""),
        "silent": (Status.SKIPPED, "prepare"),
        "healthy": (Status.OK, ""),
    }
    assert "transformers 5" in rows["odd"].failure.reason
    assert "has no BertForNothing" in rows["odd"].failure.reason
    assert "this backend compiles nothing" in rows["uncompiled"].failure.reason
    assert "BertForMaskedLM does not generate" in rows["silent"].failure.reason
    found = {
        name: {check.name for check in rows[name].checks if check.outcome is Outcome.FAIL}
        for name in (*RED, "healthy")
    }
    assert found == {**RED, "healthy": set()}
    failed = {
        (finding.rule, finding.case)
        for finding in judged(tmp_path)
        if finding.severity is Severity.FAIL
    }
    assert failed >= {(Rule.CHECK_FAILED, rows[name].case.id) for name in RED}
    assert rows["healthy"].case.id not in {case for _, case in failed}
    assert run.code == 1


def judged(folder):
    return documents.read_comparison(folder / "out" / "comparison.json").judgement.findings


def owed(row):
    """What a case owes of its candidate and did not bring."""
    brought = {(check.name, check.arm) for check in row.checks}
    times = {(metric.name, metric.arm) for metric in row.metrics}
    candidates = [arm for arm in row.case.arms if arm != row.case.reference]
    return {(name, arm) for name in row.case.due.checks for arm in candidates} - brought | {
        (name, arm) for name in row.case.due.times for arm in row.case.arms
    } - times


def test_every_mode_brings_what_it_owes_and_its_parts(run):
    results = run(
        {"model": small("bert"), "mode": "training", "candidate": PLANTED.format("sound")},
        {
            "model": small("gpt2"),
            "mode": "generation",
            "candidate": PLANTED.format("sound"),
            "cache": "static",
            "memory": False,
        },
        {"model": small("vit"), "candidate": "torchscript", "memory": False, **LARGEST},
        {
            "model": small("gpt2", "shaped"),
            "candidate": PLANTED.format("sound"),
            "memory": False,
            **SHAPED,
        },
    )
    rows = by_name(results)
    assert [row.status for row in results.cases] == [Status.OK] * 4
    assert [owed(row) for row in results.cases] == [set()] * 4
    assert rows["vit"].facts["largest_batch"] == 3
    counted = {
        metric.name: metric.launches[0].values
        for metric in rows["shaped"].metrics
        if metric.arm != "eager"
    }
    assert (counted["graphs"], counted["recompiles"]) == ((1.0,), (0.0,))
    rows_of = {
        name: {one.items for one in row.metrics if one.name == "step_time"}
        for name, row in rows.items()
    }
    assert (rows_of["vit"], rows_of["shaped"]) == ({3}, {2 + 2 + 2 + 2 + 3})
    measured = {
        name: {metric.name for metric in row.metrics if metric.arm == "eager"}
        for name, row in rows.items()
    }
    parts = {"zero_grad_time", "forward_time", "backward_time", "optimizer_time"}
    assert measured["bert"] == {
        "step_time",
        "peak_anonymous",
        "file_backed",
        "memory_growth",
        "memory_kept",
        *parts,
    }
    assert measured["gpt2"] == {"step_time", "first_token_time", "token_time", "memory_kept"}
    training = {
        metric.name: metric.launches[0].values
        for metric in rows["bert"].metrics
        if metric.arm == "eager"
    }
    samples = zip(training["step_time"], *(training[part] for part in sorted(parts)), strict=True)
    shares = [sum(of_parts) / whole for whole, *of_parts in samples]
    assert max(shares) <= 1.001
    assert median(shares) > 0.8, "the parts fill the step, in each sample by itself"
    items = {
        (metric.name, metric.items) for metric in rows["gpt2"].metrics if metric.arm == "eager"
    }
    assert items == {
        ("step_time", 6),
        ("first_token_time", 2),
        ("token_time", 2),
        ("memory_kept", None),
    }
    assert {"compile_cold"} <= {
        metric.name for metric in rows["vit"].metrics if metric.arm == "torchscript"
    }
    assert cli.main(["convert", "out", "--to", "transformers-benchmark", "--output", "old"]) == 0
    assert {path.stem.rpartition("_")[0] for path in Path("old").iterdir()} == {
        "inference_time", "train_time", "train_memory", "env_info", "log",
    }  # fmt: skip
    (times,) = Path("old").glob("train_time_*.csv")
    assert [line.split(",")[:3] for line in times.read_text().splitlines()] == [
        ["model", "batch_size", "sequence_length"], ["bert", "2", "8"], ["bert (planted_compilers:sound)", "2", "8"],
    ]  # fmt: skip
