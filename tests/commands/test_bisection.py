"""The search for a commit: as few steps as halving needs, whatever cannot be told."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci_bench.commands.trend.bisect import BisectAnswer, TriedCommit, search


def remaining(goods, bad):
    """A straight history of numbers: what is after the last good one and up to bad, the middle first."""
    left = list(range(max(map(int, goods)) + 1, int(bad) + 1))
    middle = len(left) / 2
    return [
        str(commit)
        for commit in sorted(left, key=lambda commit: abs(commit - left[0] + 1 - middle))
    ]


def found(commits, culprit, unknown=()):
    asked = []

    def judge(commit):
        asked.append(commit)
        answer = (
            BisectAnswer.SKIP
            if int(commit) in unknown
            else BisectAnswer.BAD
            if int(commit) >= culprit
            else BisectAnswer.GOOD
        )
        return TriedCommit(commit=commit, answer=answer, reason="")

    return search("0", str(commits), remaining=remaining, judge=judge), asked


@pytest.mark.parametrize("culprit", range(1, 65))
def test_one_among_64_takes_six_steps_at_most(culprit):
    outcome, asked = found(64, culprit)
    assert outcome.culprit == str(culprit)
    assert len(asked) <= 6


@settings(deadline=None)
@given(commits=st.integers(1, 300), data=st.data())
def test_whatever_is_planted_is_found_in_as_many_steps_as_halving_needs(commits, data):
    culprit = data.draw(st.integers(1, commits))
    outcome, asked = found(commits, culprit)
    assert outcome.culprit == str(culprit)
    assert len(asked) <= math.ceil(math.log2(commits)) + 1
    assert len({*asked}) == len(asked)


@settings(deadline=None)
@given(commits=st.integers(1, 80), data=st.data())
def test_with_commits_that_cannot_be_told_the_culprit_is_among_the_suspects(commits, data):
    culprit = data.draw(st.integers(1, commits))
    unknown = data.draw(st.sets(st.integers(1, commits)))
    outcome, asked = found(commits, culprit, unknown)
    assert str(culprit) in outcome.suspects
    assert (outcome.culprit is None) == (len(outcome.suspects) > 1)
    assert {int(commit) for commit in outcome.suspects[1:]} <= unknown | {
        int(outcome.suspects[0])
    } | {int(s) for s in outcome.suspects}
    assert len({*asked}) == len(asked)


def test_a_neighbour_that_cannot_be_told_leaves_two():
    outcome, _ = found(8, 5, {4})
    assert sorted(outcome.suspects) == ["4", "5"]
