"""Measures how often launches of head are reported to scatter more widely than base's.

Run as ``python -m benchmarks.scatter_quality [--runs N] [--json FILE]``. Noise is simulated; runs
have 50 cases, all gating. A *false alarm* is a run of unchanged code in which any case is reported
to scatter. The last columns are the share of reported cases if launches of head scatter by so much
(a standard deviation of the logarithm). The same seed gives the same table.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.contenders import SAMPLES
from benchmarks.noise_models import SETTINGS, Setting, draw_launches, draw_suite
from benchmarks.tables import publish, render
from benchmarks.verdict_quality import CASES, CHUNK
from ci_bench.judge.times.noise import trimmed_mean
from ci_bench.judge.times.suspicion import wider_scatter

LAUNCHES = (4, 5, 8, 16)
PLANTS = (0.2, 0.5)
PER_CENT = 100.0


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, print the table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=[setting.name for setting in SETTINGS])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    settings = [setting for setting in SETTINGS if setting.name in arguments.models]
    rows = [row for setting in settings for row in _rows(setting, arguments.runs, arguments.seed)]
    publish(
        render("Launches said to scatter more widely than base's", rows),
        {"rows": rows},
        arguments.json,
    )
    return 0


def _rows(setting: Setting, runs: int, seed: int) -> Iterator[dict[str, str]]:
    alarms, caught = np.zeros(len(LAUNCHES)), np.zeros((len(LAUNCHES), len(PLANTS)))
    gating = np.ones(CASES, dtype=np.bool_)
    for start in range(0, runs, CHUNK):
        rng = np.random.Generator(np.random.PCG64([seed, start]))
        suite = draw_suite(rng, setting, min(CHUNK, runs - start), CASES)
        sides = draw_launches(rng, suite, LAUNCHES[-1], SAMPLES)
        base, head = (trimmed_mean(side.astype(np.float64)) / PER_CENT for side in sides)
        scatter = rng.standard_normal(head.shape)
        for place, launches in enumerate(LAUNCHES):
            for base_run, head_run in zip(base[..., :launches], head[..., :launches], strict=True):
                alarms[place] += np.isfinite(wider_scatter(base_run, head_run, gating)).any()
            for column, plant in enumerate(PLANTS):
                planted = head + plant * scatter
                for base_run, head_run in zip(
                    base[..., :launches], planted[..., :launches], strict=True
                ):
                    caught[place, column] += np.isfinite(
                        wider_scatter(base_run, head_run, gating)
                    ).sum()
    for place, launches in enumerate(LAUNCHES):
        shares = {
            f"{plant:.0%} found": f"{caught[place, column] / runs / CASES:.1%}"
            for column, plant in enumerate(PLANTS)
        }
        yield {
            "model": setting.name,
            "launches": str(launches),
            "false alarms": f"{alarms[place] / runs:.2%}",
            **shares,
        }


if __name__ == "__main__":
    raise SystemExit(main())
