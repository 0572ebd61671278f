"""Paired gates on a GPU, in repositories that are created on the spot.

Run as ``python -m benchmarks.gpu.gates NAME FOLDER [--budget SECONDS] [--repeat N]``. FOLDER keeps
the documents of both sides, the comparison, the report, the output, and the looks at the GPU. With
``--repeat`` gates follow each other until there are N, or until the time is over.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu.gate_files import REPOSITORIES, Files
from benchmarks.gpu.gate_outcome import GateOutcome, describe, is_right, read_outcome
from benchmarks.gpu.measuring import Trial, this_trial
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Status

PAIRED = ("--baseline", "paired", "--base", "HEAD~1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One requested gate: its name, its folder, and its seconds (0 for no limit)."""

    name: str
    folder: Path
    budget_s: float
    trial: Trial


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gate, print its figures, and return 1 if it is wrong.

    On the simulated card times depend on other work of the host, so their verdicts do not count.
    """
    arguments = parse_arguments(argv)
    request = Request(
        name=arguments.name,
        folder=arguments.folder.absolute(),
        budget_s=arguments.budget,
        trial=this_trial(),
    )
    if arguments.repeat:
        return repeat(request, arguments.repeat)
    shutil.rmtree(request.folder, ignore_errors=True)  # with the noise that an earlier gate learned
    outcome = run_gate(request)
    figure, right = judge(request.name, outcome)
    for line in describe(outcome, figure, every=True):
        _say(line)
    counts = request.name == "parity" or not request.trial.simulated
    return int((counts and not right) or bool(outcome.failures()) or not outcome.rows)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*REPOSITORIES])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", type=float, default=0.0, help="seconds; 0 for no limit")
    parser.add_argument("--repeat", type=int, default=0, help="the number of gates")
    return parser.parse_args(argv)


def judge(name: str, outcome: GateOutcome) -> tuple[str, bool]:
    """Return a gate's figure in words, and whether its verdicts are right."""
    if name == "parity":
        return _judge_parity(outcome)
    if name in {"planted", "changes"}:
        times = [(case, pair) for case, pair in outcome.times if pair.metric == STEP_TIME.name]
        right = sum(is_right(case, pair.verdict) for case, pair in times)
        return f"{right} of {len(times)} verdicts right", bool(times) and right == len(times)
    rows = f"{len(outcome.rows) - outcome.failures().total()} of {len(outcome.rows)} rows ok"
    if name in {"unchanged", "quiet"}:
        moved = outcome.moved
        words = f"{len(moved)} of {len(outcome.times)} times called changed {[*moved[:4]] or ''}"
        return f"{words.strip()}, {rows}", bool(outcome.times) and not moved
    return f"{rows}, both sides", not outcome.red


def _judge_parity(outcome: GateOutcome) -> tuple[str, bool]:
    """Count the backends that are judged right, and print the evidence of each."""
    compared = outcome.comparison.cases if outcome.comparison else ()
    findings = {case.id: case.parity for case in compared}
    cases = outcome.head.cases if outcome.head else ()
    right = 0
    for row in cases:
        parities = findings.get(row.case.id, ())
        broken = "wrong-" in row.case.id
        fits = all(
            finding.verdict.broken if broken else finding.verdict.holds for finding in parities
        )
        right += row.status is Status.OK and bool(parities) and fits
        _say(f"{row.case.id}: {row.status} {[str(finding.verdict) for finding in parities]}")
        for finding in parities:
            scores = f"loss {finding.loss_score}, norm {finding.grad_norm_score} of {finding.limit}"
            steps = f"{finding.arm} {finding.tier} {finding.masks} {finding.steps} steps"
            _say(f"    {steps}, {scores}: {finding.detail[:300]}")
    return f"{right} of {len(cases)} backends judged right", bool(cases) and right == len(cases)


def repeat(request: Request, count: int) -> int:
    """Run several gates, append each to ``gates.jsonl``, and print a tally of the verdicts."""
    begun, took_s, red = time.monotonic(), 0.0, 0
    verdicts: dict[str, Counter[str]] = {}
    done = 0
    while done < count:
        left_s = request.budget_s - (time.monotonic() - begun)
        if request.budget_s and done and left_s < took_s:
            break
        gate_begun = time.monotonic()
        outcome = run_gate(replace(request, budget_s=0.0))
        took_s = max(took_s, time.monotonic() - gate_begun)
        done += 1
        red += outcome.code != 0 or bool(outcome.red)
        for case, pair in outcome.times:
            if pair.metric == STEP_TIME.name:
                verdicts.setdefault(case, Counter())[str(pair.verdict)] += 1
        _keep(request, outcome)
    for case, counts in verdicts.items():
        _say(f"{case}: " + ", ".join(f"{number} {name}" for name, number in counts.most_common()))
    regressed = "; ".join(
        f"{_kind(case)} {counts['regressed']}" for case, counts in verdicts.items()
    )
    counted = f"{done} of {count} gates, {red} red"
    _say(f"FIGURE: {counted}; regressed: {regressed}; at most {took_s:.0f} s each")
    unchanged = request.name == "quiet"
    return int(not verdicts or (unchanged and red > 0 and not request.trial.simulated))


def _kind(case: str) -> str:
    return case.partition("[")[2].rstrip("]") or case


def _keep(request: Request, outcome: GateOutcome) -> None:
    """Append a line: the exit code, seconds, and each time's verdict and speedup."""
    line = {
        "exit_code": outcome.code,
        "seconds": round(outcome.seconds, 1),
        "launches": outcome.launches,
        "failures": [*outcome.failures()],
        "times": [
            {"case": case, "metric": pair.metric, "verdict": pair.verdict, "speedup": pair.speedup}
            for case, pair in outcome.times
        ],
    }
    with (request.folder / "gates.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def run_gate(request: Request) -> GateOutcome:
    """Create the repository, and run ``ci-bench gate`` in it while the GPU is watched."""
    folder = request.folder
    for name in ("repository", "out"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    files = REPOSITORIES[request.name](request.trial, request.budget_s)
    commit(folder, files.base)
    if files.head:
        commit(folder, files.head)
    output = ("--output", str(folder / "out"))
    gate = [sys.executable, "-m", "ci_bench.cli", "gate", *(PAIRED if files.head else ()), *output]
    script = Path(__file__).with_name("utilization.py")
    watched = [sys.executable, str(script), str(folder / "watch.json"), "--", *gate]
    environ = _environ() | {"CI_BENCH_NOISE": str(folder / "noise")}
    begun = time.monotonic()
    with (folder / "output.txt").open("w", encoding="utf-8") as output_file:
        code = subprocess.call(
            watched,
            cwd=folder / "repository",
            env=environ,
            stdout=output_file,
            stderr=subprocess.STDOUT,
        )
    return read_outcome(folder, seconds=time.monotonic() - begun, code=code)


def commit(folder: Path, files: Files) -> None:
    """Commit files to the repository in a folder, which is created at the first commit."""
    top = folder / "repository"
    if not (top / ".git").exists():
        top.mkdir(exist_ok=True)
        _git(top, "init", "--quiet", "--initial-branch=main")
    for name, text in files.items():
        (top / name).write_text(text, encoding="utf-8")
    _git(top, "add", "--all")
    _git(top, "commit", "--quiet", "--allow-empty", "--message=files")


def _git(top: Path, *arguments: str) -> None:
    names = ("-c", "user.name=ci-bench", "-c", "user.email=ci-bench@example.com")
    subprocess.run(["git", "-C", str(top), *names, *arguments], check=True, env=_environ())


def _environ() -> dict[str, str]:
    return {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
