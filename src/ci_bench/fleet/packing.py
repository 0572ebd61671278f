"""Which launches make a lease: long enough that its start is a small part of it, short enough that no slot waits for another.

Pure. Durations are expectations, of an earlier run or all alike; they decide about waiting, and nothing about verdicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from ci_bench.fleet.protocol import Lease

PIECES = (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125)
"""The shares of what falls to one slot that its leases have: large ones first, so that the last ones, for which slots wait, are
short (factoring: Hummel, Schonberg & Flynn 1992, https://doi.org/10.1145/135226.135232)."""
USUAL_S = 30.0
"""What a launch of a case is taken to last (both sides) where nothing is known of any."""


def expectations(cases: Sequence[str], known_s: Mapping[str, float]) -> dict[str, float]:
    """How long a launch of each case lasts (s): as before, else as the median of the others."""
    spent = sorted(seconds for name in cases if (seconds := known_s.get(name)) is not None and seconds > 0)
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
) -> list[Lease]:
    """Leases of one launch each for `launches` launches of all cases, from `first` on, the longest lease first.

    Longest processing time first into leases of the sizes `PIECES`; none is meant to last less than `start_s`, which is what a
    lease takes besides its cases. Each launch of a case is in a lease of its own, so that different slots can take them.
    """
    total = sum(expected_s[name] for name in cases)
    beside = max(1, -(-slots // max(launches, 1)))
    if start_s > 0:
        beside = min(beside, max(1, int(total / start_s)))
    sizes = _sizes(total / beside, start_s)
    capacities = sorted((size for size in sizes for _ in range(beside)), reverse=True)[: len(cases)]
    longest_first = sorted(cases, key=lambda name: (-expected_s[name], name))
    bins = [tuple(part) for part in _spread(longest_first, capacities, expected_s)]
    made = [(sum(expected_s[name] for name in part), part, launch) for launch in range(first, first + launches) for part in bins]
    ordered = sorted(made, key=lambda one: (-one[0], one[2]))
    return [
        Lease(number=number + place, cases=part, first=launch, launches=1, expected_s=seconds)
        for place, (seconds, part, launch) in enumerate(ordered)
    ]


def _sizes(share_s: float, start_s: float) -> list[float]:
    """The sizes of the leases of one slot (s) without those that would be too short; the others share their part."""
    kept = [piece for piece in PIECES if piece * share_s >= start_s] or [1.0]
    return [piece * share_s / sum(kept) for piece in kept]


def _spread(cases: Sequence[str], capacities: Sequence[float], expected_s: Mapping[str, float]) -> Iterator[list[str]]:
    """Each case, in this order, to the part that is then the least full for its size."""
    parts: list[list[str]] = [[] for _ in capacities]
    heap = [(0.0, place) for place in range(len(capacities))]
    filled = [0.0] * len(capacities)
    heapify(heap)
    for name in cases:
        _, place = heappop(heap)
        parts[place].append(name)
        filled[place] += expected_s[name]
        heappush(heap, (filled[place] / capacities[place] if capacities[place] else 0.0, place))
    yield from (part for part in parts if part)
