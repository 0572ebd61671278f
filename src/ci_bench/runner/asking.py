"""Judge's decisions while a run is measured: further launches, and the arms to explain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_bench import __version__
from ci_bench.checkouts.sides import Side
from ci_bench.judge.compare import compare
from ci_bench.judge.parity.over_seeds import starts_differ
from ci_bench.judge.parity.verdict import rounding_is_open
from ci_bench.judge.policy.causes import arms_that_fail_to_compile, arms_to_explain
from ci_bench.judge.times.sequential import rule_of
from ci_bench.judge.times.stopping import still_open
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Config, Explain
from ci_bench.records.labels import worst_first
from ci_bench.records.open_cases import OpenCase
from ci_bench.records.results import Run, SideName
from ci_bench.runner.decisions import Asks, Measured
from ci_bench.runner.noise_floor import NoiseFolder
from ci_bench.runner.recording import results_of
from ci_bench.suites.contract import StageKind


@dataclass(frozen=True, kw_only=True, slots=True)
class ToExplain:
    """Judge's decision on the arms to explain, once all samples are taken.

    `noise` is there if sides are compared in this run.
    """

    run: Run
    sides: tuple[Side, ...]
    config: Config
    noise: NoiseFolder | None

    def __call__(self, measured: Measured) -> Mapping[str, Sequence[str]]:
        """Return the arms to explain, by the case's id.

        All arms if that was requested, otherwise those that are worse, the worst case first.
        """
        both = {
            side.name: results_of(self.run, side.source, *measured[side.name])
            for side in self.sides
        }
        head, base = both[SideName.HEAD], both.get(SideName.BASE)
        if self.config.run.explain is Explain.ALWAYS:
            return {row.case.id: row.case.arms for row in head.cases}
        uncompiled = arms_that_fail_to_compile(head.cases)
        if self.noise is None or base is None:
            return uncompiled
        compared = compare(
            base=base,
            head=head,
            policy=self.config.policy,
            mode=BaselineMode.PAIRED,
            absence=None,
            tool_version=__version__,
            calibration=self.noise.find(head.environment.identity),
            rule=rule_of(self.config.run),
        )
        worse = {
            case.id: arms for case in worst_first(compared.cases) if (arms := arms_to_explain(case))
        }
        return {**worse, **uncompiled}


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCases:
    """Judge's decision on a paired run's cases that need another launch, with their metrics."""

    run: Run
    sides: tuple[Side, ...]
    config: Config
    noise: NoiseFolder

    def __call__(self, launches: int, measured: Measured) -> Mapping[str, OpenCase]:
        """Return the cases that are open after `launches` launches, by id."""
        base, head = (
            results_of(self.run, side.source, *measured[side.name])
            for name in (SideName.BASE, SideName.HEAD)
            for side in self.sides
            if side.name is name
        )
        return still_open(
            base,
            head,
            policy=self.config.policy,
            calibration=self.noise.find(head.environment.identity),
            launches_done=launches,
            rule=rule_of(self.config.run),
        )


def conditional_stages() -> dict[StageKind, Asks]:
    """Return the stages that are not always needed, with the judge's decisions on them."""
    return {StageKind.ROUNDING: rounding_is_open, StageKind.SEEDS: starts_differ}
