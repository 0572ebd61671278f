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


def render() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for path, title in ACTIONS.items():
        action = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
        parts += [f"## {title}", "", "| input | default | meaning |", "| --- | --- | --- |"]
        parts += [
            f"| `{name}` | {_default(entry)} | {_words(entry)} |"
            for name, entry in action["inputs"].items()
        ]
        parts += ["", "| output | meaning |", "| --- | --- |"]
        parts += [f"| `{name}` | {_words(entry)} |" for name, entry in action["outputs"].items()]
        parts.append("")
    return "\n".join(parts)


def _default(entry: dict[str, Any]) -> str:
    return f"`{entry['default']}`" if entry["default"] else "–"


def _words(entry: dict[str, Any]) -> str:
    return " ".join(str(entry["description"]).split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
