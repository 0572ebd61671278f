"""Referee timed calls: look at some while timing, and judge their results afterwards.

Imports torch. Of two looks at an arm (`looks`) one writes other values into the memory of the
inputs before, the other takes new memory. Code that remembers addresses is wrong in the first, and
code that remembers values is slow in both. A training starts each look from one known state.

In `check` the reference arm does the same from the same seeds, each call behind a pause, and the
rule of numbers decides; rounding is measured by shaken runs of the reference, as many as needed.
Random numbers that the arms draw alike are aligned by seeding before each look. If they are drawn
differently, the differences between other draws of the reference are the limit. Loaded only for
programs that can be refereed.

The reference arm is compared with a fresh build of itself that nothing was timed on. If the
measured code itself remembers results, or computes less once it is warm, both sides' arms would
agree with it.

The results of many calls on the prepared inputs (`repeats`) must be the same from call to call if
the reference's are. They must equal the reference's results, too.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Program, no_mark
from ci_bench.suites.shared.worker.draws import distance, drawn_alike
from ci_bench.suites.shared.worker.freshness import WEIGHTS
from ci_bench.suites.shared.worker.later_calls import off_as_much
from ci_bench.suites.shared.worker.numerics import (
    FP32_EPSILON,
    JOLT,
    JOLTED,
    Agreement,
    agree,
    agree_coarsely,
    jolt_of,
    shaken,
)
from ci_bench.suites.shared.worker.optimizers import lost_by
from ci_bench.worker.clock import Clock
from ci_bench.worker.fence import close
from ci_bench.worker.look_answers import (
    ORDER,
    SLOWER_WHEN_FRESH,
    LookAnswer,
    badness,
    fault_of,
    puts_off,
)
from ci_bench.worker.looks import (
    CALLS_IN_A_ROW,
    MOST_PAUSE_S,
    PAUSE_S,
    ROUNDS,
    SEEDS,
    Habits,
    Left,
    Look,
    LookRow,
    copied_aside,
    copies,
    delayed_call,
    differing,
    first_over_third,
    fresh_over_known,
    habits_of,
    take_look,
    words_of,
)
from ci_bench.worker.repeats import SEED, Repeated, Repeats, chance_of_finding

REFEREED = "refereed"
SHAKES = (1, 3)
"""The number of shaken runs of the reference, and of more runs if the first do not suffice."""
DRAWS = 3
"""The number of the reference's random seeds, if the arms' numbers cannot be aligned."""
BEYOND_DRAWS = 3.0
"""The largest ratio of an arm's distance from the reference to the distance between two draws."""
CONFIRMED = 2
"""The number of series of calls in turns that must all be that slow."""
SLOWER_AT_FIRST = 1.15
"""The largest ratio of first to third call on fresh values, relative to the reference's own."""
GLANCED = 1.1
"""The ratio in a few calls that is reason to measure with care."""
SUSPECT = 1.5
"""The ratio of a look's to a sample's time per call that raises suspicion.

Fresh and known inputs are then timed in turns.
"""
MORE_LOOKS = 12
"""Looks at an arm under suspicion, whose write was perhaps too late in the first ones."""
MORE_CALLS = 5
"""Calls of a fresh build between two looks that must agree.

They are too few to be warm, enough for a counter to show.
"""
MAX_DETAIL = 1000


@dataclass(kw_only=True, slots=True)
class Referee:
    """Referees the candidate arms of one case against its reference arm.

    The latter is refereed against a fresh build. The same code on the same seeds draws the same
    random numbers. So half the digits must agree without a measured rounding, which a reference
    under suspicion could not vouch for.
    """

    clock: Clock
    """The device's clock, which samples are taken with, too."""
    reference: Program
    """The program that arms are compared with."""
    start: Left | None = None
    """State that looks at a training start from; `None` if calls do not learn."""
    looks: dict[str, list[Look]] = field(default_factory=dict)
    """Looks taken so far, by arm."""
    habits: dict[str, Habits] = field(default_factory=dict)
    """Effects of an arm's calls on later ones, by arm."""
    pause_s: float = PAUSE_S
    """Pause before each call of the reference (s)."""
    itself: bool = False
    """True if `reference` is a fresh build of the arm itself."""
    reference_arm: str = ""
    """Name of the reference arm; empty if the reference is a fresh build."""
    repeats: Repeats = field(init=False)
    """Calls on the same prepared inputs, by arm."""

    def __post_init__(self) -> None:
        """Start without repeated calls."""
        self.repeats = Repeats(clock=self.clock)

    def begin(self) -> None:
        """Store the start state of looks at a training: the reference's, after its first step."""
        first_copy = copies(self.reference)[0]
        self.start = copied_aside(first_copy.state()) if first_copy.learns else None
        self.repeats.start = self.start

    def look(self, arm: str, program: Program, *, seed: int, calls: int, draw: int = 0) -> None:
        """Take a look, or two if a sample has many calls: one at known addresses, one at new ones.

        `draw` seeds the generators as for the next sample, so they cannot distinguish a look from a
        sample.
        """
        if any(copy.unrefereed for copy in copies(program)):
            return
        coin = random.Random(seed)  # noqa: S311 - it spreads a seed that was drawn as a secret
        if arm not in self.habits:
            self.habits[arm] = habits_of(
                self.clock, program, self.start, seed=coin.getrandbits(31) + 1
            )
        ways = [True, False] if calls > 1 else [bool(coin.getrandbits(1))]
        coin.shuffle(ways)
        for moved in ways:
            row = self.habits[arm].row(coin, calls)
            look_seed = coin.getrandbits(31) + 1
            look = take_look(
                self.clock, program, look_seed, moved=moved, state=self.start, draw=draw, row=row
            )
            self.looks.setdefault(arm, []).append(look)

    def check(self, arm: str, program: Program, *, plain_s: float) -> Check | None:
        """Return the check `refereed` of one candidate arm.

        `None` if this launch took no look at it. `plain_s` is the median of its samples (s per
        call). Uses up both programs: nothing can be read from them afterwards.
        """
        whys = [
            copy.unrefereed
            for subject in (program, self.reference)
            for copy in copies(subject)
            if copy.unrefereed
        ]
        looks = self.looks.get(arm, [])
        self.pause_s = min(MOST_PAUSE_S, PAUSE_S + plain_s)
        stray = "" if whys else self._stray_of(arm)
        if not whys and not looks and not stray:
            return None
        answer = (
            LookAnswer.cannot(whys[0])
            if whys
            else self._answer(looks, program, plain_s)
            if looks
            else LookAnswer.fails(stray)
        )
        if stray and answer.outcome is not Outcome.FAIL:
            answer = LookAnswer.fails(stray)
        if answer.outcome is Outcome.PASS:
            answer = replace(
                answer, detail=f"{answer.detail}{self._repeated_words(arm, len(looks))}"
            )
        unknown = answer.outcome is Outcome.UNKNOWN
        return Check(
            name=REFEREED,
            arm=arm,
            outcome=answer.outcome,
            detail=answer.detail[:MAX_DETAIL],
            informative=unknown,
        )

    def check_reference(
        self, arm: str, build: Callable[[], Program], *, plain_s: float
    ) -> Check | None:
        """Return the check `refereed` of the reference arm.

        It is against a fresh program that `build` makes; `None` if there were no looks. `plain_s`
        is the median of its samples (s per call). If a fresh build does not repeat itself after
        some more calls, nothing follows: the model keeps state by design.
        """
        looks = self.looks.get(arm, [])
        if stray := self._stray(self.repeats.arms.get(arm)):
            return Check(
                name=REFEREED,
                arm=arm,
                outcome=Outcome.UNKNOWN,
                detail=stray[:MAX_DETAIL],
                informative=True,
            )
        if not looks:
            return None
        try:
            with self._beside(build) as fresh:
                check = replace(fresh, looks={arm: looks}).check(
                    arm, self.reference, plain_s=plain_s
                )
            if check is None or check.outcome is not Outcome.FAIL:
                passed = check is not None and check.outcome is Outcome.PASS
                words = self._repeated_words(arm, len(looks)) if passed else ""
                return (
                    None
                    if check is None
                    else replace(check, detail=f"{check.detail}{words}"[:MAX_DETAIL])
                )
            with self._beside(build) as fresh:
                if not fresh.keeps_state(looks[0].seed):
                    return check
            detail = (
                "a fresh build of it leaves something else after more calls: the model keeps state,"
                " or does not repeat itself"
            )
        except Exception as error:  # noqa: BLE001 - benched code may raise anything when it is built again
            detail = f"it cannot be built once more beside what is timed: {words_of(error)}"[
                :MAX_DETAIL
            ]
        return Check(
            name=REFEREED, arm=arm, outcome=Outcome.UNKNOWN, detail=detail, informative=True
        )

    @contextmanager
    def _beside(self, build: Callable[[], Program]) -> "Iterator[Referee]":
        """Open a referee whose reference is a fresh program, called once.

        An optimizer then has its state.
        """
        fresh = build()
        try:
            for copy in copies(fresh):
                copy.remember()
            fresh.step(no_mark)
            yield Referee(clock=self.clock, reference=fresh, start=self.start, itself=True)
        finally:
            close(fresh)

    def _stray_of(self, arm: str) -> str:
        """Describe wrong results of a candidate's calls on the prepared inputs.

        Empty if none are known.
        """
        candidate, reference = (self.repeats.arms.get(name) for name in (arm, self.reference_arm))
        if candidate is None or reference is None or not reference.calls or self._stray(reference):
            return ""
        if (candidate.draws or reference.draws) and not candidate.mostly_repeats:
            return ""
        if stray := self._stray(candidate):
            return stray
        if candidate.resets or reference.resets:
            return ""
        for results in candidate.known.values():
            faults = [
                self._describe_difference(results, first_results)
                for first_results in reference.known.values()
            ]
            if all(faults):
                return (
                    "what timed calls left on the prepared inputs is not what the reference's did:"
                    f" {faults[0]}"
                )
        return ""

    def _stray(self, repeated: Repeated | None) -> str:
        """Describe differences between calls on the same inputs that rounding does not explain."""
        for results in () if repeated is None else repeated.strays:
            faults = (
                [
                    self._describe_difference(results, first_results)
                    for first_results in repeated.known.values()
                ]
                if repeated is not None
                else []
            )
            if repeated is not None and all(faults):
                summary = (
                    f"{repeated.astray} of {repeated.calls} more calls on the same inputs left"
                    " something else than the first"
                )
                return f"{summary}: {faults[0]}"
        return ""

    def _describe_difference(self, results: Left, expected: Left) -> str:
        """Describe how two calls' results on the same inputs differ; empty if by rounding only.

        Rounding may change half of the digits. If that is not enough, a call on other inputs shows
        the effect of rounding on results.
        """
        coarse = self._coarsely(results, expected)
        if coarse.outcome is not Outcome.FAIL:
            return ""
        look = Look(seed=SEED, moved=True)
        reference_look, epsilon = self._again(look), self._rounding()
        noisy = [self._shaken(look, epsilon, noise=1 + index) for index in range(sum(SHAKES))]
        if reference_look.raised or any(shaken_look.raised for shaken_look in noisy):
            return ""
        unshaken = reference_look.left[0]
        runs = [
            expected,
            *(
                {
                    name: off_as_much(value, unshaken.get(name), shaken_look.left[0].get(name))
                    for name, value in expected.items()
                }
                for shaken_look in noisy
            ),
        ]
        agreement = agree(results, truth=None, runs=runs, epsilon=epsilon)
        return agreement.detail if agreement.outcome is Outcome.FAIL else ""

    def _repeated_words(self, arm: str, looks: int) -> str:
        """Return how many calls were compared, and which faults that would find."""
        repeated = self.repeats.arms.get(arm)
        if repeated is None or not repeated.calls:
            return ""
        same = "the same up to rounding" if repeated.differing else "the same"
        odds = (
            "a fault in 5 % of calls shows with a probability of"
            f" {chance_of_finding(repeated.calls + looks):.1%}"
        )
        return f"; {repeated.calls} more calls on the same inputs left {same}: {odds}"

    def keeps_state(self, seed: int) -> bool:
        """Return whether the reference gives other results after more calls.

        Seed and start are the same, and each look follows a pause. In the same memory each time:
        code that remembers results gives the same ones there, and that does not count as state.
        """
        paused = partial(
            take_look, self.clock, self.reference, seed, row=LookRow(before=1), pause_s=self.pause_s
        )
        first = paused(moved=False, state=self.start)
        for _ in range(MORE_CALLS):
            self.reference.step(no_mark)
        last = paused(moved=False, state=self.start)
        if first.raised or last.raised:
            return True
        return self._coarsely(last.left[0], first.left[0]).outcome is Outcome.FAIL

    def _answer(self, looks: Sequence[Look], program: Program, plain_s: float) -> LookAnswer:
        answers = [self._judged(look) for look in looks]
        worst = max(answers, key=lambda answer: ORDER.index(answer.outcome))
        slow = (
            min((look.wall_s for look in looks if not look.raised), default=0.0) > SUSPECT * plain_s
        )
        if worst.outcome is not Outcome.FAIL:
            worst = (self._suspected(program, secret=looks[0].seed) if slow else None) or worst
        if worst.outcome is Outcome.PASS:
            worst = self._remembering_parts(program, secret=looks[0].seed) or worst
        if worst.outcome is not Outcome.PASS:
            return worst
        calls = "timed call" if len(answers) == 1 else "timed calls"
        verb = "agrees" if len(answers) == 1 else "agree"
        return LookAnswer(
            outcome=Outcome.PASS,
            detail=f"{len(answers)} {calls} with fresh inputs {verb}; {worst.detail}",
        )

    def _judged(self, look: Look) -> LookAnswer:
        """Compare one look's results with the reference's."""
        place = "a timed call on fresh inputs" + ("" if look.moved else " at known addresses")
        reference_look = self._again(look)
        if look.lacked_memory or reference_look.lacked_memory:
            return LookAnswer.cannot(
                f"there is no memory for {place}: {look.raised or reference_look.raised}"
            )
        if reference_look.raised:
            return LookAnswer.cannot(
                f"the reference cannot compute from fresh inputs: {reference_look.raised}"
            )
        fault = fault_of(look, reference_look)
        return (
            LookAnswer.fails(f"{place} {fault}")
            if fault
            else self._compared(look, reference_look, place)
        )

    def _compared(self, look: Look, reference_look: Look, place: str) -> LookAnswer:
        if not reference_look.left[0]:
            return LookAnswer.cannot("a replayed call leaves nothing that could be looked at")
        agreement = self._agreement(look, reference_look)
        if agreement.outcome is Outcome.FAIL and self.itself:
            return LookAnswer.fails(
                f"{place} differs from a fresh build of the same arm: {agreement.detail}"
            )
        if agreement.outcome is Outcome.FAIL:
            return self._of_other_draws(
                look, reference_look, f"{place} differs from the reference: {agreement.detail}"
            )
        if not look.fresh and self.start is None:
            return LookAnswer.cannot(
                "its inputs cannot be drawn again, so a replayed result would agree as well"
            )
        return LookAnswer(outcome=agreement.outcome, detail=agreement.detail)

    def _again(self, look: Look, *, draw: int = 0, seed: int = 0) -> Look:
        """Make the reference's own call from a look's seed, or from another.

        `draw` seeds its generators separately.
        """
        return take_look(
            self.clock,
            self.reference,
            seed or look.seed,
            moved=True,
            state=self.start,
            draw=draw or look.draw,
            row=look.row,
            pause_s=self.pause_s,
        )

    def _agreement(self, look: Look, reference_look: Look) -> Agreement:
        """Apply the rule of numbers, with as many shaken runs as it needs."""
        if self.itself:
            return max(
                (self._coarsely(results, reference_look.left[0]) for results in look.left),
                key=badness,
            )
        runs, jolts = [reference_look.left[0]], list[Left]()
        epsilon = self._rounding()
        agreement = self._worst(look, runs, jolts, epsilon)
        for more in SHAKES:
            if agreement.outcome is Outcome.PASS:
                break
            after = reference_look.left[0]
            noisy = [
                self._shaken(look, epsilon, noise=len(runs) + index, after=after)
                for index in range(more)
            ]
            runs += [shaken_look.left[0] for shaken_look in noisy if not shaken_look.raised]
            if more == SHAKES[-1] and jolt_of(epsilon):
                jolted = self._shaken(
                    look, jolt_of(epsilon), noise=JOLTED + len(runs) + more, after=after
                )
                jolts += [] if jolted.raised else [jolted.left[0]]
            agreement = self._worst(look, runs, jolts, epsilon)
        return agreement

    def _rounding(self) -> float:
        """Return the rounding for the rule.

        It is that of a call's inner computation, if the reference knows it.
        """
        first_copy = copies(self.reference)[0]
        inside: Callable[[], float] | None = getattr(first_copy, "rounding", None)
        return first_copy.epsilon if inside is None else inside()

    def _shaken(self, look: Look, size: float, *, noise: int, after: Left | None = None) -> Look:
        """Make the reference's call with weights off by a share `size`, inputs by one rounding.

        Earlier steps of the row change the weights by an optimizer that loses digits (`lost_by`),
        all in one direction: they are off by that share of the change to those `after` the row,
        too.
        """
        first_copy = copies(self.reference)[0]
        state = first_copy.state() if self.start is None else self.start
        weights = {name: value for name, value in state.items() if name.startswith(WEIGHTS)}
        coin = torch.Generator().manual_seed(noise)
        off = {**state, **shaken(weights, size, coin)}
        if look.row.again and after is not None:
            rounding = FP32_EPSILON * (JOLT if noise >= JOLTED else 1.0)
            lost = float(torch.randn((), generator=coin)) * lost_by(first_copy.memory, rounding)
            changed = {
                name: after[name].double() - value
                for name, value in weights.items()
                if name in after
            }
            off |= {
                name: (off[name].double() + lost * change).to(off[name].dtype)
                for name, change in changed.items()
            }
        shaken_look = take_look(
            self.clock,
            self.reference,
            look.seed,
            moved=True,
            state=off,
            noise=noise,
            draw=look.draw,
            row=look.row,
            pause_s=self.pause_s,
        )
        for copy in copies(self.reference):
            copy.refresh(look.seed, moved=True, state=state)
            copy.resume()
        return shaken_look

    def _worst(
        self, look: Look, runs: Sequence[Left], jolts: Sequence[Left], epsilon: float
    ) -> Agreement:
        """Return the least agreement among a look's copies.

        `jolts` show the kinks that rounding may cross.
        """
        starts: Mapping[str, Tensor] = self.start or {}
        first_copy = copies(self.reference)[0]
        rule = partial(
            agree,
            truth=None,
            runs=runs,
            jolts=jolts,
            epsilon=epsilon,
            starts=starts,
            memory=first_copy.memory,
        )
        return max(map(rule, look.left), key=badness)

    def _coarsely(self, results: Left, expected: Left) -> Agreement:
        return agree_coarsely(results, expected, epsilon=copies(self.reference)[0].epsilon)

    def _of_other_draws(self, look: Look, reference_look: Look, fault: str) -> LookAnswer:
        """Check if a disagreement comes from other random numbers.

        Then it is as near to the reference as the reference's own draws are.
        """
        draws = [reference_look, *(self._again(look, draw=1 + index) for index in range(DRAWS))]
        if any(drawn.raised for drawn in draws) or not any(
            differing(reference_look.left[0], drawn.left[0]) for drawn in draws[1:]
        ):
            return LookAnswer.fails(fault)
        by_draw = [drawn.left[0] for drawn in draws]
        names = [
            name
            for name, value in reference_look.left[0].items()
            if value.is_floating_point() and value.numel()
        ]
        spread = {
            name: max(distance(first, second, name) for first in by_draw for second in by_draw)
            for name in names
        }
        if any(drawn_alike(results, by_draw[0], spread) for results in look.left):
            return LookAnswer.fails(fault)
        for name, width in spread.items():
            if any(
                min(distance(results, drawn, name) for drawn in by_draw) > BEYOND_DRAWS * width
                for results in look.left
            ):
                return LookAnswer.fails(f"{fault}; other random numbers do not explain {name}")
        other = self._again(look, seed=look.seed + 1)
        answering = [
            name
            for name, width in spread.items()
            if not other.raised and distance(by_draw[0], other.left[0], name) > BEYOND_DRAWS * width
        ]
        if not answering:
            return LookAnswer.cannot(
                "it draws other random numbers than the reference, which hide what its inputs"
                " change"
            )
        detail = (
            f"it draws other random numbers than the reference, and {len(answering)} results follow"
            " the fresh inputs"
        )
        return LookAnswer(outcome=Outcome.PASS, detail=detail)

    def _remembering(self, program: Program, *, secret: int) -> LookAnswer | None:
        """Check if an arm is fast only on inputs that it has seen.

        It must be so repeatedly, not in one bad moment of the machine.
        """
        for series in range(1, 1 + CONFIRMED):
            begin = partial(fresh_over_known, state=self.start, secret=secret + series * 2 * ROUNDS)
            ratio, usual = (begin(self.clock, subject) for subject in (program, self.reference))
            if ratio <= SLOWER_WHEN_FRESH * max(usual, 1.0):
                return None
        detail = (
            f"a call takes {ratio:.1f} times as long on fresh inputs as on known ones, and the"
            f" reference's {usual:.1f} times"
        )
        return LookAnswer.fails(f"{detail}: what was timed remembers results")

    def _suspected(self, program: Program, *, secret: int) -> LookAnswer | None:
        """Check an arm whose looks took longer than its samples.

        Tries each way to be quick without computing.
        """
        return self._remembering(program, secret=secret) or self._putting_off(
            program, secret=secret
        )

    def _putting_off(self, program: Program, *, secret: int) -> LookAnswer | None:
        """Check if a call computes only after a pause, and returns something else in a row.

        Such code computes if a write delays its call. The reference is delayed as much. If only
        some writes are that late, more looks find one that was not. A fresh build puts off as much
        as the arm, so nothing follows from it.
        """
        if self.itself:
            return None
        for series in range(1, 1 + CONFIRMED):
            begin = partial(delayed_call, state=self.start, secret=secret + series * 2 * ROUNDS)
            delay, reference_delay = (
                begin(self.clock, subject) for subject in (program, self.reference)
            )
            if not puts_off(delay, reference_delay):
                return self._looked_again(program, secret=secret)
        words = (
            f"a call takes {delay.least_s:.2g} s longer after a short pause than in a row of calls"
            f" ({delay.call_s:.2g} s each)"
        )
        return LookAnswer.fails(f"{words}: what was timed computes only after a pause")

    def _looked_again(self, program: Program, *, secret: int) -> LookAnswer | None:
        """Check more looks: the arm may have noticed a late write in the first ones."""
        coin = random.Random(secret)  # noqa: S311 - it spreads a seed that was drawn as a secret
        habits = habits_of(self.clock, program, self.start, seed=coin.getrandbits(31) + 1)
        for _ in range(MORE_LOOKS if habits.written else 0):
            row, seed = habits.row(coin, CALLS_IN_A_ROW), coin.getrandbits(31) + 1
            answer = self._judged(
                take_look(self.clock, program, seed, moved=False, state=self.start, row=row)
            )
            if answer.outcome is Outcome.FAIL:
                return answer
        return None

    def _remembering_parts(self, program: Program, *, secret: int) -> LookAnswer | None:
        """Check if the first call on fresh values takes longer than the third.

        That shows that part of a call is remembered. A quick look comes first, which costs little.
        A reference that remembers may do so intentionally, so nothing follows from it.
        """
        for series in range(1 + CONFIRMED):
            begin = partial(
                first_over_third,
                state=self.start,
                secret=secret + (1 + series) * SEEDS,
                careful=series > 0,
            )
            ratio = begin(self.clock, program)
            usual = (
                1.0
                if self.itself or ratio <= SLOWER_AT_FIRST
                else max(begin(self.clock, self.reference), 1.0)
            )
            if ratio <= (SLOWER_AT_FIRST if series else GLANCED) * usual:
                return None
        detail = (
            f"a call takes {ratio:.1f} times as long on fresh inputs as on the same ones the third"
            " time"
        )
        if self.itself:
            return LookAnswer.cannot(
                f"{detail}: what was timed remembers some of its results, which may be meant"
            )
        return LookAnswer.fails(
            f"{detail}, and the reference's {usual:.1f} times: what was timed remembers results"
        )
