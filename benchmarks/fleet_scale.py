"""Measures the cost and waits of coordinating a large fleet, in virtual time.

The fleet has 1,000 slots for 100,000 cases.

``python -m benchmarks.fleet_scale --json fleet_scale.json``

Slots take the time that their leases' cases take (log-normal, median 30 s and a factor of 2 at one
sd) and a start of 20 s each; expectations are off by a factor (log-normal, 1.2 at one sd); with
``--first`` there are none but by the run's own leases. After each look a share of the cases stays
open (`OPEN`). Documents are not read here: what judging them costs is in `judge_scale`. Prints the
coordinator's CPU time for each launch of a case, its memory, and the makespan next to the ideal,
which is all work shared out evenly.
"""

import argparse
import heapq
import random
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench.fleet.coordinator import Coordinator
from ci_bench.fleet.protocol import EndedLease, LeaseOrder, Slot
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records.results import Loss

LOOKS = SequentialRule().looks
OPEN = {1: 0.6, 2: 0.35, 3: 0.2, 4: 0.1, 6: 0.05, 8: 0.01, 12: 0.005, 16: 0.0}
"""The share of cases that is open after so many launches; the simulated rule takes 2.6 of them on
average.
"""
START_S, MEDIAN_S, SPREAD, MISJUDGED = 20.0, 30.0, 0.69, 0.18


@dataclass(kw_only=True, slots=True)
class VirtualFleet:
    """Slots in virtual time."""

    names: Sequence[str]
    """The names of all slots."""
    lasts_s: dict[str, float]
    """The seconds of each case, by its id."""
    dying: dict[str, float]
    """The time at which a slot is lost (s), with the lease that it holds then; by slot."""
    now: float = 0.0
    """The virtual time (s)."""
    busy_s: float = 0.0
    """The seconds of all leases that ended, summed."""
    running: list[tuple[float, int, float, LeaseOrder]] = field(default_factory=list)
    """A heap of leases: end (s), number, begin (s), order."""
    count: int = 0
    """The number of leases so far, which orders those that end together."""
    _there: list[Slot] = field(default_factory=list)
    """The slots that are not lost."""

    def __post_init__(self) -> None:
        """Start with all slots."""
        self._there = [Slot(name=name) for name in self.names]

    def clock(self) -> float:
        """Return the virtual seconds."""
        return self.now

    def slots(self) -> Sequence[Slot]:
        """Return the slots that are not lost."""
        return self._there

    def submit(self, order: LeaseOrder) -> None:
        """Start a lease, which will take as long as its cases do."""
        seconds = START_S + sum(self.lasts_s[name] for name in order.lease.cases)
        self.count += 1
        heapq.heappush(self.running, (self.now + seconds, self.count, self.now, order))

    def finished(self, _timeout_s: float) -> Sequence[EndedLease]:
        """Return the next lease to end, and move the time there."""
        at, _, began, order = heapq.heappop(self.running)
        self.now = at
        death = self.dying.get(order.slot)
        if death is not None and at >= death:
            self._there = [slot for slot in self._there if slot.name != order.slot]
            return []
        self.busy_s += at - began
        return [EndedLease(order=order, began_s=began, ended_s=at, folder=Path())]

    def close(self) -> None:
        """Do nothing: nothing runs."""


@dataclass(kw_only=True, slots=True)
class Nothing:
    """A journal that keeps nothing."""

    def begun(self, order: LeaseOrder) -> None:
        """Keep nothing."""

    def delivered(self, ended: EndedLease) -> None:
        """Keep nothing."""

    def lost(self, loss: Loss, took_s: float) -> None:
        """Keep nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Reported figures of one fleet."""

    cases: int
    """The number of cases."""
    slots: int
    """The number of slots."""
    launches: int
    """The number of launches of cases that were delivered."""
    leases: int
    """The number of delivered leases."""
    lost: int
    """The number of lost leases."""
    cpu_ms_per_launch: float
    """The coordinator's CPU time for each launch of a case (ms)."""
    peak_mib: float
    """The peak resident memory of the process (MiB)."""
    makespan_s: float
    """The virtual time until the last lease ended (s)."""
    ideal_s: float
    """The makespan if all work was shared out evenly (s)."""
    ratio: float
    """`makespan_s` over `ideal_s`."""


def simulate(*, cases: int, slots: int, lost: int, seed: int, first: bool = False) -> Figures:
    """Simulate one run of a fleet.

    If it is the `first` of its plan, the durations of cases are unknown.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation
    names = [f"suite/case_{number}[size={number % 97},dtype=fp32]" for number in range(cases)]
    lasts_s = {name: MEDIAN_S * rng.lognormvariate(0.0, SPREAD) for name in names}
    expected_s = {
        name: seconds * rng.lognormvariate(0.0, MISJUDGED) for name, seconds in lasts_s.items()
    }
    hosts = [f"node{number // 8}/gpu{number % 8}" for number in range(slots)]
    dying = {name: rng.uniform(0.0, 3600.0) for name in rng.sample(hosts, lost)}
    fleet = VirtualFleet(names=hosts, lasts_s=lasts_s, dying=dying)
    counted = [0]

    known_s = {} if first else dict(expected_s)

    def accept(ended: EndedLease) -> None:
        counted[0] += len(ended.order.lease.cases)
        if first:
            known_s.update((name, expected_s[name]) for name in ended.order.lease.cases)

    order = rng.sample(names, len(names))
    coordinator = Coordinator(
        engine=fleet,
        looks=LOOKS,
        still_open=lambda look: order[: int(OPEN[look] * len(order))],
        accept=accept,
        journal=Nothing(),
        clock=fleet.clock,
        known_s=known_s,
        start_s=START_S,
    )
    began = time.process_time()
    outcome = coordinator.run(names)
    spent_s = time.process_time() - began
    ideal_s = fleet.busy_s / (slots - lost / 2)
    return Figures(
        cases=cases,
        slots=slots,
        launches=counted[0],
        leases=len(outcome.delivered),
        lost=len(outcome.losses),
        cpu_ms_per_launch=1000 * spent_s / counted[0],
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        makespan_s=fleet.now,
        ideal_s=ideal_s,
        ratio=fleet.now / ideal_s,
    )


def row(of: Figures) -> dict[str, str]:
    """Return a row of the printed table."""
    return {
        "cases x slots": f"{of.cases:,} x {of.slots:,}",
        "launches": f"{of.launches:,}",
        "leases (lost)": f"{of.leases:,} ({of.lost})",
        "CPU a launch": f"{of.cpu_ms_per_launch:.3f} ms",
        "peak": f"{of.peak_mib:.0f} MiB",
        "makespan": f"{of.makespan_s:,.0f} s",
        "over the ideal": f"{of.ratio:.3f}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet_scale", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=1_000)
    parser.add_argument(
        "--lost", type=int, default=0, help="slots that are lost within the first hour"
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="nothing is known of how long cases take until leases show it",
    )
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    figures = simulate(
        cases=options.cases,
        slots=options.slots,
        lost=options.lost,
        seed=options.seed,
        first=options.first,
    )
    publish(
        render("A fleet in virtual time", [row(figures)]),
        {"benchmark": "fleet_scale", "results": [asdict(figures)]},
        options.json,
    )


if __name__ == "__main__":
    main()
