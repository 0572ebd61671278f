"""Simulated paired runs as documents: noise as runs show it, both sides and all arms in palindromic turns.

Per launch and side an offset, per launch a drift that all turns share, per sample white noise.
Slowdowns are planted by factor.
"""

from dataclasses import replace

import numpy as np
from judge_builders import metric, result, results

from ci_bench.judge.compare import compare
from ci_bench.judge.times import calibration as calibrating
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy
from ci_bench.records.results import Better, Lane, Launch, Unit

LAUNCH, WHITE, DRIFT = 0.003, 0.008, 0.02
"""Standard deviations of what a launch offsets, of what a sample does, and of the walk that all
turns share.
"""

NOW = "2026-01-31T00:00:00Z"


def turns(rng, series, blocks, offsets, noise):
    """Log samples of all seats (side and arm) of one launch: [seats, 2 blocks], in palindromes under one common walk."""
    count = len(series)
    walk = np.cumsum(rng.standard_normal(2 * count * blocks)) * DRIFT / np.sqrt(2 * count * blocks)
    samples = np.empty((count, 2 * blocks))
    for block in range(blocks):
        order = rng.permutation(count)
        for place, seat in enumerate([*order, *reversed(order)]):
            at = 2 * count * block + place
            samples[seat, 2 * block + (place >= count)] = walk[at]
    white = WHITE * noise * rng.standard_normal(samples.shape)
    return samples + white + np.asarray(series)[:, None] + np.asarray(offsets)[:, None]


def case_of(rng, number, *, launches, blocks, arms, factor, noise, singles, extra):
    """One case on both sides. `factor` gives by metric and arm what head takes more."""
    taken = {}
    for launch in range(launches):
        sides = [(side, arm) for side in ("base", "head") for arm in arms]
        centre = [
            np.log(0.02 * (1 + number) * (1 + arms.index(arm)) * factor(side, "step_time", arm))
            for side, arm in sides
        ]
        shared = LAUNCH * noise * rng.standard_normal((2, len(arms)))
        offsets = [shared[("base", "head").index(side), arms.index(arm)] for side, arm in sides]
        for (side, arm), row in zip(sides, turns(rng, centre, blocks, offsets, noise), strict=True):
            numbers = tuple(np.repeat(np.arange(blocks), 2).tolist())
            one = Launch(
                launch=launch, values=tuple(np.exp(row).tolist()), blocks=numbers, steady=True
            )
            taken.setdefault((side, "step_time", arm), []).append(one)
            if singles and arm != arms[0]:
                seconds = (
                    4.0 * factor(side, "compile_warm", arm) * np.exp(0.05 * rng.standard_normal())
                )
                taken.setdefault((side, "compile_warm", arm), []).append(
                    Launch(launch=launch, values=(float(seconds),))
                )
    documents = []
    for side in ("base", "head"):
        metrics = [
            metric(tuple(series), name=name, arm=arm)
            for (of, name, arm), series in taken.items()
            if of == side
        ]
        documents.append(result(*extra(metrics), id=f"s/c{number}", arms=arms))
    return documents


def simulate(
    seed,
    *,
    cases=6,
    launches=4,
    blocks=10,
    arms=("eager", "inductor"),
    slower=None,
    noise=1.0,
    singles=True,
    extra=lambda metrics: metrics,
    run=None,
):
    """Base's and head's results.

    `slower` maps (case number, metric, arm) to a factor on head; anything may be `None`: all.
    """
    rng = np.random.default_rng(seed)

    def factor_of(number):
        def factor(side, name, arm):
            own = (number, name, arm)
            fits = [
                by
                for key, by in (slower or {}).items()
                if all(k in {None, v} for k, v in zip(key, own, strict=True))
            ]
            return float(np.prod(fits)) if side == "head" and fits else 1.0

        return factor

    both = [
        case_of(
            rng,
            number,
            launches=launches,
            blocks=blocks,
            arms=arms,
            factor=factor_of(number),
            noise=noise,
            singles=singles,
            extra=extra,
        )
        for number in range(cases)
    ]
    base, head = (results(*(pair[side] for pair in both)) for side in (0, 1))
    return base, head if run is None else replace(head, run=replace(head.run, **run))


def calibrated(*, runs=6, seed=1000, **options):
    """What some runs of unchanged code taught, one a day."""
    known = None
    for number in range(runs):
        run = {"id": f"aa-{number}", "started_at": f"2026-01-{number + 1:02}T00:00:00Z"}
        base, head = simulate(seed + number, run=run, **options)
        known = calibrating.merge(known, calibrating.collect(base, head, tool_version="1"))
    return known


def paired(base, head, *, policy=None, calibration=None, now=NOW, rule=None):
    return compare(
        base=base,
        head=head,
        policy=policy or Policy(),
        mode=BaselineMode.PAIRED,
        absence=None,
        tool_version="1",
        calibration=calibration,
        now=now,
        rule=rule or SequentialRule(),
    )


def pairs_of(comparison):
    """By case number, metric and arm."""
    return {
        (int(case.id[3:]), pair.metric, pair.arm): pair
        for case in comparison.cases
        for pair in case.pairs
    }


def rated(metrics):
    """The same steps told as rates."""
    return [_as_rate(one) if one.name == "step_time" else one for one in metrics]


def _as_rate(one):
    launches = tuple(
        replace(launch, values=tuple(1 / value for value in launch.values))
        for launch in one.launches
    )
    return replace(one, name="rate", unit=Unit.PER_SECOND, better=Better.HIGHER, launches=launches)


def device_clock(metrics):
    """Also by the device's clock."""
    return [
        *metrics,
        *(
            replace(one, name="device_time", lane=Lane.DEVICE)
            for one in metrics
            if one.name == "step_time"
        ),
    ]
