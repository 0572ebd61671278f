"""Casts to narrower types: complex numbers stay, and fp32 buffers that are rounded are named."""

import re

import pytest
import torch
from torch import nn

from ci_bench.suites.shared.worker.casts import cast_module, rounded_buffers


class Rotary(nn.Module):
    """Angles as language models keep them, in as many buffers."""

    def __init__(self, count=1):
        super().__init__()
        for number in range(count):
            angles = 1e4 ** -(torch.arange(8) / 8)
            self.register_buffer(f"inv_freq{number}", angles, persistent=False)


def mixed():
    module = nn.Module()
    module.norm = nn.BatchNorm2d(4)  # zeros, ones and a count are the same in bf16
    module.register_buffer("turn", torch.exp(1j * torch.arange(4)))
    module.register_buffer("narrow", torch.rand(4).bfloat16())
    module.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
    module.register_buffer("empty", torch.zeros(0))
    return module


@pytest.mark.parametrize(
    ("module", "dtype", "says"),
    [
        (Rotary(), torch.bfloat16, r"inv_freq0 by 0\.\d+ %"),
        (Rotary(), torch.float16, r"inv_freq0 by 0\.0\d+ %"),
        (
            Rotary(5),
            torch.bfloat16,
            r"inv_freq0 by .*, inv_freq1 by .*, inv_freq2 by [^,]*, 2 more",
        ),
        (mixed(), torch.bfloat16, ""),
        (nn.Linear(3, 3), torch.bfloat16, ""),
    ],
    ids=["bf16", "fp16", "several", "exact", "weights"],
)
def test_rounded_buffers_are_named(module, dtype, says):
    before = rounded_buffers(module, dtype)
    assert (not before) if not says else re.fullmatch(says, before)
    assert rounded_buffers(cast_module(module, dtype), dtype) == ""
