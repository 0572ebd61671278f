"""Looking at a run from the command line: pages, pictures, a badge, the terminal; and the page beside every verdict."""

import base64
import json
import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from ci_bench.records import documents

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples" / "valid"
RESULTS = EXAMPLES / "results.json"


def unpacked(page: str) -> dict:
    (blob,) = re.findall(r'id="data">([A-Za-z0-9+/=]*)<', page)
    return json.loads(zlib.decompress(base64.b64decode(blob)))


@pytest.fixture
def compared(ci_bench, tmp_path: Path) -> Path:
    """A folder as a gate leaves it: the comparison, with the results of both sides."""
    base, head = tmp_path / "base" / "results.json", tmp_path / "results.json"
    base.parent.mkdir()
    example = documents.read_results(RESULTS)
    documents.write(replace(example, run=replace(example.run, id="before")), base)
    shutil.copy(RESULTS, head)
    assert ci_bench("compare", base, head, "--output", tmp_path)[0] in {0, 1}
    return tmp_path


def test_a_verdict_leaves_its_page_beside_it(compared: Path) -> None:
    case = unpacked((compared / "report.html").read_text())["cases"][0]
    assert {
        one["label"].split(" · ")[0] for chart in case["samples"] for one in chart["series"]
    } == {"base", "head"}


def test_a_page_that_cannot_be_made_does_not_take_the_verdict_away(
    ci_bench, compared: Path, monkeypatch
) -> None:
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("ci_bench.report.html.report.render_html", broken)
    code, out, _ = ci_bench(
        "compare",
        compared / "base" / "results.json",
        compared / "results.json",
        "--output",
        compared,
    )
    assert (code in {0, 1}, "training_loss/reviews" in out) == (True, True)
    assert {path.name for path in compared.iterdir()} == {
        "results.json",
        "base",
        "comparison.json",
        "report.md",
    }


def test_a_page_of_a_folder_finds_the_samples_beside_the_comparison(
    ci_bench, compared: Path
) -> None:
    code, out, _ = ci_bench("show", compared, "--format", "html")
    assert (code, out) == (0, (compared / "report.html").read_text())


def test_without_the_documents_a_page_has_medians(ci_bench, compared: Path) -> None:
    (compared / "results.json").unlink()
    (compared / "base" / "results.json").unlink()
    code, out, _ = ci_bench("show", compared / "comparison.json", "--format", "html")
    assert code == 0
    assert unpacked(out)["cases"][0]["samples"] == []


def test_documents_of_another_run_are_not_shown_as_this_one(
    ci_bench, compared: Path, tmp_path: Path
) -> None:
    example = documents.read_results(RESULTS)
    documents.write(
        replace(example, run=replace(example.run, id="another")), compared / "results.json"
    )
    code, out, err = ci_bench("show", compared, "--format", "html")
    assert (code, "belongs to another run" in err) == (0, True)
    assert {
        one["label"].split(" · ")[0]
        for chart in unpacked(out)["cases"][0]["samples"]
        for one in chart["series"]
    } <= {"base"}


@pytest.mark.parametrize("form", [[], ["--format", "time"]])
def test_forms_of_the_terminal_are_not_written(
    ci_bench, compared: Path, tmp_path: Path, form
) -> None:
    code, _, err = ci_bench("show", compared, *form, "--output", tmp_path / "verdict.txt")
    assert (code, "name its form with --format (html, comment, markdown, json" in err) == (2, True)
    assert not (tmp_path / "verdict.txt").exists()


def test_a_decision_is_that_of_compare(ci_bench, compared: Path) -> None:
    code, out, _ = ci_bench("show", compared, "--format", "json")
    _, said, _ = ci_bench(
        "compare", compared / "base" / "results.json", compared / "results.json", "--format", "json"
    )
    assert (code, json.loads(out)) == (0, json.loads(said))


def test_a_badge_is_json_for_shields(ci_bench, compared: Path) -> None:
    code, out, _ = ci_bench(
        "show", compared, "--format", "badge", "--output", compared / "badge.json"
    )
    made = json.loads((compared / "badge.json").read_text())
    assert (code, out, made["schemaVersion"], made["label"]) == (0, "", 1, "ci-bench")


def test_the_terminal_shows_either_document_at_eighty_columns(
    ci_bench, compared: Path, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for document in (compared, compared / "comparison.json", compared / "results.json"):
        code, out, _ = ci_bench("show", document)
        assert code == 0
        assert "training_loss/reviews" in out
        assert [
            line for line in out.splitlines() if cell_len(line) > 80 and "ci-bench run" not in line
        ] == []


def test_a_run_writes_its_page(ci_bench, plugin, configure, tmp_path: Path) -> None:
    configure({"name": "one"}, launches=1)
    assert ci_bench("run", "--output", tmp_path / "out")[0] == 0
    assert {"results.json", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert "fake/one" in (tmp_path / "out" / "report.html").read_text()
    assert ci_bench("show", tmp_path / "out")[0] == 0
