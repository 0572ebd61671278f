"""The self-test: gates an example pull request with injected faults, and checks the findings.

Owns the faults and their expected results. The engine and the files come in as results.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ci_bench import __version__
from ci_bench.judge.compare import compare
from ci_bench.judge.times.sequential import SequentialRule, fixed
from ci_bench.records.comparison import BaselineMode, Comparison, Pair, Verdict
from ci_bench.records.config import Config, Policy, Rule, RunOptions, Sampling, SuiteEntry
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Results

CHANGED, UNCHANGED = "training_loss/", "torchbench/"
"""Beginnings of the ids of the two cases: the first gets the faults, the second stays as it is."""
FAULTS = "slow,leak,loss"
TRAINING = {
    "name": "training",
    "model": {"factory": "ci_bench.suites.training_loss.small_model:Classifier"},
    "loss": "torch.nn.functional:cross_entropy",
    "backend": "ci_bench.suites.training_loss.planted:backend",
    "num_samples": 320,
    "max_length": 32,
    "epochs": 1,
    "evaluation": False,
}
MODEL = {"models": ["mlp"], "mode": "inference", "backend": "aot_eager"}
LAUNCHES = 2
POLICY = Policy(
    default_threshold=0.3,
    thresholds={
        "step_time": 0.3,
        "peak_anonymous": 0.1,
        "peak_allocated": 0.1,
        "peak_reserved": 0.1,
    },
)
"""Wide enough for a busy machine: injected faults are much larger, and noise is not under test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelftestAnswer:
    """One question to the gate, whether its answer was right, and what it said."""

    question: str
    right: bool
    said: str


def selftest_config(device: str) -> Config:
    """Return a small, quick configuration: a training that gets the faults, and a model without."""
    entries = (
        SuiteEntry(suite="training_loss", options=TRAINING),
        SuiteEntry(suite="torchbench", options=MODEL),
    )
    run = RunOptions(
        device=device,
        threads=1,
        sampling=Sampling.FIXED,
        launches=LAUNCHES,
        blocks=5,
        warmup_s=0.5,
        compile_budget_s=0.0,
        stage_timeout_s=300.0,
    )
    return Config(entries=entries, run=run, policy=POLICY)


def rule() -> SequentialRule:
    """Return the rule for the example: all launches, nothing learned."""
    return fixed(LAUNCHES)


def examine(base: Results, head: Results) -> Iterator[SelftestAnswer]:
    """Test the gate with a case that did not change, a missing one and every injected fault.

    `base` and `head` are results of `selftest_config`, in turns, with `FAULTS` injected into head.
    """
    yield _clean(_compare(_only(base, UNCHANGED), _only(head, UNCHANGED)))
    yield _missing(_compare(base, _only(head, UNCHANGED)))
    planted = _compare(base, head)
    yield _caught("an injected slowdown", planted, lambda pair: pair.metric == STEP_TIME.name)
    yield _caught("an injected memory leak", planted, lambda pair: pair.metric.startswith("peak_"))
    yield _parity(planted)


def _only(results: Results, beginning: str) -> Results:
    return replace(
        results, cases=tuple(case for case in results.cases if case.case.id.startswith(beginning))
    )


def _compare(base: Results, head: Results) -> Comparison:
    return compare(
        base=base,
        head=head,
        policy=POLICY,
        mode=BaselineMode.PAIRED,
        absence=None,
        tool_version=__version__,
        rule=rule(),
    )


def _clean(comparison: Comparison) -> SelftestAnswer:
    return SelftestAnswer(
        question="a case that did not change passes",
        right=comparison.judgement.met,
        said=comparison.judgement.headline,
    )


def _missing(comparison: Comparison) -> SelftestAnswer:
    messages = [
        finding.message
        for finding in comparison.judgement.findings
        if finding.rule is Rule.CASE_REMOVED
    ]
    right = bool(messages) and not comparison.judgement.met
    return SelftestAnswer(
        question="a missing case is caught",
        right=right,
        said=messages[0] if messages else comparison.judgement.headline,
    )


def _caught(what: str, comparison: Comparison, concerns: Callable[[Pair], bool]) -> SelftestAnswer:
    worse = [
        pair
        for case in comparison.cases
        for pair in case.pairs
        if pair.verdict is Verdict.REGRESSED and concerns(pair)
    ]
    is_reported = any(finding.rule is Rule.REGRESSED for finding in comparison.judgement.findings)
    right = bool(worse) and is_reported and not comparison.judgement.met
    statement = (
        f"{worse[0].arm} {worse[0].metric}: {worse[0].reason}"
        if worse
        else comparison.judgement.headline
    )
    return SelftestAnswer(question=f"{what} is caught", right=right, said=statement)


def _parity(comparison: Comparison) -> SelftestAnswer:
    messages = [
        finding.message
        for finding in comparison.judgement.findings
        if finding.rule is Rule.PARITY_BROKEN
    ]
    right = bool(messages) and not comparison.judgement.met
    statement = messages[0] if messages else comparison.judgement.headline
    return SelftestAnswer(question="an injected loss defect is caught", right=right, said=statement)
