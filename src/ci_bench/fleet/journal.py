"""Write leases' events to disk, a line of JSON each, before anything follows from them.

A killed coordinator resumes from it.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci_bench.errors import BadInput, CannotResume, CannotWrite
from ci_bench.fleet.coordinator import EarlierLeases
from ci_bench.fleet.protocol import EndedLease, FleetLease, LeaseOrder
from ci_bench.records.results import Loss

MAX_BYTES = 500_000_000
MAX_DRAINED_BYTES = 1_000_000
_ANEW = "; omit --resume to start over"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileJournal:
    """A journal in a file.

    `leases` is the folder of lease folders: a line names one by its place there.
    """

    file: Path
    leases: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the journal for the block.

        Of two coordinators with one journal, each would take the other's leases for its own. The
        kernel releases the lock when its holder ends, however that ends. If the file system does
        not support locks, nothing is locked.

        Raises:
            BadInput: another coordinator has it.
            CannotWrite: the folder cannot be written.
        """
        path = self.file.with_name("held.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("ab")
        except OSError as error:
            raise CannotWrite(f"{path}: cannot be written: {error.strerror or error}") from error
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                remedy = "wait for it, or name another folder by --output"
                raise BadInput(
                    f"{path.parent}: another gate measures on a fleet with this folder; {remedy}"
                ) from error
            except OSError:
                pass
            yield

    def start(self, run: str, started_at: str) -> None:
        """Start a journal of a run; it replaces an existing one and the folders of its leases.

        Otherwise a dying lease would seem to have delivered the documents of another run's lease
        with the same number. Raises `CannotWrite`.
        """
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text("")
            for folder in [
                folder
                for folder in self.leases.glob("*-*")
                if re.fullmatch(r"[0-9]+-[0-9]+", folder.name)
            ]:
                shutil.rmtree(folder)
        except OSError as error:
            raise CannotWrite(
                f"{error.filename or self.file}: cannot be written: {error.strerror or error}"
            ) from error
        self._write({"event": "run", "id": run, "at": started_at})

    def begun(self, order: LeaseOrder) -> None:
        """Record that an attempt was handed out."""
        self._write({"event": "begun", **_order(order)})

    def delivered(self, ended: EndedLease) -> None:
        """Record that an attempt's documents count."""
        self._write(
            {
                "event": "delivered",
                **_order(ended.order),
                "began_s": ended.began_s,
                "ended_s": ended.ended_s,
            }
        )

    def lost(self, loss: Loss, took_s: float) -> None:
        """Record a lost attempt, or one whose results don't count any more.

        `took_s` are the seconds of its slot.
        """
        record = {
            "lease": loss.lease,
            "attempt": loss.attempt,
            "slot": loss.slot,
            "reason": loss.reason,
            "took_s": took_s,
        }
        self._write({"event": "lost", **record})

    def folder(self, order: LeaseOrder) -> Path:
        """Return the folder of an attempt's documents."""
        return self.leases / f"{order.lease.number}-{order.attempt}"

    @property
    def _drain(self) -> Path:
        return self.file.with_name("drained.txt")

    def drain(self, slots: Iterable[str]) -> None:
        """Ask the coordinator of this run to give these slots no further lease (`EVERY` for all).

        Raises `CannotWrite`.
        """
        try:
            with self._drain.open("a", encoding="utf-8") as stream:
                stream.writelines(f"{slot}\n" for slot in slots)
        except OSError as error:
            raise CannotWrite(
                f"{self._drain}: cannot be written: {error.strerror or error}"
            ) from error

    def drained(self) -> Collection[str]:
        """Return the slots that should get no further lease."""
        with suppress(OSError, UnicodeDecodeError), self._drain.open("rb") as stream:
            return frozenset(stream.read(MAX_DRAINED_BYTES).decode().split())
        return frozenset()

    def take_up(self) -> None:
        """Start or resume a run: all slots may be used, and lines follow the last whole line.

        Raises `CannotWrite`.
        """
        with suppress(OSError):
            self._drain.unlink()
        try:
            with self.file.open("r+b") as stream:
                stream.truncate(stream.read().rfind(b"\n") + 1)
        except OSError as error:
            raise CannotWrite(
                f"{self.file}: cannot be written: {error.strerror or error}"
            ) from error

    def slots(self) -> Collection[str]:
        """Return the slots that had a lease of this run. Raises `CannotResume`."""
        earlier = self.read()[2]
        orders = [*(ended.order for ended in earlier.delivered), *earlier.out]
        return {*(order.slot for order in orders), *(loss.slot for loss in earlier.losses)}

    def _write(self, event: dict[str, Any]) -> None:
        try:
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(event) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise CannotWrite(
                f"{self.file}: cannot be written: {error.strerror or error}"
            ) from error

    def read(self) -> tuple[str, str, EarlierLeases]:
        """Return the run's id, its start, and its results.

        A last line that was cut off never happened.

        Raises:
            CannotResume: it is not ours, or cannot be read.
        """
        try:
            with self.file.open("rb") as stream:
                text = stream.read(MAX_BYTES).decode()
            events = [
                json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")
            ]
            first = events[0]
            return str(first["id"]), str(first["at"]), self._earlier(events[1:])
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise CannotResume(
                f"{self.file}: cannot be read ({type(error).__name__}){_ANEW}"
            ) from error

    def _earlier(self, events: list[dict[str, Any]]) -> EarlierLeases:
        out: dict[tuple[int, int], LeaseOrder] = {}
        delivered: dict[tuple[int, int], EndedLease] = {}
        losses: list[Loss] = []
        number, lost_s = -1, 0.0
        for event in events:
            key = int(event["lease"]), int(event["attempt"])
            number = max(number, key[0])
            match event["event"]:
                case "begun":
                    out[key] = _read_order(event)
                case "delivered":
                    order = out.pop(key)
                    began_s, ended_s = float(event["began_s"]), float(event["ended_s"])
                    delivered[key] = EndedLease(
                        order=order, began_s=began_s, ended_s=ended_s, folder=self.folder(order)
                    )
                case "lost":
                    out.pop(key, None)
                    delivered.pop(key, None)
                    lost_s += float(event.get("took_s", 0.0))
                    losses.append(
                        Loss(
                            lease=key[0],
                            attempt=key[1],
                            slot=str(event["slot"]),
                            reason=str(event["reason"]),
                        )
                    )
        return EarlierLeases(
            delivered=[*delivered.values()],
            losses=losses,
            out=list(out.values()),
            next_number=number + 1,
            lost_s=lost_s,
        )


def _order(order: LeaseOrder) -> dict[str, Any]:
    lease = order.lease
    return {
        "lease": lease.number,
        "attempt": order.attempt,
        "slot": order.slot,
        "cases": lease.cases,
        "first": lease.first,
        "launches": lease.launches,
        "expected_s": lease.expected_s,
    }


def _read_order(event: dict[str, Any]) -> LeaseOrder:
    lease = FleetLease(
        number=int(event["lease"]),
        cases=tuple(map(str, event["cases"])),
        first=int(event["first"]),
        launches=int(event["launches"]),
        expected_s=float(event["expected_s"]),
    )
    return LeaseOrder(lease=lease, attempt=int(event["attempt"]), slot=str(event["slot"]))
