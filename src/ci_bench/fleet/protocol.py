"""The requests to a fleet's engine, and its answers.

An engine starts work and reports its end; it decides nothing. A lease is some launches of some
cases, measured with both sides on one slot, and never split. A slot is one device of a machine,
with one lease at a time. Measurements decide which machines are identical, never labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

EVERY = "*"
"""All slots, instead of a slot's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One device that takes a lease at a time.

    `labels` are its owner's description (``gpu=H100``).
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLease:
    """Some launches of some cases, for one slot."""

    number: int
    """Number of the lease in its run."""
    cases: tuple[str, ...]
    """Ids of the cases."""
    first: int
    """Number of its first launch, among all launches of its cases."""
    launches: int
    """Launches of each case."""
    expected_s: float
    """Expected duration (s)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseOrder:
    """One attempt at a lease on one slot, counted from 1."""

    lease: FleetLease
    attempt: int
    slot: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedLease:
    """The end of an attempt."""

    order: LeaseOrder
    """Attempt that ended."""
    began_s: float
    """Time when the slot began to work on it, by one clock for all (s)."""
    ended_s: float
    """Time when the slot was free again, by the same clock (s)."""
    folder: Path | None = None
    """Folder with its documents; `None` if it has none."""
    reason: str = ""
    """Reason for missing documents; empty if there are some."""


class Engine(Protocol):
    """Runs leases. `close` ends what still runs."""

    def slots(self) -> Sequence[Slot]:
        """Return the present slots. One that is gone is lost, with the lease on it."""

    def submit(self, order: LeaseOrder) -> None:
        """Start an attempt on the slot that it names, which is free; do not block."""

    def finished(self, timeout_s: float) -> Sequence[EndedLease]:
        """Return attempts that ended since the last call, each once.

        Wait for one, but no longer than `timeout_s`.
        """

    def close(self) -> None:
        """End everything."""
