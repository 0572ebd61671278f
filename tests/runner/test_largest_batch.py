"""One side looks for the largest batch, and what it finds holds for both, for all stages, and against what workers say later."""

from pathlib import Path

import pytest
from fake_suite import FakeRun, fake_environ

from ci_bench.records.results import SIZE_FACTS, SideName, Status
from ci_bench.suites.contract import Evidence

BASE, HEAD = SideName.BASE, SideName.HEAD
CASE = {"name": "one", "stages": ["prepare", "size", "verify", "time"]}
EARLIER = {
    "largest_batch": 5,
    "largest_batch_bytes": 1.0,
    "largest_batch_limit_bytes": 2,
    "largest_batch_search": "5 rows fit",
}


def measured(tmp_path: Path, base=(), *, sizes=None, **head):
    """Both sides' rows, and what the workers of each were told."""
    run = FakeRun(tmp_path, environ=fake_environ(FAKE_ROWS="12", **head), sizes=sizes or {})
    both = run.measure_both(CASE, base=dict(base))
    rows = {name: of["one"] for name, of in both.items()}
    told = {
        name: [check.detail for check in row.checks if check.name == "sized"]
        for name, row in rows.items()
    }
    return rows, told, run


def test_base_looks_once_and_both_sides_use_what_it_found(tmp_path: Path) -> None:
    rows, told, run = measured(tmp_path, base={"FAKE_ROWS": "23"})
    assert told == {BASE: ["23 rows, searched here"], HEAD: ["23 rows, not searched here"]}
    assert {row.status for row in rows.values()} == {Status.OK}
    assert [rows[BASE].facts[name] for name in SIZE_FACTS] == [
        rows[HEAD].facts[name] for name in SIZE_FACTS
    ]
    assert rows[HEAD].facts["largest_batch"] == 23
    assert (
        "23 rows fit, and 24 rows do not: memory ran out (MemoryError: planted)"
        in rows[HEAD].facts["largest_batch_search"]
    )
    assert run.events[-1].done == run.events[-1].total


def test_head_looks_where_base_ends_without_a_batch(tmp_path: Path) -> None:
    rows, told, _ = measured(tmp_path, base={"FAKE_ROWS": "0"})
    assert rows[BASE].status is Status.OUT_OF_MEMORY
    assert rows[BASE].failure.stage == "size"
    assert "not even 1 row fits" in rows[BASE].failure.reason
    assert told == {BASE: [], HEAD: ["12 rows, searched here"]}
    assert rows[HEAD].status is Status.OK


def test_no_later_stage_changes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, told, _ = measured(tmp_path, FAKE_LIES="1")
    assert told[HEAD] == ["12 rows, not searched here"]
    assert {name: row.facts["largest_batch"] for name, row in rows.items()} == {BASE: 12, HEAD: 12}
    assert rows[HEAD].facts["own"] == 2
    monkeypatch.setattr(
        "ci_bench.runner.side_run.SideRun._kept_size", lambda *_: {}
    )  # the plant: nothing is kept
    rows, _, _ = measured(tmp_path, FAKE_LIES="1")
    assert rows[HEAD].facts["largest_batch"] == 1


def test_against_an_earlier_run_its_batch_is_taken_and_nothing_is_looked_for(
    tmp_path: Path,
) -> None:
    rows, told, _ = measured(tmp_path, sizes={"fake/one": EARLIER})
    assert told == {BASE: ["5 rows, not searched here"], HEAD: ["5 rows, not searched here"]}
    assert {name: rows[HEAD].facts[name] for name in SIZE_FACTS} == EARLIER


def test_a_resumed_run_takes_the_batch_of_the_run_it_resumes(tmp_path: Path) -> None:
    from dataclasses import replace

    from fake_suite import fake_plan

    from ci_bench.checkouts.sides import Side
    from ci_bench.runner.ledger import Ledger
    from ci_bench.runner.side_run import SideRun

    ((suite, case),) = fake_plan(CASE)
    ledger = Ledger.open([case], reproduce={case.id: "again"}).with_evidence(
        case, Evidence(facts=EARLIER), duration_s=1.0
    )
    run = SideRun(
        side=Side(name=HEAD, environ={}),
        options=FakeRun(tmp_path).options,
        folder=tmp_path,
        ledger=ledger,
        numbers={case.id: 0},
    )
    (stage,) = (one for one in suite.stages(case) if one.kind == "time")
    assert run.task(suite, case, stage, 1).largest_batch == 5
    other = replace(run, ledger=Ledger.open([case], reproduce={case.id: "again"}))
    assert other.task(suite, case, stage, 1).largest_batch is None
