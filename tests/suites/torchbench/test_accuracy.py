"""The rule, tensor by tensor: what it lets pass, what it catches, and what it cannot tell."""

import math

import pytest
import torch

from ci_bench.suites.torchbench.accuracy import FP32_EPSILON, change, default_yardstick, deviation

pytestmark = pytest.mark.engine

YARD = default_yardstick(FP32_EPSILON)
HALF = default_yardstick(2.0**-8)


def tensors(scale=1.0, size=1000):
    """The truth, an eager result off by rounding, and another such."""
    generator = torch.Generator().manual_seed(0)
    truth = scale * torch.randn(size, generator=generator, dtype=torch.float64)
    return truth, truth.float(), (truth * (1 + 2.0**-24 * torch.randn(size, generator=generator, dtype=torch.float64))).float()


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1e-3, 1.0, 1e6])
def test_rounding_passes_and_zeros_and_flipped_signs_fail_at_any_size(scale):
    truth, eager, other = tensors(scale)
    assert not deviation("x", other, truth, [eager], YARD).wrong
    assert deviation("x", torch.zeros_like(eager), truth, [eager], YARD).wrong
    assert deviation("x", -eager, truth, [eager], YARD).wrong
    assert deviation("x", 1000 * eager, truth, [eager], YARD).wrong


def test_the_score_is_error_over_allowance():
    """By hand: truth 3-4-0 of norm 5, eager off by 0.001 in one element, candidate by 0.01: the largest element decides."""
    truth = torch.tensor([3.0, 4.0, 0.0], dtype=torch.float64)
    eager = torch.tensor([3.0, 4.0, 0.001])
    candidate = torch.tensor([3.0, 4.0, 0.01])
    found = deviation("x", candidate, truth, [eager], HALF)
    assert found.allowed == pytest.approx(3 * 0.001 + 8 * 2.0**-8 * 4)
    assert found.score == pytest.approx(0.01 / found.allowed)
    assert not found.blind


def test_one_wrong_element_in_a_large_tensor_is_seen():
    truth, eager, other = tensors(size=1_000_000)
    other[77] += 1e-3
    found = deviation("x", other, truth, [eager], YARD)
    assert found.wrong
    assert found.error == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(("given", "words"), [
    (lambda eager: eager.double(), "float64[1000] instead of float32[1000]"),
    (lambda eager: eager[:, None], "float32[1000, 1] instead of float32[1000]"),
])  # fmt: skip
def test_another_type_or_shape_is_wrong_whatever_the_numbers(given, words):
    truth, eager, _ = tensors()
    assert deviation("x", given(eager), truth, [eager], YARD).fault == words


def test_what_is_not_finite_has_to_be_so_in_eager_or_in_the_truth():
    truth, eager, other = tensors()
    masked = [one.clone() for one in (truth, eager, other)]
    for one in masked:
        one[3] = -math.inf
    assert not deviation("x", masked[2], masked[0], [masked[1]], YARD).wrong
    assert deviation("x", masked[2], truth, [eager], YARD).fault.startswith("1 elements are not finite")
    assert deviation("x", -masked[2], masked[0], [masked[1]], YARD).wrong
    eager_only = eager.clone()
    eager_only[5] = math.nan
    assert not deviation("x", other, truth, [eager_only], YARD).wrong, "eager overflows, the candidate is right"


def test_a_score_that_is_no_number_is_wrong():
    truth, eager, _ = tensors(size=3)
    assert deviation("x", torch.full((3,), math.nan), truth, [eager], YARD).wrong


def test_whole_numbers_have_to_be_equal_unless_eager_itself_differs_from_the_truth():
    truth, eager = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3])
    assert not deviation("x", eager.clone(), truth, [eager], YARD).wrong
    assert deviation("x", torch.tensor([1, 2, 4]), truth, [eager], YARD).wrong
    assert not deviation("x", torch.tensor([1, 2, 4]), truth, [torch.tensor([1, 2, 4])], YARD).wrong


def test_a_tensor_smaller_than_its_rounding_is_blind():
    noise = torch.full((4,), 1e-9)
    found = deviation("x", -noise, 1e-12 * torch.ones(4, dtype=torch.float64), [noise], YARD)
    assert (found.wrong, found.blind) == (False, True)


def test_changes_are_judged_on_their_own_scale():
    """A buffer of size one that moves by 1e-3: staying where it was is an error of 1e-3, not of nothing."""
    start = torch.ones(100)
    eager = start + 1e-3
    truth = start.double() + 1e-3
    assert not deviation("x", eager.clone(), truth, [eager], YARD, start=start).wrong
    assert deviation("x", start.clone(), truth, [eager], YARD, start=start).wrong


def test_an_update_is_judged_by_the_candidates_own_gradients():
    start = torch.ones(50)
    ideal, eager_ideal = torch.full((50,), -2e-3, dtype=torch.float64), torch.full((50,), -1e-3, dtype=torch.float64)
    eager = start - 1e-3
    reference = (eager, eager_ideal)
    assert not change("p", start - 2e-3, ideal, reference=reference, start=start, yardstick=YARD).wrong
    assert change("p", start.clone(), ideal, reference=reference, start=start, yardstick=YARD).wrong, "a skipped step"
    assert change("p", start - 2.2e-3, ideal, reference=reference, start=start, yardstick=YARD).wrong, "another learning rate"


def test_an_empty_tensor_is_right():
    empty = torch.zeros(0)
    assert deviation("x", empty, empty.double(), [empty], YARD).score == 0
