"""Counts the wrong results that each rule of numbers accepts, and the right ones it refuses.

Run as ``python -m benchmarks.numerics_gallery [--seeds N] [--json FILE]``. CPU only, one thread.
Right results are the same small works computed in other ways (`numerics_works`), wrong ones have a
planted fault (`numerics_faults`); both in four precisions. A fault is counted where it is due:
where it is larger than what rounding does in that format. Returns 1 where our rule errs.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.numerics_faults import FAULTS, Fault
from benchmarks.numerics_rules import RULES, Trial, make_trial
from benchmarks.numerics_works import PRECISIONS, WORKS, Tensors, draw, run
from benchmarks.tables import publish, render
from ci_bench.records.results import Outcome

OURS = "ci-bench"
ANOTHER = 500
"""Added to the seed of the step whose result is stale."""


def main(argv: Sequence[str] | None = None) -> int:
    """Score every rule, print the tables, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="starts of each work and precision")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    right, wrong = score(range(arguments.seeds))
    text = render("Right results refused, wrong results accepted", _rows(right, wrong))
    text += "\n" + render("Wrong results accepted, by fault", _faults(wrong))
    figures = {"right": _as_rows(right), "wrong": _as_rows(wrong)}
    publish(text, figures, arguments.json)
    return int(bool(_count(right, OURS, bad=True) or _count(wrong, OURS, bad=True)))


Score = Counter[tuple[str, str, str, bool]]
"""By rule, precision, name and whether the answer was bad."""


def score(seeds: Sequence[int]) -> tuple[Score, Score]:
    """Return the answers to all right and to all wrong results."""
    right: Score = Counter()
    wrong: Score = Counter()
    for work in WORKS:
        for precision in PRECISIONS:
            for seed in seeds:
                trial = make_trial(work, precision, seed)
                for name, way in work.ways.items():
                    result = run(way, trial.numbers, precision)
                    for rule, judge in RULES.items():
                        right[
                            rule,
                            precision,
                            f"{work.name}: {name}",
                            judge(result, trial) is not Outcome.PASS,
                        ] += 1
                for fault, result in spoilt(trial):
                    for rule, judge in RULES.items():
                        wrong[
                            rule, precision, fault.name, judge(result, trial) is Outcome.PASS
                        ] += 1
    return right, wrong


def spoilt(trial: Trial) -> Iterator[tuple[Fault, Tensors]]:
    """Yield every fault that is due in the trial's precision, with the wrong result."""
    work, precision = trial.work, trial.precision
    result = run(work.reference, trial.numbers, precision)
    before = run(work.reference, draw(work, precision, trial.numbers.seed + ANOTHER), precision)
    for fault in FAULTS:
        if precision not in fault.seen_in or not fault.applies_to(work.name):
            continue
        if fault.ways is not None:
            yield fault, run(fault.ways[work.name], trial.numbers, precision)
        elif fault.spoil is not None:
            yield fault, fault.spoil(result, before)


def _count(
    scores: Score,
    rule: str,
    *,
    bad: bool | None = None,
    precision: str | None = None,
    name: str | None = None,
) -> int:
    return sum(
        count
        for (of, in_, called, failed), count in scores.items()
        if of == rule
        and (bad is None or failed is bad)
        and (precision is None or in_ == precision)
        and (name is None or called == name)
    )


def _rows(right: Score, wrong: Score) -> list[dict[str, str]]:
    def describe(scores: Score, rule: str, precision: str) -> str:
        bad = _count(scores, rule, bad=True, precision=precision)
        return f"{bad}/{_count(scores, rule, precision=precision)}"

    return [
        {
            "rule": rule,
            **{
                f"right refused, {precision}": describe(right, rule, precision)
                for precision in PRECISIONS
            },
            **{
                f"wrong accepted, {precision}": describe(wrong, rule, precision)
                for precision in PRECISIONS
            },
        }
        for rule in RULES
    ]


def _faults(wrong: Score) -> list[dict[str, str]]:
    return [
        {
            "fault": fault.name,
            "in": "all" if fault.seen_in == PRECISIONS else ", ".join(fault.seen_in),
            "planted": str(_count(wrong, OURS, name=fault.name)),
            **{rule: str(_count(wrong, rule, bad=True, name=fault.name)) for rule in RULES},
        }
        for fault in FAULTS
    ]


def _as_rows(scores: Score) -> list[dict[str, object]]:
    return [
        {"rule": rule, "precision": precision, "name": name, "bad": bad, "count": count}
        for (rule, precision, name, bad), count in sorted(scores.items())
    ]


if __name__ == "__main__":
    sys.exit(main())
