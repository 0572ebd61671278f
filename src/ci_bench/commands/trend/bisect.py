"""The search for the commit that made a metric worse: git's halving with paired comparisons.

The search is pure: the order of candidates comes from git (`rev-list --bisect-all`, which also
knows histories with merges), the answer for a commit from a paired comparison; both are arguments.
Every commit is measured against GOOD. Between GOOD and BAD the change is known. A commit is bad if
its interval is beyond half of it (on the scale of ratios), and good if it is before; each
comparison takes as many launches as its verdict needs. A commit that cannot be built, or stays
undecided twice, is skipped as `git bisect skip` does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ci_bench.checkouts.git import Git
from ci_bench.command_line.settings import Bisecting
from ci_bench.commands.output import say, tell
from ci_bench.commands.trend.commits import Laboratory, Unbuilt, commit_of, git_here, laboratory
from ci_bench.errors import BadInput, ExitCode, MeasuringFailed
from ci_bench.judge.wording import percent
from ci_bench.records.comparison import Comparison, Pair, Verdict
from ci_bench.records.spelling import nearest
from ci_bench.report.text import clean
from ci_bench.suites.registry import BUILT_IN, find_metrics


class BisectAnswer(StrEnum):
    """State of a commit: without the change, with it, or unknown.

    It is unknown for example if it cannot be built.
    """

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedCommit:
    """One commit and its answer, with the reason in words."""

    commit: str
    answer: BisectAnswer
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectOutcome:
    """Result of the search; `culprit` is the first commit with the change.

    It is `None` if `suspects` could not be distinguished.
    """

    culprit: str | None
    suspects: tuple[str, ...]
    tried: tuple[TriedCommit, ...]


Remaining = Callable[[Sequence[str], str], Sequence[str]]
"""`(good, bad)` to the commits after all of `good` and up to `bad`, `bad` among them, the one that
halves them best first.
"""

Judge = Callable[[str], TriedCommit]


def search(good: str, bad: str, *, remaining: Remaining, judge: Judge) -> BisectOutcome:
    """Halve until one commit is left, or only commits that cannot be judged."""
    goods = [good]
    tried: list[TriedCommit] = []
    while True:
        candidates = remaining(goods, bad)
        skipped = {attempt.commit for attempt in tried if attempt.answer is BisectAnswer.SKIP}
        following = next(
            (commit for commit in candidates if commit != bad and commit not in skipped), None
        )
        if following is None:
            suspects = tuple(candidates)
            return BisectOutcome(
                culprit=bad if suspects == (bad,) else None, suspects=suspects, tried=tuple(tried)
            )
        answer = judge(following)
        tried.append(answer)
        if answer.answer is BisectAnswer.GOOD:
            goods.append(following)
        elif answer.answer is BisectAnswer.BAD:
            bad = following


_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class BisectTarget:
    """The metric that the search follows, and its change from GOOD to BAD."""

    case: str
    """Id of the case."""
    metric: str
    """Name of the metric."""
    arm: str
    """Arm of the case in which it got worse."""
    speedup: float
    """Speed of BAD relative to GOOD; below 1, since BAD is worse."""
    title: str = ""
    """Title of the metric for readers; empty if it has none."""

    @property
    def name(self) -> str:
        """The case, the metric by its title, and the arm, for readers."""
        return f"{self.case} {self.title or self.metric} ({self.arm})"

    @property
    def middle(self) -> float:
        """Half of the change, on the scale of ratios."""
        return math.sqrt(self.speedup)


def bisect(settings: Bisecting) -> int:
    """Find the first commit after GOOD, up to BAD, that made the case worse."""
    git = git_here(settings)
    good, bad = commit_of(git, settings.good), commit_of(git, settings.bad)
    if good == bad or git.ask("merge-base", "--is-ancestor", good, bad) is None:
        raise BadInput(
            f"GOOD ({good[:_SHORT]}) has to be an ancestor of BAD ({bad[:_SHORT]}), and a different"
            " commit"
        )
    bench = laboratory(settings)
    _require_metric(settings.metric, [entry.suite for entry in bench.config.entries])
    every = remaining(git, [good], bad, first_parent=settings.first_parent)
    needed = math.ceil(math.log2(len(every))) + 1
    tell(
        f"{len(every)} commits after {good[:_SHORT]}, up to {bad[:_SHORT]}: {needed} comparisons if"
        " all can be measured"
    )
    target = _target(bench.compare(good, bad, settings.filter), settings.metric)
    tell(
        f"following {target.name}: {bad[:_SHORT]} is {_change(target.speedup)} than {good[:_SHORT]}"
    )

    def judge(commit: str) -> TriedCommit:
        tried = _judge(bench, good, commit, target)
        tell(f"{commit[:_SHORT]} is {tried.answer}: {tried.reason}")
        return tried

    outcome = search(
        good,
        bad,
        remaining=lambda goods, worst: remaining(
            git, goods, worst, first_parent=settings.first_parent
        ),
        judge=judge,
    )
    tell(f"{len(outcome.tried) + 1} comparisons")
    if outcome.culprit is None:
        shown = "\n".join(f"  {_line(git, commit)}" for commit in outcome.suspects)
        message = (
            f"the change is in one of these {len(outcome.suspects)} commits, which could not be"
            " distinguished"
        )
        raise MeasuringFailed(f"{message}:\n{shown}")
    say(f"{_line(git, outcome.culprit)}\n{target.name}: {_change(target.speedup)}\n")
    return int(ExitCode.OK)


def _require_metric(metric: str | None, suites: Sequence[str]) -> None:
    """Reject a metric that no suite measures, before measuring. Raises `BadInput`.

    Metrics of commands and plugins have custom names.
    """
    metrics = find_metrics()
    if metric is not None and metric not in metrics and {*suites} <= {*BUILT_IN} - {"command"}:
        near = nearest(metric, tuple(metrics))
        raise BadInput(f"--metric {metric}: no suite has a metric of this name{near}")


def remaining(git: Git, goods: Sequence[str], bad: str, *, first_parent: bool) -> list[str]:
    """Return the remaining commits, those that halve them best first.

    Of equally good ones the newer is first (git takes any).
    """
    those = (*(("--first-parent",) if first_parent else ()), bad, *(f"^{good}" for good in goods))
    newest = git.run("rev-list", "--topo-order", *those).split()
    lines = git.run("rev-list", "--bisect-all", *those).splitlines()
    distance = {
        line.split()[0]: int(line.rpartition("dist=")[2].rstrip(")")) for line in lines if line
    }
    return sorted(newest, key=lambda commit: -distance[commit]) or [bad]


def _target(comparison: Comparison | Unbuilt, metric: str | None) -> BisectTarget:
    """Return the metric that got worse the most between GOOD and BAD.

    Raises `MeasuringFailed` if none did.
    """
    if isinstance(comparison, Unbuilt):
        raise MeasuringFailed(
            f"{comparison.commit[:_SHORT]} could not be measured: {comparison.reason}"
        )
    pairs = [
        (case.id, pair)
        for case in comparison.cases
        for pair in case.pairs
        if metric in {None, pair.metric}
    ]
    worse = [
        (case, pair) for case, pair in pairs if pair.verdict is Verdict.REGRESSED and pair.speedup
    ]
    gating = [(case, pair) for case, pair in worse if not pair.detail] or worse
    if not gating:
        verdicts = "; ".join(
            f"{case} {pair.title or pair.metric} ({pair.arm}): {pair.verdict}, {pair.reason}"
            for case, pair in pairs[:5]
        )
        raise MeasuringFailed(
            "BAD is not worse than GOOD, so there is nothing to look for:"
            f" {verdicts or 'nothing was measured'}"
        )
    case, pair = min(gating, key=lambda candidate: candidate[1].speedup or 1.0)
    return BisectTarget(
        case=case, metric=pair.metric, arm=pair.arm, speedup=pair.speedup or 1.0, title=pair.title
    )


def _judge(bench: Laboratory, good: str, commit: str, target: BisectTarget) -> TriedCommit:
    """Return the state of a commit.

    If the first comparison leaves it open, it is measured once more.
    """
    reason = ""
    for _ in range(2):
        comparison = bench.compare(good, commit, (target.case,))
        if isinstance(comparison, Unbuilt):
            return TriedCommit(
                commit=commit,
                answer=BisectAnswer.SKIP,
                reason=f"it cannot be measured: {comparison.reason}",
            )
        pair = _pair(comparison, target)
        if pair is None or not pair.speedup:
            return TriedCommit(
                commit=commit, answer=BisectAnswer.SKIP, reason=f"{target.metric} was not measured"
            )
        answer = _side_of(pair, target.middle)
        reason = f"{_change(pair.speedup)} than {good[:_SHORT]}"
        if answer is not None:
            return TriedCommit(commit=commit, answer=answer, reason=reason)
    return TriedCommit(
        commit=commit,
        answer=BisectAnswer.SKIP,
        reason=f"{reason}, which is too close to half of the change to decide",
    )


def _pair(comparison: Comparison, target: BisectTarget) -> Pair | None:
    pairs = (pair for case in comparison.cases if case.id == target.case for pair in case.pairs)
    return next(
        (pair for pair in pairs if (pair.metric, pair.arm) == (target.metric, target.arm)), None
    )


def _side_of(pair: Pair, middle: float) -> BisectAnswer | None:
    """Return the side of half of the change with the whole interval; `None` if it spans both."""
    low, high = (
        (pair.interval.low, pair.interval.high) if pair.interval else (pair.speedup, pair.speedup)
    )
    if high is not None and high < middle:
        return BisectAnswer.BAD
    if low is not None and low > middle:
        return BisectAnswer.GOOD
    return None


def _change(speedup: float) -> str:
    return f"{percent(1 / speedup - 1)} {'worse' if speedup < 1 else 'better'}"


def _line(git: Git, commit: str) -> str:
    """Return the commit, its date, author and subject on one line."""
    return clean(git.run("show", "--no-patch", "--format=%H %cs %an: %s", commit), cap=250)
