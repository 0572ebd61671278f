"""How an arm is held against its reference: what rounding does in each number format, and what it does not explain."""

import math

import pytest
import torch
from fastrnns_builders import make_job

from ci_bench.records.results import Outcome
from ci_bench.suites.fastrnns.agreement import ExpectedValues, compare, expect, rounding_of, shake
from ci_bench.suites.fastrnns.initial_state import draw
from ci_bench.suites.fastrnns.options import Dtype
from ci_bench.suites.fastrnns.reference import reference_for

pytestmark = pytest.mark.engine

EXACT = {
    "output": torch.tensor([3.0, -4.0], dtype=torch.float64),
    "state 0": torch.tensor([1e-6, 0.0], dtype=torch.float64),
}
EPSILON = 2.0**-8


def against(seen, **runs):
    run = {name: value.float() for name, value in EXACT.items()} | runs
    return compare(seen, ExpectedValues(exact=EXACT, runs=(run,), jolts=(), epsilon=EPSILON))


def with_output(*values):
    return {"output": torch.tensor(values), "state 0": EXACT["state 0"].float()}


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (with_output(3.0, -4.0), Outcome.PASS),
        (with_output(3.0, -4.05), Outcome.PASS),
        (with_output(3.0, -4.09), Outcome.FAIL),
        (with_output(3.0, math.nan), Outcome.FAIL),
        (with_output(math.inf, -4.0), Outcome.FAIL),
        (with_output(0.0, 0.0), Outcome.FAIL),
        (with_output(3.0, -4.0, 0.0), Outcome.FAIL),
        ({"output": EXACT["output"].float()}, Outcome.FAIL),
        ({**with_output(3.0, -4.0), "state 1": EXACT["output"]}, Outcome.FAIL),
        (EXACT, Outcome.FAIL),
    ],
)
def test_a_tensor_is_held_to_a_share_of_its_own_scale(seen, outcome):
    """Four roundings of 2**-8 of the largest element, 4: 0.0625."""
    assert against(seen).outcome is outcome


def test_a_small_tensor_has_a_small_scale():
    """No absolute floor: 1e-6 is a whole, not next to nothing."""
    verdict = against({**with_output(3.0, -4.0), "state 0": torch.tensor([1.1e-6, 0.0])})
    assert verdict.outcome is Outcome.FAIL
    assert "state 0: off by 1e-07" in verdict.detail


def test_where_rounding_decides_the_answer_is_unknown():
    verdict = against(with_output(3.0, -4.03), output=torch.tensor([2.0, -3.0]))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "a wider dtype, a shorter sequence or a larger batch would decide" in verdict.detail


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_rounding_is_half_the_distance_to_the_next_number(dtype):
    kind = getattr(torch, dtype)
    assert rounding_of(make_job("py", dtype=dtype)) == torch.finfo(kind).eps / 2


def test_with_tf32_a_rounding_is_that_of_ten_mantissa_bits():
    assert rounding_of(make_job("py", allow_tf32=True)) == 2.0**-11


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_reference_shows_in_the_cases_own_format_what_rounding_does(dtype):
    job = make_job("py", dtype=dtype)
    expected = expect(job, draw(job), reference_for(job))
    assert {value.dtype for value in expected.runs[0].values()} == {getattr(torch, dtype)}
    assert len(expected.jolts) == (dtype in {"float64", "float32"})
    rounding = rounding_of(job)
    for name, exact in expected.exact.items():
        moved = [
            float((run[name].double() - exact).norm() / exact.norm()) for run in expected.runs[1:]
        ]
        assert all(rounding / 8 < share < 64 * rounding for share in moved), (name, moved)


def test_every_number_format_of_the_options_has_a_rounding():
    assert all(rounding_of(make_job("py", dtype=str(dtype))) > 0 for dtype in Dtype)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_shakes_the_numbers_has_nothing_to_do_with_them(seed):
    """Of the generator of the start, sums of squares would move, not noise."""
    given = draw(make_job("py", dtype="float64", seed=seed, hidden_size=64, input_size=64))
    off = shake(given, 1e-6, seed=seed)
    for name, weight in given.weights.items():
        moved = (off.weights[name] / weight - 1) / 1e-6
        assert abs(
            float(torch.corrcoef(torch.stack([moved.flatten(), weight.flatten()]))[0, 1])
        ) < 5 / math.sqrt(weight.numel())
