"""Builds the real engine for a configuration, with its display and its watch on the machine, and measures with it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.output import console, tell
from ci_bench.errors import BadDocument

if TYPE_CHECKING:
    from ci_bench.engine.machine.monitor import Monitor
    from ci_bench.engine.trees.sides import Side
    from ci_bench.noise_floor import NoiseFolder
    from ci_bench.planning import Plan
    from ci_bench.records.case import SideName
    from ci_bench.records.config import Config
    from ci_bench.records.results import Environment, Results, Run
    from ci_bench.resuming import Earlier


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What is measured and how, where the documents go, and the command that measures again (without its filter)."""

    config: "Config"
    plan: "Plan"
    output: Path
    reproduce: str
    resume: bool = False

    def measure(
        self, sides: Sequence["Side"], *, noise: "NoiseFolder | None" = None, known: "Results | None" = None
    ) -> Mapping["SideName", "Results"]:
        """Measure all sides; with `noise`, the judge says after each launch which cases need more.

        `known` is what an earlier run measured: where there is a budget, it says which cases tell the most. With `resume`, an
        interrupted run in the output folder is gone on with.
        """
        from ci_bench import pipeline, planning
        from ci_bench.doctor import require_engine
        from ci_bench.engine.process.launch import make_folder
        from ci_bench.engine.runner import Engine
        from ci_bench.report.progress import ProgressDisplay

        require_engine()
        begun, earlier = planning.start(self.config), None
        rank = self._rank(known) if self.config.run.budget_s else {}
        if self.resume:
            earlier = self._interrupted(sides, begun)
            begun = earlier.run if earlier else begun
        judge = pipeline.OpenCases(run=begun, sides=tuple(sides), config=self.config, noise=noise) if noise else None
        with make_folder() as scratch, ProgressDisplay(console(stderr=True)) as display:
            engine = Engine(
                options=self.config.run,
                scratch=Path(scratch),
                observe=display,
                watch=partial(_watch, limit_s=self.config.run.lock_timeout_s),
                still_open=judge,
                seed=begun.id,
                rank=rank,
            )
            return pipeline.measure(
                self.plan,
                run=begun,
                sides=sides,
                reproduce={case.id: f"{self.reproduce} --filter {shlex.quote(case.id)}" for _, case in self.plan},
                engine=engine.measure,
                folder=self.output,
                earlier=earlier,
            )

    def _interrupted(self, sides: Sequence["Side"], begun: "Run") -> "Earlier | None":
        from ci_bench import pipeline
        from ci_bench.resuming import find_earlier

        places = {side.name: pipeline.place(self.output, side.name) for side in sides}
        earlier = find_earlier(places, plan=self.plan, sides=sides, begun=begun)
        if earlier is None:
            tell(f"nothing in {self.output} to go on with: starting anew")
        else:
            done = max((len(ledger.launches) for ledger in earlier.ledgers.values()), default=0)
            tell(
                f"going on with the run of {earlier.run.started_at}: {done} of {len(self.plan)} case(s) have been measured before"
            )
        return earlier

    def _rank(self, known: "Results | None") -> dict[str, int]:
        from ci_bench import planning

        return planning.rank(self.plan, self.config.policy, known or self._earlier(), self._open_before())

    def _earlier(self) -> "Results | None":
        """What the run before left in the output folder, if it can be read."""
        from ci_bench import pipeline
        from ci_bench.records import documents

        with suppress(BadDocument):
            return documents.read_results(self.output / pipeline.RESULTS)
        return None

    def _open_before(self) -> frozenset[str]:
        """The cases that the comparison before could not decide, if it can be read."""
        from ci_bench import pipeline
        from ci_bench.records import documents
        from ci_bench.records.comparison import Verdict

        with suppress(BadDocument):
            cases = documents.read_comparison(self.output / pipeline.COMPARISON).cases
            return frozenset(case.id for case in cases if case.verdict is Verdict.INCONCLUSIVE)
        return frozenset()


def _watch(environment: "Environment", *, limit_s: float) -> "Monitor":
    """What watches the machine that a worker has looked at, with the lock on its device.

    Raises:
        DeviceBusy: another run measures on it, for longer than `limit_s` seconds.
    """
    from ci_bench.engine.machine.lock import DEFAULT_FOLDER, device_key, device_lock
    from ci_bench.engine.machine.monitor import open_monitor

    with ExitStack() as stack:
        folder = Path(os.environ.get("CI_BENCH_LOCKS") or DEFAULT_FOLDER)
        stack.enter_context(device_lock(device_key(environment), folder=folder, limit_s=limit_s, say=tell))
        uuid = environment.condition.get("gpu_uuid")
        monitor = open_monitor(str(environment.identity.get("device")), uuid if isinstance(uuid, str) else None)
        return monitor.holding(stack.pop_all())
