"""A model of 20 MiB, and what a change may do to its memory where the variable PLANT_MEMORY is set."""

import os

import torch
from torch import nn

WIDTH, LAYERS, FLOATS_OF_A_MIB = 1024, 5, 2**18


class Plain(nn.Module):
    """Five products of 4 MiB each. `kept` is what steps keep."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        self.kept: list[torch.Tensor] = []
        if "PLANT_MEMORY" in os.environ:
            self.plant()

    def plant(self) -> None:
        """Nothing in the plain model."""

    def keep(self) -> None:
        """Nothing in the plain model."""

    def get_example_inputs(self):
        return (torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def forward(self, rows):
        if "PLANT_MEMORY" in os.environ and not torch.compiler.is_compiling():
            self.keep()
        return self.layers(rows)


class Buffered(Plain):
    def plant(self) -> None:
        self.register_buffer("table", torch.ones(2 * FLOATS_OF_A_MIB))


class Leaking(Plain):
    def keep(self) -> None:
        self.kept.append(torch.ones(FLOATS_OF_A_MIB))


class Caching(Plain):
    """What fills up in the first steps: a peak, and no growth."""

    def keep(self) -> None:
        if len(self.kept) < 5:
            self.kept.append(torch.ones(FLOATS_OF_A_MIB))
