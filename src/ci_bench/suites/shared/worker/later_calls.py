"""Results of later calls of one program, kept with those of the first call.

So base and head are compared on both. A later call from the same start and inputs is the same
quantity as the first, so it has the first call's rounding. In a program that keeps state it is
another quantity; its rounding is then taken to be as large. Imports torch.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Left = Mapping[str, Tensor]


def with_later_calls(
    plain: Left, later: Mapping[str, Left], runs: Sequence[Left]
) -> list[dict[str, Tensor]]:
    """Add the results of each `later` call, by its name, to the runs.

    These are the plain run's results, off by as much as the run's first call is off. Tensors that
    are the first call's are the same objects, so they are kept once.
    """
    found = []
    for run in runs:
        whole = dict(run)
        for call, left in later.items():
            for name, value in left.items():
                first, own = plain.get(name), run.get(name)
                same = first is not None and own is not None and equal(first, value)
                whole[of_call(name, call)] = (
                    own if same and own is not None else off_as_much(value, first, own)
                )
        found.append(whole)
    return found


def off_as_much(value: Tensor, plain: Tensor | None, run: Tensor | None) -> Tensor:
    """Return a value, off by as much as a run is off from the plain one."""
    if plain is None or run is None or run is plain or not value.is_floating_point():
        return value
    if not value.shape == plain.shape == run.shape:
        return value
    return (value.double() + (run.double() - plain.double()).nan_to_num()).to(value.dtype)


def of_call(name: str, call: str) -> str:
    """``output of the second call: 0``, of ``output: 0``."""
    kind, colon, rest = name.partition(":")
    return f"{kind} of the {call} call{colon}{rest}"


def alike(one: Left, other: Left) -> bool:
    """Return true if two calls have the same results, bit by bit."""
    return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)


def equal(one: Tensor, other: Tensor) -> bool:
    """Return true if two tensors of one type have the same values; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or (
        one.is_floating_point() and torch.equal(one.nan_to_num(), other.nan_to_num())
    )
