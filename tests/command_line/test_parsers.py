"""Errors of the command line suggest what was meant, and the help lists each command once, in groups."""

import argparse
import re

import pytest

from ci_bench import cli
from ci_bench.command_line.flags import GRAMMAR, make_parser
from ci_bench.command_line.parsers import GROUPS, RENAMED
from ci_bench.errors import ExitCode


def said(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        make_parser(words).parse_args(words)
    return ended.value.code, capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gat", "ci-bench: error: unknown command 'gat'; did you mean 'gate'?"),
        (
            "publish x",
            "ci-bench: error: unknown command 'publish'; it is `ci-bench github publish` now",
        ),
        ("zzz", "ci-bench: error: unknown command 'zzz'; `ci-bench --help` lists all"),
        ("history ad", "ci-bench history: error: unknown action 'ad'; did you mean 'add'?"),
        (
            "history zzz",
            "ci-bench history: error: unknown action 'zzz'; `ci-bench history --help` lists all",
        ),
        (
            "gate --bselin x",
            "ci-bench: error: unrecognized arguments: --bselin; did you mean '--baseline'?",
        ),
        (
            "run --ouptut=x",
            "ci-bench: error: unrecognized arguments: --ouptut=x; did you mean '--output'?",
        ),
        (
            "history add x --rport y",
            "ci-bench: error: unrecognized arguments: --rport y; did you mean '--report'?",
        ),
        ("run --nothing-like-it", "ci-bench: error: unrecognized arguments: --nothing-like-it"),
    ],
)
def test_a_slip_is_answered(line, message, capsys):
    assert said(capsys, *line.split()) == (2, message)


def test_a_wrong_choice_is_answered(capsys):
    code, line = said(capsys, "show", "x", "--format", "htm")
    assert (code, line.endswith("; did you mean 'html'?")) == (2, True)


def test_flags_of_another_command_are_not_suggested(capsys):
    assert "did you mean" not in said(capsys, "validate", "x", "--basline", "y")[1]


def test_no_command_prints_help(capsys):
    code = cli.main([])
    out, err = capsys.readouterr()
    assert (code, out) == (ExitCode.BAD_INPUT, "")
    assert "in CI:" in err
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert (ended.value.code, capsys.readouterr().out) == (0, err)


def test_help_lists_each_command_once():
    listed = re.findall(r"^    ([a-z][a-z-]*)  ", make_parser().format_help(), re.MULTILINE)
    assert sorted(listed) == sorted(GRAMMAR)
    assert {name for names in GROUPS.values() for name in names} <= {*GRAMMAR}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_command_exists(old, new, capsys):
    assert old not in GRAMMAR
    code, message = said(capsys, old)
    assert (code, message) == (
        2,
        f"ci-bench: error: unknown command {old!r}; it is `ci-bench {new}` now",
    )
    with pytest.raises(SystemExit) as ended:
        make_parser(new.split()).parse_args([*new.split(), "--help"])
    assert ended.value.code == 0


@pytest.mark.parametrize("resume", [None, False, True])
def test_an_interrupted_command_says_how_to_continue(resume, tmp_path):
    words = ["gate", "a b", "--output", str(tmp_path), *(["--resume"] if resume else [])]
    given = argparse.Namespace(output=tmp_path, **({} if resume is None else {"resume": resume}))
    assert cli._way_on(given, words) == ""
    (tmp_path / "results.json").touch()
    told = cli._way_on(given, words)
    assert (
        told == ""
        if resume is None
        else told.endswith(f"to continue: ci-bench gate 'a b' --output {tmp_path} --resume")
    )
