"""The whole store of github-action-benchmark, taken over as a history."""

import json
from pathlib import Path

import pytest

from ci_bench import cli
from ci_bench.formats.github_action_benchmark import read_action_history
from ci_bench.formats.series import Unreadable
from ci_bench.history.store import FolderStore
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records.results import Better, Unit

DATA = Path(__file__).parent / "data" / "github_action_benchmark-form-data.js"


def read(text):
    return read_action_history(text, tool_version="1.0", fingerprint=fingerprint)


def entry(number, *benches, tool="customSmallerIsBetter", **fields):
    commit = {
        "id": f"{number:040x}",
        "url": f"https://github.com/o/r/commit/{number}",
        "timestamp": "2030-01-01T00:00:00Z",
    }
    return {
        "commit": commit,
        "date": 1_893_456_000_000 + 3_600_000 * number,
        "tool": tool,
        "benches": list(benches),
        **fields,
    }


def store(**entries):
    return "window.BENCHMARK_DATA = " + json.dumps(
        {"lastUpdate": 1, "repoUrl": "https://github.com/o/r", "entries": entries}
    )


def bench(value, name="sort", unit="ms"):
    return {"name": name, "value": value, "unit": unit}


def test_every_entry_is_a_run_with_its_commit_moment_and_address():
    history, left_out = read(store(Speed=[entry(1, bench(10)), entry(2, bench(12))]))
    assert [(run.commit[-1], run.at, run.url) for run in history.runs] == [
        ("1", "2030-01-01T01:00:00+00:00", "https://github.com/o/r/commit/1"),
        ("2", "2030-01-01T02:00:00+00:00", "https://github.com/o/r/commit/2"),
    ]
    (series,) = history.series
    assert (series.case, series.unit, series.better, series.values) == (
        "imported/benchmark[name=Speed/sort]",
        Unit.SECONDS,
        Better.LOWER,
        (0.01, 0.012),
    )
    assert left_out == ()


def test_suites_of_one_commit_and_run_meet_and_directions_are_those_of_the_tools():
    history, _ = read(
        store(A=[entry(1, bench(5, unit="ops/sec"), tool="benchmarkjs")], B=[entry(1, bench(5))])
    )
    assert len(history.runs) == 1
    assert {series.better for series in history.series} == {Better.HIGHER, Better.LOWER}


def test_the_projects_own_sample_is_read():
    history, _ = read(DATA.read_text())
    assert history.runs
    assert history.series


def test_what_is_no_time_is_named_and_names_are_made_harmless():
    history, left_out = read(
        store(S=[entry(1, bench(0), bench(3, name="<script>alert(1)</script> ½"))])
    )
    (series,) = history.series
    assert series.case == "imported/benchmark[name=S/_script_alert_1__/script___]"
    assert "S/sort is 0, which is not a valid time" in left_out[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("window.BENCHMARK_DATA = {", "not JSON"),
        ("window.BENCHMARK_DATA = {}", "entries"),
        (store(S=[entry(1, bench(1), tool="stopwatch")]), "not a tool of github-action-benchmark"),
        (store(S=[entry(1, bench("fast"))]), "not a finite number"),
        (store(S=[entry(1, bench(1), date=1e300)]), "not a timestamp"),
        (store(S=[{"commit": {}}]), "missing"),
    ],
)
def test_what_is_no_store_is_said_by_its_place(text, said):
    with pytest.raises(Unreadable, match=said):
        read(text)


def test_it_is_imported_once(tmp_path, capsys):
    path = tmp_path / "data.js"
    path.write_text(store(Speed=[entry(number, bench(10 + number)) for number in range(5)]))
    assert cli.main(["history", "import", str(path), "-s", str(tmp_path / "store")]) == 0
    assert "imported 5 of 5 runs" in capsys.readouterr().err
    assert cli.main(["history", "import", str(path), "-s", str(tmp_path / "store")]) == 0
    assert "imported 0 of 5 runs" in capsys.readouterr().err
    assert len(FolderStore(tmp_path / "store").read().history.runs) == 5
    path.write_text("nothing")
    assert cli.main(["history", "import", str(path), "-s", str(tmp_path / "store")]) == 2
