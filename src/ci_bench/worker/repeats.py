"""Compare results of many calls on the same inputs by digests.

A race shows as a digest that differs. Imports torch.

A look sees one call, and a fault in one call of twenty is in one look of twenty. So after each
turn, outside the clock, a digest of the results of the last sample's last call is compared with the
digests from before the first turn. Once the clock has stopped, more calls follow. They take at most
1 % of the launch's time, or 0.1 s, of a core. Waiting for one counts a quarter, or a busy machine
would find less. A program that learns, draws random numbers or writes its inputs
is reset before each of those calls, and has no digests after turns. Results that differ by more
than half of the digits are copied, and `referee` judges them: sums in any order are not a fault.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Altered, Program
from ci_bench.suites.shared.worker.digests import checksum
from ci_bench.suites.shared.worker.numerics import agree_coarsely
from ci_bench.suites.shared.worker.randomness import generator_states, moved, seed_everything
from ci_bench.worker.clock import Clock
from ci_bench.worker.looks import Left, copied_aside, copies, sums_of

if TYPE_CHECKING:
    from torch import Tensor

SEED = 40_493
"""The seed of the inputs and the generators if calls have to be reset."""
MOST_CALLS = 90
"""The limit of calls once the clock has stopped.

A fault in 5 % of calls is in one of this many with a probability of 99 %.
"""
MOST_INPUTS = 8
"""The limit of prepared inputs that take turns.

The results of the first call on each of them are stored.
"""
MOST_STRAYS = 3
"""The number of differing results that are stored."""
SHARE_OF_SAMPLES = 0.01
"""The share of the samples' time that digests after turns may take."""
SHARE_OF_LAUNCH, LEAST_S = 0.01, 0.1
"""The share of a launch's time that the calls after the clock may take, for each arm, and the least
(s).
"""
WAITING = 4.0
"""Seconds of waiting for a core that count as one of using it."""

Digest = tuple[tuple[str, str, tuple[int, ...], int], ...]


@dataclass(kw_only=True, slots=True)
class Repeated:
    """The results of one arm's calls on its prepared inputs."""

    inputs: int = 1
    """The number of prepared inputs that take turns."""
    resets: bool = False
    """True if a call changes the input of the next one, so it has to be reset."""
    draws: bool = False
    """True if it draws from a global generator."""
    known: dict[Digest, Left] = field(default_factory=dict)
    """The results of the first calls, one on each of the prepared inputs."""
    strays: list[Left] = field(default_factory=list)
    """Some results of later calls that differ from all first ones in half of the digits."""
    first: int = 0
    """The number of first calls."""
    calls: int = 0
    """The number of calls after them."""
    differing: int = 0
    """The number of these calls with any differing bit."""
    astray: int = 0
    """The number of these calls that differ in the first half of the digits."""
    spent_s: float = 0.0
    """Seconds that digests after turns took so far."""
    sampled_s: float = 0.0
    """Seconds of the samples around these digests."""
    cost_s: float = 0.0
    """Seconds that the last of these digests took."""

    def see(self, every: Sequence[Altered]) -> None:
        """Compare the results of each copy's last call with the first ones."""
        for copy in every:
            results = copy.outputs()
            digest = digest_of(results)
            if self.first < self.inputs * len(every):
                self.first += 1
                if digest not in self.known:
                    self.known[digest] = copied_aside(results)
                continue
            self.calls += 1
            if digest not in self.known:
                self.differing += 1
                self._keep(copied_aside(results), copy.epsilon)

    def _keep(self, results: Left, epsilon: float) -> None:
        near = (
            agree_coarsely(results, first_results, epsilon=epsilon).outcome
            for first_results in self.known.values()
        )
        if all(outcome is Outcome.FAIL for outcome in near):
            self.astray += 1
            if len(self.strays) < MOST_STRAYS:
                self.strays.append(results)

    @property
    def mostly_repeats(self) -> bool:
        """Return whether most calls gave the results of the first ones."""
        return 2 * self.astray < self.calls


@dataclass(kw_only=True, slots=True)
class Repeats:
    """Repeated calls of the arms of one launch."""

    clock: Clock
    start: Left | None = None
    arms: dict[str, Repeated] = field(default_factory=dict)
    begun_s: float = field(default_factory=time.perf_counter)

    def begin(self, arm: str, program: Program) -> None:
        """Record the first calls' results on the prepared inputs, and a call's effects.

        Before the first sample.
        """
        every = cast("Sequence[Altered]", copies(program))
        inputs = getattr(every[0], "batches", 0)
        if not 0 < inputs <= MOST_INPUTS or any(
            copy.unrefereed or not hasattr(copy, "operands") for copy in every
        ):
            return
        repeated = Repeated(inputs=inputs)
        try:
            # Inputs that calls write may have ended at values that they leave alone.
            for copy in every:
                copy.refresh(SEED, moved=False)
            seed_everything(SEED)
            drawn, sums = generator_states(), sums_of(every)
            for _ in every:
                self.clock.call(program)
            repeated.draws = bool(moved(drawn, generator_states()))
            repeated.resets = (
                repeated.draws or any(copy.learns for copy in every) or sums_of(every) != sums
            )
            for copy in every:
                copy.resume()
            for _ in range(0 if repeated.resets else inputs):
                for _ in every:
                    self.clock.call(program)
                repeated.see(every)
        except Exception:  # noqa: BLE001 - benchmarked code may raise anything; looks report it
            for copy in every:
                copy.resume()
            return
        repeated.inputs = 1 if repeated.resets else inputs
        self.arms[arm] = repeated

    def after_turn(self, arm: str, program: Program, *, sampled_s: float) -> None:
        """Take the digest of a turn's last call, if there is time for it.

        Its samples took `sampled_s` (s).
        """
        repeated = self.arms.get(arm)
        if repeated is None or repeated.resets:
            return
        repeated.sampled_s += sampled_s
        if repeated.spent_s + repeated.cost_s > SHARE_OF_SAMPLES * repeated.sampled_s:
            return
        begun_s = time.perf_counter()
        try:
            repeated.see(cast("Sequence[Altered]", copies(program)))
        except Exception:  # noqa: BLE001 - results may be anything; looks report it
            del self.arms[arm]
        repeated.cost_s = time.perf_counter() - begun_s
        repeated.spent_s += repeated.cost_s

    def finish(self, arm: str, program: Program) -> None:
        """Make more calls on the same inputs, once the clock has stopped."""
        repeated = self.arms.get(arm)
        if repeated is None:
            return
        every = cast("Sequence[Altered]", copies(program))
        begun_s, used_s = time.perf_counter(), time.thread_time()
        limit_s = max(LEAST_S, SHARE_OF_LAUNCH * (begun_s - self.begun_s))
        try:
            for copy in every:
                copy.resume()
            for _ in range(MOST_CALLS):
                if repeated.resets:
                    for copy in every:
                        copy.refresh(SEED, moved=False, state=self.start)
                    seed_everything(SEED)
                for _ in every:
                    self.clock.call(program)
                repeated.see(every)
                if (
                    max(time.thread_time() - used_s, (time.perf_counter() - begun_s) / WAITING)
                    > limit_s
                ):
                    break
        except Exception:  # noqa: BLE001 - benchmarked code may raise anything; looks report it
            del self.arms[arm]
        finally:
            for copy in every:
                copy.resume()


def digest_of(results: "Mapping[str, Tensor]") -> Digest:
    """Return names, forms and checksums of a call's results."""
    return tuple(
        (name, str(value.dtype), tuple(value.shape), checksum(value))
        for name, value in results.items()
    )


def chance_of_finding(calls: int, *, share: float = 0.05) -> float:
    """Return the probability that a fault in a `share` of all calls is in one of this many."""
    return 1 - (1 - share) ** calls
