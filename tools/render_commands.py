"""Renders docs/commands.md from the command line's own grammar, so that the page and the flags cannot differ.

Run as ``python tools/render_commands.py > docs/commands.md``; a test compares the committed file
with the output.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Container, Iterator

from ci_bench.command_line.flags import make_parser

# ruff: noqa: E501 - lines of a page, not of code
INTRODUCTION = """# Commands

Made from the command line's own help. All commands take `--help`, and `ci-bench --verbose COMMAND` logs what is done. Exit codes are in the
[README](../README.md#exit-codes). Flags win over the configuration
([configuration.md](configuration.md)), and those that narrow or move what is measured are named in the comment.
`eval "$(ci-bench --completion bash)"` in the start file of bash or zsh (`ci-bench --completion fish | source` in that of
fish) completes commands and flags by Tab.
"""
_HEAD = ("| argument | default | meaning |", "| --- | --- | --- |")
_COMMON = 3
"""A flag of as many commands is described once."""


def render() -> str:
    """Return the whole page."""
    parsers = dict(_children(make_parser()))
    tables = [
        _rows(inner)
        for parser in parsers.values()
        for inner in dict(_children(parser)).values() or (parser,)
    ]
    uses = Counter(row for rows in tables for row in rows.values())
    common = {row for row, number in uses.items() if number >= _COMMON}
    parts = [INTRODUCTION, "| command | does |", "| --- | --- |"]
    parts += [f"| [`{name}`](#{name}) | {_sentence(parser)} |" for name, parser in parsers.items()]
    parts += [
        "",
        "## Flags of several commands",
        "",
        *_HEAD,
        *(row for row in uses if row in common),
    ]
    for name, parser in parsers.items():
        parts += ["", f"## {name}", "", _sentence(parser)]
        actions = dict(_children(parser))
        parts += [] if actions else _table(parser, common)
        for action, inner in actions.items():
            parts += ["", f"### {name} {action}", "", _sentence(inner), *_table(inner, common)]
    return "\n".join(parts) + "\n"


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - argparse tells it no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def _sentence(parser: argparse.ArgumentParser) -> str:
    return _cell((parser.description or "").rstrip("."))


def _table(parser: argparse.ArgumentParser, common: Container[str]) -> list[str]:
    """Render the flags of one command; `common` rows are only named."""
    rows = _rows(parser)
    shared = [f"`{flag}`" for flag, row in rows.items() if row in common]
    special = [row for row in rows.values() if row not in common]
    parts = ["", *_HEAD, *special] if special else []
    sentence = f"{'Also' if special else 'It takes'} {', '.join(shared)}"
    return [
        *parts,
        *(["", f"{sentence} ([meaning](#flags-of-several-commands))."] if shared else []),
    ]


def _rows(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the rows of a command's table by flag or argument."""
    return {
        (action.option_strings or [str(action.metavar or action.dest)])[-1]: _row(action)
        for action in parser._actions  # noqa: SLF001
        if action.dest != "help" and action.help != argparse.SUPPRESS
    }


def _row(action: argparse.Action) -> str:
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
    )
    takes = "" if action.nargs == 0 else f" {value}"
    name = (
        f"{', '.join(action.option_strings)}{takes}"
        if action.option_strings
        else str(action.metavar or action.dest)
    )
    has_default = action.nargs != 0 and action.default not in (None, (), [], argparse.SUPPRESS)
    default = f"`{action.default}`" if has_default else ""
    default = "required" if action.required and action.option_strings else default
    return f"| `{_cell(name)}` | {default} | {_cell(action.help or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("%(default)s", "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
