"""The example of a plugin with several processes is right, is what the docs show, and finds what is planted in it."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import ranked_stages

from ci_bench.config import load_config
from ci_bench.records.results import Outcome

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "ranked_plugin"
FACTOR = "(loss * self._factor).backward()"


@pytest.fixture
def suite(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    from shared_mlp.suite import SUITE

    yield SUITE
    for name in [name for name in sys.modules if name.startswith("shared_mlp")]:
        del sys.modules[name]


def case_of(suite, count):
    return next(case for case in suite.plan({"processes": [2, 3]}) if case.params["processes"] == count)


@pytest.mark.engine
def test_the_example_agrees_with_one_process_and_what_is_planted_does_not(suite, tmp_path: Path) -> None:
    (tmp_path / "planted_mlp").mkdir()
    for source in (EXAMPLE / "shared_mlp").glob("*.py"):
        text = source.read_text()
        assert text.count(FACTOR) == (source.name == "worker.py")
        planted = text.replace(FACTOR, "(loss * self._factor * 2).backward()").replace("shared_mlp", "planted_mlp")
        (tmp_path / "planted_mlp" / source.name).write_text(planted)
    with ranked_stages.opened(suite, tmp_path, paths=(EXAMPLE, tmp_path)) as bench:
        right = bench.verified(case_of(suite, 3), prepare=False)
        timed = bench.timed(case_of(suite, 2), looks=False)
        other = SimpleNamespace(stages=suite.stages, worker="planted_mlp.worker")
        wrong = replace(bench, suite=other).verified(case_of(suite, 3), prepare=False)
    found = [(check.name, check.outcome) for evidence in (right, wrong) for check in evidence.checks]
    assert found == [("accuracy", Outcome.PASS), ("accuracy", Outcome.FAIL)]
    assert [(check.name, check.arm, check.outcome) for check in timed.checks if check.name == "replicas"] == [
        ("replicas", "shared", Outcome.PASS)
    ]
    assert {"step_time", "rank_skew"} <= {metric.name for metric in timed.metrics if metric.arm == "shared"}
    assert timed.facts["ranks_shared"].count("rank ") == 2


def test_the_docs_show_the_example_as_it_is_and_its_configuration_is_valid() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    for name in ("suite.py", "worker.py"):
        assert (EXAMPLE / "shared_mlp" / name).read_text() in page, f"docs/plugins.md shows another {name}"
    (entry,) = load_config(EXAMPLE / "ci-bench.yml").entries
    assert entry.options == {"processes": [2, 4]}
