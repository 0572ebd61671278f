"""The rule, tensor by tensor: what it lets pass, what it catches, and what it cannot tell."""

import math

import pytest
import torch

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker.numerics import (
    FP32_EPSILON,
    agree,
    agree_coarsely,
    conclude,
    judged,
    kind_of,
    measure,
    measure_change,
    shaken,
    yardstick_of,
)

pytestmark = pytest.mark.engine

BF16_EPSILON = 2.0**-8
YARD = yardstick_of(FP32_EPSILON)
HALF = yardstick_of(BF16_EPSILON)


def deviation(name, candidate, truth, runs, yardstick, **more):
    (found,) = judged([measure(name, candidate, truth, runs, **more)], yardstick)
    return found


def change(name, candidate, ideal, *, reference, start, yardstick):
    (found,) = judged(
        [measure_change(name, candidate, ideal, reference=reference, start=start)], yardstick
    )
    return found


def tensors(scale=1.0, size=1000):
    """The truth, an eager result off by rounding, and another such."""
    generator = torch.Generator().manual_seed(0)
    truth = scale * torch.randn(size, generator=generator, dtype=torch.float64)
    return (
        truth,
        truth.float(),
        (
            truth * (1 + 2.0**-24 * torch.randn(size, generator=generator, dtype=torch.float64))
        ).float(),
    )


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1e-3, 1.0, 1e6])
def test_rounding_passes_and_zeros_and_flipped_signs_fail_at_any_size(scale):
    truth, eager, other = tensors(scale)
    assert not deviation("x", other, truth, [eager], YARD).wrong
    assert deviation("x", torch.zeros_like(eager), truth, [eager], YARD).wrong
    assert deviation("x", -eager, truth, [eager], YARD).wrong
    assert deviation("x", 1000 * eager, truth, [eager], YARD).wrong


def test_the_score_is_error_over_allowance():
    """By hand: truth 3-4-0, the reference off by 0.001 in one element of three, the candidate by 0.01: the largest decides."""
    truth = torch.tensor([3.0, 4.0, 0.0], dtype=torch.float64)
    eager = torch.tensor([3.0, 4.0, 0.001])
    candidate = torch.tensor([3.0, 4.0, 0.01])
    found = deviation("x", candidate, truth, [eager], HALF)
    assert found.allowed == pytest.approx(4 * (1 + math.sqrt(4 / 3)) * 0.001 + 4 * 2.0**-8 * 4)
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
    assert deviation("x", masked[2], truth, [eager], YARD).fault.startswith(
        "1 elements are not finite"
    )
    assert deviation("x", -masked[2], masked[0], [masked[1]], YARD).wrong
    eager_only = eager.clone()
    eager_only[5] = math.nan
    assert not deviation("x", other, truth, [eager_only], YARD).wrong, (
        "eager overflows, the candidate is right"
    )


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
    ideal, eager_ideal = (
        torch.full((50,), -2e-3, dtype=torch.float64),
        torch.full((50,), -1e-3, dtype=torch.float64),
    )
    eager = start - 1e-3
    reference = (eager, eager_ideal)
    assert not change(
        "p", start - 2e-3, ideal, reference=reference, start=start, yardstick=YARD
    ).wrong
    assert change(
        "p", start.clone(), ideal, reference=reference, start=start, yardstick=YARD
    ).wrong, "a skipped step"
    assert change(
        "p", start - 2.2e-3, ideal, reference=reference, start=start, yardstick=YARD
    ).wrong, "another learning rate"


def test_an_empty_tensor_is_right():
    empty = torch.zeros(0)
    assert deviation("x", empty, empty.double(), [empty], YARD).score == 0


def outputs(*, seed=0, size=1000, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {"output": scale * torch.randn(size, generator=generator, dtype=torch.float64)}


def narrow(truth, epsilon=FP32_EPSILON, seed=1):
    """A run of the reference: the truth off by one rounding each, in fp32."""
    generator = torch.Generator().manual_seed(seed)
    return {name: value.float() for name, value in shaken(truth, epsilon, generator).items()}


def test_an_agreement_says_which_tensor_is_worst_and_by_how_much():
    truth = {
        **outputs(),
        "gradient: weight": outputs(seed=1)["output"],
        "loss": torch.tensor(0.5, dtype=torch.float64),
    }
    runs = [narrow(truth, seed=seed) for seed in (1, 2)]
    right = agree(narrow(truth, seed=3), truth=truth, runs=runs, epsilon=FP32_EPSILON)
    assert (right.outcome, right.detail.startswith("3 tensors agree; ")) == (Outcome.PASS, True)
    assert 0 < right.score < 1
    wrong = {**narrow(truth, seed=3), "gradient: weight": 1.0005 * runs[0]["gradient: weight"]}
    found = agree(wrong, truth=truth, runs=runs, epsilon=FP32_EPSILON)
    assert (found.outcome, found.worst) == (Outcome.FAIL, "gradient: weight")
    assert found.score > 1
    assert found.detail.endswith("1 of 3 tensors disagree")


@pytest.mark.parametrize("seen", [{}, {"more": torch.ones(1)}])
def test_nothing_to_compare_and_other_names_disagree(seen):
    truth = outputs()
    assert (
        agree(seen, truth=truth, runs=[narrow(truth)], epsilon=FP32_EPSILON).outcome is Outcome.FAIL
    )
    assert agree({}, truth={}, runs=[{}], epsilon=FP32_EPSILON).outcome is Outcome.FAIL


def test_without_fp64_the_unperturbed_run_is_the_truth_and_a_shaken_one_says_what_rounding_does():
    truth = outputs()
    runs = [narrow(truth, seed=seed) for seed in (1, 2)]
    assert (
        agree(narrow(truth, seed=3), truth=None, runs=runs, epsilon=FP32_EPSILON).outcome
        is Outcome.PASS
    )
    off = {"output": runs[0]["output"] * 1.0005}
    assert agree(off, truth=None, runs=runs, epsilon=FP32_EPSILON).outcome is Outcome.FAIL


def test_a_gradient_that_is_zero_by_mathematics_may_have_the_roundings_of_its_kind():
    """Eager may come to an exact zero by luck, and a right candidate to the rounding of what cancels."""
    truth = {
        "gradient: weight": outputs()["output"],
        "gradient: key_bias": outputs(seed=5, size=16, scale=1e-17)["output"],
    }
    run = {**narrow(truth), "gradient: key_bias": torch.zeros(16)}
    runs = [run, {**narrow(truth, seed=2), "gradient: key_bias": torch.zeros(16)}]
    seen = {**narrow(truth, seed=3), "gradient: key_bias": torch.full((16,), 5e-8)}
    assert agree(seen, truth=truth, runs=runs, epsilon=FP32_EPSILON).outcome is Outcome.PASS
    wrong = {**seen, "gradient: key_bias": torch.full((16,), 1e-4)}
    assert agree(wrong, truth=truth, runs=runs, epsilon=FP32_EPSILON).outcome is Outcome.FAIL


def test_a_small_gradient_is_not_zero_by_mathematics():
    truth = {
        "gradient: weight": outputs()["output"],
        "gradient: small": outputs(seed=5, size=100, scale=1e-6)["output"],
    }
    seen = {**narrow(truth, seed=3), "gradient: small": torch.zeros(100)}
    assert (
        agree(seen, truth=truth, runs=[narrow(truth)], epsilon=FP32_EPSILON).outcome is Outcome.FAIL
    )


def test_a_run_that_is_right_by_luck_does_not_narrow_the_limit():
    truth = {f"gradient: {index}": outputs(seed=index, size=4)["output"] for index in range(9)}
    epsilon = 64 * FP32_EPSILON
    lucky = {**narrow(truth, epsilon), "gradient: 3": truth["gradient: 3"].float()}
    seen = narrow(truth, epsilon, seed=2)
    assert agree(seen, truth=truth, runs=[lucky], epsilon=FP32_EPSILON).outcome is Outcome.PASS


def test_a_kind_that_is_all_rounding_leaves_the_answer_unknown():
    truth = {**outputs(), "gradient: weight": outputs(seed=1, scale=1e-12)["output"]}
    noise = [1e-9 * outputs(seed=seed)["output"].float() for seed in (7, 8)]
    runs = [{**narrow(truth), "gradient: weight": noise[0]}]
    found = agree(
        {**narrow(truth), "gradient: weight": noise[1]},
        truth=truth,
        runs=runs,
        epsilon=FP32_EPSILON,
    )
    assert found.outcome is Outcome.UNKNOWN
    assert "none of the 1 gradient is larger than its own rounding" in found.detail


def test_a_reference_that_is_not_finite_leaves_the_answer_unknown():
    truth = outputs()
    nothing = {"output": torch.full((1000,), math.nan)}
    found = agree(nothing, truth=truth, runs=[nothing], epsilon=FP32_EPSILON)
    assert found.outcome is Outcome.UNKNOWN
    assert "no finite number" in found.detail


def test_one_overflow_of_its_own_is_refused_where_eager_has_another():
    truth = outputs()
    run, seen = narrow(truth), narrow(truth, seed=2)
    run["output"][3] = math.inf
    assert agree(seen, truth=truth, runs=[run], epsilon=FP32_EPSILON).outcome is Outcome.PASS
    seen["output"][4] = math.inf
    assert agree(seen, truth=truth, runs=[run], epsilon=FP32_EPSILON).outcome is Outcome.FAIL


def test_jumps_that_a_jolted_run_shows_are_no_faults_and_others_are():
    truth = {"gradient: weight": outputs(size=4096)["output"]}
    runs = [narrow(truth, seed=seed) for seed in (1, 2)]

    def jumped(seed, count):
        result = narrow(truth, seed=seed)
        result["gradient: weight"][:count] *= 1.05
        return result

    jolt = narrow(truth, 16 * FP32_EPSILON, seed=3)
    jolt["gradient: weight"][:16] *= 1.05
    epsilon = FP32_EPSILON
    assert agree(jumped(4, 1), truth=truth, runs=runs, epsilon=epsilon).outcome is Outcome.FAIL, (
        "or it would show nothing"
    )
    assert (
        agree(jumped(4, 1), truth=truth, runs=runs, jolts=[jolt], epsilon=epsilon).outcome
        is Outcome.PASS
    )
    halved = {"gradient: weight": runs[0]["gradient: weight"] / 2}
    assert (
        agree(halved, truth=truth, runs=runs, jolts=[jolt], epsilon=epsilon).outcome is Outcome.FAIL
    )
    jumps = [jumped(seed, 16) for seed in (5, 6)]
    assert (
        agree(halved, truth=truth, runs=jumps, jolts=[jolt], epsilon=epsilon).outcome
        is Outcome.FAIL
    )


def test_a_jolt_takes_nothing_from_what_the_order_of_sums_may_do():
    """Twelve times as far from the truth as eager, and right to six digits."""
    truth = outputs()
    jolt = narrow(truth, 16 * FP32_EPSILON, seed=3)
    far = narrow(truth, 12 * FP32_EPSILON, seed=4)
    assert (
        agree(far, truth=truth, runs=[narrow(truth)], jolts=[jolt], epsilon=FP32_EPSILON).outcome
        is Outcome.PASS
    )


def test_tokens_agree_where_all_are_equal_or_the_runs_waver():
    tokens = {"tokens": torch.arange(100)}
    other = {"tokens": torch.arange(100).index_fill(0, torch.tensor([7]), 5000)}
    assert agree(tokens, truth=None, runs=[tokens], epsilon=BF16_EPSILON).outcome is Outcome.PASS
    assert agree(other, truth=None, runs=[tokens], epsilon=BF16_EPSILON).outcome is Outcome.FAIL
    assert (
        agree(other, truth=None, runs=[tokens, other], epsilon=BF16_EPSILON).outcome is Outcome.PASS
    )
    all_wrong = {"tokens": torch.arange(100).flip(0)}
    assert (
        agree(all_wrong, truth=None, runs=[tokens, other], epsilon=BF16_EPSILON).outcome
        is Outcome.FAIL
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gradient: a.b", "gradient"), ("gradients.a", "gradients"), ("loss", "loss")],
)
def test_the_kind_of_a_tensor_is_in_its_name(name, kind):
    assert kind_of(name) == kind


def test_one_logit_and_one_token_of_many_are_seen_in_every_format():
    """What a look at the 2-norm alone let pass in bfloat16: 0.04 of the norm."""
    truth = {"output": outputs(size=65536)["output"].reshape(512, 128)}
    for dtype, epsilon in (
        (torch.float32, FP32_EPSILON),
        (torch.float16, 2.0**-11),
        (torch.bfloat16, BF16_EPSILON),
    ):
        runs = [
            {
                "output": shaken(truth, epsilon, torch.Generator().manual_seed(seed))["output"].to(
                    dtype
                )
            }
            for seed in (1, 2)
        ]
        seen = shaken(truth, epsilon, torch.Generator().manual_seed(3))["output"].to(dtype)
        assert (
            agree({"output": seen}, truth=truth, runs=runs, epsilon=epsilon).outcome is Outcome.PASS
        )
        logit, token = seen.clone(), seen.clone()
        logit[100, 100] += 10
        token[0] = 0
        for wrong in (logit, token):
            assert (
                agree({"output": wrong}, truth=truth, runs=runs, epsilon=epsilon).outcome
                is Outcome.FAIL
            )
            assert (
                agree_coarsely({"output": wrong}, {"output": seen}, epsilon=epsilon).outcome
                is Outcome.FAIL
            )


def test_a_change_within_one_rounding_of_the_value_is_none():
    """At 1, bfloat16 moves in steps of 2**-7; a weight at nought moves by whatever is asked."""
    start = torch.tensor([1.0, 1.0, 0.0, 0.0]).bfloat16()
    ideal = torch.full((4,), 1e-3, dtype=torch.float64)
    right = (start.double() + ideal).bfloat16()
    reference = (right, ideal)
    assert not change("p", right, ideal, reference=reference, start=start, yardstick=HALF).wrong
    assert change("p", start, ideal, reference=reference, start=start, yardstick=HALF).wrong
    assert not change("p", right, ideal, reference=reference, start=start, yardstick=HALF).blind


def test_conclusions_name_faults_before_figures():
    found = judged(
        [
            measure("a", torch.ones(3), torch.ones(2), [torch.ones(2)]),
            measure("b", -torch.ones(2), torch.ones(2), [torch.ones(2)]),
        ],
        YARD,
    )
    assert conclude(found).worst == "a"
