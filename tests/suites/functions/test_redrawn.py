"""Providers that draw their own random numbers are judged over seeds."""

import pytest

pytest.importorskip("torch")

from functions_builders import agrees

from ci_bench.records.results import Outcome

pytestmark = pytest.mark.engine

PAIR = """
    import numpy, random

    @ci_bench.benchmark({backward}provider="mine")
    def drop():
        (x,) = ci_bench.inputs(1, (64, 64))
        own = torch.Generator().manual_seed(3)
        keep = lambda share: torch.bernoulli(torch.full_like(x, share))
        return lambda: {mine}

    @drop.provider("torch", reference=True)
    def _():
        (x,) = ci_bench.inputs(1, (64, 64))
        return lambda: torch.nn.functional.dropout(x, 0.5)
"""
CANDIDATES = {
    "bernoulli": ("x * keep(0.5) * 2", Outcome.PASS),
    "uniform": ("torch.where(torch.rand_like(x) < 0.5, x * 2, 0.0)", Outcome.PASS),
    "numbers of numpy": ("x * torch.from_numpy(numpy.random.rand(64, 64) < 0.5) * 2", Outcome.PASS),
    "the same numbers": ("torch.nn.functional.dropout(x + 0, 0.5)", Outcome.PASS),
    "five per cent more are dropped": ("x * keep(0.45) / 0.45", Outcome.FAIL),
    "no scale": ("x * keep(0.5)", Outcome.FAIL),
    "the scale of another share": ("x * keep(0.5) / 0.55", Outcome.FAIL),
    "nothing is dropped": ("x * 1", Outcome.FAIL),
    "one mask for all rows": ("x * torch.bernoulli(torch.full((64, 1), 0.5)) * 2", Outcome.FAIL),
    "always one mask": (
        "x * torch.bernoulli(torch.full_like(x, 0.5), generator=own.manual_seed(3)) * 2",
        Outcome.FAIL,
    ),
    "one column is off": ("(x + (torch.arange(64) == 5)) * keep(0.5) * 2", Outcome.FAIL),
    "a sign": ("x.abs() * keep(0.5) * 2", Outcome.FAIL),
    "the same numbers, and a fault": ("torch.nn.functional.dropout(x, 0.5) * 1.001", Outcome.FAIL),
    "more noise": ("x * keep(0.5) * 2 + torch.randn_like(x)", Outcome.FAIL),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_other_random_numbers_are_judged_over_seeds(tree, name) -> None:
    mine, outcome = CANDIDATES[name]
    check = agrees(tree, PAIR.format(mine=mine, backward=""))["mine"]
    assert check.outcome is outcome, check.detail


def test_gradients_have_the_mask_of_their_output(tree) -> None:
    right = agrees(tree, PAIR.format(mine="x * keep(0.5) * 2", backward="backward=True, "))["mine"]
    wrong = agrees(tree, PAIR.format(mine="x * keep(0.5)", backward="backward=True, "))["mine"]
    assert (right.outcome, wrong.outcome) == (Outcome.PASS, Outcome.FAIL), (
        right.detail,
        wrong.detail,
    )
    assert "is indistinguishable from it over 32 seeds" in right.detail
