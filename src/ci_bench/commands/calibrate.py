"""`ci-bench calibrate`: measure this tree against itself, and keep the noise of this machine."""

from dataclasses import replace

from ci_bench import __version__
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.inputs import noise_folder
from ci_bench.commands.measuring import caller, measurement_of
from ci_bench.commands.output import say, tell
from ci_bench.commands.own_suites import load_with_suites
from ci_bench.errors import ExitCode
from ci_bench.judge.times.audit import audit
from ci_bench.judge.times.calibration import collect, noise_floors
from ci_bench.records.config import Sampling
from ci_bench.records.results import SideName
from ci_bench.runner.noise_floor import times_only, told

CALIBRATION_LAUNCHES = 8


def calibrate(settings: Measuring) -> int:
    """Measure this tree against itself, and keep the noise of this machine."""
    config, find = load_with_suites(settings)
    options = replace(
        config.run, sampling=Sampling.FIXED, launches=settings.launches or CALIBRATION_LAUNCHES
    )
    measurement = measurement_of("calibrate", settings, replace(config, run=options), find)
    measurement = replace(measurement, plan=times_only(measurement.plan))
    noise = noise_folder(settings)
    noise.require_writable()
    results = measurement.measure(
        [caller(settings, SideName.BASE), caller(settings, SideName.HEAD)], calibrations=noise
    )
    base, head = results[SideName.BASE], results[SideName.HEAD]
    calibration = noise.keep(collect(base, head, tool_version=__version__))
    floors = noise_floors(calibration, now=head.run.started_at)
    say(told(floors, audit(calibration, policy=config.policy)))
    tell(f"kept in {noise.path}")
    return int(ExitCode.OK if floors else ExitCode.MEASURING_FAILED)
