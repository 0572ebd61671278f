"""Renders docs/configuration.md from schemas/config.json, so that the two cannot differ.

Run as ``python tools/render_configuration.py > docs/configuration.md``; a test compares the
committed file with the output.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ci_bench.records.config import Policy
from ci_bench.records.results import Unit
from ci_bench.suites.registry import find_metrics

ROOT = Path(__file__).resolve().parent.parent
# ruff: noqa: E501 - lines of a page, not of code
INTRODUCTION = """# Configuration

ci-bench looks for `ci-bench.yml` in the working directory, then upward to the repository's root. Paths in the file are relative to the
folder it is in. `--config FILE` names another file, whose paths are relative to the working directory. A missing file is an error, and
so is a similar name (`ci-bench.yaml`, `.ci-bench.yml`, `.github/ci-bench.yml`). `--config quickstart` uses the embedded configuration
([src/ci_bench/default.yml](../src/ci_bench/default.yml), a good start to copy). Without a file, paths of benchmarks (`ci-bench gate
benchmarks/`) and `compare` take the defaults of this page, except that a missing baseline is a note. All faults are reported together,
each with file, line, field and the nearest spelling. `ci-bench validate ci-bench.yml` checks without measuring. Flags such as `--device`
and `--launches` override the file.

This page is generated from [schemas/config.json](../schemas/config.json), which editors can use for completion and checks.
"""
TOP = ("baseline", "base", "budget", "plugins", "machines")
TOP_TITLE = "The top level: `baseline`, `base`, `budget`, `plugins`, `machines`"
SECTIONS = {
    "plugin": "an entry of `plugins`, as a mapping",
    "machine": "an entry of `machines`",
    "run": "`run`: how to measure",
    "setup": "`setup`: how each side of a paired run is prepared",
    "compile": "`compile` of an entry",
    "compiled_arm": "an item of `arms` of an entry, as a mapping",
    "layout_options": "an item of `layouts` of an entry of `training_loss`, as a mapping",
    "checkpointing": "`checkpoint` of an entry of `training_loss`",
    "training_loss": "`suites.training_loss`: a list of entries, each with",
    "dataset": "`dataset` of an entry",
    "model": "`model` of an entry",
    "torchbench": "`suites.torchbench`: a list of entries, each with",
    "fastrnns": "`suites.fastrnns`: a list of entries, each with",
    "transformers": "`suites.transformers`: a list of entries, each with",
    "transformers_model": "`model` of an entry of `transformers`, as a mapping",
    "transformers_candidate": (
        "`candidate` of an entry of `transformers`, or an item of its `arms`, as a mapping"
    ),
    "sampling": "`sampling` of an entry of `transformers`",
    "functions": "`suites.functions`: a list of entries, each with",
    "command": "`suites.command`: a list of entries, each with",
    "command_losses": "`losses` of an entry of `command`",
    "command_metric": "`metrics` of an entry of `command`: a list of rules, each with",
    "policy": "`policy`: what fails the job",
    "severities": "`policy.severities`: what a finding does, by rule",
}


THRESHOLDS = """## `policy.thresholds`: built-in values, by metric

The smallest relative change that counts. [judging.md](judging.md#the-threshold) has the default for all other metrics.

| metric | what it is | threshold |
| --- | --- | --- |"""
KINDS = (
    ("any other number", "a score or a count that code or a tool reports", "score", Unit.COUNT),
    ("any other peak", "peak memory of another tool's process", "peak", Unit.BYTES),
)
"""Kinds of undeclared metrics: name and meaning for the page, and a metric of the kind with its
unit.
"""


def render() -> str:
    """Return the page."""
    schema = json.loads((ROOT / "schemas" / "config.json").read_text())
    parts = [
        INTRODUCTION,
        _table(schema, TOP_TITLE, {name: schema["properties"][name] for name in TOP}),
    ]
    parts += [
        _table(schema, title, schema["$defs"][name]["properties"])
        for name, title in SECTIONS.items()
    ]
    return "\n".join([*parts, _thresholds()])


def _table(schema: dict[str, Any], title: str, fields: dict[str, Any]) -> str:
    rows = [_row(schema, field, form) for field, form in fields.items()]
    return "\n".join(
        [f"## {title}", "", "| field | default | meaning |", "| --- | --- | --- |", *rows, ""]
    )


def _thresholds() -> str:
    """Render the thresholds of single metrics, then those of kinds of undeclared metrics."""
    rows = [
        f"| `{name}` | {kind.title} | {100 * kind.threshold:g}% |"
        for name, kind in find_metrics().items()
        if kind.threshold is not None
    ]
    for name, meaning, metric, unit in KINDS:
        rows.append(
            f"| {name} | {meaning} |"
            f" {100 * Policy().threshold(suite='any', metric=metric, unit=unit):g}% |"
        )
    return "\n".join([THRESHOLDS, *rows, ""])


def _row(schema: dict[str, Any], field: str, form: dict[str, Any]) -> str:
    target = _resolve(schema, form)
    meaning = form.get("description") or target.get("description", "")
    choices = target.get("enum") or form.get("else", {}).get("enum")
    if choices and field not in schema["$defs"]["severities"]["properties"]:
        meaning += " One of " + ", ".join(f"`{choice}`" for choice in choices) + "."
    default = f"`{json.dumps(form['default'])}`" if "default" in form else "–"
    return f"| `{field}` | {default} | {meaning} |"


def _resolve(schema: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    name = form.get("$ref", form.get("else", {}).get("$ref", ""))
    target: dict[str, Any] = schema["$defs"].get(name.rpartition("/")[2], form)
    return target


if __name__ == "__main__":
    sys.stdout.write(render())
