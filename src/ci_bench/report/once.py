"""Intermediate results that several parts of a report use, computed once for each comparison.

They are kept as long as the comparison. Each function that has such a result is decorated.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ref

from ci_bench.records.comparison import Comparison

T = TypeVar("T")


def once(find: Callable[[Comparison], T]) -> Callable[[Comparison], T]:
    """Cache results of a comparison while the comparison exists: a report needs them many times.

    The key is the comparison's identity, not its content, which takes as long to compare as the
    result takes to compute. All callers get the same object, so none may change it.
    """
    cache: dict[int, tuple[ref[Comparison], T]] = {}

    @wraps(find)
    def find_once(comparison: Comparison) -> T:
        place = id(comparison)
        if place not in cache:
            cache[place] = ref(comparison, lambda _: cache.pop(place, None)), find(comparison)
        return cache[place][1]

    return find_once
