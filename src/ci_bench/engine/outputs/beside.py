"""The parent's half: has head's tensors compared with base's once both sides were verified, and saves files on demand.

Imports no torch: a worker of the engine's own compares, in an environment without any code of the user's. Base is the other side
of a paired run, or an earlier run whose tensors lie beside its results.
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

from ci_bench.engine.outputs.comparing import ClaimFiles, Files
from ci_bench.engine.outputs.keeping import FILE, Keeping
from ci_bench.engine.process.launch import Launcher
from ci_bench.engine.process.protocol import Answer, Task
from ci_bench.engine.process.resident import explain
from ci_bench.engine.stages import SideRun
from ci_bench.engine.trees.layers import link_engine
from ci_bench.errors import CannotWrite, LauncherFailed
from ci_bench.records.config import RunOptions
from ci_bench.records.outputs import BesideBase, KeptClaim, ReferenceOutputs
from ci_bench.records.results import Case, Check, Outcome, Results, SideName, Status
from ci_bench.suites.base import Evidence

logger = logging.getLogger(__name__)

FOLDER = "outputs"
"""Beside a side's results, with one file for each case, named by its digest."""
CLAIMED = re.compile(r"claim-[0-9]{1,6}\.safetensors")
MOST_CLAIMS = 1000
SAVED = re.compile(r"[0-9a-f]{64}\.safetensors")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptOutputs:
    """What one side computed, and the file that holds its tensors."""

    record: ReferenceOutputs
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsOptions:
    """What to do with tensors: `save` has the folder of each side to be saved, `baseline` what an earlier run kept, by case."""

    save: Mapping[SideName, Path] = field(default_factory=dict)
    baseline: Mapping[str, KeptOutputs] = field(default_factory=dict)

    def keeping(self, name: SideName, sides: Sequence[SideName]) -> Keeping:
        """What the workers of one of these sides write."""
        if name in self.save or (name is SideName.BASE and len(sides) > 1):
            return Keeping.EVERYTHING
        return Keeping.OUTPUTS if len(sides) > 1 or self.baseline else Keeping.NOTHING


def saved_as(folder: Path, digest: str) -> Path:
    """Where the tensors with a digest lie in a folder."""
    return folder / f"{digest}.safetensors"


def saved_beside(results: Results, file: Path) -> Mapping[str, KeptOutputs]:
    """What the run behind the results document `file` saved of each case, as far as it is still there."""
    records = ((row.case.id, row.outputs) for row in results.cases if row.outputs is not None and row.outputs.file is not None)
    named = {name: KeptOutputs(record=one, path=saved_as(file.with_name(FOLDER), one.file or "")) for name, one in records}
    return {name: one for name, one in named.items() if one.path.is_file()}


def copy_saved(results: Results, source: Path, target: Path) -> None:
    """Bring what a run saved beside `source` to `target`, both results documents, in place of what was saved there before.

    Raises:
        CannotWrite: there is no room, or no right to write.
    """
    kept = saved_beside(results, source)
    try:
        drop_saved(target.with_name(FOLDER))
        for one in kept.values():
            target.with_name(FOLDER).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one.path, target.with_name(FOLDER) / one.path.name)
    except OSError as error:
        raise CannotWrite(f"the tensors cannot be copied to {target.with_name(FOLDER)}: {error.strerror}") from error


def drop_saved(folder: Path) -> None:
    """Remove what an earlier run saved in a folder, and nothing else. Raises `OSError`."""
    for path in folder.glob("*.safetensors"):
        if SAVED.fullmatch(path.name):
            path.unlink()


@dataclass(kw_only=True, slots=True)
class OutputsBesideBase:
    """Compares, one case after the other. `folder` is private; a process that can compare is started when one is needed first."""

    folder: Path
    run_options: RunOptions
    options: OutputsOptions
    runs: Sequence[SideRun]
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _launcher: Launcher | None = field(default=None, init=False)

    def settle(self, case: Case) -> None:
        """Once a case was verified on all sides: save what is to be saved, compare head with base, and drop the files.

        Before that, arms are compared with their references again, on each side.
        """
        for run in self.runs:
            self._judge(run, case)
        kept = {run.side.name: found for run in self.runs if (found := _kept(run, case)) is not None}
        for name, found in kept.items():
            if name in self.options.save:
                self._save(found, self.options.save[name])
        theirs = self.options.baseline.get(case.id) if len(self.runs) == 1 else kept.get(SideName.BASE)
        for run in self.runs:
            ours = kept.get(run.side.name)
            if run.side.name is SideName.HEAD and ours and theirs and _worth_comparing(theirs.record, ours.record):
                beside = self._compare(theirs, ours)
                run.ledger = run.ledger.with_outputs(case, replace(ours.record, beside=beside))
        for found in kept.values():
            found.path.unlink(missing_ok=True)

    def _judge(self, run: SideRun, case: Case) -> None:
        """Have the claims of a case judged; the worse answer of this and of the worker's counts."""
        folder, kept = run.case_folder(case), run.claims.pop(case.id, ())
        claims = tuple(
            ClaimFiles(
                check=one.check,
                arm=one.arm,
                expected=str(folder / one.expected),
                expected_digest=one.expected_digest,
                seen=str(folder / one.seen),
                seen_digest=one.seen_digest,
            )
            for one in kept[:MOST_CLAIMS]
            if one.arm in case.arms and all(map(partial(_is_claim, folder), (one.expected, one.seen)))
        )
        if claims and run.ledger.is_open(case):
            task = Task(launch=0, device="cpu", options=self.run_options, scratch=str(self.folder), claims=claims)
            answer, reason = self._ask(task)
            judged = _sure(answer.judged, kept) if answer is not None and answer.judged is not None else None
            if judged is None:
                cannot = f"what it computed could not be compared again: {reason}"[:1000]
                unknown = {(one.check, one.arm) for one in claims}
                judged = tuple(
                    Check(name=check, arm=arm, outcome=Outcome.UNKNOWN, detail=cannot) for check, arm in sorted(unknown)
                )
            run.ledger = run.ledger.with_evidence(case, Evidence(checks=judged), duration_s=0.0)
        for file in {name for one in kept for name in (one.expected, one.seen) if CLAIMED.fullmatch(name)}:
            (folder / file).unlink(missing_ok=True)

    def _ask(self, task: Task) -> tuple[Answer | None, str]:
        """The answer of the process that compares, or why there is none."""
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

    def _save(self, found: KeptOutputs, folder: Path) -> None:
        """Nobody loses a measurement because its tensors do not fit on the disk."""
        if found.record.file is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found.path, saved_as(folder, found.record.file))
        except OSError as error:
            logger.warning("the tensors cannot be saved in %s: %s", folder, error.strerror)

    def _compare(self, theirs: KeptOutputs, ours: KeptOutputs) -> BesideBase:
        files = Files(
            base=str(theirs.path), base_digest=theirs.record.file or "", head=str(ours.path), head_digest=ours.record.file or ""
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
        """The engine's own interpreter, with the engine's packages alone on its path."""
        if self._launcher is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            engine = link_engine(self.folder / "engine")
            # Threads of torch that spin while they wait cost twenty times the comparison beside other work.
            waiting = {"PYTHONPATH": os.fspath(engine), "OMP_WAIT_POLICY": "PASSIVE"}
            environ = {**self.runs[0].side.environ, **waiting}
            launcher = Launcher(preload=("torch",), environ=environ, folder=self.folder / "compare", cwd=self.folder)
            self._launcher = self._stack.enter_context(launcher)
        return self._launcher

    def _forget(self) -> None:
        with contextlib.suppress(LauncherFailed):
            self._stack.close()
        self._stack, self._launcher = ExitStack(), None


def _kept(run: SideRun, case: Case) -> KeptOutputs | None:
    """What a side computed of a case since this was asked last: then the file was dropped."""
    if case.id not in run.ledger.rows:
        return None
    record, path = run.ledger.rows[case.id].outputs, run.case_folder(case) / FILE
    if record is None or path.is_symlink() or not path.is_file() or not run.ledger.is_open(case):
        return None
    return KeptOutputs(record=record, path=path)


def _sure(judged: Sequence[Check], kept: Sequence[KeptClaim]) -> tuple[Check, ...]:
    """Without unknown answers to checks of which some claims were too large to keep: the worker saw more."""
    partial_of = {(one.check, one.arm) for one in (*kept[MOST_CLAIMS:], *(one for one in kept if not one.seen))}
    return tuple(one for one in judged if one.outcome is not Outcome.UNKNOWN or (one.name, one.arm) not in partial_of)


def _is_claim(folder: Path, name: str) -> bool:
    """Whether a worker's file is one of ours by its name, and no link."""
    return CLAIMED.fullmatch(name) is not None and not (folder / name).is_symlink()


def _worth_comparing(theirs: ReferenceOutputs, ours: ReferenceOutputs) -> bool:
    """Not where the bytes say it all, nothing is to be learned, or a side has no tensors."""
    return theirs.digest != ours.digest and bool(theirs.file and ours.file) and not ours.apart_from(theirs)


def _untold(theirs: KeptOutputs, reason: str) -> BesideBase:
    return BesideBase(base=theirs.record.digest, tensors=0, unknown=f"the tensors could not be compared: {reason}"[:2000])
