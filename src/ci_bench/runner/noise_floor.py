"""Storage of learned noise: one calibration document per machine identity, in one folder.

Owns the folder's layout and the making of runs that calibrate. `judge.times.calibration` learns
from a document.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ci_bench.errors import BadDocument, BadInput
from ci_bench.judge.times.audit import Audit
from ci_bench.judge.times.calibration import NoiseFloor, fingerprint, merge
from ci_bench.judge.wording import count_of, percent
from ci_bench.records import documents
from ci_bench.records.calibration import Calibration
from ci_bench.records.forms import Fact
from ci_bench.records.results import Case
from ci_bench.suites.contract import UNTIMED, Stage, Suite

Plan = tuple[tuple[Suite, Case], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFolder:
    """Calibrations in a folder, each named by its machine's fingerprint.

    `sealed` holds the documents as they were before code of a tree could write them, by file;
    `None` if they are read when asked for.
    """

    path: Path
    sealed: Mapping[str, bytes] | None = None

    def seal(self) -> "NoiseFolder":
        """Read all documents now. Later writes to them are not used.

        Raises:
            BadInput: one cannot be read.
        """
        try:
            return replace(
                self,
                sealed={file.name: file.read_bytes() for file in sorted(self.path.glob("*.json"))},
            )
        except OSError as error:
            raise BadInput(
                f"the calibrations in {self.path} cannot be read: {error.strerror}"
            ) from error

    def find(self, identity: Mapping[str, Fact]) -> Calibration | None:
        """Return the calibration of a machine.

        Raises `BadDocument` if the document is not sound.
        """
        return self._read(self._file(fingerprint(identity)))

    def restore(self, identity: Mapping[str, Fact]) -> str:
        """Restore this machine's document as it was sealed.

        Return what happened; empty if it is unchanged.

        The written version is kept next to it, since another run of ci-bench may have made it.
        """
        file = self._file(fingerprint(identity))
        if self.sealed is None:
            return ""
        with suppress(OSError):
            before = self.sealed.get(file.name)
            if (file.read_bytes() if file.exists() else None) == before:
                return ""
            aside = file.with_suffix(".changed")
            if file.exists():
                file.replace(aside)
            if before is not None:
                file.write_bytes(before)
            return (
                f"{file} was written while code of the tree ran; it is as before, and what was"
                f" written is in {aside.name}"
            )
        return f"{file} was written while code of the tree ran, and cannot be put back; remove it"

    def _read(self, file: Path) -> Calibration | None:
        if self.sealed is None:
            return documents.read_calibration(file) if file.exists() else None
        content = self.sealed.get(file.name)
        return None if content is None else documents.parse_calibration(content, file)

    def require_writable(self) -> None:
        """Check that the folder can be written, before hours of measuring. Raises `CannotWrite`."""
        documents.require_writable(self.path / "calibration.json")

    def keep(self, new: Calibration) -> Calibration:
        """Add a run's calibration to what is there, and return all of it.

        Raises:
            BadDocument: what is there is not sound; it is left as it is.
            CannotWrite: the folder cannot be written.
        """
        file = self._file(new.fingerprint)
        try:
            old = self._read(file)
        except BadDocument as error:
            message = f"{error}\nNothing was added to it; remove it to start over."
            raise BadDocument(message) from error
        merged = merge(old, new)
        documents.write(merged, file)
        return merged

    def _file(self, digest: str) -> Path:
        return self.path / f"{digest.partition(':')[2][:32]}.json"


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return ``$CI_BENCH_NOISE``, or else ``ci-bench/noise`` in the folder for state.

    That is ``$XDG_STATE_HOME`` or ``~/.local/state``.
    """
    if configured := environ.get("CI_BENCH_NOISE"):
        return Path(configured)
    state = environ.get("XDG_STATE_HOME") or str(
        Path(environ.get("HOME") or "~").expanduser() / ".local" / "state"
    )
    return Path(state) / "ci-bench" / "noise"


def told(floors: Sequence[NoiseFloor], answer: Audit) -> str:
    """Describe each metric's noise, noisiest first, and whether the rule keeps its promise here.

    One line each.
    """
    lines = [f"{floor.case}: {floor.metric} ({floor.arm}): {floor.text}" for floor in floors]
    runs, wrong = count_of(answer.runs, "run"), len(answer.alarms)
    alarms = f"{wrong} of {runs} of unchanged code would have been called regressed"
    low, high = percent(answer.interval.low), percent(answer.interval.high)
    lines.append(
        f"{alarms} (between {low} and {high} of all such runs; the rule promises"
        f" {percent(answer.promised)} at most)"
    )
    if not answer.holds:
        lines.append("that is more than promised: do not gate on this machine before it is quieter")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _TimesOnly:
    """A suite as it is, but for verifying, which teaches nothing about noise."""

    suite: Suite

    def __getattr__(self, name: str) -> object:
        """Delegate everything else to the suite."""
        return getattr(self.suite, name)

    def stages(self, case: Case) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.suite.stages(case) if stage.kind not in UNTIMED)


def times_only(plan: Sequence[tuple[Suite, Case]]) -> Plan:
    """Return the plan without its verifying stages."""
    return tuple((_TimesOnly(suite), case) for suite, case in plan)  # type: ignore[misc] # by __getattr__ it is a suite
