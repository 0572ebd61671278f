"""Matching of base's items with head's beyond names: by several keys, then by least difference.

Pure.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_order(base: Sequence[Item], head: Sequence[Item]) -> Iterable[tuple[Item, Item]]:
    """Pair the first with the first, and so on, as far as both have them."""
    return zip(base, head, strict=False)


def pair_off(
    base: list[Item],
    head: list[Item],
    key: Callable[[Item], Hashable | None],
    pairs_of: Callable[[Sequence[Item], Sequence[Item]], Iterable[tuple[Item, Item]]] = in_order,
) -> list[tuple[Item, Item]]:
    """Remove from both lists the items of one key that `pairs_of` pairs.

    Items without a key stay.
    """
    sides: tuple[dict[Hashable, list[Item]], ...] = (defaultdict(list), defaultdict(list))
    for items, by_key in zip((base, head), sides, strict=True):
        for item in items:
            if (name := key(item)) is not None:
                by_key[name].append(item)
    pairs = [
        pair
        for name, before in sides[0].items()
        for pair in pairs_of(before, sides[1].get(name, []))
    ]
    for base_item, head_item in pairs:
        base.remove(base_item)
        head.remove(head_item)
    return pairs


def closest(
    base: Sequence[Item], head: Sequence[Item], size: Callable[[Item], float]
) -> list[tuple[Item, Item]]:
    """Pair as many as possible, in order on both sides, with the least total difference of sizes.

    The shortest edit script with these costs (Wagner and Fischer, 1974); where there are more on
    one side, those left over are what fits worst.
    """
    few, many = sorted((base, head), key=len)
    if not few:
        return []
    slack = len(many) - len(few)
    best: list[dict[int, tuple[float, int]]] = [dict.fromkeys(range(slack + 1), (0.0, 0))]
    for index, item in enumerate(few):
        costs: dict[int, tuple[float, int]] = {}
        cheapest, where = math.inf, 0
        for skipped in range(slack + 1):
            if best[-1][skipped][0] < cheapest:
                cheapest, where = best[-1][skipped][0], skipped
            costs[skipped] = cheapest + abs(size(item) - size(many[index + skipped])), where
        best.append(costs)
    skipped = min(best[-1], key=lambda skip: best[-1][skip][0])
    pairs: list[tuple[Item, Item]] = []
    for index in reversed(range(len(few))):
        pairs.insert(0, (few[index], many[index + skipped]))
        skipped = best[index + 1][skipped][1]
    return [(of_few, of_many) if few is base else (of_many, of_few) for of_few, of_many in pairs]
