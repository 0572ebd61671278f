"""Gates the example of a training loop that yields its steps, with `ci-bench gate`.

Run as ``python -m benchmarks.example_loop [--heads same slower faulty] [--json FILE]``. Base is
`examples/training_loop`, with its own configuration; head is the same, or has one line of it
otherwise: a forward pass more in each micro-batch, or micro-batches that are added up and not
averaged.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.sample_repository import commit, git
from benchmarks.slow_rank import Gate, gate
from benchmarks.tables import publish, render

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "training_loop"
LOSS = "cross_entropy(model(rows).flatten(0, 1), rows.roll(1, 1).flatten()) / PARTS"
HEADS: Mapping[str, tuple[str, str]] = {
    "same": (LOSS, LOSS),
    "slower": ("            loss = ", "            model(rows)\n            loss = "),
    "faulty": (LOSS, LOSS.removesuffix(" / PARTS")),
}
"""By head: what of the example is replaced, and by what."""


def main(argv: Sequence[str] | None = None) -> int:
    """Gate, print the table, write JSON if asked. 1 where a head does not end as it has to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", nargs="+", choices=tuple(HEADS), default=tuple(HEADS))
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        repository = Path(temporary) / "repository"
        make(repository)
        for head in arguments.heads:
            plant(repository, head)
            outcome = gate(repository, Path(temporary) / f"out-{head}")
            rows.append(dict(_row(head, outcome)))
            wrong += (outcome.exit_code == 0) is not (head == "same")
            sys.stderr.write(f"{rows[-1]}\n")
    publish(render("The example of a training loop", rows), {"rows": rows}, arguments.json)
    return int(wrong > 0)


def make(folder: Path) -> None:
    """Create a repository whose base is the example."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "base")
    git(folder, "tag", "base")


def plant(folder: Path, head: str) -> None:
    """Check out that head; of the same code another file is new."""
    git(folder, "checkout", "--quiet", "base")
    program, (before, after) = (EXAMPLE / "trainer.py").read_text(), HEADS[head]
    assert program.count(before) == 1, "the example has another line"  # noqa: S101 - our own bug if not
    (folder / "trainer.py").write_text(program.replace(before, after))
    (folder / "NOTES").write_text(head)
    commit(folder, head)


def _row(head: str, outcome: Gate) -> Iterator[tuple[str, str]]:
    (case,) = outcome.comparison.cases
    step, learned = outcome.pair("step_time", "loop"), case.learning
    yield "head", head
    yield "exit code", str(outcome.exit_code)
    yield "losses", "–" if learned is None else f"{learned.verdict}: {learned.detail}"[:160]
    yield (
        "step",
        (
            "–"
            if step is None or step.speedup is None
            else f"{step.verdict}, {1 / step.speedup - 1:+.1%}"
        ),
    )
    yield (
        "could be told",
        ("–" if step is None or step.resolvable is None else f"{step.resolvable:.1%}"),
    )
    yield "s", f"{outcome.seconds:.0f}"


if __name__ == "__main__":
    sys.exit(main())
