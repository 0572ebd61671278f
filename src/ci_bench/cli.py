"""The edge: the only reader of argv and of the environment. Builds the real objects, turns errors into exit codes.

Imports what a command needs inside that command, so that `--help` and the commands that don't measure start in a blink.
"""

import argparse
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench import __version__
from ci_bench.errors import BadInput, CiBenchError, ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from ci_bench.pipeline import Baseline, Plan
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.config import Config
    from ci_bench.records.results import Results, Run

logger = logging.getLogger(__name__)

DEFAULT_OUTPUT = Path("ci-bench-results")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.DEBUG if arguments.verbose else logging.WARNING, format="%(levelname)s: %(message)s")
    command: Callable[[argparse.Namespace], int] = arguments.command
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return int(command(arguments))
    except CiBenchError as error:
        sys.stderr.write(f"ci-bench: {error}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("ci-bench: interrupted; what was measured so far is in results.json, marked partial\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.OK)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ci-bench",
        description="Gate pull requests on GPU performance and loss parity.",
        epilog="Exit codes: 0 policy met, 1 not met, 2 bad input, 3 measuring failed, 4 not comparable, 5 GitHub unreachable.",
    )
    parser.add_argument("--version", action="version", version=f"ci-bench {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is done")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="measure, and write results.json")
    _add_measuring(run)
    run.set_defaults(command=_run)

    gate = commands.add_parser("gate", help="measure, compare with a baseline, report, and exit by the policy")
    _add_measuring(gate)
    gate.add_argument("--baseline", type=Path, metavar="PATH", help="results.json of the base side, or the folder it is in")
    gate.add_argument("--save-baseline", action="store_true", help="keep this run at --baseline for the next one, if the policy is met")
    gate.add_argument("--comment", action="store_true", help="print the pull-request comment instead of the summary")
    gate.set_defaults(command=_gate)

    compare = commands.add_parser("compare", help="compare two results documents and exit by the policy; needs no torch")
    compare.add_argument("base", type=Path, help="results.json of the base side")
    compare.add_argument("head", type=Path, help="results.json of the head side")
    _add_config(compare)
    compare.add_argument("-o", "--output", type=Path, metavar="DIR", help="also write comparison.json and report.md here")
    compare.add_argument("--comment", action="store_true", help="print the pull-request comment instead of the summary")
    compare.set_defaults(command=_compare)

    report = commands.add_parser("report", help="print the comment for a comparison.json, or for a results.json alone")
    report.add_argument("document", type=Path, help="comparison.json or results.json")
    report.add_argument("--full", action="store_true", help="the whole report, not cut to a comment's size")
    report.set_defaults(command=_report)

    validate = commands.add_parser("validate", help="check configurations and documents; names each fault by its path")
    validate.add_argument("files", type=Path, nargs="+", help="ci-bench.yml, results.json, comparison.json")
    validate.set_defaults(command=_validate)

    listing = commands.add_parser("list", help="print the plan without measuring; needs no torch")
    _add_config(listing)
    _add_filter(listing)
    listing.set_defaults(command=_list)

    doctor = commands.add_parser("doctor", help="say what this machine has and lacks for measuring")
    doctor.set_defaults(command=_doctor)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration (default: ci-bench.yml here, else the embedded one)"
    )


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k", "--filter", action="append", default=[], metavar="TEXT", help="only cases whose id contains TEXT; repeatable"
    )


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    _add_filter(parser)
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR", help="folder for the documents")
    parser.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N (wins over the configuration)")
    parser.add_argument("--launches", type=int, metavar="N", help="fresh process sets to measure with")
    parser.add_argument("--threads", type=int, metavar="N", help="torch's threads on the CPU")
    parser.add_argument("--stage-timeout", type=float, metavar="S", help="end one worker after so many seconds")
    parser.add_argument("--budget", type=float, metavar="S", help="start no further case after so many seconds")


# ---- commands that measure


def _run(arguments: argparse.Namespace) -> int:
    results = _measure(arguments, _load(arguments), _console())
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
    results = _measure(arguments, config, _console())
    comparison = pipeline.judge(results, baseline, policy=config.policy, folder=arguments.output)
    _show(comparison, comment=arguments.comment)
    _say_files(arguments.output)
    if arguments.save_baseline:
        _save_baseline(results, comparison, arguments.baseline)
    return comparison.judgement.exit_code


def _measure(arguments: argparse.Namespace, config: "Config", console: "Console") -> "Results":
    from ci_bench import pipeline
    from ci_bench.doctor import require_engine
    from ci_bench.engine.environ import worker_environment
    from ci_bench.engine.launch import make_folder
    from ci_bench.engine.runner import Engine
    from ci_bench.engine.source import describe_source
    from ci_bench.report.progress import ProgressDisplay

    plan = _plan(config, arguments.filter)
    require_engine()
    run = _describe_run(config)
    prefix = _reproduce_prefix(arguments)
    reproduce = {case.id: f"{prefix} --filter {shlex.quote(case.id)}" for _, case in plan}
    with make_folder() as scratch, ProgressDisplay(console) as display:
        engine = Engine(options=config.run, environ=worker_environment(os.environ), scratch=Path(scratch), observe=display)
        return pipeline.measure(
            plan, run=run, source=describe_source(Path.cwd()), reproduce=reproduce, engine=engine.measure, folder=arguments.output
        )


# ---- commands that read


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
    from ci_bench.config import Overrides, load_config
    from ci_bench.records import documents

    code = ExitCode.OK
    for path in arguments.files:
        try:
            kind = documents.document_kind(path)
            match kind:
                case documents.Kind.CONFIG:
                    load_config(path, Overrides())
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
    config = _load(arguments)
    plan = _plan(config, arguments.filter)
    for suite, case in plan:
        stages = sum(stage.takes_place_in(launch) for launch in range(config.run.launches) for stage in suite.stages(case))
        sys.stdout.write(f"{case.id}\n    arms: {', '.join(case.arms)} (reference: {case.reference}); {stages} worker stages\n")
    sys.stdout.write(f"{len(plan)} case(s), {config.run.launches} launch(es), device {config.run.device}\n")
    return int(ExitCode.OK)


def _doctor(_: argparse.Namespace) -> int:
    from ci_bench.doctor import examine, render

    findings = examine(os.environ)
    render(findings, _console())
    return int(ExitCode.OK if all(finding.usable for finding in findings) else ExitCode.MEASURING_FAILED)


# ---- building the real objects


def _load(arguments: argparse.Namespace) -> "Config":
    from ci_bench.config import Overrides, load_config

    here = Path("ci-bench.yml")
    path = arguments.config or (here if here.exists() else None)
    overrides = Overrides(
        device=getattr(arguments, "device", None),
        launches=getattr(arguments, "launches", None),
        threads=getattr(arguments, "threads", None),
        stage_timeout_s=getattr(arguments, "stage_timeout", None),
        budget_s=getattr(arguments, "budget", None),
    )
    return load_config(path, overrides)


def _plan(config: "Config", filters: Sequence[str]) -> "Plan":
    """All cases of the configuration that pass the filters, each id once."""
    from ci_bench.errors import BadConfig
    from ci_bench.suites.base import find_suite

    plan = []
    for entry in config.entries:
        suite = find_suite(entry.suite)
        plan += [(suite, case) for case in suite.plan(entry.options)]
    ids = [case.id for _, case in plan]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        message = f"two entries make the same case {twice[0]}; give one of them another `name`"
        raise BadConfig(message)
    chosen = tuple((suite, case) for suite, case in plan if not filters or any(text in case.id for text in filters))
    if ids and not chosen:
        message = f"--filter {' '.join(filters)}: no case id contains this; `ci-bench list` prints all {len(ids)} ids"
        raise BadInput(message)
    return chosen


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
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _console() -> "Console":
    from rich.console import Console

    return Console(stderr=False)


def _describe_run(config: "Config") -> "Run":
    import hashlib
    import json
    import uuid
    from datetime import UTC, datetime

    import msgspec

    from ci_bench.records.results import Run, RunState

    canonical = json.dumps(msgspec.to_builtins(config), sort_keys=True)
    return Run(
        id=uuid.uuid4().hex,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        state=RunState.PARTIAL,
        config_digest=hashlib.sha256(canonical.encode()).hexdigest(),
        device=config.run.device,
    )


def _reproduce_prefix(arguments: argparse.Namespace) -> str:
    parts = ["ci-bench", "run"]
    if arguments.config:
        parts += ["--config", str(arguments.config)]
    if arguments.device:
        parts += ["--device", arguments.device]
    return shlex.join(parts)


if __name__ == "__main__":
    sys.exit(main())
