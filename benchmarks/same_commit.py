"""Gates the same commit against itself, and a commit with planted changes.

Run as ``python -m benchmarks.same_commit [--runs N] [--planted N] [--training] [--json FILE]``.
Each run is `ci-bench gate` in paired mode: it makes both trees of a new repository
(`sample_repository`), measures them in turns and judges by the default policy, as a user's job
does; the machine is calibrated once, before. A run of the same commit is clean if nothing
regressed, nothing failed and the job passes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import sample_repository
from benchmarks.tables import publish, render
from ci_bench.judge.times.audit import binomial_interval
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison, Verdict

CALIBRATION_RUNS, CALIBRATION_LAUNCHES = 2, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One gate."""

    exit_code: int
    """The exit code of the command."""
    verdicts: Mapping[str, Verdict]
    """The verdict of each case, by id."""
    resolvable: Mapping[str, float]
    """The detectable change of each case's step time (90 % power, relative), by id."""
    parity_holds: bool
    """True if parity holds in all cases."""
    seconds: float
    """The wall time of the gate (s)."""

    @property
    def clean(self) -> bool:
        """True if unchanged code was called unchanged, or at worst undecided."""
        calm = {Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.IMPROVED}
        return self.exit_code == 0 and self.parity_holds and set(self.verdicts.values()) <= calm


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate, run, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=20, help="runs of the same commit against itself"
    )
    parser.add_argument(
        "--planted", type=int, default=5, help="runs of the planted commit against the one before"
    )
    parser.add_argument(
        "--training", action="store_true", help="also a training under the repository's own backend"
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        sample_repository.make(repository, training=arguments.training)
        calibrate(repository)
        same = [_tell("same commit", gate(repository, base="HEAD")) for _ in range(arguments.runs)]
        sample_repository.plant(repository)
        planted = [
            _tell("planted", gate(repository, base="HEAD~1")) for _ in range(arguments.planted)
        ]
    rows = [*_rows("same commit", same), *_rows("planted", planted)]
    clean = sum(run.clean for run in same)
    low, high = binomial_interval(len(same) - clean, len(same))
    note = (
        f"clean: {clean} of {len(same)} runs of the same commit (not clean: 95 % interval {low:.1%}"
        f" to {high:.1%})"
    )
    figures = {"rows": rows, "clean": clean, "runs": len(same)}
    publish(
        f"{render('The same commit, and a planted one', rows)}\n{note}", figures, arguments.json
    )
    return 0


def calibrate(
    repository: Path, *, runs: int = CALIBRATION_RUNS, launches: int = CALIBRATION_LAUNCHES
) -> None:
    """Teach `ci-bench` how noisy this machine is."""
    for _ in range(runs):
        _ci_bench(
            repository,
            *("calibrate", "--filter", "operations", "--launches", str(launches)),
            *("--output", str(repository.parent / "calibrate")),
        )


def gate(repository: Path, *, base: str) -> Judged:
    """Judge what is checked out against another commit."""
    started, out = time.monotonic(), repository.parent / "out"
    (out / "comparison.json").unlink(missing_ok=True)
    done = _ci_bench(repository, "gate", "--base", base, "--output", str(out))
    if not (out / "comparison.json").exists():
        raise RuntimeError(done.stderr)
    comparison = documents.read_comparison(out / "comparison.json")
    return Judged(
        exit_code=done.returncode,
        verdicts={case.id: case.verdict for case in comparison.cases},
        resolvable={
            case.id: pair.resolvable
            for case in comparison.cases
            for pair in case.pairs
            if pair.resolvable is not None
        },
        parity_holds=_parity_holds(comparison),
        seconds=time.monotonic() - started,
    )


def _parity_holds(comparison: Comparison) -> bool:
    return all(finding.verdict.holds for case in comparison.cases for finding in case.parity)


def _ci_bench(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "CI_BENCH_NOISE": str(repository.parent / "noise")}
    command = [sys.executable, "-m", "ci_bench.cli", *arguments]
    return subprocess.run(
        command, cwd=repository, env=environ, capture_output=True, text=True, check=False
    )


def _rows(what: str, runs: Sequence[Judged]) -> Iterator[dict[str, str]]:
    for case in sorted({case for run in runs for case in run.verdicts}):
        counts = Counter(run.verdicts[case] for run in runs)
        broken = sum(not run.parity_holds for run in runs)
        yield {
            "code": what,
            "case": case.partition("[")[0],
            "runs": str(len(runs)),
            "verdicts": ", ".join(
                f"{verdict} {count}" for verdict, count in sorted(counts.items())
            ),
            "parity broken": str(broken) if case.startswith("training_loss/") else "–",
            "exit codes": ", ".join(
                f"{code}: {count}"
                for code, count in sorted(Counter(run.exit_code for run in runs).items())
            ),
            "s per run": f"{sum(run.seconds for run in runs) / len(runs):.0f}",
        }


def _tell(what: str, run: Judged) -> Judged:
    words = ", ".join(
        f"{case.partition('[')[0]} {verdict}" for case, verdict in run.verdicts.items()
    )
    sys.stderr.write(
        f"{what}: exit {run.exit_code}, {words}, parity"
        f" {'holds' if run.parity_holds else 'broken'}, {run.seconds:.0f} s\n"
    )
    return run


if __name__ == "__main__":
    sys.exit(main())
