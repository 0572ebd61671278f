"""The main path with an engine that is only told what to say."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_suite import fake_plan

from ci_bench.checkouts.sides import Side
from ci_bench.commands import judging
from ci_bench.commands.judging import COMPARISON, REPORT, Baseline, judge
from ci_bench.commands.showing import tell_files
from ci_bench.errors import MeasuringFailed
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy
from ci_bench.records.documents import RESULTS
from ci_bench.records.results import Environment, Run, RunState, SideName, Status
from ci_bench.runner.recording import record_run
from ci_bench.runner.side_run import UNSEEN

PLAN = fake_plan({"name": "one"}, {"name": "two"})
RUN = Run(
    id="r",
    started_at="2030-01-31T12:00:00Z",
    state=RunState.PARTIAL,
    config_digest="0",
    device="cpu",
)
MACHINE = Environment(identity={"cpu": "fake"}, condition={})


def _measure(engine, folder: Path):
    reproduce = {case.id: f"run {case.id}" for _, case in PLAN}
    sides = (Side(name=SideName.HEAD, environ={}),)

    def on_one_side(plan, _, ledgers, record):
        ended = engine(
            plan,
            ledgers[SideName.HEAD],
            lambda environment, ledger: record(SideName.HEAD, environment, ledger),
        )
        return {SideName.HEAD: ended}

    measured = record_run(
        PLAN, run=RUN, sides=sides, reproduce=reproduce, measure=on_one_side, folder=folder
    )
    return measured[SideName.HEAD]


def _on_disk(folder: Path):
    return documents.read_results(folder / RESULTS)


def test_results_are_on_disk_before_during_and_after_measuring(tmp_path: Path) -> None:
    seen = []

    def engine(plan, ledger, record):
        seen.append(_on_disk(tmp_path))
        ledger = ledger.with_success(plan[0][1])
        record(MACHINE, ledger)
        seen.append(_on_disk(tmp_path))
        return MACHINE, ledger.with_success(plan[1][1])

    results = _measure(engine, tmp_path)
    assert [[row.status for row in one.cases] for one in (*seen, results)] == [
        [Status.NOT_RUN, Status.NOT_RUN], [Status.OK, Status.NOT_RUN], [Status.OK, Status.OK],
    ]  # fmt: skip
    assert [one.run.state for one in (*seen, results)] == [
        RunState.PARTIAL,
        RunState.PARTIAL,
        RunState.COMPLETE,
    ]
    assert seen[0].environment == UNSEEN
    assert _on_disk(tmp_path) == results
    assert results.run.finished_at


def test_an_engine_that_fails_leaves_a_partial_document_in_place_of_an_older_one(
    tmp_path: Path,
) -> None:
    _measure(lambda _, ledger, __: (MACHINE, ledger), tmp_path)

    def engine(plan, ledger, record):
        record(MACHINE, ledger.with_success(plan[0][1]))
        raise MeasuringFailed("no more")

    with pytest.raises(MeasuringFailed):
        _measure(engine, tmp_path)
    left = _on_disk(tmp_path)
    assert (left.run.state, [row.status for row in left.cases]) == (
        RunState.PARTIAL,
        [Status.OK, Status.NOT_RUN],
    )


def test_judging_writes_the_comparison_and_the_report_or_nothing(tmp_path: Path) -> None:
    head = _measure(lambda _, ledger, __: (MACHINE, ledger), tmp_path / "run")
    baseline = Baseline(
        mode=BaselineMode.FILE, results=replace(head, run=replace(head.run, id="before"))
    )
    comparison = judge(head, baseline, policy=Policy(), folder=tmp_path / "out")
    assert documents.read_comparison(tmp_path / "out" / COMPARISON) == comparison
    assert comparison.base.run.id == "before"
    assert (tmp_path / "out" / REPORT).read_text()
    without = judge(
        head, Baseline(mode=BaselineMode.FILE, absence="gone"), policy=Policy(), folder=None
    )
    assert (without.base, without.absence) == (None, "gone")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}


def test_only_written_files_are_listed(tmp_path: Path, monkeypatch, capsys) -> None:
    head = _measure(lambda _, ledger, __: (MACHINE, ledger), tmp_path)
    baseline = Baseline(mode=BaselineMode.NONE, absence="none")
    for page, listed in ((lambda *_, **__: "a page", True), (lambda *_, **__: 1 / 0, False)):
        monkeypatch.setattr(judging, "page", page)
        judge(head, baseline, policy=Policy(), folder=tmp_path)
        tell_files(tmp_path)
        said = capsys.readouterr().err
        assert (str(tmp_path / "report.md") in said, str(tmp_path / "report.html") in said) == (
            True,
            listed,
        )
