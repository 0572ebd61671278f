"""Find slots that deviate from their peers (slower, faster, noisier) by their launches of base.

Pure.

Base is the same code on every slot, so base against base of the same case over slots shows the
slot. This needs no additional measurement. A change between base and head cancels the slot's effect
on both, so a deviating slot biases no verdict by much. It widens every interval, though, and the
slots of the fleet are not as equal as its owner assumes.

A slot deviates if the median over its cases does, beyond the scatter of its cases, and if it
differs in that direction from most of its peers individually. With only two slots it is undecidable
which one deviates. A slot that shared its cases with a slow one is not fast.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from ci_bench.records.results import CaseResult, Results, Status, Unit
from ci_bench.statistics.special_functions import stdtrit

APART = 0.05
"""The largest accepted difference of a slot's times from its peers' (relative)."""
NOISIER = 2.0
"""The largest accepted ratio of its samples' spread within a launch to that of its peers."""
LIMITS = {"time": log(1.0 + APART), "spread": log(NOISIER)}
SHARE = {"time": 0.9, "spread": 0.8}
"""The share of a limit that must show.

A slot that deviates by just the limit is below it half of the time, by noise.
"""
SHARE_OF_A_PEER = {"time": 0.7, "spread": 0.5}
"""The share of a limit that must show against an individual peer.

Fewer cases are available for that.
"""
ALARM = {"time": 0.0005, "spread": 0.005}
"""The probability that only the scatter of cases shows as much (one-sided).

A normal slot must reach the limit besides.
"""
FEWEST_CASES, FEWEST_PEERS, FEWEST_SHARED = 5, 2, 2
FEWEST_SAMPLES = 4
WINDOWS = (5, 20)
"""The numbers of a slot's last leases to inspect.

Few, for a quick reaction; more, if each has only one case.
"""

Series = tuple[str, str]
"""A metric's name and its arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReading:
    """One series of a case in one launch, as logarithms.

    `time` is the median time (of seconds), `spread` the relative spread of samples: their mean
    absolute deviation from the median, or `None` if all are alike, as by a coarse clock.
    """

    time: float
    spread: float | None


Readings = Mapping[str, Mapping[Series, SlotReading]]
"""A lease's measurements of base, by case."""


def readings(base: Results) -> Readings:
    """Return the times of each case that passed, with enough samples.

    Compile times and the like have only one.
    """
    by_case = {row.case.id: dict(_series(row)) for row in base.cases if row.status is Status.OK}
    return {case: series for case, series in by_case.items() if series}


def _series(row: CaseResult) -> Iterable[tuple[Series, SlotReading]]:
    for metric in row.metrics:
        if metric.unit is Unit.SECONDS:
            for launch in metric.launches:
                if len(launch.values) >= FEWEST_SAMPLES and min(launch.values) > 0:
                    yield (metric.name, metric.arm), _reading(launch.values)


def _reading(values: Sequence[float]) -> SlotReading:
    middle = median(values)
    spread = fmean(abs(value - middle) for value in values) / middle
    return SlotReading(time=log(middle), spread=log(spread) if spread > 0 else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    """A deviation of a slot; `beyond` is its size, in logarithms."""

    what: str
    beyond: float
    cases: int
    peers: frozenset[str]


@dataclass(kw_only=True, slots=True)
class Health:
    """The measurements of each slot so far, by slot and by case."""

    _recent: dict[str, deque[Readings]] = field(default_factory=dict)
    _by_case: dict[str, dict[str, list[Mapping[Series, SlotReading]]]] = field(default_factory=dict)

    def note(self, slot: str, lease: Readings) -> None:
        """Add the readings of a lease that counts."""
        self._recent.setdefault(slot, deque(maxlen=max(WINDOWS))).append(lease)
        for case, series in lease.items():
            self._by_case.setdefault(case, {}).setdefault(slot, []).append(series)

    def forget(self, slot: str) -> None:
        """Forget a slot whose leases don't count any more."""
        self._recent.pop(slot, None)
        for slots in self._by_case.values():
            slots.pop(slot, None)

    def off(self, slot: str) -> str:
        """Describe how a slot deviates from its peers.

        Empty if it doesn't, or if that is undecidable. While a peer deviates by more, the result is
        empty: that peer may be the reason why this slot seems to.
        """
        finding = self._finding(slot)
        if finding is None:
            return ""
        if any(self._is_worse(peer, finding) for peer in finding.peers):
            return ""
        where = f"(base, over {finding.cases} cases and {len(finding.peers)} other slots)"
        if finding.what == "spread":
            return f"{exp(finding.beyond):.1f} times as noisy as its peers {where}"
        return (
            f"{abs(exp(finding.beyond) - 1):.1%} {'slower' if finding.beyond > 0 else 'faster'}"
            f" than its peers {where}"
        )

    def _is_worse(self, peer: str, than: "_Finding") -> bool:
        other = self._finding(peer)
        return (
            other is not None and other.what == than.what and abs(other.beyond) > abs(than.beyond)
        )

    def _finding(self, slot: str) -> "_Finding | None":
        """Return a slot's deviation, times first, by its last leases or else by more of them."""
        for window in WINDOWS:
            leases = [*self._recent.get(slot, ())][-window:]
            for what, limit in LIMITS.items():
                differences = self._against_peers(slot, leases, what)
                beyond = _beyond(differences, limit, what)
                if beyond > 0 or (beyond < 0 and what == "time"):
                    peers = frozenset(peer for each in differences.values() for peer in each)
                    return _Finding(what=what, beyond=beyond, cases=len(differences), peers=peers)
        return None

    def _against_peers(
        self, slot: str, leases: Sequence[Readings], what: str
    ) -> dict[str, dict[str, float]]:
        """Return the slot's differences from its peers, by case and peer (of logarithms)."""
        by_case: dict[str, list[Mapping[Series, SlotReading]]] = defaultdict(list)
        for lease in leases:
            for case, series in lease.items():
                by_case[case].append(series)
        differences: dict[str, dict[str, float]] = {}
        for case, launches in by_case.items():
            mine = _mean(launches, what)
            for peer, theirs in self._by_case[case].items():
                if peer != slot and (
                    shared := [
                        mine[key] - value
                        for key, value in _mean(theirs, what).items()
                        if key in mine
                    ]
                ):
                    differences.setdefault(case, {})[peer] = fmean(shared)
        return differences


def _mean(launches: Sequence[Mapping[Series, SlotReading]], what: str) -> dict[Series, float]:
    values: dict[Series, list[float]] = defaultdict(list)
    for launch in launches:
        for key, reading in launch.items():
            if (value := getattr(reading, what)) is not None:
                values[key].append(value)
    return {key: fmean(each) for key, each in values.items()}


def _beyond(differences: Mapping[str, Mapping[str, float]], limit: float, what: str) -> float:
    """Return the deviation of a slot beyond a limit, in logarithms; 0 if it is within.

    Student's t of the cases' mean differences, around their median, which one slow case doesn't
    move.
    """
    each = [fmean(peers.values()) for peers in differences.values()]
    if len(each) < FEWEST_CASES:
        return 0.0
    middle = median(each)
    explained = float(stdtrit(len(each) - 1, 1.0 - ALARM[what])) * stdev(each) / sqrt(len(each))
    if (
        abs(middle) < SHARE[what] * limit
        or abs(middle) <= explained
        or not _from_most(differences, middle, SHARE_OF_A_PEER[what] * limit)
    ):
        return 0.0
    return middle


def _from_most(differences: Mapping[str, Mapping[str, float]], middle: float, least: float) -> bool:
    """Return whether it differs in this direction, by at least `least`, from most of its peers.

    Only peers that share enough cases with it count.
    """
    by_peer: dict[str, list[float]] = defaultdict(list)
    for peers in differences.values():
        for peer, value in peers.items():
            by_peer[peer].append(value)
    shared = [median(values) for values in by_peer.values() if len(values) >= FEWEST_SHARED]
    beyond = sum(value * (1 if middle > 0 else -1) > least for value in shared)
    return len(shared) >= FEWEST_PEERS and 2 * beyond > len(shared)
