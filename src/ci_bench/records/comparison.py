"""The comparison document: head against base, each pair judged, and what the policy makes of it.

Owns the verdicts and their reasons, findings (each under a rule, with a severity), the exit code
that follows, and how close each training run stayed to its reference, step by step, for those who
draw it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Annotated, Literal

from ci_bench.records.causes import Cause
from ci_bench.records.config import Rule, Severity
from ci_bench.records.forms import (
    ArmName,
    Bounds,
    CaseId,
    Count,
    Fact,
    Facts,
    Identifier,
    Label,
    Log,
    MetricName,
    NonNegative,
    PositiveCount,
    PositiveNumber,
    Share,
    SuiteName,
    Text,
    ToolVersion,
)
from ci_bench.records.outputs import OutputsFinding
from ci_bench.records.results import Better, Check, Environment, Masks, Run, Source, Status, Unit

BESIDE_BASE = "head against base"
"""Replaces the arm's name if head's reference training is compared with base's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Closeness:
    """One signal of one candidate run, over the steps of both runs and a perturbed run."""

    arm: str
    """The candidate arm."""
    seed: int
    """Its seed."""
    signal: str
    """``loss`` or ``grad_norm``."""
    low: tuple[float, ...]
    """Lower end of parity by step, in the signal's unit."""
    high: tuple[float, ...]
    """Upper end, likewise."""
    scores: tuple[float, ...]
    """Distance of the candidate in rounding envelopes, by step."""
    limit: float
    """Score at which parity ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that the policy has a rule for."""

    rule: Rule
    """A rule of the policy."""
    severity: Severity
    """The effect of a finding on the run."""
    message: Text
    """The finding, for the reader."""
    case: CaseId | None = None
    """Id of the case; `None` for the run as a whole."""


class RunVerdict(StrEnum):
    """The word for a run: passed only where everything that gates was decided."""

    PASSED = "passed"
    UNDECIDED = "undecided"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """Result of applying the policy to a comparison: worst findings first, and the exit code."""

    verdict: RunVerdict
    """Passed only if every gating metric was decided; an undecided run meets the policy, too."""
    exit_code: Annotated[int, Bounds(choices=(0, 1, 3, 4))]
    """The exit code that follows."""
    headline: Annotated[str, Bounds(max_length=2000)]
    """The comparison in one sentence."""
    findings: Annotated[tuple[Finding, ...], Bounds(max_items=1_000_000)]
    """Worst first."""

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
    """The rule of parity: step by step against the rounding envelope, or over seeds."""

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
    """A confidence interval."""

    low: float
    """The lower end."""
    high: float
    """The upper end."""
    level: Annotated[float, Bounds(gt=0, lt=1)]
    """The level; 0.95 is ninety-five per cent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """One side of a pair."""

    median: float
    """The median of all samples, in the metric's unit."""
    samples: PositiveCount
    """Number of samples."""
    launches: PositiveCount
    """Number of launches that took them."""
    estimate: float | None = None
    """Quantity that the change refers to, in the metric's unit; `None` if it is the median."""

    @property
    def figure(self) -> float:
        """Return the displayed figure: the ratio of base's and head's figures equals the change."""
        return self.median if self.estimate is None else self.estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One metric of one arm, base against head.

    Times of a paired run also have `calibrated`, `noise`, `resolvable` and `q`. The false discovery
    rate is by Benjamini and Hochberg.
    """

    metric: MetricName
    """Name of the metric."""
    arm: ArmName
    """The measured arm."""
    unit: Unit
    """The unit of the values."""
    better: Better
    """Which direction is an improvement."""
    verdict: Verdict
    """The verdict on the metric."""
    reason: Text
    """The reason for this verdict."""
    threshold: NonNegative
    """The smallest relative change that matters."""
    base: Summary | None = None
    """The base side; `None` if missing."""
    head: Summary | None = None
    """The head side; `None` if missing."""
    speedup: PositiveNumber | None = None
    """More than 1 is better, whatever the direction; `None` if unknown."""
    interval: Interval | None = None
    """Interval of the speedup; `None` if unknown."""
    items: PositiveCount | None = None
    """Rows, images or tokens per call of head's (else of base's); `None` if not applicable."""
    detail: bool = False
    """Whether the metric is only shown and fails nothing."""
    calibrated: bool | None = None
    """Whether past runs of unchanged code calibrate its noise; `None` if that does not matter."""
    noise: NonNegative | None = None
    """The learned relative standard deviation from launch to launch; `None` if unknown."""
    resolvable: NonNegative | None = None
    """The relative change detectable with 90 % power; `None` if unknown."""
    q: Share | None = None
    """The false discovery rate at which it would count as a change; `None` if unknown."""
    possible: bool = False
    """Whether an undecided change for the worse is beyond the threshold and two standard errors."""
    needed: NonNegative | None = None
    """Launches in all that would decide it; `None` if it is decided, or if no number would."""
    title: Label = ""
    """The common name of the metric; empty if only its name is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedupChange:
    """Change of an arm's speedup by head; shown, never a failure."""

    verdict: Verdict
    """The verdict on the change."""
    ratio: PositiveNumber
    """Head's speedup over base's: more than 1 is better."""
    interval: Interval | None
    """Interval of the ratio; `None` if unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSpeedup:
    """A candidate arm against the reference arm of the same run.

    For memory this is the compression ratio.
    """

    metric: MetricName
    """Name of the metric."""
    arm: ArmName
    """The candidate arm."""
    reference: ArmName
    """The reference arm."""
    speedup: PositiveNumber
    """Reference over candidate: more than 1 is better."""
    interval: Interval | None
    """Interval of the speedup; `None` if unknown."""
    base_speedup: PositiveNumber | None = None
    """The same on the base side; `None` if unknown."""
    change: SpeedupChange | None = None
    """Whether head changed it; `None` if the sides were not measured in turns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedRule:
    """The verdict that training_loss.py would have given, for information.

    It is the tail mean of window losses within +0.1.
    """

    passed: bool | None
    """Whether it passed; `None` if unknown."""
    detail: Text
    """The observation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyParity:
    """Evaluation accuracy of reference-like runs (their mean) and of the candidate."""

    reference: Share
    """Accuracy of the reference, in 0..1."""
    candidate: Share
    """Accuracy of the candidate, in 0..1."""
    spread: Share | None
    """Standard deviation among reference-like runs of one seed; `None` if unknown."""
    limit: Share
    """The largest accepted difference of the candidate."""
    holds: bool
    """Whether accuracy is the same."""
    detail: Text
    """The observation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParityFinding:
    """Loss parity of one candidate arm.

    Scores are how many envelopes apart the signals came at most (numeric tier). If head is compared
    with base from other start weights, the statistical tier has `first_step` as well.
    """

    arm: ArmName
    """The candidate arm."""
    verdict: Parity
    """The verdict on its training run."""
    tier: Tier | None
    """The rule of parity that applied."""
    masks: Masks | None
    """Whether the candidate's dropout masks match the reference's."""
    steps: Count
    """Number of steps compared."""
    detail: Text
    """The observation."""
    limit: NonNegative | None = None
    """Score at which parity ends, or the margin over seeds; `None` if no rule applied."""
    loss_score: NonNegative | None = None
    """The largest difference of the losses, in envelopes; `None` if unknown."""
    grad_norm_score: NonNegative | None = None
    """The largest difference of the gradient norms, in envelopes; `None` if unknown."""
    first_step: Count | None = None
    """The first step that differs; `None` if all agree."""
    step: Annotated[str, Bounds(max_length=60, pattern=r"^[a-z0-9, ]{0,60}$")] = ""
    """The log's number of the step at position first_step; empty if the log has none."""
    recorded: Count | None = None
    """For logs, the number of steps of the longer one."""
    signal: Identifier | None = None
    """The series that differs first; `None` if all agree."""
    apart_first: float | None = None
    """Relative deviation of the signal at the first step that differs; `None` if all agree."""
    apart_last: float | None = None
    """The same at the last step that counts."""
    difference: float | None = None
    """The mean relative difference of the loss; `None` if unknown."""
    interval: Interval | None = None
    """Interval of the difference; `None` if unknown."""
    accuracy: AccuracyParity | None = None
    """Accuracy of both runs; `None` if evaluation is off."""
    seed_rule: SeedRule | None = None
    """The verdict that training_loss.py would have given."""

    @property
    def from_another_start(self) -> bool:
        """Return whether the runs began with other weights, which only seeds can compare."""
        return self.tier is Tier.STATISTICAL and self.first_step is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseComparison:
    """One case on both sides.

    `facts`, `arms`, `reference` and `title` are head's, or base's if head lacks the case.
    """

    id: CaseId
    """Stable text: cases of two runs are the same case if their ids are equal."""
    suite: SuiteName
    """The suite that plans the case."""
    verdict: Verdict
    """The verdict on the case."""
    reason: Text
    """The reason for this verdict."""
    base_status: Status | None
    """`None` if the base side has no such case."""
    head_status: Status | None
    """`None` if the head side has no such case."""
    reproduce: Text | None
    """A command that runs only this case; `None` if head has no such case."""
    log_tail: Log = ""
    """The end of the log of a failed case."""
    pairs: Annotated[tuple[Pair, ...], Bounds(max_items=1000)] = ()
    """The metrics, base against head."""
    speedups: Annotated[tuple[ArmSpeedup, ...], Bounds(max_items=1000)] = ()
    """The arms, reference against candidate."""
    checks: Annotated[tuple[Check, ...], Bounds(max_items=1000)] = ()
    """The checks."""
    parity: Annotated[tuple[ParityFinding, ...], Bounds(max_items=20)] = ()
    """Loss parity of each candidate arm."""
    learning: ParityFinding | None = None
    """Loss parity of head's reference arm with base's; `None` if one was not trained."""
    outputs: OutputsFinding | None = None
    """Whether the reference arm's outputs match base's; `None` if neither side kept any."""
    base_faults: Annotated[
        tuple[Annotated[str, Bounds(max_length=20_000)], ...], Bounds(max_items=1000)
    ] = ()
    """Faults of the baseline run itself."""
    reduced: Annotated[
        tuple[Annotated[str, Bounds(max_length=2000)], ...], Bounds(max_items=100)
    ] = ()
    """Requirements that head's plan drops from base's own plan, one clause each."""
    facts: Facts = field(default_factory=dict)
    """Parameters and counts for the reader."""
    arms: Annotated[tuple[ArmName, ...], Bounds(max_items=20)] = ()
    """The ways of running the case."""
    reference: ArmName | None = None
    """The arm that the others are compared with; `None` if unknown."""
    launch_s: NonNegative | None = None
    """Seconds of a launch, checks included, on all measured sides; `None` if unknown."""
    title: Label = ""
    """The common name of the case; empty if that is its id."""
    causes: Annotated[tuple[Cause, ...], Bounds(max_items=100)] = ()
    """Changes in the steps of the arms that were explained."""
    edited: bool = False
    """Whether the benchmark's own code differs between base and head."""

    @property
    def called(self) -> str:
        """Return the case's title, or its id."""
        return self.title or self.id


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Metrics that can fail a run and that both sides have."""

    decided: int
    """Number of decided metrics."""
    undecided: int
    """Number of open metrics."""
    resolution: float | None
    """Relative change detectable with 90 % power, the median over times; `None` if unknown."""

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

    Single times are judged apart from it.
    """

    suite: SuiteName
    """The suite that plans the case."""
    verdict: Verdict
    """The verdict on the shift."""
    reason: Text
    """The reason for this verdict."""
    metrics: PositiveCount
    """Number of times that the median is over."""
    threshold: NonNegative
    """The smallest relative change that matters."""
    speedup: PositiveNumber
    """More than 1 is better."""
    interval: Interval
    """Interval of the speedup."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanSpeedup:
    """The geometric mean of base / head over the gating times of a paired run."""

    speedup: PositiveNumber
    """More than 1 is better."""
    interval: Interval | None
    """Interval of the mean; `None` if unknown."""
    metrics: PositiveCount
    """Number of times that the mean is over."""
    launches: PositiveCount
    """The launches in which all of them were measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """Properties of a paired run as a whole.

    The chance of a false alarm is shared out among the gating times.
    """

    calibration: Text
    """The source of the machine's noise calibration, or why it is missing."""
    gating: Count
    """Number of times that can fail the run."""
    launches: Count
    """The largest number of launches of a case."""
    inflation: Annotated[float, Bounds(ge=1)] | None = None
    """Today's noise relative to the learned noise; `None` if unknown."""
    mean: MeanSpeedup | None = None
    """The geometric mean over the gating times; `None` if unknown."""
    devices: PositiveCount = 1
    """Number of identical devices that took the launches."""
    lost: Count = 0
    """Number of fleet attempts that were lost or withdrawn (`losses` in results.json)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSide:
    """The run on one side."""

    run: Run
    """Time and configuration of the run."""
    source: Source
    """The measured repository and commit."""
    environment: Environment
    """The machine."""
    tool_version: ToolVersion
    """The version of ci-bench that wrote the document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """A field of the identity that differs."""

    field: Annotated[str, Bounds(max_length=60, pattern=r"^[a-z0-9_.]{1,60}$")]
    """The name of the field."""
    base: Fact
    """Base's value; `None` if it could not be determined."""
    head: Fact
    """Head's value; `None` if it could not be determined."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Comparison:
    """Base and head side by side, with the verdicts and their reasons."""

    kind: Literal["comparison"] = "comparison"
    """The kind of document."""
    schema_version: Literal[1] = 1
    """The version of this schema."""
    tool_version: ToolVersion
    """The version of ci-bench that wrote the document."""
    mode: BaselineMode
    """The source of the base side."""
    head: ComparedSide
    """The run to judge."""
    base: ComparedSide | None
    """The run it is compared with; `None` if missing."""
    absence: Text | None
    """Why base is missing; `None` if it is present."""
    mismatches: Annotated[tuple[Mismatch, ...], Bounds(max_items=200)]
    """Differences that make the two runs incomparable."""
    across: Annotated[tuple[Mismatch, ...], Bounds(max_items=20)] = ()
    """Differences that policy.compare_across allows."""
    cases: Annotated[tuple[CaseComparison, ...], Bounds(max_items=10_000)]
    """The cases of both sides."""
    shifts: Annotated[tuple[CommonShift, ...], Bounds(max_items=1000)] = ()
    """How the times of each suite moved together since a saved baseline."""
    pairing: Pairing | None = None
    """Facts about a paired run as a whole; `None` for other runs."""
    judgement: Judgement
    """The policy's judgement of the comparison."""
