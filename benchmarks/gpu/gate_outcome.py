"""The documents of a finished gate, and their figures in a few lines of text."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci_bench.errors import CiBenchError
from ci_bench.records import documents
from ci_bench.records.comparison import Comparison, Pair, Verdict
from ci_bench.records.metrics import DEVICE_TIME, STEP_TIME
from ci_bench.records.results import CaseResult, Outcome, Results, Status
from ci_bench.report.time_spent import time_spent
from ci_bench.suites.fastrnns.plan import BACKWARD, FORWARD

TIMES = frozenset({STEP_TIME.name, DEVICE_TIME.name, FORWARD, BACKWARD})
MOST_LINES, MOST_FINDINGS = 6, 12
FINISHED = frozenset({0, 1})


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOutcome:
    """One finished gate: its documents, exit code and output."""

    seconds: float
    """The wall time of the command (s)."""
    code: int
    """The exit code of the command."""
    output: str
    """The command's output and errors."""
    comparison: Comparison | None
    """The comparison; `None` if the gate wrote none."""
    head: Results | None
    """Head's results; `None` if the gate wrote none."""
    base: Results | None
    """Base's results; `None` if the gate wrote none."""
    watched: Mapping[str, Any] = field(default_factory=dict)
    """The sums of the looks at the GPU (`utilization`); empty if there are none."""

    @property
    def rows(self) -> tuple[CaseResult, ...]:
        """The rows of both sides."""
        return tuple(row for side in self.sides for row in side.cases)

    @property
    def sides(self) -> tuple[Results, ...]:
        """The documents of both sides, as far as they exist."""
        return tuple(side for side in (self.base, self.head) if side is not None)

    @property
    def pairs(self) -> tuple[tuple[str, Pair], ...]:
        """Every compared metric, with its case."""
        cases = self.comparison.cases if self.comparison else ()
        return tuple((case.id, pair) for case in cases for pair in case.pairs)

    @property
    def times(self) -> tuple[tuple[str, Pair], ...]:
        """The compared times."""
        return tuple((case, pair) for case, pair in self.pairs if pair.metric in TIMES)

    @property
    def red(self) -> tuple[str, ...]:
        """The metrics that head is worse in, or suspected to be."""
        return tuple(_describe_pair(case, pair) for case, pair in self.pairs if pair.verdict.worse)

    @property
    def moved(self) -> tuple[str, ...]:
        """The times that are called changed, in either direction."""
        return tuple(_describe_pair(case, pair) for case, pair in self.times if pair.verdict.moved)

    @property
    def launches(self) -> int:
        """The number of launches of the case that had most."""
        metrics = [
            metric for row in self.rows for metric in row.metrics if metric.name == STEP_TIME.name
        ]
        return max((len(metric.launches) for metric in metrics), default=0)

    def failures(self) -> Counter[str]:
        """Return the rows that failed, by their reason."""
        return Counter(
            f"{row.case.id}: {row.status}: {row.failure and row.failure.reason[:1200]}"
            for row in self.rows
            if row.status is not Status.OK
        )


def read_outcome(folder: Path, *, seconds: float, code: int) -> GateOutcome:
    """Read the documents of a gate from its folder; documents that are missing are None."""
    out = folder / "out"
    return GateOutcome(
        seconds=seconds,
        code=code,
        output=(folder / "output.txt").read_text(encoding="utf-8", errors="replace"),
        comparison=_read(out / "comparison.json", documents.read_comparison),
        head=_read(out / "results.json", documents.read_results),
        base=_read(out / "base" / "results.json", documents.read_results),
        watched=_read(folder / "watch.json", lambda path: json.loads(path.read_bytes())) or {},
    )


def _read(path: Path, read: Any) -> Any:
    try:
        return read(path)
    except (OSError, ValueError, CiBenchError):
        return None


def describe(outcome: GateOutcome, figure: str, *, every: bool = False) -> Iterator[str]:
    """Yield the lines for a log, the last with the figure; `every` lists each time."""
    yield from outcome.failures()
    for case, pair in outcome.times if every else ():
        speedup = "" if pair.speedup is None else f"{pair.speedup:.4f}"
        yield f"{_describe_pair(case, pair)}: {pair.verdict} {speedup} {pair.reason[:160]}"
    complaints, remarks = _checks(outcome.rows)
    disturbed = _disturbed(outcome.rows)
    for title, counts in (("check", complaints), ("remark", remarks), ("disturbed", disturbed)):
        yield from (f"{title} {count}x {text}" for text, count in counts.most_common(MOST_LINES))
    findings = outcome.comparison.judgement.findings if outcome.comparison else ()
    for finding in findings[:MOST_FINDINGS]:
        yield f"finding {finding.rule} {finding.severity}: {finding.message[:220]}"
    spent = time_spent(outcome.sides)
    for stage, phase, seconds in spent.rows[:10]:
        yield f"spent {sum(seconds):7.1f} s  {stage}: {phase}"
    if outcome.code not in FINISHED or outcome.comparison is None:
        yield outcome.output[-2500:]
    verdicts = Counter(str(pair.verdict) for _, pair in outcome.times)
    counted = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    yield (
        f"FIGURE: {figure}; exit {outcome.code}; {outcome.seconds:.0f} s, "
        f"{outcome.launches} launches, {spent.share or 'time unknown'}{_use(outcome.watched)}; "
        f"{counted}; {complaints.total()} failed checks, {disturbed.total()} disturbed blocks"
    )


def _describe_pair(case: str, pair: Pair) -> str:
    return f"{case} {pair.arm} {pair.metric}"


def _checks(rows: Sequence[CaseResult]) -> tuple[Counter[str], Counter[str]]:
    """Return checks that failed or lack an answer, and informative ones without an answer."""
    complaints: Counter[str] = Counter()
    remarks: Counter[str] = Counter()
    for row in rows:
        for check in row.checks:
            text = f"{check.name} {check.outcome}: {check.detail[:220]}"
            if check.outcome is Outcome.UNKNOWN and check.informative:
                remarks[text] += 1
            elif check.outcome in {Outcome.FAIL, Outcome.UNKNOWN}:
                complaints[text] += 1
    return complaints, remarks


def _disturbed(rows: Sequence[CaseResult]) -> Counter[str]:
    return Counter(
        reason[:160]
        for row in rows
        for block in row.blocks
        for reason in (*block.redone, *((block.doubt,) if block.doubt else ()))
    )


def _use(watched: Mapping[str, Any]) -> str:
    if watched.get("busy_mean") is None:
        return ""
    idle, joules = watched["idle_share"], watched["joules"] or 0.0
    return f", GPU busy {watched['busy_mean']:.0f} %, idle in {idle:.0%} of looks, {joules:.0f} J"


def is_right(case: str, verdict: Verdict) -> bool:
    """Return whether a chain's verdict fits the change in its id."""
    if "change=none" in case:
        return not verdict.moved
    return verdict is Verdict.REGRESSED
