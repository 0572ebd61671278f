"""The rule on many cases at once, against the rule in plain Python for each: all that it says of each, at each stage of a run."""

import dataclasses
from dataclasses import replace

import numpy as np
import plain_rule
import pytest

from ci_bench.judge.times import sequential
from ci_bench.judge.times.noise import Learned
from ci_bench.judge.times.sequential import SequentialRule, adaptive, fixed

CASES = 12
RULES = {
    "default": SequentialRule(),
    "gating": SequentialRule(gating=40),
    "few looks": adaptive(6),
    "one look": fixed(4),
    "one look at two": fixed(2),
    "patient": SequentialRule(patience=99),
    "soon over": SequentialRule(patience=2, regular=4, suspect=1.0, suspect_late=1.2),
    "own thresholds": SequentialRule(
        tau=np.log1p(np.linspace(0.002, 0.08, CASES)),
        margin=np.log1p(np.linspace(0.004, 0.16, CASES)),
    ),
    "warm soon": SequentialRule(
        cold_launches=3, level=0.9, recurrence=0.6, confirmation=0.4, beta=0.2, alpha=0.05
    ),
    "confirmed": SequentialRule(recurrence=0.9, confirmation=0.999),
}


def simulated(seed, *, known):
    """Launches [cases, 16] with some that were not run, spreads within, and what was learned; `known` is how many have a history."""
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.uniform(-7.5, -3.5, CASES))
    shift = rng.choice([0.0, 0.0, 0.004, 0.02, -0.05, 0.3], CASES)
    d = shift[:, None] + spread[:, None] * rng.standard_normal((CASES, 16))
    d[rng.random(d.shape) < 0.1] = np.nan
    d[0, rng.integers(16) :] = np.nan
    own = spread * np.exp(rng.normal(0, 0.3, CASES))
    own[known:] = np.nan
    freedom = np.where(rng.random(CASES) < 0.2, rng.uniform(0, 8, CASES), rng.uniform(4, 60, CASES))
    within = np.where(
        rng.random(d.shape) < 0.1, np.nan, 0.01 * np.exp(rng.normal(0.2, 0.2, d.shape))
    )
    return d, within, Learned(spread=own, freedom=freedom, within=np.full(CASES, 0.01))


def told(ruling, row):
    fields = (
        "code",
        "mean",
        "error",
        "low",
        "high",
        "resolvable",
        "needed",
        "launches",
        "next_look",
        "inflation",
        "calibrated",
    )
    return {name: getattr(ruling, name)[row].item() for name in fields}


@pytest.mark.parametrize("known", [CASES, 7, 0])
@pytest.mark.parametrize(("bound", "excursions"), [(0.0, 0.002), (0.003, 0.002), (0.0, 0.08)])
@pytest.mark.parametrize("name", RULES)
def test_what_it_says_of_each_case_is_the_plain_rule(name, bound, excursions, known):
    for seed, done in ((1, 16), (2, 16), (4, 5), (5, 2)):
        d, within, learned = simulated(seed, known=known)
        d[:, done:] = np.nan
        learned = replace(learned, bound=bound, excursions=excursions)
        ruling = sequential.replay(d, within, learned, RULES[name])
        for row, wanted in enumerate(plain_rule.replay(d, within, learned, RULES[name])):
            assert told(ruling, row) == pytest.approx(wanted, rel=1e-6, abs=1e-9, nan_ok=True), (
                seed,
                row,
            )


@pytest.mark.parametrize("known", [CASES, 0])
@pytest.mark.parametrize(
    ("size", "share"), [(0.03, 0.4), (0.008, 0.5), (0.05, 1.0)], ids=["launches", "small", "all"]
)
@pytest.mark.parametrize("name", ["default", "own thresholds", "warm soon"])
def test_shifts_of_all_cases_are_the_plain_rule(name, size, share, known):
    for seed, done in ((1, 16), (2, 8), (4, 3)):
        d, within, learned = simulated(seed, known=known)
        d = np.where(np.arange(CASES)[:, None] < CASES - 1, d - np.nanmedian(d, axis=1)[:, None], d)
        d += size * (np.random.default_rng(seed).random(16) < share)
        d[:, done:] = np.nan
        ruling = sequential.replay(d, within, learned, RULES[name])
        for row, wanted in enumerate(plain_rule.replay(d, within, learned, RULES[name])):
            assert told(ruling, row) == pytest.approx(wanted, rel=1e-6, abs=1e-9, nan_ok=True), (
                seed,
                row,
            )


@pytest.mark.parametrize("name", ["default", "warm soon"])
def test_runs_side_by_side_are_each_by_itself(name):
    runs = [simulated(seed, known=9) for seed in range(3)]
    fields = ("spread", "freedom", "within")
    learned = Learned(
        **{field: np.stack([getattr(run[2], field) for run in runs]) for field in fields}
    )
    together = sequential.replay(
        *(np.stack([run[part] for run in runs]) for part in (0, 1)), learned, RULES[name]
    )
    for number, run in enumerate(runs):
        alone = sequential.replay(*run, RULES[name])
        for field in dataclasses.fields(alone):
            assert getattr(together, field.name)[number] == pytest.approx(
                getattr(alone, field.name), nan_ok=True
            ), field.name


def test_all_kinds_of_answers_are_among_them():
    rulings = [sequential.replay(*simulated(1, known=7), rule) for rule in RULES.values()]
    cut = [np.where(np.arange(16) < 2, figure, np.nan) for figure in simulated(1, known=7)[:2]]
    early = sequential.replay(*cut, simulated(1, known=7)[2], RULES["default"])

    assert {code for ruling in rulings for code in ruling.code.tolist()} == {-1, 0, 1, 2}
    assert set(early.next_look.tolist()) >= {0, 3}
