"""Errors of torch that say what a user can do: provoked in torch itself, so that a new wording is noticed."""

import pytest
import torch
from torch import nn

from ci_bench.suites.shared.worker.torch_errors import with_cause
from ci_bench.suites.torchbench.status import Word, in_words
from ci_bench.worker.worker import _describe


def dropped():
    """All layers are dropped: the loss is the input's."""
    torch.ones(3).sum().backward()


def lazy():
    torch.zeros_like(nn.LazyLinear(4).weight)


def lazy_copy():
    nn.LazyLinear(4).weight.detach().clone()


CASES = [
    (dropped, "the loss of this step depends on no trained weight"),
    (lazy, "the model has lazy layers"),
    (lazy_copy, "the model has lazy layers"),
]


@pytest.mark.parametrize(("fails", "cause"), CASES)
def test_a_known_cause_comes_first(fails, cause):
    with pytest.raises((RuntimeError, ValueError)) as raised:
        fails()
    assert _describe(raised.value).startswith(cause)
    worded = str(in_words(raised.value, Word.FAIL_TO_RUN, Word.OOM))
    assert worded.startswith(f"fail_to_run: {cause}")
    assert _describe(RuntimeError(worded)).count(cause) == 1


def test_other_errors_stay():
    assert with_cause("ValueError: no") == "ValueError: no"
