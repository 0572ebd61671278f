"""Renders docs/internals/reliability.md from the table of faults and the measured figures.

Run as ``python tools/render_reliability.py > docs/internals/reliability.md``; with ``--tests`` it
prints the tests of the table, for ``python -m pytest $(python tools/render_reliability.py
--tests)``. A test compares the committed page with the output.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FIGURES = ROOT / "docs" / "internals" / "reliability_figures.md"
# ruff: noqa: E501 - lines of a page, not of code
INTRODUCTION = """# Reliability

Faults, and how ci-bench handles them. The linked test shows each row; all of them run with

```sh
make faults
```

No fault loses finished measurements: ci-bench rewrites `results.json` completely as cases end, and every planned case has exactly one
row. (With hundreds of cases a write takes long. It then happens only as often as costs 5 % of the run; a killed run repeats the cases
since the last write.) The [README](../../README.md) lists the exit codes, and [SECURITY.md](../../SECURITY.md) has the threat model.

This page is generated from [tests/faults/table.py](../../tests/faults/table.py).
"""


def table() -> dict[str, tuple[Any, ...]]:
    """Return the rows by topic."""
    spec = importlib.util.spec_from_file_location("faults_table", TESTS / "faults" / "table.py")
    assert spec is not None  # noqa: S101 - the path ends in .py
    assert spec.loader is not None  # noqa: S101 - likewise
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    rows: dict[str, tuple[Any, ...]] = module.TABLE
    return rows


def render() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for title, rows in table().items():
        lines = [f"| {row.fault} | {row.expected} | {_link(row.test)} |" for row in rows]
        parts.append(
            "\n".join(
                [
                    f"## {title}",
                    "",
                    "| what happens | what is expected | shown by |",
                    "| --- | --- | --- |",
                    *lines,
                    "",
                ]
            )
        )
    return "\n".join([*parts, FIGURES.read_text()])


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../../tests/{file})"


def main() -> None:
    """Print the page, or the tests."""
    if sys.argv[1:] == ["--tests"]:
        tests = dict.fromkeys(f"tests/{row.test}" for rows in table().values() for row in rows)
        sys.stdout.write("\n".join(tests) + "\n")
    else:
        sys.stdout.write(render())


if __name__ == "__main__":
    main()
