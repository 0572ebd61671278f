"""Measures how many small defects in the judge its tests notice.

Each mutant is run through only the tests that run its line.

``python -m benchmarks.mutation --fates fates.jsonl`` tries all mutants, ``--mutants 400 --seed 10``
a random sample, and continues an interrupted run; ``--again`` tries those that survived once more,
``--module sequential`` only those of one module.

The mutants are those of `mutants`; tests of speed are left out. Tests that `make test` leaves out
come last: a mutant that one of them kills is killed by no quick test, and the table counts it
separately. `equivalent_mutants.toml` names those that change nothing that anybody could see, with
the reason of each; the score leaves them out. A mutant that makes a test hang is killed.

Why not mutmut or cosmic-ray: mutmut 3.8 changes 8,600 places, texts and arguments above all, but no
constant or default, and takes the tests of a function for those of each line; cosmic-ray changes
the checkout itself and starts pytest again for each.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutants import Mutant, mutants, text_of
from benchmarks.mutation_trial import Bench, options, reaching
from benchmarks.tables import render

ROOT = Path(__file__).resolve().parent.parent
JUDGE = ROOT / "src" / "ci_bench" / "judge"
EQUIVALENT = Path(__file__).parent / "equivalent_mutants.toml"
KILLED, SURVIVED, NOT_COVERED = "killed", "survived", "not covered"
LATE = "by test-all alone"


def sources() -> dict[str, Path]:
    """Return the modules of the judge."""
    return {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts): path
        for path in sorted(JUDGE.rglob("*.py"))
    }


def short(module: str) -> str:
    """Return the name of a module of the judge in the table."""
    return module.rpartition(".")[2]


def equivalents() -> dict[tuple[str, str, str], str]:
    """Return the reason of each mutant that changes nothing, by module, line and change."""
    rows = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return {
        (f"ci_bench.judge.{row['module']}", row["text"], change): row["why"]
        for row in rows
        for change in row["changes"]
    }


def scores(
    fates: Sequence[Mapping[str, Any]], equal: Mapping[tuple[str, str, str], str]
) -> list[dict[str, str]]:
    """Return a row for each module, and one for all.

    The score is killed over all but the equivalent. Of the killed, those that no test of `make
    test` notices are counted separately, too.
    """
    counts: dict[str, Counter[str]] = {}
    for fate in fates:
        same = fate["ended"] != KILLED and (fate["module"], fate["text"], fate["change"]) in equal
        for name in (short(fate["module"]), "all"):
            counts.setdefault(name, Counter())["equivalent" if same else fate["ended"]] += 1
            counts[name][LATE] += fate.get("thorough", False)
    return [
        _row(name, counts[name])
        for name in (*sorted(set(counts) - {"all"}), "all")
        if name in counts
    ]


def _row(name: str, count: Counter[str]) -> dict[str, str]:
    mutants = count.total() - count[LATE]
    judged = mutants - count["equivalent"]
    ends = {end: str(count[end]) for end in (KILLED, LATE, SURVIVED, NOT_COVERED, "equivalent")}
    return {
        "module": name,
        "mutants": str(mutants),
        **ends,
        "score": f"{count[KILLED] / judged:.1%}" if judged else "-",
    }


def chosen(arguments: argparse.Namespace, fates: Mapping[str, Mapping[str, str]]) -> list[Mutant]:
    """Return the mutants to try now."""
    every = [
        mutant for module, path in sources().items() for mutant in mutants(module, text_of(path))
    ]
    random.Random(arguments.seed).shuffle(every)  # noqa: S311 - a sample is no secret
    sample = [
        mutant
        for mutant in every[: arguments.mutants]
        if arguments.module in {None, short(mutant.module)}
    ]
    if arguments.again:
        equal = equivalents()
        open_ones = [
            mutant
            for mutant in sample
            if fates.get(mutant.key, {"ended": KILLED})["ended"] != KILLED
        ]
        return [
            mutant
            for mutant in open_ones
            if (mutant.module, mutant.text, mutant.change) not in equal
        ]
    return [mutant for mutant in sample if mutant.key not in fates]


def read(fates: Path) -> dict[str, dict[str, str]]:
    """Return the fates of an earlier run, by the mutants' keys; the last line of each counts."""
    lines = fates.read_text().splitlines() if fates.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


def trial(bench: Bench, waiting: Sequence[Mutant], fates: Path) -> None:
    """Put mutants before their tests, and write each one's fate when it is known."""
    paths = sources()
    reaches = bench.reach(paths)
    kills: Counter[tuple[str, str]] = Counter()
    for number, mutant in enumerate(waiting, start=1):
        tests = reaching(mutant, reaches, paths, kills)
        killer = bench.killer(mutant, paths[mutant.module], tests, reaches) if tests else ""
        kills[f"{mutant.module} {mutant.owner}", killer] += 1
        ended = (KILLED if killer else SURVIVED) if tests else NOT_COVERED
        row = {
            "key": mutant.key,
            "module": mutant.module,
            "line": mutant.lines[0],
            "text": mutant.text,
            "change": mutant.change,
        }
        with fates.open("a") as stream:
            left_out = killer in reaches and reaches[killer].thorough
            stream.write(
                json.dumps(
                    {**row, "ended": ended, "by": killer, "thorough": left_out, "tests": len(tests)}
                )
                + "\n"
            )
        if sys.__stderr__ is not None:
            sys.__stderr__.write(
                f"{number} of {len(waiting)}: {ended}  {mutant.module}:{mutant.lines[0]}"
                f" {mutant.change}\n"
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Draw mutants, try them, print the scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fates", type=Path, required=True, metavar="FILE", help="a line of JSON for each mutant"
    )
    parser.add_argument("--mutants", type=int, help="so many, drawn at random; all unless told")
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--module", help="only of this one: sequential, policy, ...")
    parser.add_argument(
        "--again",
        action="store_true",
        help="those that survived, or that no test reached, once more",
    )
    parser.add_argument(
        "--tests", nargs="*", default=["tests/judge"], help="files or folders of tests"
    )
    parser.add_argument("--tell", action="store_true", help="try none, print the scores")
    arguments = parser.parse_args(argv)
    waiting = [] if arguments.tell else chosen(arguments, read(arguments.fates))
    if waiting:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["MUTANTS_FOLDER"] = folder
            bench = Bench(lambda bench: trial(bench, waiting, arguments.fates.resolve()))
            os.chdir(ROOT)
            pytest.main([*options(Path(folder) / "once"), *arguments.tests], plugins=[bench])
    current = {
        mutant.key
        for module, path in sources().items()
        for mutant in mutants(module, text_of(path))
    }
    fates = [row for key, row in read(arguments.fates).items() if key in current]
    sys.stdout.write(render("Mutants of the judge", scores(fates, equivalents())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
