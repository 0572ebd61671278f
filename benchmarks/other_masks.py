"""Counts verdicts on backends with dropout masks of their own: right ones, and ones with a fault.

Run as ``python -m benchmarks.other_masks [--precision NAME]… [--seeds N] [--json FILE]``. Each
problem of `benchmarks.learning_problems` with dropout is trained for 120 steps with every backend,
by the suite `training_loss` itself, and judged. The backends are those of
`tests/fixtures/plain_backends.py`.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.learning_problems import CLASSES, PROBLEMS, ROWS, batches, model_of
from benchmarks.tables import publish, render
from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.suites.contract import Context
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import open_workload

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
STEPS = 120
RIGHT = ("drawing", "own_generator", "tuning")
WRONG = tuple(
    f"drawing_and_{fault}"
    for fault in ("scaled", "late", "redrawn", "halving", "sharing", "doubling", "keeping")
)
USED = {
    problem.name: problem for problem in PROBLEMS if problem.dropout and problem.model != "lstm"
}
OPTIMIZERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {"betas": [0.9, 0.99], "weight_decay": 0.1}),
    "sgd": ("SGD", {"momentum": 0.9}),
    "lion": ("AdamW", {"betas": [0.9, 0.99], "weight_decay": 0.1}),  # the suite has no Lion
    "adafactor": ("Adafactor", {}),
}


class Trained(nn.Module):
    """A problem's model as the suite takes it."""

    def __init__(self, problem: str) -> None:
        """Build the model from torch's present random numbers."""
        super().__init__()
        self.inner = model_of(USED[problem], {}, int(torch.randint(1 << 30, ())))

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        """Return loss and logits."""
        logits = self.inner(tokens)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


def rows(split: str, count: int) -> dict[str, Tensor]:
    """Return the rows of a problem: tokens, and the class that follows from them."""
    drawn = [*batches(next(iter(USED.values())), 0 if split == "train" else 1, -(-count // ROWS))]
    tokens, labels = (torch.cat(parts)[:count] for parts in zip(*drawn, strict=True))
    return {"tokens": tokens, "labels": labels}


def verdicts(problem: str, precision: str, seeds: int) -> dict[str, str]:
    """Train a problem with all backends; return the verdict of each."""
    optimizer, options = OPTIMIZERS[USED[problem].optimizer]
    torch.compiler.reset()
    (case,) = SUITE.plan(
        {
            "name": "problem",
            "backend": [f"plain_backends:{name}" for name in (*RIGHT, *WRONG)],
            "epochs": 1,
            "num_samples": ROWS * STEPS,
            "batch_size": ROWS,
            "seeds": seeds,
            "precision": precision,
            "evaluation": False,
            "optimizer": optimizer,
            "optimizer_options": options,
            "lr": USED[problem].rate,
            "dataset": {"factory": f"{__name__}:rows", "num_labels": CLASSES},
            "model": {"factory": f"{__name__}:Trained", "options": {"problem": problem}},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        context = Context(
            device="cpu", scratch=Path(folder), progress=lambda _arm, _done, _total: None
        )
        workload = open_workload(case, context)
        workload.prepare()
        evidence = workload.verify(case.arms).parity
    assert evidence is not None  # noqa: S101 - this suite always gathers it
    return {
        finding.arm.partition(":")[2]: f"{finding.verdict}: {finding.detail}"
        for finding in parity_findings(evidence)
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--precision", action="append", help="default: fp32 and amp_bf16")
    parser.add_argument("--seeds", type=int, default=3, help="whole trainings of each arm")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(FIXTURES))
    torch.set_num_threads(1)
    begun, lines = time.monotonic(), []
    for precision in arguments.precision or ["fp32", "amp_bf16"]:
        counts: dict[str, Counter[str]] = {name: Counter() for name in (*RIGHT, *WRONG)}
        for problem in USED:
            for name, verdict in verdicts(problem, precision, arguments.seeds).items():
                counts[name][verdict.partition(":")[0]] += 1
                sys.stderr.write(f"{precision} | {problem} | {name} | {verdict}\n")
        for name, count in counts.items():
            counted = ", ".join(f"{verdict} {number}" for verdict, number in sorted(count.items()))
            lines.append({"precision": precision, "backend": name, "verdicts": counted})
    took = f"{len(USED)} problems, {time.monotonic() - begun:.0f} s"
    text = render(f"Backends with dropout masks of their own: {took}", lines)
    publish(text, {"rows": lines}, arguments.json)


if __name__ == "__main__":
    main()
