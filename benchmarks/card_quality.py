"""Measures how often a gate on a GPU is right: `ci-bench gate` on the tests' simulated card.

Run as ``python -m benchmarks.card_quality [--unchanged N] [--planted N] [--cases N] --keep FILE``.
Each gate measures both commits of a small repository in turns, by the default policy, with the
machine's calibration. A case is a chain of twenty kernels; planted is one more in each (+5 %). The
card and the host's time are simulated (`tests/fixtures/simulated_device`, `host_s`), so a gate
costs the time of its processes, and other work on the machine changes no sample; everything else is
the product. Each gate draws the spread again: 0.3 % between processes (0.42 % between the sides of
a launch), 1 % between kernels.

A gate of unchanged code gives a false alarm if any time of any case is `regressed` or `suspected`,
or the job fails. Each gate is a line of FILE as soon as it is over; without ``--unchanged`` and
``--planted`` the table of all its lines is printed.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import render
from ci_bench.judge.times.audit import binomial_interval
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison

FIXTURE = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "simulated_device"
CARD = {"least_kernel_s": 2e-4, "host_s": 8e-6, "launch_spread": 0.003, "kernel_spread": 0.01}
CALIBRATIONS, CALIBRATION_LAUNCHES = 2, 4
KERNELS, TIMES = 20, ("step_time", "device_time")
SHORT = ", sample_s: 0.01, blocks: 5, most_blocks: 5"
"""Short samples, and as few of them as make a launch."""
CONFIG = f"""\
schema_version: 1
run: {{device: cuda, threads: 1, explain: never{SHORT}}}
suites: {{functions: [{{path: bench.py}}]}}
"""
BENCH = """\
import ci_bench


@ci_bench.benchmark(rows=ROWS)
def chain(rows):
    (x,) = ci_bench.inputs(1, (rows, 8))

    def call():
        y = x
        for _ in range(KERNELS):
            y = y * 1.0
        return y

    return call
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate, judge so many gates, and print what all of them came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unchanged", type=int, default=0, help="gates of unchanged code")
    parser.add_argument(
        "--planted", type=int, default=0, help="gates with a kernel more in each case"
    )
    parser.add_argument("--cases", type=int, default=1, help="cases of a gate")
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="begin no gate after so many seconds"
    )
    parser.add_argument("--keep", type=Path, required=True, help="the file of lines")
    arguments = parser.parse_args(argv)
    if arguments.unchanged or arguments.planted:
        with tempfile.TemporaryDirectory() as folder:
            _judge(Path(folder), arguments)
    lines = [json.loads(line) for line in arguments.keep.read_text(encoding="utf-8").splitlines()]
    sys.stdout.write(render("Gates on the simulated card", list(rows(lines))) + "\n")
    return 0


def rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield a row for each number of cases, of unchanged and of planted code."""
    for planted, cases in sorted({(line["planted"], line["cases"]) for line in lines}):
        gates = [line for line in lines if (line["planted"], line["cases"]) == (planted, cases)]
        every = Counter(verdict for gate in gates for verdict in gate["verdicts"].values())
        alarms = sum(is_alarm(gate) for gate in gates)
        regressed, most = every["regressed"], every.total()
        yield {
            "code": "+5 %" if planted else "unchanged",
            "gates": f"{len(gates)} of {cases} cases" if cases > 1 else f"{len(gates)} of 1 case",
            "gates that are red": _share(alarms, len(gates)),
            "cases regressed": _share(regressed, most),
            "all verdicts": ", ".join(
                f"{verdict} {count}" for verdict, count in sorted(every.items())
            ),
            "launches a case": f"{sum(gate['launches'] for gate in gates) / most:.1f}",
            "s a gate": f"{sum(gate['seconds'] for gate in gates) / len(gates):.0f}",
        }


def is_alarm(gate: Mapping[str, Any]) -> bool:
    """Return whether the job failed, or any metric is reported as worse."""
    return gate["exit_code"] != 0 or bool(
        {"regressed", "suspected"} & set(gate["verdicts"].values())
    )


def _share(count: int, of: int) -> str:
    low, high = binomial_interval(count, of)
    return f"{count} of {of} [{low:.1%}, {high:.1%}]"


def _judge(folder: Path, arguments: argparse.Namespace) -> None:
    identity = {
        "uuid": f"GPU-51a1a7ed-0000-4000-8000-{secrets.token_hex(6)}"
    }  # which the lock goes by, so that no one is waited for
    (folder / "card.json").write_text(json.dumps(CARD | identity), encoding="utf-8")
    repository = start(folder)
    commit(repository, KERNELS, arguments.cases)
    began = time.monotonic()
    for _ in range(CALIBRATIONS):
        done = ci_bench(
            folder,
            "calibrate",
            "--launches",
            str(CALIBRATION_LAUNCHES),
            "--output",
            str(folder / "calibrated"),
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
    remaining = {False: arguments.unchanged, True: arguments.planted}
    while any(remaining.values()) and time.monotonic() < began + arguments.until:
        planted = remaining[True] * max(1, arguments.unchanged) > remaining[False] * max(
            1, arguments.planted
        )
        remaining[planted] -= 1
        commit(repository, KERNELS, arguments.cases)
        commit(repository, KERNELS + planted, arguments.cases)
        line = _gate(folder, planted=planted, cases=arguments.cases)
        with arguments.keep.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def _gate(folder: Path, *, planted: bool, cases: int) -> dict[str, Any]:
    """Run one gate; return it as a line, with the worst verdict of each case's times."""
    began, out = time.monotonic(), folder / "out"
    (out / "comparison.json").unlink(missing_ok=True)
    done = ci_bench(
        folder, "gate", "--baseline", "paired", "--base", "HEAD~1", "--output", str(out)
    )
    if not (out / "comparison.json").exists():
        raise RuntimeError(done.stderr)
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    launches = sum(
        len(metric["launches"])
        for case in results["cases"]
        for metric in case["metrics"]
        if metric["name"] == "step_time"
    )
    doubts = sum(
        bool(block.get("doubt")) + len(block["redone"])
        for case in results["cases"]
        for block in case["blocks"]
    )
    return {
        "planted": planted,
        "cases": cases,
        "exit_code": done.returncode,
        "verdicts": verdicts(documents.read_comparison(out / "comparison.json")),
        "launches": launches,
        "doubts": doubts,
        "seconds": round(time.monotonic() - began, 1),
    }


def verdicts(comparison: Comparison) -> dict[str, str]:
    """Return the worst verdict of each case's times."""
    order = ("regressed", "suspected", "failed", "inconclusive", "improved")
    return {
        case.id: min(
            (str(pair.verdict) for pair in case.pairs if pair.metric in TIMES),
            key=lambda verdict: order.index(verdict) if verdict in order else len(order),
        )
        for case in comparison.cases
    }


def start(folder: Path) -> Path:
    """Create an empty repository in the folder."""
    repository = folder / "repository"
    repository.mkdir()
    _git(repository, "init", "--quiet", "--initial-branch=main")
    return repository


def commit(repository: Path, kernels: int, cases: int, config: str = CONFIG) -> None:
    """Commit cases that are chains of so many kernels each."""
    shapes = [8 * (1 + case) for case in range(cases)]
    text = BENCH.replace("ROWS", str(shapes)).replace("KERNELS", str(kernels))
    (repository / "bench.py").write_text(text, encoding="utf-8")
    (repository / "ci-bench.yml").write_text(config, encoding="utf-8")
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "--allow-empty", "--message=a commit")


def _git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=b", "-c", "user.email=b@example.com")
    subprocess.run(
        ["git", "-C", str(repository), *identity, *arguments], check=True, capture_output=True
    )


def ci_bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository of the folder, on the card that is in the folder."""
    environ = {
        **os.environ,
        "SIMULATED_CARD": str(folder / "card.json"),
        "PYTHONPATH": str(FIXTURE),
        "CI_BENCH_NOISE": str(folder / "noise"),
    }
    command = [sys.executable, "-m", "ci_bench.cli", *arguments]
    return subprocess.run(
        command, cwd=folder / "repository", env=environ, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
