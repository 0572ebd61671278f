"""Commands through the real engine: what a run's row holds, and how each kind of trouble ends."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_builders import QUICK, measure_here

from ci_bench.records.results import Better, Outcome, Status, Unit

DATA = Path(__file__).parents[2] / "formats" / "data"
SERIES = '{"name": "a b", "unit": "ms", "better": "lower", "values": [1.5, 2.5]}'
DOCUMENT = f'{{"kind": "measurements", "schema_version": 1, "series": [{SERIES}]}}'
WRITES = f"echo '{DOCUMENT}' > $CI_BENCH_OUTPUT"


def entry(command, **more):
    return {"name": "kernels", "command": command, **more}


def the_row(tmp_path, *entries, options=QUICK):
    (row,) = measure_here(tmp_path, *entries, options=options)
    return row


def values(row):
    return {
        f"{one.name} {one.arm}": [launch.values for launch in one.launches] for one in row.metrics
    }


@pytest.mark.alone
def test_a_command_is_timed_in_blocks_and_its_peak_is_taken_in_two_launches(tmp_path) -> None:
    row = the_row(tmp_path, entry("sleep 0.02"), options=replace(QUICK, launches=3))
    assert row.status is Status.OK, row.failure
    time, peak = sorted(row.metrics, key=lambda metric: metric.name, reverse=True)
    assert (time.name, peak.name) == ("step_time", "peak_rss")
    assert [launch.blocks for launch in time.launches] == [(0, 0, 1, 1)] * 3
    assert all(0.02 < value < 5 for launch in time.launches for value in launch.values)
    assert [(launch.launch, len(launch.values)) for launch in peak.launches] == [(0, 1), (1, 1)]
    (check,) = [check for check in row.checks if check.name == "exit_code"]
    assert check.outcome is Outcome.PASS


@pytest.mark.alone
def test_arms_are_timed_in_the_same_blocks(tmp_path) -> None:
    arms = {"slow": "sleep 0.05", "fast": ["sleep", "0.01"]}
    row = the_row(tmp_path, {"name": "kernels", "arms": arms})
    assert row.status is Status.OK, row.failure
    times = {
        metric.arm: metric.launches[0].values
        for metric in row.metrics
        if metric.name == "step_time"
    }
    assert 0.01 < min(times["fast"]) < 0.05 < min(times["slow"])
    assert {metric.arm for metric in row.metrics if metric.name == "peak_rss"} == {"slow", "fast"}


PLACES = {
    "variable": (WRITES, None),
    "argument": (
        [
            sys.executable,
            "-c",
            "import sys; open(sys.argv[1], 'w').write(sys.argv[2])",
            "{output}",
            DOCUMENT,
        ],
        None,
    ),
    "stdout": (f"echo '{DOCUMENT}'; echo noise >&2", "stdout"),
    "path": (f"mkdir -p out; echo '{DOCUMENT}' > out/result.txt", "out/result.txt"),
    "glob": (f"mkdir -p out; echo '{DOCUMENT}' > out/$RANDOM.json", "out/*.json"),
}


def test_the_output_is_found_wherever_it_is(tmp_path) -> None:
    entries = [
        {
            "name": name,
            "command": command,
            "format": "auto",
            **({"output": output} if output else {}),
        }
        for name, (command, output) in PLACES.items()
    ]
    rows = measure_here(tmp_path, *entries, options=replace(QUICK, launches=2))
    assert {row.case.name: row.status for row in rows} == dict.fromkeys(PLACES, Status.OK)
    for row in rows:
        (metric,) = row.metrics
        assert (metric.unit, metric.better) == (Unit.SECONDS, Better.LOWER)
        assert [(launch.launch, launch.values) for launch in metric.launches] == [
            (0, (0.0015, 0.0025)),
            (1, (0.0015, 0.0025)),
        ]
        assert row.facts == {metric.name: "a b"}, "the tool's own name"
        assert metric.title == "a b", "which is what people read"


def test_cwd_and_env_are_the_commands(tmp_path) -> None:
    folder = tmp_path / "tree" / "my bench"
    folder.mkdir(parents=True)
    (folder / "here.json").write_text(DOCUMENT)
    command = 'test "$MODE" = fast; test "$CI_BENCH_DEVICE" = cpu; cat here.json'
    row = the_row(
        tmp_path,
        entry(command, format="auto", output="stdout", cwd="my bench", env={"MODE": "fast"}),
    )
    assert row.status is Status.OK, row.failure


def test_several_files_are_one_output(tmp_path) -> None:
    command = f"for i in 1 2; do echo '{DOCUMENT}' | sed s/a.b/name$i/ > $i.json; done"
    row = the_row(tmp_path, entry(command, format="measurements", output="*.json"))
    assert {*values(row)} == {"name1 command", "name2 command"}


def test_a_real_tools_file_becomes_metrics_and_its_failed_benchmark_a_failed_check(
    tmp_path,
) -> None:
    row = the_row(
        tmp_path,
        entry(f"cp '{DATA / 'google_benchmark-1.7.1.json'}' $CI_BENCH_OUTPUT", format="auto"),
    )
    assert row.status is Status.OK, row.failure
    assert len(row.metrics) == 3
    assert row.facts["measured_by"] == "Google Benchmark"
    (check,) = row.checks
    assert (check.name, check.outcome, check.detail) == (
        "benchmarks",
        Outcome.FAIL,
        "failed: BM_Broken (no such device)",
    )


def test_what_has_no_direction_is_told_of_and_fails_nothing(tmp_path) -> None:
    row = the_row(tmp_path, entry(f"cp '{DATA / 'asv-0.6.6.json'}' $CI_BENCH_OUTPUT", format="asv",
                                  metrics=[{"match": "suite.time_broken", "use": False}]))  # fmt: skip
    assert row.status is Status.OK, row.failure
    checks = {check.name: check for check in row.checks}
    assert checks["benchmarks"].outcome is Outcome.PASS
    assert "skipped: suite.Sorting.time_sort(1000, 'tuple')" in checks["benchmarks"].detail
    assert (checks["direction"].outcome, checks["direction"].informative) == (Outcome.UNKNOWN, True)
    assert "suite.track_loss" in checks["direction"].detail


TROUBLE = [
    (entry("echo deep trouble >&2; exit 3"), "ended with exit code 3: deep trouble", "deep trouble"),
    (entry("kill -9 $$"), "was ended by SIGKILL", ""),
    (entry("sleep 60", timeout_s=0.3), "was ended after 0.3 s (its timeout_s)", ""),
    (entry(["no-such-program-here"]), "no-such-program-here", ""),
    (entry("true", cwd="nowhere"), "of its `cwd` does not exist on this side", ""),
    (entry("true", format="auto"), "the command wrote nothing to CI_BENCH_OUTPUT", ""),
    (entry("echo hello", format="auto", output="stdout"), "standard output cannot be read: it is neither JSON nor a text that is read", "hello"),
    (entry("true", format="auto", output="stdout"), "standard output cannot be read: it is empty", ""),
    (entry("echo '{}'", format="pyperf", output="stdout"), "standard output cannot be read as pyperf: $: the field 'benchmarks'", ""),
    (entry("true", format="auto", output="none.json"), "none.json: the command wrote no such file in ", ""),
    (entry(WRITES, format="auto", metrics=[{"match": "expected"}]), "metrics[0].match: 'expected' matches nothing", ""),
    (entry(f"for i in 1 2; do echo '{DOCUMENT}' > twice$i.json; done", format="auto", output="twice?.json"),
     "two of the files that were written have a series 'a b'", ""),
    (entry("head -c 70000000 /dev/zero", format="auto", output="stdout"), "larger than 67,108,864 bytes", ""),
    (entry("printf '[%.0s' {1..200000}", format="auto", output="stdout"), "nested too deep", ""),
    (entry(f"echo '{DOCUMENT}' | sed s/2.5/1e999/", format="auto", output="stdout"), "$.series[0].values[1]: inf is not a finite", ""),
    (entry(f"echo '{DOCUMENT}' | sed s/2.5/NaN/", format="auto", output="stdout"), "nan is not a finite number", ""),
    (entry(f"echo '{DOCUMENT}' | sed s/2.5/0/", format="auto", output="stdout"), "'a b' is 0 ms, which cannot be compared", ""),
    (entry("cat many.json", format="auto", output="stdout"), "1,001 metrics of all arms, and a case holds 1,000", ""),
]  # fmt: skip


def test_each_trouble_ends_in_one_row_with_its_reason_and_the_end_of_the_log(tmp_path) -> None:
    many = [
        {"name": f"m{number}", "unit": "s", "better": "lower", "value": 1} for number in range(1001)
    ]
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "many.json").write_text(
        json.dumps({"kind": "measurements", "schema_version": 1, "series": many})
    )
    rows = measure_here(
        tmp_path, *({**case, "name": f"case{number}"} for number, (case, *_) in enumerate(TROUBLE))
    )
    for row, (case, reason, logged) in zip(rows, TROUBLE, strict=True):
        assert row.status is (Status.TIMEOUT if "timeout_s" in case else Status.FAILED), row
        assert reason in row.failure.reason
        assert logged in row.failure.log_tail
        assert "Traceback" not in row.failure.log_tail, "the log is the command's"
        assert row.metrics == ()


def test_a_file_of_an_earlier_run_is_not_taken_for_this_ones(tmp_path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "out.json").write_text(DOCUMENT)
    row = the_row(tmp_path, entry("true", format="auto", output="out.json"))
    assert row.status is Status.FAILED
    assert "this file existed before the run, and the run did not write it" in row.failure.reason
    assert (tree / "out.json").exists(), "it is the user's"


def test_a_command_that_fails_after_a_while_loses_the_case_but_not_its_reason(tmp_path) -> None:
    """Good in its first launch, broken later."""
    count = "echo x >> runs; test $(wc -l < runs) -lt 9 || { echo worn out >&2; exit 7; }"
    row = the_row(tmp_path, entry(count), options=replace(QUICK, launches=2))
    assert row.status is Status.FAILED
    assert "ended with exit code 7: worn out" in row.failure.reason


def test_no_token_reaches_a_command(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_" + "x" * 30)
    row = the_row(tmp_path, entry('env > all; ! grep -q ghp_ all; test -z "${GITHUB_TOKEN:-}"'))
    assert row.status is Status.OK, row.failure


def test_python_is_the_engines_where_no_environment_is_activated(tmp_path, monkeypatch) -> None:
    """`.venv/bin/ci-bench run` from a bare shell: a `python` of the system lacks what is measured, or has another version of it."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    row = the_row(
        tmp_path,
        entry(
            [
                "python",
                "-c",
                f"import msgspec, sys; assert sys.prefix == {sys.prefix!r}, sys.prefix",
            ]
        ),
    )
    assert row.status is Status.OK, row.failure
