"""Judge the machines of a run again, by the base branch's configuration.

A document's own verdict is ignored, and results of anything except the request are refused. If
base's results come from an artifact of an earlier run, it has to be on the base branch, and never
among the artifacts of the pull request's run.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ci_bench.commands.judging import Baseline, judge
from ci_bench.commands.trusted.expecting import Expecting
from ci_bench.commands.trusted.machine_results import (
    BASE_RESULTS,
    CALIBRATION,
    MAX_BYTES,
    RESULTS,
    MeasuredMachine,
    read_results_of,
)
from ci_bench.errors import BadDocument, CiBenchError, ExitCode, MeasuringFailed, OtherResults
from ci_bench.judge.policy import binding
from ci_bench.judge.times.sequential import rule_of
from ci_bench.records import documents
from ci_bench.records.comparison import BaselineMode, Comparison, RunVerdict
from ci_bench.records.faults import capped
from ci_bench.records.results import Results

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedMachine:
    """Result of one machine: a comparison, or an error. A `doubt` is why a pass would not count."""

    name: str
    comparison: Comparison | None = None
    fault: CiBenchError | None = None
    doubt: str | None = None

    @property
    def exit_code(self) -> int:
        """The verdict's code, or the fault's."""
        if self.comparison is not None:
            return self.comparison.judgement.exit_code
        assert self.fault is not None  # noqa: S101 - a machine has one or the other
        return int(self.fault.exit_code)

    @property
    def failed(self) -> bool:
        """Return whether it failed, or could not be judged.

        A machine without a baseline yet did neither.
        """
        return self.comparison is None or self.comparison.judgement.verdict is RunVerdict.FAILED


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """All machines of a run, and `notes` in Markdown on how they were judged.

    `waits` is the reason if the base branch has no configuration: by head's own the run can fail
    and never pass. Machines without results are left out then. With `is_part`, other machines of
    the run are judged elsewhere.
    """

    machines: tuple[JudgedMachine, ...]
    notes: tuple[str, ...] = ()
    waits: str = ""
    is_part: bool = False

    @property
    def exit_code(self) -> int:
        """The worst exit code of a machine, a verdict before trouble with GitHub.

        A run without any machine has not been measured.
        """
        if self.waits and not self.failed:
            return 0
        codes = [machine.exit_code for machine in self.machines]
        verdicts = [code for code in codes if code != ExitCode.GITHUB]
        return max(verdicts, default=0) or max(codes, default=int(ExitCode.MEASURING_FAILED))

    @property
    def verdict(self) -> RunVerdict:
        """The worst verdict of a machine; one that could not be judged fails."""
        if self.waits:
            return RunVerdict.FAILED if self.failed else RunVerdict.UNDECIDED
        verdicts = {
            machine.comparison.judgement.verdict
            for machine in self.machines
            if machine.comparison is not None
        }
        if not self.machines or any(machine.failed for machine in self.machines):
            return RunVerdict.FAILED
        doubtful = any(machine.doubt is not None for machine in self.machines)
        return (
            RunVerdict.UNDECIDED
            if doubtful or RunVerdict.UNDECIDED in verdicts
            else RunVerdict.PASSED
        )

    @property
    def failed(self) -> bool:
        """Return whether a machine failed."""
        return any(machine.failed for machine in self.machines)

    @property
    def speaks(self) -> bool:
        """Return whether any machine's results are the requested ones, or missing.

        Otherwise all of them belong to another run.
        """
        return bool(self.waits) or any(
            not isinstance(machine.fault, OtherResults) for machine in self.machines
        )

    @property
    def compared(self) -> bool:
        """Return whether any machine had a baseline."""
        return any(
            machine.comparison is not None and machine.comparison.base is not None
            for machine in self.machines
        )


def judge_machine(
    machine: MeasuredMachine,
    *,
    expecting: Expecting,
    output: Path,
    find_base: Callable[[], Baseline] | None,
) -> JudgedMachine:
    """Judge one machine by the base branch's configuration, and write the documents to `output`.

    They are `comparison.json`, `report.md` and `report.html`. `find_base` looks for the baseline
    elsewhere; `None` takes the machine's own base side.
    """
    try:
        comparison, doubt = _judge(machine, expecting, output, find_base)
        return JudgedMachine(name=machine.name, comparison=comparison, doubt=doubt)
    except CiBenchError as error:
        message = str(error).replace(f"{machine.folder}/", "")  # the runner's path stays private
        return JudgedMachine(name=machine.name, fault=type(error)(message))
    except (
        Exception
    ) as error:  # a document that breaks the judge must not leave its pull request without a word
        logger.debug("judging %s broke", machine.name, exc_info=True)
        return JudgedMachine(
            name=machine.name,
            fault=MeasuringFailed(f"judging these results broke: {type(error).__name__}"),
        )


def _judge(
    machine: MeasuredMachine,
    expecting: Expecting,
    output: Path,
    find_base: Callable[[], Baseline] | None,
) -> tuple[Comparison, str | None]:
    """Return the comparison, and the reason for doubt that it is of the requested commit."""
    if machine.fault is not None:
        raise machine.fault
    head, config = read_results_of(machine.folder / RESULTS), expecting.config
    baseline = find_base() if find_base else _own_base(machine, head)
    expected = expecting.of(machine, head)
    differences = binding.differences(head, None if find_base else baseline.results, expected)
    if differences:
        raise OtherResults(
            "these results are not the requested"
            f" ones:\n{capped(differences[: binding.MOST_DIFFERENCES])}"
        )
    file = machine.folder / CALIBRATION
    calibration = documents.read_calibration(file, max_bytes=MAX_BYTES) if file.exists() else None
    judged = partial(
        judge,
        head,
        baseline,
        policy=expecting.policy,
        rule=rule_of(config.run),
        scope=expecting.scope(head, expected, baseline.results),
        accepted=expecting.accepted,
    )
    if calibration is not None and not judged(folder=None).judgement.met:
        # It comes from the machine of the measured code: it may decide sooner, and excuse nothing.
        calibration = None
    return judged(folder=output, calibration=calibration), expected.head.doubt


def _own_base(machine: MeasuredMachine, head: Results) -> Baseline:
    """Return the base side that was measured with head, in one run.

    Compared with a base of another moment, times would be judged less precisely.
    """
    path = machine.folder / BASE_RESULTS
    if not path.exists():
        return Baseline(
            mode=BaselineMode.PAIRED, absence="the run has left no results of the base side"
        )
    base = read_results_of(path)
    if base.run.id != head.run.id:
        raise BadDocument(
            f"{BASE_RESULTS} belongs to another run than {RESULTS}; base and head must be measured"
            " in one run"
        )
    return Baseline(mode=BaselineMode.PAIRED, results=base)
