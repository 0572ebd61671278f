"""The real suite from configuration to verdict, small enough for any machine."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ci_bench import cli
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison
from ci_bench.records.results import Outcome, Results, RunState, Status

pytest.importorskip("torch")
pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKEN = "ghs_" + "A1b2" * 9
MODEL = (
    Path(__file__).parents[2]
    / "src"
    / "ci_bench"
    / "suites"
    / "training_loss"
    / "data"
    / "model"
    / "config.json"
)
BROKEN_BACKENDS = '''
"""Torch's defects for tests look for torch.relu, and models call functional.relu."""

import torch
from torch._dynamo.backends import debugging


def _break(graph, inputs, backend):
    relus = [node for node in graph.graph.nodes if node.target is torch.nn.functional.relu]
    for node in relus:
        node.target, node.args, node.kwargs = torch.relu, node.args[:1], {}
    return backend(graph, inputs)


def accuracy_error(graph, inputs):
    return _break(graph, inputs, debugging.relu_accuracy_error_TESTING_ONLY)


def compile_error(graph, inputs):
    return _break(graph, inputs, debugging.relu_compile_error_TESTING_ONLY)
'''

Gate = Callable[..., tuple[int, str, Results, Comparison]]


@pytest.fixture
def gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Gate:
    """Measures one backend with a token in the environment, and shows that the token is nowhere."""
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scratch").mkdir()

    def run(
        backend: str, launches: int = 2, **entry: object
    ) -> tuple[int, str, Results, Comparison]:
        options = {
            "backend": backend,
            "num_samples": 160,
            "epochs": 1,
            "evaluation_rows": 100,
            **entry,
        }
        how = {
            "device": "cpu",
            "threads": 1,
            "launches": launches,
            "blocks": 2,
            "warmup_s": 1,
            "stage_timeout_s": 300,
        }
        policy = {"severities": {"baseline_missing": "note", "check_unknown": "note"}}
        (tmp_path / "ci-bench.yml").write_text(
            yaml.safe_dump(
                {
                    "schema_version": 1,
                    "run": how,
                    "suites": {"training_loss": [options]},
                    "policy": policy,
                }
            )
        )
        code = cli.main(["--verbose", "gate", "--output", "out", "--format", "comment"])
        told = capfd.readouterr()
        files = [
            tmp_path / "out" / name for name in ("results.json", "comparison.json", "report.md")
        ]
        assert TOKEN not in told.out + told.err + "".join(file.read_text() for file in files)
        assert list((tmp_path / "scratch").glob("ci-bench-*")) == []
        return code, told.out, documents.read_results(files[0]), documents.read_comparison(files[1])

    return run


@pytest.fixture
def relu(tmp_path: Path) -> dict[str, object]:
    """The embedded model with one layer and another activation, without weights."""
    (tmp_path / "broken_backends.py").write_text(BROKEN_BACKENDS)
    shutil.copytree(MODEL.parent, tmp_path / "relu")
    shutil.copytree(MODEL.parent.parent / "tokenizer", tmp_path / "relu", dirs_exist_ok=True)
    config = {**json.loads(MODEL.read_text()), "num_hidden_layers": 1, "hidden_act": "relu"}
    (tmp_path / "relu" / "config.json").write_text(json.dumps(config))
    return {"model": {"path": "./relu", "pretrained": False}}


def test_a_sound_backend_passes_with_all_that_a_case_owes(gate: Gate) -> None:
    code, out, results, comparison = gate("eager")
    assert code == 0, out
    (row,) = results.cases
    assert (results.run.state, row.status) == (RunState.COMPLETE, Status.OK)
    measured = {(metric.name, metric.arm): len(metric.launches) for metric in row.metrics}
    assert {
        ("step_time", "eager"): 2,
        ("step_time", "dynamo-eager"): 2,
        ("compile_cold", "dynamo-eager"): 2,
    }.items() <= measured.items()
    assert measured["peak_anonymous", "eager"] == measured["peak_anonymous", "dynamo-eager"] == 2
    assert {check.outcome for check in row.checks if check.name not in {"steady", "witnessed"}} == {
        Outcome.PASS
    }
    assert {"compiled", "finite_loss", "updates_weights"} <= {check.name for check in row.checks}
    (finding,) = comparison.cases[0].parity
    assert finding.verdict.holds
    assert results.environment.identity["threads"] == 1


def test_a_backend_that_computes_something_else_breaks_parity(
    gate: Gate, relu: dict[str, object]
) -> None:
    code, out, _, comparison = gate(
        "broken_backends:accuracy_error", launches=1, evaluation=False, **relu
    )
    assert code == 1, out
    assert "parity_broken" in {
        finding.rule for finding in comparison.judgement.findings if finding.severity == "fail"
    }


def test_a_backend_that_cannot_compile_fails_its_case_with_the_reason_in_the_report(
    gate: Gate, relu: dict[str, object]
) -> None:
    code, out, results, comparison = gate("broken_backends:compile_error", launches=1, **relu)
    assert code == comparison.judgement.exit_code == 3
    assert (results.cases[0].status, results.cases[0].failure.stage) == (Status.FAILED, "alone")
    assert "ReluCompileError" in out
