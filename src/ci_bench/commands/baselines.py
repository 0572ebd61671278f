"""Find and open the baseline of head: base in the same run, or an earlier run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ci_bench.checkouts.bundled import Sources
from ci_bench.checkouts.seals import Seal
from ci_bench.checkouts.sides import Side
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.baseline_files import read_baseline
from ci_bench.commands.fleet_hook import bundle_sides, check_fleet
from ci_bench.commands.inputs import results_path
from ci_bench.commands.judging import Baseline
from ci_bench.commands.measuring import Measurement, caller
from ci_bench.commands.output import tell
from ci_bench.commands.preparing import open_sides
from ci_bench.errors import BadInput
from ci_bench.records import documents
from ci_bench.records.config import Config, Rule, Severity
from ci_bench.records.results import Results, SideName
from ci_bench.records.spelling import meant
from ci_bench.runner.beside import KeptOutputs, saved_beside

PAIRED, NONE, ARTIFACT = "paired", "none", "artifact"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineChoice:
    """Baseline of head: base, measured in turns with head, or an earlier run at `path`, if any.

    `alone` means that no comparison was requested.
    """

    paired: bool = False
    alone: bool = False
    path: Path | None = None
    is_artifact: bool = False


def choose_baseline(settings: Measuring, config: Config) -> BaselineChoice:
    """Return the baseline that flags and configuration name; look for it before measuring.

    Raises `BadInput` if flags contradict it, if a word is misspelt, and if nothing is there and
    that fails the run.
    """
    check_fleet(settings, config)
    implied = settings.prepared or settings.fleet or settings.base or config.base
    baseline = settings.baseline or config.baseline or (PAIRED if implied else None)
    if settings.fleet is not None and baseline != PAIRED:
        raise BadInput(
            f"--fleet measures both sides in turns, but the baseline is {baseline}; omit --fleet,"
            " or use --baseline paired"
        )
    if settings.prepared and baseline != PAIRED:
        message = f"--prepared holds both sides of a paired run, but the baseline is {baseline}"
        raise BadInput(message)
    if baseline == ARTIFACT and settings.fetched is None:
        fetching = "`ci-bench github fetch-baseline --output DIR`"
        message = (
            f"--baseline artifact needs --fetched DIR, which {fetching} wrote in an earlier step"
        )
        raise BadInput(message)
    if settings.save_baseline and (
        baseline in {None, NONE, PAIRED, ARTIFACT} or str(baseline).endswith(".zip")
    ):
        message = "--save-baseline needs --baseline PATH, where the run is kept"
        raise BadInput(message)
    if baseline == ARTIFACT:
        return BaselineChoice(path=settings.fetched, is_artifact=True)
    if baseline in {None, NONE, PAIRED}:
        return BaselineChoice(paired=baseline == PAIRED, alone=baseline == NONE)
    root = "." if settings.baseline else os.path.relpath(settings.here)
    path = str(baseline) if root == "." else str(Path(root, baseline))
    return BaselineChoice(
        path=_path_of(path, saved=settings.save_baseline, fails=_fails_without(config))
    )


def _path_of(baseline: str, *, saved: bool, fails: bool) -> Path:
    """Return the baseline's path.

    If it does not exist, a first run is `saved` there, or the policy may let it pass.

    Raises `BadInput` and `CannotWrite`.
    """
    path = Path(baseline)
    if saved:
        documents.require_writable(results_path(path))
    if results_path(path).exists():
        return path
    words = (PAIRED, ARTIFACT, NONE)
    near = (
        meant(baseline, words)
        if baseline == path.name and not path.suffix and not path.exists()
        else ""
    )
    if near:
        raise BadInput(
            f"baseline: {baseline!r} is not one of {', '.join(words)}, and no such path"
            f" exists{near}; write a path as ./{baseline}"
        )
    if fails and not saved:
        way_out = (
            "correct the path, keep a first run there with --save-baseline, or measure base as"
            " well: --baseline paired"
        )
        raise BadInput(f"baseline: there is nothing at {results_path(path)}; {way_out}")
    return path


def _fails_without(config: Config) -> bool:
    return config.policy.severity(Rule.BASELINE_MISSING) is Severity.FAIL


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedBaseline:
    """The sides to measure, with the earlier run or the seal on base.

    Sides that a fleet prepares on its nodes have only their commits.
    """

    sides: Sequence[Side]
    """Sides to measure: head, and in a paired run base."""
    sources: Sources | None = None
    """Bundle of both commits for the nodes of a fleet; `None` if the sides are ready."""
    baseline: Baseline | None = None
    """Earlier run, or why it is missing; `None` in a paired run."""
    kept: Mapping[str, KeptOutputs] | None = None
    """Saved tensors of the earlier run, by case; `None` in a paired run."""
    seal: Seal | None = None
    """Seal on base and engine; `None` unless a paired run has its sides on this machine."""

    @property
    def known(self) -> Results | None:
        """Return the results of an earlier run."""
        return self.baseline.results if self.baseline else None

    @property
    def base(self) -> str | None:
        """The commit of base in a paired run."""
        return next((side.source.commit for side in self.sides if side.name is SideName.BASE), None)


@contextmanager
def open_baseline(
    choice: BaselineChoice, measurement: Measurement, settings: Measuring
) -> Iterator[OpenedBaseline]:
    """Open the baseline of head; a paired run's sides are removed in the end."""
    if choice.paired and settings.fleet is not None and settings.prepared is None:
        sides, sources = bundle_sides(measurement.config, settings)
        yield OpenedBaseline(sides=sides, sources=sources)
        return
    if choice.paired:
        with open_sides(
            measurement.config, settings, [case for _, case in measurement.plan]
        ) as pair:
            yield OpenedBaseline(sides=pair.sides, seal=pair.seal)
        return
    baseline, path = (
        read_baseline(choice.path, is_artifact=choice.is_artifact, alone=choice.alone),
        choice.path,
    )
    if path is not None and baseline.absence is not None:
        tell(f"no baseline: {baseline.absence}; measuring only head")
    outputs = (
        saved_beside(baseline.results, results_path(path))
        if baseline.results is not None and path is not None
        else {}
    )
    yield OpenedBaseline(sides=[caller(settings, SideName.HEAD)], baseline=baseline, kept=outputs)
