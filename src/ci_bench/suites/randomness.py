"""The random numbers of a step: every step of every arm and side begins from a seed of its own.

Compiling, tracing and autotuning may draw from the generators that the step draws from, and a step may leave them elsewhere than
the reference's does. Where a run is seeded once, all steps after that have other numbers than the reference's (other dropout
masks, above all); where each step is seeded, nothing that is drawn in one moves the next. Seeding is no part of a step: it is
done outside the clock, and outside what is compiled.

Owns the global generators: Python's, NumPy's, torch's of the CPU and of every device. Data order and weights have generators of
their own. What has not been imported is not seeded, and nothing is imported for it.
"""

import hashlib
import random
import sys
from collections.abc import Hashable
from typing import Any

_BITS = 32
"""NumPy's global generator takes no more."""

States = dict[str, Hashable]
"""What each generator would draw next, by its name: equal states draw equal numbers."""


def step_seed(seed: int, *place: int) -> int:
    """A seed for one step: the first 32 bits of SHA-256 over `seed` and the step's place (its number, say)."""
    digest = hashlib.sha256("/".join(map(str, (seed, *place))).encode()).digest()
    return int.from_bytes(digest[: _BITS // 8], "big")


def seed_step(seed: int, *place: int) -> None:
    """Begin a step: seed every global generator for its place in the run."""
    seed_everything(step_seed(seed, *place))


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch, the CPU and every device."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**_BITS)
    if torch := sys.modules.get("torch"):
        torch.random.manual_seed(seed)


def generator_states() -> States:
    """Where the generators stand now, those of CUDA devices included once CUDA is in use."""
    states: States = {"python": random.getstate()}
    if numpy := sys.modules.get("numpy"):
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = (kind, keys.tobytes(), *rest)
    if torch := sys.modules.get("torch"):
        states |= _states_of_torch(torch)
    return states


def moved(before: States, after: States) -> tuple[str, ...]:
    """The generators that stand elsewhere, by name."""
    return tuple(name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name))


def _states_of_torch(torch: Any) -> States:
    states: States = {"torch cpu": torch.get_rng_state().numpy().tobytes()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch cuda:{index}"] = state.numpy().tobytes()
    return states
