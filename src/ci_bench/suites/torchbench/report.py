"""From a verification to evidence: the checks, their words, and facts about the model."""

from collections.abc import Callable
from typing import Any

from ci_bench.records.case import Check, Fact, Outcome
from ci_bench.suites.base import Evidence
from ci_bench.suites.torchbench.accuracy import Yardstick, default_yardstick
from ci_bench.suites.torchbench.invariance import batch_invariance
from ci_bench.suites.torchbench.options import Mode, Options, Precision, Source
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.runner_rule import RunnerRule
from ci_bench.suites.torchbench.snapshot import Snapshot
from ci_bench.suites.torchbench.status import Word, worded
from ci_bench.suites.torchbench.tables import Settled
from ci_bench.suites.torchbench.verdict import Answer, Judge
from ci_bench.suites.torchbench.verify import Reference, Witness

Build = Callable[..., Ready]


def accuracy_evidence(settled: Settled, device: str, arm: str, build: Build) -> Evidence:
    """Verify the candidate `arm` of a case."""
    if settled.skip_accuracy is not None:
        detail = f"{Word.PASS_DUE_TO_SKIP}: {settled.skip_accuracy}"
        return Evidence(checks=(Check(name="accuracy", arm=arm, outcome=Outcome.UNKNOWN, detail=detail),))
    options = settled.options
    witness = Witness(options=options, device=device, build=build)
    reference = witness.reference()
    judge = Judge(options=options, reference=reference, yardstick=_yardstick(settled), unsteady=settled.non_deterministic)
    unsteady = judge.eager_repeats()
    if unsteady is not None:
        return Evidence(checks=(_check(arm, unsteady, settled.expected),))
    with worded(Word.FAIL_TO_RUN, Word.OOM):
        ready, counts = _compiled(build, options)
    answer, last = judge.candidate(witness.candidate(ready, reference.starts))
    checks = [
        _check(arm, answer, settled.expected),
        _runner_check(judge, last, settled, arm),
        *_counted(arm, settled, counts()),
    ]
    if options.settings.batch_invariance:
        checks.append(batch_invariance(arm, build, options))
    return Evidence(checks=tuple(checks), facts=_facts(ready, answer, reference, options))


def _compiled(build: Build, options: Options) -> tuple[Ready, Callable[[], dict[str, int]]]:
    """A fresh candidate, and what dynamo did since it was built."""
    import torch
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()

    def read() -> dict[str, int]:
        stats, frames = counters["stats"], counters["frames"]
        return {
            "graphs": int(stats["unique_graphs"]),
            "graph_breaks": sum(counters["graph_break"].values()),
            "ops_captured": int(stats["calls_captured"]),
            "fallbacks": max(int(frames["total"]) - int(frames["ok"]), 0),
        }

    return build(backend=options.backend), read


def _yardstick(settled: Settled) -> Yardstick:
    usual = default_yardstick(settled.options.precision.epsilon)
    return usual if settled.tolerance is None else Yardstick(tolerance=settled.tolerance, multiplier=usual.multiplier)


def _check(arm: str, answer: Answer, expected: str | None) -> Check:
    """The check `accuracy`. What a table expects passes, and so does better."""
    if expected is None or expected == answer.word:
        outcome = answer.outcome if expected in {None, Word.PASS} else Outcome.PASS
        note = "" if expected in {None, Word.PASS} else " (as its table expects)"
    else:
        outcome = answer.outcome
        note = (
            f" (its table expects {expected}: take the row out)"
            if answer.word is Word.PASS
            else f" (its table expects {expected})"
        )
    return Check(name="accuracy", arm=arm, outcome=outcome, detail=(answer.detail + note)[:2000])


def _runner_check(judge: Judge, last: Snapshot, settled: Settled, arm: str) -> Check:
    tolerance = settled.runner_tolerance
    rule = RunnerRule(
        tolerance=runner_tolerance(settled.options, str(settled.options.source)) if tolerance is None else tolerance,
        equal_nan=settled.options.precision is not Precision.FP32,
        larger_multiplier=settled.runner_larger_multiplier,
        iou=settled.runner_iou,
    )
    agrees, seen = judge.runner_rule(last, rule)
    detail = f"{Word.PASS if agrees else Word.FAIL_ACCURACY}: tolerance {rule.tolerance:g}; {seen}"
    return Check(name="runner_rule", arm=arm, outcome=Outcome.PASS if agrees else Outcome.FAIL, detail=detail, informative=True)


def runner_tolerance(options: Options, source: str) -> float:
    """The runner's tolerance by source, mode and precision, where no table says otherwise."""
    training = options.mode is Mode.TRAINING
    if source in {Source.HUGGINGFACE, Source.TIMM}:
        return 1e-2 if training else 1e-3
    if options.precision in {Precision.FP16, Precision.AMP_FP16, Precision.AMP_BF16}:
        return 1e-3
    return 1e-3 if training else 1e-4


def _counted(arm: str, settled: Settled, read: dict[str, int]) -> list[Check]:
    """What a table allows at most of breaks and fallbacks, and wants at least of graphs and operations. Better never fails."""
    bounds = [(name, most, read[name] <= most, "allows") for name, most in settled.most.items()]
    bounds += [(name, least, read[name] >= least, "wants") for name, least in settled.least.items()]
    return [
        Check(
            name=name,
            arm=arm,
            outcome=Outcome.PASS if kept else Outcome.FAIL,
            detail=f"{read[name]}, and its table {verb} {bound}",
        )
        for name, bound, kept, verb in bounds
    ]


def _facts(ready: Ready, answer: Answer, reference: Reference, options: Options) -> dict[str, Fact]:
    parameters = list(ready.module.parameters())
    told: dict[str, Any] = {
        "parameters": sum(one.numel() for one in parameters),
        "parameter_bytes": sum(one.numel() * one.element_size() for one in parameters),
        "accuracy_score": answer.score if answer.score < float("inf") else None,
        "fp64_reference": reference.exact is not None,
        "verified_steps": options.settings.steps,
    }
    return told
