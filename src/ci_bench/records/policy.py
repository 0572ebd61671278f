"""The policy: practical thresholds, and what makes the job fail."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """What a finding does to the run: `fail` turns it red, `warn` is shown first, `note` is only listed."""

    FAIL = "fail"
    WARN = "warn"
    NOTE = "note"


class Floor(StrEnum):
    """What a candidate arm must not fall below: reference / candidate of the step time, or of the peak of memory."""

    SPEEDUP = "speedup"
    COMPRESSION = "compression"


class Rule(StrEnum):
    """Everything that a policy can give a severity to."""

    REGRESSED = "regressed"
    COMMON_SHIFT = "common_shift"
    BELOW_FLOOR = "below_floor"
    PARITY_BROKEN = "parity_broken"
    PARITY_UNDECIDED = "parity_undecided"
    ACCURACY_BROKEN = "accuracy_broken"
    LEARNING_CHANGED = "learning_changed"
    LEARNING_UNKNOWN = "learning_unknown"
    CHECK_FAILED = "check_failed"
    CHECK_UNKNOWN = "check_unknown"
    CASE_FAILED = "case_failed"
    CASE_SKIPPED = "case_skipped"
    CASE_NOT_RUN = "case_not_run"
    CASE_REMOVED = "case_removed"
    METRIC_REMOVED = "metric_removed"
    METRIC_MISSING = "metric_missing"
    CASE_NEW = "case_new"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    BASELINE_MISSING = "baseline_missing"
    BASELINE_FAILED = "baseline_failed"
    EMPTY_RUN = "empty_run"
    PARTIAL_RUN = "partial_run"


DEFAULT_SEVERITIES: Mapping[Rule, Severity] = {
    Rule.REGRESSED: Severity.FAIL,
    Rule.COMMON_SHIFT: Severity.FAIL,
    Rule.BELOW_FLOOR: Severity.FAIL,
    Rule.PARITY_BROKEN: Severity.FAIL,
    Rule.PARITY_UNDECIDED: Severity.FAIL,
    Rule.ACCURACY_BROKEN: Severity.FAIL,
    Rule.LEARNING_CHANGED: Severity.FAIL,
    Rule.LEARNING_UNKNOWN: Severity.WARN,
    Rule.CHECK_FAILED: Severity.FAIL,
    Rule.CHECK_UNKNOWN: Severity.WARN,
    Rule.CASE_FAILED: Severity.FAIL,
    Rule.CASE_SKIPPED: Severity.WARN,
    Rule.CASE_NOT_RUN: Severity.FAIL,
    Rule.CASE_REMOVED: Severity.FAIL,
    Rule.METRIC_REMOVED: Severity.FAIL,
    Rule.METRIC_MISSING: Severity.FAIL,
    Rule.CASE_NEW: Severity.NOTE,
    Rule.INCONCLUSIVE: Severity.NOTE,
    Rule.INCOMPARABLE: Severity.FAIL,
    Rule.BASELINE_MISSING: Severity.FAIL,
    Rule.BASELINE_FAILED: Severity.WARN,
    Rule.EMPTY_RUN: Severity.FAIL,
    Rule.PARTIAL_RUN: Severity.FAIL,
}

DEFAULT_THRESHOLDS: Mapping[str, float] = {
    "step_time": 0.05,
    "compile_cold": 0.20,
    "compile_warm": 0.20,
    "peak_rss": 0.05,
    "peak_allocated": 0.005,
    "peak_reserved": 0.05,
    "graphs": 0.0,
    "graph_breaks": 0.0,
    "recompiles": 0.0,
    "fallbacks": 0.0,
    "cudagraph_skips": 0.0,
    "zero_grad_time": 0.05,
    "forward_time": 0.05,
    "backward_time": 0.05,
    "optimizer_time": 0.05,
    "first_token_time": 0.05,
    "token_time": 0.05,
    "process_vram": 0.05,
}
"""The smallest relative change that matters, by metric; any other metric takes `Policy.default_threshold`."""

SHOWN_ONLY = frozenset({"ops_captured", "unique_graph_breaks"})
"""Metrics that fail nothing in any suite: a smaller model has fewer operations, and breaks are judged by `graph_breaks`."""

DEFAULT_THRESHOLD = 0.05
PAIRED_THRESHOLD = 0.01
"""For times of a paired run, which are told more finely, but for latencies of compilation."""

COMPILATION = "compile_"
"""What the names of those begin with."""

DEFAULT_DRIFT: Mapping[str, float] = {"cpu": 0.30, "cuda": 0.10}
"""How far times of unchanged code move between runs at different moments on one machine, by device (docs/adr/0008)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuitePolicy:
    """What one suite sets apart: it wins over the general policy."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    severities: Mapping[Rule, Severity] = field(default_factory=dict)
    floors: Mapping[Floor, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class CasePolicy:
    """What the cases of a pattern set apart: it wins over the suite's policy and the general one."""

    floors: Mapping[Floor, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Thresholds are relative (0.05 is five per cent); severities say what a finding does.

    `default_threshold` is for metrics that no other threshold names; `None` is `DEFAULT_THRESHOLD`, or `PAIRED_THRESHOLD` for
    times of a paired run. `drift` is how far times may move between runs at different moments; `None` takes the device's
    `DEFAULT_DRIFT`. `floors` are what candidate arms must reach against the reference arm of their own run. `cases` are what
    single cases set apart, by a pattern of their ids.
    """

    thresholds: Mapping[str, float] = field(default_factory=dict)
    severities: Mapping[Rule, Severity] = field(default_factory=dict)
    suites: Mapping[str, SuitePolicy] = field(default_factory=dict)
    default_threshold: float | None = None
    drift: float | None = None
    floors: Mapping[Floor, float] = field(default_factory=dict)
    cases: Mapping[str, CasePolicy] = field(default_factory=dict)

    def threshold(self, *, suite: str, metric: str, paired: bool = False) -> float:
        """The practical threshold of one metric: the suite's, the general one, the built-in one, the default.

        `paired` says that it is a time of a paired run: what is built in for runs of two moments is too coarse for it.
        """
        own = self.suites.get(suite, SuitePolicy()).thresholds
        finer = paired and not metric.startswith(COMPILATION)
        layers = (own, self.thresholds) if finer else (own, self.thresholds, DEFAULT_THRESHOLDS)
        default = PAIRED_THRESHOLD if finer else DEFAULT_THRESHOLD
        fallback = default if self.default_threshold is None else self.default_threshold
        return next((layer[metric] for layer in layers if metric in layer), fallback)

    def floor(self, floor: Floor, *, suite: str, case: str = "") -> float | None:
        """What candidate arms of a case must reach; `None` where nothing is set.

        The word of the last pattern that the case's id fits, else the suite's, else the general one.
        """
        fitting = [own.floors for pattern, own in self.cases.items() if fits(pattern, case)]
        layers = (*reversed(fitting), self.suites.get(suite, SuitePolicy()).floors, self.floors)
        return next((layer[floor] for layer in layers if floor in layer), None)

    def severity(self, rule: Rule, *, suite: str | None = None) -> Severity:
        """What a finding under `rule` does: the suite's word, the general one, the built-in one."""
        own = self.suites.get(suite or "", SuitePolicy()).severities
        layers = (own, self.severities, DEFAULT_SEVERITIES)
        return next(layer[rule] for layer in layers if rule in layer)

    def drift_of(self, device: object) -> float:
        """How far a time may move by itself between two runs on `device` (``cpu``, ``cuda``)."""
        return DEFAULT_DRIFT.get(str(device), 0.0) if self.drift is None else self.drift


def fits(pattern: str, case: str) -> bool:
    """Whether a case's id is of a pattern, in which ``*`` stands for any text and all else for itself, brackets too."""
    first, *rest = pattern.split("*")
    if not rest:
        return case == pattern
    *middle, last = rest
    place = len(first) if case.startswith(first) else -1
    for part in middle:
        found = case.find(part, place) if place >= 0 else -1
        place = found + len(part) if found >= 0 else -1
    return 0 <= place <= len(case) - len(last) and case.endswith(last)
