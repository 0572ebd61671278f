"""`setup` in one process, `gate --prepared` in another, as where measuring has no network."""

import json
import os
import shlex
from dataclasses import replace

import pytest
import yaml
from end_to_end_builders import commit, git, outcome

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.errors import BadConfig, ExitCode
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.results import Status

pytestmark = pytest.mark.usefixtures("plugin")


@pytest.fixture
def configured(repository):
    """Set-up commands take part: what measuring must not see, and a file that each of them leaves for measuring."""
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config["setup"] = {
        "commands": ['echo "$CI_BENCH_SIDE" >made_by', "env >&2", "test ! -e broken"]
    }
    config["run"] |= {"sampling": "fixed", "launches": 3}
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))
    git(repository, "commit", "-a", "-m", "set up")
    return repository


def test_what_was_set_up_is_measured_by_another_process(
    configured, tmp_path, ci_bench, monkeypatch
) -> None:
    commit(configured, "0.008")
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    sides, out = tmp_path / "sides", tmp_path / "out"
    code, _, said = ci_bench("setup", "--prepared", sides, "--output", out)
    assert code == ExitCode.OK, said
    assert "base is the first parent of HEAD, which is on main" in said
    assert not (out / "results.json").exists()
    assert "a-token" not in "".join(path.read_text() for path in (out / "setup").iterdir())
    code, _, said = ci_bench("gate", "--prepared", sides, "--output", out)
    comparison = outcome(out)
    assert (code, comparison.cases[0].verdict, comparison.mode) == (
        ExitCode.POLICY_NOT_MET,
        Verdict.REGRESSED,
        BaselineMode.PAIRED,
    ), said
    chosen = "the first parent of HEAD, which is on main"
    assert json.loads((out / "base" / "results.json").read_text())["source"]["chosen_by"] == chosen
    assert (comparison.base.source.chosen_by, comparison.head.source.chosen_by) == (chosen, None)
    assert sorted(path.read_text().strip() for path in sides.glob("paired/*/*/made_by")) == [
        "base",
        "head",
    ], "they stay"
    assert git(configured, "status", "--porcelain") == ""


def test_a_side_whose_set_up_fails_is_the_gates_to_report(configured, tmp_path, ci_bench) -> None:
    (configured / "broken").touch()
    git(configured, "add", ".")
    git(configured, "commit", "-m", "break it")
    code, _, said = ci_bench(
        "setup", "--prepared", tmp_path / "sides", "--output", tmp_path / "out"
    )
    assert code == ExitCode.OK
    assert (
        "head cannot be measured: set-up command 3 of 3 (`test ! -e broken`) ended with exit code 1"
        in said
    )
    code, said, _ = ci_bench("gate", "--prepared", tmp_path / "sides", "--output", tmp_path / "out")
    assert code == ExitCode.MEASURING_FAILED, "no case of head could be measured"
    told = "Failed: head could not be set up: set-up command 3 of 3 (`test ! -e broken`) ended with exit code 1"
    assert told in " ".join(said.split())
    base, head = (
        documents.read_results(tmp_path / "out" / name).cases[0]
        for name in ("base/results.json", "results.json")
    )
    assert (base.status, head.status, head.failure.stage) == (
        Status.NOT_RUN,
        Status.FAILED,
        "setup",
    )


def test_set_up_that_fails_on_both_sides_is_not_prepared(configured, tmp_path, ci_bench) -> None:
    (configured / "broken").touch()
    git(configured, "add", ".")
    for message in ("break it", "leave it broken"):
        git(configured, "commit", "--allow-empty", "-m", message)
    code, _, said = ci_bench(
        "setup", "--prepared", tmp_path / "sides", "--output", tmp_path / "out"
    )
    assert code == ExitCode.MEASURING_FAILED
    assert all(
        f"{side} cannot be measured: set-up command 3 of 3" in said for side in ("base", "head")
    )
    assert f"set-up failed on both sides: see the logs in {tmp_path / 'out' / 'setup'}" in said
    assert "measure with" not in said
    code, _, _ = ci_bench("gate", "--prepared", tmp_path / "sides", "--output", tmp_path / "out")
    assert code == ExitCode.MEASURING_FAILED
    assert (
        documents.read_results(tmp_path / "out" / "results.json").cases[0].failure.stage == "setup"
    ), "the gate can report it"


def test_what_set_up_installs_serves_planning(repository, tmp_path, ci_bench) -> None:
    install = "import sysconfig as s; open(s.get_path('purelib') + '/installed.py', 'w').write('SIZES = [1, 2]')"
    (repository / "bench.py").write_text(
        "import ci_bench, installed\n@ci_bench.benchmark(n=installed.SIZES)\ndef f(n):\n    return lambda: n\n"
    )
    config = yaml.safe_load((repository / "ci-bench.yml").read_text())
    config |= {
        "suites": {"functions": [{"path": "bench.py"}]},
        "setup": {"commands": [f'python -c "{install}"']},
    }
    (repository / "ci-bench.yml").write_text(yaml.safe_dump(config))
    git(repository, "add", ".")
    for message in ("base", "head"):
        git(repository, "commit", "--allow-empty", "-m", message)
    code, _, said = ci_bench(
        "setup", "--prepared", tmp_path / "sides", "--output", tmp_path / "out"
    )
    assert code == ExitCode.OK, said

    settings = Measuring(environ=os.environ, here=repository, prepared=tmp_path / "sides")
    _, find = load_with_suites(settings)
    assert len(find("functions").plan({"path": "bench.py"})) == len(["n=1", "n=2"])
    _, find = load_with_suites(replace(settings, prepared=None))
    with pytest.raises(BadConfig, match="gate --prepared DIR"):
        find("functions").plan({"path": "bench.py"})


def test_the_command_that_set_up_names_measures_what_it_made(
    configured, tmp_path, ci_bench
) -> None:
    (configured / "ci-bench.yml").rename(tmp_path / "of base.yml")
    made = tmp_path / "both sides"
    code, _, said = ci_bench(
        "setup", "--config", tmp_path / "of base.yml", "--base", "HEAD", "--prepared", made
    )
    assert code == ExitCode.OK, said
    name, *arguments = shlex.split(said.rpartition("measure with: ")[2])
    code, _, said = ci_bench(*arguments)
    assert (name, code) == ("ci-bench", ExitCode.OK), said


def test_what_was_prepared_for_another_commit_is_refused_before_anything_is_measured(
    repository, tmp_path, ci_bench
) -> None:
    commit(repository, "0.003")
    ci_bench("setup", "--prepared", tmp_path / "sides", "--output", tmp_path / "out")
    commit(repository, "0.008")
    code, _, said = ci_bench("gate", "--prepared", tmp_path / "sides", "--output", tmp_path / "out")
    assert code == ExitCode.BAD_INPUT
    assert "head was commit" in said
    assert "run `ci-bench setup` again" in said
    assert not (tmp_path / "out" / "results.json").exists()


@pytest.mark.parametrize("baseline", ["none", "results.json"])
def test_prepared_sides_need_a_paired_baseline(repository, tmp_path, ci_bench, baseline) -> None:
    code, _, said = ci_bench(
        "gate",
        "--prepared",
        tmp_path / "sides",
        "--baseline",
        baseline,
        "--output",
        tmp_path / "out",
    )
    assert code == ExitCode.BAD_INPUT
    assert f"--prepared holds both sides of a paired run, but the baseline is {baseline}" in said


def test_without_preparing_there_is_nothing_to_measure(repository, tmp_path, ci_bench) -> None:
    code, _, said = ci_bench("gate", "--prepared", tmp_path / "sides", "--output", tmp_path / "out")
    assert code == ExitCode.BAD_INPUT
    assert "prepare them first" in said
