"""Measures the worth of noise learned from gates: simulated weeks of machines.

The machines drift and jump; their gates are A/A and with planted changes.

Run as ``python -m benchmarks.gate_noise [--weeks N] [--cases N ...] [--json FILE]``.

Each machine has gates on its default branch, which teach, and one gate a week that is judged. A
*false alarm* is a judged run without any change in which a case is called regressed. Rules: `cold`
knows nothing, `calibrated` had eight launches of A/A before the first week, and no more since,
`gates` learns from the first launch of each gate of the default branch that is not certainly
changed, as `ci-bench gate --learn` does. *Heard* is how much higher the spread that is used is
after one, two and three gates of a machine that became three times as noisy.

A machine's noise is an Ornstein-Uhlenbeck walk of its logarithm (sd 0.4, eight weeks), and with a
chance of 2 % a week it is three times as noisy for about six weeks. Launches are those of the
classes of `noise_models`, as log-ratios; 3 % of the gates of the default branch really change a
case, by 2 % (sd).
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.noise_models import CASE_SPREAD, CLASSES, Floats, Generator
from benchmarks.tables import publish, render
from benchmarks.verdict_quality import clopper_pearson
from ci_bench.judge.times.noise import Learned, fading, learn, nothing_learned
from ci_bench.judge.times.sequential import Code, SequentialRule, replay

PER_WEEK, MOST, LAUNCHES = 4, 40, 16
SAMPLES = 20
LOUD, LOUD_CHANCE, LOUD_WEEKS = 3.0, 0.02, 6.0
WALK, WALK_WEEKS = 0.4, 8.0
CHANGE_SHARE, CHANGE = 0.03, 0.02
PLANTS = (0.02, 0.03, 0.04, 0.05)
MARGIN = 0.04
"""The change that must not be called unchanged."""
RULES = ("cold", "calibrated", "gates")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """Machines with their cases, in a normal week."""

    kind: np.ndarray
    """The class of each case, as an index of `CLASSES` [machines, cases]."""
    spread: Floats
    """The standard deviation of a launch's log-ratio [machines, cases]."""
    mode: Floats
    """The offset of a launch in the slow mode, in logarithms [machines, cases]."""
    mode_share: Floats
    """The share of launches in the slow mode [machines, cases]."""
    blind: bool
    """True if the inner spread of launches is unknown."""

    def draw(self, rng: Generator, factor: Floats, launches: int) -> tuple[Floats, Floats]:
        """Draw log-ratios and inner spreads of unchanged code [machines, cases, launches].

        `factor` [machines] is that of the noise.
        """
        shape = (*self.spread.shape, launches)
        scale = (self.spread * factor[:, None])[..., None]
        modes = rng.random((2, *shape)) < self.mode_share[..., None]
        d = (
            scale * rng.standard_normal(shape)
            + (modes[0].astype(float) - modes[1]) * self.mode[..., None]
        )
        within = scale * np.exp(0.15 * rng.standard_normal(shape))
        return d, np.full(shape, np.nan) if self.blind else within


def machines(rng: Generator, count: int, cases: int, *, blind: bool) -> Machines:
    """Draw so many machines, each with cases of the classes of `noise_models`."""
    share = np.array([case_class.share for case_class in CLASSES])
    kind = rng.choice(len(CLASSES), size=(count, cases), p=share / share.sum())
    factor = np.exp(CASE_SPREAD * rng.standard_normal((count, cases)))

    def of(name: str) -> Floats:
        return np.array([getattr(case_class, name) for case_class in CLASSES])[kind] / 100

    samples = of("white") * np.sqrt((1 + of("rho") * 100) / (1 - of("rho") * 100) / SAMPLES)
    spread = factor * np.sqrt(2 * (of("launch") ** 2 + samples**2))
    return Machines(
        kind=kind, spread=spread, mode=of("mode"), mode_share=of("mode_share") * 100, blind=blind
    )


def learn_from_gates(past: Floats, within: Floats) -> Learned:
    """Learn from the first launches of gates, the last of them last: [machines, cases, gates]."""
    later = np.arange(past.shape[-1], dtype=np.float64)[::-1]
    return learn(past, within, np.broadcast_to(fading(later), past.shape))


def simulate(
    seed: int, *, count: int, weeks: int, cases: int, blind: bool
) -> dict[str, dict[str, float]]:
    """Return counts by rule: runs, false alarms, launches, and the share found of each plant."""
    rng = np.random.Generator(np.random.PCG64([seed, cases, blind]))
    fleet = machines(rng, count, cases, blind=blind)
    walk, loud = WALK * rng.standard_normal(count), np.zeros(count)
    past, inner = np.full((2, count, cases, MOST), np.nan)
    first = fleet.draw(rng, np.exp(walk), 8)
    calibrated = learn(*first, np.ones((count, cases, 8)))
    tally = {
        rule: dict.fromkeys(
            (
                "runs",
                "alarms",
                "launches",
                "unchanged",
                "wrong",
                *(f"found{100 * plant:.0f}" for plant in PLANTS),
            ),
            0.0,
        )
        for rule in RULES
    }
    planted = rng.random((count, cases)).argsort(axis=-1) < max(1, cases // 10)
    for _ in range(weeks):
        keep = np.exp(-1 / WALK_WEEKS)
        walk = keep * walk + WALK * np.sqrt(1 - keep**2) * rng.standard_normal(count)
        loud = np.where(
            loud > 0,
            loud - 1,
            (rng.random(count) < LOUD_CHANCE) * rng.exponential(LOUD_WEEKS, count),
        )
        factor = np.exp(walk) * np.where(loud > 0, LOUD, 1.0)
        d, within = fleet.draw(rng, factor, LAUNCHES)
        nothing = nothing_learned(cases)
        cold = Learned(
            spread=np.broadcast_to(nothing.spread, planted.shape),
            freedom=np.broadcast_to(nothing.freedom, planted.shape),
            within=np.broadcast_to(nothing.within, planted.shape),
        )
        for rule, learned in zip(
            RULES, (cold, calibrated, learn_from_gates(past, inner)), strict=True
        ):
            _count(tally[rule], d, within, learned, planted)
        for _gate in range(PER_WEEK):
            ratio, spread = fleet.draw(rng, factor, LAUNCHES)
            changed = rng.random(ratio.shape[:2]) < CHANGE_SHARE
            ratio += (changed * CHANGE * rng.standard_normal(changed.shape))[..., None]
            code = replay(ratio, spread, learn_from_gates(past, inner), SequentialRule()).code
            ratio[np.abs(code) == Code.REGRESSED] = np.nan
            ratio, spread = ratio[..., :1], spread[..., :1]
            past, inner = (
                np.concatenate([old[..., 1:], new], axis=-1)
                for old, new in ((past, ratio), (inner, spread))
            )
    return tally


def _count(
    into: dict[str, float], d: Floats, within: Floats, learned: Learned, planted: np.ndarray
) -> None:
    clean = replay(d, within, learned, SequentialRule())
    into["runs"] += len(d)
    into["alarms"] += (clean.code == Code.REGRESSED).any(axis=-1).sum()
    into["launches"] += clean.launches.mean(axis=-1).sum()
    into["unchanged"] += (clean.code == Code.UNCHANGED).mean(axis=-1).sum()
    for plant in PLANTS:
        code = replay(
            d + (planted * np.log1p(plant))[..., None], within, learned, SequentialRule()
        ).code
        into[f"found{plant * 100:.0f}"] += (code == Code.REGRESSED)[planted].mean() * len(d)
        if plant == MARGIN:
            into["wrong"] += (code == Code.UNCHANGED)[planted].mean() * len(d)


def heard(seed: int, *, cases: int, count: int = 400) -> list[float]:
    """Return the rise of the used spread after one, two and three gates of a noisy machine.

    It is `LOUD` times as noisy.
    """
    rng = np.random.Generator(np.random.PCG64([seed, cases]))
    fleet = machines(rng, count, cases, blind=True)
    past = fleet.draw(rng, np.ones(count), MOST)[0]
    before, ratios = learn_from_gates(past, np.full(past.shape, np.nan)).spread, []
    for _ in range(3):
        past = np.concatenate([past[..., 1:], fleet.draw(rng, np.full(count, LOUD), 1)[0]], axis=-1)
        after = learn_from_gates(past, np.full(past.shape, np.nan)).spread
        ratios.append(float(np.median(after / before)))
    return ratios


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate_noise", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--weeks", type=int, default=2000, help="judged runs in all, a week each")
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--cases", type=int, nargs="*", default=[1, 5, 50])
    parser.add_argument("--seed", type=int, default=53)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    rows, risen, document = [], [], []
    for cases in options.cases:
        for blind in (False, True):
            weeks = max(1, options.weeks // options.machines)
            tally = simulate(
                options.seed, count=options.machines, weeks=weeks, cases=cases, blind=blind
            )
            for rule, counts in tally.items():
                document.append({"cases": cases, "blind": blind, "rule": rule, **counts})
                rows.append(_row(cases, rule, counts, blind=blind))
        document.append({"cases": cases, "heard": (rise := heard(options.seed, cases=cases))})
        risen.append(
            {
                "cases": str(cases),
                **{f"after {gates}": f"{times:.2f}" for gates, times in enumerate(rise, 1)},
            }
        )
    text = render("Noise learned from gates; shares in %", rows)
    heard_text = render(
        f"The spread that is used, of a machine {LOUD:g} times as noisy, by gates, over the one"
        " before",
        risen,
    )
    publish(f"{text}\n{heard_text}", {"benchmark": "gate_noise", "rows": document}, options.json)


def _row(cases: int, rule: str, counts: dict[str, float], *, blind: bool) -> dict[str, str]:
    runs = counts["runs"]
    low, high = clopper_pearson(counts["alarms"], runs)
    return {
        "cases": str(cases),
        "rule": rule + (", samples blind" if blind else ""),
        "runs": f"{runs:.0f}",
        "false alarms/run": (
            f"{100 * counts['alarms'] / runs:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
        ),
        "launches": f"{counts['launches'] / runs:.2f}",
        "unchanged": f"{100 * counts['unchanged'] / runs:.0f}",
        f"+{100 * MARGIN:.0f} % wrongly unchanged": f"{100 * counts['wrong'] / runs:.1f}",
        **{
            f"+{100 * plant:.0f} %": f"{100 * counts[f'found{100 * plant:.0f}'] / runs:.1f}"
            for plant in PLANTS
        },
    }


if __name__ == "__main__":
    main()
