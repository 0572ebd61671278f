"""The comparison document: head against base, each pair judged, and what the policy makes of it.

Owns the verdicts and their reasons, findings (each under a rule, with a severity), the exit code
that follows, and how close each training run stayed to its reference, step by step, for those who
draw it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Literal

from ci_bench.records.causes import Cause
from ci_bench.records.config import Rule, Severity
from ci_bench.records.outputs import OutputsFinding
from ci_bench.records.results import (
    Better,
    Check,
    Environment,
    Fact,
    Masks,
    Run,
    Source,
    Status,
    Unit,
)

BESIDE_BASE = "head against base"
"""Replaces the arm's name if head's reference training is compared with base's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Closeness:
    """One signal (``loss`` or ``grad_norm``) of one candidate run, over the steps that both runs and a perturbed run have.

    `low` and `high` are where parity ends on either side of the reference, in the signal's own
    unit. `scores` is how many rounding envelopes the candidate is away from it; parity ends at
    `limit`.
    """

    arm: str
    seed: int
    signal: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    scores: tuple[float, ...]
    limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing the policy has a word on, with its coded rule.

    `case` is `None` for the run as a whole.
    """

    rule: Rule
    severity: Severity
    message: str
    case: str | None = None


class RunVerdict(StrEnum):
    """The word for a run: passed only where everything that gates was decided."""

    PASSED = "passed"
    UNDECIDED = "undecided"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """Result of applying the policy to a comparison: worst findings first, and the exit code."""

    verdict: RunVerdict
    exit_code: int
    headline: str
    findings: tuple[Finding, ...]

    @property
    def met(self) -> bool:
        """Return whether the policy is met, including undecided results that it lets pass."""
        return self.verdict is not RunVerdict.FAILED and not self.exit_code


class Verdict(StrEnum):
    """The word for a metric, and for a case."""

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    REGRESSED = "regressed"
    SUSPECTED = "suspected"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NEW = "new"
    REMOVED = "removed"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def worse(self) -> bool:
        """Return whether head was found, or is suspected, to be worse."""
        return self is Verdict.REGRESSED or self is Verdict.SUSPECTED

    @property
    def moved(self) -> bool:
        """Return whether head is worse or better."""
        return self.worse or self is Verdict.IMPROVED


class Parity(StrEnum):
    """The word for one candidate arm's training run against the reference's."""

    BITWISE = "bitwise"
    NUMERIC_PARITY = "numeric_parity"
    EQUIVALENT = "equivalent"
    DIFFERENT_MATH = "different_math"
    DIFFERENT = "different"
    NON_FINITE = "non_finite"
    INCONCLUSIVE = "inconclusive"
    INSUFFICIENT_DATA = "insufficient_data"
    INSUFFICIENT_SENSITIVITY = "insufficient_sensitivity"

    @property
    def holds(self) -> bool:
        """Return whether the candidate's training still matches."""
        return self in {Parity.BITWISE, Parity.NUMERIC_PARITY, Parity.EQUIVALENT}

    @property
    def broken(self) -> bool:
        """Return whether the candidate's training differs."""
        return self in {Parity.DIFFERENT_MATH, Parity.DIFFERENT, Parity.NON_FINITE}


class Tier(StrEnum):
    """The rule of parity that applied: step by step against the rounding envelope, or over seeds."""

    NUMERIC = "numeric"
    STATISTICAL = "statistical"


class BaselineMode(StrEnum):
    """Origin of the base side: none, an earlier run, or the same run, measured in turns with head.

    An artifact is an earlier run that was found by its commit, on GitHub.
    """

    NONE = "none"
    FILE = "file"
    ARTIFACT = "artifact"
    PAIRED = "paired"


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A confidence interval at `level` (0.95 is ninety-five per cent)."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """One side of a pair: the median over all samples, in the metric's unit, and how many there are.

    `estimate` is what the change is of where that isn't the median: of a paired time the geometric
    mean over the judged launches of their trimmed means, of a count the worst of any launch.
    """

    median: float
    samples: int
    launches: int
    estimate: float | None = None

    @property
    def figure(self) -> float:
        """Return the displayed figure: the ratio of base's and head's figures equals the change."""
        return self.median if self.estimate is None else self.estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One metric of one arm, base against head.

    `speedup` > 1 is better, whatever the direction of the metric.

    `items` is what one call of head's (else of base's) processes: items / median duration is the
    throughput. A `detail` is shown, but fails nothing.

    Times of a paired run also have: `calibrated`, whether past runs of unchanged code showed their
    noise; `noise`, the relative standard deviation from launch to launch that was learned so;
    `resolvable`, the relative change that would have been found nine times in ten; `q`, the false
    discovery rate (Benjamini-Hochberg) at which this would count as a change. An undecided change
    for the worse is `possible` where it is beyond the threshold and two standard errors. `needed`
    is how many launches in all would decide it; `None` if it is decided, or if no number would
    decide it. `title` is what people call the metric.
    """

    metric: str
    arm: str
    unit: Unit
    better: Better
    verdict: Verdict
    reason: str
    threshold: float
    base: Summary | None = None
    head: Summary | None = None
    speedup: float | None = None
    interval: Interval | None = None
    items: int | None = None
    detail: bool = False
    calibrated: bool | None = None
    noise: float | None = None
    resolvable: float | None = None
    q: float | None = None
    possible: bool = False
    needed: float | None = None
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedupChange:
    """Change of an arm's speedup by head: head's speedup / base's, > 1 is better.

    Shown, never a failure.
    """

    verdict: Verdict
    ratio: float
    interval: Interval | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSpeedup:
    """A candidate arm against the reference arm of the same run: reference / candidate, > 1 is better.

    For memory this is the compression ratio. `change` is only known where both sides were measured
    in turns.
    """

    metric: str
    arm: str
    reference: str
    speedup: float
    interval: Interval | None
    base_speedup: float | None = None
    change: SpeedupChange | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedRule:
    """The verdict that training_loss.py would have given: tail mean of window losses within +0.1. For information."""

    passed: bool | None
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyParity:
    """Evaluation accuracy of reference-like runs (their mean) and of the candidate, as shares.

    `spread` is the standard deviation among reference-like runs of one seed, `limit` how far the
    candidate may be off.
    """

    reference: float
    candidate: float
    spread: float | None
    limit: float
    holds: bool
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ParityFinding:
    """Loss parity of one candidate arm.

    Scores are how many envelopes apart the signals came at most (numeric tier; `limit` is where
    parity ends). `apart_first` and `apart_last` are by how much, as a share of the reference's,
    `signal` is off at `first_step` and at the last step that counts. `step` is what a log calls the
    step at position `first_step`, and `recorded` how many steps the longer log has. `difference` is
    the mean relative loss difference with its interval (statistical tier; `limit` is the margin).
    If head is compared with base from other start weights, the statistical tier has `first_step` as
    well.
    """

    arm: str
    verdict: Parity
    tier: Tier | None
    masks: Masks | None
    steps: int
    detail: str
    limit: float | None = None
    loss_score: float | None = None
    grad_norm_score: float | None = None
    first_step: int | None = None
    step: str = ""
    recorded: int | None = None
    signal: str | None = None
    apart_first: float | None = None
    apart_last: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    accuracy: AccuracyParity | None = None
    seed_rule: SeedRule | None = None

    @property
    def from_another_start(self) -> bool:
        """Return whether the runs began with other weights, which only seeds can compare."""
        return self.tier is Tier.STATISTICAL and self.first_step is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseComparison:
    """One case on both sides. A status is `None` if that side has no such case.

    `base_faults` says what is wrong with the base side's own run: a check that failed, loss parity
    that does not hold. `reduced` lists what head's plan of the case owes less than base's.
    `learning` is the loss parity of head's reference arm with base's; `None` if one of the two was
    not trained. `outputs` is whether head's reference arm computes what base's does; `None` if
    neither side kept anything of it. `launch_s` is how long a launch of it took, checks included;
    of a paired run on both sides together. `causes` say of arms that were explained what changed of
    their steps. `edited` says that the benchmark's own code differs. `facts`, `arms`, `reference`
    and `title` are head's, and base's of a case that head lacks.
    """

    id: str
    suite: str
    verdict: Verdict
    reason: str
    base_status: Status | None
    head_status: Status | None
    reproduce: str | None
    log_tail: str = ""
    pairs: tuple[Pair, ...] = ()
    speedups: tuple[ArmSpeedup, ...] = ()
    checks: tuple[Check, ...] = ()
    parity: tuple[ParityFinding, ...] = ()
    learning: ParityFinding | None = None
    outputs: OutputsFinding | None = None
    base_faults: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    arms: tuple[str, ...] = ()
    reference: str | None = None
    launch_s: float | None = None
    title: str = ""
    causes: tuple[Cause, ...] = ()
    edited: bool = False

    @property
    def called(self) -> str:
        """Return the case's title, or its id."""
        return self.title or self.id


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Of the metrics that can fail a run and that both sides have: how many were decided, how many are open.

    `resolution` is the relative change that would have been found nine times in ten (the median
    over times that tell).
    """

    decided: int
    undecided: int
    resolution: float | None

    @property
    def all(self) -> int:
        """Return the total number."""
        return self.decided + self.undecided


def tally(cases: Iterable[CaseComparison]) -> Tally:
    """Count the gating metrics of these cases."""
    verdicts, resolvable = [], []
    for case in cases:
        for pair in case.pairs:
            if not pair.detail:
                verdicts.append(pair.verdict)
                if pair.resolvable is not None:
                    resolvable.append(pair.resolvable)
    counts = Counter(verdicts)
    return Tally(
        decided=sum(
            number
            for verdict, number in counts.items()
            if verdict.moved or verdict is Verdict.UNCHANGED
        ),
        undecided=counts[Verdict.INCONCLUSIVE],
        resolution=median(resolvable) if resolvable else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CommonShift:
    """Common movement of a suite's times between base's run and head's.

    `speedup` > 1 is better, `threshold` is relative.

    Single times are judged apart from it; `metrics` is how many there are.
    """

    suite: str
    verdict: Verdict
    reason: str
    metrics: int
    threshold: float
    speedup: float
    interval: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanSpeedup:
    """The geometric mean of base / head over the gating times of a paired run, over `launches` in which all were measured."""

    speedup: float
    interval: Interval | None
    metrics: int
    launches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """Properties of a paired run as a whole.

    `calibration` says in words where the machine's own noise is known from, or why it isn't.
    `gating` is how many times can fail the run: the chance of a false alarm is shared out among
    them. `inflation` is how much noisier today was than what was learned, `devices` how many
    identical ones the launches were taken on, `lost` how many attempts of a fleet at measuring some
    of it came to nothing.
    """

    calibration: str
    gating: int
    launches: int
    inflation: float | None = None
    mean: MeanSpeedup | None = None
    devices: int = 1
    lost: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSide:
    """The run on one side."""

    run: Run
    source: Source
    environment: Environment
    tool_version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """A field of the identity that differs.

    It makes the two runs incomparable, unless the policy allows it.
    """

    field: str
    base: Fact
    head: Fact


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Comparison:
    """Head against base. `base` is `None` if there was no baseline; `absence` then says why.

    `across` are differences of the machines that the policy allows.
    """

    kind: Literal["comparison"] = "comparison"
    schema_version: Literal[1] = 1
    tool_version: str
    mode: BaselineMode
    head: ComparedSide
    base: ComparedSide | None
    absence: str | None
    mismatches: tuple[Mismatch, ...]
    across: tuple[Mismatch, ...] = ()
    cases: tuple[CaseComparison, ...]
    shifts: tuple[CommonShift, ...] = ()
    pairing: Pairing | None = None
    judgement: Judgement
