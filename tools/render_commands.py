"""Renders docs/commands.md from the parser, so that the page and the flags cannot differ.

Run as ``python tools/render_commands.py > docs/commands.md``; a test compares the committed file
with the output.
"""

import argparse
import sys
from collections.abc import Iterator

from ci_bench.command_line.flags import make_parser

# ruff: noqa: E501 - lines of a page, not of code
INTRODUCTION = """# Commands

Made from the command line's own help. All commands take `--help`, and `ci-bench --verbose COMMAND` logs what is done. Exit codes are in the
[README](../README.md#exit-codes). Flags win over the configuration
([configuration.md](configuration.md)), and those that narrow or move what is measured are named in the comment.
`eval "$(ci-bench --completion bash)"` in the start file of bash or zsh (`ci-bench --completion fish | source` in that of
fish) completes commands and flags by Tab.
"""


def render() -> str:
    """Return the page."""
    parsers = dict(_children(make_parser()))
    parts = [INTRODUCTION, "| command | does |", "| --- | --- |"]
    parts += [f"| [`{name}`](#{name}) | {_sentence(parser)} |" for name, parser in parsers.items()]
    for name, parser in parsers.items():
        parts += ["", f"## {name}", "", _sentence(parser)]
        actions = dict(_children(parser))
        parts += [] if actions else ["", *_table(parser)]
        for action, inner in actions.items():
            parts += ["", f"### {name} {action}", "", _sentence(inner), "", *_table(inner)]
    return "\n".join(parts) + "\n"


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - argparse tells it no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def _sentence(parser: argparse.ArgumentParser) -> str:
    return _cell((parser.description or "").rstrip("."))


def _table(parser: argparse.ArgumentParser) -> list[str]:
    shown = [
        action
        for action in parser._actions  # noqa: SLF001
        if action.dest != "help" and action.help != argparse.SUPPRESS
    ]
    return ["| argument | default | meaning |", "| --- | --- | --- |", *map(_row, shown)]


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
    default = (
        "" if action.default in (None, False, [], argparse.SUPPRESS) else f"`{action.default}`"
    )
    return (
        f"| `{_cell(name)}` |"
        f" {'required' if action.required and action.option_strings else default} |"
        f" {_cell(action.help or '')} |"
    )


def _cell(text: str) -> str:
    return " ".join(text.replace("%(default)s", "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
