"""What a fleet's engine is asked for, and what it answers. An engine starts work and says how it ended; it decides nothing.

A lease is some launches of some cases, measured with both sides on one slot, and never split. A slot is one device of a machine,
with one lease at a time. What is identical is decided by what was measured of it, never by a label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

EVERY = "*"
"""In place of a slot's name: all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One device that takes a lease at a time. `labels` are what its owner says of it (``gpu=H100``)."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """So many `launches` of these cases, by id. `first` is the number of the first of them among all launches of its cases."""

    number: int
    cases: tuple[str, ...]
    first: int
    launches: int
    expected_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One attempt at a lease on one slot, counted from 1."""

    lease: Lease
    attempt: int
    slot: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How an attempt ended: the folder with its documents, or why there is none (`reason`).

    `began_s` and `ended_s` are when the slot was busy with it, by one clock for all (s).
    """

    order: Order
    began_s: float
    ended_s: float
    folder: Path | None = None
    reason: str = ""


class Engine(Protocol):
    """Who measures leases. `close` ends what still runs."""

    def slots(self) -> Sequence[Slot]:
        """The slots that are there now. One that is gone is lost, with what it was measuring."""

    def submit(self, order: Order) -> None:
        """Begin an attempt on the slot that it names, which is free; returns at once."""

    def finished(self, timeout_s: float) -> Sequence[Ended]:
        """The attempts that have ended since the last call, each once; waits for one, but no longer than this."""

    def close(self) -> None:
        """End everything."""
