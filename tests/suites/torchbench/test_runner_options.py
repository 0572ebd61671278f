"""The page's table of the dynamo runner's options: each is there once, with a state, and what it names of ours exists.

`dynamo_runner_options.txt` are the long options of `benchmarks/dynamo/common.py` as
pytorch/benchmark 0e83c440 (August 2026) has it, in its order.
"""

import json
import re
from collections import Counter

import pytest
from torchbench_builders import FIXTURES

from ci_bench.suites.registry import find_metrics
from ci_bench.suites.shared.planning.arms import Experiment

ROOT = FIXTURES.parents[1]
OPTIONS = (FIXTURES / "dynamo_runner_options.txt").read_text().split()
STATES = (
    "works",
    "in part: ",
    "skipped where ",
    "not there: ",
    "not there on purpose: ",
    "not there yet",
    "not in this suite",
)


def rows():
    """Option names, what stands for them here, and the state, of each row."""
    page = (ROOT / "docs/internals/dynamo_runner.md").read_text()
    section = page.partition("## The dynamo runner's options")[2].partition("\n## ")[0]
    cells = [
        line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `--")
    ]
    return [(re.findall(r"--[A-Za-z0-9_-]+", names), here, state) for names, here, state in cells]


def test_every_option_of_the_runner_is_in_the_table_once():
    # --only is there twice: for names, and for a user's own file
    listed = Counter(name for names, _, _ in rows() for name in names)
    assert set(OPTIONS) - set(listed) == set()
    assert set(listed) - set(OPTIONS) == set()
    assert [name for name, times in listed.items() if times > 1] == ["--only"]


@pytest.mark.parametrize(
    ("names", "here", "state"), rows(), ids=[names[0] for names, _, _ in rows()]
)
def test_each_row_has_a_state_and_names_what_exists(names, here, state):
    assert state.startswith(STATES), state
    assert (here == "–") <= state.startswith("not"), "what has nothing here says why"
    told = {
        word
        for quoted in re.findall(r"`([^`]+)`", here)
        for word in re.findall(r"[a-z_.-]+", quoted.partition(":")[0])
    }
    unknown = {word for word in told if word.removeprefix("run.") not in vocabulary()}
    assert unknown == set(), names


def vocabulary():
    """Fields of the configuration, experiments, metrics, and the few words that are neither."""
    schema = json.loads((ROOT / "schemas/config.json").read_text())

    def fields(node):
        if isinstance(node, dict):
            yield from node.get("properties", {})
            for value in node.values():
                yield from fields(value)
        elif isinstance(node, list):
            for value in node:
                yield from fields(value)

    metrics = set(find_metrics())
    others = {
        "openxla",
        "torch_tensorrt",
        "ts",
        "own",
        "path",
        "results.json",
        "convert",
        "--to",
        "dynamo-csv",
        "oss-benchmark",
        "gate",
        "skip_accuracy",
    }
    flags = {"--output", "--baseline", "paired", "compile_cold_", "compiled", "accuracy_score"}
    return {*fields(schema), *map(str, Experiment), *metrics, *others, *flags}
