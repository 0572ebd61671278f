"""Drawing tokens by temperature, top-k and top-p, as `generate` does.

The random numbers can be drawn again. `torch.multinomial` of one sample divides the probabilities
by exponential random numbers and takes the largest quotient (aten/native/Distributions.cpp): to
sample is to be greedy about ``log p - log q``. So a drawn token is checked with the model's own
logits and the same random numbers, step by step. It has to be the best, up to rounding.
"""

import torch
from torch import Tensor

from ci_bench.suites.transformers.options import TokenSampling

_SEED_STEP = 7_919


def generator_of(seed: int, call: int, device: str) -> torch.Generator:
    """Return the generator of the generation number `call`, the same for every arm."""
    return torch.Generator(device).manual_seed(seed_of(seed, call))


def seed_of(seed: int, call: int) -> int:
    """Return the seed of the generation number `call`."""
    return seed * 1_000_003 + call * _SEED_STEP


def warped(logits: Tensor, sampling: TokenSampling, *, slack: float = 0.0) -> Tensor:
    """Return logits [rows, vocabulary] in fp32 after temperature, top-k and top-p, in that order.

    Tokens left out have minus infinity.

    `slack` moves the edges, outwards where it is positive: that of top-k by so much of the logits'
    root mean square, that of the nucleus by so much probability. At least one token stays.
    """
    scores = logits.float() / sampling.temperature
    if sampling.top_k is not None:
        moved = scores.topk(min(sampling.top_k, scores.shape[-1])).values[..., -1:]
        if slack:
            moved = moved - slack * scores.square().mean(dim=-1, keepdim=True).sqrt()
        scores = scores.masked_fill(
            scores < moved.minimum(scores.amax(dim=-1, keepdim=True)), -torch.inf
        )
    if sampling.top_p < 1:
        ordered, places = scores.sort(descending=False)
        left_out = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p - slack
        left_out[..., -1:] = False
        scores = scores.masked_fill(left_out.scatter(-1, places, left_out), -torch.inf)
    return scores


def draw(logits: Tensor, sampling: TokenSampling, generator: torch.Generator) -> Tensor:
    """Draw a token for each row, int64 [rows, 1], of logits [rows, vocabulary]."""
    return torch.multinomial(warped(logits, sampling).softmax(dim=-1), 1, generator=generator)


def noise(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the exponential random numbers behind the next token, fp32 [rows, vocabulary]."""
    return torch.empty_like(logits, dtype=torch.float32).exponential_(1, generator=generator)


def gap(
    logits: Tensor, exponential: Tensor, token: Tensor, sampling: TokenSampling, *, slack: float
) -> Tensor:
    """Measure a drawn token's distance from the best one, in logits, fp32 [rows].

    The token is int64 [rows, 1]; the best one follows from the logits and the random numbers.
    Infinite if top-k or top-p leave the token out. A token at their edge, within `slack` (see
    `warped`), may be in or out.
    """
    certain, possible = (warped(logits, sampling, slack=edge) for edge in (-slack, slack))
    perturbed = exponential.log()
    best = (certain - perturbed).amax(dim=-1)
    drawn = (possible - perturbed).gather(-1, token)[:, 0]
    return (best - drawn).clamp_min(0.0) * sampling.temperature
