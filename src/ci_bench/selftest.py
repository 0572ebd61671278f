"""The self-test: measures with and without injected faults, and reports what the gate catches.

Owns the faults and their expected results. The engine and the files come in through `measure`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ci_bench import __version__
from ci_bench.judge.compare import compare
from ci_bench.judge.sequential import fixed
from ci_bench.records.comparison import BaselineMode, Comparison, Pair, Verdict
from ci_bench.records.config import Config, Policy, Rule, RunOptions, Sampling, SuiteEntry
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Results

QUICK = {
    "backend": "ci_bench.suites.training_loss.planted:backend",
    "num_samples": 320,
    "epochs": 1,
    "evaluation": False,
}
LAUNCHES = 3
POLICY = Policy(
    default_threshold=0.3, thresholds={"step_time": 0.3, "peak_anonymous": 0.1, "peak_allocated": 0.1, "peak_reserved": 0.1}
)
"""Wide enough for a busy machine: injected faults are much larger, and noise is not under test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One question to the gate, whether its answer was right, and what it said."""

    question: str
    right: bool
    said: str


def selftest_config(device: str, plants: str) -> Config:
    """Return a small, quick configuration with a case for the faults.

    Without faults it has a second case, which can then go missing.
    """
    names = ("first",) if plants else ("first", "second")
    entries = tuple(SuiteEntry(suite="training_loss", options={**QUICK, "name": name}) for name in names)
    run = RunOptions(
        device=device, threads=1, sampling=Sampling.FIXED, launches=LAUNCHES, blocks=5, warmup_s=3.0, stage_timeout_s=300.0
    )
    return Config(entries=entries, run=run, policy=POLICY)


def examine(measure: Callable[[str, str], tuple[Results, Results]]) -> Iterator[Answer]:
    """Test the gate with a clean run and every injected fault.

    Yield answers as soon as they are known.

    `measure` runs the self-test's configuration under a name, base and head in turns, and injects
    the faults of its second argument only into head.
    """
    base, clean = measure("clean", "")
    yield _clean(_compare(base, clean))
    yield _missing(_compare(base, replace(clean, cases=clean.cases[:1])))
    planted = _compare(*measure("planted", "slow,leak,loss"))
    yield _caught("an injected slowdown", planted, lambda pair: pair.metric == STEP_TIME.name)
    yield _caught("an injected memory leak", planted, lambda pair: pair.metric.startswith("peak_"))
    yield _parity(planted)


def _compare(base: Results, head: Results) -> Comparison:
    return compare(
        base=base,
        head=head,
        policy=POLICY,
        mode=BaselineMode.PAIRED,
        absence=None,
        tool_version=__version__,
        rule=fixed(LAUNCHES),
    )


def _clean(comparison: Comparison) -> Answer:
    return Answer(question="the same code again passes", right=comparison.judgement.met, said=comparison.judgement.headline)


def _missing(comparison: Comparison) -> Answer:
    found = [finding.message for finding in comparison.judgement.findings if finding.rule is Rule.CASE_REMOVED]
    right = bool(found) and not comparison.judgement.met
    return Answer(question="a missing case is caught", right=right, said=found[0] if found else comparison.judgement.headline)


def _caught(what: str, comparison: Comparison, concerns: Callable[[Pair], bool]) -> Answer:
    worse = [pair for case in comparison.cases for pair in case.pairs if pair.verdict is Verdict.REGRESSED and concerns(pair)]
    named = any(finding.rule is Rule.REGRESSED for finding in comparison.judgement.findings)
    right = bool(worse) and named and not comparison.judgement.met
    said = f"{worse[0].arm} {worse[0].metric}: {worse[0].reason}" if worse else comparison.judgement.headline
    return Answer(question=f"{what} is caught", right=right, said=said)


def _parity(comparison: Comparison) -> Answer:
    found = [finding.message for finding in comparison.judgement.findings if finding.rule is Rule.PARITY_BROKEN]
    right = bool(found) and not comparison.judgement.met
    said = found[0] if found else comparison.judgement.headline
    return Answer(question="an injected loss defect is caught", right=right, said=said)
