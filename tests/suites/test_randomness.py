"""Every generator is seeded, each step differently, and what was drawn before does not matter."""

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ci_bench.suites.shared.worker.randomness import (
    generator_states,
    moved,
    seed_everything,
    seed_step,
    step_seed,
)

LEGACY: Any = np.random
"""NumPy's global generator, which benched code uses."""


@pytest.fixture(autouse=True)
def _as_before():
    """The global generators are everybody's."""
    torch = sys.modules.get("torch")
    kept = random.getstate(), LEGACY.get_state(), torch.get_rng_state() if torch else None
    yield
    random.setstate(kept[0])
    LEGACY.set_state(kept[1])
    if torch:
        torch.set_rng_state(kept[2])


def drawn() -> tuple[float, ...]:
    torch = sys.modules.get("torch")
    return (random.random(), float(LEGACY.rand()), *([float(torch.rand(()))] if torch else []))


def test_a_step_draws_the_same_whatever_was_drawn_before_it() -> None:
    seed_step(3, 5)
    wanted = drawn()
    for _ in range(7):
        drawn()
    seed_step(3, 5)
    assert drawn() == wanted


def test_steps_and_seeds_draw_differently_from_each_other() -> None:
    places = [(seed, step) for seed in range(40) for step in range(100)]
    assert len({step_seed(*place) for place in places}) == len(places)
    assert step_seed(1, 23) != step_seed(12, 3)
    numbers = set()
    for place in places[:200]:
        seed_step(*place)
        numbers.add(drawn())
    assert len(numbers) == 200


def test_seeds_are_the_same_on_every_machine_and_in_every_process() -> None:
    assert [step_seed(0, 0), step_seed(7919, 1), step_seed(-1, 2, 3)] == [
        1427366890,
        3607662042,
        2386262662,
    ]


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**40, 7919])
def test_any_seed_of_a_configuration_will_do(seed) -> None:
    seed_everything(seed)
    assert drawn()


@pytest.mark.engine
def test_the_states_say_which_generator_drew() -> None:
    torch = pytest.importorskip("torch")
    seed_step(0, 0)
    before = generator_states()
    assert moved(before, generator_states()) == ()
    for name, draw in {
        "python": random.random,
        "numpy": LEGACY.rand,
        "torch cpu": lambda: torch.rand(1),
    }.items():
        seed_step(0, 0)
        draw()
        assert moved(before, generator_states()) == (name,)


def test_nothing_is_imported_for_it() -> None:
    code = "import sys; from ci_bench.suites.shared.worker.randomness import *; seed_step(0, 1); generator_states()"
    code += "; print({'torch', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
