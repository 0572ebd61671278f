"""How many small defects in the judge its tests notice: a sample of mutants, each in a copy of the source.

``python -m benchmarks.mutation --mutants 200 --seed 10 --json mutation.json``

A mutant changes one place of a module of `ci_bench.judge`: a comparison, an arithmetic or boolean operator, a number, a negation.
It is put before the tests that have the module's name (``tests/judge/test_NAME.py``), which is stricter than the whole suite: a
mutant that other tests would notice may survive here. Places are drawn at random from all places of all such modules.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.tables import publish, render

ROOT = Path(__file__).resolve().parent.parent
JUDGE, TESTS = ROOT / "src" / "ci_bench" / "judge", ROOT / "tests" / "judge"
LIMIT_S = 300
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """A place, by its number in the walk of its module, and what becomes of it."""

    module: str
    place: int
    line: int
    change: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """What the tests said of a mutant: killed, survived, or timeout (which counts as killed)."""

    mutant: Mutant
    ended: str


def _changes(tree: ast.Module) -> Iterator[tuple[int, ast.AST, str]]:
    """Every place that can be changed, and the change in words; docstrings and annotations are none."""
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
            yield number, node, f"{type(node.ops[0]).__name__} to {_SWAPS[type(node.ops[0])].__name__}"
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
            yield number, node, f"{type(node.op).__name__} to {_SWAPS[type(node.op)].__name__}"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield number, node, "not is dropped"
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield number, node, f"{node.value!r} to {_other(node.value)!r}"


def _other(value: float) -> float:
    return not value if isinstance(value, bool) else value + 1


def mutants(module: Path) -> list[Mutant]:
    """All mutants of a module."""
    return [
        Mutant(module=module.stem, place=place, line=getattr(node, "lineno", 0), change=change)
        for place, node, change in _changes(ast.parse(module.read_text()))
    ]


def mutated(source: str, place: int) -> str:
    """The source with the change at one place."""
    tree = ast.parse(source)
    node = next(node for number, node, _ in _changes(tree) if number == place)
    if isinstance(node, ast.Compare):
        node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = _other(node.value)  # type: ignore[arg-type]
    elif isinstance(node, ast.UnaryOp):
        node.operand, node.op = ast.UnaryOp(op=ast.Not(), operand=node.operand), ast.Not()
    return ast.unparse(ast.fix_missing_locations(tree))


def judge(mutant: Mutant, folder: Path) -> Fate:
    """Put one mutant before its tests; `folder` holds a copy of the package."""
    path = folder / "ci_bench" / "judge" / f"{mutant.module}.py"
    sound = path.read_text()
    path.write_text(mutated(sound, mutant.place))
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS / f"test_{mutant.module}.py")]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, timeout=LIMIT_S, check=False)
        return Fate(mutant=mutant, ended="killed" if done.returncode else "survived")
    except subprocess.TimeoutExpired:
        return Fate(mutant=mutant, ended="timeout")
    finally:
        path.write_text(sound)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw mutants, judge them, print and write the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    tested = [path for path in sorted(JUDGE.glob("*.py")) if (TESTS / f"test_{path.stem}.py").exists()]
    every = [mutant for path in tested for mutant in mutants(path)]
    random.Random(arguments.seed).shuffle(every)  # noqa: S311 - a sample is no secret
    fates: list[Fate] = []
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(ROOT / "src" / "ci_bench", Path(name) / "ci_bench", symlinks=False)
        for mutant in every[: arguments.mutants]:
            fates.append(judge(mutant, Path(name)))
            killed = sum(fate.ended != "survived" for fate in fates)
            rows = [{"mutants": f"{len(fates)} of {len(every)}", "killed": str(killed), "score": f"{killed / len(fates):.0%}"}]
            publish(
                render("Mutants of the judge", rows),
                {"places": len(every), "fates": [asdict(fate) for fate in fates]},
                arguments.json,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
