"""Files that cases leave: kept beside the results within limits, and nothing of them that could reach elsewhere."""

import os
from pathlib import Path

import pytest
from fake_suite import SUITE, FakeRun

from ci_bench.records.results import SideName, Status
from ci_bench.runner import attachments
from ci_bench.runner.attachments import Attachments, folder_name
from ci_bench.suites.contract import Context

(CASE,) = SUITE.plan({"name": "one"})
PLACE = folder_name(CASE)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder that a workload writes into."""
    return Context(
        device="cpu", scratch=tmp_path / "scratch", progress=lambda arm, done, total: None
    ).attachments


def take(tmp_path: Path) -> dict:
    return dict(Attachments(folder=tmp_path / "out" / "files").take(CASE, tmp_path / "scratch"))


def kept(tmp_path: Path) -> dict[str, bytes]:
    out = tmp_path / "out"
    return {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }


def test_a_file_is_kept_by_its_case_and_named_among_its_facts(tmp_path, left) -> None:
    (left / "Timeline-eager.jsonl").write_text("{}")
    assert take(tmp_path) == {"file.timeline_eager.jsonl": f"files/{PLACE}/Timeline-eager.jsonl"}
    assert kept(tmp_path) == {f"files/{PLACE}/Timeline-eager.jsonl": b"{}"}
    assert take(tmp_path) == {}, "it is taken once"


def test_a_later_file_of_the_same_name_takes_its_place(tmp_path, left, monkeypatch) -> None:
    monkeypatch.setattr(attachments, "MOST_BYTES_IN_ALL", 10)
    for content in ("12345678", "abcdefgh"):
        left.mkdir(exist_ok=True)
        (left / "a").write_text(content)
        assert take(tmp_path) == {"file.a": f"files/{PLACE}/a"}
    assert kept(tmp_path) == {f"files/{PLACE}/a": b"abcdefgh"}


def _link(place: Path) -> None:
    place.symlink_to("/etc/hostname")


def _folder(place: Path) -> None:
    place.mkdir()


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _large(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(attachments.MOST_BYTES + 1)


@pytest.mark.parametrize(("make", "why"), [
    (_link, "Too many levels of symbolic links"), (_folder, "it is not a regular file"), (_pipe, "it is not a regular file"), (_large, "it is larger than 4,000,000"),
])  # fmt: skip
def test_what_is_no_small_plain_file_is_not_kept_and_the_reason_is_a_fact(
    tmp_path, left, make, why
) -> None:
    make(left / "odd")
    (left / "plain").write_text("x")
    told = take(tmp_path)
    assert told["file.odd"].startswith("not kept: ")
    assert why in told["file.odd"]
    assert list(kept(tmp_path)) == [f"files/{PLACE}/plain"]


@pytest.mark.parametrize("name", [".hidden", "two words", "x" * 81, "ä"])
def test_a_name_that_an_archive_would_refuse_is_not_kept(tmp_path, left, name) -> None:
    (left / name).write_text("x")
    (told,) = take(tmp_path).values()
    assert told.startswith("not kept: a name")
    assert kept(tmp_path) == {}


def test_a_run_keeps_so_many_files_and_bytes_at_most(tmp_path, left, monkeypatch) -> None:
    monkeypatch.setattr(attachments, "MOST_BYTES_IN_ALL", 25)
    for name in ("a", "b", "c"):
        (left / name).write_text("x" * 10)
    assert [
        str(value).startswith("not kept: a run keeps") for value in take(tmp_path).values()
    ] == [False, False, True]
    monkeypatch.setattr(attachments, "MOST_FILES", 2)
    left.mkdir()
    (left / "d").write_text("")
    assert "not kept: a run keeps 2 files" in take(tmp_path)["file.d"]


def test_a_folder_of_attachments_that_leads_elsewhere_is_not_followed(tmp_path, left) -> None:
    left.rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("x")
    left.symlink_to(tmp_path / "elsewhere")
    assert take(tmp_path) == {}
    assert (tmp_path / "elsewhere" / "secret").exists()


def test_a_folder_that_cannot_be_written_is_a_fact(tmp_path, left) -> None:
    (left / "a").write_text("x")
    (tmp_path / "out").write_text("in the way")
    assert take(tmp_path)["file.a"].startswith("not kept: ")


def test_cases_of_like_names_have_folders_of_their_own() -> None:
    (other,) = SUITE.plan({"name": "one_"})
    assert folder_name(other) != PLACE
    assert PLACE.startswith("fake_one-")


def test_what_a_worker_leaves_is_kept_on_each_side(tmp_path) -> None:
    folders = {name: tmp_path / name / "files" for name in (SideName.BASE, SideName.HEAD)}
    (tmp_path / "run").mkdir()
    run = FakeRun(
        tmp_path / "run",
        attachments={name: Attachments(folder=folder) for name, folder in folders.items()},
    )
    both = run.measure_both({"name": "one", "stages": ["verify", "time"], "attach": "hello"})
    for name, folder in folders.items():
        row = both[name]["one"]
        assert (row.status, row.facts) == (Status.OK, {"file.note.txt": f"files/{PLACE}/note.txt"})
        assert (folder / PLACE / "note.txt").read_text() == "hello"
