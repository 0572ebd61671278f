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
    unshaken: Left, later: Mapping[str, Left], runs: Sequence[Left]
) -> list[dict[str, Tensor]]:
    """Add the results of each `later` call, by its name, to the runs.

    These are the plain run's results, off by as much as the run's first call is off. Tensors that
    are the first call's are the same objects, so they are kept once.
    """
    extended_runs = []
    for run in runs:
        extended = dict(run)
        for call, results in later.items():
            for name, value in results.items():
                first, shaken = unshaken.get(name), run.get(name)
                same = first is not None and shaken is not None and equal(first, value)
                extended[of_call(name, call)] = (
                    shaken if same and shaken is not None else off_as_much(value, first, shaken)
                )
        extended_runs.append(extended)
    return extended_runs


def off_as_much(value: Tensor, unshaken: Tensor | None, run: Tensor | None) -> Tensor:
    """Return a value, off by as much as a run is off from the unshaken one."""
    if unshaken is None or run is None or run is unshaken or not value.is_floating_point():
        return value
    if not value.shape == unshaken.shape == run.shape:
        return value
    return (value.double() + (run.double() - unshaken.double()).nan_to_num()).to(value.dtype)


def of_call(name: str, call: str) -> str:
    """Return a name such as ``output of the second call: 0``, from ``output: 0``."""
    kind, colon, rest = name.partition(":")
    return f"{kind} of the {call} call{colon}{rest}"


def alike(first: Left, second: Left) -> bool:
    """Return true if two calls have the same results, bit by bit."""
    return first.keys() == second.keys() and all(equal(first[name], second[name]) for name in first)


def equal(first: Tensor, second: Tensor) -> bool:
    """Return true if two tensors of one type have the same values; NaN equals NaN."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(first, second) or (
        first.is_floating_point() and torch.equal(first.nan_to_num(), second.nan_to_num())
    )
