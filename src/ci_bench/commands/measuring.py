"""The commands that measure: run, gate, calibrate, selftest, doctor, fastrnns."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.command_line.settings import Checking, Examining, Fastrnns, Measuring, Settings
from ci_bench.commands.bench import Bench
from ci_bench.commands.inputs import (
    asked,
    command_again,
    load_with_suites,
    noise_folder,
    read_baseline,
    results_path,
    workflow_run,
)
from ci_bench.commands.output import console, say, show, tell, tell_attachments, tell_files
from ci_bench.commands.preparing import open_sides, plan_base_of, planning_sealed, with_policy_of_base
from ci_bench.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from ci_bench.checkouts.bundled import Sources
    from ci_bench.checkouts.seals import Seal
    from ci_bench.checkouts.sides import Side
    from ci_bench.commands.pipeline import Baseline
    from ci_bench.diagnostics.gpu_check.sections import Figures
    from ci_bench.records.calibration import Calibration
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.config import Config
    from ci_bench.records.results import CaseResult, Results, SideName
    from ci_bench.runner.beside import KeptOutputs
    from ci_bench.runner.noise_floor import NoiseFolder
    from ci_bench.runner.planning import Plan
    from ci_bench.suites.contract import Suite

PAIRED, NONE, ARTIFACT = "paired", "none", "artifact"
CALIBRATION_LAUNCHES = 8
MOST_TOLD, MOST_REASON = 300, 2000
"""Characters of the details of a failed check, and of the reason of a failure."""


def run(settings: Measuring) -> int:
    """Measure this tree."""
    from ci_bench.records.results import Outcome, SideName
    from ci_bench.report.text import clean

    bench = _bench("run", settings, *load_with_suites(settings))
    results = bench.measure([_here(settings, SideName.HEAD)])[SideName.HEAD]
    for row in results.cases:
        _tell_row(row)
        for check in row.checks:
            if check.outcome is Outcome.FAIL and not check.informative:
                tell(f"{'':<14}{check.name} fails for {check.arm}: {clean(check.detail, cap=MOST_TOLD)}")
    tell(f"wrote {settings.output / 'results.json'}")
    tell_attachments(settings.output)
    if settings.report:
        _report_alone(results, bench)
    return int(_ending(results))


def _ending(results: "Results") -> ExitCode:
    """Return success if every case was measured.

    A case that reports that it cannot run here does not fail.
    """
    from ci_bench.records.results import Status

    whole = all(row.status in {Status.OK, Status.SKIPPED} for row in results.cases)
    measured = any(row.metrics for row in results.cases)
    return ExitCode.OK if whole and measured else ExitCode.MEASURING_FAILED


def _report_alone(results: "Results", bench: Bench) -> None:
    """The page of one run that is compared with nothing."""
    from ci_bench.commands import pipeline
    from ci_bench.commands.rendering import ALONE
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    alone = pipeline.Baseline(mode=BaselineMode.NONE, absence=ALONE)
    comparison = pipeline.judge(results, alone, policy=bench.config.policy, folder=None)
    page = bench.output / pipeline.PAGE
    documents.write_text(pipeline.page(comparison, head=results, base=None), page)
    tell(f"wrote {page}")


def gate(settings: Measuring) -> int:
    """The main path: plan, sides, measure, compare, judge, report; and exit by the policy."""
    from ci_bench.commands import pipeline
    from ci_bench.commands.fleet import alone
    from ci_bench.records.results import SideName

    sealed = noise_folder(settings).seal()
    with planning_sealed(settings):
        config, find = load_with_suites(settings)
        against = _against(settings, config)
        bench = _bench("gate", settings, config, find)
    noise = sealed if against.paired else None
    if settings.learn:
        _require_teachable(settings, noise)
    with alone(settings), _open(against, bench, settings) as opened:
        bench = replace(bench, reproduce=command_again("gate", settings, base=opened.base))
        if against.paired:
            bench = replace(bench, base_plan=plan_base_of(bench, settings, opened.sides))
            bench = replace(bench, config=with_policy_of_base(bench.config, settings, opened.sides))
        if settings.fleet is not None:
            from ci_bench.commands.fleet import measure_on_fleet

            results = measure_on_fleet(bench, settings, opened.sides, noise, sources=opened.sources)
        else:
            results = bench.measure(opened.sides, noise=noise, known=opened.known, kept=opened.kept, seal=opened.seal)
    head = results[SideName.HEAD]
    if written := sealed.restore(head.environment.identity):
        tell(written)
    comparison = pipeline.judge(
        head,
        opened.baseline or pipeline.paired_with(results[SideName.BASE]),
        policy=bench.config.policy,
        folder=settings.output,
        calibration=_keep_calibration(noise, head, settings.output) if noise else None,
        rule=pipeline.rule_of(config.run) if against.paired else None,
    )
    show(comparison, comment=settings.comment, as_json=settings.as_json)
    tell_files(settings.output, results=("results.json", "base/results.json") if against.paired else ("results.json",))
    if settings.learn and noise is not None:
        _learn(noise, results[SideName.BASE], head, comparison)
    if settings.save_baseline and against.path is not None:
        _save_baseline(settings, comparison, against.path)
    return comparison.judgement.exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class Against:
    """Baseline of head: base, measured in this run, in turns.

    Or an earlier run at `path`, if any.
    """

    paired: bool = False
    path: Path | None = None
    is_artifact: bool = False


def _against(settings: Measuring, config: "Config") -> Against:
    """Return the baseline that flags and configuration name; look for it before measuring.

    Raises `BadInput` if flags contradict it, where a word is misspelt, and where nothing is there and that fails the run.
    """
    from ci_bench.commands.fleet import check_budgets, check_cage

    check_budgets(settings)
    check_cage(settings, config)
    named = settings.baseline or config.baseline or (PAIRED if settings.prepared or settings.fleet else None)
    if settings.fleet is not None and named != PAIRED:
        raise BadInput(
            f"--fleet measures both sides in turns, but the baseline is {named}; omit --fleet, or use --baseline paired"
        )
    if settings.prepared and named != PAIRED:
        message = f"--prepared holds both sides of a paired run, but the baseline is {named}"
        raise BadInput(message)
    if named == ARTIFACT and settings.fetched is None:
        message = "--baseline artifact needs --fetched DIR, which `ci-bench fetch-baseline --output DIR` wrote in an earlier step"
        raise BadInput(message)
    if settings.save_baseline and (named in {None, NONE, PAIRED, ARTIFACT} or str(named).endswith(".zip")):
        message = "--save-baseline needs --baseline PATH, where the run is kept"
        raise BadInput(message)
    if named == ARTIFACT:
        return Against(path=settings.fetched, is_artifact=True)
    if named in {None, NONE, PAIRED}:
        return Against(paired=named == PAIRED)
    root = "." if settings.baseline else os.path.relpath(settings.here)
    path = str(named) if root == "." else str(Path(root, named))
    return Against(path=_path_of(path, saved=settings.save_baseline, fails=_fails_without(config)))


def _path_of(named: str, *, saved: bool, fails: bool) -> Path:
    """The baseline's path.

    If it does not exist, a first run is `saved` there, or the policy may let it pass.

    Raises `BadInput` and `CannotWrite`.
    """
    from ci_bench.records import documents
    from ci_bench.records.spelling import meant

    path = Path(named)
    if saved:
        documents.require_writable(results_path(path))
    if results_path(path).exists():
        return path
    words = (PAIRED, ARTIFACT, NONE)
    near = meant(named, words) if named == path.name and not path.suffix and not path.exists() else ""
    if near:
        raise BadInput(
            f"baseline: {named!r} is not one of {', '.join(words)}, and no such path exists{near}; write a path as ./{named}"
        )
    if fails and not saved:
        way_out = "correct the path, keep a first run there with --save-baseline, or measure base as well: --baseline paired"
        raise BadInput(f"baseline: there is nothing at {results_path(path)}; {way_out}")
    return path


def _fails_without(config: "Config") -> bool:
    from ci_bench.records.config import Rule, Severity

    return config.policy.severity(Rule.BASELINE_MISSING) is Severity.FAIL


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """The sides to measure; against an earlier run its results (`baseline`) and tensors (`kept`), else the sides' seal.

    A fleet without prepared sides has no more of them than their commits, and the bundle of their `sources`.
    """

    sides: "Sequence[Side]"
    sources: "Sources | None" = None
    baseline: "Baseline | None" = None
    kept: "Mapping[str, KeptOutputs] | None" = None
    seal: "Seal | None" = None

    @property
    def known(self) -> "Results | None":
        """Return the results of an earlier run."""
        return self.baseline.results if self.baseline else None

    @property
    def base(self) -> "str | None":
        """The commit that head is measured against, in this run."""
        from ci_bench.records.results import SideName

        return next((side.source.commit for side in self.sides if side.name is SideName.BASE), None)


@contextmanager
def _open(against: Against, bench: Bench, settings: Measuring) -> "Iterator[Opened]":
    """Open the baseline of head; a paired run's sides are removed in the end."""
    from ci_bench.records.results import SideName
    from ci_bench.runner.beside import saved_beside

    if against.paired and settings.fleet is not None and settings.prepared is None:
        from ci_bench.commands.fleet import bundle_sides

        sides, sources = bundle_sides(bench.config, settings)
        yield Opened(sides=sides, sources=sources)
        return
    if against.paired:
        with open_sides(bench.config, settings, [case for _, case in bench.plan]) as pair:
            yield Opened(sides=pair.sides, seal=pair.seal)
        return
    baseline, path = read_baseline(against.path, is_artifact=against.is_artifact), against.path
    if path is not None and baseline.absence is not None:
        tell(f"no baseline: {baseline.absence}; measuring only head")
    kept = saved_beside(baseline.results, results_path(path)) if baseline.results is not None and path is not None else {}
    yield Opened(sides=[_here(settings, SideName.HEAD)], baseline=baseline, kept=kept)


def _keep_calibration(noise: "NoiseFolder", head: "Results", folder: Path) -> "Calibration | None":
    """Keep this machine's learned noise with the documents, for judging them again."""
    from ci_bench.records import documents

    calibration, kept = noise.find(head.environment.identity), folder / "calibration.json"
    if calibration is not None:
        documents.write(calibration, kept)
    else:
        kept.unlink(missing_ok=True)
    return calibration


TRUSTED = ("", "push", "schedule", "workflow_dispatch", "repository_dispatch", "release")
"""Trusted events: the code was pushed with write access, or no event on a machine of yours."""


def _require_teachable(settings: Measuring, noise: "NoiseFolder | None") -> None:
    """Raise `BadInput` if this run must not teach noise, and `CannotWrite`.

    Its differences may not be noise, or the author of head could choose them.
    """
    if noise is None:
        message = "--learn needs --baseline paired: only base and head measured in turns show noise"
        raise BadInput(message)
    event = settings.environ.get("GITHUB_EVENT_NAME", "")
    if event not in TRUSTED:
        message = f"--learn is not allowed on {event}: unmerged code could skew the calibration. Use it on push or schedule"
        raise BadInput(message)
    noise.require_writable()


def _learn(noise: "NoiseFolder", base: "Results", head: "Results", comparison: "Comparison") -> None:
    """Keep the noise of this gate's first launches.

    The gate itself was judged with earlier noise.
    """
    from ci_bench.judge.times.calibration import collect_gate

    taught = collect_gate(base, head, comparison)
    if taught is None:
        tell("nothing was learned about this machine's noise: no unchanged time of both sides is left")
        return
    noise.keep(taught)
    tell(f"kept the first launches of {len(taught.series)} time(s) in {noise.path}")


def calibrate(settings: Measuring) -> int:
    """Measure this tree against itself, and keep what that teaches about the machine's noise."""
    from ci_bench import __version__
    from ci_bench.judge.times.audit import audit
    from ci_bench.judge.times.calibration import collect, noise_floors
    from ci_bench.records.config import Sampling
    from ci_bench.records.results import SideName
    from ci_bench.runner.noise_floor import times_only, told

    config, find = load_with_suites(settings)
    options = replace(config.run, sampling=Sampling.FIXED, launches=settings.launches or CALIBRATION_LAUNCHES)
    bench = _bench("calibrate", settings, replace(config, run=options), find)
    bench = replace(bench, plan=times_only(bench.plan))
    noise = noise_folder(settings)
    noise.require_writable()
    results = bench.measure([_here(settings, SideName.BASE), _here(settings, SideName.HEAD)], calibrations=noise)
    base, head = results[SideName.BASE], results[SideName.HEAD]
    calibration = noise.keep(collect(base, head, tool_version=__version__))
    floors = noise_floors(calibration, now=head.run.started_at)
    say(told(floors, audit(calibration, policy=config.policy)))
    tell(f"kept in {noise.path}")
    return int(ExitCode.OK if floors else ExitCode.MEASURING_FAILED)


def selftest(settings: Examining) -> int:
    """Gate an example pull request with injected faults, and check that each is found."""
    from ci_bench.commands import pipeline
    from ci_bench.diagnostics.selftest import FAULTS, POLICY, examine, rule, selftest_config
    from ci_bench.records.results import SideName
    from ci_bench.runner import planning

    config = selftest_config(settings.device or "auto")
    bench = Bench(
        config=config,
        plan=planning.plan(config, ()),
        output=settings.output,
        reproduce=("ci-bench", "selftest"),
        environ=settings.environ,
        choose=None,
    )
    results = bench.measure([_here(settings, SideName.BASE), _here(settings, SideName.HEAD, {"CI_BENCH_PLANT": FAULTS})])
    base, head = results[SideName.BASE], results[SideName.HEAD]
    comparison = pipeline.judge(head, pipeline.paired_with(base), policy=POLICY, folder=settings.output, rule=rule())
    show(comparison, comment=False, as_json=False)
    tell_files(settings.output, results=("results.json", "base/results.json"))
    answers = list(examine(base, head))
    say("\n" + "".join(f"{'ok   ' if answer.right else 'WRONG'} {answer.question}: {answer.said}\n" for answer in answers))
    wrong = sum(not answer.right for answer in answers)
    verdict = f"{wrong} wrong answer(s): do not trust this gate on this machine" if wrong else "the gate goes red where it should"
    say(f"{verdict}\n")
    return int(ExitCode.POLICY_NOT_MET if wrong else ExitCode.OK)


def _bench(command: str, settings: Measuring, config: "Config", find: "Callable[[str], Suite]") -> Bench:
    from ci_bench.runner import planning

    plan = planning.require_room(planning.plan(config, settings.filter, find, tell))
    return Bench(
        config=config,
        plan=plan,
        output=settings.output,
        reproduce=command_again(command, settings),
        environ=settings.environ,
        resume=settings.resume,
        save_outputs=settings.save_outputs,
        workflow=workflow_run(settings.environ),
        asked=asked(settings, config),
    )


def doctor(settings: Examining) -> int:
    """Examine this machine, and measure how much it differs from itself."""
    from ci_bench.diagnostics.doctor import examine, noise, noise_config, render
    from ci_bench.processes.launch import make_folder
    from ci_bench.records.results import SideName
    from ci_bench.suites.reference_kernels.plan import SUITE

    findings = examine(settings.environ)
    usable = all(finding.usable for finding in findings)
    if usable and not settings.quick:
        plan: Plan = tuple((SUITE, case) for case in SUITE.plan({}))
        with make_folder() as folder:
            bench = Bench(
                config=noise_config(),
                plan=plan,
                output=Path(folder),
                reproduce=("ci-bench", "doctor"),
                environ=settings.environ,
                choose=None,
            )
            results = bench.measure([_here(settings, SideName.BASE), _here(settings, SideName.HEAD)])
        findings = (*findings, noise(results[SideName.BASE], results[SideName.HEAD]))
    render(findings, console())
    return int(ExitCode.OK if usable else ExitCode.MEASURING_FAILED)


def gpu_check(settings: Checking) -> int:
    """Try on this GPU what measuring takes for granted."""
    from ci_bench import __version__
    from ci_bench.diagnostics.gpu_check.check import Check, document, passed, render
    from ci_bench.diagnostics.gpu_check.sections import NAMES, SECTIONS
    from ci_bench.records.config import RunOptions
    from ci_bench.records.documents import require_writable, write_text

    unknown = [name for name in settings.only if name not in NAMES]
    if unknown:
        message = f"--only {unknown[0]}: no such section; choose from {', '.join(NAMES)}"
        raise BadInput(message)
    require_writable(settings.output)
    wanted = tuple(section for section in SECTIONS if not settings.only or section.name in settings.only)
    checking = Check(
        device=settings.device,
        environ=settings.environ,
        lock_s=RunOptions().lock_timeout_s,
        measure_unchanged=partial(_measure_unchanged, settings),
        observe=lambda section: tell(f"{section.name}: {section.asks} (up to {section.limit_s:g} s)"),
        starting=lambda limit_s: tell(f"importing torch, from a cold disk that takes a minute (up to {limit_s:g} s)"),
    )
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = tuple(checking.rows(wanted))
    render(rows, console())
    whole = document(rows, device=settings.device, tool_version=__version__, started_at=started_at)
    write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", settings.output)
    tell(f"written to {settings.output}: attach it to an issue")
    return int(ExitCode.OK if passed(rows) else ExitCode.POLICY_NOT_MET)


def _measure_unchanged(settings: Checking) -> "Figures":
    """Measure this tree against itself in a paired run, for the section `unchanged`."""
    from ci_bench import __version__
    from ci_bench.diagnostics.doctor import NOISE_LAUNCHES, noise_config, noise_floor
    from ci_bench.judge.compare import compare
    from ci_bench.judge.times.sequential import fixed
    from ci_bench.processes.launch import make_folder
    from ci_bench.records.comparison import BaselineMode, Verdict
    from ci_bench.records.results import SideName
    from ci_bench.suites.reference_kernels.plan import SUITE

    config = noise_config()
    config = replace(config, run=replace(config.run, device=settings.device, stage_timeout_s=30.0))
    with make_folder() as folder:
        bench = Bench(
            config=config,
            plan=tuple((SUITE, case) for case in SUITE.plan({})),
            output=Path(folder),
            reproduce=("ci-bench", "gpu-check"),
            environ=settings.environ,
            choose=None,
        )
        results = bench.measure([_here(settings, SideName.BASE), _here(settings, SideName.HEAD)])
    base, head = results[SideName.BASE], results[SideName.HEAD]
    judged = compare(
        base=base, head=head, policy=config.policy, mode=BaselineMode.PAIRED, absence=None, tool_version=__version__,
        rule=fixed(NOISE_LAUNCHES),
    )  # fmt: skip
    verdicts = [pair.verdict for case in judged.cases for pair in case.pairs]
    doubts = [block.doubt for row in (*base.cases, *head.cases) for block in row.blocks if block.doubt]
    floor = noise_floor(base, head)
    return {
        "metrics": len(verdicts),
        "undecided": sum(verdict in {Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE} for verdict in verdicts),
        "wrong": sum(verdict in {Verdict.REGRESSED, Verdict.IMPROVED} for verdict in verdicts),
        "doubts": len(doubts),
        "doubt": doubts[0] if doubts else None,
        "resolvable": floor.resolvable if floor else None,
        "launch_s": sum(row.duration_s or 0.0 for row in (*base.cases, *head.cases)) / len(head.cases) / NOISE_LAUNCHES,
    }


def fastrnns(settings: Fastrnns) -> int:
    """Run PyTorch's fastrnns benchmark, by its own flags."""
    from ci_bench.command_line.fastrnns_flags import print_results
    from ci_bench.records.results import SideName
    from ci_bench.runner import planning

    request = settings.request
    for remark in request.remarks:
        tell(remark)
    plan = planning.plan(request.config, settings.filter, tell=tell)
    bench = Bench(
        config=request.config,
        plan=plan,
        output=settings.output,
        reproduce=("ci-bench", "fastrnns", *request.again),
        environ=settings.environ,
    )
    results = bench.measure([_here(settings, SideName.HEAD)])[SideName.HEAD]
    printed = print_results(results, request)
    say(printed.out)
    sys.stderr.write(printed.err)
    for row in results.cases:
        if row.failure is not None:
            _tell_row(row)
    return int(_ending(results))


def _tell_row(row: "CaseResult") -> None:
    """Print how a case ended, and why, on one line: a reason holds what the measured code or a compiler wrote."""
    from ci_bench.report.text import clean

    reason = f": {clean(row.failure.reason, cap=MOST_REASON)}" if row.failure else ""
    tell(f"{row.status:<14}{row.case.id}{reason}")


def _here(settings: Settings, name: "SideName", more: Mapping[str, str] | None = None) -> "Side":
    """The caller's tree as a side, its code first on the path; `more` are variables for its workers."""
    from ci_bench.checkouts.sides import caller_side

    return caller_side(name, settings.here, settings.environ, more)


def _save_baseline(settings: Measuring, comparison: "Comparison", path: Path) -> None:
    from ci_bench.records import documents
    from ci_bench.runner.beside import copy_saved

    file, source = results_path(path), settings.output / "results.json"
    if comparison.judgement.met:
        results = documents.read_results(source)
        documents.write(results, file)
        copy_saved(results, source, file)
        message = f"saved this run as the baseline: {file}"
    elif file.exists():
        message = f"the policy is not met, so the baseline is unchanged: {file} (delete it to start over)"
    else:
        message = f"the policy is not met, so no baseline was saved at {file}"
    tell(message)
