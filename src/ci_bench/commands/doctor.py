"""`ci-bench doctor`: examine this machine, and measure its noise."""

from functools import partial
from pathlib import Path

from ci_bench.command_line.settings import Examining
from ci_bench.commands.measuring import Measurement, caller
from ci_bench.commands.output import print_to_stdout
from ci_bench.diagnostics.doctor import examine, noise, noise_config, render
from ci_bench.errors import ExitCode
from ci_bench.processes.launch import make_folder
from ci_bench.records.results import SideName
from ci_bench.runner.planning import Plan
from ci_bench.suites.reference_kernels.plan import SUITE


def doctor(settings: Examining) -> int:
    """Examine this machine, and measure its noise."""
    findings = examine(settings.environ)
    usable = all(finding.usable for finding in findings)
    if usable and not settings.quick:
        plan: Plan = tuple((SUITE, case) for case in SUITE.plan({}))
        with make_folder() as folder:
            measurement = Measurement(
                config=noise_config(),
                plan=plan,
                output=Path(folder),
                reproduce=("ci-bench", "doctor"),
                environ=settings.environ,
                choose=None,
            )
            results = measurement.measure(
                [caller(settings, SideName.BASE), caller(settings, SideName.HEAD)]
            )
        findings = (*findings, noise(results[SideName.BASE], results[SideName.HEAD]))
    print_to_stdout(partial(render, findings))
    return int(ExitCode.OK if usable else ExitCode.MEASURING_FAILED)
