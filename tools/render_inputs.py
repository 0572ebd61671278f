"""Renders docs/inputs.md from action.yml and report/action.yml, so that they cannot differ.

Run as ``python tools/render_inputs.py > docs/inputs.md``; a test compares the committed file with
the output.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
# ruff: noqa: E501 - lines of a page, not of code
INTRODUCTION = """# Inputs and outputs of the actions

This page is generated from [action.yml](../action.yml) and [report/action.yml](../report/action.yml). All inputs are optional. Invalid
inputs are reported together, before anything is measured.
"""
ACTIONS = {
    "action.yml": "`ci-bench/ci-bench`: measures, on your runner",
    "report/action.yml": "`ci-bench/ci-bench/report`: judges and reports, on a hosted runner",
}
HEADINGS = {"inputs": "| input | default | meaning |", "outputs": "| output | meaning |"}


def render() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    shown: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
    for path, title in ACTIONS.items():
        action = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
        parts += [f"## {title}", ""]
        for kind, headings in HEADINGS.items():
            repeated = [
                name
                for name, entry in action[kind].items()
                if name in shown[kind] and _row(name, entry) == _row(name, shown[kind][name])
            ]
            if repeated:
                parts += [
                    f"These {kind} are as above: {', '.join(map('`{}`'.format, repeated))}.",
                    "",
                ]
            parts += [headings, "| --- " * (headings.count("|") - 1) + "|"]
            parts += [
                _row(name, entry) for name, entry in action[kind].items() if name not in repeated
            ]
            parts.append("")
            shown[kind] |= action[kind]
    return "\n".join(parts)


def _row(name: str, entry: dict[str, Any]) -> str:
    cells = [f"`{name}`", *([_default(entry)] if "default" in entry else []), _words(entry)]
    return f"| {' | '.join(cells)} |"


def _default(entry: dict[str, Any]) -> str:
    return f"`{entry['default']}`" if entry["default"] else "–"


def _words(entry: dict[str, Any]) -> str:
    return " ".join(str(entry["description"]).split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
