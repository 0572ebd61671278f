"""Evidence from a verification: checks, their words, facts about the model, and eager's results.

Eager's results are for the other side of a paired run. In inference they are the outputs of every
step; in training outputs, loss and gradients of the first, and the optimizer's updates by known
gradients. Later steps of a training start from the state after eager's own optimizer, and Adam
makes whole updates of the rounding of tiny gradients. Base's runs, which each start from eager's
state, would not show how far head is off by there. Buffers go with either: a step changes them by
its results.

Batch invariance is a separate check: does a row's result depend on how many rows are computed with
it? Compiled forward passes at N, N/2, ... 1, bit by bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from torch import Tensor

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.results import Check, Lane, Launch, Metric, Outcome
from ci_bench.suites.contract import Claim, Computed, Context, Evidence, Unsupported, no_mark
from ci_bench.suites.shared.planning.arms import CompiledArm, Experiment
from ci_bench.suites.shared.worker.coverage import coverage_of
from ci_bench.suites.shared.worker.digests import digest, digests, plain_parts
from ci_bench.suites.shared.worker.dropping import without_dropout
from ci_bench.suites.shared.worker.experiments import Package
from ci_bench.suites.shared.worker.first_calls import held_to, read_call, verified
from ci_bench.suites.shared.worker.later_calls import with_later_calls
from ci_bench.suites.shared.worker.numerics import Yardstick, yardstick_of
from ci_bench.suites.shared.worker.roofline import Work, count_work, uncounted_facts, work_facts
from ci_bench.suites.shared.worker.sharing import really_compiled
from ci_bench.suites.torchbench import (
    COVERAGE_OPS,
    COVERAGE_TIME,
    GRAPH_CALLS,
    OPS_IN_GRAPHS,
    OPS_RUN,
    PACKAGE_SIZE,
)
from ci_bench.suites.torchbench.options import (
    REFERENCE_ARM,
    BenchMode,
    ModelSource,
    TorchbenchOptions,
    TorchbenchPrecision,
)
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.quantization import quantization_loss
from ci_bench.suites.torchbench.redrawn import build_quiet, judged_over_seeds
from ci_bench.suites.torchbench.snapshot import Snapshot, flatten
from ci_bench.suites.torchbench.sources.transforms import leaves, resized
from ci_bench.suites.torchbench.status import Word, worded
from ci_bench.suites.torchbench.tables import Settled
from ci_bench.suites.torchbench.verdict import ArmAnswer, Judge, RunnerRule
from ci_bench.suites.torchbench.verify import Reference, VerifyWitness, known_updates, start_of


def eager_computed(options: TorchbenchOptions, reference: Reference) -> Computed:
    """Return eager's results for the other side of a paired run.

    The outputs are those of the plain run, with the first step once more, after all of them. The
    second and the shaken runs are for the envelope of rounding, the fp64 run for the truth.
    """
    steps = 1 if options.mode is BenchMode.TRAINING else len(reference.eager)

    def collect(run: tuple[Snapshot, ...]) -> dict[str, Tensor]:
        return {
            name: value
            for index, snapshot in enumerate(run[:steps])
            for name, value in _tensors(snapshot, index + 1)
        }

    eager, *runs = (collect(run) for run in (reference.eager, reference.again, *reference.shaken))
    later = {"last": dict(_tensors(reference.repeated, 1))}
    outputs, *runs = with_later_calls(eager, later, [eager, *runs])
    return Computed(
        arm=REFERENCE_ARM,
        epsilon=options.precision.epsilon,
        outputs=outputs | known_updates(options, reference.starts[0]),
        start=digests(reference.starts[0].parameters.items()),
        inputs=[digest(value) for value in reference.inputs],
        runs=runs,
        jolts=with_later_calls(eager, later, [collect(run) for run in reference.jolted]),
        truth=None if reference.exact is None else collect(reference.exact),
        generators=reference.generators,
    )


def _tensors(snapshot: Snapshot, step: int) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors by names such as ``outputs of step 1: 0.logits``.

    Plain numbers among the outputs count as tensors of one element.
    """
    for path, value in snapshot.outputs.items():
        yield f"outputs of step {step}: {_place(path)}", value
    for path, text in snapshot.other.items():
        number = _number(text)
        if number is not None:
            yield f"outputs of step {step}: {_place(path)}", number
    if snapshot.loss is not None:
        yield f"loss of step {step}: the loss", snapshot.loss.reshape(1)
    for name, value in snapshot.gradients.items():
        yield f"gradients of step {step}: {name}", value
    for name, value in snapshot.buffers.items():
        yield f"buffers of step {step}: {name}", value


def _place(path: str) -> str:
    return path.removeprefix("outputs").removeprefix(".") or "the output"


def _number(text: str) -> Tensor | None:
    """Convert a Python number's text; `None` for other text.

    A size is exact, and a computed number has the rounding of fp32 at best.
    """
    try:
        return torch.tensor([int(text)])
    except ValueError:
        pass
    try:
        return torch.tensor([float(text)])
    except ValueError:
        return None


def batch_invariance(arm: str, build: Callable[..., Ready], options: TorchbenchOptions) -> Check:
    """Compare the first rows of the full batch with a batch of only these rows.

    Each has a fresh compiled model.
    """

    def answer(outcome: Outcome, detail: str) -> Check:
        return Check(name="batch_invariance", arm=arm, outcome=outcome, detail=detail)

    candidate = options.candidates[arm]
    ready = build(candidate=candidate)
    if ready.form is not None:
        return answer(
            Outcome.UNKNOWN, "what is captured ahead has the shapes that it was captured with"
        )
    sample = ready.samples[0]
    full = next((leaf.shape[0] for leaf in leaves(sample) if leaf.dim()), 0)
    if full < 2:  # noqa: PLR2004 - one row has no part
        return answer(Outcome.UNKNOWN, "the inputs have no batch to cut")
    expected = _batched(_run(ready), full)
    size = full // 2
    while size:
        try:
            smaller = build(candidate=candidate)
            smaller = replace(smaller, samples=(resized(sample, full, size),))
            part = _batched(_run(smaller), size)
        except Unsupported as reason:
            return answer(Outcome.UNKNOWN, str(reason))
        except Exception as error:  # noqa: BLE001 - benched code may raise anything
            return answer(
                Outcome.FAIL,
                f"{Word.FAIL_TO_RUN_AT_BATCH}_{size}: {type(error).__name__}: {str(error)[:300]}",
            )
        for name, value in part.items():
            if name not in expected or not torch.equal(expected[name][:size], value):
                return answer(
                    Outcome.FAIL, f"{Word.FAIL_BATCH_INVARIANCE_AT}_{size}: {name} differs"
                )
        size //= 2
    return answer(
        Outcome.PASS,
        f"{len(expected)} outputs alike in every bit at {full}, {full // 2}, ... 1 rows",
    )


def _run(ready: Ready) -> object:
    torch.compiler.reset()
    return ready.step(ready.samples[0], no_mark)[1]


def _batched(outputs: object, rows: int) -> dict[str, Tensor]:
    tensors = {name: leaf for name, leaf in flatten(outputs, "outputs") if isinstance(leaf, Tensor)}
    return {name: leaf for name, leaf in tensors.items() if leaf.dim() and leaf.shape[0] == rows}


ACCURACY = "accuracy"
PROFILED_STEPS = 5
"""Of which the share of time is the median; their operators are the same."""

Build = Callable[..., Ready]


def accuracy_evidence(
    settled: Settled, arms: Sequence[str], build: Build, context: Context
) -> Evidence:
    """Verify the candidates `arms` of a case, all against one reference.

    `context.keep` gets eager's results.
    """
    if settled.skip_accuracy is not None:
        return Evidence(checks=_skipped(settled.skip_accuracy, arms))
    options = settled.options
    witness, judge = _witnessed(settled, build, context)
    reference = judge.reference
    unsteady = judge.eager_repeats()
    if unsteady is not None:
        return Evidence(checks=tuple(_check(arm, unsteady, settled.expected) for arm in arms))
    calls = FirstCalls(options, reference)
    findings = [
        _of_candidate(arm, settled, build, witness, judge, claim=context.claim, calls=calls)
        for arm in arms
    ]
    packages = tuple(
        PACKAGE_SIZE.of(
            arm,
            Launch(launch=context.launch, values=(float(finding.package.size_bytes),)),
            lane=Lane.COUNTERS,
        )
        for arm, finding in zip(arms, findings, strict=True)
        if finding.package is not None
    )
    covered = [
        metric
        for arm in arms
        if options.candidates[arm].experiment is Experiment.COVERAGE
        for metric in _coverage(arm, build, options, context.launch)
    ]
    checks = tuple(check for finding in findings for check in finding.checks)
    lost = {name: value for finding in findings for name, value in finding.lost.items()}
    score = max(finding.score for finding in findings)
    facts = {
        **findings[0].size,
        **_facts(score, reference),
        **_work(build, options, context.device),
        **lost,
    }
    return Evidence(metrics=(*packages, *covered), checks=checks, facts=facts, begun=calls.found)


class FirstCalls:
    """The first calls of arms, for the process that times; `found` by arm.

    A step through all batches leaves nothing.
    """

    def __init__(self, options: TorchbenchOptions, reference: Reference) -> None:
        """Note eager's first call, unless a quantised reference replaces the timed eager model."""
        self._options, self._reference = options, reference
        self._runs = [
            read_call({}, _read_results(run[0]))
            for run in (reference.eager, reference.again, *reference.shaken)
        ]
        self.found: dict[str, FirstCall] = {}
        if not options.settings.compares_quantization:
            self._add(REFERENCE_ARM, reference.start, reference.eager[0])

    def noting(
        self, arm: str, ready: Ready, steps: Callable[[], Iterator[tuple[int, Snapshot]]]
    ) -> Iterator[tuple[int, Snapshot]]:
        """Yield the steps of a fresh candidate, after reading its start; note the first step."""
        start = start_of(ready)
        for number, (index, snapshot) in enumerate(steps()):
            if not number:
                self._add(arm, start, snapshot)
            yield index, snapshot

    def _add(self, arm: str, start: Mapping[str, str], first: Snapshot) -> None:
        results = {} if self._options.settings.dynamic else _read_results(first)
        epsilon, draws = self._options.precision.epsilon, self._reference.draws
        call = verified(read_call(start, results), epsilon=epsilon, runs=self._runs, draws=draws)
        self.found[arm] = held_to(call, self._reference.start_again)


def _read_results(snapshot: Snapshot) -> dict[str, Tensor]:
    loss = {} if snapshot.loss is None else {"loss": snapshot.loss}
    return {
        **snapshot.outputs,
        **loss,
        **{f"gradients.{name}": value for name, value in snapshot.gradients.items()},
    }


Steps = Callable[..., Iterator[tuple[int, Snapshot]]]
"""Called with an arm, the starts of the reference and `quiet`: the steps that several processes
take.
"""


def shared_evidence(
    settled: Settled, arms: Sequence[str], build: Build, context: Context, steps: Steps
) -> Evidence:
    """Verify arms that several processes share against one process.

    It runs without dropout, of which each process has its own.
    """
    if settled.skip_accuracy is not None:
        return Evidence(checks=_skipped(settled.skip_accuracy, arms))
    options = settled.options
    witness, judge = _witnessed(settled, build, context)
    reference = judge.reference
    quiet = bool(reference.generators)
    with without_dropout() if quiet else nullcontext():
        if quiet:
            judge = replace(
                judge, reference=replace(witness, build=partial(build_quiet, build)).reference()
            )
        unsteady = judge.eager_repeats()
    if unsteady is not None:
        return Evidence(checks=tuple(_check(arm, unsteady, settled.expected) for arm in arms))
    checks: list[Check] = []
    scores = []
    for arm in arms:
        answer, last = judge.candidate(steps(arm, judge.reference.starts, quiet=quiet))
        answer = replace(answer, detail=f"{answer.detail}, without dropout") if quiet else answer
        checks += (_check(arm, answer, settled.expected), _runner_check(judge, last, settled, arm))
        layout = options.layout_of(arm)
        checks += (
            (really_compiled(arm),) if layout is not None and layout.backend is not None else ()
        )
        scores.append(answer.score)
    size = _size_of(build(candidate=None))
    facts = {
        **size,
        **_facts(max(scores), judge.reference),
        **_work(build, options, context.device),
    }
    return Evidence(checks=tuple(checks), facts=facts, begun=FirstCalls(options, reference).found)


def _witnessed(settled: Settled, build: Build, context: Context) -> tuple[VerifyWitness, Judge]:
    """Return eager's results, and the judge that compares arms with them.

    `context.keep` gets the results.
    """
    witness = VerifyWitness(options=settled.options, device=context.device, build=build)
    reference = witness.reference()
    context.keep(eager_computed(settled.options, reference))
    unsteady = settled.non_deterministic
    return witness, Judge(
        options=settled.options,
        reference=reference,
        yardstick=_yardstick(settled),
        unsteady=unsteady,
    )


def _skipped(reason: str, arms: Sequence[str]) -> tuple[Check, ...]:
    detail = f"{Word.PASS_DUE_TO_SKIP}: {reason}"
    return tuple(
        Check(name=ACCURACY, arm=arm, outcome=Outcome.UNKNOWN, detail=detail) for arm in arms
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _OfCandidate:
    """Findings of one candidate."""

    checks: tuple[Check, ...]
    """Its checks."""
    score: float
    """The largest error over its allowance."""
    size: Mapping[str, Fact]
    """Facts on the size of its model."""
    lost: Mapping[str, Fact]
    """Facts on the loss by quantising; empty if that is not measured."""
    package: Package | None
    """The file that it was compiled into; `None` without one."""


def _of_candidate(
    arm: str,
    settled: Settled,
    build: Build,
    witness: VerifyWitness,
    judge: Judge,
    *,
    claim: Claim,
    calls: FirstCalls,
) -> _OfCandidate:
    options = settled.options
    with worded(Word.FAIL_TO_RUN, Word.OOM):
        ready, counts = _compiled(build, options.candidates[arm])
    steps = calls.noting(arm, ready, partial(witness.candidate, ready, judge.reference.starts))
    answer, last = judge.candidate(steps, partial(claim, ACCURACY, arm))
    if answer.outcome is Outcome.FAIL and judge.reference.generators:
        answer = judged_over_seeds(witness, judge, partial(_fresh, options.candidates[arm]), answer)
    checks = [
        _check(arm, answer, settled.expected),
        _runner_check(judge, last, settled, arm),
        *(_counted(arm, settled, counts()) if ready.form is None else ()),
    ]
    if options.settings.batch_invariance:
        checks.append(batch_invariance(arm, build, options))
    lost: Mapping[str, Fact] = {}
    if options.settings.compares_quantization:
        check, lost = quantization_loss(arm, build, options)
        checks.append(check)
    package = None if ready.form is None else ready.form.package
    return _OfCandidate(
        checks=tuple(checks), score=answer.score, size=_size_of(ready), lost=lost, package=package
    )


def _coverage(arm: str, build: Build, options: TorchbenchOptions, launch: int) -> Iterator[Metric]:
    """Yield the share of a step that runs in the graphs of the experiment `coverage`."""
    with worded(Word.FAIL_TO_RUN, Word.OOM):
        ready, _ = _compiled(build, options.candidates[arm])
        samples = ready.samples if options.settings.dynamic else ready.samples[:1]

        def step() -> None:
            for sample in samples:
                ready.step(sample, no_mark)

        for _ in range(2):  # what is compiled, and what is set up by the first call
            step()
        coverages = [coverage_of(step) for _ in range(PROFILED_STEPS)]
    last, times = (
        coverages[-1],
        [coverage.of_time for coverage in coverages if coverage.of_time is not None],
    )
    figures = {
        COVERAGE_OPS: last.of_operators,
        COVERAGE_TIME: median(times) if times else None,
        GRAPH_CALLS: last.graph_calls,
        OPS_IN_GRAPHS: last.captured,
        OPS_RUN: last.operators,
    }
    for kind, value in figures.items():
        if value is not None:
            yield kind.of(arm, Launch(launch=launch, values=(float(value),)), lane=Lane.COUNTERS)


def _fresh(candidate: CompiledArm, witness: VerifyWitness) -> Ready:
    torch.compiler.reset()
    return witness.build(candidate=candidate)


def _compiled(build: Build, candidate: CompiledArm) -> tuple[Ready, Callable[[], dict[str, int]]]:
    """Return a fresh candidate, and dynamo's counts since it was built."""
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

    return build(candidate=candidate), read


def _yardstick(settled: Settled) -> Yardstick:
    usual = yardstick_of(settled.options.precision.epsilon)
    return (
        usual
        if settled.tolerance is None
        else Yardstick(tolerance=settled.tolerance, multiplier=usual.multiplier)
    )


def _check(arm: str, answer: ArmAnswer, expected: str | None) -> Check:
    """Return the check `accuracy`.

    An expected result passes, and so does a better one.
    """
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
    return Check(name=ACCURACY, arm=arm, outcome=outcome, detail=(answer.detail + note)[:2000])


def _runner_check(judge: Judge, last: Snapshot, settled: Settled, arm: str) -> Check:
    tolerance = settled.runner_tolerance
    rule = RunnerRule(
        tolerance=(
            runner_tolerance(settled.options, str(settled.options.source))
            if tolerance is None
            else tolerance
        ),
        equal_nan=settled.options.precision is not TorchbenchPrecision.FP32,
        larger_multiplier=settled.runner_larger_multiplier,
        iou=settled.runner_iou,
    )
    agrees, summary = judge.runner_rule(last, rule)
    detail = (
        f"{Word.PASS if agrees else Word.FAIL_ACCURACY}: tolerance {rule.tolerance:g}; {summary}"
    )
    return Check(
        name="runner_rule",
        arm=arm,
        outcome=Outcome.PASS if agrees else Outcome.FAIL,
        detail=detail,
        informative=True,
    )


def runner_tolerance(options: TorchbenchOptions, source: str) -> float:
    """Return the runner's tolerance by source, mode and precision, unless a table sets another."""
    training = options.mode is BenchMode.TRAINING
    if source in {ModelSource.HUGGINGFACE, ModelSource.TIMM}:
        return 1e-2 if training else 1e-3
    if options.precision in {
        TorchbenchPrecision.FP16,
        TorchbenchPrecision.AMP_FP16,
        TorchbenchPrecision.AMP_BF16,
    }:
        return 1e-3
    return 1e-3 if training else 1e-4


def _counted(arm: str, settled: Settled, read: dict[str, int]) -> list[Check]:
    """Check a table's maxima for breaks and fallbacks, and its minima for graphs and operations.

    Better never fails.
    """
    bounds = [(name, most, read[name] <= most, "allows") for name, most in settled.most.items()]
    bounds += [(name, least, read[name] >= least, "wants") for name, least in settled.least.items()]
    return [
        Check(
            name=name,
            arm=arm,
            outcome=Outcome.PASS if passed else Outcome.FAIL,
            detail=f"{read[name]}, and its table {verb} {bound}",
        )
        for name, bound, passed, verb in bounds
    ]


def _work(build: Build, options: TorchbenchOptions, device: str) -> dict[str, Fact]:
    """Return the operations of one eager step and the device's peak.

    If operations cannot be counted, return the peak and a reason.
    """
    try:
        ready = build(candidate=None)
        samples = ready.samples if options.settings.dynamic else ready.samples[:1]
        each = [count_work(partial(ready.step, sample, no_mark)) for sample in samples]
    except Exception as error:  # noqa: BLE001 - benched code may raise anything under another dispatcher; only a fact is lost
        return uncounted_facts(error, device, str(options.precision))
    read_bytes = 0 if options.settings.quantization else sum(work.read_bytes for work in each)
    work = Work(operations=sum(work.operations for work in each), read_bytes=read_bytes)
    return work_facts(work, device, str(options.precision))


def _size_of(ready: Ready) -> dict[str, Fact]:
    parameters = list(ready.module.parameters())
    rounded = {"rounded_buffers": ready.rounded} if ready.rounded else {}
    return {
        **rounded,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "parameter_bytes": sum(
            part.numel() * part.element_size()
            for parameter in parameters
            for _, part in plain_parts("", parameter)
        ),
    }


def _facts(score: float, reference: Reference) -> dict[str, Fact]:
    """Return facts on the verification; `score` is the worst candidate's."""
    return {
        "accuracy_score": score if score < float("inf") else None,
        "fp64_reference": reference.exact is not None,
        "verified_steps": len(reference.starts),
        "verified_batches": reference.batches,
    }
