"""What is kept while steps are timed: copies in pages of their own; and writes in a row of calls."""

import gc
from pathlib import Path

import pytest
import torch
from malloc_heap import is_in_heap
from torch import nn

from ci_bench.suites.shared.worker.freshness import (
    kept_aside,
    prepared_write,
    read_state,
    set_aside,
    write_state,
)

VALUES = {
    "a matrix": torch.randn(3, 5),
    "columns first": torch.randn(3, 5).t(),
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "a part": torch.randn(7, 9)[1:4, 2:8],
    "one value, expanded": torch.randn(1).expand(4),
    "a scalar": torch.tensor(2.5),
    "nothing": torch.empty(0, 3),
    "booleans": torch.tensor([True, False, True]),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "bfloat16": torch.randn(5).bfloat16(),
    "float8": torch.ones(5).to(torch.float8_e4m3fn),
    "complex": torch.randn(3, dtype=torch.complex64),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "a weight": torch.nn.Parameter(torch.randn(2, 2)),
    "sparse": torch.eye(3).to_sparse(),
    "of four bits, two in a byte": torch.arange(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_is_set_aside_is_what_torch_would_copy(name: str) -> None:
    value = VALUES[name]
    plain = value.detach().to("cpu", copy=True)
    _, found, _ = set_aside([torch.ones(1), value, torch.ones(3)])
    assert (found.dtype, found.shape, found.layout, found.requires_grad) == (
        plain.dtype,
        plain.shape,
        plain.layout,
        False,
    )
    if plain.layout is torch.strided:
        assert found.stride() == plain.stride()
        same = (
            found.view(torch.uint8).tolist() == plain.view(torch.uint8).tolist()
            if "four" in name
            else torch.equal(found, plain)
        )
    else:
        same = torch.equal(found.to_dense(), plain.to_dense())
    assert same


def test_nothing_of_it_is_in_the_heap_whatever_its_size() -> None:
    values = [torch.randn(size) for size in (1, 100, 1_000, 3_000)]
    if not all(is_in_heap(value.clone().data_ptr()) for value in values):
        pytest.skip("malloc has small blocks elsewhere in this process")
    assert not any(is_in_heap(value.data_ptr()) for value in set_aside(values))


def test_the_copies_share_nothing_with_each_other_or_with_what_was_copied() -> None:
    values = [torch.zeros(3), torch.zeros(5, dtype=torch.int64), torch.zeros(1)]
    one, other, last = set_aside(values)
    one.fill_(1)
    last.fill_(2)
    assert (other.tolist(), [value.sum().item() for value in values]) == ([0] * 5, [0, 0, 0])


def test_its_pages_are_given_back_with_the_last_copy() -> None:
    (copy,) = set_aside([torch.randn(1 << 22)])
    address = copy.data_ptr()
    assert _is_mapped(address)
    del copy
    gc.collect()
    assert not _is_mapped(address)


def test_nothing_to_set_aside() -> None:
    assert set_aside([]) == []
    assert kept_aside({"a": 1, "b": ("text", None)}) == {"a": 1, "b": ("text", None)}


def test_a_tree_keeps_its_form_and_what_is_no_tensor() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    tree = (
        (torch.arange(3),),
        {"mask": torch.ones(2, 2).t(), "name": "text", "weight": weight},
        None,
    )
    (ids,), named, target = kept_aside(tree)
    assert (ids.tolist(), named["mask"].tolist(), named["name"], target) == (
        [0, 1, 2],
        [[1, 1], [1, 1]],
        "text",
        None,
    )
    assert named["weight"] is weight, "as `copied`: a subclass is nobody's to copy"
    assert not is_in_heap(ids.data_ptr())
    assert ids.data_ptr() != tree[0][0].data_ptr()


def _is_mapped(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(one, 16) for one in line.split()[0].split("-"))
        if low <= address < high:
            return True
    return False


@pytest.mark.parametrize(
    "name", [name for name in VALUES if name not in {"sparse", "one value, expanded"}]
)
def test_a_prepared_write_writes_what_copy_does(name) -> None:
    target = VALUES[name].detach().clone()
    value = VALUES[name].detach().clone().zero_() if target.dtype.itemsize > 1 else target.clone()
    whole, moved = target.clone(), target[...]
    prepared_write([(moved, value)])()
    assert torch.equal(bits(target), bits(whole.copy_(value)))


@pytest.mark.parametrize("other", [torch.zeros(2, 3, dtype=torch.float64), torch.zeros(3, 2).t()])
def test_a_prepared_write_converts_and_follows_strides(other) -> None:
    target = torch.ones(4, 3)
    prepared_write([(target[1:3], other), (target.t()[:, 0], torch.full((3,), 7.0))])()
    assert target.tolist() == [[7.0] * 3, [0.0] * 3, [0.0] * 3, [1.0] * 3]


def bits(value):
    """The bytes of a tensor, as numbers that can be compared."""
    return (
        torch.view_as_real(value.resolve_conj())
        if value.is_complex()
        else value.contiguous().view(torch.uint8)
        if value.dim()
        else value
    )


def two_heads(factory):
    """Two heads, of which one was trained, with the optimizer."""
    torch.manual_seed(1)
    module = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
    return module, factory(module.parameters())


def train(module, optimizer, *heads):
    for head in heads:
        optimizer.zero_grad(set_to_none=True)
        module[head](torch.ones(2, 3)).square().sum().backward()
        optimizer.step()


OPTIMIZERS = {
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.1),
    "fused Adam": lambda weights: torch.optim.Adam(weights, lr=0.1, fused=True),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "Adafactor": lambda weights: torch.optim.Adafactor(weights, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "trained", [(0,), (0, 1), (1,), ()], ids=["first", "both", "second", "none"]
)
def test_written_state_is_all_there_is(name, trained):
    """A step from a written state is the step from the state itself, also of a head that had state or none."""
    module, optimizer = two_heads(OPTIMIZERS[name])
    train(module, optimizer, 0, 0, *trained)
    state = read_state(module, optimizer)
    other, own = two_heads(OPTIMIZERS[name])
    train(other, own, 1, 1)
    write_state(state, other, own)
    assert read_state(other, own).keys() == state.keys()
    for one, two in ((module, optimizer), (other, own)):
        train(one, two, 0, 1)
    for before, after in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(before, after)


def test_capturable_state_stays():
    """A graph may write to its memory."""
    module, optimizer = two_heads(OPTIMIZERS["Adam"])
    train(module, optimizer, 0, 1)
    optimizer.param_groups[0]["capturable"] = True
    fresh, without = two_heads(OPTIMIZERS["Adam"])
    write_state(read_state(fresh, without), module, optimizer)
    assert all(optimizer.state.get(weight) for weight in module.parameters())
