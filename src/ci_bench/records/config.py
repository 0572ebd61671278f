"""The configuration as one frozen value: suites, run options, and the policy.

Reading it from files and flags is the business of `ci_bench.configuration.config`.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Self

from ci_bench.records.forms import Bounds
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

    default: Severity
    """The severity that it has if a policy gives none."""

    def __new__(cls, word: str, default: Severity = Severity.FAIL) -> Self:
        """Make a rule of its word in documents and its default."""
        rule = str.__new__(cls, word)
        rule._value_, rule.default = word, default
        return rule

    REGRESSED = "regressed"
    """A metric is worse than in the baseline, beyond threshold and noise."""
    SUSPECTED = "suspected"
    """A metric looks worse by more than noise explains, but there were too few launches to decide.
    """
    COMMON_SHIFT = "common_shift"
    """Against a saved baseline, all times of a suite are slower together by more than the normal
    drift between runs.
    """
    BELOW_FLOOR = "below_floor"
    """A candidate arm's speedup or compression over the reference arm is below its floor, or
    unknown.
    """
    IMPLAUSIBLE = "implausible"
    """A candidate arm is implausibly fast: beyond `implausible_speedup`, or beyond twice what the
    device can compute.
    """
    CLOCK_DISAGREES = "clock_disagrees"
    """An arm's samples do not fit into the time of its turns by the parent's clock, which no
    benched code can reach (check `witnessed`).
    """
    PARITY_BROKEN = "parity_broken"
    """A candidate's training diverges from the reference."""
    PARITY_UNDECIDED = "parity_undecided"
    """It could not be decided whether a candidate trains like the reference."""
    ACCURACY_BROKEN = "accuracy_broken"
    """A candidate's evaluation accuracy deviates by more than rounding explains."""
    LEARNING_CHANGED = "learning_changed"
    """The training of head's reference arm diverges from base's, from the same start on the same
    data.
    """
    LEARNING_UNKNOWN = "learning_unknown", Severity.WARN
    """Head's training cannot be compared with base's: the data or the steps differ, or there were
    too few seeds for a changed start.
    """
    START_CHANGED = "start_changed", Severity.WARN
    """Head trains from different initial weights than base, and learns as well over several seeds.
    """
    OUTPUTS_CHANGED = "outputs_changed"
    """The outputs of head's reference arm differ from base's, from the same start and inputs."""
    OUTPUTS_UNKNOWN = "outputs_unknown", Severity.WARN
    """The outputs of base and head cannot be compared: start, inputs or random numbers differ, or
    the tensors are too large or were not kept.
    """
    CHECK_FAILED = "check_failed"
    """A check failed, such as `compiled` or `finite_loss`, or a required check has no result."""
    CHECK_UNKNOWN = "check_unknown", Severity.WARN
    """A check has no result."""
    DISTURBED = "disturbed", Severity.WARN
    """Samples count although the machine was disturbed while they were taken, or warm-up did not
    reach a steady state and a metric is undecided.
    """
    CASE_FAILED = "case_failed"
    """A case crashed, timed out, ran out of memory or raised an error."""
    CASE_SKIPPED = "case_skipped", Severity.WARN
    """A case cannot run on this machine."""
    CASE_NOT_RUN = "case_not_run"
    """A planned case was not run because the budget was spent or the run ended."""
    CASE_REMOVED = "case_removed"
    """A case of the baseline is missing, or is skipped now.

    In a paired run, base's own tree plans the expected cases.
    """
    CASE_REDUCED = "case_reduced"
    """Head's plan of a case requires less than base's: fewer arms, stages, checks or times, a
    looser threshold, a metric that no longer gates, another reference arm, or other parameters
    under the same id. In a paired run also: the case does different work, so nothing can be
    compared.
    """
    METRIC_REMOVED = "metric_removed"
    """A metric of the baseline is missing."""
    METRIC_REPLACED = "metric_replaced", Severity.WARN
    """The baseline was measured before ci-bench changed how it measures this metric, and cannot be
    compared with head.
    """
    METRIC_MISSING = "metric_missing"
    """A metric that is required of every arm was not measured."""
    CASE_NEW = "case_new", Severity.NOTE
    """Cases that are not in the baseline, so there is nothing to compare them with yet."""
    POSSIBLE = "possible", Severity.WARN
    """An undecided metric looks worse, beyond the threshold and two standard errors."""
    UNDECIDED = "undecided", Severity.WARN
    """Metrics that can fail the run could not be decided.

    With warn the run is undecided; with note it passes.
    """
    INCONCLUSIVE = "inconclusive", Severity.NOTE
    """A metric could not be decided; one finding for each."""
    INCOMPARABLE = "incomparable"
    """The two runs differ in machine, software or options."""
    BASELINE_MISSING = "baseline_missing"
    """The baseline is missing, or nothing in it could be compared."""
    BASELINE_FAILED = "baseline_failed", Severity.WARN
    """The baseline run itself failed or was cut short."""
    BASELINE_CRASHED = "baseline_crashed"
    """In a paired run, base crashed, was killed or timed out in a case that succeeded on head."""
    EMPTY_RUN = "empty_run"
    """No case was planned, or all were skipped."""
    PARTIAL_RUN = "partial_run"
    """The run is incomplete."""
    NARROWED = "narrowed"
    """A flag of the workflow narrows or changes what the configuration measures (`filter`,
    `device`, `launches` and others), or head had uncommitted changes.
    """
    CASES_UNDECLARED = "cases_undeclared", Severity.WARN
    """The cases of a plugin, or of an entry that is planned from files of the tree, are not
    declared (`cases`), and there is neither base's own plan nor the baseline of an earlier run. It
    is then unknown whether all cases were measured.
    """
    ACCEPTED = "accepted", Severity.NOTE
    """A change got worse within the bound that an entry of ci-bench-accepted.yml accepts for this
    pull request.
    """
    ACCEPTANCE_UNUSED = "acceptance_unused", Severity.WARN
    """An entry of ci-bench-accepted.yml for this pull request has expired, or is not needed."""


DEFAULT_SEVERITIES: Mapping[Rule, Severity] = {rule: rule.default for rule in Rule}

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
    """How to measure."""

    device: Annotated[
        str, Bounds(max_length=10, pattern=r"^(auto|cpu|cuda(:[0-9]{1,2})?)$", example="cuda:0")
    ] = "auto"
    """auto uses the first GPU, or the CPU on a machine without GPUs."""
    threads: Annotated[int, Bounds(ge=1, le=4096)] | None = 1
    """Intra-op threads of torch, and OMP_NUM_THREADS of commands and loops.

    One is steadiest where cores are shared; `None` uses one per core.
    """
    launches: Annotated[int, Bounds(ge=1, le=1000)] = 3
    """Number of launches.

    Each starts fresh processes, so launches are the replicates. Paired runs with adaptive sampling
    take as many as they need instead.
    """
    sampling: Sampling = Sampling.ADAPTIVE
    """In paired runs, take as many launches as the verdicts need, or always `launches`."""
    max_launches: Annotated[int, Bounds(ge=1, le=16)] = 16
    """Limit on the launches of adaptive sampling."""
    blocks: Annotated[int, Bounds(ge=1, le=10000)] = 10
    """ABBA blocks per launch; a block times each arm twice."""
    most_blocks: Annotated[int, Bounds(ge=1, le=10000)] = 40
    """Limit on the blocks per launch in paired runs with adaptive sampling.

    A launch takes more than `blocks` while they take less than twice as long as the preparation of
    the launch.
    """
    sample_s: Annotated[float, Bounds(gt=0, le=60)] = 0.02
    """Minimum duration of one sample, in seconds."""
    warmup_s: Annotated[float, Bounds(ge=0, le=3600)] = 10.0
    """Limit on waiting for a steady state in warm-up, in seconds.

    Warm-up also ends after twice as many samples as it prepares for, once it has lasted a second.
    """
    stage_timeout_s: Annotated[float, Bounds(gt=0, le=604800)] = 1800.0
    """Time limit for one worker, in seconds."""
    budget_s: Annotated[float, Bounds(gt=0, le=604800)] | None = None
    """Start nothing that is expected to end after this many seconds, judging by its previous
    duration. All cases are verified before one is timed, the most informative ones first; then come
    peaks of memory. A tenth of it is kept for explaining. `None` for no limit. Waiting for a device
    does not count.
    """
    lock_timeout_s: Annotated[float, Bounds(ge=0, le=86400)] = 3600.0
    """Time to wait, in seconds, for a device that another run of ci-bench is using; 0 does not
    wait.
    """
    case_budget_s: Annotated[float, Bounds(gt=0, le=604800)] | None = None
    """Start no further launches of a case that took this many seconds; `None` for no limit."""
    compile_budget_s: Annotated[float, Bounds(ge=0, le=604800)] = 120.0
    """Time limit, in seconds, for repeating the cold compilations of a case in launches after the
    first, all arms and sides together; 0 compiles cold once.
    """
    redo: Annotated[int, Bounds(ge=0, le=100)] = 3
    """How often to retake a block of samples that was taken while the GPU was throttled or shared
    with other processes.
    """
    energy_s: Annotated[float, Bounds(ge=0, le=600)] = 0.0
    """Measure the energy of a step.

    In each launch, each arm of each side runs twice for this many seconds, in turns and in addition
    to the samples, while the GPU's energy counter is read (on the CPU the RAPL counter, if
    readable). Energy is reported per step and per item, and includes what the device draws between
    steps. GPUs update their counter about ten times a second, so two seconds are a good choice; 0
    measures none.
    """
    explain: Explain = Explain.ON_CHANGE
    """Which cases to profile.

    Each side is profiled once, in separate processes after the last launch, so samples are not
    affected. A profile lists operators, kernels and Python's own time by the user's lines, graph
    breaks, and memory at the peak. `on-change` explains the arms of a paired run that are
    regressed, suspected or wrong; `always` explains every arm of every case, also with one side
    only; `never` explains none.
    """
    explain_s: Annotated[float, Bounds(gt=0, le=86400)] = 180.0
    """Time limit for explaining, in seconds, within what `budget_s` leaves.

    Arms that were not explained say so.
    """
    rotate: Annotated[int, Bounds(ge=1, le=64)] = 1
    """Open each arm this many times and call the copies in turn.

    No call then finds its inputs in the caches of the previous one, and effects of memory placement
    average out within a launch. Memory and compilation cost multiply accordingly; peak memory and
    parity are still measured on one copy. Commands are run as before.
    """
    flush_l2: bool = False
    """On a GPU, overwrite its L2 cache before each call, outside the timed region and as often as
    the host needs to queue the call. Every call then starts cold; meant for cases of the size of a
    kernel. No effect on the CPU.
    """
    cuda_graph: bool = False
    """On a GPU, capture one call of a step in a CUDA graph and replay it, without the host's work
    during a call. Parts of a step are then not timed; if they would gate, the whole step gates
    instead. A step that cannot be captured is called normally, and the check `graphed` gives the
    reason. No effect on the CPU.
    """
    referee: bool = True
    """While timing, at calls that no worker can predict, use fresh inputs and compare the result
    with the reference arm (check `refereed`). An arm that remembers, skips or postpones its work
    fails it.
    """
    overlap: bool = True
    """Run untimed stages (verification; on the CPU also peaks of memory) on base and head
    simultaneously, if there are enough cores and memory for both. On the CPU, both sides also
    prepare their samples and compile cold simultaneously, each on half of the cores. On a GPU, the
    processes of the next launch load torch while sides warm up, and are suspended during timing.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteEntry:
    """One item of a suite's list: its options as given; the suite's `plan` turns them into cases.

    `cases` are what is declared of these: their ids, or how many. `None` is not declared.
    """

    suite: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[str, ...] | int | None = None


Word = Annotated[
    str,
    Bounds(
        name="word",
        description="Text on one line.",
        min_length=1,
        max_length=300,
        pattern=r"^[^\x00-\x1f\x7f]+$",
    ),
]
Script = Annotated[str, Bounds(min_length=1, max_length=10_000, pattern=r"^[^\x00]+$")]
"""A shell command, or several lines of them."""
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
    """How each side of a paired run is prepared."""

    commands: Annotated[
        tuple[Script, ...],
        Bounds(max_items=50, example=("pip install --no-build-isolation --no-deps -e .",)),
    ] = ()
    """Commands to run once per side, in its folder, each with `bash -euo pipefail`.

    They install what the code needs into the side's separate environment.
    """
    timeout_s: Annotated[float, Bounds(gt=0, le=86400)] = 1800.0
    """Time limit for all commands of one side, in seconds."""
    cache: Word | None = None
    """A folder of the checkout that is kept between runs, such as `.ci-bench/setup-cache`.

    It holds the downloads of pip and uv, and one folder per `cache_key`, which commands find in
    CI_BENCH_SETUP_CACHE. `None` for none.
    """
    cache_key: Annotated[tuple[Word, ...], Bounds(max_items=50)] = LOCK_FILES
    """Files, by name or glob, at any depth.

    If one of them changes, CI_BENCH_SETUP_CACHE is a different folder.
    """
    network: bool = False
    """Allow commands to download, and a missing base commit or submodule to be fetched.

    Measuring never has network access.
    """
    submodules: bool = True
    """Check out, on both sides, the submodules that the checkout has."""
    writes: Annotated[
        tuple[Annotated[str, Bounds(min_length=1, max_length=200)], ...], Bounds(max_items=100)
    ] = ()
    """Files of base's tree, by name or glob, that its own benchmarks overwrite or add modules to; a
    folder includes all its contents. Any other change of base's files while head runs fails the
    run.
    """


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
    """Requirements for a machine."""

    device: str | None = None
    """The kind of its device: ``cpu`` or ``cuda``."""
    gpu: str | None = None
    """A part of the name of its GPU."""


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
