"""The four examples for typical users work: each is planned as it is, and measured and judged at a small size."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, Comparison, Parity
from ci_bench.records.results import CaseResult, Outcome, Status

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
USERS = ("kernel_library", "compiler_backend", "model_repository", "training_framework")
RUN = {
    "device": "cpu",
    "threads": 1,
    "sampling": "fixed",
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.3,
}

Config = dict[str, Any]


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., Path]:
    """A copy of an example as a repository with one commit, its configuration made smaller."""

    def make(user: str, shrink: Callable[[Config], None] = lambda _: None) -> Path:
        folder = tmp_path / user
        shutil.copytree(EXAMPLES / user, folder, ignore=shutil.ignore_patterns("__pycache__"))
        config = yaml.safe_load((folder / "ci-bench.yml").read_text())
        config["run"] = RUN
        shrink(config["suites"])
        (folder / "ci-bench.yml").write_text(yaml.safe_dump(config, sort_keys=False))
        for arguments in (
            ("init", "--quiet"),
            ("add", "--all"),
            ("commit", "--quiet", "--message=start"),
        ):
            identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
            subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
        return folder

    return make


def ci_bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    out = folder.parent
    environ = {
        **os.environ,
        "CI_BENCH_NOISE": str(out / "noise"),
        "CI_BENCH_LOCKS": str(out / "locks"),
    }
    command = [sys.executable, "-m", "ci_bench.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=550, check=False
    )


def gate(folder: Path) -> Comparison:
    """The commit against itself."""
    done = ci_bench(folder, "gate", "--base", "HEAD", "--output", str(folder.parent / "out"))
    assert (folder.parent / "out" / "comparison.json").exists(), done.stderr
    return documents.read_comparison(folder.parent / "out" / "comparison.json")


def run(folder: Path) -> list[CaseResult]:
    done = ci_bench(folder, "run", "--output", str(folder.parent / "out"))
    rows = list(documents.read_results(folder.parent / "out" / "results.json").cases)
    assert [row.status for row in rows] == [Status.OK] * len(rows), done.stderr
    return rows


@pytest.mark.parametrize("user", USERS)
def test_each_example_is_planned_as_it_is(user) -> None:
    done = ci_bench_list(EXAMPLES / user)
    assert done.returncode == 0, done.stderr
    suites = yaml.safe_load((EXAMPLES / user / "ci-bench.yml").read_text())["suites"]
    assert {
        line.partition("/")[0] for line in done.stdout.splitlines() if "/" in line.partition("[")[0]
    } == {*suites}


def ci_bench_list(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ci_bench.cli", "list"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.engine
@pytest.mark.slow
def test_a_kernel_library_is_gated(repository) -> None:
    comparison = gate(repository("kernel_library"))
    assert comparison.mode is BaselineMode.PAIRED
    assert [(case.id, case.base_status, case.head_status) for case in comparison.cases] == [
        ("rms_norm/512x1024", Status.OK, Status.OK),
        ("rms_norm/4096x256", Status.OK, Status.OK),
    ]
    checks = {
        check.outcome
        for case in comparison.cases
        for check in case.checks
        if check.name == "accuracy"
    }
    assert checks == {Outcome.PASS}


@pytest.mark.engine
def test_a_wrong_kernel_of_the_library_is_seen(repository) -> None:
    folder = repository("kernel_library", lambda suites: suites["rms_norm"].pop())
    kernel = folder / "kernels" / "__init__.py"
    kernel.write_text(kernel.read_text().replace("+ epsilon)", "+ 1e-3)"))
    (row,) = run(folder)
    outcomes = {(check.name, check.arm): check.outcome for check in row.checks}
    assert outcomes["accuracy", "library"] is Outcome.FAIL


@pytest.mark.engine
@pytest.mark.slow
def test_a_compiler_backend_is_measured_on_models_and_on_a_training(repository) -> None:
    def shrink(suites: Config) -> None:
        suites["torchbench"][0] |= {
            "models": ["mlp"],
            "mode": "inference",
            "measure": "performance",
        }
        small = {
            "epochs": 1,
            "num_samples": 96,
            "batch_size": 8,
            "max_length": 16,
            "evaluation": False,
            "perturbations": 1,
        }
        suites["training_loss"][0] |= {"backend": "fuser:backend", "precision": "fp32", **small}

    models, training = run(repository("compiler_backend", shrink))
    assert "fuser:backend" in models.case.arms
    assert training.parity is not None
    compiled = {check.arm: check.outcome for check in training.checks if check.name == "compiled"}
    assert compiled == {"fuser:backend": Outcome.PASS}


@pytest.mark.engine
@pytest.mark.slow
def test_a_model_repository_is_measured(repository) -> None:
    def shrink(suites: Config) -> None:
        suites["torchbench"][0] |= {
            "mode": "training",
            "measure": "performance",
            "backend": "aot_eager",
        }
        suites["transformers"][0] |= {
            "batch_size": 1,
            "sequence_length": 8,
            "candidate": "aot_eager",
            "memory": False,
            "cases": 1,
        }

    own, library = run(repository("model_repository", shrink))
    assert own.case.id.startswith("torchbench/own[")
    assert {metric.name for metric in own.metrics} >= {
        "step_time",
        "forward_time",
        "backward_time",
        "optimizer_time",
    }
    assert "tiny" in library.case.id


@pytest.mark.engine
@pytest.mark.slow
def test_a_training_framework_is_gated_and_learns_what_it_learned(repository) -> None:
    def shrink(suites: Config) -> None:
        suites["training_loss"][0] |= {
            "backend": "aot_eager",
            "epochs": 1,
            "num_samples": 352,
            "evaluation": False,
            "perturbations": 1,
        }

    comparison = gate(repository("training_framework", shrink))
    training, throughput = comparison.cases
    assert (training.base_status, training.head_status, throughput.head_status) == (
        Status.OK,
        Status.OK,
        Status.OK,
    )
    assert training.learning is not None
    assert training.learning.verdict is Parity.BITWISE
    assert [pair.metric for pair in throughput.pairs] == ["training"]
