"""The seed script's own rule, with its quirks."""

import math

import pytest
from judge_builders import evidence, trace

from ci_bench.judge.parity.runs import seed_rule, window_means
from ci_bench.records.results import Role


def rule(reference, candidate, steps_per_epoch=125):
    runs = [trace(Role.REFERENCE, loss=reference), trace(Role.CANDIDATE, loss=candidate)]
    return seed_rule(evidence(*runs, steps_per_epoch=steps_per_epoch), "inductor")


def test_windows_start_anew_in_every_epoch_and_drop_the_rest():
    losses = (*[1.0] * 100, *[9.0] * 25, *[2.0] * 100, *[9.0] * 25)
    assert window_means(losses, steps_per_epoch=125) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("steps", "per_epoch", "windows"),
    [(250, 250, 2), (99, 99, 0), (260, 130, 2), (150, 1000, 1), (300, 0, 0), (398, 199, 2)],
)
def test_number_of_windows(steps, per_epoch, windows):
    assert len(window_means((1.0,) * steps, steps_per_epoch=per_epoch)) == windows


@pytest.mark.parametrize(
    ("candidate", "passed"),
    [(1.0, True), (0.0, True), (1.0999, True), (1.2, False)],
)
def test_ten_windows_may_be_worse_by_a_tenth(candidate, passed):
    assert rule([1.0] * 1250, [candidate] * 1250).passed is passed


def test_one_window_is_still_divided_by_ten():
    assert rule([1.0] * 125, [1.9] * 125).passed is True
    assert rule([1.0] * 125, [2.1] * 125).passed is False
    assert rule([0.0] * 125, [1.0] * 125).passed is True, "a whole tenth is allowed"


def test_only_the_last_ten_windows_count():
    assert rule([1.0] * 1500, [*[50.0] * 250, *[1.0] * 1250]).passed is True


def test_no_window_is_not_a_pass():
    verdict = rule([1.0] * 63, [9.0] * 63, steps_per_epoch=63)
    assert verdict.passed is None
    assert (
        verdict.detail
        == "no window of 100 batches in an epoch: the rule has nothing to compare (it would have passed)"
    )


def test_unequal_histories_fail():
    assert rule([1.0] * 250, [1.0] * 125).passed is False


def test_a_loss_that_is_no_number_fails_whoever_has_it():
    assert math.isnan(window_means((None,) * 100, steps_per_epoch=100)[0])
    assert rule([None] * 125, [1.0] * 125).passed is False


def test_nothing_to_say_without_both_runs():
    assert seed_rule(evidence(trace(Role.REFERENCE)), "inductor") is None
