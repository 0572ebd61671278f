"""Random numbers of a step: every step of every arm and side starts from a separate seed.

Compiling, tracing and autotuning may draw from the generators that the step draws from, and a step
may leave them in another state than the reference does. If a run were seeded once, all later steps
would have other numbers than the reference's, above all other dropout masks. Since each step is
seeded, no draw in one step moves the next. Seeding happens outside the clock, and outside the
compiled code.

This module owns the global generators: Python's, NumPy's, torch's of the CPU and of every device.
Data order and weights have separate generators. A library that has not been imported is neither
imported nor seeded.
"""

import hashlib
import random
import sys
from collections.abc import Hashable
from typing import Any

_BITS = 32
"""NumPy's global generator takes no more."""

States = dict[str, Hashable]
"""Next draw of each generator, by its name: equal states draw equal numbers."""


def step_seed(seed: int, *place: int) -> int:
    """Return a seed for one step: the first 32 bits of SHA-256 over `seed` and `place`.

    The place is for example the step's number.
    """
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
    """Return the states of the generators, with CUDA devices once CUDA is in use."""
    states: States = {"python": random.getstate()}
    if numpy := sys.modules.get("numpy"):
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = (kind, keys.tobytes(), *rest)
    if torch := sys.modules.get("torch"):
        states |= _states_of_torch(torch)
    return states


def moved(before: States, after: States) -> tuple[str, ...]:
    """Return the names of the generators whose states differ."""
    return tuple(
        name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)
    )


def _states_of_torch(torch: Any) -> States:
    states: States = {"torch cpu": torch.get_rng_state().numpy().tobytes()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch cuda:{index}"] = state.numpy().tobytes()
    return states
