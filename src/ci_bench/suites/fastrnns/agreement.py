"""Agreement of an arm with its reference, by the rule that all suites share.

The rule is in `suites.shared.worker.numerics`.

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


def expect(job: FastrnnsJob, start: GivenState, reference: ReferenceNetwork) -> ExpectedValues:
    """Return the exact values of a start, and the same with rounding."""
    rounding = rounding_of(job)
    runs = [reference.observe(start, exact=False)]
    runs += [
        reference.observe(shake(start, rounding, seed=1 + index), exact=False)
        for index in range(SHAKES)
    ]
    jolt = jolt_of(rounding)
    jolts = [reference.observe(shake(start, jolt, seed=1 + SHAKES), exact=False)] if jolt else []
    return ExpectedValues(
        exact=reference.observe(start), runs=tuple(runs), jolts=tuple(jolts), epsilon=rounding
    )


def rounding_of(job: FastrnnsJob) -> float:
    """Return the size of one rounding in the narrowest format that the job multiplies in."""
    return TF32_ROUNDING if job.options.allow_tf32 else ROUNDING[job.options.dtype]


def compare(observed: Observed, expected: ExpectedValues) -> AgreementVerdict:
    """Compare every tensor with the truth.

    Other names, types or shapes fail, whatever the values.
    """
    answer = agree(
        observed,
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
    """Return the same values for a process that compares again."""
    outputs, *runs = expected.runs
    return Computed(
        arm=job.variant.name,
        epsilon=expected.epsilon,
        outputs=outputs,
        runs=runs,
        jolts=expected.jolts,
        truth=expected.exact,
    )


def shake(start: GivenState, rounding: float, *, seed: int) -> GivenState:
    """Return a start that is off by one such rounding.

    Not from the seed of the start itself: xi would go with the numbers that it shakes.
    """
    generator = torch.Generator().manual_seed(1_000_003 + seed)

    def shake_each(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(
            shaken(
                {str(place): value for place, value in enumerate(values)}, rounding, generator
            ).values()
        )

    return GivenState(
        weights=shaken(start.weights, rounding, generator),
        inputs=shake_each(start.inputs),
        states=shake_each(start.states),
        gradient=shake_each((start.gradient,))[0],
    )


FEATURES = 2000
"""Inspected features: enough to distinguish a share of 0.40 from 0.45."""
MOST_ROUNDS = 20
DEVIATIONS = 5.0
"""Standard deviations that the share may be off: by chance in less than one of a million runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedReference(ReferenceNetwork):
    """Plain formulas with given masks.

    There is a mask for each layer but the last: (H), 1 for each feature that was kept.
    """

    masks: tuple[Tensor, ...]

    def _network(self, start: GivenState) -> Network:
        kept_share = 1 - self.job.options.dropout

        def between(layer: int, x: Tensor) -> Tensor:
            return x * self.masks[layer].to(x.dtype) / kept_share

        return plain_network(start, plain_lstm, layers=self.job.options.num_layers, between=between)


def check_masks(job: FastrnnsJob, device: str) -> AgreementVerdict:
    """Check the arm's values and masks in rounds of one step and one row, with dropout on."""
    small = replace(job, options=replace(job.options, seq_length=1, batch_size=1))
    start = draw(small)
    start = start.to(start.gradient.dtype, device)
    network = build_network(small, start)
    rounds = min(
        MOST_ROUNDS, math.ceil(FEATURES / (job.options.hidden_size * (job.options.num_layers - 1)))
    )
    torch.manual_seed(job.options.seed)
    masks_by_round: list[tuple[Tensor, ...]] = []
    for _ in range(rounds):
        network.zero_gradients()
        observed = observe(network, start.gradient)
        masks = _masks_of(network, job.options.num_layers)
        verdict = compare(observed, _expected(small, start, masks))
        if verdict.outcome is not Outcome.PASS:
            return replace(verdict, detail=f"with the masks it drew, {verdict.detail}")
        masks_by_round.append(masks)
    return _share_of(masks_by_round, job.options.dropout)


def _masks_of(network: Network, layers: int) -> tuple[Tensor, ...]:
    masks = []
    for layer in range(1, layers):
        gradient = network.parameters[f"weight_ih_l{layer}"].grad
        assert gradient is not None, "a network's gradients exist from the start"  # noqa: S101 - our own bug if not
        masks.append((gradient.abs().amax(0) > 0).double())
    return tuple(masks)


def _expected(job: FastrnnsJob, start: GivenState, masks: tuple[Tensor, ...]) -> ExpectedValues:
    return expect(job, start, MaskedReference(words="", job=job, backward=True, masks=masks))


def _share_of(rounds: list[tuple[Tensor, ...]], requested: float) -> AgreementVerdict:
    """Check the share of dropped features over all rounds, and that rounds differ."""
    features = torch.stack([torch.cat(masks) for masks in rounds])
    share, count = 1 - float(features.mean()), features.numel()
    allowed = DEVIATIONS * math.sqrt(requested * (1 - requested) / count)
    detail = f"it dropped {share:.3f} of {count} features, asked for {requested:g} (±{allowed:.3f})"
    if abs(share - requested) > allowed:
        return AgreementVerdict(outcome=Outcome.FAIL, detail=detail)
    if len(rounds) > 1 and 0 < requested < 1 and bool((features == features[0]).all()):
        return AgreementVerdict(
            outcome=Outcome.FAIL, detail=f"{detail}, the same ones in all {len(rounds)} rounds"
        )
    return AgreementVerdict(outcome=Outcome.PASS, detail=detail)


def rnn_computed(
    job: FastrnnsJob, start: GivenState, observed: Observed, expected: ExpectedValues
) -> Computed:
    """Return one round of an arm, with the reference's own rounds.

    The reference's are in the case's format, and in double precision for the truth.
    """
    inputs = (*start.inputs, *start.states, start.gradient)
    return Computed(
        arm=job.variant.name,
        epsilon=expected.epsilon,
        outputs=_name_by_kind(observed),
        start=digests(start.weights.items()),
        inputs=[digest(value) for value in inputs],
        runs=list(map(_name_by_kind, expected.runs)),
        jolts=list(map(_name_by_kind, expected.jolts)),
        truth=_name_by_kind(expected.exact),
    )


def _name_by_kind(observed: Observed) -> Observed:
    """Name values by the kinds that the rule of numbers has: ``gradient: weight_ih_l0``."""
    return {_kind(name): value for name, value in observed.items()}


def _kind(name: str) -> str:
    return (
        f"gradient: {name.removeprefix(GRADIENT)}"
        if name.startswith(GRADIENT)
        else f"output: {name}"
    )
