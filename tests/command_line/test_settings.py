"""Flags and settings are the same: each flag has its field, each field a flag, and both have one default."""

import argparse
import inspect
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from ci_bench.command_line.flags import GRAMMAR, make_parser
from ci_bench.command_line.settings import OF_PARSING, Fastrnns, Settings, TrendSettings
from ci_bench.commands.dispatch import COMMANDS
from ci_bench.errors import BadInput

GIVEN = {"environ", "here"}
FORMS = {"doctor", "setup", *(name for name in COMMANDS if " --" in name)}
"""Forms of one command, whose flags are refused where another form has them."""


def inner(parser):
    """The parsers of a command's actions, by name."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found[0].choices if found else {}


def parsers(name):
    """The parsers of a command: those of its actions that are no commands themselves, where it has some."""
    first, *rest = name.split()
    command = inner(make_parser())[first]
    if rest and not rest[0].startswith("--"):
        return [inner(command)[rest[0]]]
    own = [
        parser for action, parser in inner(command).items() if f"{name} {action}" not in COMMANDS
    ]
    return own or [command]


def flags(name):
    """The flags of a command by the field that each sets."""
    actions = [action for parser in parsers(name) for action in parser._actions]
    return {
        action.dest: action
        for action in actions
        if action.dest not in {*OF_PARSING, "help"} and action.help != argparse.SUPPRESS
    }


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, command in COMMANDS.items()
        if command.kind is not Fastrnns and name not in FORMS
    ],
)
def test_each_flag_of_a_command_has_its_field(name):
    assert {*flags(name)} <= {field.name for field in fields(COMMANDS[name].kind)}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_of_the_grammar_has_a_function_that_takes_its_kind_of_settings(name):
    function = COMMANDS[name].find()
    (first, *_) = inspect.signature(function).parameters.values()
    assert first.annotation in {COMMANDS[name].kind, COMMANDS[name].kind.__name__}
    assert {name.split()[0] for name in COMMANDS} == {*GRAMMAR}


def test_each_field_has_a_flag():
    kinds = {command.kind for command in COMMANDS.values()} - {Fastrnns}
    for kind in kinds:
        set_by = {
            dest
            for name, command in COMMANDS.items()
            if command.kind is kind
            for dest in flags(name)
        }
        inherited = {
            field.name for base in kind.__mro__[1:] if base is not object for field in fields(base)
        }
        assert {field.name for field in fields(kind)} - GIVEN - inherited - {"action"} <= set_by, (
            kind
        )


def test_a_field_without_a_flag_in_a_command_has_the_default_of_the_others():
    for name, command in COMMANDS.items():
        default = {
            field.name: field.default
            for field in fields(command.kind)
            if field.default is not MISSING
        }
        differing = {"output", "patience_s"}  # each command has its own
        for dest, flag in flags(name).items() if command.kind is not Fastrnns else ():
            if dest in default and dest not in differing and not flag.required:
                said = () if flag.default == [] else flag.default
                if said == argparse.SUPPRESS:
                    continue
                assert said == default[dest] or (said is None and default[dest] == ()), (name, dest)


def test_what_is_parsed_is_frozen_with_the_environment_and_the_folder():
    parsed = make_parser().parse_args(
        ["history", "add", "one", "two", "--report", "https://example.org"]
    )
    settings = COMMANDS["history"].kind.of(parsed, {"A": "b"}, Path("/here"))
    assert isinstance(settings, TrendSettings)
    assert (settings.action, settings.runs, settings.run_report) == (
        "add",
        (Path("one"), Path("two")),
        "https://example.org",
    )
    assert (settings.environ, settings.here) == ({"A": "b"}, Path("/here"))
    with pytest.raises(AttributeError):
        settings.action = "check"


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("doctor --only clocks", "--only"),
        ("doctor --output out", "--output"),
        ("doctor --selftest --only clocks", "--only"),
        ("setup --models --base main", "--base"),
        ("setup --models --output out", "--output"),
    ],
)
def test_a_flag_of_another_form_is_refused(line, flag):
    parsed = make_parser().parse_args(line.split())
    with pytest.raises(BadInput, match=f"`ci-bench {parsed.command}` takes no {flag}"):
        COMMANDS[parsed.command].kind.of(parsed, {}, Path("/here"))


@pytest.mark.parametrize(
    "line",
    ["doctor --gpu --selftest", "doctor --quick --gpu", "setup --models --prepared x", "setup"],
)
def test_forms_exclude_each_other(line):
    with pytest.raises(SystemExit):
        make_parser().parse_args(line.split())


def test_a_planted_flag_without_a_field_is_seen():
    class Lacking(Settings):
        """Settings without any field of their own."""

    assert not {*flags("gate")} <= {field.name for field in fields(Lacking)}
