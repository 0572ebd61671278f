"""The legs of a run, one for each machine that measured: their documents read as a stranger's, and judged anew.

Nothing that a document says of its own verdict is used. Where base's results are taken from an artifact of an earlier run, they
are looked for on the base branch, and never in what the pull request's run has left.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ci_bench.errors import BadDocument, CannotWrite, CiBenchError, ExitCode, MeasuringFailed

if TYPE_CHECKING:
    from ci_bench.pipeline import Baseline
    from ci_bench.records.comparison import Comparison
    from ci_bench.records.config import Config
    from ci_bench.records.results import Results

logger = logging.getLogger(__name__)

RESULTS, BASE_RESULTS, CALIBRATION = "results.json", "base/results.json", "calibration.json"
DOCUMENTS = (RESULTS, BASE_RESULTS, CALIBRATION)
"""The files of a leg that are read, the head's results first."""
MAX_BYTES = 25_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Leg:
    """One leg: its name, and the folder with its documents. `fault` says why there are none."""

    name: str
    folder: Path
    fault: CiBenchError | None = None


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
    def compared(self) -> bool:
        """Whether any leg had a baseline."""
        return any(leg.comparison is not None and leg.comparison.base is not None for leg in self.legs)


def unpack(members: Mapping[str, bytes], folder: Path) -> None:
    """Write the documents of an artifact as they came, under their own few names. Raises `CannotWrite`."""
    for name, content in members.items():
        assert name in DOCUMENTS  # noqa: S101 - nothing else is asked for
        write_bytes(folder / name, content)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as it came, with its folder. Raises `CannotWrite`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}; choose another output folder") from error


def judge_leg(leg: Leg, *, config: "Config", output: Path, find_base: Callable[[], "Baseline"] | None) -> JudgedLeg:
    """Judge one leg by the base branch's configuration; `output` gets its `comparison.json`, `report.md` and `report.html`.

    `find_base` looks for the baseline elsewhere; `None` takes the leg's own base side.
    """
    try:
        return JudgedLeg(name=leg.name, comparison=_judge(leg, config, output, find_base))
    except CiBenchError as error:
        told = str(error).replace(f"{leg.folder}/", "")  # where the runner keeps it is nobody's business
        return JudgedLeg(name=leg.name, fault=type(error)(told))
    except Exception as error:  # a document that breaks the judge must not leave its pull request without a word
        logger.debug("judging %s broke", leg.name, exc_info=True)
        return JudgedLeg(name=leg.name, fault=MeasuringFailed(f"judging these results broke: {type(error).__name__}"))


def _judge(leg: Leg, config: "Config", output: Path, find_base: Callable[[], "Baseline"] | None) -> "Comparison":
    from ci_bench import pipeline
    from ci_bench.records import documents

    if leg.fault is not None:
        raise leg.fault
    head = _results(leg.folder / RESULTS)
    baseline = find_base() if find_base else _own_base(leg, head)
    calibration = leg.folder / CALIBRATION
    return pipeline.judge(
        head,
        baseline,
        policy=config.policy,
        folder=output,
        calibration=documents.read_calibration(calibration, max_bytes=MAX_BYTES) if calibration.exists() else None,
        rule=pipeline.rule_of(config.run),
    )


def _results(path: Path) -> "Results":
    from ci_bench.records import documents

    if not path.exists():
        raise MeasuringFailed(f"{path.name} is missing: the run ended before it had measured anything; look at its log")
    return documents.read_results(path, max_bytes=MAX_BYTES)


def _own_base(leg: Leg, head: "Results") -> "Baseline":
    """The base side that was measured with head, in one run: against one of another moment, times are judged less finely."""
    from ci_bench.pipeline import Baseline
    from ci_bench.records.comparison import BaselineMode

    path = leg.folder / BASE_RESULTS
    if not path.exists():
        return Baseline(mode=BaselineMode.PAIRED, absence="the run has left no results of the base side")
    base = _results(path)
    if base.run.id != head.run.id:
        raise BadDocument(f"{BASE_RESULTS} is of another run than {RESULTS}; base and head have to be measured in one")
    return Baseline(mode=BaselineMode.PAIRED, results=base)


def complaint_about(members: Mapping[str, bytes], scratch: Path) -> str | None:
    """What is wrong with the results in an artifact that could be a baseline, in one line; `None` if nothing is."""
    if RESULTS not in members:
        return f"it has no {RESULTS}"
    unpack({RESULTS: members[RESULTS]}, scratch)
    try:
        _results(scratch / RESULTS)
    except BadDocument as error:
        return " ".join(str(error).split())[:200]
    finally:
        (scratch / RESULTS).unlink(missing_ok=True)
    return None
