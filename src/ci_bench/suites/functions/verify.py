"""Agreement of each provider with the reference, by the rule of all suites, before timing.

The rule is `suites.shared.worker.numerics`. The truth is the reference on inputs in double
precision, if it takes them. The reference on inputs that are shaken by one rounding, and in fp32 by
harder ones, shows the effect of rounding. Each arm, the reference too, is checked twice: on the
prepared inputs, and after other values are written into their memory, for which nothing was built.
So results that were computed ahead, or are replayed, are wrong.
"""

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Claim, Computed, Evidence, claim_nothing
from ci_bench.suites.functions.building import Built, build
from ci_bench.suites.functions.collecting.collected import Collected, placed
from ci_bench.suites.functions.declaring import Benchmark
from ci_bench.suites.functions.drawing import BadBenchmark, Draw, Drawing, Given
from ci_bench.suites.functions.plan import AGREES
from ci_bench.suites.functions.random_calls import follows_seeds, judge_over_seeds
from ci_bench.suites.functions.recording import Recorded, metrics_of
from ci_bench.suites.shared.worker.compiling import allow_compilations
from ci_bench.suites.shared.worker.digests import digest
from ci_bench.suites.shared.worker.first_calls import read_call, read_start, verified
from ci_bench.suites.shared.worker.freshness import HALVES
from ci_bench.suites.shared.worker.later_calls import alike, off_as_much, with_later_calls
from ci_bench.suites.shared.worker.numerics import (
    FP32_EPSILON,
    Agreement,
    agree,
    agree_coarsely,
    jolt_of,
)
from ci_bench.suites.shared.worker.roofline import peak_facts
from ci_bench.suites.shared.worker.roundings import Roundings, watch_roundings

FRESH = "fresh"
SHAKES = 2
CALLS = ("second", "last")
"""Calls whose results are kept in addition to the first, on the same values."""
TELLING = 4.0
"""Multiple of rounding by which blank rows must move results that depend on half of the rows."""
JUMP = 16.0
"""Roundings beyond which a result has jumped when its inputs move by one."""
MOST_DRAWS = 4
"""Draws of other values: about one in ten is useless for a small ReLU layer's gradients in bf16."""
PRECISIONS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}
WAY_OUT = (
    "a call has to compute from its inputs as they are then; draw what may be prepared ahead with"
    " constant=True"
)
WORK = {"flops": "model_flops_per_step", "bytes": "bytes_per_step"}
"""Keys of `work`, and the fact that each becomes."""


@dataclass(kw_only=True, slots=True)
class Bench:
    """One point of a benchmark, on a device."""

    benchmark: Benchmark[..., Any]
    """Benchmark with its providers."""
    values: Mapping[str, Any]
    """Parameters of the point, by name."""
    device: str
    """Device of the run."""
    seed: int
    """Seed of the case."""
    backward: bool = False
    """True if the backward pass is timed as well."""
    builds: int = 0
    """Number of times that a provider was called."""

    def build(self, arm: str, draw: Draw) -> Built:
        """Call a provider with the point's parameters."""
        session = Drawing(
            draw=replace(draw, fixed=self.seed), device=self.device, backward=self.backward
        )
        built = build(self.benchmark, arm, self.values, session, seed=self.seed)
        self.builds += 1
        if "torch._dynamo" in sys.modules:
            allow_compilations(self.builds)
        return built

    @contextmanager
    def opened(self, arm: str, draw: Draw) -> Iterator[Built]:
        """Build a provider, and close it at the end."""
        built = self.build(arm, draw)
        try:
            yield built
        finally:
            built.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedOutputs:
    """Expected results of an arm, for the values of one seed."""

    arm: str
    """Arm that computed the results."""
    runs: tuple[Mapping[str, Tensor], ...]
    """Results on exact inputs, then on inputs shaken by one rounding."""
    jolts: tuple[Mapping[str, Tensor], ...]
    """Results on inputs shaken by harder roundings; empty for formats without such a run."""
    truth: Mapping[str, Tensor] | None
    """Results in fp64; `None` if the arm does not take it, or computes in a narrower type."""
    epsilon: float
    """Size of one rounding of the call, relative."""
    given: tuple[Given, ...]
    """Tensors that the arm requested."""
    later: tuple[Mapping[str, Tensor], ...] = ()
    """The second and the last call of the same build on the same values."""
    repeats: bool = True
    """True if those calls had the first one's results, bit by bit."""
    inside: str = ""
    """The precision that the arm computes in where its inputs have a finer one."""

    def agreement(self, results: Mapping[str, Tensor]) -> Agreement:
        """Compare values with the expected ones, up to rounding."""
        return agree(
            results,
            truth=self.truth,
            runs=self.runs,
            jolts=self.jolts,
            epsilon=self.epsilon,
            sums_are_shown=True,
        )


def expect(bench: Bench, arm: str, seed: int, *, half: int = 0) -> ExpectedOutputs:
    """Compute the expected results of an arm on the values of a seed, exactly and with rounding.

    With `half`, half of their rows are blank. If later calls of the same inputs differ, the
    rounding is that of first calls: a call that is wrong must allow nothing.
    """
    with bench.opened(arm, Draw(seed=seed)) as built:
        inside = built.inside(epsilon := epsilon_of(built.session.given))
    sizes = [epsilon] * SHAKES + ([jolt_of(epsilon)] if jolt_of(inside.epsilon) else [])
    draws = [
        Draw(seed=seed, noise=1 + index, epsilon=size, half=half)
        for index, size in enumerate(sizes)
    ]
    modes = [
        watch_roundings(epsilon, seed=1 + index, serial=index >= SHAKES)
        for index in range(len(sizes))
    ]
    with bench.opened(arm, Draw(seed=seed, half=half)) as built:
        results, requests, second = built.take(), tuple(built.session.given), built.take()
        others = [built.rewritten(draw, mode) for draw, mode in zip(draws, modes, strict=True)]
        later = (second, built.rewritten(Draw(seed=seed, half=half)))
    repeats = all(alike(results, call_results) for call_results in later)
    if not repeats:
        others = [_first(bench, arm, draw, mode) for draw, mode in zip(draws, modes, strict=True)]
    truth = (
        None
        if inside.named
        else _truth(bench, arm, Draw(seed=seed, wide=True, half=half), results, epsilon)
    )
    return ExpectedOutputs(
        arm=arm,
        runs=(results, *others[:SHAKES]),
        jolts=tuple(others[SHAKES:]),
        truth=truth,
        epsilon=inside.epsilon,
        given=requests,
        later=later,
        repeats=repeats,
        inside=inside.named,
    )


def _first(bench: Bench, arm: str, draw: Draw, mode: Roundings) -> dict[str, Tensor]:
    """Return the results of the first call of a fresh build."""
    with bench.opened(arm, draw) as built:
        return built.take(mode)


def _truth(
    bench: Bench, arm: str, draw: Draw, results: Mapping[str, Tensor], epsilon: float
) -> Mapping[str, Tensor] | None:
    """Compute the results in fp64; `None` if the arm does not take it, or its results disagree."""
    try:
        with bench.opened(arm, draw) as built:
            wide = built.take()
    except Exception:  # noqa: BLE001 - code under test may raise anything on inputs that it was not made for
        return None
    exact = {name: value for name, value in wide.items() if name in results and _is_exact(value)}
    alike = {name: value.to(results[name].dtype) for name, value in exact.items()}
    if (
        not exact
        or agree_coarsely(alike, {name: results[name] for name in exact}, epsilon=epsilon).outcome
        is Outcome.FAIL
    ):
        return None
    return exact


def _is_exact(value: Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex()) or value.dtype in {
        torch.float64,
        torch.complex128,
    }


def epsilon_of(requests: Sequence[Given]) -> float:
    """Return the size of one rounding in the narrowest type of the inputs.

    `Built.inside` has the call's.
    """
    kinds = {
        request.dtype
        for request in requests
        if request.dtype.is_floating_point or request.dtype.is_complex
    }
    roundings = [torch.finfo(kind).eps / 2 for kind in kinds]
    return max(roundings, default=FP32_EPSILON)


def verify_arms(
    bench: Bench,
    arms: tuple[str, ...],
    *,
    launch: int,
    keep: Callable[[Computed], None],
    tell: Callable[[str, int, int], None],
    claim: Claim = claim_nothing,
) -> Evidence:
    """Check every arm for `agrees`, and collect recorded numbers and the work of a call.

    A pass by the rule of numbers is claimed, so a process without code of the tree compares it
    again.
    """
    if isinstance(bench.benchmark, Collected):
        return _verify_collected(bench, bench.benchmark, arms, launch=launch, tell=tell)
    reference = arms[0]
    prepared = expect(bench, reference, bench.seed)
    if not prepared.runs[0]:
        keep(_computed(bench, reference, prepared))
        return _of_nothing(bench, arms, launch)
    seed, other = _expect_other(bench, reference)
    keep(_with_later_calls(_computed(bench, reference, prepared), prepared))
    halves = _expect_halves(bench, reference, prepared)
    behind = other if other.repeats else _in_second_call(bench, reference, other, seed)
    computed = [_computed(bench, reference, outputs) for outputs in (prepared, behind)]
    checks: list[Check] = []
    records: dict[str, tuple[Recorded, ...]] = {}
    begun: dict[str, FirstCall] = {}
    for place, arm in enumerate(arms):
        outcome, detail, records[arm], agreeing = _verify(
            bench, arm, prepared, behind, seed, begun=begun
        )
        if outcome is Outcome.PASS and halves is not None:
            outcome, detail = _with_halves(bench, arm, prepared, halves, detail)
        for results, expected in zip(agreeing, computed, strict=False):
            claim(AGREES, arm, results, expected)
        checks.append(Check(name=AGREES, arm=arm, outcome=outcome, detail=detail[:5000]))
        tell(arm, place + 1, len(arms))
    facts = _work(bench, prepared)
    return Evidence(
        checks=tuple(checks), metrics=metrics_of(records, launch), facts=facts, begun=begun
    )


def _expect_other(bench: Bench, reference: str) -> tuple[int, ExpectedOutputs]:
    """Return an unpredictable seed, and the results that are expected of its values.

    The values distinguish wrong from right, if a few draws find any. If an input is next to a kink
    (for example of ReLU), one rounding moves gradients by their own size. This comes from the
    values and the reference, not from the arm that is compared with them.
    """
    for _ in range(MOST_DRAWS):
        seed = secrets.randbits(31) + 1
        other = expect(bench, reference, seed)
        if other.agreement(other.runs[0]).outcome is not Outcome.UNKNOWN:
            break
    return seed, other


def _expect_halves(
    bench: Bench, reference: str, prepared: ExpectedOutputs
) -> tuple[ExpectedOutputs, ...] | None:
    """Compute the expected results of values with half of the rows blank.

    `None` if results have as many numbers as the inputs have rows, or a format in which a row
    shows.
    """
    rows = max(
        (request.shape[0] for request in prepared.given if request.shape and not request.constant),
        default=0,
    )
    count = sum(value.numel() for value in prepared.runs[0].values())
    narrow = all(
        value.dtype in PRECISIONS and value.dtype is not torch.float64
        for value in prepared.runs[0].values()
    )
    if count >= rows or not (narrow or prepared.epsilon > FP32_EPSILON):
        return None
    return tuple(
        expect(bench, reference, bench.seed, half=1 + index) for index in range(len(HALVES))
    )


def _with_halves(
    bench: Bench,
    arm: str,
    prepared: ExpectedOutputs,
    halves: Sequence[ExpectedOutputs],
    detail: str,
) -> tuple[Outcome, str]:
    """Judge an arm that agrees on whole values by values of which half of the rows are blank."""
    for index, expected in enumerate(halves):
        with bench.opened(arm, Draw(seed=bench.seed, half=1 + index)) as built:
            agreement = expected.agreement(built.take())
        if agreement.outcome is Outcome.FAIL:
            return Outcome.FAIL, f"with half of the rows of its inputs blank: {agreement.detail}"
    results = prepared.runs[0]
    if not any(expected.agreement(results).score > TELLING for expected in halves):
        count = sum(value.numel() for value in results.values())
        numbers = "one number" if count == 1 else f"{count} numbers"
        weak = (
            f"it returns {numbers} of a narrow format, which agree as well where half of the rows"
            " is left out"
        )
        return Outcome.UNKNOWN, weak
    return Outcome.PASS, f"{detail}; with half of the rows of its inputs blank, too"


def _in_second_call(
    bench: Bench, reference: str, other: ExpectedOutputs, seed: int
) -> ExpectedOutputs:
    """Compute the expected results of a second call, on the values of a seed.

    It is for a reference that itself keeps state from call to call.
    """
    with bench.opened(reference, Draw(seed=bench.seed)) as built:
        built.take()
        built.write(Draw(seed=seed))
        second = built.take()
    results = other.runs[0]

    def moved(runs: Sequence[Mapping[str, Tensor]]) -> tuple[Mapping[str, Tensor], ...]:
        return tuple(
            {
                name: off_as_much(value, results.get(name), run.get(name))
                for name, value in second.items()
            }
            for run in runs
        )

    return replace(other, runs=moved(other.runs), jolts=moved(other.jolts), truth=None)


def _verify_collected(
    bench: Bench,
    benchmark: Collected,
    arms: tuple[str, ...],
    *,
    launch: int,
    tell: Callable[[str, int, int], None],
) -> Evidence:
    """Call every arm once.

    Its result is compared with the reference's, to half the digits, and shown only.
    """
    checks: list[Check] = []
    records: dict[str, tuple[Recorded, ...]] = {}
    reference: Mapping[str, Tensor] = {}
    for place, arm in enumerate(arms):
        with bench.opened(arm, Draw(seed=bench.seed)) as built:
            if not benchmark.declared.untimed:
                with placed(benchmark.declared, tuple(bench.values.items())):
                    built.run()
            records[arm] = tuple(built.session.records.values())
            results = built.comparable()
        reference = results if place == 0 else reference
        if place and not benchmark.declared.untimed:
            checks.append(_coarse(arm, results, reference, arms[0]))
        tell(arm, place + 1, len(arms))
    return Evidence(checks=tuple(checks), metrics=metrics_of(records, launch))


def _coarse(
    arm: str, results: Mapping[str, Tensor], reference: Mapping[str, Tensor], other: str
) -> Check:
    """Judge a provider whose file does not promise agreement: agreement, or unknown."""
    if not results or not reference:
        outcome, detail = Outcome.UNKNOWN, "nothing that it returns can be compared"
    else:
        kinds = {value.dtype for value in reference.values() if value.is_floating_point()}
        epsilon = max((torch.finfo(kind).eps / 2 for kind in kinds), default=FP32_EPSILON)
        agreement = agree_coarsely(results, reference, epsilon=epsilon)
        outcome = Outcome.PASS if agreement.outcome is Outcome.PASS else Outcome.UNKNOWN
        detail = f"with {other}, to half the digits: {agreement.detail}"
        detail += (
            ""
            if outcome is Outcome.PASS
            else "; whether both are to compute the same, its file does not say"
        )
    return Check(name=AGREES, arm=arm, outcome=outcome, detail=detail[:5000], informative=True)


def _of_nothing(bench: Bench, arms: tuple[str, ...], launch: int) -> Evidence:
    """Return the evidence on calls that return nothing: they can be timed, but not compared."""
    if len(arms) > 1:
        raise BadBenchmark(
            f"{arms[0]} returns nothing, so the others cannot be compared with it; return the"
            " result"
        )
    with bench.opened(arms[0], Draw(seed=bench.seed)) as built:
        built.take()
    check = Check(
        name=AGREES,
        arm=arms[0],
        outcome=Outcome.UNKNOWN,
        detail="it returns nothing that could be compared",
    )
    return Evidence(
        checks=(check,), metrics=metrics_of({arms[0]: built.session.records.values()}, launch)
    )


def _verify(
    bench: Bench,
    arm: str,
    prepared: ExpectedOutputs,
    other: ExpectedOutputs,
    seed: int,
    *,
    begun: dict[str, FirstCall],
) -> tuple[Outcome, str, tuple[Recorded, ...], tuple[Mapping[str, Tensor], ...]]:
    """Return the answer, its words, recorded numbers, and agreeing results, on two sets of inputs.

    The inputs are the prepared ones, and others. Notes the arm's first call in `begun`.
    """
    with bench.opened(arm, Draw(seed=bench.seed)) as built:
        start = read_start(built.session.tensors, ())
        first, draws = built.take(), built.drew()
        returned = built.comparable()
        changed = built.write(Draw(seed=seed))
        second = built.take() if changed else {}
        requests = tuple(built.session.given)
        runs = [read_call({}, run) for run in prepared.runs]
        begun[arm] = verified(
            read_call(start, returned), epsilon=prepared.epsilon, runs=runs, draws=draws
        )
    records = tuple(built.session.records.values())
    if requests != prepared.given:
        return Outcome.FAIL, _other_inputs(requests, prepared.given), records, ()
    at_once = prepared.agreement(first)
    exact = (
        "in fp64"
        if prepared.truth is not None
        else "in its own precision, as it does not take fp64"
    )
    exact = f"which computes in {prepared.inside} inside" if prepared.inside else exact
    if Outcome.FAIL in {
        at_once.outcome,
        other.agreement(second).outcome if changed else at_once.outcome,
    }:
        redrawn = _over_seeds(bench, arm, prepared)
        if redrawn is not None:
            return *redrawn, records, ()
    if at_once.outcome is not Outcome.PASS or not changed:
        agreeing = (first,) if at_once.outcome is Outcome.PASS else ()
        return (
            at_once.outcome,
            f"with the reference {exact}: {at_once.detail}{_jump(at_once, prepared)}",
            records,
            agreeing,
        )
    later = other.agreement(second)
    then = f"with other values in its inputs, {_how(first, second, later)}{_jump(later, other)}"
    if later.outcome is Outcome.PASS:
        then = f"with the reference {exact}: {at_once.detail}; {then}"
    return (
        later.outcome,
        then,
        records,
        (first, second) if later.outcome is Outcome.PASS else (first,),
    )


def _over_seeds(bench: Bench, arm: str, prepared: ExpectedOutputs) -> tuple[Outcome, str] | None:
    """Judge an arm over seeds, if it disagrees with a reference that draws random numbers.

    `None` if seeds show nothing, as with calls that differ because they write into their inputs.
    """
    if arm == prepared.arm or any(name.startswith("input: ") for name in prepared.runs[0]):
        return None
    with bench.opened(prepared.arm, Draw(seed=bench.seed)) as reference:
        if not follows_seeds(reference, prepared.epsilon):
            return None
        with bench.opened(arm, Draw(seed=bench.seed)) as built:
            return judge_over_seeds(reference, built, prepared.epsilon)


def _how(before: Mapping[str, Tensor], after: Mapping[str, Tensor], agreement: Agreement) -> str:
    if agreement.outcome is Outcome.FAIL and alike(before, after):
        return f"it returned what it had returned before; {WAY_OUT}"
    return (
        f"{agreement.detail}; {WAY_OUT}" if agreement.outcome is Outcome.FAIL else agreement.detail
    )


def _jump(agreement: Agreement, expected: ExpectedOutputs) -> str:
    """Find a jump in values that show nothing: the element that one rounding moves most.

    It is an element of the reference itself. The result has a way out; empty if nothing jumps.
    """
    if agreement.outcome is not Outcome.UNKNOWN:
        return ""
    results, *noisy = expected.runs
    steepest, words = JUMP * expected.epsilon, ""
    for name, value in results.items():
        comparable = [run for run in noisy if name in run and run[name].shape == value.shape]
        for run in comparable if value.is_floating_point() and value.numel() else ():
            differences = (run[name].double() - value.double()).abs()
            place = tuple(
                int(index) for index in torch.unravel_index(differences.argmax(), differences.shape)
            )
            share = float(differences[place] / value.double().abs().max())
            if share > steepest:
                steepest = share
                words = (
                    f"{name}{list(place)} is {float(value[place]):.3g}, and"
                    f" {float(run[name][place]):.3g} in another run"
                )
    if not words:
        return ""
    kink = (
        f"{words} of the reference, from inputs that are off by one rounding, for example next to a"
        " kink of ReLU"
    )
    return (
        f"; {kink}; the values depend on the case's id: another size has others, and in a larger"
        " one a kink matters less"
    )


def _other_inputs(requests: Sequence[Given], owed: Sequence[Given]) -> str:
    words = [
        ", ".join(f"{_word(request.dtype)}{list(request.shape)}" for request in inputs) or "none"
        for inputs in (requests, owed)
    ]
    constant = [
        place
        for place, pair in enumerate(zip(requests, owed, strict=False))
        if pair[0].constant != pair[1].constant
    ]
    if words[0] == words[1]:
        what = (
            f"input {constant[0]} is constant in only one of them"
            if constant
            else "they differ in device, gradient or range"
        )
        return f"it asks for other inputs than the reference: {what}"
    return (
        f"it asks for other inputs than the reference ({words[0]} instead of {words[1]}), so their"
        " values would differ"
    )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def verify_followed(
    bench: Bench, arm: str, built: Built, before: Mapping[str, Tensor], *, seed: int
) -> Check:
    """Check an arm without a second arm: its timed calls still compute from their inputs.

    `before` are the results of the last timed call. Other values are written into its inputs, and
    the arm's new results are compared with the same provider, built on these values.
    """
    built.write(Draw(seed=seed))
    after, expected = built.take(), expect(bench, arm, seed)
    if not after:
        return Check(
            name=FRESH,
            arm=arm,
            outcome=Outcome.UNKNOWN,
            detail="it returns nothing to look at",
            informative=True,
        )
    if alike(before, after) and alike(after, expected.runs[0]):
        detail = "it computes the same from any inputs, so a replayed result would be right, too"
        return Check(name=FRESH, arm=arm, outcome=Outcome.UNKNOWN, detail=detail, informative=True)
    agreement = expected.agreement(after)
    if agreement.outcome is Outcome.FAIL and not expected.repeats:
        detail = (
            "a fresh build leaves something else in later calls, too: it keeps state, or does not"
            f" repeat itself; {agreement.detail}"
        )
        return Check(
            name=FRESH, arm=arm, outcome=Outcome.UNKNOWN, detail=detail[:5000], informative=True
        )
    detail = f"once it was timed, with other values in its inputs, {_how(before, after, agreement)}"
    return Check(name=FRESH, arm=arm, outcome=agreement.outcome, detail=detail[:5000])


def _computed(bench: Bench, arm: str, expected: ExpectedOutputs) -> Computed:
    draw = Draw(seed=bench.seed)
    return Computed(
        arm=arm,
        epsilon=expected.epsilon,
        outputs=expected.runs[0],
        inputs=[
            digest(draw.tensor(place, request)) for place, request in enumerate(expected.given)
        ],
        runs=expected.runs,
        jolts=expected.jolts,
        truth=expected.truth,
    )


def _with_later_calls(computed: Computed, expected: ExpectedOutputs) -> Computed:
    later = dict(zip(CALLS, expected.later, strict=True))
    runs, jolts = (
        with_later_calls(expected.runs[0], later, every)
        for every in (expected.runs, expected.jolts)
    )
    return replace(computed, outputs=runs[0], runs=runs, jolts=jolts)


def _work(bench: Bench, expected: ExpectedOutputs) -> dict[str, Fact]:
    """Return facts on bytes and operations of a call by the benchmark, and on the device's peak."""
    work = bench.benchmark.keywords.get("work")
    amounts = work(**bench.values) if callable(work) else work
    if amounts is None:
        return {}
    if (
        not isinstance(amounts, Mapping)
        or not {*amounts} <= {*WORK}
        or not all(_is_amount(value) for value in amounts.values())
    ):
        raise BadBenchmark(
            f"work: {amounts!r} is not a mapping of {' and '.join(map(repr, WORK))} to positive"
            " numbers"
        )
    kinds = [request.dtype for request in expected.given if request.dtype.is_floating_point]
    precision = next((PRECISIONS[kind] for kind in kinds if kind in PRECISIONS), "fp32")
    facts: dict[str, Fact] = {WORK[name]: float(value) for name, value in amounts.items()}
    return facts | (peak_facts(bench.device, precision) if "flops" in amounts else {})


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
