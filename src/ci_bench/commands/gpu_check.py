"""`ci-bench doctor --gpu`: check on this GPU the assumptions of measuring."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ci_bench import __version__
from ci_bench.command_line.settings import CheckingGpu
from ci_bench.commands.measuring import Measurement, caller
from ci_bench.commands.output import print_to_stdout, tell
from ci_bench.diagnostics.doctor import NOISE_LAUNCHES, noise_config, noise_floor
from ci_bench.diagnostics.gpu_check.check import GpuCheck, document, passed, render
from ci_bench.diagnostics.gpu_check.sections import NAMES, SECTIONS, Figures
from ci_bench.errors import BadInput, ExitCode
from ci_bench.judge.compare import compare
from ci_bench.judge.times.sequential import fixed
from ci_bench.processes.launch import make_folder
from ci_bench.records.comparison import BaselineMode, Verdict
from ci_bench.records.config import RunOptions
from ci_bench.records.documents import require_writable, write_text
from ci_bench.records.results import SideName
from ci_bench.suites.reference_kernels.plan import SUITE

FILE = "gpu-check.json"


def gpu_check(settings: CheckingGpu) -> int:
    """Check on this GPU the assumptions of measuring."""
    unknown = [name for name in settings.only if name not in NAMES]
    if unknown:
        message = f"--only {unknown[0]}: no such section; choose from {', '.join(NAMES)}"
        raise BadInput(message)
    file = settings.output / FILE
    require_writable(file)
    sections = tuple(
        section for section in SECTIONS if not settings.only or section.name in settings.only
    )
    checking = GpuCheck(
        device=settings.device,
        environ=settings.environ,
        lock_s=RunOptions().lock_timeout_s,
        measure_unchanged=partial(_measure_unchanged, settings),
        observe=lambda section: tell(
            f"{section.name}: {section.asks} (up to {section.limit_s:g} s)"
        ),
        starting=lambda limit_s: tell(
            f"importing torch, from a cold disk that takes a minute (up to {limit_s:g} s)"
        ),
    )
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    rows = tuple(checking.rows(sections))
    print_to_stdout(partial(render, rows))
    report = document(rows, device=settings.device, tool_version=__version__, started_at=started_at)
    write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", file)
    tell(f"written to {file}: attach it to an issue")
    return int(ExitCode.OK if passed(rows) else ExitCode.POLICY_NOT_MET)


def _measure_unchanged(settings: CheckingGpu) -> Figures:
    """Measure this tree against itself in a paired run, for the section `unchanged`."""
    config = noise_config()
    config = replace(config, run=replace(config.run, device=settings.device, stage_timeout_s=30.0))
    with make_folder() as folder:
        measurement = Measurement(
            config=config,
            plan=tuple((SUITE, case) for case in SUITE.plan({})),
            output=Path(folder),
            reproduce=("ci-bench", "doctor", "--gpu"),
            environ=settings.environ,
            choose=None,
        )
        results = measurement.measure(
            [caller(settings, SideName.BASE), caller(settings, SideName.HEAD)]
        )
    base, head = results[SideName.BASE], results[SideName.HEAD]
    judged = compare(
        base=base,
        head=head,
        policy=config.policy,
        mode=BaselineMode.PAIRED,
        absence=None,
        tool_version=__version__,
        rule=fixed(NOISE_LAUNCHES),
    )
    verdicts = [pair.verdict for case in judged.cases for pair in case.pairs]
    doubts = [
        block.doubt for row in (*base.cases, *head.cases) for block in row.blocks if block.doubt
    ]
    floor = noise_floor(base, head)
    return {
        "metrics": len(verdicts),
        "undecided": sum(
            verdict in {Verdict.INCONCLUSIVE, Verdict.INCOMPARABLE} for verdict in verdicts
        ),
        "wrong": sum(verdict in {Verdict.REGRESSED, Verdict.IMPROVED} for verdict in verdicts),
        "doubts": len(doubts),
        "doubt": doubts[0] if doubts else None,
        "resolvable": floor.resolvable if floor else None,
        "launch_s": (
            sum(row.duration_s or 0.0 for row in (*base.cases, *head.cases))
            / len(head.cases)
            / NOISE_LAUNCHES
        ),
    }
