"""When a candidate's accuracy is decided before all of its peers are trained: exactly, against every answer they could give."""

import random
from itertools import pairwise, product
from statistics import fmean

import pytest

from ci_bench.statistics.accuracy import MARGIN, ROUNDING, certain_limit, is_certain, limit_of

STEPS = (*(10.0 ** (power / 20) for power in range(-100, -4)), 0.0)
"""How far from the known peers the missing ones may be, as shares of all rows."""


def holds(candidate, peers):
    return abs(candidate - fmean(peers)) <= limit_of([peers]) + ROUNDING


def drawn(seed):
    """Some peers that are known, and how many are not."""
    coin = random.Random(seed)
    spread = 10 ** coin.uniform(-4, -1)
    return [0.6 + coin.gauss(0, spread) for _ in range(coin.choice([1, 2, 3]))], coin.choice(
        [1, 2, 3]
    )


def fails_somewhere(candidate, known, missing, coin):
    """Whether some answer of the missing peers breaks the rule of all of them: all alike, or each anywhere."""
    centre = fmean(known)
    alike = ([centre + sign * step] * missing for sign, step in product((1, -1), STEPS))
    anywhere = (
        [centre + coin.gauss(0, 10 ** coin.uniform(-4, -1)) for _ in range(missing)]
        for _ in range(200)
    )
    return any(
        not holds(candidate, [*known, *others])
        for answers in (alike, anywhere)
        for others in answers
    )


@pytest.mark.parametrize("seed", range(60))
def test_what_is_certain_holds_whatever_the_missing_peers_show_and_hardly_more_does_not(seed):
    (known, missing), coin = drawn(seed), random.Random(-1 - seed)
    room = certain_limit(known, missing=missing)
    for sign in (1, -1):
        assert not fails_somewhere(fmean(known) + sign * 0.999 * room, known, missing, coin)
        assert fails_somewhere(fmean(known) + sign * 1.03 * room, known, missing, coin)


def test_the_rule_of_the_known_peers_alone_would_let_broken_ones_pass():
    """The control: two peers allow for 63.7 times their spread, four of them do not."""
    known = [0.600, 0.605]
    assert holds(0.63, known)
    assert not holds(0.63, [*known, 0.602, 0.603])
    assert not is_certain(0.63, known, missing=2)


def test_beside_the_reference_alone_the_margin_is_certain_but_for_what_others_move_the_mean():
    assert 0.75 * MARGIN < certain_limit([0.6], missing=3) < 0.8 * MARGIN
    assert certain_limit([0.6], missing=0) == MARGIN


def test_a_second_peer_far_from_the_first_makes_more_certain():
    rooms = [certain_limit([0.6, 0.6 + apart], missing=2) for apart in (0.0, 0.005, 0.01, 0.03)]
    assert all(nearer <= further for nearer, further in pairwise(rooms))
    assert rooms[-1] == pytest.approx(2.64 * 0.03, rel=0.01)


def test_many_peers_that_are_missing_leave_nothing_certain():
    assert not is_certain(0.6, [0.6], missing=40)


def test_with_none_missing_it_is_the_rule_itself():
    known = [0.60, 0.61, 0.59, 0.60]
    assert certain_limit(known, missing=0) == limit_of([known])
