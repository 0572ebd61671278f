"""Agreement of an arm with its reference, by the rule that all suites share (`suites.shared.worker.numerics`).

The truth is the reference in double precision. The reference itself, in the case's number format,
shows the effect of rounding: from its plain start, from starts that are shaken by one rounding,
and, for the kinks of ReLUs, from one that is shaken harder.

An arm with dropout is judged with its own masks. With one step and one row, the gradient of a
layer's W_ih is the outer product of the gates' gradient and the layer's input. A column of zeros is
a dropped feature, so even a form that hides everything else shows the mask of every layer. Plain
formulas with these masks must give the same values, and the share of dropped features must be the
requested one.

This module also keeps the results of the reference arm for the other side of a paired run: output,
final states and gradients of one round.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Computed
from ci_bench.suites.fastrnns.initial_state import GivenState, draw
from ci_bench.suites.fastrnns.networks import Network, build_network
from ci_bench.suites.fastrnns.options import Dtype, FastrnnsJob
from ci_bench.suites.fastrnns.reference import (
    GRADIENT,
    Observed,
    ReferenceNetwork,
    observe,
    plain_lstm,
    plain_network,
)
from ci_bench.suites.shared.worker.digests import digest, digests
from ci_bench.suites.shared.worker.numerics import agree, jolt_of, shaken

ROUNDING: Mapping[Dtype, float] = {
    Dtype.FLOAT64: 2.0**-53,
    Dtype.FLOAT32: 2.0**-24,
    Dtype.BFLOAT16: 2.0**-8,
    Dtype.FLOAT16: 2.0**-11,
}
"""Half the distance from 1 to the next number: the most that one rounding moves a value, as a share
of it.
"""
TF32_ROUNDING = 2.0**-11
SHAKES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedValues:
    """Expected values of an arm: exact ones, and the reference's in the case's number format."""

    exact: Observed
    runs: tuple[Observed, ...]
    jolts: tuple[Observed, ...]
    epsilon: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreementVerdict:
    """The answer, and the values behind it."""

    outcome: Outcome
    detail: str


def expect(job: FastrnnsJob, given: GivenState, reference: ReferenceNetwork) -> ExpectedValues:
    """The exact values of a start, and the same with rounding."""
    rounding = rounding_of(job)
    runs = [reference.observe(given, exact=False)]
    runs += [
        reference.observe(shake(given, rounding, seed=1 + index), exact=False)
        for index in range(SHAKES)
    ]
    jolt = jolt_of(rounding)
    jolts = [reference.observe(shake(given, jolt, seed=1 + SHAKES), exact=False)] if jolt else []
    return ExpectedValues(
        exact=reference.observe(given), runs=tuple(runs), jolts=tuple(jolts), epsilon=rounding
    )


def rounding_of(job: FastrnnsJob) -> float:
    """The size of one rounding in the narrowest format that the job multiplies in."""
    return TF32_ROUNDING if job.options.allow_tf32 else ROUNDING[job.options.dtype]


def compare(seen: Observed, expected: ExpectedValues) -> AgreementVerdict:
    """Every tensor against the truth. Other names, types or shapes fail, whatever the values."""
    answer = agree(
        seen,
        truth=expected.exact,
        runs=expected.runs,
        epsilon=expected.epsilon,
        jolts=expected.jolts,
    )
    more = (
        "; a wider dtype, a shorter sequence or a larger batch would decide"
        if answer.outcome is Outcome.UNKNOWN
        else ""
    )
    return AgreementVerdict(outcome=answer.outcome, detail=f"{answer.detail}{more}")


def as_computed(job: FastrnnsJob, expected: ExpectedValues) -> Computed:
    """The same for a process that compares again."""
    plain, *runs = expected.runs
    return Computed(
        arm=job.variant.name,
        epsilon=expected.epsilon,
        outputs=plain,
        runs=runs,
        jolts=expected.jolts,
        truth=expected.exact,
    )


def shake(given: GivenState, rounding: float, *, seed: int) -> GivenState:
    """A start that is off by one such rounding.

    Not from the seed of the start itself: xi would go with the numbers that it shakes.
    """
    generator = torch.Generator().manual_seed(1_000_003 + seed)

    def listed(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(
            shaken(
                {str(place): value for place, value in enumerate(values)}, rounding, generator
            ).values()
        )

    return GivenState(
        weights=shaken(given.weights, rounding, generator),
        inputs=listed(given.inputs),
        states=listed(given.states),
        gradient=listed((given.gradient,))[0],
    )


FEATURES = 2000
"""Inspected features: enough to distinguish a share of 0.40 from 0.45."""
MOST_ROUNDS = 20
DEVIATIONS = 5.0
"""Standard deviations that the share may be off: by chance in less than one of a million runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedReference(ReferenceNetwork):
    """Plain formulas with given masks, one of each layer but the last: (H), 1 where a feature was kept."""

    masks: tuple[Tensor, ...]

    def _network(self, given: GivenState) -> Network:
        kept = 1 - self.job.options.dropout

        def between(layer: int, x: Tensor) -> Tensor:
            return x * self.masks[layer].to(x.dtype) / kept

        return plain_network(given, plain_lstm, layers=self.job.options.num_layers, between=between)


def check_masks(job: FastrnnsJob, device: str) -> AgreementVerdict:
    """Rounds of one step and one row, with dropout on."""
    small = replace(job, options=replace(job.options, seq_length=1, batch_size=1))
    given = draw(small)
    given = given.to(given.gradient.dtype, device)
    network = build_network(small, given)
    rounds = min(
        MOST_ROUNDS, math.ceil(FEATURES / (job.options.hidden_size * (job.options.num_layers - 1)))
    )
    torch.manual_seed(job.options.seed)
    seen: list[tuple[Tensor, ...]] = []
    for _ in range(rounds):
        network.zero_gradients()
        observed = observe(network, given.gradient)
        masks = _masks_of(network, job.options.num_layers)
        verdict = compare(observed, _expected(small, given, masks))
        if verdict.outcome is not Outcome.PASS:
            return replace(verdict, detail=f"with the masks it drew, {verdict.detail}")
        seen.append(masks)
    return _share_of(seen, job.options.dropout)


def _masks_of(network: Network, layers: int) -> tuple[Tensor, ...]:
    found = []
    for layer in range(1, layers):
        gradient = network.parameters[f"weight_ih_l{layer}"].grad
        assert gradient is not None, "a network's gradients exist from the start"  # noqa: S101 - our own bug if not
        found.append((gradient.abs().amax(0) > 0).double())
    return tuple(found)


def _expected(job: FastrnnsJob, given: GivenState, masks: tuple[Tensor, ...]) -> ExpectedValues:
    return expect(job, given, MaskedReference(words="", job=job, backward=True, masks=masks))


def _share_of(rounds: list[tuple[Tensor, ...]], wanted: float) -> AgreementVerdict:
    """The share of dropped features over all rounds, and whether two rounds ever differed."""
    features = torch.stack([torch.cat(masks) for masks in rounds])
    share, count = 1 - float(features.mean()), features.numel()
    allowed = DEVIATIONS * math.sqrt(wanted * (1 - wanted) / count)
    detail = f"it dropped {share:.3f} of {count} features, asked for {wanted:g} (±{allowed:.3f})"
    if abs(share - wanted) > allowed:
        return AgreementVerdict(outcome=Outcome.FAIL, detail=detail)
    if len(rounds) > 1 and 0 < wanted < 1 and bool((features == features[0]).all()):
        return AgreementVerdict(
            outcome=Outcome.FAIL, detail=f"{detail}, the same ones in all {len(rounds)} rounds"
        )
    return AgreementVerdict(outcome=Outcome.PASS, detail=detail)


def rnn_computed(
    job: FastrnnsJob, given: GivenState, seen: Observed, expected: ExpectedValues
) -> Computed:
    """One round of an arm, with the reference's own rounds in the case's format, and in double precision for the truth."""
    inputs = (*given.inputs, *given.states, given.gradient)
    return Computed(
        arm=job.variant.name,
        epsilon=expected.epsilon,
        outputs=_named(seen),
        start=digests(given.weights.items()),
        inputs=[digest(value) for value in inputs],
        runs=list(map(_named, expected.runs)),
        jolts=list(map(_named, expected.jolts)),
        truth=_named(expected.exact),
    )


def _named(seen: Observed) -> Observed:
    """By kinds that the rule of numbers knows: ``gradient: weight_ih_l0``."""
    return {_kind(name): value for name, value in seen.items()}


def _kind(name: str) -> str:
    return (
        f"gradient: {name.removeprefix(GRADIENT)}"
        if name.startswith(GRADIENT)
        else f"output: {name}"
    )
