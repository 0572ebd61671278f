"""Intermediate results that several parts of a report use, computed once for each comparison.

Owns how long that is kept: as long as the comparison. Which things these are, each says where it is
found.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ref

from ci_bench.records.comparison import Comparison

T = TypeVar("T")


def once(find: Callable[[Comparison], T]) -> Callable[[Comparison], T]:
    """Cache results of a comparison while the comparison exists: a report needs them many times.

    It is known by which comparison it is, not by what that holds: to compare two of them takes as
    long as to find it again. All callers get the same object, which therefore none may change.
    """
    cache: dict[int, tuple[ref[Comparison], T]] = {}

    @wraps(find)
    def find_once(comparison: Comparison) -> T:
        place = id(comparison)
        if place not in cache:
            cache[place] = ref(comparison, lambda _: cache.pop(place, None)), find(comparison)
        return cache[place][1]

    return find_once
