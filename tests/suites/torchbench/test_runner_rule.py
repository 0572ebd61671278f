"""The runner's rule in its own words, and the gaps for which it is not ours."""

import pytest
import torch

from ci_bench.suites.torchbench.verdict import RunnerRule, agrees

pytestmark = pytest.mark.engine

RULE = RunnerRule(tolerance=1e-3)
ONES = torch.ones(2000)


def test_gradients_below_the_tolerance_vanish():
    gradients = 1e-4 * torch.randn(2000, generator=torch.Generator().manual_seed(0))
    assert agrees(torch.zeros(2000), gradients, None, RULE)
    assert agrees(-gradients, gradients, None, RULE)


@pytest.mark.parametrize(
    ("result", "eager", "expected"),
    [
        (ONES.double(), ONES, False),
        (ONES[:5], ONES, False),
        (ONES * 1.001, ONES, True),
        (ONES * 1.1, ONES, False),
        (torch.tensor([True, False]), torch.tensor([True, False]), True),
        (torch.tensor([True, True]), torch.tensor([True, False]), False),
    ],
)
def test_types_shapes_and_closeness(result, eager, expected):
    assert agrees(result, eager, None, RULE) is expected


@pytest.mark.parametrize(("off", "elements", "dtype", "larger", "expected"), [
    (2.0, 2000, torch.float32, False, True), (2.2, 2000, torch.float32, False, False),
    (2.9, 900, torch.float32, False, True), (3.1, 900, torch.float32, False, False),
    (2.9, 2000, torch.bfloat16, False, True),
    (7.9, 400, torch.float32, True, True), (9.9, 10, torch.float32, True, True), (8.1, 400, torch.float32, True, False),
])  # fmt: skip
def test_an_error_may_be_a_multiple_of_eagers(off, elements, dtype, larger, expected):
    """Eager is off by 1 from a truth of 0, so the allowance is the multiplier, and a tenth of the tolerance."""
    rule = RunnerRule(tolerance=1e-6, larger_multiplier=larger)
    truth = torch.zeros(elements, dtype=torch.float64)
    eager, result = torch.ones(elements, dtype=dtype), torch.full((elements,), off, dtype=dtype)
    assert agrees(result, eager, truth, rule) is expected


def test_masks_may_overlap():
    eager = torch.arange(100) < 50
    result = torch.arange(100) < 51
    assert not agrees(result, eager, None, RULE)
    assert agrees(result, eager, None, RunnerRule(tolerance=1e-3, iou=0.95))
    assert agrees(~eager & eager, ~eager & eager, None, RunnerRule(tolerance=1e-3, iou=0.95))


def test_eager_alone_may_be_no_number():
    eager = torch.tensor([1.0, float("nan")])
    truth = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert agrees(torch.tensor([1.01, 2.02]), eager, truth, RULE)
    assert not agrees(torch.tensor([1.01, 2.5]), eager, truth, RULE)
