"""Pack launches into leases: long enough to start cheaply, short enough that no slot waits.

Pure. Durations are expectations, from an earlier run or all alike; they affect waiting, never
verdicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from ci_bench.fleet.protocol import FleetLease

PIECES = (0.5, 0.25)
"""The shares of a slot's work in its first leases.

Factoring: Hummel, Schonberg & Flynn 1992, https://doi.org/10.1145/135226.135232.
"""
LAST = 3
"""The number of leases per slot that the rest is cut into.

Their sizes fall from a multiple of the mean to `SHORTEST`: a slot that is free early takes a longer
one, so all end together (trapezoid self-scheduling: Tzeng & Ni 1993,
https://doi.org/10.1109/71.205655).
"""
SHORTEST = 0.5
"""The size of the last lease, as a share of a lease's time besides its cases.

The mean of all leases is at least that time.
"""
FALL = 3
"""The power of the place from the end with which sizes fall, so slower and slower.

With an even fall, as a trapezoid's, the leases started last, except the shortest, were longer than
what was left for a slot.
"""
USUAL_S = 30.0
"""The assumed duration of a case's launch (both sides) if no case has a known one."""


def expectations(cases: Sequence[str], known_s: Mapping[str, float]) -> dict[str, float]:
    """Return each case's duration of a launch (s): as earlier, else as the median of the others."""
    spent = sorted(
        seconds for name in cases if (seconds := known_s.get(name)) is not None and seconds > 0
    )
    usual = spent[len(spent) // 2] if spent else USUAL_S
    return {name: seconds if (seconds := known_s.get(name, 0.0)) > 0 else usual for name in cases}


def pack(
    cases: Sequence[str],
    *,
    first: int,
    launches: int,
    slots: int,
    expected_s: Mapping[str, float],
    number: int,
    start_s: float = 0.0,
) -> list[FleetLease]:
    """Return leases of one launch each of all cases, the longest lease first.

    There are `launches` launches, from number `first` on. Longest processing time first into leases
    of falling sizes (`PIECES`, `LAST`). On average these last at least `start_s`, the time of a
    lease besides its cases. Each launch of a case is in a separate lease, for different slots to
    take.
    """
    total = sum(expected_s[name] for name in cases)
    beside = max(1, -(-slots // max(launches, 1)))
    if start_s > 0:
        beside = min(beside, max(1, int(total / start_s)))
    capacities = _capacities(total / beside, beside, start_s)[: len(cases)]
    longest_first = sorted(cases, key=lambda name: (-expected_s[name], name))
    bins = [tuple(part) for part in _spread(longest_first, capacities, expected_s)]
    leases = [
        (sum(expected_s[name] for name in part), part, launch)
        for launch in range(first, first + launches)
        for part in bins
    ]
    ordered = sorted(leases, key=lambda lease: (-lease[0], lease[2]))
    return [
        FleetLease(number=number + place, cases=part, first=launch, launches=1, expected_s=seconds)
        for place, (seconds, part, launch) in enumerate(ordered)
    ]


def _capacities(share_s: float, beside: int, start_s: float) -> list[float]:
    """Return the sizes of the leases (s) of a number of slots, the largest first.

    Those that would be too short are left out.
    """
    first = [piece * share_s for piece in PIECES if piece * share_s >= 2 * start_s]
    rest_s = share_s - sum(first)
    last = max((count for count in range(1, LAST + 1) if rest_s / count >= start_s), default=1)
    mean_s, count = rest_s / last, last * beside
    shortest_s = SHORTEST * min(start_s, mean_s)
    longest_s = shortest_s + (FALL + 1) * (mean_s - shortest_s)
    falling = [
        shortest_s + (longest_s - shortest_s) * ((place + 0.5) / count) ** FALL
        for place in reversed(range(count))
    ]
    return sorted([*(size for size in first for _ in range(beside)), *falling], reverse=True)


def _spread(
    cases: Sequence[str], capacities: Sequence[float], expected_s: Mapping[str, float]
) -> Iterator[list[str]]:
    """Assign each case, in this order, to the part that then has the most room.

    Short parts get short cases.
    """
    parts: list[list[str]] = [[] for _ in capacities]
    heap = [(-capacity, place) for place, capacity in enumerate(capacities)]
    heapify(heap)
    for name in cases:
        used_s, place = heappop(heap)
        parts[place].append(name)
        heappush(heap, (used_s + expected_s[name], place))
    yield from (part for part in parts if part)
