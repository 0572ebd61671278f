"""Looks in the middle of a row of calls: what computes only some calls is refused, what writes, draws or learns is not."""

import threading
import time

import pytest

torch = pytest.importorskip("torch")

from refereed_rows import Rows, with_noise  # noqa: E402 - only with torch

from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.worker.clock import HostClock  # noqa: E402 - only with torch
from ci_bench.worker.referee import Referee  # noqa: E402

pytestmark = pytest.mark.engine
CALLS = 64
LONG_S = 0.008
"""Longer than another process has a core, mostly."""


def looked_at(work, reference=torch.mm, *, looks=4, **fields):
    """What comes of a few looks at `work`, beside `reference`."""
    own, program = Rows(reference, **fields), Rows(work, **fields)
    for one in (own, program):
        one.remember()
        one.step(None)
    referee = Referee(clock=HostClock(lambda: None), reference=own)
    referee.begin()
    for seed in range(looks):
        referee.look("arm", program, seed=100 + seed, calls=CALLS)
    return referee.check("arm", program, plain_s=1e-3)


def after_a_pause(pause_s):
    """A product that is computed when so much time (s) has passed since the last call."""
    kept = {"at": 0.0, "out": None}

    def work(rows, weight):
        late = time.perf_counter() - kept["at"] > pause_s
        kept["out"] = torch.mm(rows, weight) if late or kept["out"] is None else kept["out"]
        kept["at"] = time.perf_counter()
        return kept["out"]

    return work


def every(number):
    """A product that is computed in one call of so many."""
    calls, kept = [], []

    def work(rows, weight):
        if len(calls) % number == 0:
            kept[:] = [torch.mm(rows, weight)]
        calls.append(None)
        return kept[0]

    return work


def first_of_a_row(count):
    """A product that is computed in so many calls behind a pause."""
    seen = {"at": 0.0, "calls": 0, "out": None}

    def work(rows, weight):
        late = time.perf_counter() - seen["at"] > 0.002
        seen["calls"] = 1 if late else seen["calls"] + 1
        if seen["calls"] <= count or seen["out"] is None:
            seen["out"] = torch.mm(rows, weight)
        seen["at"] = time.perf_counter()
        return seen["out"]

    return work


def by_a_thread():
    """A product whose last row is filled in after the call, unless the call came behind a pause."""
    seen = {"at": 0.0}

    def work(rows, weight):
        out = torch.mm(rows, weight)
        if time.perf_counter() - seen["at"] < 0.002:
            last, out[-1] = out[-1].clone(), 0
            threading.Timer(0.05, lambda: out[-1].copy_(last)).start()
        seen["at"] = time.perf_counter()
        return out

    return work


LAZY = {
    "behind a pause of 0.1 ms": lambda: after_a_pause(1e-4),
    "behind a pause of 3 ms": lambda: after_a_pause(3e-3),
    "every second call": lambda: every(2),
    "every hundredth call": lambda: every(100),
    "the first call of a row": lambda: first_of_a_row(1),
    "the first calls of a row": lambda: first_of_a_row(4),
    "by a thread": by_a_thread,
}


@pytest.mark.parametrize("name", LAZY)
def test_what_does_not_compute_every_call_fails(name):
    check = looked_at(LAZY[name]())
    assert check.outcome is Outcome.FAIL, check
    assert "differs from the reference" in check.detail


class Slowly(Rows):
    """Writes into its inputs take long, as on a busy machine: code that computes after a pause sees them.

    Every `spared`-th write is quick.
    """

    spared, writes = 0, 0

    def refresh(self, seed, **fields):
        fresh = super().refresh(seed, **fields)
        time.sleep(LONG_S)
        return fresh

    def alter(self, seed, *, shaken=0, all_values=False):
        write = super().alter(seed, shaken=shaken, all_values=all_values)
        self.writes += 1
        late = not self.spared or self.writes % self.spared

        def slowly():
            write()
            if late:
                time.sleep(LONG_S)

        return slowly


def slow_product(rows, weight):
    time.sleep(LONG_S)
    return torch.mm(rows, weight)


def slow_after_a_pause():
    """A slow product that is computed only when some time has passed since the last call."""
    kept = {"at": 0.0, "out": None}

    def work(rows, weight):
        if time.perf_counter() - kept["at"] > LONG_S / 2:
            kept["out"] = slow_product(rows, weight)
        kept["at"] = time.perf_counter()
        return kept["out"]

    return work


@pytest.mark.parametrize(
    ("made", "outcome"), [(slow_after_a_pause, Outcome.FAIL), (lambda: slow_product, Outcome.PASS)]
)
def test_what_a_slow_write_makes_compute_fails(made, outcome):
    own, program = Slowly(slow_product), Slowly(made())
    for one in (own, program):
        one.remember()
        one.step(None)
    referee = Referee(clock=HostClock(lambda: None), reference=own)
    referee.begin()
    referee.look("arm", program, seed=100, calls=CALLS)
    check = referee.check("arm", program, plain_s=1e-5)
    assert check.outcome is outcome, check
    assert ("computes only after a pause" in check.detail) is (outcome is Outcome.FAIL)


def test_a_write_that_is_quick_now_and_then_finds_it():
    own, program = Slowly(slow_product), Slowly(slow_after_a_pause())
    program.spared = 3
    for one in (own, program):
        one.remember()
        one.step(None)
    referee = Referee(clock=HostClock(lambda: None), reference=own)
    referee.begin()
    referee.look("arm", program, seed=100, calls=CALLS)
    check = referee.check("arm", program, plain_s=1e-5)
    assert check.outcome is Outcome.FAIL, check
    assert "differs from the reference" in check.detail


def lazily_updating(rows, weight):
    """A step that leaves its weight as it is, unless the call came behind a pause."""
    late = time.perf_counter() - lazily_updating.at > 0.002
    lazily_updating.at = time.perf_counter()
    return torch.mm(rows, weight) if late else torch.zeros(4, 6)


def test_a_training_that_updates_only_behind_a_pause_fails():
    lazily_updating.at = 0.0
    assert looked_at(lazily_updating, rate=0.01).outcome is Outcome.FAIL


def test_a_reference_that_computes_only_behind_a_pause_fails():
    program = Rows(after_a_pause(3e-3))
    program.step(None)
    referee = Referee(clock=HostClock(lambda: None), reference=program)
    referee.begin()
    for seed in range(2):
        referee.look("eager", program, seed=seed, calls=CALLS)
    check = referee.check_reference("eager", lambda: Rows(after_a_pause(3e-3)), plain_s=1e-3)
    assert (check.arm, check.outcome) == ("eager", Outcome.FAIL), check


def in_place(rows, weight):
    """Write the result into the rows, so that no two calls have the same inputs."""
    return rows.copy_(torch.mm(rows, weight))


def into_one_memory():
    out = torch.empty(4, 6)
    return lambda rows, weight: torch.mm(rows, weight, out=out)


def counted(calls=[]):  # noqa: B006 - it counts all calls
    def work(rows, weight):
        calls.append(None)
        return torch.mm(rows, weight)

    return work


def with_known_weight():
    """A product whose weight is transformed once."""
    known = {}
    return lambda rows, weight: torch.mm(rows, known.setdefault(weight.data_ptr(), weight.clone()))


HONEST = {
    "the same": (torch.mm, torch.mm, {}),
    "into one memory, as a replayed graph": (into_one_memory(), torch.mm, {}),
    "a counter": (counted(), torch.mm, {}),
    "a constant that is kept": (with_known_weight(), torch.mm, {}),
    "inputs are written, by both": (in_place, in_place, {}),
    "random numbers": (with_noise, with_noise, {}),
    "a view of its inputs": (lambda rows, weight: rows[:2], lambda rows, weight: rows[:2], {}),
    "its inputs": (lambda rows, weight: rows, lambda rows, weight: rows, {}),
    "nothing of its inputs": (lambda rows, weight: weight + 1, lambda rows, weight: weight + 1, {}),
    "training": (torch.mm, torch.mm, {"rate": 0.01}),
    "training with random numbers": (with_noise, with_noise, {"rate": 0.01}),
    "training that writes its inputs": (in_place, in_place, {"rate": 0.001}),
    "a maximum": (lambda rows, weight: rows.max(), lambda rows, weight: rows.amax(), {}),
    "sums in another order": (
        lambda rows, weight: (rows[:, None] * weight.T[None]).flip(-1).sum(-1),
        torch.mm,
        {},
    ),
}


def seldom_in_place():
    """A product that writes over its rows in the second half of all calls."""
    calls = []

    def work(rows, weight):
        calls.append(None)
        out = torch.mm(rows, weight)
        if len(calls) > 4:
            rows[0] = 0
        return out

    return work


OVERWRITTEN = {
    "by the arm": (in_place, torch.mm, {}),
    "by the reference": (torch.mm, in_place, {}),
    "by the arm, in later calls": (seldom_in_place(), torch.mm, {}),
    "by a training": (in_place, torch.mm, {"rate": 0.001}),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_inputs_written_by_one_of_two_fail(name):
    work, reference, fields = OVERWRITTEN[name]
    check = looked_at(work, reference, **fields)
    assert check.outcome is Outcome.FAIL, check
    assert "input" in check.detail, check


@pytest.mark.parametrize("name", HONEST)
def test_what_computes_every_call_passes(name):
    work, reference, fields = HONEST[name]
    check = looked_at(work, reference, **fields)
    assert check.outcome is Outcome.PASS, check
