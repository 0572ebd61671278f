"""Both of torch's interfaces for TF32 say the same afterwards, whatever a user's model has set through either of them."""

import pytest
import torch

from ci_bench.suites.shared.worker.fp32_precision import effective_precision, set_fp32_precision

pytestmark = pytest.mark.engine
backends = torch.backends


def set_new(place, value):
    place.fp32_precision = value


BEFORE = {
    "nothing": lambda: None,
    "the flags": lambda: (
        torch.set_float32_matmul_precision("high"),
        setattr(backends.cudnn, "allow_tf32", True),
    ),
    "matmul": lambda: set_new(backends.cuda.matmul, "tf32"),
    "matmul the other way": lambda: set_new(backends.cuda.matmul, "ieee"),
    "convolutions alone": lambda: set_new(backends.cudnn.conv, "ieee"),
    "recurrent layers alone": lambda: set_new(backends.cudnn.rnn, "ieee"),
    "cudnn": lambda: set_new(backends.cudnn, "tf32"),
    "everything": lambda: torch._C._set_fp32_precision_setter("generic", "all", "tf32"),
}


@pytest.fixture(autouse=True)
def untouched():
    yield
    torch._C._set_fp32_precision_setter("generic", "all", "none")
    set_fp32_precision(tf32=False)


def legacy():
    """What the flags say; they raise where the two interfaces disagree."""
    with backends.cudnn.flags(enabled=True, allow_tf32=backends.cudnn.allow_tf32):
        return (
            torch.get_float32_matmul_precision(),
            backends.cuda.matmul.allow_tf32,
            backends.cudnn.allow_tf32,
        )


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("before", BEFORE)
def test_both_interfaces_say_the_same_whatever_was_set_before(before, tf32):
    BEFORE[before]()
    set_fp32_precision(tf32=tf32)
    assert legacy() == ("high" if tf32 else "highest", tf32, tf32)
    assert effective_precision() == dict.fromkeys(
        ("fp32_precision_matmul", "fp32_precision_conv", "fp32_precision_rnn"),
        "tf32" if tf32 else "ieee",
    )


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("after", BEFORE)
def test_what_a_model_sets_while_it_is_built_is_put_right_again(after, tf32):
    set_fp32_precision(tf32=tf32)
    BEFORE[after]()
    set_fp32_precision(tf32=tf32)
    assert legacy()[1:] == (tf32, tf32)


def test_flags_alone_are_not_enough_where_a_model_set_the_newer_interface():
    """The neighbour that shows what the other tests are for."""
    set_fp32_precision(tf32=False)
    set_new(backends.cudnn.conv, "tf32")
    torch.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError, match="cuDNN"):
        legacy()


def test_a_torch_without_the_newer_interface_is_set_by_its_flags(monkeypatch):
    monkeypatch.setattr("ci_bench.suites.shared.worker.fp32_precision._settings", dict)
    set_fp32_precision(tf32=True)
    assert legacy() == ("high", True, True)
    assert effective_precision() == {}
