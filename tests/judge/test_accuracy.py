"""Accuracy parity: against the spread of runs that rounding alone drives apart, and the same weights evaluated both ways."""

import pytest
from judge_builders import evidence, perturbed, trace

from ci_bench.judge.parity.over_seeds import accuracy_parity
from ci_bench.judge.times.ratios import t_quantile
from ci_bench.records.results import Masks, Role


def verdict(candidate, peers=(0.60, 0.61, 0.59, 0.60), disagreements=None, *, rows=1000, seeds=1):
    runs = []
    for seed in range(seeds):
        runs.append(trace(Role.REFERENCE, seed=seed, accuracy=peers[0]))
        runs += [
            perturbed(seed=seed, index=index, accuracy=share)
            for index, share in enumerate(peers[1:])
        ]
        runs.append(
            trace(Role.CANDIDATE, seed=seed, accuracy=candidate, disagreements=disagreements)
        )
    return accuracy_parity(evidence(*runs, rows=rows, masks=Masks.ALIGNED), "inductor")


def test_limit_by_hand():
    """Four peers with standard deviation 0.00816: t(0.995, 3) = 5.841 times s sqrt(1 + 1/4)."""
    found = verdict(0.60)
    assert found.spread == pytest.approx(0.0081650, abs=1e-6)
    assert found.limit == pytest.approx(5.8409 * 0.0081650 * 1.25**0.5, rel=1e-3)
    assert found.reference == pytest.approx(0.60)


@pytest.mark.parametrize(
    ("candidate", "peers", "holds"),
    [
        (0.60, (0.60, 0.60, 0.60, 0.60), True),
        (0.609, (0.60, 0.60, 0.60, 0.60), True),
        (0.589, (0.60, 0.60, 0.60, 0.60), False),
        (0.611, (0.60, 0.60, 0.60, 0.60), False),
        (0.56, (0.60, 0.61, 0.59, 0.60), True),
        (0.53, (0.60, 0.61, 0.59, 0.60), False),
        (0.20, (0.74, 0.71, 0.75, 0.73), False),
        (0.708, (0.739, 0.72, 0.75, 0.715), True),
        (0.58, (0.60,), False),
        (0.595, (0.60,), True),
        (0.61, (0.60,), True),
        (0.59, (0.60,), True),
        (0.0, (0.0,), True),
        (0.0, (0.50,), False),
        (1.0, (1.0,), True),
    ],
)
def test_broken_beyond_what_rounding_does(candidate, peers, holds):
    assert verdict(candidate, peers).holds is holds


def test_what_is_seen_is_told_in_points():
    """Four peers with mean 0.7325 and standard deviation 0.017078; the limit is 5.841 s sqrt(1 + 1/4)."""
    found = verdict(0.20, (0.74, 0.71, 0.75, 0.73))
    assert found.detail == "-53.25 points, limit 11.15 (rounding spreads runs by 1.71)"


def test_no_candidate_is_off_by_more_than_all_rows():
    """Two peers that rounding drives all the way apart: t(0.995, 1) alone is 63.7."""
    found = verdict(0.50, (0.0, 1.0))
    assert (found.limit, found.holds) == (1.0, True)


def test_more_seeds_narrow_the_limit():
    one, three = verdict(0.57), verdict(0.57, seeds=3)
    assert one.holds
    assert not three.holds
    assert three.limit == pytest.approx(
        max(0.01, t_quantile(0.995, 9) * three.spread * (3 * 1.25) ** 0.5 / 3)
    )


@pytest.mark.parametrize(
    ("disagreements", "holds"), [((0, 0), True), ((3, 2), True), ((4, 2), False), ((0, 40), False)]
)
def test_the_same_weights_must_evaluate_alike(disagreements, holds):
    assert verdict(0.60, disagreements=disagreements).holds is holds


@pytest.mark.parametrize(("flipped", "holds"), [((1, 0), True), ((1, 1), False)])
def test_of_a_few_rows_one_may_flip(flipped, holds):
    assert verdict(0.60, disagreements=flipped, rows=20).holds is holds


def cut_short(candidate, *, whole=(0.60,), cut=3):
    """A candidate beside peers of which some were evaluated, and `cut` perturbed runs that ended with the envelope."""
    runs = [trace(Role.REFERENCE, accuracy=whole[0])]
    runs += [perturbed(index=index, accuracy=share) for index, share in enumerate(whole[1:])]
    runs += [perturbed(index=len(whole) + index, accuracy=None) for index in range(cut)]
    return accuracy_parity(
        evidence(*runs, trace(Role.CANDIDATE, accuracy=candidate), rows=1000, masks=Masks.ALIGNED),
        "inductor",
    )


def test_where_peers_were_cut_short_what_holds_is_certain_to():
    found = cut_short(0.607)
    assert (found.holds, found.spread) == (True, None)
    assert (
        found.detail
        == "+0.70 points, limit 0.77 (whatever 3 perturbed runs, cut short, would have shown)"
    )


@pytest.mark.parametrize(
    ("candidate", "whole", "cut"),
    [(0.608, (0.60,), 3), (0.63, (0.60, 0.605), 2), (0.56, (0.6, 0.605), 2)],
)
def test_where_peers_were_cut_short_although_it_was_not_certain_it_is_broken(candidate, whole, cut):
    """Two whole peers alone would allow for 63.7 times their spread."""
    assert not cut_short(candidate, whole=whole, cut=cut).holds
    if len(whole) > 1:
        assert cut_short(candidate, whole=whole, cut=0).holds


def test_peers_of_other_data_do_not_count():
    runs = [
        trace(Role.REFERENCE, accuracy=0.6),
        perturbed(accuracy=0.1, data="other"),
        trace(Role.CANDIDATE, accuracy=0.6),
    ]
    assert accuracy_parity(evidence(*runs, rows=1000), "inductor").spread is None


@pytest.mark.parametrize(
    ("reference", "candidate"), [(None, 0.5), (0.5, None), (0.5, float("nan")), (2.0, 0.5)]
)
def test_nothing_without_both_accuracies(reference, candidate):
    assert verdict(candidate, (reference, 0.5)) is None
