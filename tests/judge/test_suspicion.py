"""What an undecided change for the worse amounts to: bounds by hand, what is never suspected, and how seldom it is wrong."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ci_bench.judge import wording
from ci_bench.judge.times import sequential, strays
from ci_bench.judge.times.noise import FEW_EXCURSIONS, Learned, nothing_learned
from ci_bench.judge.times.pairing import undecided
from ci_bench.judge.times.sequential import SequentialRule
from ci_bench.judge.times.suspicion import (
    ALPHA,
    PRIORS,
    NoiseSource,
    Suspicion,
    Undecided,
    quantile,
    suspicion_of_one,
    suspicions,
)
from ci_bench.records.comparison import Verdict

TAU = math.log(1.01)


def words(
    d, *, gating=None, source=NoiseSource.RUNS, within=None, learned=None, excursions=FEW_EXCURSIONS
):
    """The suspicion of each case [cases, launches] after these launches of a rule that may take sixteen."""
    d = np.asarray(d, dtype=np.float64)
    whole = np.full((len(d), 16), np.nan)
    whole[:, : d.shape[1]] = d
    inside = np.full(whole.shape, np.nan if within is None else within)
    gating = np.ones(len(d), dtype=bool) if gating is None else np.array(gating)
    ruling = sequential.replay(
        whole,
        inside,
        learned or nothing_learned(len(d)),
        SequentialRule(gating=max(1, int(gating.sum()))),
    )
    cases = Undecided(
        d=whole,
        within=inside,
        tau=np.full(len(d), TAU),
        source=np.full(len(d), source),
        gating=gating,
        excursions=excursions,
    )
    return [Suspicion(word) for word in suspicions(cases, ruling).tolist()]


def limit(source, gating):
    prior = PRIORS[source]
    return stats.t.ppf(1 - ALPHA / gating, prior.freedom) * prior.spread


@pytest.mark.parametrize("source", list(NoiseSource))
@pytest.mark.parametrize("gating", [1, 7, 50])
def test_one_launch_is_held_against_the_prior(source, gating):
    bound = limit(source, gating)
    others = [[0.0]] * (gating - 1)

    alone = Suspicion.POSSIBLE if source is NoiseSource.COMPILATION else Suspicion.SUSPECTED
    assert words([[1.01 * bound], *others], source=source)[0] is alone
    assert words([[0.99 * bound], *others], source=source)[0] is Suspicion.POSSIBLE
    assert words([[1.9 * PRIORS[source].spread], *others], source=source)[0] is Suspicion.NONE


def test_two_runs_of_one_launch_each_have_two_priors():
    bound = limit(NoiseSource.RUNS, 1) * math.sqrt(2)

    assert (
        suspicion_of_one(TAU + 1.01 * bound, TAU, NoiseSource.RUNS, gating=1) is Suspicion.SUSPECTED
    )
    assert (
        suspicion_of_one(TAU + 0.99 * bound, TAU, NoiseSource.RUNS, gating=1) is Suspicion.POSSIBLE
    )
    assert suspicion_of_one(0.0, TAU, NoiseSource.RUNS, gating=1) is Suspicion.NONE


def test_one_compilation_is_never_suspected():
    """One in twenty compilations of unchanged code takes half as long again: 8 to 38 % of runs had one suspected."""
    assert words([[3.0]], source=NoiseSource.COMPILATION) == [Suspicion.POSSIBLE]
    assert words([[3.0, 3.1]], source=NoiseSource.COMPILATION) == [Suspicion.SUSPECTED]
    assert suspicion_of_one(9.0, TAU, NoiseSource.COMPILATION, gating=1) is Suspicion.POSSIBLE


def test_improvements_details_and_decided_cases_are_never_suspected():
    decided = [[0.5, 0.5, 0.5, 0.5, 0.5, 0.5]]
    history = Learned(spread=np.array([0.01]), freedom=np.array([20.0]), within=np.array([np.nan]))

    assert words([[-3.0]]) == [Suspicion.NONE]
    assert words([[3.0], [0.0]], gating=[False, True]) == [Suspicion.NONE, Suspicion.NONE]
    assert words(decided, learned=history) == [Suspicion.NONE]
    assert words([[math.nan]]) == [Suspicion.NONE]


def test_what_scatters_inside_its_launches_is_not_trusted_more_than_that():
    change = 1.01 * limit(NoiseSource.TURNS, 1)

    assert words([[change]], source=NoiseSource.TURNS) == [Suspicion.SUSPECTED]
    assert words([[change]], source=NoiseSource.TURNS, within=0.1) == [Suspicion.NONE]


@pytest.mark.parametrize(
    ("spread", "d", "word"),
    [(0.001, 0.1, Suspicion.NONE), (0.06, 0.4, Suspicion.SUSPECTED), (0.2, 0.38, Suspicion.NONE)],
)
def test_one_launch_is_trusted_no_more_than_the_prior_and_no_more_than_the_history(spread, d, word):
    known = Learned(spread=np.array([spread]), freedom=np.array([20.0]), within=np.array([np.nan]))
    assert words([[d]], learned=known) == [word]


def test_one_launch_that_went_astray_among_others_raises_no_suspicion():
    assert words([[0.01, 0.0, 0.0, 3.0]])[0] is not Suspicion.SUSPECTED
    assert words([[0.8, 0.9, 0.8, 0.9]])[0] is Suspicion.SUSPECTED


@pytest.mark.parametrize(("elsewhere", "red"), [(0, True), (8, False)], ids=["calm", "straying"])
def test_where_launches_stray_today_those_of_one_case_fail_nothing(elsewhere, red):
    """Two of three launches are 9 % longer, on a machine whose history is calm: an accident, if launches of others stray as well."""
    rng = np.random.default_rng(5)
    d = np.full((50, 16), np.nan)
    d[:, :3] = 0.002 * rng.standard_normal((50, 3))
    d[0, :2] += 0.09
    d[1 : 1 + elsewhere, 0] += 0.09
    history = Learned(
        spread=np.full(50, 0.002), freedom=np.full(50, 20.0), within=np.full(50, np.nan)
    )
    inside, every = np.full(d.shape, np.nan), np.ones(50, dtype=bool)
    cases = Undecided(
        d=d,
        within=inside,
        tau=np.full(50, TAU),
        source=np.full(50, NoiseSource.TURNS),
        gating=every,
    )
    ruling = sequential.replay(d, inside, history, SequentialRule(gating=50))
    failing = (ruling.code == sequential.Code.REGRESSED) | (
        suspicions(cases, ruling) == Suspicion.SUSPECTED
    )
    assert (failing[0], failing[1 + elsewhere :].any()) == (red, False)


@pytest.mark.parametrize(
    ("d", "word"),
    [
        ([1.6, 1.6], Suspicion.SUSPECTED),
        ([0.7, 0.7], Suspicion.SUSPECTED),
        ([0.09, 0.09], Suspicion.POSSIBLE),
        ([1.6, 0.0], None),
    ],
)
def test_both_launches_may_have_strayed_but_not_so_far_as_no_machine_does(d, word):
    """A machine one of whose launches in ten strays: two that are five times as long each are no accident of it."""
    known = Learned(
        spread=np.array([0.003]),
        freedom=np.array([20.0]),
        within=np.array([np.nan]),
        excursions=0.1,
    )
    (found,) = words([d], learned=known, source=NoiseSource.TURNS, excursions=0.1)
    assert (found is word) if word else (found is not Suspicion.SUSPECTED)


@pytest.mark.parametrize(
    ("d", "gating", "word"),
    [
        ([4.2, 2.6, 3.9, 1.8, 4.4], 1, Suspicion.SUSPECTED),
        ([4.2, 2.6, 3.9, 1.8, 4.4], 9, Suspicion.SUSPECTED),
        ([4.2, 0.1, 3.9, 2.1, 4.4], 1, Suspicion.SUSPECTED),
        ([4.2, 0.1, 3.9, 0.2, 4.4], 1, Suspicion.POSSIBLE),
        ([0.9, 0.3, 1.0, 0.4, 1.1], 20, Suspicion.POSSIBLE),
        ([4.2, -0.5, 3.9, 1.4, -1.1], 1, Suspicion.NONE),
    ],
)
def test_large_changes_that_scatter_widely(d, gating, word):
    """On a machine without a history: five launches that are 6 to 80 times as long are no noise, however they scatter."""
    assert words([d, *([[math.nan] * 5] * (gating - 1))])[0] is word


@settings(max_examples=60, deadline=None)
@given(
    d=st.lists(st.floats(-2, 2), min_size=1, max_size=4),
    more=st.floats(0.0, 2.0),
)
def test_a_larger_change_in_every_launch_is_never_less_suspect(d, more):
    assert words([[one + more for one in d]])[0] >= words([d])[0]


def test_unchanged_code_is_hardly_ever_suspected_after_one_launch():
    """Launches as heavy-tailed as the prior, and no worse: 2,000 runs of ten metrics."""
    rng = np.random.default_rng(3)
    prior = PRIORS[NoiseSource.RUNS]
    d = np.full((2000, 10, 16), np.nan)
    d[..., 0] = prior.spread * rng.standard_t(prior.freedom, size=(2000, 10))
    nothing, every = np.full(d.shape, np.nan), np.ones((2000, 10), dtype=bool)
    unknown = Learned(spread=nothing[..., 0], freedom=np.zeros((2000, 10)), within=nothing[..., 0])
    cases = Undecided(
        d=d,
        within=nothing,
        tau=np.full((2000, 10), TAU),
        source=np.full((2000, 10), NoiseSource.RUNS),
        gating=every,
    )
    found = suspicions(cases, sequential.replay(d, nothing, unknown, SequentialRule(gating=10)))
    red = int((found == Suspicion.SUSPECTED).any(axis=-1).sum())
    assert red <= 12, "5 are expected; more than 12 have a chance of a thousandth"


def plainly(d, within, ruling, *, source, gating, strayed):
    """The word for one case of a run with so many gating ones, step by step; `ruling` has its mean, error and freedom."""
    mean, count, prior = math.fsum(d) / len(d), len(d), PRIORS[source]
    spread = max(prior.spread, *within)
    freedom = prior.freedom + count - 1
    error = math.sqrt(
        (prior.freedom * spread**2 + math.fsum((one - mean) ** 2 for one in d)) / freedom / count
    )
    if math.isfinite(ruling[1]) and (count > 1 or ruling[1] > error):
        mean, error, freedom = ruling
    if mean <= TAU:
        return Suspicion.NONE
    rest = sorted(d)[: count - strayed]
    lasting = stats.t.ppf(0.99, freedom) * error * math.sqrt(count / max(1, len(rest)))
    beyond = stats.t.ppf(1 - ALPHA / gating, prior.freedom) * spread
    recurs = count == 1 or min(d) > beyond or (bool(rest) and math.fsum(rest) / len(rest) > lasting)
    repeated = count > 1 or source is not NoiseSource.COMPILATION
    if repeated and mean > stats.t.ppf(1 - ALPHA / gating, freedom) * error and recurs:
        return Suspicion.SUSPECTED
    return Suspicion.POSSIBLE if mean > 2 * error else Suspicion.NONE


@pytest.mark.parametrize("source", list(NoiseSource))
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("excursions", "known"),
    [(FEW_EXCURSIONS, False), (0.02, False), (0.3, False), (FEW_EXCURSIONS, True)],
)
def test_many_cases_at_once_are_each_what_a_plain_loop_says(source, count, excursions, known):
    """Also where launches may have strayed, and where the machine's history is known to be calm."""
    rng = np.random.default_rng(10 * count + source)
    history = Learned(
        spread=np.full(400, 0.002), freedom=np.full(400, 20.0), within=np.full(400, np.nan)
    )
    learned = history if known else nothing_learned(400)
    d = (
        rng.uniform(0.0, 8.0, size=(400, 1))
        * PRIORS[source].spread
        * (1 + 0.6 * rng.standard_normal((400, count)))
    )
    d[::7, 0] *= 4.0
    within = rng.uniform(0.0, 0.08, size=d.shape)
    whole, inside = (np.full((400, 16), np.nan) for _ in range(2))
    whole[:, :count], inside[:, :count] = d, within
    ruling = sequential.replay(whole, inside, learned, SequentialRule(gating=400))
    every = np.ones(400, dtype=bool)
    cases = Undecided(
        d=whole,
        within=inside,
        tau=np.full(400, TAU),
        source=np.full(400, source),
        gating=every,
        excursions=excursions,
    )
    found = suspicions(cases, ruling)
    share = np.fmax(excursions, ruling.excursions)
    strayed = strays.by_chance(np.full(400, count), share, np.full(400, ALPHA / 400))
    is_open = ruling.code == sequential.Code.OPEN
    wanted = [
        plainly(
            d[row],
            within[row],
            (ruling.mean[row], ruling.error[row], ruling.freedom[row]),
            source=source,
            gating=400,
            strayed=int(strayed[row]),
        )
        for row in np.flatnonzero(is_open)
    ]
    assert found[is_open].tolist() == [int(word) for word in wanted]
    assert not found[~is_open].any()
    assert known or len({*wanted}) > 1


def test_a_change_of_exactly_the_threshold_is_none():
    far = np.array([[0.5, *[np.nan] * 15]])
    inside = np.full(far.shape, np.nan)
    ruling = sequential.replay(far, inside, nothing_learned(1), SequentialRule(gating=1))
    words = [
        Suspicion(
            suspicions(
                Undecided(
                    d=far,
                    within=inside,
                    tau=np.array([tau]),
                    source=np.array([NoiseSource.TURNS]),
                    gating=np.array([True]),
                ),
                ruling,
            )[0]
        )
        for tau in (0.5, 0.499)
    ]
    assert words == [Suspicion.NONE, Suspicion.SUSPECTED]


def test_of_several_runs_at_once_each_shares_its_chance_among_its_own_gating_cases():
    bound = limit(NoiseSource.RUNS, 3)
    d = np.full((2, 3, 16), np.nan)
    d[:, :, 0] = 0.0
    d[0, 0, 0], d[1, 0, 0] = 1.01 * bound, 0.99 * bound
    inside = np.full(d.shape, np.nan)
    ruling = sequential.replay(d, inside, nothing_learned(3), SequentialRule(gating=3))
    cases = Undecided(
        d=d,
        within=inside,
        tau=np.full(3, TAU),
        source=np.full(3, NoiseSource.RUNS),
        gating=np.ones((2, 3), dtype=bool),
    )
    assert suspicions(cases, ruling)[:, 0].tolist() == [Suspicion.SUSPECTED, Suspicion.POSSIBLE]


def test_less_than_one_degree_of_freedom_counts_as_one():
    found = quantile(0.9, np.array([0.5, 1.0, 1.5]))
    assert found.tolist() == pytest.approx(stats.t.ppf(0.9, [1.0, 1.0, 1.5]).tolist())


@pytest.mark.parametrize(
    ("word", "suspected", "possible"),
    [(Suspicion.SUSPECTED, True, False), (Suspicion.POSSIBLE, False, True)],
)
def test_a_verdict_says_how_much_is_suspected(word, suspected, possible):
    found = undecided(word, change="5 % slower", advice="take more", speedup=0.95)
    assert (
        found.reason
        == f"5 % slower; {wording.doubt(suspected=suspected, possible=possible)}take more"
    )
    assert (found.verdict is Verdict.SUSPECTED, found.possible) == (suspected, possible)
    assert (
        undecided(Suspicion.NONE, change="5 % slower", advice="take more", speedup=0.95).reason
        == "take more"
    )
