"""Measures how often honest runs leave the envelope of other perturbed ones, by precision.

The training is the embedded one.

Run as ``python -m benchmarks.envelope_of_runs [--precision NAME]… [--seeds N] [--json FILE]``. An
honest run is one more perturbed training: it differs from the reference by one rounding. Each is
judged as a candidate in envelopes of 1, 3 and 6 of the others, drawn at random; beyond ten widths
it is called different math.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench.judge.parity.envelope import LIMIT
from ci_bench.judge.parity.verdict import numeric_finding
from ci_bench.records.results import Masks, ParityEvidence, Role
from ci_bench.suites.contract import Context
from ci_bench.suites.training_loss.plan import SUITE

COUNTS = (1, 3, 6)
RUNS = 10
"""Perturbed trainings of each seed: as many as a configuration may ask for."""
DRAWN = 60
"""Envelopes that each run is compared with, if there are more to choose from."""


def main(argv: Sequence[str] | None = None) -> int:
    """Train, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--precision",
        action="append",
        help="of the embedded training; fp32, bf16 and amp_bf16 where left out",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    rows = []
    for precision in arguments.precision or ["fp32", "bf16", "amp_bf16"]:
        for seed in range(arguments.seeds):
            evidence = trained(precision, seed)
            cells = {f"of {count}": _cell([*scores(evidence, count)]) for count in COUNTS}
            rows.append({"precision": precision, "seed": str(seed), **cells})
            sys.stderr.write(f"{rows[-1]}\n")
    publish(
        render(f"Honest runs beyond {LIMIT:g} widths of the envelope of others", rows),
        {"rows": rows},
        arguments.json,
    )
    return 0


def trained(precision: str, seed: int) -> ParityEvidence:
    """Train the reference, and runs from shaken weights."""
    from ci_bench.suites.training_loss.run import open_workload

    (case,) = SUITE.plan(
        {
            "backend": "eager",
            "evaluation": False,
            "precision": precision,
            "seed": seed,
            "perturbations": RUNS,
            "epochs": 1,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        workload = open_workload(
            case, Context(device="cpu", scratch=Path(folder), progress=lambda *_: None)
        )
        workload.prepare()
        evidence = workload.verify((case.reference,)).parity
    if evidence is None:
        raise SystemExit("nothing was trained, so nothing can be said of envelopes")
    return evidence


def scores(evidence: ParityEvidence, count: int) -> Iterator[float]:
    """Yield the score of each run as a candidate, in envelopes of `count` others."""
    draw = random.Random(count)  # noqa: S311 - not a secret
    (reference,) = (run for run in evidence.traces if run.role is Role.REFERENCE)
    runs = [run for run in evidence.traces if run.role is Role.PERTURBED]
    for run in runs:
        honest = replace(run, role=Role.CANDIDATE, arm="honest", start=reference.start)
        others = [other for other in runs if other is not run]
        chosen = (
            [[other] for other in others]
            if count == 1
            else [draw.sample(others, count) for _ in range(DRAWN)]
        )
        for some in chosen:
            finding = numeric_finding(
                replace(evidence, traces=(reference, honest, *some)), honest, Masks.ALIGNED
            )
            yield max(finding.loss_score or 0.0, finding.grad_norm_score or 0.0)


def _cell(run_scores: Sequence[float]) -> str:
    beyond = sum(score > LIMIT for score in run_scores)
    return f"{beyond} of {len(run_scores)}, largest score {max(run_scores):.3g}"


if __name__ == "__main__":
    sys.exit(main())
