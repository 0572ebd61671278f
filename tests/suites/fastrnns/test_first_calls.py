"""What is timed is what was verified: another size, seed, or type is found, and honest variants pass."""

import pytest
from fastrnns_builders import make_case, open_case
from first_calls import differences

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def plain():
    """The first verified calls of a hand-written LSTM."""
    case = make_case("py")
    return open_case(case).verify(case.arms).begun


@pytest.mark.parametrize(
    ("timed", "said"),
    [
        ({"batch_size": 2}, "inputs float32[4, 2, 5]"),
        ({"hidden_size": 5}, "weights"),
        ({"seed": 7}, "values of the weights"),
        ({"dtype": "float64"}, "inputs float64"),
    ],
)
def test_another_job_when_timed_is_found(plain, timed, said):
    seen = differences(plain, open_case(make_case("py", **timed)), ("aten", "py"))
    assert seen.keys() == {"aten", "py"}
    assert all(said in detail for detail in seen.values()), seen


@pytest.mark.parametrize("name", ["py", "jit_dropout", "py_layernorm", "vl_py"])
def test_an_honest_variant_is_as_verified(name):
    case = make_case(name)
    assert differences(open_case(case).verify(case.arms).begun, open_case(case), case.arms) == {}
