"""Repositories of the fake suite: how long a step takes is a file of the tree."""

import subprocess
from pathlib import Path

import yaml

from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison
from ci_bench.records.results import Role


def git(folder: Path, *arguments: str) -> str:
    identity = (
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "init.defaultBranch=main",
    )
    told = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return told.stdout.strip()


def commit(folder: Path, step_s: str) -> None:
    (folder / "fake_step_s").write_text(step_s)
    git(folder, "commit", "-a", "-m", f"take {step_s} s")


def prepare_slower(
    repository: Path, tmp_path: Path, ci_bench, *, cases: tuple[str, ...], **run: object
) -> Path:
    """Cases of which head takes many times as long, in launches of fixed number; the folder of both sides, which are ready."""
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config["suites"]["fake"] = [{"name": name} for name in cases]
    config["run"] |= {"sampling": "fixed", "blocks": 3, "sample_s": 0.002, **run}
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))
    git(repository, "commit", "-a", "-m", f"{len(cases)} cases")
    commit(repository, "0.03")
    code, _, said = ci_bench(
        "setup", "--prepared", tmp_path / "sides", "--output", tmp_path / "out"
    )
    assert code == ExitCode.OK, said
    return tmp_path / "sides"


def outcome(out: Path) -> Comparison:
    return documents.read_comparison(out / "comparison.json")


def perturbed_runs(out: Path) -> list[int]:
    """How many trainings from shaken weights base and head have of the only case."""
    measured = [
        documents.read_results(path)
        for path in (out / "base" / "results.json", out / "results.json")
    ]
    return [
        sum(run.role is Role.PERTURBED for run in one.cases[0].parity.traces) for one in measured
    ]
