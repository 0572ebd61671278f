"""The edge: the only reader of argv and of the environment. Builds the real objects, turns errors into exit codes.

Imports what a command needs inside that command, so that `--help` and the commands that don't measure start in a blink.
"""

import argparse
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.errors import BadInput, CiBenchError, ExitCode
from ci_bench.flags import Command, make_parser

if TYPE_CHECKING:
    from rich.console import Console

    from ci_bench.pipeline import Baseline
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.config import Config
    from ci_bench.records.results import Results


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = make_parser(COMMANDS).parse_args(argv)
    logging.basicConfig(level=logging.DEBUG if arguments.verbose else logging.WARNING, format="%(levelname)s: %(message)s")
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return int(arguments.command(arguments))
    except CiBenchError as error:
        sys.stderr.write(f"ci-bench: {error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("ci-bench: interrupted; results.json of a run holds what was measured so far, marked partial\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.BROKEN_PIPE)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run(arguments: argparse.Namespace) -> int:
    results = _measure(_load(arguments), arguments.filter, arguments.output, reproduce=_reproduce_prefix(arguments))
    for row in results.cases:
        reason = f": {row.failure.reason}" if row.failure else ""
        _tell(f"{row.status:<14}{row.case.id}{reason}")
    _tell(f"wrote {arguments.output / 'results.json'}")
    measured = any(row.metrics for row in results.cases)
    return int(ExitCode.OK if measured else ExitCode.MEASURING_FAILED)


def _gate(arguments: argparse.Namespace) -> int:
    from ci_bench import pipeline

    if arguments.save_baseline and arguments.baseline is None:
        message = "--save-baseline needs --baseline PATH: where should the run be kept?"
        raise BadInput(message)
    config = _load(arguments)
    baseline = _read_baseline(arguments.baseline)
    results = _measure(config, arguments.filter, arguments.output, reproduce=_reproduce_prefix(arguments))
    comparison = pipeline.judge(results, baseline, policy=config.policy, folder=arguments.output)
    _show(comparison, comment=arguments.comment)
    _say_files(arguments.output)
    if arguments.save_baseline:
        _save_baseline(results, comparison, arguments.baseline)
    return comparison.judgement.exit_code


def _measure(
    config: "Config", filters: Sequence[str], output: Path, *, reproduce: str, environ: Mapping[str, str] | None = None
) -> "Results":
    """Measure here. `reproduce` is the command without its filter, `environ` more variables for the workers."""
    from ci_bench import pipeline, planning
    from ci_bench.doctor import require_engine
    from ci_bench.engine.environ import worker_environment
    from ci_bench.engine.launch import make_folder
    from ci_bench.engine.runner import Engine
    from ci_bench.engine.source import describe_source
    from ci_bench.report.progress import ProgressDisplay

    plan = planning.plan(config, filters)
    require_engine()
    visible = {**worker_environment(os.environ), **(environ or {})}
    with make_folder() as scratch, ProgressDisplay(_console(stderr=True)) as display:
        engine = Engine(options=config.run, environ=visible, scratch=Path(scratch), observe=display)
        return pipeline.measure(
            plan,
            run=planning.start(config),
            source=describe_source(Path.cwd()),
            reproduce={case.id: f"{reproduce} --filter {shlex.quote(case.id)}" for _, case in plan},
            engine=engine.measure,
            folder=output,
        )


def _compare(arguments: argparse.Namespace) -> int:
    from ci_bench import pipeline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    policy = _load(arguments).policy
    base = documents.read_results(_results_path(arguments.base))
    head = documents.read_results(_results_path(arguments.head))
    baseline = pipeline.Baseline(mode=BaselineMode.FILE, results=base)
    comparison = pipeline.judge(head, baseline, policy=policy, folder=arguments.output)
    _show(comparison, comment=arguments.comment)
    if arguments.output:
        _say_files(arguments.output, results=False)
    return comparison.judgement.exit_code


def _report(arguments: argparse.Namespace) -> int:
    from ci_bench import pipeline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode
    from ci_bench.records.policy import Policy
    from ci_bench.report.markdown import render_comment, render_report

    if documents.document_kind(arguments.document) is documents.Kind.RESULTS:
        head = documents.read_results(arguments.document)
        alone = pipeline.Baseline(mode=BaselineMode.NONE, absence="this report is of one run alone")
        comparison = pipeline.judge(head, alone, policy=Policy(), folder=None)
    else:
        comparison = documents.read_comparison(arguments.document)
    sys.stdout.write(render_report(comparison) if arguments.full else render_comment(comparison))
    return int(ExitCode.OK)


def _validate(arguments: argparse.Namespace) -> int:
    from ci_bench.config import load_config
    from ci_bench.records import documents
    from ci_bench.suites.base import plugin_forms

    code = ExitCode.OK
    for path in arguments.files:
        try:
            kind = documents.document_kind(path)
            match kind:
                case documents.Kind.CONFIG:
                    load_config(path, more_suites=plugin_forms())
                case documents.Kind.RESULTS:
                    documents.read_results(path)
                case documents.Kind.COMPARISON:
                    documents.read_comparison(path)
            sys.stdout.write(f"{path}: a valid {kind} document\n")
        except CiBenchError as error:
            sys.stderr.write(f"ci-bench: {error}\n")
            code = error.exit_code
    return int(code)


def _list(arguments: argparse.Namespace) -> int:
    from ci_bench import planning

    config = _load(arguments)
    plan = planning.plan(config, arguments.filter)
    for suite, case in plan:
        stages = sum(stage.takes_place_in(launch) for launch in range(config.run.launches) for stage in suite.stages(case))
        sys.stdout.write(f"{case.id}\n    arms: {', '.join(case.arms)} (reference: {case.reference}); {stages} worker stages\n")
    sys.stdout.write(f"{len(plan)} case(s), {config.run.launches} launch(es), device {config.run.device}\n")
    return int(ExitCode.OK)


def _selftest(arguments: argparse.Namespace) -> int:
    from ci_bench.selftest import examine, selftest_config

    config = selftest_config(arguments.device or "auto")

    def measure(name: str, plants: str) -> "Results":
        return _measure(config, (), arguments.output / name, reproduce="ci-bench selftest", environ={"CI_BENCH_PLANT": plants})

    wrong = 0
    for answer in examine(measure):
        wrong += not answer.right
        sys.stdout.write(f"{'ok   ' if answer.right else 'WRONG'} {answer.question}: {answer.said}\n")
        sys.stdout.flush()
    verdict = f"{wrong} wrong answer(s): do not trust this gate on this machine" if wrong else "the gate goes red where it should"
    sys.stdout.write(f"{verdict}\n")
    return int(ExitCode.POLICY_NOT_MET if wrong else ExitCode.OK)


def _doctor(_: argparse.Namespace) -> int:
    from ci_bench.doctor import examine, render

    findings = examine(os.environ)
    render(findings, _console())
    return int(ExitCode.OK if all(finding.usable for finding in findings) else ExitCode.MEASURING_FAILED)


def _load(arguments: argparse.Namespace) -> "Config":
    from ci_bench.config import Overrides, load_config
    from ci_bench.suites.base import plugin_forms

    here = Path("ci-bench.yml")
    path = arguments.config or (here if here.exists() else None)
    overrides = Overrides(
        device=getattr(arguments, "device", None),
        launches=getattr(arguments, "launches", None),
        threads=getattr(arguments, "threads", None),
        stage_timeout_s=getattr(arguments, "stage_timeout", None),
        budget_s=getattr(arguments, "budget", None),
    )
    return load_config(path, overrides, more_suites=plugin_forms())


def _read_baseline(path: Path | None) -> "Baseline":
    """The baseline document; an absent file is an absence with its reason, a broken one is an error before measuring."""
    from ci_bench.pipeline import Baseline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    if path is None:
        return Baseline(mode=BaselineMode.FILE, absence="none was asked for (--baseline PATH)")
    file = _results_path(path)
    if not file.exists():
        return Baseline(mode=BaselineMode.FILE, absence=f"there is nothing at {file} yet")
    return Baseline(mode=BaselineMode.FILE, results=documents.read_results(file))


def _save_baseline(results: "Results", comparison: "Comparison", path: Path) -> None:
    from ci_bench.records import documents

    file = _results_path(path)
    if comparison.judgement.passed:
        documents.write(results, file)
        message = f"saved this run as the baseline: {file}"
    elif file.exists():
        message = f"the policy is not met, so the baseline stays as it was: {file} (remove it to start afresh)"
    else:
        message = f"the policy is not met, so no baseline was saved at {file}"
    _tell(message)


def _results_path(path: Path) -> Path:
    return path if path.suffix == ".json" else path / "results.json"


def _show(comparison: "Comparison", *, comment: bool) -> None:
    from ci_bench.report.markdown import render_comment
    from ci_bench.report.terminal import print_comparison

    if comment:
        sys.stdout.write(render_comment(comparison))
        sys.stdout.flush()
    else:
        print_comparison(comparison, _console())


def _say_files(folder: Path, *, results: bool = True) -> None:
    names = (["results.json"] if results else []) + ["comparison.json", "report.md"]
    _tell(f"wrote {', '.join(str(folder / name) for name in names)}")


def _tell(line: str) -> None:
    """Say what was done; on stderr, so that a comment or a report can be piped."""
    sys.stderr.write(f"{line}\n")


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def _reproduce_prefix(arguments: argparse.Namespace) -> str:
    parts = ["ci-bench", "run"]
    if arguments.config:
        parts += ["--config", str(arguments.config)]
    if arguments.device:
        parts += ["--device", arguments.device]
    return shlex.join(parts)


COMMANDS: Mapping[str, Command] = {
    "run": _run,
    "gate": _gate,
    "compare": _compare,
    "report": _report,
    "validate": _validate,
    "list": _list,
    "selftest": _selftest,
    "doctor": _doctor,
}

if __name__ == "__main__":
    sys.exit(main())
