"""A run whose compilers are wrong: its report names a file that shows each, and the file does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ci_bench.records.documents import read_comparison, read_results
from ci_bench.records.results import Status

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
RUN = {
    "sampling": "fixed",
    "launches": 1,
    "blocks": 2,
    "sample_s": 0.002,
    "warmup_s": 0.02,
    "threads": 1,
    "explain": "always",
    "explain_s": 500.0,
}


def test_the_report_names_the_file_that_shows_a_wrong_compiler_and_one_that_fails(tmp_path) -> None:
    backends = ("scaled_output", "refusing", "right")
    entries = [
        {
            "source": "own",
            "models": ["planted_models:Plain"],
            "mode": "inference",
            "backend": f"planted_backends:{name}",
        }
        for name in backends
    ]
    config = {
        "schema_version": 1,
        "run": RUN,
        "suites": {"torchbench": [{**one, "perturbations": 1} for one in entries]},
    }
    (tmp_path / "ci-bench.yml").write_text(json.dumps(config))
    environ = {**os.environ, "PYTHONPATH": str(HERE), "CI_BENCH_LOCKS": str(tmp_path / ".locks")}
    command = [sys.executable, "-m", "ci_bench.cli", "gate", "--device", "cpu", "-o", "out"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, check=False, timeout=900, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    rows = {
        row.case.params["backend"].rpartition(":")[2]: row
        for row in read_results(tmp_path / "out" / "results.json").cases
    }
    assert [rows[name].status for name in backends] == [Status.OK, Status.FAILED, Status.OK]
    found = {
        name: {one.arm: one.bundle for one in row.profiles if one.bundle}
        for name, row in rows.items()
    }
    assert [len(found[name]) for name in backends] == [1, 1, 0], {
        name: row.profiles for name, row in rows.items()
    }
    report = (tmp_path / "out" / "report.md").read_text()
    lines = [line for line in report.splitlines() if "- reproduce " in line]
    assert len(lines) == 2, report
    for name, says in (
        ("scaled_output", "is off by"),
        ("refusing", "compiling fails: BackendCompilerFailed"),
    ):
        (bundle,) = found[name].values()
        assert says in bundle.says
        assert any(f"`python {bundle.path}`" in line for line in lines)
        again = [sys.executable, str(tmp_path / "out" / bundle.path)]
        shown = subprocess.run(
            again, env=environ, check=False, timeout=300, capture_output=True, text=True
        )
        assert (shown.returncode, says in shown.stdout) == (1, True), shown.stdout + shown.stderr
    causes = {
        cause.arm: cause
        for case in read_comparison(tmp_path / "out" / "comparison.json").cases
        for cause in case.causes
    }
    assert any(cause.bundle for cause in causes.values())
