"""A gate whose launches are measured in leases, by real processes on this machine."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from end_to_end_builders import commit, git, outcome, prepare_slower

from ci_bench.commands.merge import read_pair
from ci_bench.errors import ExitCode
from ci_bench.fleet.merging import merge
from ci_bench.records import documents
from ci_bench.records.comparison import Verdict
from ci_bench.records.results import RunState

pytestmark = pytest.mark.usefixtures("plugin")


@pytest.fixture
def slower(repository, tmp_path, ci_bench):
    return prepare_slower(repository, tmp_path, ci_bench, cases=("one", "two"), launches=3)


def gate(sides, out):
    return ("gate", "--prepared", sides, "--output", out, "--fleet", "local:cpu")


def test_leases_are_measured_merged_and_judged(slower, tmp_path, ci_bench) -> None:
    out = tmp_path / "out"
    code, _, said = ci_bench(*gate(slower, out))
    assert code == ExitCode.POLICY_NOT_MET, said
    comparison = outcome(out)
    assert [case.verdict for case in comparison.cases] == [Verdict.REGRESSED, Verdict.REGRESSED]
    head = documents.read_results(out / "results.json")
    assert head.run.state is RunState.COMPLETE
    assert {len(row.origins) for row in head.cases} == {3}
    leases = [(part.run.lease.number, part.run.lease.attempt) for part in head.parts]
    assert len({*leases}) == len(leases)
    assert {part.run.lease.run for part in head.parts} == {head.run.id}
    by_hand = merge(read_pair(folder) for folder in (out / "fleet" / "leases").iterdir())
    assert by_hand.head.cases == tuple(
        next(row for row in head.cases if row.case.id == own.case.id) for own in by_hand.head.cases
    ), "the verdict is that of the same documents merged by hand"
    assert by_hand.head.parts == head.parts


def test_a_coordinator_that_is_killed_is_resumed(slower, tmp_path, ci_bench) -> None:
    """Nothing is measured twice that counted, and nothing that a killed lease left behind counts."""
    out = tmp_path / "out"
    words = [sys.executable, "-m", "ci_bench.cli", *map(str, gate(slower, out))]
    process = subprocess.Popen(
        words,
        env=dict(os.environ),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journal = out / "fleet" / "journal.jsonl"
    limit = time.monotonic() + 120
    while not (journal.exists() and '"delivered"' in journal.read_text()):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    code, _, said = ci_bench(*gate(slower, out))
    assert (code, "another gate measures on a fleet with this folder" in said) == (
        ExitCode.BAD_INPUT,
        True,
    ), said
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while leases_of(out):
        assert time.monotonic() < limit
        time.sleep(0.02)
    before = [json.loads(line) for line in journal.read_text().splitlines()]
    counted = [
        (event["lease"], event["attempt"]) for event in before if event["event"] == "delivered"
    ]
    left = [
        documents.read_results(path).run
        for path in (out / "fleet" / "leases").glob("*/results.json")
    ]
    whole = {
        (run.lease.number, run.lease.attempt) for run in left if run.state is RunState.COMPLETE
    }
    assert whole == {*counted}, "a lease ends with the coordinator"
    code, _, said = ci_bench(*gate(slower, out), "--resume")
    assert code == ExitCode.POLICY_NOT_MET, said
    assert f"{len(counted)} lease(s) are measured already" in said
    head = documents.read_results(out / "results.json")
    assert {*counted} <= {(part.run.lease.number, part.run.lease.attempt) for part in head.parts}
    assert {len(row.origins) for row in head.cases} == {3}
    assert head.run.id == before[0]["id"]


def test_a_gate_that_is_drained_ends_what_is_out_and_is_resumed(slower, tmp_path, ci_bench) -> None:
    out = tmp_path / "out"
    code, said, _ = ci_bench(
        "fleet", "test", "local:cpu", "--prepared", slower, "--output", out, "--filter", "fake/one"
    )
    assert code == ExitCode.OK
    assert "cpu: can measure" in said
    assert "1 of 1 slot(s) can measure one gate" in said
    words = [sys.executable, "-m", "ci_bench.cli", *map(str, gate(slower, out))]
    process = subprocess.Popen(
        words, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    journal = out / "fleet" / "journal.jsonl"
    limit = time.monotonic() + 120
    while not (journal.exists() and '"begun"' in journal.read_text()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    code, said, _ = ci_bench("fleet", "drain", "--output", out)
    assert (code, said) == (
        ExitCode.OK,
        "no further lease on all slots; running leases finish, and --resume continues\n",
    )
    said = process.communicate(timeout=120)[1]
    assert process.returncode == ExitCode.POLICY_NOT_MET, said
    measured = journal.read_text().count('"delivered"')
    assert measured == journal.read_text().count('"begun"') < 3, "what was out went to its end"
    code, _, said = ci_bench(*gate(slower, out), "--resume")
    assert code == ExitCode.POLICY_NOT_MET, said
    assert f"{measured} lease(s) are measured already" in said
    head = documents.read_results(out / "results.json")
    assert {len(row.origins) for row in head.cases} == {3}
    assert head.losses == ()


def leases_of(out) -> list[str]:
    """The processes that measure leases of this output folder."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = command.read_bytes().decode().split("\0")
            if "lease" in words and any(word.startswith(str(out)) for word in words):
                found.append(command.parent.name)
    return found


def test_a_fleet_needs_commits_to_send_or_sides_that_lie_ready(repository, ci_bench) -> None:
    (repository / "new.py").write_text("uncommitted = True\n")
    code, _, said = ci_bench("gate", "--fleet", "local", "--baseline", "paired", "--base", "HEAD")
    assert (code, "ci-bench setup --prepared DIR" in said) == (ExitCode.BAD_INPUT, True)
    code, _, said = ci_bench("gate", "--fleet", "loacl", "--prepared", repository)
    assert code == ExitCode.BAD_INPUT


def test_nodes_that_see_nothing_of_the_checkout_measure_what_they_are_sent(
    repository, tmp_path, ci_bench, monkeypatch
) -> None:
    """By a bundle, whose sides a node makes ready once; a checkout in use is the one that was taken out."""
    monkeypatch.setenv("CI_BENCH_SOURCES", str(tmp_path / "node"))
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config["suites"]["fake"] = [{"name": "one"}]
    config["run"] |= {"sampling": "fixed", "blocks": 2, "sample_s": 0.002, "launches": 2}
    config["setup"] = {"commands": [f'echo "$CI_BENCH_SIDE $PWD" >> {tmp_path}/made']}
    elsewhere = tmp_path / "elsewhere.yml"
    elsewhere.write_text(yaml.safe_dump(config))
    commit(repository, "0.03")
    out = tmp_path / "out"
    code, _, said = ci_bench("gate", "--config", elsewhere, "--output", out, "--fleet", "local:cpu")
    assert code in {ExitCode.OK, ExitCode.POLICY_NOT_MET}, said
    sides = {
        "base": documents.read_results(out / "base" / "results.json"),
        "head": documents.read_results(out / "results.json"),
    }
    medians = {
        name: [statistics.median(launch.values) for launch in step_time(side)]
        for name, side in sides.items()
    }
    assert [len(launches) for launches in medians.values()] == [2, 2]
    assert max(medians["base"]) < 0.02 < min(medians["head"]), "each side measured its own commit"
    assert sides["head"].source.commit == git(repository, "rev-parse", "HEAD")
    assert sides["base"].source.chosen_by.startswith("the first parent of HEAD")
    lines = [line.partition(" ")[::2] for line in (tmp_path / "made").read_text().splitlines()]
    assert [side for side, _ in lines] == ["base", "head"], "once for both leases"
    assert all(place.startswith(str(tmp_path / "node")) for _, place in lines)


def step_time(side):
    return next(metric.launches for metric in side.cases[0].metrics if metric.name == "step_time")
