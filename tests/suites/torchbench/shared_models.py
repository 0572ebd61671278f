"""Models of which several processes train parts of a batch, or cannot."""

import torch
from torch import nn
from torch.nn import functional

ROWS, WIDTH, CLASSES = 7, 12, 4


class Net(nn.Module):
    """Two layers, with `between` between them."""

    def __init__(self, between: nn.Module, reduction: str = "mean") -> None:
        super().__init__()
        self.one, self.between, self.two = (
            nn.Linear(WIDTH, WIDTH),
            between,
            nn.Linear(WIDTH, CLASSES),
        )
        self.reduction = reduction

    def get_example_inputs(self):
        return (torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)),)

    def get_target(self):
        return torch.arange(ROWS) % CLASSES

    def loss(self, outputs, target):
        return functional.cross_entropy(outputs, target, reduction=self.reduction)

    def forward(self, rows):
        return self.two(self.between(self.one(rows)))


class Noise(nn.Module):
    def forward(self, rows):
        return rows + torch.randn_like(rows)


def summed_loss():
    return Net(nn.Tanh(), "sum")


def normalised():
    return Net(nn.BatchNorm1d(WIDTH))


def dropping():
    return Net(nn.Dropout(0.3))


def noisy():
    return Net(Noise())


def projected():
    """Without a loss of its own."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES)), (
        torch.randn(ROWS, WIDTH),
    )


def one_row():
    return nn.Linear(WIDTH, CLASSES), (torch.randn(1, WIDTH),)
