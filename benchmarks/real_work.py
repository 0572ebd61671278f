"""Measures verdict quality on six small CPU workloads, unchanged and with a real plant.

They run against themselves, and against themselves with one repetition more.

Run as ``python -m benchmarks.real_work [--runs N] [--planted N] [--json FILE [--resume]]``.
Everything is the product's own: resident pairs in turns, looks, the calibration of this machine,
the default policy. The plant is real: a step of 20 repetitions makes 21. With ``--runs 0 --planted
0`` only the calibration is made, which says how far launches of unchanged code differ.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tables import publish, render
from benchmarks.work_suite import PLANT, REPEATS, SUITE, WORK
from ci_bench import __version__
from ci_bench.checkouts.sides import Side
from ci_bench.judge.compare import compare
from ci_bench.judge.times.audit import binomial_interval
from ci_bench.judge.times.calibration import collect
from ci_bench.judge.times.sequential import rule_of
from ci_bench.processes.environ import worker_environment
from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import BaselineMode, Comparison, Pair, Verdict
from ci_bench.records.config import Config, RunOptions, Sampling
from ci_bench.records.results import Results, SideName, Status
from ci_bench.runner import planning
from ci_bench.runner.asking import OpenCases
from ci_bench.runner.noise_floor import NoiseFolder
from ci_bench.runner.recording import record_run
from ci_bench.runner.runner import Runner

CALIBRATION_RUNS, CALIBRATION_LAUNCHES = 4, 5
RUN = RunOptions(device="cpu", threads=1, blocks=20, sample_s=0.01, warmup_s=0.2, rotate=4)
PLAN = tuple((SUITE, case) for case in SUITE.plan({}))
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One run, with the plant or without."""

    plant: bool
    """True if head has the plant."""
    verdicts: Mapping[str, Verdict]
    """The verdict of each case, by id."""
    launches: Mapping[str, int]
    """The number of launches of each case, by id."""
    seconds: float
    """The wall time of the run (s)."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The judge's words for each wrong verdict, by id."""

    @property
    def failed(self) -> bool:
        """True if a gate of the run fails by default: a case has regressed, or is suspected."""
        return bool({Verdict.REGRESSED, Verdict.SUSPECTED} & {*self.verdicts.values()})


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate, run, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="runs of unchanged code")
    parser.add_argument("--planted", type=int, default=20, help="runs with the plant")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument(
        "--resume", action="store_true", help="count the runs that --json has, on the same machine"
    )
    arguments = parser.parse_args(argv)
    ended = earlier(arguments.json) if arguments.resume else []
    learned: list[Calibration] = []
    with tempfile.TemporaryDirectory() as folder:
        noise = NoiseFolder(path=Path(folder) / "noise")
        for _ in range(CALIBRATION_RUNS):
            options = replace(RUN, sampling=Sampling.FIXED, launches=CALIBRATION_LAUNCHES)
            base, head = _measure(Config(entries=(), run=options), Path(folder), noise=None)
            learned.append(collect(base, head, tool_version=__version__))
            noise.keep(learned[-1])
        for plant in left(spread(arguments.runs, arguments.planted), ended):
            ended.append(_judge_run(Path(folder), noise, plant=plant))
            _tell(ended[-1])
            if arguments.json:
                arguments.json.write_text(
                    json.dumps(document(ended), indent=1, sort_keys=True) + "\n"
                )
    figures = document(ended)
    title = f"Verdicts on real work\n{figures['false_alarms']}\n{figures['false_failures']}"
    noise_table = render(
        "How far launches of unchanged code differed, for the calibration", noise_rows(learned)
    )
    publish("\n\n".join((noise_table, render(title, _rows(ended)))), figures, arguments.json)
    return 0


def noise_rows(learned: Sequence[Calibration]) -> list[dict[str, str]]:
    """Return a row for each workload: its launches' log-ratios, and the spread inside a launch.

    Of the ratios, it has the root mean square and the largest.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    within: dict[str, list[float]] = defaultdict(list)
    for timing in (
        series
        for calibration in learned
        for series in calibration.series
        if series.metric == "step_time"
    ):
        ratios[timing.case] += timing.ratios
        within[timing.case] += [spread for spread in timing.within if spread is not None]
    return [
        {
            "workload": case.partition("/")[2],
            "launches": str(len(every)),
            "between launches": f"{math.sqrt(sum(ratio**2 for ratio in every) / len(every)):.2%}",
            "largest": f"{max(map(abs, every)):.2%}",
            "inside a launch": f"{median(within[case]):.2%}",
        }
        for case, every in ratios.items()
    ]


def spread(clean: int, planted: int) -> list[bool]:
    """Return which runs have the plant.

    They are spread evenly, so that both kinds see the same hours of the machine.
    """
    total = clean + planted
    return [(run + 1) * planted // total > run * planted // total for run in range(total)]


def earlier(path: Path | None) -> list[Judged]:
    """Return the runs that an interrupted benchmark has written."""
    if path is None or not path.exists():
        return []
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return [
        replace(
            Judged(**run),
            verdicts={name: Verdict(verdict) for name, verdict in run["verdicts"].items()},
        )
        for run in runs
    ]


def left(planned: Sequence[bool], ended: Sequence[Judged]) -> list[bool]:
    """Return which of the planned runs, with the plant or without, are still missing."""
    done, rest = Counter(run.plant for run in ended), []
    for plant in planned:
        done[plant] -= 1
        rest += [plant] if done[plant] < 0 else []
    return rest


def document(ended: Sequence[Judged]) -> dict[str, Any]:
    """Return the document that is written after every run.

    A benchmark of hours must not lose all when it is interrupted.
    """
    clean = [run for run in ended if not run.plant]
    regressed = sum(Verdict.REGRESSED in run.verdicts.values() for run in clean)
    return {
        "false_alarms": f"any false `regressed`: {_share(regressed, len(clean))}",
        "false_failures": (
            "any false `regressed` or `suspected`:"
            f" {_share(sum(run.failed for run in clean), len(clean))}"
        ),
        "runs": [asdict(run) for run in ended],
    }


def _share(runs: int, of: int) -> str:
    low, high = binomial_interval(runs, of)
    return f"{runs} of {of} runs of unchanged code (95 % {low:.1%} to {high:.1%})"


def _judge_run(folder: Path, noise: NoiseFolder, *, plant: bool) -> Judged:
    config, started = Config(entries=(), run=RUN), time.monotonic()
    base, head = _measure(config, folder, noise=noise, plant=plant)
    if broken := [
        row for document in (base, head) for row in document.cases if row.status is not Status.OK
    ]:
        raise SystemExit(
            f"{broken[0].case.id} could not be measured, so nothing can be said of verdicts:"
            f" {broken[0].failure}"
        )
    pairs = _pairs(_compare(base, head, config, noise))
    launches = {row.case.name: len(row.metrics[0].launches) for row in head.cases if row.metrics}
    return Judged(
        plant=plant,
        verdicts={name: pair.verdict for name, pair in pairs.items()},
        launches=launches,
        seconds=time.monotonic() - started,
        reasons={
            name: pair.reason for name, pair in pairs.items() if is_wrong(pair.verdict, plant=plant)
        },
    )


def is_wrong(verdict: Verdict, *, plant: bool) -> bool:
    """Return whether a verdict is wrong; an undecided plant counts."""
    changed = {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.SUSPECTED}
    return verdict is not Verdict.REGRESSED if plant else verdict in changed


def _measure(
    config: Config, folder: Path, *, noise: NoiseFolder | None, plant: bool = False
) -> tuple[Results, Results]:
    environ = {**worker_environment(os.environ), "PYTHONPATH": str(ROOT)}
    sides = (
        Side(name=SideName.BASE, environ=environ),
        Side(name=SideName.HEAD, environ={**environ, **({PLANT: "1"} if plant else {})}),
    )
    begun = planning.start(config)
    judge = OpenCases(run=begun, sides=sides, config=config, noise=noise) if noise else None
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(
            options=config.run,
            scratch=Path(scratch),
            observe=lambda _: None,
            still_open=judge,
            seed=begun.id,
        )
        results = record_run(
            PLAN,
            run=begun,
            sides=sides,
            reproduce=dict.fromkeys(
                (case.id for _, case in PLAN), "python -m benchmarks.real_work"
            ),
            measure=runner.run,
            folder=folder,
        )
    return results[SideName.BASE], results[SideName.HEAD]


def _compare(base: Results, head: Results, config: Config, noise: NoiseFolder) -> Comparison:
    return compare(
        base=base,
        head=head,
        policy=config.policy,
        mode=BaselineMode.PAIRED,
        absence=None,
        tool_version=__version__,
        calibration=noise.find(head.environment.identity),
        rule=rule_of(config.run),
    )


def _pairs(comparison: Comparison) -> Mapping[str, Pair]:
    return {
        case.id.partition("/")[2]: pair
        for case in comparison.cases
        for pair in case.pairs
        if pair.metric == "step_time"
    }


def _rows(ended: Sequence[Judged]) -> list[dict[str, str]]:
    rows = []
    for plant in (False, True):
        what, runs = (
            f"+{100 / REPEATS:g} %" if plant else "unchanged",
            [run for run in ended if run.plant is plant],
        )
        rows.append(_row(what, "all", runs))
        rows += [_row(what, name, [_only(name, run) for run in runs]) for name in WORK]
    return rows


def _only(name: str, run: Judged) -> Judged:
    verdicts = {case: verdict for case, verdict in run.verdicts.items() if case == name}
    return replace(
        run,
        verdicts=verdicts,
        launches={case: count for case, count in run.launches.items() if case == name},
    )


def _row(what: str, work: str, runs: Sequence[Judged]) -> dict[str, str]:
    every = [verdict for run in runs for verdict in run.verdicts.values()]
    launches = [count for run in runs for count in run.launches.values()]
    shares = {verdict: every.count(verdict) / max(1, len(every)) for verdict in Verdict}
    return {
        "code": what,
        "workload": work,
        "cases judged": str(len(every)),
        "regressed": f"{shares[Verdict.REGRESSED]:.1%}",
        "suspected": f"{shares[Verdict.SUSPECTED]:.1%}",
        "improved": f"{shares[Verdict.IMPROVED]:.1%}",
        "unchanged": f"{shares[Verdict.UNCHANGED]:.1%}",
        "inconclusive": f"{shares[Verdict.INCONCLUSIVE]:.1%}",
        "launches per case": f"{sum(launches) / max(1, len(launches)):.1f}",
        "s per run": f"{sum(run.seconds for run in runs) / max(1, len(runs)):.0f}",
    }


def _tell(run: Judged) -> None:
    what = "planted" if run.plant else "unchanged"
    sys.stderr.write(
        f"{what}: {run.seconds:.0f} s, {dict(run.launches)},"
        f" {[str(verdict) for verdict in run.verdicts.values()]}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
