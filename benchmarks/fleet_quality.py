"""Measures how often verdicts are right if launches of a case ran on devices that differ.

``python -m benchmarks.fleet_quality --runs 2000 --json fleet_quality.json``

Samples are those of `noise_models` (`mix`, 50 cases, 20 launches of history from one device).
Launches go around `--slots` devices. Each device is slower than the others by a figure of its own
for each case (``N(0, 2 %)``), on both sides, since both are measured on it; and it does more to
head than to base, by another one (*apart*), which is what does not cancel. Of unchanged code that
is 0; the table asks what becomes of the promise where it is not. *blind* is the rule that does not
know which launch was taken where. *False alarms* are runs of unchanged code in which a case is
called regressed, with the exact 95 % interval; *found* is of a tenth of the cases, slowed by 2 and
5 %.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.contenders import HISTORY, SAMPLES, figures_of, learn
from benchmarks.noise_models import MIX, Floats, draw_launches, draw_suite
from benchmarks.tables import publish, render
from benchmarks.verdict_quality import CASES, CHUNK, PLANTED, clopper_pearson
from ci_bench.judge.times import sequential
from ci_bench.judge.times.sequential import Code, SequentialRule

BETWEEN = 0.02
"""The difference between devices on both sides alike, as a share of the time."""
APART = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)
"""The differences between them on one side only."""
PLANTS = (0.02, 0.05)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Reported shares and counts for one size of what devices do to one side only."""

    apart: float
    """The size: the standard deviation of what a device does to head only, as a share."""
    told: bool
    """True if the rule knows the slot of each launch."""
    runs: int
    """The number of simulated runs."""
    false_alarms: int
    """The number of runs of unchanged code in which a case is called regressed."""
    false_alarm_interval: tuple[float, float]
    """The exact 95 % interval of the share of such runs."""
    found_2: float
    """The share of cases slowed by 2 % that are called regressed."""
    found_5: float
    """The share of cases slowed by 5 % that are called regressed."""
    settled_unchanged: float
    """The share of cases of unchanged code that are called unchanged."""
    launches: float
    """The mean number of launches of a case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Simulated fleet and suite."""

    slots: int = 3
    """The number of devices that launches go around."""
    cases: int = CASES
    """The number of cases of a run."""
    history: int = HISTORY
    """The launches of unchanged code that each case has behind it."""
    apart: float = 0.0
    """As in `Figures`."""
    told: bool = True
    """As in `Figures`."""


def score(scene: Scene, *, runs: int, seed: int, sizes: Sequence[float] = APART) -> list[Figures]:
    """Return the figures for each size, by the rule that knows the slots and the blind one."""
    scenes = (
        replace(scene, apart=size, told=informed) for size in sizes for informed in (True, False)
    )
    return [_figures(variant, runs=runs, seed=seed) for variant in scenes]


def _figures(scene: Scene, *, runs: int, seed: int) -> Figures:
    counts = np.zeros(7)
    for start in range(0, runs, CHUNK):
        counts += _chunk(
            scene, min(CHUNK, runs - start), np.random.Generator(np.random.PCG64([seed, start]))
        )
    alarms, settled, launches, found_2, found_5, planted, judged = counts
    return Figures(
        apart=scene.apart,
        told=scene.told,
        runs=runs,
        false_alarms=int(alarms),
        false_alarm_interval=clopper_pearson(alarms, runs),
        found_2=found_2 / planted,
        found_5=found_5 / planted,
        settled_unchanged=settled / judged,
        launches=launches / judged,
    )


def _chunk(scene: Scene, runs: int, rng: np.random.Generator) -> Floats:
    suite = draw_suite(rng, MIX, runs, scene.cases)
    planted = rng.random(suite.kind.shape).argsort(axis=-1) < max(1, scene.cases * PLANTED // CASES)
    learned = learn(rng, suite, scene.history)
    rule = SequentialRule()
    most = rule.looks[-1]
    base, head = draw_launches(rng, suite, most, SAMPLES)
    place = np.arange(most) % scene.slots
    common, one_sided = (
        rng.standard_normal((*suite.kind.shape, scene.slots))[..., place, None] for _ in range(2)
    )
    both = (100 * BETWEEN * common).astype(np.float32)
    d, within = figures_of(
        base + both, head + both + (100 * scene.apart * one_sided).astype(np.float32)
    )
    slots = np.broadcast_to(place, d.shape) if scene.told else None
    judge = partial(sequential.replay, within=within, learned=learned, rule=rule, slots=slots)
    clean = judge(d)
    slowed = [
        judge(d + (planted * np.log1p(plant))[..., None]).code == Code.REGRESSED for plant in PLANTS
    ]
    return np.array(
        [
            (clean.code == Code.REGRESSED).any(axis=-1).sum(),
            (clean.code == Code.UNCHANGED).sum(),
            clean.launches.sum(),
            *(hits[planted].sum() for hits in slowed),
            planted.sum(),
            planted.size,
        ],
        dtype=np.float64,
    )


def row(of: Figures) -> dict[str, str]:
    """Return a row of the printed table."""
    low, high = of.false_alarm_interval
    return {
        "apart": f"{100 * of.apart:g} %",
        "rule": "told" if of.told else "blind",
        "false alarms/run": (
            f"{100 * of.false_alarms / of.runs:.2f} % [{100 * low:.2f}, {100 * high:.2f}]"
        ),
        "+2 %": f"{100 * of.found_2:.1f}",
        "+5 %": f"{100 * of.found_5:.1f}",
        "unchanged": f"{100 * of.settled_unchanged:.1f}",
        "launches": f"{of.launches:.2f}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet_quality", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--runs", type=int, default=200, help="simulated runs for each row (2000 to publish)"
    )
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--slots", type=int, default=3, help="devices that launches go around")
    parser.add_argument("--cases", type=int, default=CASES, help="cases of a run")
    parser.add_argument(
        "--history",
        type=int,
        default=HISTORY,
        help="launches of unchanged code that each case has behind it",
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    scene = Scene(slots=options.slots, cases=options.cases, history=options.history)
    results = score(scene, runs=options.runs, seed=options.seed)
    title = (
        f"{options.slots} devices: {options.runs} runs of {options.cases} cases, seed"
        f" {options.seed}; shares in %"
    )
    document = {
        "benchmark": "fleet_quality",
        "seed": options.seed,
        "slots": options.slots,
        "results": [asdict(figures) for figures in results],
    }
    publish(render(title, [row(result) for result in results]), document, options.json)


if __name__ == "__main__":
    main()
