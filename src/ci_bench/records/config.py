"""The configuration as one frozen value: suites, run options, and the policy.

Reading it from files and flags is the business of `ci_bench.configuration.config`.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ci_bench.records.metrics import ENGINE, LEAST_BYTES, PEAK_RSS, RECORDED, MetricKind, title_of
from ci_bench.records.results import Unit


class Severity(StrEnum):
    """Effect of a finding on the run.

    `fail` turns it red, `warn` is shown first, `note` is only listed.
    """

    FAIL = "fail"
    WARN = "warn"
    NOTE = "note"


class Floor(StrEnum):
    """Lower limit of a candidate arm.

    It is reference / candidate of the step time, or of the peak of memory.
    """

    SPEEDUP = "speedup"
    COMPRESSION = "compression"


class Rule(StrEnum):
    """Everything that a policy can give a severity to."""

    REGRESSED = "regressed"
    SUSPECTED = "suspected"
    COMMON_SHIFT = "common_shift"
    BELOW_FLOOR = "below_floor"
    IMPLAUSIBLE = "implausible"
    CLOCK_DISAGREES = "clock_disagrees"
    PARITY_BROKEN = "parity_broken"
    PARITY_UNDECIDED = "parity_undecided"
    ACCURACY_BROKEN = "accuracy_broken"
    LEARNING_CHANGED = "learning_changed"
    LEARNING_UNKNOWN = "learning_unknown"
    START_CHANGED = "start_changed"
    OUTPUTS_CHANGED = "outputs_changed"
    OUTPUTS_UNKNOWN = "outputs_unknown"
    CHECK_FAILED = "check_failed"
    CHECK_UNKNOWN = "check_unknown"
    DISTURBED = "disturbed"
    CASE_FAILED = "case_failed"
    CASE_SKIPPED = "case_skipped"
    CASE_NOT_RUN = "case_not_run"
    CASE_REMOVED = "case_removed"
    CASE_REDUCED = "case_reduced"
    METRIC_REMOVED = "metric_removed"
    METRIC_REPLACED = "metric_replaced"
    METRIC_MISSING = "metric_missing"
    CASE_NEW = "case_new"
    POSSIBLE = "possible"
    UNDECIDED = "undecided"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    BASELINE_MISSING = "baseline_missing"
    BASELINE_FAILED = "baseline_failed"
    BASELINE_CRASHED = "baseline_crashed"
    EMPTY_RUN = "empty_run"
    PARTIAL_RUN = "partial_run"
    NARROWED = "narrowed"
    CASES_UNDECLARED = "cases_undeclared"
    ACCEPTED = "accepted"
    ACCEPTANCE_UNUSED = "acceptance_unused"


DEFAULT_SEVERITIES: Mapping[Rule, Severity] = {
    Rule.REGRESSED: Severity.FAIL,
    Rule.SUSPECTED: Severity.FAIL,
    Rule.COMMON_SHIFT: Severity.FAIL,
    Rule.BELOW_FLOOR: Severity.FAIL,
    Rule.IMPLAUSIBLE: Severity.FAIL,
    Rule.CLOCK_DISAGREES: Severity.FAIL,
    Rule.PARITY_BROKEN: Severity.FAIL,
    Rule.PARITY_UNDECIDED: Severity.FAIL,
    Rule.ACCURACY_BROKEN: Severity.FAIL,
    Rule.LEARNING_CHANGED: Severity.FAIL,
    Rule.LEARNING_UNKNOWN: Severity.WARN,
    Rule.START_CHANGED: Severity.WARN,
    Rule.OUTPUTS_CHANGED: Severity.FAIL,
    Rule.OUTPUTS_UNKNOWN: Severity.WARN,
    Rule.CHECK_FAILED: Severity.FAIL,
    Rule.CHECK_UNKNOWN: Severity.WARN,
    Rule.DISTURBED: Severity.WARN,
    Rule.CASE_FAILED: Severity.FAIL,
    Rule.CASE_SKIPPED: Severity.WARN,
    Rule.CASE_NOT_RUN: Severity.FAIL,
    Rule.CASE_REMOVED: Severity.FAIL,
    Rule.CASE_REDUCED: Severity.FAIL,
    Rule.METRIC_REMOVED: Severity.FAIL,
    Rule.METRIC_REPLACED: Severity.WARN,
    Rule.METRIC_MISSING: Severity.FAIL,
    Rule.CASE_NEW: Severity.NOTE,
    Rule.POSSIBLE: Severity.WARN,
    Rule.UNDECIDED: Severity.WARN,
    Rule.INCONCLUSIVE: Severity.NOTE,
    Rule.INCOMPARABLE: Severity.FAIL,
    Rule.BASELINE_MISSING: Severity.FAIL,
    Rule.BASELINE_FAILED: Severity.WARN,
    Rule.BASELINE_CRASHED: Severity.FAIL,
    Rule.EMPTY_RUN: Severity.FAIL,
    Rule.PARTIAL_RUN: Severity.FAIL,
    Rule.NARROWED: Severity.FAIL,
    Rule.CASES_UNDECLARED: Severity.WARN,
    Rule.ACCEPTED: Severity.NOTE,
    Rule.ACCEPTANCE_UNUSED: Severity.WARN,
}

UNANSWERED = frozenset(
    {
        Rule.PARITY_UNDECIDED,
        Rule.LEARNING_UNKNOWN,
        Rule.OUTPUTS_UNKNOWN,
        Rule.CHECK_UNKNOWN,
        Rule.CASE_FAILED,
        Rule.CASE_NOT_RUN,
        Rule.METRIC_MISSING,
        Rule.POSSIBLE,
        Rule.UNDECIDED,
        Rule.INCONCLUSIVE,
        Rule.INCOMPARABLE,
        Rule.BASELINE_MISSING,
        Rule.BASELINE_FAILED,
        Rule.EMPTY_RUN,
        Rule.PARTIAL_RUN,
        Rule.CASES_UNDECLARED,
    }
)
"""Rules of findings that leave a question open. A warning of one leaves the run undecided; a note
lets it pass.
"""
DEFAULT_THRESHOLD = 0.02
"""The smallest relative change that counts of a metric that declares no threshold.

See docs/internals/adr/0007.
"""

DEFAULT_DRIFT: Mapping[str, float] = {"cpu": 0.25, "cuda": 0.10}
"""Movement of times of unchanged code between runs at different times on one machine, by device.

See docs/internals/adr/0005.
"""

PROCESS_PEAKS = re.compile(r"peak|max_|rss|^memory(__measure)?$")
"""Metrics of other tools that are peaks of a process's memory; bytes for each operation, or of a
file, repeat exactly.
"""

REPORTED_NUMBER = 0.05
"""The smallest change that counts of a number that code or a tool reports, such as a score.

It is compared without statistics, and often has two digits: from 0.44 to 0.45 is 2.3 %.
"""

IMPLAUSIBLE_SPEEDUP = 25.0
"""A candidate arm this many times as fast as its reference needs an explanation.

It is more often wrong than good.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuitePolicy:
    """Settings of one suite, which override the general policy."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    severities: Mapping[Rule, Severity] = field(default_factory=dict)
    floors: Mapping[Floor, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CasePolicy:
    """Settings of the cases of a pattern, which override the suite's policy and the general one."""

    floors: Mapping[Floor, float] = field(default_factory=dict)
    implausible_speedup: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricPolicy:
    """Settings of one metric of a suite: relative threshold, whether it can fail a run, title.

    `least` is the smallest difference that counts of an amount of memory, in bytes.
    """

    threshold: float
    gates: bool = True
    title: str = ""
    least: float = LEAST_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Thresholds, floors and the effects of findings."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Smallest relative change that counts (0.05 is five per cent), by metric."""
    severities: Mapping[Rule, Severity] = field(default_factory=dict)
    """Effects of findings, by rule."""
    suites: Mapping[str, SuitePolicy] = field(default_factory=dict)
    """Overrides for single suites."""
    default_threshold: float | None = None
    """For metrics that declare none; `None` is `DEFAULT_THRESHOLD`."""
    drift: float | None = None
    """Largest drift of times between separate runs; `None` takes the device's `DEFAULT_DRIFT`."""
    floors: Mapping[Floor, float] = field(default_factory=dict)
    """Least ratios of candidate arms to the reference arm of the same run."""
    cases: Mapping[str, CasePolicy] = field(default_factory=dict)
    """Settings of single cases, by a pattern of their ids."""
    implausible_speedup: float = IMPLAUSIBLE_SPEEDUP
    """Highest plausible speedup of a candidate over its reference."""
    compare_across: tuple[str, ...] = ()
    """Fields of the machine's identity that differ on purpose."""
    metrics: Mapping[str, MetricKind] = field(default_factory=lambda: ENGINE)
    """Kinds of metric that the engine and the suites declare, by name."""

    def threshold(self, *, suite: str, metric: str, unit: Unit = Unit.SECONDS) -> float:
        """Return the threshold of one metric.

        The first that is set: the suite's, the general one, the metric's own, the policy's
        default, that of its kind (`threshold_of_kind`), `DEFAULT_THRESHOLD`.
        """
        suites_own = self.suites.get(suite, SuitePolicy()).thresholds
        kind = self.metrics.get(metric)
        layers = (
            suites_own.get(metric),
            self.thresholds.get(metric),
            None if kind is None else kind.threshold,
            self.default_threshold,
            threshold_of_kind(metric, unit),
        )
        return next((share for share in layers if share is not None), DEFAULT_THRESHOLD)

    def of_metric(self, *, suite: str, metric: str, unit: Unit = Unit.SECONDS) -> MetricPolicy:
        """Return all settings of one metric."""
        kind = self.metrics.get(metric)
        return MetricPolicy(
            threshold=self.threshold(suite=suite, metric=metric, unit=unit),
            gates=not metric.startswith(RECORDED) if kind is None else kind.gates,
            title=self.title(metric),
            least=(
                kind.least
                if kind is not None
                else LEAST_BYTES
                if PROCESS_PEAKS.search(metric)
                else 0.0
            ),
        )

    def title(self, metric: str) -> str:
        """Return a metric's title."""
        return title_of(metric, self.metrics)

    def floor(self, floor: Floor, *, suite: str, case: str = "") -> float | None:
        """Return what candidate arms of a case must reach; `None` if nothing is set.

        The word of the last pattern that the case's id fits, else the suite's, else the general
        one.
        """
        fitting = [
            settings.floors for pattern, settings in self.cases.items() if fits(pattern, case)
        ]
        layers = (*reversed(fitting), self.suites.get(suite, SuitePolicy()).floors, self.floors)
        return next((layer[floor] for layer in layers if floor in layer), None)

    def explained_speedup(self, case: str) -> float | None:
        """Return the limit of the last pattern that the case's id fits, or `None`."""
        limits = [
            settings.implausible_speedup
            for pattern, settings in self.cases.items()
            if fits(pattern, case)
        ]
        return next((limit for limit in reversed(limits) if limit is not None), None)

    def severity(self, rule: Rule, *, suite: str | None = None) -> Severity:
        """Return the severity under `rule`: the suite's, the general one, or the built-in one.

        A suspected regression has the severity of a regression, unless it has its own; like a
        possible one it is undecided, so neither is ever milder than `inconclusive`.
        """
        suite_severities = self.suites.get(suite or "", SuitePolicy()).severities
        layers = (suite_severities, self.severities, DEFAULT_SEVERITIES)
        names = (rule, Rule.REGRESSED) if rule is Rule.SUSPECTED else (rule,)
        severity = next(layer[name] for layer in layers for name in names if name in layer)
        if rule not in {Rule.SUSPECTED, Rule.POSSIBLE}:
            return severity
        return min(
            severity, self.severity(Rule.INCONCLUSIVE, suite=suite), key=list(Severity).index
        )

    def drift_of(self, device: object) -> float:
        """Return the allowed drift of times between two runs on `device` (``cpu``, ``cuda``)."""
        return DEFAULT_DRIFT.get(str(device), 0.0) if self.drift is None else self.drift


def threshold_of_kind(metric: str, unit: Unit) -> float | None:
    """Return the threshold of an undeclared metric that has no statistics; `None` for any other.

    Numbers are compared as they stand (`REPORTED_NUMBER`), and peaks of other tools' processes as
    a command's (`PEAK_RSS`).
    """
    if unit is Unit.COUNT:
        return REPORTED_NUMBER
    return PEAK_RSS.threshold if unit is Unit.BYTES and PROCESS_PEAKS.search(metric) else None


def fits(pattern: str, case: str) -> bool:
    """Return whether a case's id matches a pattern.

    ``*`` stands for any text and everything else for itself, brackets too.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return case == pattern
    *middle, last = rest
    place = len(first) if case.startswith(first) else -1
    for part in middle:
        position = case.find(part, place) if place >= 0 else -1
        place = position + len(part) if position >= 0 else -1
    return 0 <= place <= len(case) - len(last) and case.endswith(last)


def fits_filters(name: str, filters: Sequence[str], ids: Container[str]) -> bool:
    """Return whether a case passes the filters of ``--filter``; without filters each does.

    A filter is the whole id if it is one of `ids`, else a part of an id.
    """
    return not filters or any(name == text if text in ids else text in name for text in filters)


class Sampling(StrEnum):
    """Number of launches of a paired run: as many as the verdicts need, or a fixed number."""

    ADAPTIVE = "adaptive"
    FIXED = "fixed"


class Explain(StrEnum):
    """Cases whose steps are profiled, once all samples are taken."""

    ALWAYS = "always"
    ON_CHANGE = "on-change"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Options for measuring; docs/configuration.md has them in full."""

    device: str = "auto"
    """``auto`` (the first GPU, else the CPU), ``cpu``, ``cuda`` or ``cuda:N``."""
    threads: int | None = 1
    """Intra-op threads of torch; `None` is one per core."""
    sampling: Sampling = Sampling.ADAPTIVE
    """Launches of a paired run: as the verdicts need, or a fixed number."""
    launches: int = 3
    """Number of launches, each a fresh set of processes."""
    max_launches: int = 16
    """Limit of adaptive sampling."""
    blocks: int = 10
    """ABBA blocks of one launch; a block times each arm twice."""
    most_blocks: int = 40
    """Limit of adaptive sampling, as long as blocks take less than twice the preparation."""
    sample_s: float = 0.02
    """Least duration of one sample, in seconds."""
    warmup_s: float = 10.0
    """Limit of waiting for a steady state, in seconds."""
    stage_timeout_s: float = 1800.0
    """Time limit of one worker, in seconds."""
    budget_s: float | None = None
    """Seconds after which no new case or launch starts; `None` sets no limit."""
    case_budget_s: float | None = None
    """Seconds after which a case gets no more launches; `None` sets no limit."""
    compile_budget_s: float = 120.0
    """Seconds for repeating the cold compilations of a case, all arms and sides together."""
    lock_timeout_s: float = 3600.0
    """Seconds to wait for a device that another run measures on."""
    redo: int = 3
    """Most repetitions of a block that was taken while the GPU was throttled or shared."""
    rotate: int = 1
    """Number of copies of each arm that calls go round."""
    flush_l2: bool = False
    """Whether a GPU's L2 cache is overwritten before each call."""
    cuda_graph: bool = False
    """Whether a GPU replays a captured call."""
    referee: bool = True
    """Whether unpredictable timed calls get fresh inputs, to compare their results."""
    overlap: bool = True
    """Whether untimed stages of base and head run simultaneously."""
    energy_s: float = 0.0
    """Seconds for which each arm runs twice in each launch to count its energy; 0 counts none."""
    explain: Explain = Explain.ON_CHANGE
    """Cases whose steps are profiled after the last launch."""
    explain_s: float = 180.0
    """Time limit of profiling, in seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteEntry:
    """One item of a suite's list: its options as given; the suite's `plan` turns them into cases.

    `cases` are what is declared of these: their ids, or how many. `None` is not declared.
    """

    suite: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[str, ...] | int | None = None


LOCK_FILES = (
    "requirements*.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "Pipfile.lock",
    "environment.yml",
    "conda-lock.yml",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Preparation of each side of a paired run."""

    commands: tuple[str, ...] = ()
    """Commands that run once per side, in its folder, with bash."""
    timeout_s: float = 1800.0
    """Time limit for all commands of one side, in seconds."""
    cache: str | None = None
    """Folder that is kept between runs; `None` keeps none."""
    cache_key: tuple[str, ...] = LOCK_FILES
    """Files, as globs, whose change starts a new part of the cache."""
    network: bool = False
    """Whether commands may download, and a missing base or submodule be fetched."""
    submodules: bool = True
    """Whether submodules are checked out where the clone has them."""
    writes: tuple[str, ...] = ()
    """Files or folders of a tree, as globs, that measuring may change or add modules to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """A suite that is not built in.

    `path` is its import path in the measured tree (`None` if it is installed).

    `cases` are the ids that it plans, or their number. `None` is not declared: if the tree's code
    is not run, its cases are unknown.
    """

    target: str | None = None
    cases: tuple[str, ...] | int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Requirements of one of several machines.

    They are the kind of its device (``cpu``, ``cuda``), and a part of its GPU's name.
    """

    device: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All of ci-bench.yml, with flags applied."""

    entries: tuple[SuiteEntry, ...]
    """The items of all suites' lists."""
    baseline: str | None = None
    """``paired``, ``artifact``, ``none``, or a path of earlier results; `None` if not set."""
    base: str | None = None
    """Base commit of a paired run; `None` if not set."""
    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    """Suites that are not built in, by name."""
    machines: Mapping[str, Machine] = field(default_factory=dict)
    """Machines that each pull request is measured on, by name; empty if there is one."""
    setup: Setup = Setup()
    """Preparation of each side."""
    run: RunOptions = RunOptions()
    """Options for measuring, with flags applied."""
    written: RunOptions | None = None
    """The options as the file has them; `None` if no flag changes them."""
    policy: Policy = Policy()
    """Thresholds, floors and the effects of findings."""
