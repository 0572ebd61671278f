"""Batches of several sizes, and the largest that fits: the parts that suites share.

Sizes are drawn once, so all arms of both sides get the same sequence. No torch here; `marks` marks
tensors, and the engine searches.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import SizeLimits
from ci_bench.suites.shared.planning.arms import CompiledArm

SHARES = (1.0, 0.5, 0.75, 1.25, 1.5)
SHARES_OF_A_SEQUENCE = (1.0, 0.5, 0.625, 0.75, 0.875)
"""None longer than the model's own, which may be the most it takes."""
SMALLEST = 2
"""A size of 1 is a constant to dynamo."""


class Axis(StrEnum):
    """A dimension of the inputs whose size differs between batches."""

    BATCH = "batch"
    SEQUENCE = "sequence"


class DynamicShapes(StrEnum):
    """The way in which dynamo learns which sizes differ."""

    SYMBOLS = "symbols"
    """`torch.compile(dynamic=True)`: every size is a symbol, and one that the model asks about
    becomes a constant.
    """
    MARKED = "marked"
    """`mark_dynamic` on the dimensions that differ: one that becomes a constant is an error."""
    UNBACKED = "unbacked"
    """`mark_unbacked` on them: nothing may depend on the size that the first batch has."""


class Size(StrEnum):
    """A batch size that is found, not given."""

    LARGEST = "largest"
    """As many rows as fit into memory."""


VARIES = (Axis.BATCH,)
"""Axes that differ by default."""


def drawn_rows(batch: int, seed: int) -> tuple[int, ...]:
    """Return the rows of each batch, in an order drawn from the seed."""
    return _drawn(batch, SHARES, seed)


def drawn_lengths(length: int, seed: int) -> tuple[int, ...]:
    """Return the length of each batch's sequence, in another order than the rows."""
    return _drawn(length, SHARES_OF_A_SEQUENCE, seed + 1)


def _drawn(size: int, shares: Sequence[float], seed: int) -> tuple[int, ...]:
    order = list(shares)
    random.Random(seed).shuffle(order)  # noqa: S311 - sizes need no secrecy
    return tuple(max(SMALLEST, round(size * share)) for share in order)


def check_dynamic(
    place: str,
    *,
    dynamic: bool,
    varies: Sequence[Axis],
    how: DynamicShapes,
    largest: bool,
    arms: Iterable[CompiledArm],
) -> None:
    """Refuse settings of dynamic shapes without effect, and marks that an arm cannot use.

    Raises `BadConfig`.
    """
    if dynamic and largest:
        raise BadConfig(
            f"{place}.batch_size: largest is one size, and `dynamic: true` has several; leave one"
            " of them out"
        )
    if not dynamic:
        for name, setting, usual in (
            ("varies", tuple(varies), VARIES),
            ("dynamic_shapes", how, DynamicShapes.SYMBOLS),
        ):
            if setting != usual:
                raise BadConfig(f"{place}.{name}: shapes are not dynamic; add `dynamic: true`")
        return
    if how is DynamicShapes.SYMBOLS:
        return
    word = f"{place}.dynamic_shapes: {how}"
    for arm in arms:
        if arm.experiment is not None and not arm.experiment.by_dynamo:
            raise BadConfig(
                f"{word} is a mark for dynamo, and {arm.backend} is captured without it; leave"
                " it out"
            )
        if arm.dynamic is not None:
            raise BadConfig(
                f"{word} is contradicted by `dynamic` under `compile` or of an arm; leave one of"
                " them out"
            )


def limits_of(
    size: Any, options: Mapping[str, Any], sizes: Sequence[Any], place: str
) -> SizeLimits | None:
    """Return the limits of the search that a case's `size` requires; `None` for a fixed size.

    `sizes` are all of the entry's.

    Raises:
        BadConfig: the entry has limits, and no case searches.
    """
    if size == Size.LARGEST:
        return SizeLimits(**options.get("largest_batch", {}))
    if "largest_batch" in options and Size.LARGEST not in sizes:
        raise BadConfig(
            f"{place}.largest_batch: no batch size is searched for; use `batch_size: largest`, or"
            " leave it out"
        )
    return None
