"""Measures how often undecided cases are suspected, if measuring ended after few launches.

It is on simulated noise.

Run as ``python -m benchmarks.suspicion_quality [--runs N] [--json FILE]``. Runs have 50 cases, all
gating. A *false alarm* is a run without any change in which a case is suspected or called
regressed; the last columns are the share of slowed cases (a tenth of a run's, the others unchanged)
that are either. The same seed gives the same table.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.contenders import HISTORY, SAMPLES, figures_of, learn
from benchmarks.noise_models import SETTINGS, Floats, Setting, draw_launches, draw_suite
from benchmarks.tables import publish, render
from benchmarks.verdict_quality import CASES, CHUNK, PLANTED
from ci_bench.judge.times import sequential
from ci_bench.judge.times.audit import binomial_interval
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import Code, SequentialRule, Truths
from ci_bench.judge.times.suspicion import NoiseSource, Suspicion, Undecided, suspicions

STOPS = (1, 2, 3, 4, 6, 16)
PLANTS = (30.0, 100.0, 400.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=[setting.name for setting in SETTINGS])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    rows = [
        row
        for setting in SETTINGS
        if setting.name in arguments.models
        for history in (HISTORY, 0)
        for row in _rows(setting, history, arguments.runs, arguments.seed)
    ]
    publish(
        render("Suspected or regressed where measuring ended early", rows),
        {"rows": rows},
        arguments.json,
    )
    return 0


def _rows(setting: Setting, history: int, runs: int, seed: int) -> Iterator[dict[str, str]]:
    alarms, caught = np.zeros(len(STOPS)), np.zeros((len(STOPS), len(PLANTS)))
    for start in range(0, runs, CHUNK):
        rng = np.random.Generator(np.random.PCG64([seed, start, history]))
        suite = draw_suite(rng, setting, min(CHUNK, runs - start), CASES)
        planted = rng.random(suite.kind.shape).argsort(axis=-1) < PLANTED
        learned = learn(rng, suite, history)
        d, within = figures_of(*draw_launches(rng, suite, STOPS[-1], SAMPLES))
        for place, stop in enumerate(STOPS):
            alarms[place] += _red(d, within, learned, stop).any(axis=-1).sum()
            for column, plant in enumerate(PLANTS):
                slower = d + (planted * np.log1p(plant / 100))[..., None]
                caught[place, column] += _red(slower, within, learned, stop)[planted].sum()
    for place, stop in enumerate(STOPS):
        low, high = binomial_interval(int(alarms[place]), runs)
        yield {
            "noise": setting.name,
            "calibrated": "yes" if history else "no",
            "launches": str(stop),
            "false alarms": f"{alarms[place] / runs:.2%} [{low:.1%}, {high:.1%}]",
            **{
                f"+{plant:g} %": f"{caught[place, column] / runs / PLANTED:.1%}"
                for column, plant in enumerate(PLANTS)
            },
        }


def _red(d: Floats, within: Floats, learned: Learned, stop: int) -> Truths:
    """Return whether each case [runs, cases] would fail its run after so many launches.

    It is by the rule that may take sixteen.
    """
    measured, inside = (
        np.where(np.arange(values.shape[-1]) < stop, values, np.nan) for values in (d, within)
    )
    rule = replace(SequentialRule(), gating=CASES)
    ruling = sequential.replay(measured, inside, learned, rule)
    shape = measured.shape[:-1]
    cases = Undecided(
        d=measured,
        within=inside,
        tau=np.broadcast_to(np.asarray(rule.tau), shape),
        source=np.full(shape, NoiseSource.TURNS),
        gating=np.ones(shape, dtype=np.bool_),
        excursions=learned.excursions,
    )
    red: Truths = (ruling.code == Code.REGRESSED) | (
        suspicions(cases, ruling) == Suspicion.SUSPECTED
    )
    return red


if __name__ == "__main__":
    raise SystemExit(main())
