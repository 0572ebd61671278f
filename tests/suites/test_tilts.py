"""Faults below one rounding of a number: a direction, an outlying row, a factor; and right results next to each."""

import pytest
import torch

from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker.numerics import agree, jolt_of, shaken
from ci_bench.suites.shared.worker.tilts import tilt

pytestmark = pytest.mark.engine
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def outcome(reference, candidate, dtype, shape=(128, 64)):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(shape, generator=generator).to(dtype)
    epsilon = torch.finfo(dtype).eps / 2

    def run(by):
        return {"output": reference(shaken({"": x}, by, generator)[""])}

    jolts = [run(jolt_of(epsilon))] if jolt_of(epsilon) else []
    runs = [{"output": reference(x)}, run(epsilon), run(epsilon)]
    truth = {"output": reference(x.double())}
    return agree(
        {"output": candidate(x)}, truth=truth, runs=runs, jolts=jolts, epsilon=epsilon
    ).outcome


def directed(x, dtype, direction):
    """The neighbour of each number in a direction: `trunc`, `floor` or `ceil`."""
    step = (
        torch.ldexp(torch.ones_like(x.double()), x.double().frexp().exponent)
        * torch.finfo(dtype).eps
        / 2
    )
    return (getattr(torch, direction)(x.double() / step) * step).to(dtype)


def scaled(x):
    return x * 1.37


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
@pytest.mark.parametrize("direction", ["trunc", "floor", "ceil"])
def test_one_direction_is_no_rounding(dtype, direction):
    assert (
        outcome(scaled, lambda x: directed(x.double() * 1.37, dtype, direction), dtype)
        is Outcome.FAIL
    )


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
@pytest.mark.parametrize("candidate", [
    lambda x: x * torch.tensor(1.37, dtype=x.dtype),
    lambda x: (x.float() * 1.37).to(x.dtype),
    lambda x: x + x * torch.tensor(0.37, dtype=x.dtype),
    lambda x: x / torch.tensor(1 / 1.37, dtype=x.dtype),
], ids=["factor rounded", "in fp32", "in two steps", "divided"])  # fmt: skip
def test_roundings_to_nearest_pass(dtype, candidate):
    assert outcome(scaled, candidate, dtype) is Outcome.PASS


def test_a_reference_that_cuts_off_may_be_copied():
    def cutting(x):
        return directed(x.double() * 1.37, BF16, "trunc") if x.dtype is BF16 else x * 1.37

    assert outcome(cutting, lambda x: cutting(x).clone(), BF16) is Outcome.PASS


def test_few_different_numbers_show_no_direction():
    def constant(x):
        return torch.full_like(x, 1 / 3)

    below = torch.tensor(1 / 3).bfloat16() - 2.0**-9
    assert outcome(constant, lambda x: torch.full_like(x, float(below)), BF16) is Outcome.PASS


def one_row(x, factor):
    result = scaled(x)
    result[100] *= factor
    return result


@pytest.mark.parametrize(("dtype", "factor"), [(BF16, 1.008), (FP16, 1.001)])
def test_one_row_of_many_is_an_outlier(dtype, factor):
    assert outcome(scaled, lambda x: one_row(x, factor), dtype, (1024, 256)) is Outcome.FAIL


def by_rows(x):
    return x.float() / (1 + x.float().square().sum(1, keepdim=True))


@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
def test_rows_may_share_a_rounding(dtype):
    """Each row is divided by a sum that is rounded to the format."""

    def reference(x):
        return (
            by_rows(x).to(dtype) if x.dtype is dtype else x / (1 + x.square().sum(1, keepdim=True))
        )

    assert (
        outcome(reference, lambda x: x / (1 + x.square().sum(1, keepdim=True)), dtype, (256, 128))
        is Outcome.PASS
    )


@pytest.mark.parametrize(
    ("bits", "answer"), [(16, Outcome.FAIL), (10, Outcome.FAIL), (22, Outcome.PASS)]
)
def test_inputs_of_fp32_are_not_cut(bits, answer):
    """Cutting 7 bits off makes each product 2⁻¹⁷ smaller, which rounding never does to all."""
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def product(x):
        return x @ weight.to(x.dtype)

    def cut(x):
        return (x.view(torch.int32) & ~((1 << (23 - bits)) - 1)).view(FP32)

    assert outcome(product, lambda x: product(cut(x)), FP32) is answer


@pytest.mark.parametrize("epsilon", [2.0**-24, 2.0**-8])
def test_zeros_have_no_direction(epsilon):
    zeros = torch.zeros(64, 64, dtype=torch.float64)
    assert tilt(torch.ones_like(zeros), zeros, [zeros], epsilon) == (0.0, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_serial_sums_may_scale_a_result(seed) -> None:
    """A sum of a million numbers, one after the other, is off by 160 to 410 roundings of fp32."""
    values = torch.rand(1000, 1000, generator=torch.Generator().manual_seed(seed))
    total = float(values.numpy().reshape(-1).cumsum(dtype="float32")[-1])
    true = values.double() / values.double().sum()
    found, allowed = tilt(
        (values / total).double(), true, [(values / values.sum()).double()], 2.0**-24
    )
    assert found <= allowed
