"""Benchmarks of an influence on timing: paired launches of the same code, one side with it.

Cases are measured one after the other by the engine itself, and what was measured is written down
after each.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from benchmarks.tables import publish
from ci_bench.checkouts.sides import Side
from ci_bench.judge.times.paired import figures
from ci_bench.records.config import Config, RunOptions
from ci_bench.records.results import Case, Due, Metric, Results, SideName, Status
from ci_bench.runner import planning
from ci_bench.runner.recording import record_run
from ci_bench.runner.runner import Runner
from ci_bench.suites.contract import Stage, StageKind, Suite


class Timed:
    """A suite with only the stages of timing."""

    def __init__(self, suite: Suite) -> None:
        """Wrap the suite whose cases are timed."""
        self.suite, self.name, self.preload, self.worker = (
            suite,
            suite.name,
            suite.preload,
            suite.worker,
        )

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan the suite's cases, which owe only their times."""
        return tuple(
            replace(case, due=Due(times=case.due.times)) for case in self.suite.plan(options)
        )

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Return the stages that timing needs."""
        return tuple(
            stage
            for stage in self.suite.stages(case)
            if stage.kind in {StageKind.PREPARE, StageKind.TIME}
        )

    def needs_network(self, case: Case) -> bool:
        """Return whether the suite needs the network."""
        return self.suite.needs_network(case)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Influence on the times of one arm in each launch.

    Each is the log-ratio of a step with it over one without.
    """

    case: str
    arm: str
    ratios: tuple[float, ...]


class OfACase(Protocol):
    """A benchmark's further figures of a case: a dataclass."""

    @property
    def case(self) -> str:
        """Id of the case."""


Told = TypeVar("Told", bound=OfACase)


def collect(
    argv: Sequence[str] | None,
    *,
    about: str | None,
    launches: int,
    plan: Sequence[tuple[Timed, Case]],
    compare: Callable[[Timed, Case, int], tuple[list[Difference], Told]],
    kind: type[Told],
    table: Callable[[Sequence[Difference], Sequence[Told]], str],
) -> int:
    """Run the command: measure what `--json` has not, write each case, print the table."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--launches", type=int, default=launches, help="launches of each case")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="measure the cases whose id holds this text"
    )
    parser.add_argument(
        "--at-most", type=int, default=sys.maxsize, help="cases to measure this time"
    )
    parser.add_argument("--json", type=Path, help="also write the figures here, after every case")
    parser.add_argument("--resume", action="store_true", help="leave out the cases that --json has")
    arguments = parser.parse_args(argv)
    differences, records = earlier(arguments.json, kind) if arguments.resume else ([], [])
    measured = {record.case for record in records}
    missing = [
        (suite, case)
        for suite, case in plan
        if case.id not in measured and arguments.only in case.id
    ]
    for suite, case in missing[: arguments.at_most]:
        case_differences, of_case = compare(suite, case, arguments.launches)
        differences, records = [*differences, *case_differences], [*records, of_case]
        sys.stderr.write(f"{of_case}\n" + "".join(f"{each}\n" for each in case_differences))
        if arguments.json:
            arguments.json.write_text(
                json.dumps(document(differences, records), indent=1, sort_keys=True) + "\n"
            )
    publish(table(differences, records), document(differences, records), arguments.json)
    return 0


def document(differences: Sequence[Difference], records: Sequence[Any]) -> dict[str, Any]:
    """Return all figures."""
    return {
        "differences": [asdict(difference) for difference in differences],
        "cases": [asdict(record) for record in records],
    }


def earlier(path: Path | None, kind: type[Told]) -> tuple[list[Difference], list[Told]]:
    """Return the figures that an interrupted benchmark has written."""
    if path is None or not path.exists():
        return [], []
    content = json.loads(path.read_text(encoding="utf-8"))
    differences = [
        Difference(**{**row, "ratios": tuple(row["ratios"])}) for row in content["differences"]
    ]
    return differences, [kind(**row) for row in content["cases"]]


def measure(
    suite: Timed,
    case: Case,
    *,
    run: RunOptions,
    sides: tuple[Side, ...],
    folder: Path,
    program: str,
    **of_engine: Any,
) -> tuple[Results, Results]:
    """Measure one case as the engine does; return base's document, and head's.

    `program` is the module that measures it again.
    """
    begun = planning.start(config := Config(entries=(), run=run))
    (folder / "scratch").mkdir()
    runner = Runner(
        options=config.run,
        scratch=folder / "scratch",
        observe=lambda _: None,
        seed=begun.id,
        **of_engine,
    )
    results = record_run(
        cast("planning.Plan", ((suite, case),)),
        run=begun,
        sides=sides,
        reproduce={case.id: f"python -m {program}"},
        measure=runner.run,
        folder=folder,
    )
    for side in (SideName.BASE, SideName.HEAD):
        (row,) = results[side].cases
        if row.status is not Status.OK:
            raise SystemExit(
                f"{case.id} could not be measured on {side}: {row.failure or row.status}"
            )
    return results[SideName.BASE], results[SideName.HEAD]


def differences_of(
    case: str, base: Mapping[str, Metric], head: Mapping[str, Metric]
) -> list[Difference]:
    """Return the log-ratios of base over head by arm, one for each launch.

    They are by the judge's own estimator.
    """
    arms = [arm for arm in base if arm in head]
    most = max((len(metric.launches) for metric in base.values()), default=0)
    ratios = figures([(head[arm], base[arm]) for arm in arms], most=most).d
    return [
        Difference(
            case=case, arm=arm, ratios=tuple(float(ratio) for ratio in of if math.isfinite(ratio))
        )
        for arm, of in zip(arms, ratios, strict=True)
    ]


def step_times(results: Results) -> dict[str, Metric]:
    """Return the step times of the one case of a document, by arm."""
    (row,) = results.cases
    return {metric.arm: metric for metric in row.metrics if metric.name == "step_time"}


def overall(differences: Sequence[Difference]) -> str:
    """Describe the mean over all arms, each counted alike.

    Arms of one case share their launches, so the error is that over cases.
    """
    of: dict[str, list[float]] = {}
    for difference in differences:
        of.setdefault(difference.case, []).append(statistics.fmean(difference.ratios))
    return f"over {len(of)} cases: {text_of([statistics.fmean(means) for means in of.values()])}"


def text_of(ratios: Sequence[float]) -> str:
    """Describe the mean of log-ratios as a share, with its standard error."""
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return (
        f"{math.expm1(statistics.fmean(ratios)):+.2%} ± {error:.2%}"
        if ratios
        else "nothing measured"
    )
