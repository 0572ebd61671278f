"""Gives turns to workers that keep their arms ready: who has the machine when, and which blocks are taken again.

Nothing runs at the same time as a sample: one worker works on one order while all others wait for theirs. A block is a palindrome
over all seats (each arm of each side), so that a linear drift hits all of them alike.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from ci_bench.engine.process.resident import Ended, Worker
from ci_bench.engine.process.task import Order, OrderKind
from ci_bench.records.case import Block, Fact, SideName
from ci_bench.records.config import RunOptions

Opener = Callable[[], AbstractContextManager[Worker]]


class Watch(Protocol):
    """Watches the machine between turns, never inside one. `engine.machine.monitor` has the real one."""

    def vacate(self) -> None:
        """No worker of ours is open: what is on the device now is foreign."""

    def settle(self) -> None:
        """All workers are open and warm: what is on the device from now on, and wasn't before, is foreign."""

    def read(self) -> Any:
        """The state of the machine now."""

    def glance(self) -> Any:
        """A quick look after a turn."""

    def taint(self, before: Any, after: Any) -> str | None:
        """Why samples taken between two readings must not count; `None` where they may."""

    def uneven(self, glances: Mapping[str, Sequence[Any]]) -> str | None:
        """Why the seats of a block, by the looks after their turns, did not have the same machine; `None` where they had."""

    def facts(self, reading: Any) -> Mapping[str, Fact]:
        """What of a reading is kept in the results."""

    def close(self) -> None:
        """Nothing more will be asked."""


class NoWatch:
    """Watches nothing."""

    def vacate(self) -> None:
        """Does nothing."""

    def settle(self) -> None:
        """Does nothing."""

    def read(self) -> None:
        """Sees nothing."""

    def glance(self) -> None:
        """Sees nothing."""

    def taint(self, _before: Any, _after: Any) -> str | None:
        """Doubts nothing."""
        return None

    def uneven(self, _glances: Mapping[str, Sequence[Any]]) -> str | None:
        """Doubts nothing."""
        return None

    def facts(self, _reading: Any) -> Mapping[str, Fact]:
        """Keeps nothing."""
        return {}

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What came of one case in one launch: how each side's worker ended, and what the machine was like block by block."""

    ended: Mapping[SideName, Ended]
    blocks: tuple[Block, ...]


@dataclass(kw_only=True, slots=True)
class _Party:
    """One side at the table. `calls` make a sample of its first arm; it is out of the game once its worker ended."""

    name: SideName
    worker: Worker
    calls: int = 1
    playing: bool = True

    def obey(self, order: Order | None) -> None:
        """Have the worker do something, and see whether it is still there."""
        answer = self.worker.ask(order) if self.playing else None
        self.playing = answer is not None and answer.done is not None
        if answer is not None and answer.done is not None:
            self.calls = answer.done.calls


def plan_block(seats: int, coin: random.Random) -> list[int]:
    """A random order of the seats, there and back (ABBA, or BAAB): each has two turns around the same mean time."""
    order = list(range(seats))
    coin.shuffle(order)
    return [*order, *reversed(order)]


@dataclass(kw_only=True, slots=True)
class Turns:
    """One case in one launch. `tell` is called with done and total turns of an arm."""

    arms: int
    launch: int
    options: RunOptions
    coin: random.Random
    watch: Watch = field(default_factory=NoWatch)
    tell: Callable[[int, int], None] = lambda _done, _total: None

    def play(self, openers: Mapping[SideName, Opener]) -> Round:
        """Open the sides one after the other, warm them up, give turns, and hear what they measured.

        The number of calls that make a sample is found on base's reference arm (head's where there is no base) and used for all.
        A side whose worker ends early is out; the other goes on.

        Raises:
            LauncherFailed: a launch died under its workers.
        """
        self.watch.vacate()
        with ExitStack() as stack:
            parties = []
            for name in self._shuffled(tuple(openers)):
                party = _Party(name=name, worker=stack.enter_context(openers[name]()))
                party.obey(None)
                parties.append(party)
            parties.sort(key=lambda party: party.name is not SideName.BASE)
            calls = next((party.calls for party in parties if party.playing), 1)
            for party in parties:
                party.obey(Order(kind=OrderKind.WARM, calls=calls))
            self.watch.settle()
            blocks = tuple(self._block(number, parties) for number in range(self.options.blocks))
            for party in parties:
                party.obey(Order(kind=OrderKind.FINISH))
            return Round(ended={party.name: party.worker.end() for party in parties}, blocks=blocks)

    def _shuffled(self, names: Sequence[SideName]) -> list[SideName]:
        return self.coin.sample(names, len(names))

    def _block(self, number: int, parties: Sequence[_Party]) -> Block:
        """One block, again where it was tainted."""
        redone: list[str] = []
        while True:
            before = self.watch.read()
            glances = self._give_turns(number, parties)
            after = self.watch.read()
            doubt = self.watch.taint(before, after) or self.watch.uneven(glances)
            if doubt is None or len(redone) >= self.options.redo:
                break
            redone.append(doubt)
            for party in parties:
                party.obey(Order(kind=OrderKind.DISCARD, block=number))
        self.tell((number + 1) * 2, self.options.blocks * 2)
        return Block(launch=self.launch, block=number, facts=self.watch.facts(after), redone=tuple(redone), doubt=doubt)

    def _give_turns(self, number: int, parties: Sequence[_Party]) -> Mapping[str, Sequence[Any]]:
        """One turn after the other, those of one seat that follow each other at once; returns the looks after them, by seat."""
        seats = [(party, arm) for party in parties if party.playing for arm in range(self.arms)]
        glances: dict[str, list[Any]] = {}
        last: _Party | None = None
        for index, turns in groupby(plan_block(len(seats), self.coin)):
            party, arm = seats[index]
            touch = party is not last and len(parties) > 1
            party.obey(Order(kind=OrderKind.TURN, seat=arm, block=number, samples=len(list(turns)), touch=touch))
            glances.setdefault(f"{party.name} {arm}", []).append(self.watch.glance())
            last = party
        return glances
