"""A newcomer reads what each case is, and how long a gate takes."""

from dataclasses import replace

import pytest
from judge_builders import metric, result, results, sampled

from ci_bench.cli import main
from ci_bench.commands.list_cases import KINDS
from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.results import SideName, Status
from ci_bench.suites.registry import BUILT_IN

CONFIG = """\
schema_version: 1
suites:
  command:
    - {name: train, command: "true"}
    - {name: sort, arms: {merge: "true", quick: "true"}}
"""


@pytest.fixture
def listed(tmp_path, monkeypatch, capsys):
    """Return what `list` prints after a gate whose cases took `seconds` on each side."""

    def printed(**seconds):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "ci-bench.yml").write_text(CONFIG)
        rows = [
            replace(
                result(metric(sampled(1.0)), id=f"command/{name}", status=status), duration_s=taken
            )
            for name, (taken, status) in seconds.items()
        ]
        for side in SideName if rows else ():
            path = documents.place(tmp_path / "ci-bench-results", side)
            path.parent.mkdir(parents=True, exist_ok=True)
            documents.write(results(*rows), path)
        assert main(["list"]) == ExitCode.OK
        return capsys.readouterr().out.splitlines()

    return printed


def test_a_case_has_its_kind(listed):
    assert listed() == [
        "command/train",
        "    a command or training script",
        "command/sort",
        "    a command or training script; arms: merge (reference), quick",
        "2 cases on device auto. A gate takes about 1 min for each on two CPU cores; a training script takes ten runs or more.",
    ]


def test_the_previous_run_gives_the_time(listed):
    lines = listed(train=(20.0, Status.OK), sort=(40.0, Status.OK))
    assert lines[1] == "    a command or training script; about 40 seconds"
    assert (
        lines[-1]
        == "2 cases on device auto. A gate takes about 2 minutes, as the previous run did."
    )


def test_a_run_that_failed_gives_no_time(listed):
    lines = listed(train=(20.0, Status.FAILED), sort=(40.0, Status.OK))
    assert lines[1] == "    a command or training script"
    assert "for each on two CPU cores" in lines[-1]


def test_every_suite_has_a_kind():
    assert KINDS.keys() == {*BUILT_IN}
