"""Builds the real engine for a configuration, with its display and its watch on the machine, and measures with it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.output import console

if TYPE_CHECKING:
    from ci_bench.engine.machine.monitor import Monitor
    from ci_bench.engine.trees.sides import Side
    from ci_bench.noise_floor import NoiseFolder
    from ci_bench.planning import Plan
    from ci_bench.records.case import SideName
    from ci_bench.records.config import Config
    from ci_bench.records.results import Environment, Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What is measured and how, where the documents go, and the command that measures again (without its filter)."""

    config: "Config"
    plan: "Plan"
    output: Path
    reproduce: str

    def measure(self, sides: Sequence["Side"], *, noise: "NoiseFolder | None" = None) -> Mapping["SideName", "Results"]:
        """Measure all sides; with `noise`, the judge says after each launch which cases need more."""
        from ci_bench import pipeline, planning
        from ci_bench.doctor import require_engine
        from ci_bench.engine.process.launch import make_folder
        from ci_bench.engine.runner import Engine
        from ci_bench.report.progress import ProgressDisplay

        require_engine()
        begun = planning.start(self.config)
        judge = pipeline.OpenCases(run=begun, sides=tuple(sides), config=self.config, noise=noise) if noise else None
        with make_folder() as scratch, ProgressDisplay(console(stderr=True)) as display:
            engine = Engine(
                options=self.config.run,
                scratch=Path(scratch),
                observe=display,
                watch=_watch,
                still_open=judge,
                seed=begun.id,
            )
            return pipeline.measure(
                self.plan,
                run=begun,
                sides=sides,
                reproduce={case.id: f"{self.reproduce} --filter {shlex.quote(case.id)}" for _, case in self.plan},
                engine=engine.measure,
                folder=self.output,
            )


def _watch(environment: "Environment") -> "Monitor":
    """What watches the machine that a worker has looked at."""
    from ci_bench.engine.machine.monitor import open_monitor

    uuid = environment.condition.get("gpu_uuid")
    return open_monitor(str(environment.identity.get("device")), uuid if isinstance(uuid, str) else None)
