"""How tensors are compared: by their own scale, element by element, with an answer of its own where rounding decides."""

import math

import pytest
import torch
from fastrnns_builders import make_job

from ci_bench.records.case import Outcome
from ci_bench.suites.fastrnns.agreement import KINK, Expected, compare, expect, rounding_of
from ci_bench.suites.fastrnns.given import draw
from ci_bench.suites.fastrnns.options import Dtype
from ci_bench.suites.fastrnns.reference import reference_for

pytestmark = pytest.mark.engine

EXACT = {"output": torch.tensor([3.0, -4.0], dtype=torch.float64), "state 0": torch.tensor([1e-6, 0.0], dtype=torch.float64)}


def against(seen, bound=0.01, **more):
    return compare(seen, Expected(exact=EXACT, bounds=dict.fromkeys(EXACT, bound), **more))


def with_output(*values):
    return {**EXACT, "output": torch.tensor(values)}


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (EXACT, Outcome.PASS),
        (with_output(3.0, -4.03), Outcome.PASS),
        (with_output(3.0, -4.05), Outcome.FAIL),
        (with_output(3.0, math.nan), Outcome.FAIL),
        (with_output(math.inf, -4.0), Outcome.FAIL),
        (with_output(0.0, 0.0), Outcome.FAIL),
        (with_output(3.0, -4.0, 0.0), Outcome.FAIL),
        ({"output": EXACT["output"]}, Outcome.FAIL),
        ({**EXACT, "state 1": EXACT["output"]}, Outcome.FAIL),
    ],
)
def test_a_tensor_is_held_to_a_share_of_its_own_scale(seen, outcome):
    assert against(seen).outcome is outcome


def test_the_larger_of_two_measures_counts():
    """3, -4 with 0.05 added to the second: 0.05 / sqrt(2) over 5 / sqrt(2), and 0.05 over 4."""
    verdict = against(with_output(3.0, -4.05))
    assert "output is off by 0.013 of its scale (bound 0.01; the worst of 2 tensors)" in verdict.detail


def test_a_small_tensor_has_a_small_scale():
    """No absolute floor: 1e-6 is a whole, not next to nothing."""
    verdict = against({**EXACT, "state 0": torch.tensor([1.1e-6, 0.0], dtype=torch.float64)})
    assert verdict.outcome is Outcome.FAIL
    assert "state 0 is off by 0.1 " in verdict.detail


def test_what_should_be_zero_must_be_zero():
    exact = {"output": torch.zeros(2, dtype=torch.float64)}
    expected = Expected(exact=exact, bounds={"output": 0.01})
    assert compare({"output": torch.zeros(2)}, expected).outcome is Outcome.PASS
    assert compare({"output": torch.tensor([0.0, 1e-30])}, expected).outcome is Outcome.FAIL


def test_where_rounding_decides_the_answer_is_unknown():
    verdict = against(with_output(3.0, -4.03), bound=1.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "Rounding alone may move 2 of them" in verdict.detail
    assert against(with_output(-3.0, 4.0), bound=1.0).outcome is Outcome.FAIL, "a wrong answer stays wrong"


def test_behind_a_kink_the_mean_counts_alone():
    exact = {"gradient of w": torch.ones(10_000, dtype=torch.float64)}
    jumped = torch.ones(10_000)
    jumped[0] = 2.0
    strict = compare({"gradient of w": jumped}, Expected(exact=exact, bounds={"gradient of w": KINK}))
    lenient = compare({"gradient of w": jumped}, Expected(exact=exact, bounds={"gradient of w": KINK}, kinked=frozenset(exact)))
    assert (strict.outcome, lenient.outcome) == (Outcome.FAIL, Outcome.PASS)


def test_missing_and_surplus_tensors_are_named():
    verdict = against({"output": EXACT["output"], "hidden": EXACT["output"]})
    assert verdict.detail == "it lacks state 0, and has hidden besides"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_rounding_is_half_the_distance_to_the_next_number(dtype):
    kind = getattr(torch, dtype)
    assert rounding_of(make_job("py", dtype=dtype)) == torch.finfo(kind).eps / 2


def test_with_tf32_a_rounding_is_that_of_ten_mantissa_bits():
    assert rounding_of(make_job("py", allow_tf32=True)) == 2.0**-11


def bounds_of(**options):
    job = make_job("py", **options)
    return expect(job, draw(job), reference_for(job)).bounds


def test_bounds_follow_the_number_format():
    """A bound in double precision is not worth less for being small: each is some roundings wide."""
    for dtype, rounding in (("float64", 2.0**-53), ("float32", 2.0**-24), ("bfloat16", 2.0**-8)):
        assert all(4 * rounding < bound < 200 * rounding for bound in bounds_of(dtype=dtype).values()), dtype


def test_bounds_grow_with_the_depth_and_not_faster():
    short, long = (max(bounds_of(seq_length=steps).values()) for steps in (4, 64))
    assert short < long < 8 * short


def test_every_number_format_of_the_options_has_a_rounding():
    assert all(rounding_of(make_job("py", dtype=str(dtype))) > 0 for dtype in Dtype)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_shakes_the_numbers_has_nothing_to_do_with_them(seed):
    """From torch's generator, the seed of a shake and that of the start could meet, and sums of squares would move, not noise."""
    bounds = bounds_of(seed=seed, seq_length=20, hidden_size=32, batch_size=8, num_layers=1)
    assert max(bounds.values()) < 2 * min(bounds.values())
