"""Where what past runs taught about a machine's noise is kept: one calibration document per machine identity, in one folder.

Owns the folder's layout and the making of runs that calibrate. What is learned from a document is the business of
`judge.calibration`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ci_bench.errors import BadDocument
from ci_bench.judge.audit import Audit
from ci_bench.judge.calibration import NoiseFloor, fingerprint, merge
from ci_bench.judge.wording import count_of, percent
from ci_bench.records import documents
from ci_bench.records.calibration import Calibration
from ci_bench.records.results import Case, Fact
from ci_bench.suites.base import UNTIMED, Stage, Suite

Plan = tuple[tuple[Suite, Case], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFolder:
    """Calibrations in a folder, each named by its machine's fingerprint."""

    path: Path

    def find(self, identity: Mapping[str, Fact]) -> Calibration | None:
        """What is known of a machine. Raises `BadDocument` where the document is not sound."""
        file = self._file(fingerprint(identity))
        return documents.read_calibration(file) if file.exists() else None

    def require_writable(self) -> None:
        """Before hours are spent on what is to be kept here. Raises `CannotWrite`."""
        documents.require_writable(self.path / "calibration.json")

    def keep(self, new: Calibration) -> Calibration:
        """Add a run's calibration to what is there, and return all of it.

        Raises:
            BadDocument: what is there is not sound; it is left as it is.
            CannotWrite: the folder cannot be written.
        """
        file = self._file(new.fingerprint)
        try:
            old = documents.read_calibration(file) if file.exists() else None
        except BadDocument as error:
            message = f"{error}\nNothing was added to it; remove it to start afresh."
            raise BadDocument(message) from error
        merged = merge(old, new)
        documents.write(merged, file)
        return merged

    def _file(self, digest: str) -> Path:
        return self.path / f"{digest.partition(':')[2][:32]}.json"


def default_folder(environ: Mapping[str, str]) -> Path:
    """``$CI_BENCH_NOISE``, else ``ci-bench/noise`` in the folder for state (``$XDG_STATE_HOME``, ``~/.local/state``)."""
    if named := environ.get("CI_BENCH_NOISE"):
        return Path(named)
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(state) / "ci-bench" / "noise"


def told(floors: Sequence[NoiseFloor], answer: Audit) -> str:
    """How noisy each metric is, the noisiest first, and whether the rule keeps its promise here; one line each."""
    lines = [f"{floor.case}: {floor.metric} ({floor.arm}): {floor.text}" for floor in floors]
    runs, wrong = count_of(answer.runs, "run"), len(answer.alarms)
    alarms = f"{wrong} of {runs} of unchanged code would have been called regressed"
    low, high = percent(answer.interval.low), percent(answer.interval.high)
    lines.append(f"{alarms} (between {low} and {high} of all such runs; the rule promises {percent(answer.promised)} at most)")
    if not answer.holds:
        lines.append("that is more than promised: do not gate on this machine before it is quieter")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _TimesOnly:
    """A suite as it is, but for verifying, which teaches nothing about noise."""

    suite: Suite

    def __getattr__(self, name: str) -> object:
        """Everything else is the suite's own."""
        return getattr(self.suite, name)

    def stages(self, case: Case) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.suite.stages(case) if stage.kind not in UNTIMED)


def times_only(plan: Sequence[tuple[Suite, Case]]) -> Plan:
    """The plan without its verifying stages."""
    return tuple((_TimesOnly(suite), case) for suite, case in plan)  # type: ignore[misc] # by __getattr__ it is a suite
