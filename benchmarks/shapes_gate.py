"""Gates hundreds of shapes of one operator by two providers in one paired gate.

It shows whether the gate ends within its budget, and its verdicts.

Run as ``python -m benchmarks.shapes_gate [--shapes 504] [--budget 30m] [--slower 1.08]``. It makes
a repository with a library of one operator (a chain of elementwise steps) and its benchmark, on the
CPU. With `--slower`, head takes so many times as long for the twelve shapes of one number of rows;
else base and head are the same code. Everything is as a user would have it: the command, its
configuration, its page.

The budget is of measuring; making both sides ready comes before it, judging and the page after.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tables import publish, render

COLUMNS, ROUNDS, SLOWER_ROWS = 12, 50, 96
LIBRARY = '''
"""Smooths the rows of a matrix."""


def smooth(x):
    for _ in range({rounds}):
        x = (x + 1.0).mul_(0.5)
    return x
'''
PLANTED = '''
"""Smooths the rows of a matrix."""


def smooth(x):
    for _ in range({slower} if x.shape[0] == {rows} else {rounds}):
        x = (x + 1.0).mul_(0.5)
    return x
'''
BENCHMARK = """
import mylib

import ci_bench

SHAPES = [(rows, columns) for rows in range(8, 8 + 8 * {rows}, 8) \
for columns in range(8, 8 + 8 * {columns}, 8)]


@ci_bench.benchmark(shapes=SHAPES)
def smooth(shape):
    (x,) = ci_bench.inputs(1, shape)
    return lambda: mylib.smooth(x)


@smooth.provider("plain", reference=True)
def _(shape):
    (x,) = ci_bench.inputs(1, shape)

    def step():
        y = x
        for _ in range({rounds}):
            y = (y + 1.0) / 2.0
        return y

    return step
"""
CONFIGURATION = """
schema_version: 1
run:
  threads: 1
  sample_s: 0.001
  blocks: 5
suites:
  functions:
    - path: benchmarks
policy:
  default_threshold: 5%
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """One gate."""

    wall_s: float
    """The wall time of the command (s)."""
    measured_s: float
    """The seconds of measuring in it."""
    exit_code: int
    """The exit code of the command."""
    cases: int
    """The number of cases in the results."""
    statuses: Counter[str]
    """The number of cases of each status."""
    verdicts: Counter[str]
    """The number of step times of each verdict."""
    headline: str
    """The headline of the comparison."""
    page_bytes: int
    """The size of the HTML report (bytes)."""


def _git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    subprocess.run(("git", *author, *words), cwd=folder, check=True, stdout=subprocess.DEVNULL)


def make(folder: Path, *, shapes: int, slower: float | None) -> None:
    """Create a repository of two commits; the second has the slower library, if any."""
    (folder / "benchmarks").mkdir()
    (folder / "mylib.py").write_text(LIBRARY.format(rounds=ROUNDS))
    grid = {"rows": shapes // COLUMNS, "columns": COLUMNS, "rounds": ROUNDS}
    (folder / "benchmarks" / "smooth.py").write_text(BENCHMARK.format(**grid))
    (folder / "ci-bench.yml").write_text(CONFIGURATION)
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "base")
    if slower is not None:
        rounds = round(ROUNDS * slower)
        (folder / "mylib.py").write_text(
            PLANTED.format(rounds=ROUNDS, slower=rounds, rows=SLOWER_ROWS)
        )
    _git(folder, "commit", "--quiet", "--all", "--allow-empty", "--message", "head")


def gate(folder: Path, output: Path, *, budget: str) -> Gate:
    """Run the command as a user types it."""
    command = (
        sys.executable,
        "-m",
        "ci_bench.cli",
        "gate",
        "--baseline",
        "paired",
        "--budget",
        budget,
        "--output",
        str(output),
    )
    begun = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL)
    wall_s = time.perf_counter() - begun
    results = json.loads((output / "results.json").read_text())
    comparison = json.loads((output / "comparison.json").read_text())
    rows: list[dict[str, Any]] = comparison["cases"]
    pairs = [pair for row in rows for pair in row["pairs"] if pair["metric"] == "step_time"]
    return Gate(
        wall_s=wall_s,
        measured_s=results["measured_s"],
        exit_code=ended.returncode,
        cases=len(results["cases"]),
        statuses=Counter(row["status"] for row in results["cases"]),
        verdicts=Counter(pair["verdict"] for pair in pairs),
        headline=comparison["judgement"]["headline"],
        page_bytes=(output / "report.html").stat().st_size,
    )


def main() -> None:
    """Gate, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", type=int, default=504)
    parser.add_argument("--budget", default="30m")
    parser.add_argument(
        "--slower", type=float, help="head takes so many times as long for twelve of the shapes"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the documents and the page")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "repository"
        folder.mkdir()
        make(folder, shapes=options.shapes, slower=options.slower)
        result = gate(folder, options.keep or Path(scratch) / "output", budget=options.budget)
    row = {
        "cases": str(result.cases),
        "budget": options.budget,
        "measured (s)": f"{result.measured_s:.0f}",
        "whole command (s)": f"{result.wall_s:.0f}",
        "statuses": ", ".join(f"{count} {name}" for name, count in result.statuses.most_common()),
        "verdicts of step time": ", ".join(
            f"{count} {name}" for name, count in result.verdicts.most_common()
        ),
        "exit code": str(result.exit_code),
        "page (MB)": f"{result.page_bytes / 1e6:.1f}",
    }
    title = f"One gate of {result.cases} shapes by two providers"
    publish(
        f"{render(title, [row])}\n{result.headline}",
        {"gate": row, "headline": result.headline},
        options.json,
    )


if __name__ == "__main__":
    main()
