"""Many calls on the same inputs: a fault that comes in some of them only is found, and what differs by rounding is not one."""

import pytest

torch = pytest.importorskip("torch")

from refereed_rows import Rows, with_noise  # noqa: E402 - only with torch

from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.worker import repeats  # noqa: E402
from ci_bench.worker.clock import HostClock  # noqa: E402
from ci_bench.worker.referee import Referee  # noqa: E402
from ci_bench.worker.repeats import MOST_CALLS, chance_of_finding  # noqa: E402

pytestmark = pytest.mark.engine
CALLS = 8


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch):
    """A busy machine would make fewer calls."""
    monkeypatch.setattr(repeats, "LEAST_S", 60.0)


class Prepared(Rows):
    """Rows that say how many prepared inputs take turns, and so can be repeated."""

    batches = 1


def repeated(work, reference=torch.mm, *, turns=8, look=True, **fields):
    """The check of an arm after so many turns and the calls that follow them; and the reference's own."""
    programs = {"own": Prepared(reference, **fields), "arm": Prepared(work, **fields)}
    for one in programs.values():
        one.remember()
        one.step(None)
    referee = Referee(clock=HostClock(lambda: None), reference=programs["own"], reference_arm="own")
    referee.begin()
    for arm, program in programs.items():
        referee.repeats.begin(arm, program)
    if look:
        referee.look("arm", programs["arm"], seed=7, calls=CALLS)
    for _ in range(turns):
        for arm, program in programs.items():
            for _ in range(CALLS):
                program.step(None)
            referee.repeats.after_turn(arm, program, sampled_s=1.0)
    for arm, program in programs.items():
        referee.repeats.finish(arm, program)
    own = referee.check_reference("own", lambda: Prepared(reference, **fields), plain_s=1.0)
    return referee.check("arm", programs["arm"], plain_s=1.0), own


def wrong_in(share, *, seed=3, spoil=lambda out: out[-1].zero_()):
    """A product that is wrong in a share of all calls, by a generator of its own."""
    coin = torch.Generator().manual_seed(seed)

    def work(rows, weight):
        out = torch.mm(rows, weight)
        if float(torch.rand((), generator=coin)) < share:
            spoil(out)
        return out

    return work


def spoil_one_number(out):
    out[2, 3] += 0.01


def rotated(rows, weight):
    """Leave the rows in another order each time."""
    rotated.calls += 1
    return torch.mm(rows, weight).roll(rotated.calls % 20 // 19, 0)


rotated.calls = 0


def junk_on_prepared():
    """A product that leaves zeros for the rows that it saw first, once it has computed them a few times."""
    seen = []

    def work(rows, weight):
        seen.append(float(rows[0, 0]))
        known = len(seen) > 1 and abs(seen[-1] - seen[0]) < 1e-6
        return torch.zeros(4, 6) if known else torch.mm(rows, weight)

    return work


FAULTS = {
    "a row in 10 % of calls": lambda: wrong_in(0.1),
    "a row in 5 % of calls": lambda: wrong_in(0.05),
    "a number in 5 % of calls": lambda: wrong_in(0.05, spoil=spoil_one_number),
    "rows in another order in 5 % of calls": lambda: rotated,
    "all calls on the prepared inputs": junk_on_prepared,
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_some_calls_fail(name):
    check, own = repeated(FAULTS[name]())
    assert check.outcome is Outcome.FAIL, check
    assert own is None


def test_faults_are_found_as_often_as_said():
    """Of 20 arms that are wrong in 2 % of calls, as many are found as the formula says; so is a fault without a look."""
    found = [repeated(wrong_in(0.02, seed=seed), look=False)[0] is not None for seed in range(20)]
    expected = chance_of_finding(MOST_CALLS + 8, share=0.02)
    assert expected == pytest.approx(0.862, abs=1e-3)
    assert 20 * expected - 6 < sum(found)
    assert chance_of_finding(MOST_CALLS) > 0.99


def test_faults_in_a_training_fail():
    check, _ = repeated(wrong_in(0.1), rate=0.01, look=False)
    assert check.outcome is Outcome.FAIL, check
    assert "more calls on the same inputs" in check.detail


def in_any_order():
    """A product whose sums come in another order each time, as those of atomics."""
    coin = torch.Generator().manual_seed(8)

    def work(rows, weight):
        order = torch.randperm(6, generator=coin)
        return sum(torch.outer(rows[:, place], weight[place]) for place in order.tolist())

    return work


def own_numbers():
    coin = torch.Generator().manual_seed(9)
    return lambda rows, weight: torch.mm(
        rows * (torch.rand(rows.shape, generator=coin) > 0.5), weight
    )


def in_place(rows, weight):
    return rows.copy_(torch.mm(rows, weight))


def counting():
    calls = []

    def work(rows, weight):
        calls.append(None)
        return torch.mm(rows, weight) * len(calls)

    return work


RIGHT = {
    "the same": (torch.mm, torch.mm, {}),
    "sums in any order": (in_any_order(), torch.mm, {}),
    "a reference whose sums come in any order": (torch.mm, in_any_order(), {}),
    "random numbers": (with_noise, with_noise, {}),
    "random numbers of its own": (own_numbers(), with_noise, {}),
    "inputs that both write": (in_place, in_place, {}),
    "inputs that both have written to zero": (
        lambda rows, weight: rows.mul_(1e-30),
        lambda rows, weight: rows.mul_(1e-30),
        {},
    ),
    "training": (torch.mm, torch.mm, {"rate": 0.01}),
    "training with random numbers": (with_noise, with_noise, {"rate": 0.01}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_arms_pass(name):
    work, reference, fields = RIGHT[name]
    assert repeated(work, reference, look=False, **fields)[0] is None


def test_the_chance_is_in_the_detail():
    check, _ = repeated(torch.mm)
    assert (
        "98 more calls on the same inputs left the same: a fault in 5 % of calls shows with a probability of 99."
        in check.detail
    )


def test_a_reference_that_does_not_repeat_is_unknown():
    check, own = repeated(torch.mm, wrong_in(0.1), look=False)
    assert check is None
    assert (own.outcome, own.informative) == (Outcome.UNKNOWN, True)
    assert repeated(torch.mm, counting(), look=False)[0] is None
