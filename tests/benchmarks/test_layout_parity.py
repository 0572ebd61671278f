"""The benchmark of layouts: what a file of it has is not run again, and what is wrong in it fails."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks import layout_parity

pytestmark = pytest.mark.engine

RIGHT = {
    "status": "ok",
    "flagged": False,
    "score": 0.4,
    "verdict": "numeric_parity",
    "steps": 48,
    "words": "within",
}
LEFT = "loss leaves the rounding envelope at step 0: off by 11 %, up to 9e4 times its width"
FOUND = {
    **RIGHT,
    "flagged": True,
    "score": 9e4,
    "words": f"{LEFT}; rank 1 of 2 first, by the loss at step 0",
}
DDP, LAST, FUSED = "ddp | 2 | 0", "ddp | 4 | 2", "context by torch, fused attention | 2 | 0"
SHARD = "same shard on all ranks | 2 | 0"


def written(file: Path, **lines: dict) -> Path:
    file.write_text("".join(json.dumps({"key": key, **line}) + "\n" for key, line in lines.items()))
    return file


@pytest.fixture
def show(tmp_path: Path, monkeypatch, capsys):
    """The exit code and the tables of a file with some lines."""

    def shown(**lines: dict) -> tuple[int, str]:
        file = written(tmp_path / "runs.jsonl", **lines)
        monkeypatch.setattr(sys, "argv", ["layout_parity", "--json", str(file), "--table"])
        return layout_parity.main(), capsys.readouterr().out

    return shown


def test_what_came_to_an_end_is_not_run_again_and_what_did_not_is(tmp_path: Path) -> None:
    late = {**RIGHT, "status": "timeout"}
    file = written(
        tmp_path / "runs.jsonl", **{DDP: late, LAST: RIGHT, FUSED: {**RIGHT, "status": "skipped"}}
    )
    assert {*layout_parity.earlier(file)} == {LAST, FUSED}
    with file.open("a") as more:
        more.write(json.dumps({"key": DDP, **RIGHT}) + "\n")
    assert layout_parity.earlier(file)[DDP]["score"] == 0.4
    assert layout_parity.earlier(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            f"fsdp resumed at step 8 from the checkpoint that eager saved: {FOUND['words']}",
            "saved: rank 1 of 2 first, by the loss",
        ),
        (
            f"eager resumed at step 8 from the checkpoint that fsdp saved: {LEFT}",
            "saved: loss leaves the rounding envelope at step 0 |",
        ),
        (
            "rank 1 of 2 first, by the loss at step 1: up to 8e3 times",
            "| rank 1 of 2 first, by the loss at step 1 |",
        ),
        (
            "rank 1 draws the masks of another rank, at step 0",
            "| rank 1 draws the masks of another rank, at step 0 |",
        ),
    ],
    ids=["resumed", "resumed-by-one-process", "one-rank", "masks"],
)
def test_of_a_fault_the_table_has_who_left_first_and_when(show, words: str, said: str) -> None:
    code, table = show(**{SHARD: {**FOUND, "words": words}})
    assert (code, said in table) == (0, True), table


def test_the_tables_count_runs_and_say_what_was_found(show) -> None:
    skipped = {**FOUND, "status": "skipped", "words": "no fused attention"}
    code, said = show(**{DDP: RIGHT, LAST: {**RIGHT, "score": 0.6}, SHARD: FOUND, FUSED: skipped})
    assert code == 0
    assert "| ddp | 2 | 1 | 0 | 0.4 |" in said
    assert "| all | | 2 | 0 | 0.6 |" in said
    assert "| 90,000 | rank 1 of 2 first, by the loss at step 0 |" in said
    assert "| context by torch, fused attention | 2 | no fused attention |" in said


@pytest.mark.parametrize(
    ("key", "line", "said"),
    [
        (DDP, FOUND, "| ddp | 2 | 1 | 1 | 9e+04 | loss leaves the rounding envelope at step 0"),
        (SHARD, RIGHT, "NOT FOUND: within"),
        (FUSED, RIGHT, "| context by torch, fused attention | 2 | 1 | 0 |"),
    ],
    ids=["right-flagged", "fault-missed", "runs-after-all"],
)
def test_a_run_that_is_not_as_it_has_to_be_fails(show, key: str, line: dict, said: str) -> None:
    code, table = show(**{key: line})
    assert (code, said in table) == (1, True), table
