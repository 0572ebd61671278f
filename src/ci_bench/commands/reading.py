"""The commands that measure nothing: compare, validate, list."""

import sys

from ci_bench.commands.inputs import load, load_with_suites, noise_folder, results_path
from ci_bench.commands.output import say, show, tell_files
from ci_bench.errors import CiBenchError, ExitCode
from ci_bench.settings import Comparing, Measuring, Validating


def compare(settings: Comparing) -> int:
    """Judge one results document against another."""
    from ci_bench import pipeline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    config = load(settings)
    base = documents.read_results(results_path(settings.base))
    head = documents.read_results(results_path(settings.head))
    paired = base.run.id == head.run.id
    comparison = pipeline.judge(
        head,
        pipeline.Baseline(mode=BaselineMode.PAIRED if paired else BaselineMode.FILE, results=base),
        policy=config.policy,
        folder=settings.output,
        calibration=noise_folder(settings).find(head.environment.identity) if paired else None,
        rule=pipeline.rule_of(config.run) if paired else None,
    )
    show(comparison, comment=settings.comment, as_json=settings.as_json)
    if settings.output:
        tell_files(settings.output, results=())
    return comparison.judgement.exit_code


def validate(settings: Validating) -> int:
    """Check documents against their schemas."""
    from ci_bench.config import load_config
    from ci_bench.records import documents
    from ci_bench.suites.base import plugin_forms

    code = ExitCode.OK
    for path in settings.files:
        try:
            kind = documents.document_kind(path)
            match kind:
                case documents.Kind.CONFIG:
                    load_config(path, more_suites=plugin_forms())
                case documents.Kind.RESULTS:
                    documents.read_results(path)
                case documents.Kind.COMPARISON:
                    documents.read_comparison(path)
                case documents.Kind.CALIBRATION:
                    documents.read_calibration(path)
                case documents.Kind.HISTORY:
                    documents.read_history(path)
            say(f"{path}: a valid {kind} document\n")
        except CiBenchError as error:
            sys.stderr.write(f"ci-bench: {error}\n")
            code = error.exit_code
    return int(code)


def list_cases(settings: Measuring) -> int:
    """Print what would be measured."""
    from ci_bench import planning

    config, find = load_with_suites(settings)
    plan = planning.plan(config, settings.filter, find)
    for suite, case in plan:
        stages = sum(stage.takes_place_in(launch) for launch in range(config.run.launches) for stage in suite.stages(case))
        say(f"{case.id}\n    arms: {', '.join(case.arms)} (reference: {case.reference}); {stages} worker stages\n")
    say(f"{len(plan)} case(s), {config.run.launches} launch(es), device {config.run.device}\n")
    return int(ExitCode.OK)
