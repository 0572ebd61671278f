"""The worker's half of the six kinds of work: a step takes about a millisecond on an H100."""

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.gpu.measuring import CallProgram
from ci_bench.records.results import Case
from ci_bench.suites.contract import Context, Evidence

SMALL = 16
"""The divisor of all sizes on the simulated card, which computes on the CPU."""
LEAST_BYTES = 12 << 30
"""The memory below which a card counts as simulated."""


def open_workload(case: Case, context: Context) -> "CardWorkload":
    """Open the workload of one case."""
    return CardWorkload(case.name, context.device)


class CardWorkload:
    """One kind of work."""

    def __init__(self, name: str, device: str) -> None:
        """Choose the work `name`, one of `card_work.WORK`."""
        self._name, self._device = name, device

    def prepare(self) -> None:
        """Do nothing: nothing has to be fetched."""

    def open(self, arm: str) -> CallProgram:  # noqa: ARG002 - there is one arm
        """Build a fresh program."""
        torch.manual_seed(0)
        real = torch.cuda.get_device_properties(self._device).total_memory > LEAST_BYTES
        return CallProgram(PIECES[self._name](self._device, 1 if real else SMALL))

    def verify(self, arms: tuple[str, ...]) -> Evidence:  # noqa: ARG002 - the contract's signature
        """Return no evidence."""
        return Evidence()


def _products(device: str, share: int) -> Callable[[], object]:
    size = 4096 // share
    factor = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    out = torch.empty_like(factor)

    def step() -> None:
        for _ in range(5):
            torch.mm(factor, factor, out=out)

    return step


def _copies(device: str, share: int) -> Callable[[], object]:
    source = torch.randn((256 << 20) // share // 4, device=device)
    target = torch.empty_like(source)

    def step() -> None:
        for _ in range(5):
            target.copy_(source)

    return step


def _tiny(device: str, share: int) -> Callable[[], object]:
    value = torch.ones(16, device=device)
    count = 200 // share

    def step() -> None:
        for _ in range(count):
            value.add_(0.0)

    return step


def _mlp_training(device: str, share: int) -> Callable[[], object]:
    width = 1024 // share
    layers = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    model = nn.Sequential(*layers).to(device)
    inputs = torch.randn(256, width, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def _convolution(device: str, share: int) -> Callable[[], object]:
    layer = nn.Conv2d(64, 64, 3, padding=1).to(device)
    side = max(8, 112 // share)
    images = torch.randn(max(2, 64 // share), 64, side, side, device=device)

    def step() -> None:
        layer.zero_grad(set_to_none=True)
        layer(images).sum().backward()

    return step


def _lstm(device: str, share: int) -> Callable[[], object]:
    width = 512 // share
    cell = nn.LSTM(width, width).to(device)
    inputs = torch.randn(100 // min(share, 5), 64 // share, width, device=device)

    def step() -> None:
        cell.zero_grad(set_to_none=True)
        cell(inputs)[0].sum().backward()

    return step


PIECES: dict[str, Callable[[str, int], Callable[[], object]]] = {
    "products": _products,
    "copies": _copies,
    "tiny": _tiny,
    "mlp_training": _mlp_training,
    "convolution": _convolution,
    "lstm": _lstm,
}
