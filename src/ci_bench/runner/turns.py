"""Give turns to workers that keep their arms ready: their order, and the blocks to repeat.

Nothing runs at the same time as a sample: one worker works on one order while all others wait for
theirs. A block is a palindrome over all seats (each arm of each side), so a linear drift affects
all of them alike.

Each turn is timed here as well, from the order to its answer, by a clock in a process that runs no
benchmarked code. `witness` compares a worker's samples with it.

Refereed turns are drawn here from the system's own randomness, and the mark is only in the order of
that turn: nothing in a worker can know it before its inputs are there.
"""

import math
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

from ci_bench.host.energy import EnergyCount, Stretch
from ci_bench.processes.protocol import MOST_FLUSHES, Order, OrderKind
from ci_bench.processes.resident import Ended, Worker
from ci_bench.records.config import RunOptions
from ci_bench.records.forms import Fact
from ci_bench.records.results import SHORT_OF_MEMORY, Block, Metric, Phase, SideName, Status
from ci_bench.runner.witness import Sighting

Opener = Callable[[], AbstractContextManager[Worker]]

REFEREED_AGAIN = 1 / 3
"""The share of later launches that referee an arm whose single call fills a sample.

Each of its calls is a large part of the launch.
"""
SPARINGLY = 0.1
"""The rate of fresh builds of the reference after looks have exceeded their share. These builds
cost most.
"""
SEED_BITS = 48
MOST_REDONE = 0.5
"""The limit of repeated blocks as a share of a launch's blocks; `run.redo` of them in any case."""
CLOCKS_APART = "gpu_clocks_apart"
"""The fact of a block in which base and head had different clocks under the same arm."""
TEMPERATURE = "gpu_temperature_c"
"""The fact of a reading that is stored with energy."""
COUNT_EVERY_S = 0.005
"""The polling interval of the energy counter. It is a twentieth of the step of a counter that moves
ten times a second.
"""
SAMPLING_TO_GETTING_READY = 2.0
"""The limit of a launch's sampling seconds for each second of opening and warming up.

A verdict takes the fewest seconds with as many blocks as the root of (seconds of a launch / of a
block), times the noise of a block over that of a launch (Cochran 1977, Sampling Techniques, 10.6):
some 20 if a launch costs as much as 20 blocks, and a block scatters five times as much.
"""


NO_ROOM, NOT_SHARED = (
    "base and head do not fit into memory together",
    "the GPU takes one process at a time (compute mode)",
)
DEVICE_IS_TAKEN = "busy or unavailable"
"""CUDA's error for a second process if the mode allows only one (cudaErrorDevicesUnavailable)."""


class Watch(Protocol):
    """Watches the machine between turns, never inside one. `host.monitor` has the real one."""

    def vacate(self) -> None:
        """Note that none of our workers is open: processes on the device now are foreign."""

    def settle(self) -> None:
        """Note that all workers are open and warm: from now on, new processes are foreign."""

    def near_cores(self) -> frozenset[int] | None:
        """Return the host's cores that are closest to the device.

        `None` if none is closer, or if that is unknown.
        """

    def read(self) -> Any:
        """Return the state of the machine now."""

    def glance(self) -> Any:
        """Return a quick look after a turn."""

    def taint(self, before: Any, after: Any) -> str | None:
        """Return why samples taken between two readings must not count; `None` if they may."""

    def uneven(self, glances: Mapping[tuple[SideName, int], Sequence[Any]]) -> str | None:
        """Describe different clocks of a block's sides; `None` if they were equal.

        `glances` are the looks after each arm's turns.
        """

    def facts(self, reading: Any) -> Mapping[str, Fact]:
        """Return the facts of a reading for the results."""

    def count(self) -> EnergyCount:
        """Read the counter of energy now."""

    def metrics(
        self, glances: Mapping[int, Sequence[Any]], *, arm: str, launch: int
    ) -> tuple[Metric, ...]:
        """Return metrics from the looks after the turns of one arm, by block."""

    def close(self) -> None:
        """Release the monitor."""


class NoWatch:
    """Watches nothing."""

    def vacate(self) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""

    def near_cores(self) -> None:
        """Return nothing."""

    def read(self) -> None:
        """Return nothing."""

    def glance(self) -> None:
        """Return nothing."""

    def taint(self, _before: Any, _after: Any) -> str | None:
        """Return no doubt."""
        return None

    def uneven(self, _glances: Mapping[tuple[SideName, int], Sequence[Any]]) -> str | None:
        """Return no difference."""
        return None

    def facts(self, _reading: Any) -> Mapping[str, Fact]:
        """Return no facts."""
        return {}

    def count(self) -> EnergyCount:
        """Return a reading without a counter."""
        return EnergyCount(at_s=0.0, joules=None)

    def metrics(
        self,
        _glances: Mapping[int, Sequence[Any]],
        *,
        arm: str,  # noqa: ARG002 - the protocol's signature
        launch: int,  # noqa: ARG002 - likewise
    ) -> tuple[Metric, ...]:
        """Return no metrics."""
        return ()

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The result of one case in one launch."""

    ended: Mapping[SideName, Ended]
    """End of each side's worker."""
    blocks: tuple[Block, ...]
    """Machine's condition in each block."""
    sightings: Mapping[SideName, tuple[Sighting, ...]] = field(default_factory=dict)
    """Turns of each side whose samples count, in the order taken."""
    calls: tuple[int, ...] = ()
    """Calls of each arm that make a sample."""
    flushes: int = 0
    """Cache flushes before each call; 0 for none."""
    glances: Mapping[tuple[SideName, int], Mapping[int, Sequence[Any]]] = field(
        default_factory=dict
    )
    """Looks after these turns, by side and place of the arm, and by block."""
    stretches: Mapping[tuple[SideName, int], Sequence[Stretch]] = field(default_factory=dict)
    """Work in which energy was counted, by side and place of the arm; empty if it was not."""


MOST_CHECKING = 0.01
"""The share of a case's launches for looks at timed calls, on all sides. Once it is exceeded, later
launches have fewer.
"""


@dataclass(kw_only=True, slots=True)
class Checking:
    """The durations of each case's launches so far, and of each side's checks.

    Most of these are looks and their judgement.

    A worker can only save itself optional looks by its reports, never required ones.
    """

    _played_s: dict[str, float] = field(default_factory=dict)
    _checked_s: dict[str, dict[SideName, float]] = field(default_factory=dict)

    def note(self, case: str, played: Round, elapsed_s: float) -> None:
        """Add a launch of a case, by its id."""
        self._played_s[case] = self._played_s.get(case, 0.0) + elapsed_s
        sides = self._checked_s.setdefault(case, {})
        for name, ended in played.ended.items():
            spent = [
                entry
                for answer in ended.answers
                if answer.evidence is not None
                for entry in answer.evidence.spent
            ]
            checked_s = sum(
                max(0.0, entry.seconds) for entry in spent if entry.phase is Phase.CHECKS
            )
            sides[name] = sides.get(name, 0.0) + checked_s

    def is_over_its_share(self, case: str) -> bool:
        """Return whether checks exceeded their share.

        Each side's are assumed to take as long as the longest of them.
        """
        sides = self._checked_s.get(case, {})
        return len(sides) * max(sides.values(), default=0.0) > MOST_CHECKING * self._played_s.get(
            case, 0.0
        )


@dataclass(kw_only=True, slots=True)
class _Party:
    """One side's worker, skipped once it has exited."""

    name: SideName
    """Side of the worker."""
    worker: Worker
    """The worker."""
    calls: tuple[int, ...] = ()
    """Calls of each of the side's arms that make a sample, as the worker reported them."""
    block_s: float = 0.0
    """Duration of its part of a block (s)."""
    flushes: int = 0
    """Cache flushes that its calls need."""
    one_core: bool = False
    """True if its calls use only one core of the host."""
    places: tuple[int, ...] = ()
    """Indexes of the side's arms among all arms, which orders use."""
    playing: bool = True
    """False once the worker has exited."""
    taken: list[tuple[Order, float]] = field(default_factory=list)
    """Orders of its turns, without discarded ones, and the seconds of each."""

    def tell(self, order: Order) -> None:
        """Send an order to the worker without waiting."""
        if self.playing:
            self.worker.tell(self._translate(order))

    def obey(self, order: Order | None) -> None:
        """Make the worker execute or finish an order, and check if it is still there."""
        answer = self.worker.ask(order and self._translate(order)) if self.playing else None
        self.playing = answer is not None and answer.done is not None
        if answer is not None and answer.done is not None:
            self.calls, self.block_s, self.flushes = (
                answer.done.calls,
                answer.done.block_s,
                answer.done.flushes,
            )
            self.one_core = answer.done.one_core

    def keep_busy(
        self, seat: int, seconds: float, watch: "Watch", clock: Callable[[], float]
    ) -> Stretch | None:
        """Make the worker run one arm, and count energy meanwhile; `None` if it did not finish."""
        counts: list[EnergyCount] = []
        before, begun = watch.read(), clock()
        self.worker.tell(
            self._translate(Order(kind=OrderKind.KEEP_BUSY, seat=seat, seconds=seconds))
        )
        while not self.worker.answers_within(COUNT_EVERY_S):
            counts.append(watch.count())
        answer, elapsed_s, after = self.worker.ask(None), clock() - begun, watch.read()
        self.playing = answer is not None and answer.done is not None
        if answer is None or answer.done is None:
            return None
        heat = watch.facts(after).get(TEMPERATURE)
        return Stretch(
            calls=answer.done.made,
            elapsed_s=elapsed_s,
            counts=tuple(counts),
            doubt=watch.taint(before, after),
            temperature_c=float(heat) if isinstance(heat, int | float) else None,
        )

    def calls_of(self, arm: int) -> int | None:
        """Return the worker's number of calls of an arm in a sample.

        `None` if it has no such arm, or reported none.
        """
        place = self.places.index(arm) if arm in self.places else len(self.calls)
        return self.calls[place] if place < len(self.calls) else None

    def _translate(self, order: Order) -> Order:
        """Return the order as its worker counts arms."""
        calls = tuple(order.calls[place] for place in self.places if place < len(order.calls))
        return replace(
            order,
            calls=calls,
            seat=self.places.index(order.seat) if order.seat in self.places else 0,
        )

    def take_turn(self, order: Order, clock: Callable[[], float]) -> None:
        """Make the worker take samples, and note the seconds until its answer."""
        begun = clock()
        self.obey(order)
        self.taken.append((order, clock() - begun))

    def sightings(self) -> tuple[Sighting, ...]:
        """Return its turns as the parent saw them, assembled once all are over."""
        return tuple(
            Sighting(
                seat=order.seat,
                block=order.block,
                samples=order.samples,
                elapsed_s=elapsed_s,
                touched=order.touch,
                refereed=order.referee is not None,
            )
            for order, elapsed_s in self.taken
        )

    def discard(self, block: int) -> None:
        """Make the worker discard the samples of one block, and forget its turns."""
        self.obey(Order(kind=OrderKind.DISCARD, block=block))
        self.taken = [(order, elapsed_s) for order, elapsed_s in self.taken if order.block != block]


def plan_block(seats: int, coin: random.Random) -> list[int]:
    """Return a random order of the seats, there and back (ABBA, or BAAB).

    Each seat has two turns around the same mean time.
    """
    order = list(range(seats))
    coin.shuffle(order)
    return [*order, *reversed(order)]


@dataclass(kw_only=True, slots=True)
class Turns:
    """One case in one launch.

    Sides open and warm up one after the other unless `ready_at_once`, so first calls can be
    compared. Adaptive blocks take no longer than twice as getting ready did.
    """

    arms: int
    """Number of all arms."""
    launch: int
    """Number of the launch, from 0."""
    options: RunOptions
    """Options of the run."""
    coin: random.Random
    """Draws the order of sides and turns, and the common core."""
    places: Mapping[SideName, tuple[int, ...]] = field(default_factory=dict)
    """Indexes of the arms that a side has; a side that is not in it has all."""
    watch: Watch = field(default_factory=NoWatch)
    """Monitor of the machine."""
    tell: Callable[[int, int], None] = lambda _done, _total: None
    """Called with the done and the total turns of an arm."""
    secret: random.Random = field(default_factory=secrets.SystemRandom)
    """Draws the refereed turns and their seeds."""
    clock: Callable[[], float] = time.perf_counter
    """Gives seconds; monotonic, as the workers' clock is."""
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext
    """Context of untimed work: warming up, and reporting in the end."""
    most_blocks: int | None = None
    """Limit of adaptive blocks; `None` takes `RunOptions.blocks`."""
    room_s: float = math.inf
    """Limit of the whole case in this launch (s), within which adaptive blocks are taken."""
    ready_at_once: bool = False
    """True if all sides open and warm up simultaneously."""
    sparing: bool = False
    """True if looks exceeded their share in earlier launches: one look at each arm has to do."""
    flushes: int = 0
    """Cache flushes before each call, as for a side that went before; 0 asks the sides."""
    cores: tuple[int, ...] = ()
    """Cores of which sides that use a single one share one."""
    blocks: int = field(default=1, init=False)
    """Number of blocks, once it is decided."""
    _on_one_core: bool = field(default=False, init=False)
    """True if all sides are kept to one core."""
    _redos: int = field(default=0, init=False)
    """Number of repeated blocks so far."""
    _refereed: dict[tuple[SideName, int], int] = field(default_factory=dict, init=False)
    """Block in which each arm of each side is refereed."""
    _glances: dict[tuple[SideName, int], dict[int, Sequence[Any]]] = field(
        default_factory=dict, init=False
    )
    """Looks after the turns of each arm of each side, by block."""

    def play(self, openers: Mapping[SideName, Opener]) -> Round:
        """Open the sides one after the other, warm them up, give turns, and collect their results.

        The number of calls of each arm in a sample is found on base (on head without a base) and
        used for both sides. The cache is flushed for all as often as the most demanding one needs,
        so both sides do the same between samples. A side whose worker ends early is out; the other
        continues.

        Raises:
            LauncherFailed: a launch died under its workers.
        """
        self.watch.vacate()
        begun = self.clock()
        with ExitStack() as stack:
            parties = self._open(openers, stack)
            calls = self._sized([party for party in parties if party.playing])
            warm = Order(kind=OrderKind.WARM, calls=calls)
            with self.meanwhile():
                for party in parties if self.ready_at_once else ():
                    party.tell(warm)
                for party in parties:
                    party.obey(None if self.ready_at_once else warm)
            self.blocks = self._count_blocks(
                self.clock() - begun, sum(party.block_s for party in parties if party.playing)
            )
            needed = max((party.flushes for party in parties if party.playing), default=0)
            self.flushes = self.flushes or min(max(0, needed), MOST_FLUSHES)
            self._refereed = self._draw_refereed(tuple(openers), calls)
            playing = [party for party in parties if party.playing]
            self._on_one_core = min(len(playing), len(self.cores)) > 1 and all(
                party.one_core for party in playing
            )
            self._keep_to_a_core(playing)
            self.watch.settle()
            blocks = tuple(self._block(number, parties) for number in range(self.blocks))
            stretches = self._count_energy(parties)
            with self.meanwhile():
                for party in parties:
                    party.obey(Order(kind=OrderKind.FINISH))
                ended = {party.name: party.worker.end() for party in parties}
            return Round(
                ended=ended,
                blocks=blocks,
                sightings={party.name: party.sightings() for party in parties},
                calls=calls,
                flushes=self.flushes,
                glances=self._glances,
                stretches=stretches,
            )

    def _open(self, openers: Mapping[SideName, Opener], stack: ExitStack) -> list[_Party]:
        """Return all sides with their arms open, base first."""
        parties = []
        for name in self._shuffled(tuple(openers)):
            party = _Party(
                name=name, worker=stack.enter_context(openers[name]()), places=self._arms_of(name)
            )
            parties.append(party)
            if not self.ready_at_once:
                party.obey(None)
        for party in parties if self.ready_at_once else ():
            party.obey(None)
        return sorted(parties, key=lambda party: party.name is not SideName.BASE)

    def _arms_of(self, name: SideName) -> tuple[int, ...]:
        return self.places.get(name, tuple(range(self.arms)))

    def _sized(self, parties: Sequence[_Party]) -> tuple[int, ...]:
        """Return the calls for each arm by the first side that has it.

        At least one, whatever a worker reported.
        """
        reports = ([party.calls_of(arm) for party in parties] for arm in range(self.arms))
        return tuple(
            max(1, next((calls for calls in of_arm if calls is not None), 1)) for of_arm in reports
        )

    def _count_blocks(self, ready_s: float, block_s: float) -> int:
        """Return how many blocks to take after `ready_s` seconds of opening and warming up.

        A launch costs the same for few samples as for many. As long as samples cost little compared
        with it, more of them are the cheapest way to a narrower interval, but the budget that
        others need is left to them. The number is fixed before the first sample.
        """
        affordable_s = min(SAMPLING_TO_GETTING_READY * ready_s, self.room_s - ready_s)
        if self.most_blocks is None or not 0 < block_s < affordable_s:
            return self.options.blocks
        return max(self.options.blocks, min(self.most_blocks, int(affordable_s / block_s)))

    def _draw_refereed(
        self, names: Sequence[SideName], calls: Sequence[int]
    ) -> dict[tuple[SideName, int], int]:
        """Draw the block in which each arm of each side is refereed.

        The first arm, which the others are compared with, is compared with a fresh build of itself.
        In later launches this is done now and then, since the build costs as much as the launch's
        own.
        """
        again = [
            SPARINGLY if self.sparing and not arm else REFEREED_AGAIN for arm in range(self.arms)
        ]
        return {
            (name, arm): self.secret.randrange(self.blocks)
            for name in names
            for arm in self._arms_of(name)
            if self.options.referee
            and (self.launch == 0 or (arm and calls[arm] > 1) or self.secret.random() < again[arm])
        }

    def _shuffled(self, names: Sequence[SideName]) -> list[SideName]:
        return self.coin.sample(names, len(names))

    def _block(self, number: int, parties: Sequence[_Party]) -> Block:
        """Take one block, and repeat it if it was tainted.

        Different clocks of the sides are only recorded: a side that draws more power has lower
        ones.
        """
        redone: list[str] = []
        while True:
            before = self.watch.read()
            glances = self._give_turns(number, parties)
            after = self.watch.read()
            doubt = self.watch.taint(before, after)
            if (
                doubt is None
                or len(redone) >= self.options.redo
                or self._redos >= self._most_redos()
            ):
                break
            redone.append(doubt)
            self._redos += 1
            for party in parties:
                party.discard(number)
            self._keep_to_a_core(parties)
        for seat, looks in glances.items():
            self._glances.setdefault(seat, {})[number] = looks
        self.tell((number + 1) * 2, self.blocks * 2)
        uneven = self.watch.uneven(glances)
        facts = {**self.watch.facts(after), **({CLOCKS_APART: uneven} if uneven else {})}
        return Block(
            launch=self.launch, block=number, facts=facts, redone=tuple(redone), doubt=doubt
        )

    def _keep_to_a_core(self, parties: Sequence[_Party]) -> None:
        """Keep all sides to one core, maybe another one if that was disturbed.

        Disturbances of the core then affect all sides, and cancel. If each were on a separate core,
        as the kernel places them, a disturbance of one core would affect one side.
        """
        if self._on_one_core:
            order = Order(kind=OrderKind.KEEP_TO, core=self.coin.choice(self.cores))
            for party in parties:
                party.obey(order)

    def _most_redos(self) -> int:
        """Return how many blocks of a launch may be repeated.

        An always disturbed machine won't calm down by repeating.
        """
        return max(self.options.redo, int(MOST_REDONE * self.blocks))

    def _give_turns(
        self, number: int, parties: Sequence[_Party]
    ) -> Mapping[tuple[SideName, int], Sequence[Any]]:
        """Give one turn after the other, those of one seat together.

        Returns the looks after them, by seat.
        """
        seats = [(party, arm) for party in parties if party.playing for arm in party.places]
        glances: dict[tuple[SideName, int], list[Any]] = {}
        last: _Party | None = None
        groups = [
            (index, len(list(turns))) for index, turns in groupby(plan_block(len(seats), self.coin))
        ]
        refereed = self._refereed_groups(
            number, [(seats[index][0].name, seats[index][1]) for index, _ in groups]
        )
        for place, (index, samples) in enumerate(groups):
            party, arm = seats[index]
            touch = party is not last and len(parties) > 1
            seed = self.secret.getrandbits(SEED_BITS) if place in refereed else None
            order = Order(
                kind=OrderKind.TURN,
                seat=arm,
                block=number,
                samples=samples,
                touch=touch,
                referee=seed,
                once=self.sparing and seed is not None,
                flushes=self.flushes,
            )
            party.take_turn(order, self.clock)
            glances.setdefault((party.name, arm), []).append(self.watch.glance())
            last = party
        return glances

    def _count_energy(
        self, parties: Sequence[_Party]
    ) -> Mapping[tuple[SideName, int], Sequence[Stretch]]:
        """Keep each arm of each side busy, there and back as in a block.

        Not with flushes, which draw power in between.
        """
        stretches: dict[tuple[SideName, int], list[Stretch]] = {}
        seats = [(party, arm) for party in parties for arm in party.places]
        counting = self.options.energy_s > 0 and not self.flushes
        for index in plan_block(len(seats), self.coin) if counting else ():
            party, arm = seats[index]
            stretch = (
                party.keep_busy(arm, self.options.energy_s, self.watch, self.clock)
                if party.playing
                else None
            )
            if stretch is not None:
                stretches.setdefault((party.name, arm), []).append(stretch)
        return stretches

    def _refereed_groups(self, number: int, groups: Sequence[tuple[SideName, int]]) -> set[int]:
        """Return the refereed orders of a block: one for each arm that is drawn for it."""
        due = [seat for seat, block in self._refereed.items() if block == number]
        candidates = [
            [place for place, seat in enumerate(groups) if seat == due_seat] for due_seat in due
        ]
        return {self.secret.choice(places) for places in candidates if places}


def why_not_together(played: Round) -> str:
    """Return why the sides cannot be resident together; empty if they can.

    Memory ran out on a side, or was so short that its allocator had to free some while samples were
    taken; or the device takes no second process.
    """
    answers = [answer for ended in played.ended.values() for answer in ended.answers]
    ran_out = any(
        answer.fault is not None and answer.fault.kind == Status.OUT_OF_MEMORY for answer in answers
    )
    checks = (
        check
        for answer in answers
        if answer.evidence is not None
        for check in answer.evidence.checks
    )
    if ran_out or any(check.name == SHORT_OF_MEMORY for check in checks):
        return NO_ROOM
    refused = any(
        answer.fault is not None and DEVICE_IS_TAKEN in answer.fault.message for answer in answers
    )
    return NOT_SHARED if refused else ""


def spoilt_by_capture(played: Round) -> str:
    """Return the message of the first worker that a failed capture spoilt; empty if none."""
    faults = (answer.fault for ended in played.ended.values() for answer in ended.answers)
    return next((fault.message for fault in faults if fault is not None and fault.spoilt), "")
