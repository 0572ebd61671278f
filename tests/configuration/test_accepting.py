"""The file with accepted changes: what is read, what is refused, and the command that adds an entry."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ci_bench import cli
from ci_bench.configuration.accepting import load_accepted, read_accepted, with_entry
from ci_bench.errors import BadAcceptance, ExitCode
from ci_bench.records.acceptance import Accepted, AcceptedChange, Direction

EXAMPLE = Path(__file__).parents[2] / "schemas" / "examples" / "valid" / "ci-bench-accepted.yml"
ENTRY = AcceptedChange(
    kind=Accepted.METRIC,
    case="functions/a[b=1]",
    metric="step_time",
    direction=Direction.HIGHER,
    bound="6%",
    reason='a "feature": # costs\n3 % ☃ 😀',
    author="ann",
    pull_request=7,
    expires="2030-01-31",
)


def test_the_example_has_every_kind():
    entries = load_accepted(EXAMPLE)
    assert {one.kind for one in entries} == {*Accepted}
    assert [one.share for one in entries] == [0.06, None, None, None, 0.02]
    assert [one.number for one in entries] == [None, 4.0, 300.0, None, None]


TEXT = with_entry(b"", ENTRY)
FAULTS = {
    "nothing": ("", "is not a mapping"),
    "a list": ("[]", "is not a mapping"),
    "a kind of its own": (f"{TEXT}kinds: []\n", "$.kinds: unknown field"),
    "a wildcard of kinds": (f"{TEXT}'*': []\n", "unknown field"),
    "a wildcard of metrics": (TEXT.replace("step_time", "*"), "metric: '*' does not have the form"),
    "no metric": (TEXT.replace('    metric: "step_time"\n', ""), "metric: missing"),
    "no bound": (TEXT.replace('    bound: "6%"\n', ""), "bound: missing"),
    "any change of a metric": (TEXT.replace("6%", "any"), "bound: 'any' does not have the form"),
    "no number": (TEXT.replace("6%", "six"), "bound: 'six' does not have the form"),
    "an infinite bound": (TEXT.replace('"6%"', "1e999"), "is not a finite number"),
    "no pull request": (TEXT.replace("    pull_request: 7\n", ""), "pull_request: missing"),
    "every pull request": (
        TEXT.replace("pull_request: 7", 'pull_request: "*"'),
        "pull_request: '*' is not a whole number",
    ),
    "no last day": (TEXT.replace('    expires: "2030-01-31"\n', ""), "expires: missing"),
    "a day that no calendar has": (
        TEXT.replace("2030-01-31", "2030-02-31"),
        "'2030-02-31' is not a day",
    ),
    "another direction": (
        TEXT.replace("higher", "worse"),
        "direction: 'worse' is not one of higher, lower",
    ),
    "the same twice": (TEXT + TEXT.partition("metrics:\n")[2], "comes twice"),
    "a newer version": (
        TEXT.replace("schema_version: 1", "schema_version: 2"),
        "is for a newer ci-bench",
    ),
    "a field twice": (
        TEXT.replace('    bound: "6%"\n', '    bound: "6%"\n    bound: "90%"\n'),
        "the field comes twice",
    ),
}


@pytest.mark.parametrize(("text", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named(text, words):
    with pytest.raises(BadAcceptance, match=r"^ci-bench-accepted.yml: ") as caught:
        read_accepted(text.encode())
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 1_000_001])
def test_hostile_bytes_are_refused(content):
    with pytest.raises(BadAcceptance):
        read_accepted(content)


def test_an_entry_comes_back():
    assert read_accepted(TEXT.encode()) == (ENTRY,)


def test_an_entry_is_added_and_all_else_stays():
    text = EXAMPLE.read_text() + "  # the end\n"
    for kind, change in {
        Accepted.METRIC: ENTRY,
        Accepted.OUTPUTS: replace(
            ENTRY, kind=Accepted.OUTPUTS, metric=None, direction=None, bound="any"
        ),
        Accepted.LEARNING: replace(
            ENTRY, kind=Accepted.LEARNING, metric=None, direction=None, bound=300
        ),
    }.items():
        before = text
        text = with_entry(text.encode(), change)
        assert {*read_accepted(text.encode())} == {*read_accepted(before.encode()), change}
        added = text.count("\n") - before.count("\n")
        assert added == (8 if kind is Accepted.METRIC else 6)
        assert {*before.splitlines()} <= {*text.splitlines()}


def test_an_entry_is_added_once():
    with pytest.raises(BadAcceptance, match="edit it"):
        with_entry(TEXT.encode(), replace(ENTRY, bound="50%"))
    assert (
        len(read_accepted(with_entry(TEXT.encode(), replace(ENTRY, pull_request=8)).encode())) == 2
    )


def test_a_form_that_cannot_be_extended_is_left_alone():
    for text in (b"{schema_version: 1, metrics: []}", b"schema_version: 1\nmetrics: []\n"):
        with pytest.raises(BadAcceptance):
            with_entry(text, ENTRY)


ARGUMENTS = (
    "--bound",
    "6%",
    "--reason",
    "a feature",
    "--pull-request",
    "7",
    "--expires",
    "2030-01-31",
)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "config", "user.name", "ann"], check=True)
    (tmp_path / "ci-bench.yml").write_text("schema_version: 1\nsuites: {}\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def test_the_command_writes_next_to_the_configuration(tree, capsys):
    assert cli.main(["accept", "functions/*", "--metric", "step_time", *ARGUMENTS]) == ExitCode.OK
    (one,) = load_accepted(tree / "ci-bench-accepted.yml")
    assert (one.case, one.metric, one.direction, one.bound) == (
        "functions/*",
        "step_time",
        Direction.HIGHER,
        "6%",
    )
    assert (one.author, one.pull_request, one.expires) == ("ann", 7, "2030-01-31")
    assert "until 2030-01-31" in capsys.readouterr().out
    assert cli.main(["validate", str(tree / "ci-bench-accepted.yml")]) == ExitCode.OK


def test_the_command_adds_to_the_file(tree):
    for kind in (["--metric", "step_time"], ["--outputs"], ["--learning"]):
        bound = ["--bound", "300"] if kind != ["--metric", "step_time"] else []
        assert cli.main(["accept", "functions/*", *kind, *ARGUMENTS, *bound]) == ExitCode.OK
    assert [one.bound for one in load_accepted(tree / "ci-bench-accepted.yml")] == ["6%", 300, 300]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--metric", "*"],
        ["--metric", "step_time", "--bound", "any"],
        ["--metric", "step_time", "--expires", "soon"],
        ["--metric", "step_time", "--pull-request", "0"],
        ["--learning", "--bound", "any"],
    ],
)
def test_the_command_refuses_what_the_file_could_not_say(tree, wrong, capsys):
    assert cli.main(["accept", "functions/*", *ARGUMENTS, *wrong]) == ExitCode.BAD_INPUT
    assert not (tree / "ci-bench-accepted.yml").exists()
    assert "ci-bench-accepted.yml: " in capsys.readouterr().err


def test_without_a_name_git_is_told_how_to_know_it(tree, monkeypatch, capsys):
    subprocess.run(["git", "-C", str(tree), "config", "--unset", "user.name"], check=True)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.delenv("GIT_AUTHOR_NAME", raising=False)
    assert cli.main(["accept", "a", "--metric", "step_time", *ARGUMENTS]) == ExitCode.BAD_INPUT
    assert "git config user.name" in capsys.readouterr().err
    monkeypatch.setenv("GIT_AUTHOR_NAME", "eve")
    assert cli.main(["accept", "a", "--metric", "step_time", *ARGUMENTS]) == ExitCode.OK
    assert 'author: "eve"' in (tree / "ci-bench-accepted.yml").read_text()


def test_a_broken_file_is_left_alone(tree):
    (tree / "ci-bench-accepted.yml").write_text("schema_version: 1\nkinds: all\n")
    assert cli.main(["accept", "a", "--metric", "step_time", *ARGUMENTS]) == ExitCode.BAD_INPUT
    assert (tree / "ci-bench-accepted.yml").read_text() == "schema_version: 1\nkinds: all\n"
    assert cli.main(["validate", str(tree / "ci-bench-accepted.yml")]) == ExitCode.BAD_INPUT


def test_a_missing_file_is_named(capsys):
    assert cli.main(["validate", "nowhere/ci-bench-accepted.yml"]) == ExitCode.BAD_INPUT
    assert "nowhere/ci-bench-accepted.yml: cannot be read: No such file" in capsys.readouterr().err


def test_the_entry_is_json_too():
    """What is written has JSON's strings, which every reader of YAML takes alike."""
    line = next(line for line in TEXT.splitlines() if "reason" in line)
    assert json.loads(line.partition(": ")[2]) == ENTRY.reason
