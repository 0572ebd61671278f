"""`ci-bench gate`: the program on one screen."""

from dataclasses import replace

from ci_bench.command_line.settings import Measuring
from ci_bench.commands.baselines import choose_baseline, open_baseline
from ci_bench.commands.fleet_hook import alone, measure_on_fleet
from ci_bench.commands.inputs import command_again, noise_folder
from ci_bench.commands.judging import judge, paired_with
from ci_bench.commands.keeping import keep_calibration, learn, require_teachable, save_baseline
from ci_bench.commands.measuring import measurement_of
from ci_bench.commands.output import tell
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.commands.preparing import planned_with_base, planning_sealed
from ci_bench.commands.showing import show, tell_files
from ci_bench.judge.times.sequential import rule_of
from ci_bench.records.results import SideName


def gate(settings: Measuring) -> int:
    """Plan, open the baseline, measure, judge, report; exit by the policy."""
    sealed = noise_folder(settings).seal()
    with planning_sealed(settings):
        config, find = load_with_suites(settings)
        choice = choose_baseline(settings, config)
        measurement = measurement_of("gate", settings, config, find)
    noise = sealed if choice.paired else None
    if settings.learn:
        require_teachable(settings, noise)
    with alone(settings), open_baseline(choice, measurement, settings) as opened:
        measurement = replace(
            measurement, reproduce=command_again("gate", settings, base=opened.base)
        )
        if choice.paired:
            measurement = planned_with_base(measurement, settings, opened.sides)
        if settings.fleet is not None:
            results = measure_on_fleet(
                measurement, settings, opened.sides, noise, sources=opened.sources
            )
        else:
            results = measurement.measure(
                opened.sides,
                noise=noise,
                baseline=opened.known,
                baseline_outputs=opened.kept,
                seal=opened.seal,
            )
    head = results[SideName.HEAD]
    if restored := sealed.restore(head.environment.identity):
        tell(restored)
    comparison = judge(
        head,
        opened.baseline or paired_with(results[SideName.BASE]),
        policy=measurement.config.policy,
        folder=settings.output,
        calibration=keep_calibration(noise, head, settings.output) if noise else None,
        rule=rule_of(config.run) if choice.paired else None,
    )
    show(comparison, settings.format)
    tell_files(settings.output, sides=results)
    if settings.learn and noise is not None:
        learn(noise, results[SideName.BASE], head, comparison)
    if settings.save_baseline and choice.path is not None:
        save_baseline(settings, comparison, choice.path)
    return comparison.judgement.exit_code
