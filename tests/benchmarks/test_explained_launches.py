"""Base is explained between its launches and head never; the ratio is that of the launches that came after."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.explained_launches import Alternating, Explained, of_base, table
from benchmarks.launch_pairs import Difference, collect, document, earlier
from fake_suite import QUICK, FakeRun

from ci_bench.records.config import Explain
from ci_bench.records.results import SideName
from ci_bench.runner import runner
from ci_bench.runner.runner import Runner
from ci_bench.runner.side_run import SideRun
from ci_bench.suites.contract import StageKind

BASE, HEAD, TIME = SideName.BASE, SideName.HEAD, StageKind.TIME


def difference(*ratios: float) -> Difference:
    return Difference(case="fake/one", arm="plain", ratios=ratios)


EXPLAINED = Explained(case="fake/one", base=1, head=0, arms=1)


def test_the_ratio_is_of_the_launches_after_something_was_explained() -> None:
    text = table([difference(0.5, math.log(1.01), math.log(1.03))], [EXPLAINED])
    assert "| +2.00% ± 0.98%  | 2        | +64.87%   | 1 of 1; head 0" in text


def test_what_an_interrupted_benchmark_has_is_read_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert earlier(kept, Explained) == ([], [])
    kept.write_text(json.dumps(document([difference(0.1, 0.2)], [EXPLAINED])))
    assert earlier(kept, Explained) == ([difference(0.1, 0.2)], [EXPLAINED])


def test_only_the_cases_that_are_named_and_not_known_yet_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is left out is measured by the next call."""
    kept, measured = tmp_path / "kept.json", []

    def compare(_suite, case, launches):
        measured.append((case.id, launches))
        return [difference(0.1)], replace(EXPLAINED, case=case.id)

    cases = [
        (None, SimpleNamespace(id=name)) for name in ("torchbench/mlp", "training_loss/reviews")
    ]
    for more in (["--only", "training_loss", "--launches", "3"], []):
        collect(
            ["--json", str(kept), "--resume", *more],
            about="",
            launches=2,
            plan=cases,
            compare=compare,
            kind=Explained,
            table=lambda _, told: ", ".join(one.case for one in told),
        )
    assert measured == [("training_loss/reviews", 3), ("torchbench/mlp", 2)]
    assert "training_loss/reviews, torchbench/mlp" in capsys.readouterr().out


class Told(FakeRun):
    """A run by the benchmark's launches."""

    def measure_sides(self, plan, ledger, sides):
        named = {case.id: case.arms for _, case in plan}
        runner = Runner(
            options=self.options,
            scratch=self.folder,
            observe=self.events.append,
            to_explain=lambda _: named,
            seed="fake",
        )
        return runner.run(plan, sides, {side.name: ledger for side in sides}, self._record)


def test_base_is_explained_before_every_launch_but_the_first_and_head_never(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(runner, "_Jobs", Alternating)
    monkeypatch.setattr(runner, "Explaining", of_base)
    told, task_of = [], SideRun.task

    def noted(self, suite, case, stage, launch, **rest):
        told.append((stage.kind, self.side.name, launch, self.options.explain))
        return task_of(self, suite, case, stage, launch, **rest)

    monkeypatch.setattr(SideRun, "task", noted)
    run = Told(tmp_path, replace(QUICK, launches=2, explain=Explain.ALWAYS))
    both = run.measure_both({"name": "one"})
    explained = [(side, launch) for kind, side, launch, _ in told if kind is StageKind.EXPLAIN]
    assert explained == [(BASE, 0), (BASE, 1)], "and once at the end, where no launch follows"
    kinds = [kind for kind, *_ in told]
    assert kinds == [*[TIME, TIME, StageKind.EXPLAIN] * 2]
    assert {(side, how) for _, side, _, how in told} == {
        (BASE, Explain.ALWAYS),
        (HEAD, Explain.NEVER),
    }
    assert [len(both[side]["one"].profiles) for side in (BASE, HEAD)] == [1, 0]
