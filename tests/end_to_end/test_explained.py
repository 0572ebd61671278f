"""A gate whose head has a slow line: the comment names it; the same commit is not explained, and is blamed for nothing when it is."""

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from ci_bench.records import documents
from ci_bench.records.comparison import Verdict

pytestmark = pytest.mark.engine

MODEL = """
import torch

def attention(x):
    y = torch.exp(x)
    return y.sum(-1)
"""
BENCH = """
import ci_bench
import model

@ci_bench.benchmark(n=[256])
def attention(n):
    (x,) = ci_bench.inputs(1, (n, n))
    return lambda: model.attention(x)
"""
SLOW = MODEL.replace("    return", "    for _ in range(40):\n        y = y.clone()\n    return")
RUN = {
    "sampling": "fixed",
    "launches": 6,
    "blocks": 4,
    "sample_s": 0.002,
    "warmup_s": 0.1,
    "threads": 1,
}


def git(tree, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=tree, check=True, capture_output=True, text=True
    ).stdout.strip()


def gate(tree, **run):
    config = {
        "schema_version": 1,
        "run": RUN | run,
        "suites": {"functions": [{"path": "bench.py"}]},
    }
    (tree / "ci-bench.yml").write_text(json.dumps(config))
    environ = {
        **os.environ,
        "CI_BENCH_NOISE": str(tree / ".noise"),
        "CI_BENCH_LOCKS": str(tree / ".locks"),
    }
    command = [
        sys.executable,
        "-m",
        "ci_bench.cli",
        "gate",
        "--baseline",
        "paired",
        "--base",
        "HEAD~1",
        "-o",
        "out",
        "--device",
        "cpu",
    ]
    subprocess.run(
        command, cwd=tree, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    return documents.read_comparison(tree / "out" / "comparison.json"), (
        tree / "out" / "report.md"
    ).read_text()


def tree_of(folder, head):
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("out\n.noise\n.locks\n__pycache__\nci-bench.yml\n")
    (folder / "bench.py").write_text(BENCH)
    for source in (MODEL, head):
        (folder / "model.py").write_text(source)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "one", "--allow-empty")
    return folder


def test_the_slow_line_is_named_under_the_finding_with_the_command_that_looks_for_the_commit(
    tmp_path,
) -> None:
    tree = tree_of(tmp_path, SLOW)
    comparison, report = gate(tree)
    (case,) = comparison.cases
    assert case.verdict in {Verdict.REGRESSED, Verdict.SUSPECTED}
    (cause,) = case.causes
    assert cause.slower
    assert (cause.parts[0].after[:2], cause.parts[0].places) == (
        ("aten::copy_", "aten::clone"),
        ("model.py:7",),
    )
    assert cause.attributed > 0.8
    (line,) = [line for line in report.splitlines() if "- slower in:" in line]
    assert re.match(r"  - slower in: `aten::copy_` and \d more, new \(\+", line)
    command = f"ci-bench history bisect {git(tree, 'rev-parse', 'HEAD~1')[:12]} {git(tree, 'rev-parse', 'HEAD')[:12]}"
    assert (command in report) == (case.verdict is Verdict.REGRESSED), (
        "what is only suspected is not looked for"
    )
    assert list((tree / "out" / "files").rglob("trace-attention.json.gz"))
    assert list((tree / "out" / "base" / "files").rglob("trace-attention.json.gz"))


def test_the_same_commit_is_not_explained_and_is_blamed_for_nothing_when_it_is(tmp_path) -> None:
    tree = tree_of(tmp_path, MODEL)
    comparison, _ = gate(tree, launches=1)
    assert [case.causes for case in comparison.cases] == [()]
    comparison, report = gate(tree, launches=1, explain="always")
    (cause,) = comparison.cases[0].causes
    assert (cause.slower, cause.larger, cause.unknown) == (False, False, "")
    assert not any(
        word in report for word in ("- slower in:", "- not explained", "- more memory at the peak")
    )
