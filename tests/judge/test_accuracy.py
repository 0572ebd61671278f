"""Accuracy parity: exact test where masks match, shares where they don't, and nothing where nothing was evaluated."""

import pytest
from judge_builders import evidence, trace

from ci_bench.judge.accuracy import accuracy_parity, mcnemar, two_proportions
from ci_bench.records.case import Masks, Role


def verdict(reference, candidate, disagreements=None, *, rows=1000, masks=Masks.ALIGNED, seeds=1):
    runs = [trace(Role.REFERENCE, seed=seed, accuracy=reference) for seed in range(seeds)]
    runs += [trace(Role.CANDIDATE, seed=seed, accuracy=candidate, disagreements=disagreements) for seed in range(seeds)]
    return accuracy_parity(evidence(*runs, rows=rows, masks=masks), "inductor", masks)


def test_mcnemar_is_the_exact_binomial():
    assert mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert mcnemar(0, 0) == 1.0


def test_two_proportions_by_hand():
    assert two_proportions(0.5, 0.6, 100) == pytest.approx(0.15522, abs=1e-4)
    assert two_proportions(1.0, 1.0, 10) == 1.0


@pytest.mark.parametrize(
    ("reference", "candidate", "disagreements", "holds"),
    [
        (0.60, 0.60, (0, 0), True),
        (0.60, 0.55, (55, 5), False),
        (0.55, 0.60, (5, 55), False),
        (0.600, 0.595, (5, 0), True),
        (0.60, 0.58, (120, 100), True),
        (0.600, 0.592, (8, 0), True),
    ],
)
def test_broken_only_when_unlikely_and_large(reference, candidate, disagreements, holds):
    assert verdict(reference, candidate, disagreements).holds is holds


def test_seeds_are_pooled():
    single, pooled = verdict(0.60, 0.58, (30, 15)), verdict(0.60, 0.58, (30, 15), seeds=3)
    assert single.holds
    assert not pooled.holds
    assert "90 rows lost, 45 won" in pooled.detail


def test_differing_masks_compare_shares():
    fine, broken = (verdict(0.6, share, (60, 10), masks=Masks.DIFFER) for share in (0.57, 0.50))
    assert fine.holds
    assert not broken.holds
    assert "two-proportion" in fine.detail
    assert fine.p_value == pytest.approx(two_proportions(0.6, 0.57, 1000))


def test_unknown_rows_leave_the_difference_to_decide():
    assert verdict(0.60, 0.595, rows=0).p_value is None
    assert verdict(0.60, 0.595, rows=0).holds
    assert not verdict(0.60, 0.58, rows=0).holds


@pytest.mark.parametrize(("reference", "candidate"), [(None, 0.5), (0.5, None), (0.5, float("nan")), (2.0, 0.5)])
def test_nothing_without_both_accuracies(reference, candidate):
    assert verdict(reference, candidate) is None
