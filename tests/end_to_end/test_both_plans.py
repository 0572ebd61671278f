"""A paired gate of functions whose plans differ: each side is measured by its own, and what head lacks is missed by its name."""

import pytest
import yaml
from end_to_end_builders import git, outcome

from ci_bench.records import documents
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Rule, Severity
from ci_bench.records.results import Status

pytestmark = pytest.mark.engine

BENCHMARK = """

@ci_bench.benchmark(shapes=[(32, 32)])
def {name}(shape):
    (x,) = ci_bench.inputs(1, shape)
    return lambda: x.tanh()
"""
PROVIDER = """

@one.provider("copied")
def _(shape):
    (x,) = ci_bench.inputs(1, shape)
    return lambda: x.clone().tanh()
"""
RUN = {
    "device": "cpu",
    "threads": 1,
    "sampling": "fixed",
    "launches": 1,
    "blocks": 2,
    "warmup_s": 0.1,
    "sample_s": 0.002,
}


def write(tree, *parts):
    (tree / "bench.py").write_text("import ci_bench\n" + "".join(parts))
    git(tree, "add", ".")
    git(tree, "commit", "-m", "benchmarks")


def test_each_side_is_measured_by_its_own_plan(tmp_path, monkeypatch, ci_bench):
    tree = tmp_path / "tree"
    tree.mkdir()
    monkeypatch.chdir(tree)
    git(tree, "init")
    config = {
        "schema_version": 1,
        "run": {**RUN, "explain": "never"},
        "suites": {"functions": [{"path": "bench.py"}]},
    }
    (tree / "ci-bench.yml").write_text(yaml.safe_dump(config))
    one, two, renamed = (BENCHMARK.format(name=name) for name in ("one", "two", "zwei"))
    write(tree, one, two)
    write(tree, one, PROVIDER, renamed)
    code, _, said = ci_bench(
        "gate", "--baseline", "paired", "--base", "HEAD~1", "--output", tmp_path / "out"
    )
    comparison = outcome(tmp_path / "out")
    assert code == 1, said
    failing = [found for found in comparison.judgement.findings if found.severity is Severity.FAIL]
    gone = "two[shape=32x32] is gone: base has it, and head does not; renamed to zwei[shape=32x32]?"
    assert [
        (found.rule, found.message) for found in failing if found.rule is not Rule.REGRESSED
    ] == [(Rule.CASE_REMOVED, gone)]
    base, head = (
        documents.read_results(tmp_path / "out" / name)
        for name in ("base/results.json", "results.json")
    )
    assert (base.source.own_plan, head.source.own_plan) == (True, True)
    assert [(row.case.name, row.status, row.case.arms) for row in base.cases] == [
        ("one", Status.OK, ("one",)),
        ("two", Status.SKIPPED, ("two",)),
    ]
    assert [(row.case.name, row.status, row.case.arms) for row in head.cases] == [
        ("one", Status.OK, ("one", "copied")),
        ("zwei", Status.OK, ("zwei",)),
    ]
    (case,) = (case for case in comparison.cases if case.id == "functions/one[shape=32x32]")
    times = {pair.arm: pair.verdict for pair in case.pairs if pair.metric == "step_time"}
    assert times["copied"] is Verdict.NEW
    assert times["one"] is not Verdict.NEW
