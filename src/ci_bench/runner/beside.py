"""Compare head's tensors with base's after both were verified: the parent's half.

OutputFiles are saved on demand. Imports no torch: one of the engine's own workers compares, in an
environment without any code of the user's. Base is the other side of a paired run, or an earlier
run whose tensors are next to its results.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ci_bench.checkouts.layers import link_engine
from ci_bench.errors import CannotWrite, LauncherFailed
from ci_bench.processes.launch import Launcher
from ci_bench.processes.messages import ClaimFiles, Keeping, OutputFiles
from ci_bench.processes.protocol import Answer, Task
from ci_bench.processes.resident import explain
from ci_bench.records.config import RunOptions
from ci_bench.records.outputs import KeptClaim, OutputsComparison, ReferenceOutputs
from ci_bench.records.results import Case, Check, Outcome, Results, SideName, Status
from ci_bench.runner.side_run import SideRun
from ci_bench.suites.contract import Evidence
from ci_bench.worker.keeping import FILE

logger = logging.getLogger(__name__)

FOLDER = "outputs"
"""A folder next to a side's results, with one file for each case, named by its digest."""
CLAIMED = re.compile(r"claim-[0-9]{1,6}\.safetensors")
MOST_CLAIMS = 1000
SAVED = re.compile(r"[0-9a-f]{64}\.safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptOutputs:
    """The outputs of one side, and the file that holds its tensors."""

    record: ReferenceOutputs
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsOptions:
    """Folders for saved tensors (`save`, by side), and outputs of an earlier run (`baseline`)."""

    save: Mapping[SideName, Path] = field(default_factory=dict)
    baseline: Mapping[str, KeptOutputs] = field(default_factory=dict)

    def keeping(self, name: SideName, sides: Sequence[SideName]) -> Keeping:
        """Return the kind of tensors that the workers of one of these sides write."""
        if name in self.save or (name is SideName.BASE and len(sides) > 1):
            return Keeping.EVERYTHING
        return Keeping.OUTPUTS if len(sides) > 1 or self.baseline else Keeping.NOTHING


def saved_as(folder: Path, digest: str) -> Path:
    """Return the path in a folder of the tensors with a digest."""
    return folder / f"{digest}.safetensors"


def saved_beside(results: Results, file: Path) -> Mapping[str, KeptOutputs]:
    """Return the saved tensors, by case, of the run that wrote the results document `file`.

    Missing files are omitted.
    """
    records = (
        (row.case.id, row.outputs)
        for row in results.cases
        if row.outputs is not None and row.outputs.file is not None
    )
    saved = {
        name: KeptOutputs(record=record, path=saved_as(file.with_name(FOLDER), record.file or ""))
        for name, record in records
    }
    return {name: outputs for name, outputs in saved.items() if outputs.path.is_file()}


def copy_saved(results: Results, source: Path, target: Path) -> None:
    """Copy saved tensors from next to `source` to next to `target`, both results documents.

    They replace the tensors saved there earlier.

    Raises:
        CannotWrite: the disk is full, or writing is not permitted.
    """
    saved = saved_beside(results, source)
    try:
        drop_saved(target.with_name(FOLDER))
        for outputs in saved.values():
            target.with_name(FOLDER).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outputs.path, target.with_name(FOLDER) / outputs.path.name)
    except OSError as error:
        raise CannotWrite(
            f"the tensors cannot be copied to {target.with_name(FOLDER)}: {error.strerror}"
        ) from error


def drop_saved(folder: Path) -> None:
    """Remove an earlier run's saved files from a folder. Raises `OSError`."""
    for path in folder.glob("*.safetensors"):
        if SAVED.fullmatch(path.name):
            path.unlink()


@dataclass(kw_only=True, slots=True)
class OutputsBesideBase:
    """Compares one case after the other."""

    folder: Path
    """Private folder of the comparing process."""
    run_options: RunOptions
    """Options of the run."""
    options: OutputsOptions
    """Folders for saved tensors, and outputs of an earlier run."""
    runs: Sequence[SideRun]
    """All sides of the run."""
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    """Ends the comparing process."""
    _launcher: Launcher | None = field(default=None, init=False)
    """Server of the comparing process; `None` until it is needed."""

    def settle(self, case: Case) -> None:
        """Save a verified case's tensors, compare head with base, and drop the files.

        Call once it was verified on all sides. Before that, arms are compared with their references
        again, on each side.
        """
        for run in self.runs:
            self._judge(run, case)
        by_side = {
            run.side.name: outputs
            for run in self.runs
            if (outputs := _find_outputs(run, case)) is not None
        }
        for name, outputs in by_side.items():
            if name in self.options.save:
                self._save(outputs, self.options.save[name])
        theirs = (
            self.options.baseline.get(case.id)
            if len(self.runs) == 1
            else by_side.get(SideName.BASE)
        )
        for run in self.runs:
            ours = by_side.get(run.side.name)
            if (
                run.side.name is SideName.HEAD
                and ours
                and theirs
                and _worth_comparing(theirs.record, ours.record)
            ):
                beside = self._compare(theirs, ours)
                run.ledger = run.ledger.with_outputs(case, replace(ours.record, beside=beside))
        for outputs in by_side.values():
            outputs.path.unlink(missing_ok=True)

    def _judge(self, run: SideRun, case: Case) -> None:
        """Judge the claims of a case again; the worse of this answer and the worker's counts."""
        folder, records = run.case_folder(case), run.claims.pop(case.id, ())
        claims = tuple(
            ClaimFiles(
                check=record.check,
                arm=record.arm,
                expected=str(folder / record.expected),
                expected_digest=record.expected_digest,
                seen=str(folder / record.seen),
                seen_digest=record.seen_digest,
            )
            for record in records[:MOST_CLAIMS]
            if record.arm in case.arms
            and all(map(partial(_is_claim, folder), (record.expected, record.seen)))
        )
        if claims and run.ledger.is_open(case):
            task = Task(
                launch=0,
                device="cpu",
                options=self.run_options,
                scratch=str(self.folder),
                claims=claims,
            )
            answer, reason = self._ask(task)
            judged = (
                _sure(answer.judged, records)
                if answer is not None and answer.judged is not None
                else None
            )
            if judged is None:
                cannot = f"what it computed could not be compared again: {reason}"[:1000]
                unknown = {(claim.check, claim.arm) for claim in claims}
                judged = tuple(
                    Check(name=check, arm=arm, outcome=Outcome.UNKNOWN, detail=cannot)
                    for check, arm in sorted(unknown)
                )
            run.ledger = run.ledger.with_evidence(case, Evidence(checks=judged), duration_s=0.0)
        for file in {
            name
            for record in records
            for name in (record.expected, record.seen)
            if CLAIMED.fullmatch(name)
        }:
            (folder / file).unlink(missing_ok=True)

    def _ask(self, task: Task) -> tuple[Answer | None, str]:
        """Return the answer of the comparing process, or the reason for its absence."""
        limit_s = self.run_options.stage_timeout_s
        try:
            ended = self._open().run(task, timeout_s=limit_s, on_answer=lambda _: None)
        except LauncherFailed as error:
            self._forget()
            return None, str(error)
        status, reason = explain(ended, limit_s=limit_s)
        return (ended.answers[0] if status is Status.OK and ended.answers else None), reason

    def close(self) -> None:
        """End the process that compares."""
        self._stack.close()

    def _save(self, outputs: KeptOutputs, folder: Path) -> None:
        """Save the tensors; a full disk does not fail the measurement."""
        if outputs.record.file is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outputs.path, saved_as(folder, outputs.record.file))
        except OSError as error:
            logger.warning("the tensors cannot be saved in %s: %s", folder, error.strerror)

    def _compare(self, theirs: KeptOutputs, ours: KeptOutputs) -> OutputsComparison:
        files = OutputFiles(
            base=str(theirs.path),
            base_digest=theirs.record.file or "",
            head=str(ours.path),
            head_digest=ours.record.file or "",
        )
        task = Task(
            launch=0,
            device="cpu",
            options=self.run_options,
            scratch=str(self.folder),
            files=files,
            base_digest=theirs.record.digest,
        )
        answer, reason = self._ask(task)
        beside = answer.beside if answer is not None else None
        return beside or _untold(theirs, reason)

    def _open(self) -> Launcher:
        """Open the engine's own interpreter with only the engine's packages on its path."""
        if self._launcher is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            engine = link_engine(self.folder / "engine")
            # On a busy machine, threads of torch that spin while they wait cost twenty times the
            # comparison.
            waiting = {"PYTHONPATH": os.fspath(engine), "OMP_WAIT_POLICY": "PASSIVE"}
            environ = {**self.runs[0].side.environ, **waiting}
            launcher = Launcher(
                preload=("torch",), environ=environ, folder=self.folder / "compare", cwd=self.folder
            )
            self._launcher = self._stack.enter_context(launcher)
        return self._launcher

    def _forget(self) -> None:
        with contextlib.suppress(LauncherFailed):
            self._stack.close()
        self._stack, self._launcher = ExitStack(), None


def _find_outputs(run: SideRun, case: Case) -> KeptOutputs | None:
    """Return a side's outputs of a case, if new since the last call. The file was dropped then."""
    if case.id not in run.ledger.rows:
        return None
    record, path = run.ledger.rows[case.id].outputs, run.case_folder(case) / FILE
    if record is None or path.is_symlink() or not path.is_file() or not run.ledger.is_open(case):
        return None
    return KeptOutputs(record=record, path=path)


def _sure(judged: Sequence[Check], records: Sequence[KeptClaim]) -> tuple[Check, ...]:
    """Drop unknown results of checks with claims that were too large to store.

    The worker saw more.
    """
    partial_of = {
        (record.check, record.arm)
        for record in (*records[MOST_CLAIMS:], *(record for record in records if not record.seen))
    }
    return tuple(
        check
        for check in judged
        if check.outcome is not Outcome.UNKNOWN or (check.name, check.arm) not in partial_of
    )


def _is_claim(folder: Path, name: str) -> bool:
    """Return whether a worker's file has one of our names, and is not a link."""
    return CLAIMED.fullmatch(name) is not None and not (folder / name).is_symlink()


def _worth_comparing(theirs: ReferenceOutputs, ours: ReferenceOutputs) -> bool:
    """Return false if the bytes are conclusive, nothing can be learned, or a side lacks tensors."""
    return (
        theirs.digest != ours.digest
        and bool(theirs.file and ours.file)
        and not ours.apart_from(theirs)
    )


def _untold(theirs: KeptOutputs, reason: str) -> OutputsComparison:
    return OutputsComparison(
        base=theirs.record.digest,
        tensors=0,
        unknown=f"the tensors could not be compared: {reason}"[:2000],
    )
