"""Dropout masks of a candidate: do they match the reference's?

Both arms' own steps answer this; it is not assumed. inductor draws its own random numbers unless
`fallback_random` is set, and even then not everywhere
(https://github.com/pytorch/pytorch/issues/141645 and #142853), and a user's own backend may draw in
any way. Both arms take the same step, from the same weights on the same batch, once for each of
`DRAWS` seeds. If masks match, a seed's effect on the reference's loss and gradients also shows in
the candidate's, even if the candidate computes something else. If they do not, the candidate must
at least vary with its draws as the reference does: a backend that drops dropout, or takes one mask
again and again, has no other masks that would explain a difference. If masks do differ, more seeds
show whether they explain all of the difference (`compare_first_steps`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from ci_bench.records.results import ArmMasks, Masks
from ci_bench.suites.shared.worker.randomness import States, generator_states, moved, seed_step
from ci_bench.suites.shared.worker.redrawing import MANY_SEEDS, Drawn, Redrawing, Tested, redraw
from ci_bench.suites.training_loss.corpus import Batch
from ci_bench.suites.training_loss.network import State
from ci_bench.suites.training_loss.training import Trainee

DRAWS = 8
ELEMENTS = 4096
"""Of each parameter's gradient, evenly spaced: enough to know one mask from another."""

GRADIENTS_MATCH, LOSSES_MATCH = 0.5, 0.98
"""From which correlation on masks match: of many numbers by chance never, of eight losses once in
50,000 times.
"""
REPEATED = 0.01
"""The share of the reference's own spread below which two draws are one and the same."""
LEAST_SPREAD, LARGEST_SPREAD = 0.4, 2.5
"""Allowed spread of the candidate's draws, relative to the reference's.

It is for other numbers of the same kind.
"""
FARTHEST = 3.0
"""Up to how many ranges of the losses of `DRAWS` seeds other masks may move one more loss."""
NOISE = 10.0
"""Seeds matter where they move a step this many times as far as repeating it does."""
UNREPEATABLE = 1e-3
"""Relative repeatability of a step above which its generator cannot have been seeded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskDraws:
    """One step of one arm from each of the seeds, and from the first of them again.

    `losses` is fp64 [DRAWS], `gradients` fp64 [DRAWS, elements]; `again` the gradients of the first
    seed, repeated. `after` says where the generators stood after the last step.
    """

    losses: Tensor
    gradients: Tensor
    again: Tensor
    after: States

    @property
    def is_finite(self) -> bool:
        """True if all numbers are finite."""
        return bool(
            self.losses.isfinite().all()
            and self.gradients.isfinite().all()
            and self.again.isfinite().all()
        )

    @property
    def noise(self) -> float:
        """The distance of two steps from one seed."""
        return float((self.gradients[0] - self.again).norm())

    @property
    def spread(self) -> float:
        """The median distance of steps from different seeds."""
        return float(torch.tensor(self._distances()).median())

    @property
    def nearest(self) -> float:
        """The distance of the two most similar steps."""
        return min(self._distances())

    @property
    def size(self) -> float:
        """The length of a gradient, in the middle."""
        return float(self.gradients.norm(dim=1).median())

    def _distances(self) -> list[float]:
        return [
            float((gradient - other).norm()) for gradient, other in combinations(self.gradients, 2)
        ]


def take_draws(trainee: Trainee, start: State, batch: Batch, *, seed: int) -> MaskDraws:
    """Take the trainee's own step from `start`, once for each seed.

    The trainee's weights and optimizer are used up.
    """
    losses, gradients = [], []
    for index in (*range(DRAWS), 0):
        trainee.model.load_state_dict(start)
        seed_step(seed, index)
        losses.append(float(trainee.step(batch)))
        gradients.append(_sampled_gradient(trainee))
    return MaskDraws(
        losses=torch.tensor(losses[:DRAWS], dtype=torch.float64),
        gradients=torch.stack(gradients[:DRAWS]),
        again=gradients[DRAWS],
        after=generator_states(),
    )


def compare_masks(
    arm: str, reference: MaskDraws, candidate: MaskDraws, *, first_losses: tuple[float, float]
) -> ArmMasks:
    """Check if the candidate's masks match the reference's.

    `first_losses` are the losses of the reference and of the candidate in the first step of their
    trainings. The candidate compiled in that step.
    """
    if not (reference.is_finite and candidate.is_finite):
        return _answer(
            arm, Masks.ALIGNED, "a step from the start is not finite, so masks cannot be compared"
        )
    if reference.spread <= NOISE * reference.noise:
        if reference.spread <= UNREPEATABLE * reference.size:
            return _answer(arm, Masks.NO_DROPOUT, "the model draws no random numbers in training")
        return _answer(
            arm,
            Masks.DIFFER,
            "the eager step itself does not repeat from the same seed: it has its own generator",
        )
    by_gradient, by_loss = (
        _correlation(reference.gradients, candidate.gradients),
        _correlation(reference.losses, candidate.losses),
    )
    correlations = (
        f"over {DRAWS} seeds, its gradients follow eager's by {by_gradient:.2f}, its losses by"
        f" {by_loss:.2f}"
    )
    if by_gradient >= GRADIENTS_MATCH or by_loss >= LOSSES_MATCH:
        return _of_matching(arm, correlations, reference, candidate, first_losses)
    share = candidate.spread / reference.spread
    if (
        candidate.nearest < REPEATED * reference.spread
        or not LEAST_SPREAD <= share <= LARGEST_SPREAD
    ):
        detail = (
            f"{correlations}, and they vary {share:.2g} times as much: these are not other"
            " masks, so every step is compared as it is"
        )
        return _answer(arm, Masks.ALIGNED, detail)
    return _answer(
        arm,
        Masks.DIFFER,
        f"{correlations}: it draws other random numbers{_standing(reference, candidate)}",
    )


def _of_matching(
    arm: str,
    correlations: str,
    reference: MaskDraws,
    candidate: MaskDraws,
    first_losses: tuple[float, float],
) -> ArmMasks:
    """Return the answer for masks that match once the step is compiled.

    In the first step, compiling itself may have drawn some of the numbers before.
    """
    expected, first = first_losses
    spread = float((reference.losses.max() - reference.losses.min()).abs())
    compiled = float((candidate.losses[0] - reference.losses[0]).abs())
    distance = abs(first - expected)
    if max(0.1 * spread, 2 * compiled) < distance <= FARTHEST * spread:
        return _answer(
            arm,
            Masks.DIFFER,
            "in its first step, which compiles, it draws other random numbers"
            f" ({correlations} after it)",
        )
    return _answer(arm, Masks.ALIGNED, f"{correlations}{_standing(reference, candidate)}")


def _correlation(reference: Tensor, candidate: Tensor) -> float:
    """Return the correlation of the seeds' effects in two arms.

    It is 1 if masks match, about 0 if not.
    """
    first, second = reference - reference.mean(dim=0), candidate - candidate.mean(dim=0)
    size = float(first.norm() * second.norm())
    return float((first * second).sum()) / size if size else 0.0


def _standing(reference: MaskDraws, candidate: MaskDraws) -> str:
    """Name the generators with another state after the step.

    The next step still starts from its own seed.
    """
    names = moved(reference.after, candidate.after)
    return f"; after a step, {' and '.join(names)} stands elsewhere" if names else ""


def _sampled_gradient(trainee: Trainee) -> Tensor:
    """Return at most `ELEMENTS` of every parameter's gradient, fp64, on the CPU.

    A parameter without a gradient has zeros.
    """
    samples = []
    for parameter in trainee.model.parameters():
        flat = (
            (parameter.grad if parameter.grad is not None else torch.zeros_like(parameter))
            .detach()
            .reshape(-1)
        )
        samples.append(
            flat[:: max(1, flat.numel() // ELEMENTS)][:ELEMENTS].to("cpu", torch.float64)
        )
    return torch.cat(samples)


def _answer(arm: str, masks: Masks, detail: str) -> ArmMasks:
    return ArmMasks(arm=arm, masks=masks, detail=detail)


def compare_first_steps(
    reference: Trainee,
    candidate: Trainee,
    start: State,
    batch: Batch,
    *,
    epsilon: float,
    controlled: bool,
) -> Tested:
    """Test if other masks explain how the first steps of both differ.

    `epsilon` is the rounding of the precision. Weights and optimizers of both are used up.
    """
    eager = redraw(_redrawing(reference, start, batch), epsilon, MANY_SEEDS)
    return eager.test(_redrawing(candidate, start, batch), controlled=controlled)


def _redrawing(trainee: Trainee, start: State, batch: Batch) -> Redrawing:
    """Return how a trainee takes its first step, from `start` or with other parameters."""
    parameters = dict(trainee.model.named_parameters())

    def draw(seed: int, moved: Mapping[str, Tensor]) -> Drawn:
        trainee.model.load_state_dict(start)
        with torch.no_grad():
            for name, value in moved.items():
                parameters[name].copy_(value)
        seed_step(seed)
        loss = trainee.step(batch).detach().cpu()
        gradients = {
            name: torch.zeros_like(parameter, device="cpu")
            if parameter.grad is None
            else parameter.grad.detach().to("cpu", copy=True)
            for name, parameter in parameters.items()
        }
        of_parameters = {f"gradients.{name}": value for name, value in gradients.items()}
        return Drawn(
            results={"loss": loss.reshape(1), **of_parameters}, loss=loss, gradients=gradients
        )

    trained = {name: start[name] for name in parameters}
    return Redrawing(draw=draw, trained=trained, module=trainee.model)
