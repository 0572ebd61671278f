"""The scored rules behind one interface: ours with more or less history, and the anchors.

Owns how each contender samples a simulated suite. A contender draws its samples once, and changes
are injected into the same samples: rows differ only by the change.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.anchors import ANCHORS, Anchor
from benchmarks.noise_models import Floats, Generator, Singles, Suite, draw_launches
from ci_bench.judge.times import noise, sequential
from ci_bench.judge.times.sequential import Code, SequentialRule, fixed
from ci_bench.judge.times.suspicion import NoiseSource, Suspicion, Undecided, suspicions

SAMPLES = 20
"""Per arm and launch: ten ABBA blocks."""

HISTORY = 20
"""A/A launches that each case has behind it."""

PER_RUN = 2
"""Launches of one run of A/A; each run was another day."""

_PER_CENT = 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Answers of a rule for a suite."""

    regressed: NDArray[np.bool_]
    """True for cases that are called regressed [runs, cases]."""
    improved: NDArray[np.bool_] | None
    """True for cases called improved [runs, cases]; `None` if the rule has no such answer."""
    unchanged: NDArray[np.bool_] | None
    """True for cases called unchanged [runs, cases]; `None` as for `improved`."""
    covered: NDArray[np.bool_] | None
    """True if the interval holds the true change [runs, cases]; `None` as for `improved`."""
    launches: NDArray[np.intp]
    """The number of launches of each case [runs, cases]."""
    alarm: NDArray[np.bool_] | None = None
    """Regressed or suspected [runs, cases]; `None` if the rule suspects nothing."""
    builds: Floats | float = 0.0
    """The log-ratio of head's build of unchanged code over base's; 0 as for `improved`."""


Judge = Callable[[Floats], Outcome]
"""Judges the drawn samples with a change planted: [runs, cases] in per cent of log time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A rule to be scored.

    `enter` draws the samples of a suite and returns its judge; `samples` are per arm and launch.
    """

    name: str
    samples: int
    enter: Callable[[Generator, Suite], Judge]


def ours(name: str, rule: SequentialRule, *, history: int = HISTORY) -> Contender:
    """Return our rule after `history` launches of A/A."""

    def enter(rng: Generator, suite: Suite) -> Judge:
        learned = learn(rng, suite, history)
        base, head = draw_launches(rng, suite, rule.looks[-1], SAMPLES)
        if suite.setting.effects and suite.setting.effects.grid:
            learned = _with_grid(learned, base, head)
        d, within = figures_of(base, head)
        builds = suite.builds / _PER_CENT
        return lambda plant: replace(
            _judge(d, within, learned, rule, plant / _PER_CENT), builds=builds
        )

    return Contender(name=name, samples=SAMPLES, enter=enter)


def _with_grid(learned: noise.Learned, base: Singles, head: Singles) -> noise.Learned:
    """Add the error of a coarse clock, as `judge.times.paired` finds it for each case."""
    sides = [
        np.exp(side.astype(np.float64) / _PER_CENT).reshape(-1, side.shape[-2] * side.shape[-1])
        for side in (base, head)
    ]
    steps = np.array([noise.grid_step(*pair) for pair in zip(*sides, strict=True)]).reshape(
        base.shape[:2]
    )
    return replace(learned, grid=steps)


def learn(rng: Generator, suite: Suite, history: int) -> noise.Learned:
    """Learn the noise of a suite from `history` launches of A/A."""
    base, head = draw_launches(rng, suite, history, SAMPLES, day=PER_RUN)
    d, within = figures_of(base, head)
    return noise.with_runs(
        noise.learn(d, within, np.ones(history)), d, np.arange(history) // PER_RUN
    )


def figures_of(base: Singles, head: Singles) -> tuple[Floats, Floats]:
    """Return the log-ratio and the inner spread of each launch, as doubles.

    Sums are taken of singles, which is twice as fast.
    """
    ratio, within = noise.launch_ratio(base, head), noise.within_spread(base, head)  # type: ignore[arg-type]
    return ratio / _PER_CENT, within / _PER_CENT


def _judge(
    d: Floats, within: Floats, learned: noise.Learned, rule: SequentialRule, plant: Floats
) -> Outcome:
    d = d + plant[..., None]
    ruling = sequential.replay(d, within, learned, rule)
    regressed = ruling.code == Code.REGRESSED
    return Outcome(
        regressed=regressed,
        alarm=regressed | _suspected(d, within, learned, rule, ruling),
        improved=ruling.code == Code.IMPROVED,
        unchanged=ruling.code == Code.UNCHANGED,
        covered=(ruling.low <= plant) & (plant <= ruling.high),
        launches=ruling.launches,
    )


def _suspected(
    d: Floats,
    within: Floats,
    learned: noise.Learned,
    rule: SequentialRule,
    ruling: sequential.Ruling,
) -> NDArray[np.bool_]:
    """Return which of the open cases are suspected, from the launches that were judged."""
    judged = np.cumsum(np.isfinite(d), axis=-1) <= ruling.launches[..., None]
    cases = Undecided(
        d=np.where(judged, d, np.nan),
        within=np.where(judged, within, np.nan),
        tau=np.broadcast_to(np.asarray(rule.tau, dtype=np.float64), ruling.code.shape),
        source=np.full(ruling.code.shape, NoiseSource.TURNS),
        gating=np.ones(ruling.code.shape, dtype=np.bool_),
        excursions=learned.excursions,
    )
    return np.asarray(suspicions(cases, ruling) == Suspicion.SUSPECTED, dtype=np.bool_)


def peer(anchor: Anchor) -> Contender:
    """Return an anchor as a contender."""

    def enter(rng: Generator, suite: Suite) -> Judge:
        base, head = draw_launches(rng, suite, anchor.launches, anchor.samples)

        def judge(plant: Floats) -> Outcome:
            regressed, launches = anchor.decide(
                base, head + plant[..., None, None].astype(np.float32)
            )
            return Outcome(
                regressed=regressed, improved=None, unchanged=None, covered=None, launches=launches
            )

        return judge

    return Contender(name=anchor.name, samples=anchor.samples, enter=enter)


HPGS = SequentialRule(
    looks=(1, 2, 3, 4, 6, 8), alpha_shares=(1 / 6,) * 6, patience=99, suspect_late=0
)
"""The rule that ours grew from: equal shares of alpha for all looks, and no one gives up before the
eighth launch.
"""

TO_EIGHT = SequentialRule(looks=(1, 2, 3, 4, 6, 8), alpha_shares=(0, 0.01, 0.03, 0.06, 0.2, 0.7))
"""Our rule without the looks at 12 and 16 launches."""

OURS = ours("ci-bench", SequentialRule())
VARIANTS = (
    ours("ci-bench, at most 8 launches", TO_EIGHT),
    ours("ci-bench, equal shares, no giving up", HPGS),
    ours("ci-bench, 3 launches fixed", fixed(3)),
    ours("ci-bench, 4 launches learned", SequentialRule(), history=4),
    ours("ci-bench, nothing learned", SequentialRule(), history=0),
)
PEERS = tuple(peer(anchor) for anchor in ANCHORS)
