"""Whether two observations agree: what rounding does passes, and every planted difference fails."""

import math
from types import MappingProxyType

import pytest
import torch

from ci_bench.records.case import Outcome
from ci_bench.suites.transformers.agreement import (
    Mismatch,
    Observation,
    agreement,
    coarse_limit,
    errors_of,
    limits_of,
    relative_error,
    same_formats,
    scales_of,
)

pytestmark = pytest.mark.engine

FP32, BF16 = 2.0**-24, 2.0**-8


def reference(seed=0):
    """A step's loss, gradients of several sizes, and weight changes; in fp64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, size=1.0):
        return size * torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "loss of step 1: of the step": normal(1),
        "gradient of step 1: large": normal(64, 64),
        "gradient of step 1: small": normal(32, size=1e-3),
        "gradient of step 1: two": normal(2),
        "gradient of step 1: nought": torch.zeros(16, dtype=torch.float64),
        "weight change of step 1: large": normal(64, 64, size=1e-4),
    }


def rounded(exact, seed, *, noise=4e-7, dtype=torch.float32):
    """What an arm may return: errors of some roundings, in every tensor of the size of its kind's typical entries."""
    generator = torch.Generator().manual_seed(seed)
    scales = scales_of(Observation(values=exact))

    def shake(name, value):
        error = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        return value + noise * scales[name].norm / math.sqrt(value.numel()) * error

    return {name: shake(name, value).to(dtype) for name, value in exact.items()}


def judge(seen, exact, eager, epsilon=FP32, expected=MappingProxyType({})):
    dtypes = {name: value.dtype for name, value in eager.items()}
    seen, exact, eager = (Observation(values=values, expected=expected) for values in (seen, exact, eager))
    scales = scales_of(exact)
    noise = errors_of(eager, exact, scales)
    same_formats(seen, dtypes)
    return agreement("arm", errors_of(seen, exact, scales), noise, limits_of(noise, scales, epsilon))


@pytest.mark.parametrize("epsilon", [FP32, BF16])
def test_what_only_rounds_differently_passes(epsilon):
    noise = 8 * epsilon
    verdicts = set()
    for seed in range(200):
        exact = reference(seed)
        verdicts.add(
            judge(rounded(exact, 1000 + seed, noise=noise), exact, rounded(exact, 2000 + seed, noise=noise), epsilon).outcome
        )
    assert verdicts == {Outcome.PASS}


def test_the_detail_names_the_worst_tensor_and_its_figures():
    exact = reference()
    check = judge(rounded(exact, 1), exact, rounded(exact, 2))
    assert (check.name, check.arm) == ("agrees", "arm")
    assert "6 tensors agree; " in check.detail
    assert "relative error" in check.detail
    assert "eager's own" in check.detail


PLANTED = {
    "one tensor scaled by 1.0001": lambda seen: {**seen, "gradient of step 1: large": 1.0001 * seen["gradient of step 1: large"]},
    "a small tensor doubled": lambda seen: {**seen, "gradient of step 1: small": 2 * seen["gradient of step 1: small"]},
    "a tensor of nought that is not": lambda seen: {**seen, "gradient of step 1: nought": torch.full((16,), 1e-3)},
    "another loss": lambda seen: {**seen, "loss of step 1: of the step": seen["loss of step 1: of the step"] * (1 + 1e-4)},
    "no update": lambda seen: {**seen, "weight change of step 1: large": torch.zeros(64, 64)},
    "an update of another size": lambda seen: {
        **seen,
        "weight change of step 1: large": 1.001 * seen["weight change of step 1: large"],
    },
    "everything of another step": lambda seen: rounded(reference(5), 7),
}


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_difference_fails(name):
    exact = reference()
    check = judge(PLANTED[name](rounded(exact, 1)), exact, rounded(exact, 2))
    assert check.outcome is Outcome.FAIL
    assert "beyond their limit" in check.detail


def test_a_gradient_that_is_nought_by_mathematics_may_have_a_rounding():
    exact = reference()
    tiny = torch.full((16,), 1e-8)
    seen = {**rounded(exact, 1), "gradient of step 1: nought": tiny}
    eager = {**rounded(exact, 2), "gradient of step 1: nought": -tiny}
    assert judge(seen, exact, eager).outcome is Outcome.PASS


def test_an_eager_arm_that_is_right_by_luck_does_not_make_the_limit_narrow():
    exact = reference()
    eager = {**rounded(exact, 2), "gradient of step 1: two": exact["gradient of step 1: two"].float()}
    assert judge(rounded(exact, 1), exact, eager).outcome is Outcome.PASS


def test_what_follows_from_an_arms_own_values_is_compared_with_what_should_follow():
    exact, name = reference(), "weight change of step 1: large"
    own = torch.flip(exact[name], (0,))
    seen = {**rounded(exact, 1), name: own}
    assert judge({**seen, name: own.float()}, exact, rounded(exact, 2)).outcome is Outcome.FAIL
    scales = scales_of(Observation(values=exact))
    errors = errors_of(Observation(values=seen, expected={name: own}), Observation(values=exact), scales)
    assert errors[name] == 0


def test_a_noisy_eager_arm_cannot_hide_a_tensor_that_did_not_move():
    exact = reference()
    generator = torch.Generator().manual_seed(3)
    name = "weight change of step 1: large"
    loud = exact[name] + 0.4 * exact[name].std() * torch.randn(64, 64, generator=generator, dtype=torch.float64)
    eager = {**rounded(exact, 2), name: loud}
    assert judge({**rounded(exact, 1), name: torch.zeros(64, 64).double()}, exact, eager).outcome is Outcome.FAIL
    other = exact[name] + 0.4 * exact[name].std() * torch.randn(64, 64, generator=generator, dtype=torch.float64)
    assert judge({**rounded(exact, 1), name: other}, exact, eager).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda seen: {name: value for name, value in seen.items() if "two" not in name}, r"lacks gradient of step 1: two"),
        (lambda seen: {**seen, "gradient of step 1: more": torch.ones(1)}, r"has gradient of step 1: more"),
        (lambda seen: {**seen, "gradient of step 1: two": torch.ones(3)}, r"has the shape \(3,\), not \(2,\)"),
        (
            lambda seen: {**seen, "gradient of step 1: two": torch.tensor([1.0, math.nan])},
            r"gradient of step 1: two is not finite",
        ),
        (
            lambda seen: {**seen, "gradient of step 1: two": seen["gradient of step 1: two"].double()},
            r"two is torch.float64, and torch.float32",
        ),
    ],
)
def test_another_form_is_a_mismatch(change, words):
    exact = reference()
    with pytest.raises(Mismatch, match=words):
        judge(change(rounded(exact, 1)), exact, rounded(exact, 2))


def test_nothing_to_compare_is_no_agreement():
    assert agreement("arm", {}, {}, {}).outcome is Outcome.FAIL


def test_relative_errors_of_a_pair():
    ones = torch.ones(4)
    assert relative_error(ones, ones) == 0
    assert relative_error(1.5 * ones, ones) == pytest.approx(0.5)
    assert relative_error(torch.ones(3), ones) == math.inf
    assert relative_error(math.nan * ones, ones) == math.inf
    assert relative_error(ones, math.inf * ones) == math.inf
    assert relative_error(ones, 0 * ones) == math.inf
    assert relative_error(0 * ones, 0 * ones) == 0
    assert coarse_limit(FP32) == pytest.approx(2.0**-12)
