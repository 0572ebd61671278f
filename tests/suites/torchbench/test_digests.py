"""Whether steps change a model's buffers is known by digests: large buffers are not copied to the host, and each change shows."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from ci_bench.suites.shared.worker.digests import WORD, WORDS
from ci_bench.suites.torchbench import snapshot, timed
from ci_bench.suites.torchbench.snapshot import digests_of

pytestmark = pytest.mark.engine


class Holding(nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)


LARGE = WORDS * WORD // 4 + 1000
BUFFERS = {
    "floats": torch.randn(7, 5),
    "bf16": torch.randn(9).to(torch.bfloat16),
    "flags": torch.zeros(11, dtype=torch.bool),
    "count": torch.zeros((), dtype=torch.int64),
    "large": torch.zeros(LARGE),
    "turned": torch.randn(6, 4).t(),
    "complex": torch.randn(3, dtype=torch.complex64),
    "empty": torch.empty(0),
    "holes": torch.full((3,), float("nan")),
}


def test_the_same_bytes_have_the_same_digest():
    held = Holding(**BUFFERS)
    assert digests_of(held) == digests_of(deepcopy(held))
    assert digests_of(held).keys() == BUFFERS.keys()


@pytest.mark.parametrize("place", [0, -1, 1])
@pytest.mark.parametrize("name", [name for name, value in BUFFERS.items() if value.numel()])
def test_each_change_shows(name, place):
    held = Holding(**deepcopy(BUFFERS))
    before = digests_of(held)
    flat = getattr(held, name).as_strided((BUFFERS[name].numel(),), (1,))
    if place < flat.numel():
        flat[place] = 1.0
        after = digests_of(held)
        assert [one for one in before if before[one] != after[one]] == [name]


@pytest.mark.parametrize(
    "change", [lambda value: value.flip(0), lambda value: value.roll(1), lambda value: -value]
)
def test_moved_values_show(change):
    value = torch.randn(1000)
    assert digests_of(Holding(value=value)) != digests_of(Holding(value=change(value)))


def test_swapped_pieces_show():
    value = torch.randn(WORDS * WORD // 4 * 2)
    assert digests_of(Holding(value=value)) != digests_of(
        Holding(value=value.roll(WORDS * WORD // 4))
    )


class Counting(nn.Module):
    def __init__(self, *, learns):
        super().__init__()
        self.learns = learns
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        if self.learns:
            self.seen += 1
        return x


@pytest.mark.parametrize("learns", [True, False])
def test_a_program_copies_no_buffer_to_the_host(monkeypatch, learns):
    def refuse(_):
        raise AssertionError("copied to the host")

    monkeypatch.setattr(snapshot, "_host", refuse)
    module = Counting(learns=learns)
    program = timed.ModelProgram.__new__(timed.ModelProgram)
    program._ready = type("Ready", (), {"module": module, "samples": ()})()
    program._training = program._whole = False

    program.remember()
    assert not program.learns
    module(torch.ones(4))

    assert program.learns is learns
