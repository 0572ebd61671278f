"""How close one training run stayed to its reference, step by step: what parity is judged from, kept for those who draw it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Closeness:
    """One signal (``loss`` or ``grad_norm``) of one candidate run, over the steps that both runs and a perturbed run have.

    `low` and `high` are where parity ends on either side of the reference, in the signal's own unit. `scores` is how many
    rounding envelopes the candidate is away from it; parity ends at `limit`.
    """

    arm: str
    seed: int
    signal: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    scores: tuple[float, ...]
    limit: float
