"""What is timed is what was verified: other inputs, weights, types and shorter passes are found, and honest models pass."""

import pytest
from first_calls import differences
from torchbench_builders import opened, own

from ci_bench.suites.torchbench import verify

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def plain():
    """The first verified calls of a training."""
    case, workload = opened(**own("Plain"))
    return workload.verify(case.arms).begun


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        ({"models": ["planted_models:Wide"]}, "inputs"),
        ({"models": ["planted_models:Shallow"]}, "values of the loss off by"),
        ({"models": ["planted_models:Halved"]}, "values of the weights"),
        ({"precision": "bf16"}, "inputs bfloat16"),
        ({"seed": 5}, "values of the weights"),
    ],
)
def test_another_model_when_timed_is_found(plain, timed, said):
    _, workload = opened(**{**own("Plain"), **timed})
    assert said in differences(plain, workload, ("eager",))["eager"]


@pytest.mark.parametrize(
    "entry",
    [
        own("Relu", batches=3, mode="inference"),
        own("Dropping"),
        own("Unseeded", mode="inference"),
        own("Plain", dynamic=True, batches=3),
    ],
)
def test_an_honest_model_is_as_verified(entry):
    case, workload = opened(**entry)
    assert differences(workload.verify(case.arms).begun, workload, case.arms) == {}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_later_steps_repeat_earlier_ones(count):
    """A step beyond the starts would be one of half blank rows, or none at all."""
    asked = []
    for _ in verify.all_steps(count, lambda _: None, asked.append):
        pass
    assert {*asked} == {*range(count)}
