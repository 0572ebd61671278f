"""`ci-bench convert`: from a results document or another tool's file to a format, with a word on what was left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from records_builders import MEASURED, RESULTS

from ci_bench.command_line.settings import Converting
from ci_bench.commands import convert as convert_module
from ci_bench.commands.convert import _exporters, convert
from ci_bench.errors import BadInput
from ci_bench.formats import catalogue
from ci_bench.formats.exporting import Written
from ci_bench.records import documents
from ci_bench.suites.registry import find_exporters

DATA = Path(__file__).parent / "data"


def run(document, to, *, source="auto", output=None):
    return convert(
        Converting(
            environ={}, here=Path(), document=Path(document), source=source, to=to, output=output
        )
    )


@pytest.fixture
def results(tmp_path):
    documents.write(replace(RESULTS, cases=(MEASURED,)), tmp_path / "run" / "results.json")
    return tmp_path / "run"


@pytest.mark.parametrize("to", catalogue.WRITERS)
def test_every_format_is_written_or_said_to_hold_nothing(results, to, capsys) -> None:
    if to == "customBiggerIsBetter":
        with pytest.raises(BadInput, match="customBiggerIsBetter can hold none of its 1 series"):
            run(results, to)
        return
    assert run(results, to) == 0
    assert capsys.readouterr().out


def test_a_folder_and_a_file_are_the_same_document_and_a_file_is_written(
    results, tmp_path, capsys
) -> None:
    for document in (results, results / "results.json"):
        assert run(document, "pyperf", output=tmp_path / "out.json") == 0
        (series,) = catalogue.read((tmp_path / "out.json").read_text()).series
        assert series.runs == ((0.0101, 0.0102, 0.01), (0.0103, 0.0102, 0.01))
    assert f"wrote {tmp_path / 'out.json'}" in capsys.readouterr().err


def test_another_tools_file_is_converted(capsys) -> None:
    assert run(DATA / "google_benchmark-1.9.5.json", "bmf") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["sort/100"]["latency"]["value"] == pytest.approx(944.53, rel=0.01)
    assert run(DATA / "google_benchmark-1.9.5.json", "hyperfine") == 0
    assert (
        "left out, since hyperfine cannot hold it: sort/100 items_per_second"
        in capsys.readouterr().err
    )


def test_a_custom_files_direction_is_that_of_the_source(capsys) -> None:
    assert (
        run(
            DATA / "github_action_benchmark-form-custom.json",
            "measurements",
            source="customBiggerIsBetter",
        )
        == 0
    )
    assert {series["better"] for series in json.loads(capsys.readouterr().out)["series"]} == {
        "higher"
    }


@pytest.mark.parametrize(
    "to",
    [
        "oss-benchmark",
        "userbenchmark",
        "fastrnns-table",
        "transformers-log",
        "dynamo-csv",
        "transformers-benchmark",
    ],
)
def test_a_suites_own_formats_are_written_from_results_only(to) -> None:
    with pytest.raises(BadInput, match=f"--to {to}: this format needs a results document"):
        run(DATA / "hyperfine-1.15.0.json", to)


def test_records_for_pytorchs_database_are_written_and_read_again(results, capsys) -> None:
    assert run(results, "oss-benchmark") == 0
    series = catalogue.read(capsys.readouterr().out, "oss-benchmark").series
    assert any(
        one.measure == "step_time" and one.unit == "s" and len(one.values) == 6 for one in series
    )


WRONG = [
    ({"document": "nowhere.json", "to": "csv"}, "nowhere.json: cannot be read"),
    (
        {"document": DATA / "hyperfine-1.15.0.json", "to": "pyprf"},
        "--to pyprf: no such format; did you mean 'pyperf'?",
    ),
    (
        {"document": DATA / "hyperfine-1.15.0.json", "to": "csv", "source": "hyperfin"},
        "unknown format 'hyperfin'; did you mean 'hyperfine'?",
    ),
    (
        {"document": DATA / "README.md", "to": "csv"},
        "README.md: it is neither JSON nor a text that is read",
    ),
    (
        {"document": DATA / "hyperfine-1.15.0.json", "to": "csv", "source": "asv"},
        "$: it is not of version 2 of asv's results",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG]
)
def test_bad_input_is_named(arguments, complaint) -> None:
    with pytest.raises(BadInput) as error:
        run(**arguments)
    assert complaint in str(error.value)


def test_an_unknown_format_of_a_results_document_is_named(results) -> None:
    with pytest.raises(
        BadInput, match="--to userbenchmrk: no such format; did you mean 'userbenchmark'"
    ):
        run(results, "userbenchmrk")


def test_a_broken_results_document_is_refused_as_such(results) -> None:
    file = results / "results.json"
    file.write_text(file.read_text().replace('"status": "ok"', '"status": "fine"'))
    with pytest.raises(BadInput, match="not a sound results document"):
        run(results, "csv")


def test_several_files_go_into_a_folder(results, tmp_path, capsys, monkeypatch) -> None:
    files = {"a.csv": Written(text="one\n"), "b.csv": Written(text="two\n", left_out=("rates",))}
    monkeypatch.setattr(convert_module, "_exporters", lambda: {"tables": lambda _: files})
    with pytest.raises(
        BadInput, match="--to tables writes 2 files; name a folder for them with --output"
    ):
        run(results, "tables")
    assert run(results, "tables", output=tmp_path / "out") == 0
    assert [(tmp_path / "out" / name).read_text() for name in files] == ["one\n", "two\n"]
    assert "left out, since tables cannot hold it: rates" in capsys.readouterr().err


@pytest.mark.parametrize("to", sorted(_exporters()))
def test_a_suites_own_format_copes_with_results_of_another_suite(
    results, to, tmp_path, capsys
) -> None:
    """It says that there is nothing for it, or writes what holds for every suite; it does not break."""
    try:
        assert run(results, to, output=tmp_path / "out") == 0
        assert "wrote" in capsys.readouterr().err
    except BadInput as error:
        assert "this document has no results of that suite" in str(error)  # noqa: PT017 - either will do


def test_each_suite_declares_the_forms_that_are_its_own():
    exporters = find_exporters()
    assert {"dynamo-csv", "fastrnns-table", "transformers-log", "userbenchmark"} <= {*exporters}
    assert all(_exporters()[name] is not None for name in exporters)
