"""Whether an arm with dropout drops what it should: the masks it drew, read from its gradients.

With one step and one row, the gradient of a layer's W_ih is the outer product of the gates' gradient and the layer's input. A
column of zeros is a dropped feature, so the mask of every layer can be read off a form that hides everything else. With these
masks put into plain formulas the values must agree, and the share of dropped features must be the one asked for.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ci_bench.records.case import Outcome
from ci_bench.suites.fastrnns.agreement import Expected, Verdict, compare, expect
from ci_bench.suites.fastrnns.given import Given, draw
from ci_bench.suites.fastrnns.networks import Network, build_network
from ci_bench.suites.fastrnns.options import Job
from ci_bench.suites.fastrnns.reference import Observed, Reference, observe, plain_lstm, plain_network

FEATURES = 2000
"""Features whose fate is looked at: enough to tell a share of 0.40 from 0.45."""
MOST_ROUNDS = 20
DEVIATIONS = 5.0
"""How many standard deviations the share may be off: by chance in less than one of a million runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedReference(Reference):
    """Plain formulas with given masks, one of each layer but the last: (H), 1 where a feature was kept."""

    masks: tuple[Tensor, ...]

    def observe(self, given: Given) -> Observed:
        """The expected values for a start, which is taken in double precision."""
        exact = given.to(torch.float64, str(given.gradient.device))
        kept = 1 - self.job.options.dropout

        def between(layer: int, x: Tensor) -> Tensor:
            return x * self.masks[layer] / kept

        network = plain_network(exact, plain_lstm, layers=self.job.options.num_layers, between=between)
        return observe(network, exact.gradient)


def check_masks(job: Job, device: str) -> Verdict:
    """Rounds of one step and one row, with dropout on."""
    small = replace(job, options=replace(job.options, seq_length=1, batch_size=1))
    given = draw(small)
    given = given.to(given.gradient.dtype, device)
    network = build_network(small, given)
    rounds = min(MOST_ROUNDS, math.ceil(FEATURES / (job.options.hidden_size * (job.options.num_layers - 1))))
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


def _expected(job: Job, given: Given, masks: tuple[Tensor, ...]) -> Expected:
    return expect(job, given, MaskedReference(words="", job=job, backward=True, masks=masks))


def _share_of(rounds: list[tuple[Tensor, ...]], wanted: float) -> Verdict:
    """The share of dropped features over all rounds, and whether two rounds ever differed."""
    features = torch.stack([torch.cat(masks) for masks in rounds])
    share, count = 1 - float(features.mean()), features.numel()
    allowed = DEVIATIONS * math.sqrt(wanted * (1 - wanted) / count)
    detail = f"it dropped {share:.3f} of {count} features, asked for {wanted:g} (±{allowed:.3f})"
    if abs(share - wanted) > allowed:
        return Verdict(outcome=Outcome.FAIL, detail=detail)
    if len(rounds) > 1 and 0 < wanted < 1 and bool((features == features[0]).all()):
        return Verdict(outcome=Outcome.FAIL, detail=f"{detail}, the same ones in all {len(rounds)} rounds")
    return Verdict(outcome=Outcome.PASS, detail=detail)
