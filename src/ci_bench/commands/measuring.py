"""The commands that measure: run, gate, calibrate, selftest, doctor, fastrnns."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.bench import Bench
from ci_bench.commands.inputs import load_with_suites, noise_folder, read_baseline, reproduce_prefix, results_path
from ci_bench.commands.output import console, say, show, tell, tell_files
from ci_bench.commands.preparing import open_sides
from ci_bench.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from ci_bench.engine.trees.sides import Side
    from ci_bench.pipeline import Baseline
    from ci_bench.planning import Plan
    from ci_bench.records.case import SideName
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.config import Config
    from ci_bench.records.results import Results
    from ci_bench.suites.base import Suite

PAIRED, NONE, ARTIFACT = "paired", "none", "artifact"
CALIBRATION_LAUNCHES = 8


def run(arguments: argparse.Namespace) -> int:
    """Measure this tree."""
    from ci_bench.records.case import SideName

    bench = _bench(arguments, *load_with_suites(arguments))
    results = bench.measure([_here(SideName.HEAD)])[SideName.HEAD]
    for row in results.cases:
        reason = f": {row.failure.reason}" if row.failure else ""
        tell(f"{row.status:<14}{row.case.id}{reason}")
    tell(f"wrote {arguments.output / 'results.json'}")
    if arguments.report:
        _report_alone(results, bench)
    measured = any(row.metrics for row in results.cases)
    return int(ExitCode.OK if measured else ExitCode.MEASURING_FAILED)


def _report_alone(results: "Results", bench: Bench) -> None:
    """The page of one run that is compared with nothing."""
    from ci_bench import pipeline
    from ci_bench.commands.looking import ALONE
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    alone = pipeline.Baseline(mode=BaselineMode.NONE, absence=ALONE)
    comparison = pipeline.judge(results, alone, policy=bench.config.policy, folder=None)
    page = bench.output / pipeline.PAGE
    documents.write_text(pipeline.page(comparison, head=results, base=None), page)
    tell(f"wrote {page}")


def gate(arguments: argparse.Namespace) -> int:
    """Measure, compare with the baseline, report, and exit by the policy."""
    config, find = load_with_suites(arguments)
    named = arguments.baseline or config.baseline or (PAIRED if arguments.prepared else None)
    if arguments.prepared and named != PAIRED:
        message = f"--prepared holds both sides of a paired run, but the baseline is {named}"
        raise BadInput(message)
    if named == ARTIFACT and arguments.fetched is None:
        message = (
            "--baseline artifact needs --fetched DIR: what `ci-bench fetch-baseline --output DIR` left, in a step of its own"
        )
        raise BadInput(message)
    if arguments.save_baseline and (named in {None, NONE, PAIRED, ARTIFACT} or str(named).endswith(".zip")):
        message = "--save-baseline needs --baseline PATH: where should the run be kept?"
        raise BadInput(message)
    bench = _bench(arguments, config, find)
    if named == PAIRED:
        comparison = _gate_paired(arguments, bench)
    elif named == ARTIFACT:
        comparison = _gate_against(arguments, bench, read_baseline(arguments.fetched, is_artifact=True))
    else:
        path = Path(named) if named and named != NONE else None
        comparison = _gate_against(arguments, bench, read_baseline(path))
        if arguments.save_baseline and path is not None:
            _save_baseline(arguments, comparison, path)
    return comparison.judgement.exit_code


def _gate_against(arguments: argparse.Namespace, bench: Bench, baseline: "Baseline") -> "Comparison":
    """Against the results of an earlier run."""
    from ci_bench import pipeline
    from ci_bench.records.case import SideName

    results = bench.measure([_here(SideName.HEAD)], known=baseline.results)[SideName.HEAD]
    comparison = pipeline.judge(results, baseline, policy=bench.config.policy, folder=arguments.output)
    show(comparison, comment=arguments.comment)
    tell_files(arguments.output)
    return comparison


def _gate_paired(arguments: argparse.Namespace, bench: Bench) -> "Comparison":
    """Against the base commit, measured in this run, in turns with head."""
    from ci_bench import pipeline
    from ci_bench.records import documents
    from ci_bench.records.case import SideName
    from ci_bench.records.comparison import BaselineMode

    noise = noise_folder(arguments)
    with open_sides(bench.config, arguments) as sides:
        results = bench.measure(sides, noise=noise)
    head = results[SideName.HEAD]
    calibration = noise.find(head.environment.identity)
    kept = arguments.output / "calibration.json"  # whoever judges again has to know what was known here
    if calibration is not None:
        documents.write(calibration, kept)
    else:
        kept.unlink(missing_ok=True)
    comparison = pipeline.judge(
        head,
        pipeline.Baseline(mode=BaselineMode.PAIRED, results=results[SideName.BASE]),
        policy=bench.config.policy,
        folder=arguments.output,
        calibration=calibration,
        rule=pipeline.rule_of(bench.config.run),
    )
    show(comparison, comment=arguments.comment)
    tell_files(arguments.output, results=("results.json", "base/results.json"))
    return comparison


def calibrate(arguments: argparse.Namespace) -> int:
    """Measure this tree against itself, and keep what that teaches about the machine's noise."""
    from ci_bench import __version__
    from ci_bench.judge.audit import audit
    from ci_bench.judge.calibration import collect, noise_floors
    from ci_bench.noise_floor import times_only, told
    from ci_bench.records.case import SideName
    from ci_bench.records.config import Sampling

    config, find = load_with_suites(arguments)
    options = replace(config.run, sampling=Sampling.FIXED, launches=arguments.launches or CALIBRATION_LAUNCHES)
    bench = _bench(arguments, replace(config, run=options), find)
    bench = replace(bench, plan=times_only(bench.plan))
    results = bench.measure([_here(SideName.BASE), _here(SideName.HEAD)])
    base, head = results[SideName.BASE], results[SideName.HEAD]
    noise = noise_folder(arguments)
    calibration = noise.keep(collect(base, head, tool_version=__version__))
    floors = noise_floors(calibration, now=head.run.started_at)
    say(told(floors, audit(calibration, policy=config.policy)))
    tell(f"kept in {noise.path}")
    return int(ExitCode.OK if floors else ExitCode.MEASURING_FAILED)


def selftest(arguments: argparse.Namespace) -> int:
    """Plant defects in real runs, and see whether the gate goes red."""
    from ci_bench import planning
    from ci_bench.records.case import SideName
    from ci_bench.selftest import examine, selftest_config

    def measure(name: str, plants: str) -> tuple["Results", "Results"]:
        config = selftest_config(arguments.device or "auto", plants)
        plan = planning.plan(config, ())
        bench = Bench(config=config, plan=plan, output=arguments.output / name, reproduce="ci-bench selftest")
        planted = _here(SideName.HEAD, {"CI_BENCH_PLANT": plants})
        results = bench.measure([_here(SideName.BASE), planted])
        return results[SideName.BASE], results[SideName.HEAD]

    wrong = 0
    for answer in examine(measure):
        wrong += not answer.right
        say(f"{'ok   ' if answer.right else 'WRONG'} {answer.question}: {answer.said}\n")
    verdict = f"{wrong} wrong answer(s): do not trust this gate on this machine" if wrong else "the gate goes red where it should"
    say(f"{verdict}\n")
    return int(ExitCode.POLICY_NOT_MET if wrong else ExitCode.OK)


def _bench(arguments: argparse.Namespace, config: "Config", find: "Callable[[str], Suite]") -> Bench:
    from ci_bench import planning

    plan = planning.plan(config, arguments.filter, find)
    resume = getattr(arguments, "resume", False)
    return Bench(config=config, plan=plan, output=arguments.output, reproduce=reproduce_prefix(arguments), resume=resume)


def doctor(arguments: argparse.Namespace) -> int:
    """Examine this machine, and measure how much it differs from itself."""
    from ci_bench.doctor import examine, noise, noise_config, render
    from ci_bench.engine.process.launch import make_folder
    from ci_bench.records.case import SideName
    from ci_bench.suites.canary.plan import SUITE

    findings = examine(os.environ)
    usable = all(finding.usable for finding in findings)
    if usable and not arguments.quick:
        plan: Plan = tuple((SUITE, case) for case in SUITE.plan({}))
        with make_folder() as folder:
            bench = Bench(config=noise_config(), plan=plan, output=Path(folder), reproduce="ci-bench doctor")
            results = bench.measure([_here(SideName.BASE), _here(SideName.HEAD)])
        findings = (*findings, noise(results[SideName.BASE], results[SideName.HEAD]))
    render(findings, console())
    return int(ExitCode.OK if usable else ExitCode.MEASURING_FAILED)


def fastrnns(arguments: argparse.Namespace) -> int:
    """What PyTorch's fastrnns benchmark did, by its own flags."""
    from ci_bench import planning
    from ci_bench.fastrnns_flags import print_results, read_flags
    from ci_bench.records.case import SideName

    request = read_flags(arguments)
    for remark in request.remarks:
        tell(remark)
    plan = planning.plan(request.config, arguments.filter)
    bench = Bench(config=request.config, plan=plan, output=arguments.output, reproduce="ci-bench fastrnns")
    results = bench.measure([_here(SideName.HEAD)])[SideName.HEAD]
    printed = print_results(results, arguments)
    say(printed.out)
    sys.stderr.write(printed.err)
    measured = any(row.metrics for row in results.cases)
    return int(ExitCode.OK if measured else ExitCode.MEASURING_FAILED)


def _here(name: "SideName", more: Mapping[str, str] | None = None) -> "Side":
    """The caller's tree as a side, its code first on the path; `more` are variables for its workers."""
    from ci_bench.engine.trees.caller import caller_side

    return caller_side(name, Path.cwd(), os.environ, more)


def _save_baseline(arguments: argparse.Namespace, comparison: "Comparison", path: Path) -> None:
    from ci_bench.records import documents

    file = results_path(path)
    if comparison.judgement.passed:
        documents.write(documents.read_results(arguments.output / "results.json"), file)
        message = f"saved this run as the baseline: {file}"
    elif file.exists():
        message = f"the policy is not met, so the baseline stays as it was: {file} (remove it to start afresh)"
    else:
        message = f"the policy is not met, so no baseline was saved at {file}"
    tell(message)
