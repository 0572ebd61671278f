"""Whether two observations agree: what rounding does passes, and every planted difference fails."""

from dataclasses import replace

import pytest
import torch

from ci_bench.records.results import Outcome
from ci_bench.suites.transformers.agreement import (
    OutputChange,
    OutputObservation,
    ReferenceOutputsOfModel,
    check_of,
    compared,
    shake_of,
)

pytestmark = pytest.mark.engine

FP32, BF16 = 2.0**-24, 2.0**-8
RATE = 1e-4


def exact_values(seed=0):
    """A step's loss and gradients of several sizes, in fp64; one of them is zero by mathematics."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, size=1.0):
        return size * torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "loss: of the step (step 1)": normal(1),
        "gradient: large (step 1)": normal(64, 64),
        "gradient: small (step 1)": normal(32, size=1e-3),
        "gradient: two (step 1)": normal(2),
        "gradient: nought (step 1)": normal(16, size=1e-18),
    }


def rounded(exact, seed, *, noise):
    """What an arm may return: errors of some roundings."""
    generator = torch.Generator().manual_seed(seed)

    def shake(value):
        size = value.square().mean().sqrt()
        size = max(float(size), 1e-3)
        return (
            value
            + noise * size * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        ).float()

    return {name: shake(value) for name, value in exact.items()}


def change(*, rate=RATE, seed=0):
    """A weight that moved against the sign of its gradient."""
    generator = torch.Generator().manual_seed(seed)
    start = 0.02 * torch.randn(64, 64, generator=generator)
    ideal = -RATE * torch.randn(64, 64, generator=generator, dtype=torch.float64).sign()
    return OutputChange(
        start=start, after=(start.double() + rate / RATE * ideal).float(), ideal=ideal
    )


def observation(exact, seed, *, noise=4 * FP32):
    return OutputObservation(
        values=rounded(exact, seed, noise=noise),
        changes={"weight change: large (step 1)": change()},
    )


def judge(seen, exact, epsilon=FP32, noise=4 * FP32):
    shaken = OutputObservation(values=rounded(exact, 3, noise=noise * shake_of(epsilon) / epsilon))
    reference = ReferenceOutputsOfModel(
        exact=OutputObservation(values=exact),
        eager=observation(exact, 2, noise=noise),
        shaken=shaken,
    )
    return check_of("arm", compared(seen, reference, epsilon=epsilon))


@pytest.mark.parametrize("epsilon", [FP32, BF16])
def test_what_only_rounds_differently_passes(epsilon):
    noise = 4 * epsilon
    for seed in range(100):
        exact = exact_values(seed)
        check = judge(observation(exact, 1000 + seed, noise=noise), exact, epsilon, noise)
        assert check.outcome is Outcome.PASS, (seed, check.detail)


def test_the_detail_names_the_worst_tensor_and_its_figures():
    exact = exact_values()
    check = judge(observation(exact, 1), exact)
    assert (check.name, check.arm) == ("agrees", "arm")
    assert check.detail.startswith("6 tensors agree; ")
    assert "rounding explains" in check.detail
    assert check.detail.endswith("(against fp64)")


def values(**named):
    """A change of an observation: each named gradient becomes what a function makes of it."""

    def spoil(seen):
        made = {f"gradient: {name} (step 1)": function for name, function in named.items()}
        return replace(
            seen,
            values={
                name: made.get(name, lambda one: one)(one) for name, one in seen.values.items()
            },
        )

    return spoil


def one_element(one):
    spoilt = one.clone()
    spoilt.view(-1)[7] += 10 * one.std()
    return spoilt


def moved(**how):
    return lambda seen: replace(seen, changes={name: change(**how) for name in seen.changes})


PLANTED = {
    "one tensor scaled by 1.0005": values(large=lambda one: 1.0005 * one),
    "a small tensor doubled": values(small=lambda one: 2 * one),
    "one element": values(large=one_element),
    "a tensor of nought that is not": values(nought=lambda one: torch.full((16,), 1e-3)),
    "not a number": values(two=lambda one: one * float("nan")),
    "another shape": values(two=lambda one: one[:1]),
    "another type": values(two=lambda one: one.double()),
    "no update": moved(rate=0.0),
    "an update one per cent larger": moved(rate=1.01 * RATE),
    "a gradient missing": lambda seen: replace(
        seen, values={name: one for name, one in seen.values.items() if "small" not in name}
    ),
    "a gradient too many": lambda seen: replace(
        seen, values={**seen.values, "gradient: more (step 1)": torch.ones(1)}
    ),
    "everything of another step": lambda seen: observation(exact_values(5), 7),
}


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_difference_fails(name):
    exact = exact_values()
    check = judge(PLANTED[name](observation(exact, 1)), exact)
    assert check.outcome is Outcome.FAIL, check.detail


def test_an_update_after_the_arms_own_gradient_is_compared_with_what_should_follow():
    exact = exact_values()
    seen = replace(observation(exact, 1), changes={"weight change: large (step 1)": change(seed=9)})
    start = change().start
    own = replace(
        change(seed=9), start=start, after=(start.double() + change(seed=9).ideal).float()
    )
    assert (
        judge(replace(seen, changes={"weight change: large (step 1)": own}), exact).outcome
        is Outcome.PASS
    )


def test_a_change_that_a_narrow_format_rounds_away_is_not_asked_for():
    """At 1, bfloat16 has steps of 2**-7: a change of 1e-4 is none.

    What is left of a weight near nought is still asked for.
    """
    exact = exact_values()

    def narrow(after):
        start = torch.cat([torch.ones(50), torch.full((50,), 1e-3)]).bfloat16()
        ideal = torch.full((100,), RATE, dtype=torch.float64)
        made = {
            "weight change: large (step 1)": OutputChange(
                start=start, after=after(start.double() + ideal, start), ideal=ideal
            )
        }
        return replace(observation(exact, 1, noise=4 * BF16), changes=made)

    def outcome(after):
        right = narrow(lambda value, start: value.bfloat16())
        shaken = OutputObservation(values=rounded(exact, 3, noise=4 * BF16))
        reference = ReferenceOutputsOfModel(
            exact=OutputObservation(values=exact), eager=right, shaken=shaken
        )
        return compared(narrow(after), reference, epsilon=BF16).outcome

    assert outcome(lambda value, start: value.bfloat16()) is Outcome.PASS
    assert outcome(lambda value, start: start) is Outcome.FAIL


def test_nothing_to_compare_is_no_agreement():
    nothing = OutputObservation(values={})
    reference = ReferenceOutputsOfModel(exact=nothing, eager=nothing, shaken=nothing)
    assert compared(nothing, reference, epsilon=FP32).outcome is Outcome.FAIL
