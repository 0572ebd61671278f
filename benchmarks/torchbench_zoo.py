"""Measures real backends on the embedded zoo: accuracy, its margin, and compile time.

Run as ``python -m benchmarks.torchbench_zoo [--backend inductor] [--scope model] [--precision fp32]
[--json FILE]``. One process, one thread, fresh compiler cache; the score is the largest error over
what rounding allows (above 1 fails).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import publish, render
from ci_bench.records.results import Case
from ci_bench.suites.contract import Context, Evidence, no_mark
from ci_bench.suites.torchbench.plan import SUITE

STEPS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Verify every model in both modes, print the table, write JSON if asked.

    Exit code 1 where one is not accurate.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--scope", default="model", choices=("model", "step"))
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--models", nargs="*", help="these alone")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    entry: dict[str, Any] = {
        name: getattr(arguments, name) for name in ("backend", "scope", "precision")
    }
    if arguments.models:
        entry["models"] = arguments.models
    rows = [measure(case) for case in SUITE.plan(entry)]
    passed = sum(row["accuracy"] == "pass" for row in rows)
    title = (
        f"{arguments.backend}, {arguments.precision}, scope {arguments.scope}: {passed} of"
        f" {len(rows)} accurate"
    )
    publish(
        render(title, [{name: str(value) for name, value in row.items()} for row in rows]),
        {"rows": rows},
        arguments.json,
    )
    return 0 if passed == len(rows) else 1


def measure(case: Case) -> Mapping[str, str]:
    """Measure one case: accuracy with its score, and seconds of steps.

    These are eager and compiled seconds per step, and those of the first compiled step.
    """
    import torch

    from ci_bench.suites.torchbench.run import open_workload

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        context = Context(
            device="cpu", scratch=Path(folder), progress=lambda _arm, _done, _total: None
        )
        torch.compiler.reset()
        workload = open_workload(case, context)
        times = {}
        for arm in case.arms:
            program = workload.open(arm)
            first_s = _seconds(lambda program=program: program.step(no_mark))
            times[arm] = (
                first_s,
                min(_seconds(lambda program=program: program.step(no_mark)) for _ in range(STEPS)),
            )
        evidence = workload.verify(case.arms)
    eager_s, compiled_s = (times[arm][1] for arm in case.arms)
    return {
        "model": case.name,
        "mode": str(case.params["mode"]),
        **_answers(evidence),
        "eager (ms)": f"{eager_s * 1e3:.2f}",
        "compiled (ms)": f"{compiled_s * 1e3:.2f}",
        "first step (s)": f"{times[case.arms[1]][0]:.1f}",
    }


def _answers(evidence: Evidence) -> dict[str, str]:
    """Return the word of the accuracy check, its score, and the runner rule's word."""
    words = {check.name: check.detail.partition(":")[0] for check in evidence.checks}
    score = evidence.facts.get("accuracy_score")
    text = f"{score:.2f}" if isinstance(score, float) else "-"
    return {
        "accuracy": words["accuracy"],
        "score": text,
        "runner_rule": words.get("runner_rule", "-"),
    }


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
