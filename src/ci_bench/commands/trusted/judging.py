"""Judges the legs of a run anew, by the base branch's configuration.

Nothing that a document says of its own verdict is used, and results of anything else than what was asked for are refused. Where
base's results are taken from an artifact of an earlier run, they are looked for on the base branch, and never in what the pull
request's run has left.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.commands.trusted.legs import BASE_RESULTS, CALIBRATION, MAX_BYTES, RESULTS, Leg, read_leg
from ci_bench.errors import BadDocument, CiBenchError, ExitCode, MeasuringFailed, OtherResults

if TYPE_CHECKING:
    from ci_bench.commands.trusted.expecting import Expecting
    from ci_bench.pipeline import Baseline
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.results import Results

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedLeg:
    """How one leg came out: a comparison, or what kept it from being one."""

    name: str
    comparison: "Comparison | None" = None
    fault: CiBenchError | None = None

    @property
    def exit_code(self) -> int:
        """The verdict's code, or the fault's."""
        if self.comparison is not None:
            return self.comparison.judgement.exit_code
        assert self.fault is not None  # noqa: S101 - a leg has one or the other
        return int(self.fault.exit_code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """All legs of a run, and `notes` in Markdown on how they were judged."""

    legs: tuple[JudgedLeg, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The gravest leg's, a verdict before trouble with GitHub; a run without any leg has not been measured."""
        codes = [leg.exit_code for leg in self.legs]
        verdicts = [code for code in codes if code != ExitCode.GITHUB]
        return max(verdicts, default=0) or max(codes, default=int(ExitCode.MEASURING_FAILED))

    @property
    def speaks(self) -> bool:
        """Whether any leg's results are of what was asked for, or are missing: not all of them are somebody else's."""
        return any(not isinstance(leg.fault, OtherResults) for leg in self.legs)

    @property
    def compared(self) -> bool:
        """Whether any leg had a baseline."""
        return any(leg.comparison is not None and leg.comparison.base is not None for leg in self.legs)


def judge_leg(leg: Leg, *, expecting: "Expecting", output: Path, find_base: Callable[[], "Baseline"] | None) -> JudgedLeg:
    """Judge one leg by the base branch's configuration; `output` gets its `comparison.json`, `report.md` and `report.html`.

    `find_base` looks for the baseline elsewhere; `None` takes the leg's own base side.
    """
    try:
        return JudgedLeg(name=leg.name, comparison=_judge(leg, expecting, output, find_base))
    except CiBenchError as error:
        told = str(error).replace(f"{leg.folder}/", "")  # where the runner keeps it is nobody's business
        return JudgedLeg(name=leg.name, fault=type(error)(told))
    except Exception as error:  # a document that breaks the judge must not leave its pull request without a word
        logger.debug("judging %s broke", leg.name, exc_info=True)
        return JudgedLeg(name=leg.name, fault=MeasuringFailed(f"judging these results broke: {type(error).__name__}"))


def _judge(leg: Leg, expecting: "Expecting", output: Path, find_base: Callable[[], "Baseline"] | None) -> "Comparison":
    from ci_bench import pipeline
    from ci_bench.judge import binding
    from ci_bench.records import documents
    from ci_bench.records.faults import capped

    if leg.fault is not None:
        raise leg.fault
    head, config = read_leg(leg.folder / RESULTS), expecting.config
    baseline = find_base() if find_base else _own_base(leg, head)
    expected = expecting.of(leg, head)
    differences = binding.differences(head, None if find_base else baseline.results, expected)
    if differences:
        raise OtherResults(f"these results are not of what was asked for:\n{capped(differences[: binding.MOST_DIFFERENCES])}")
    calibration = leg.folder / CALIBRATION
    return pipeline.judge(
        head,
        baseline,
        policy=expecting.policy,
        folder=output,
        calibration=documents.read_calibration(calibration, max_bytes=MAX_BYTES) if calibration.exists() else None,
        rule=pipeline.rule_of(config.run),
        scope=expecting.scope(head, expected),
    )


def _own_base(leg: Leg, head: "Results") -> "Baseline":
    """The base side that was measured with head, in one run: against one of another moment, times are judged less finely."""
    from ci_bench.pipeline import Baseline
    from ci_bench.records.comparison import BaselineMode

    path = leg.folder / BASE_RESULTS
    if not path.exists():
        return Baseline(mode=BaselineMode.PAIRED, absence="the run has left no results of the base side")
    base = read_leg(path)
    if base.run.id != head.run.id:
        raise BadDocument(f"{BASE_RESULTS} is of another run than {RESULTS}; base and head have to be measured in one")
    return Baseline(mode=BaselineMode.PAIRED, results=base)
