"""The tests of a card, though there is none: which tiers there are, and that each figure they print has its row in the docs."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GPU = ROOT / "tests" / "gpu"
HEADING = "## A card, by its tests\n"


def figures():
    """The names of figures as patterns, since some have a parameter in them."""
    for path in sorted(GPU.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "figure":
                name = node.args[0]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)


def rows():
    table = (ROOT / "docs" / "measurements.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    return [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")][2:]


def test_each_figure_has_its_row_and_each_row_a_figure():
    patterns, names = [*figures()], rows()
    assert len(names) > 10
    assert [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)] == []


def test_each_tier_is_there_and_each_test_of_a_card_is_in_one():
    (tiers,) = re.findall(r"^TIER \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    chosen = [path for tier in tiers.split() for path in GPU.glob(f"*{tier}*")]
    assert len(chosen) == len({*chosen}) == len(tiers.split()), "one file or folder for each"
    assert {*chosen} == {path for path in GPU.iterdir() if path.name.startswith("test_") or path.name == "contract"}
