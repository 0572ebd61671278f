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
    """A number of `launches` of these cases, by id.

    `first` is the number of the first of them among all launches of its cases.
    """

    number: int
    cases: tuple[str, ...]
    first: int
    launches: int
    expected_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseOrder:
    """One attempt at a lease on one slot, counted from 1."""

    lease: FleetLease
    attempt: int
    slot: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedLease:
    """The end of an attempt: the folder with its documents, or why it has none (`reason`).

    `began_s` and `ended_s` are when the slot was busy with it, by one clock for all (s).
    """

    order: LeaseOrder
    began_s: float
    ended_s: float
    folder: Path | None = None
    reason: str = ""


class Engine(Protocol):
    """Runs leases. `close` ends what still runs."""

    def slots(self) -> Sequence[Slot]:
        """Return the present slots. One that is gone is lost, with the lease on it."""

    def submit(self, order: LeaseOrder) -> None:
        """Start an attempt on the slot that it names, which is free; does not block."""

    def finished(self, timeout_s: float) -> Sequence[EndedLease]:
        """The attempts that have ended since the last call, each once; waits for one, but no longer than this."""

    def close(self) -> None:
        """End everything."""
