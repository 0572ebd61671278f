"""The referee by hand-written programs: captured calls, memory that runs out, inputs that cannot change, random numbers."""

import pytest

torch = pytest.importorskip("torch")
from malloc_heap import is_in_heap  # noqa: E402 - only with torch

from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.suites.contract import Compiler  # noqa: E402
from ci_bench.worker import referee as referee_module  # noqa: E402
from ci_bench.worker.clock import HostClock, Taken  # noqa: E402 - only with torch
from ci_bench.worker.look_answers import LookAnswer  # noqa: E402
from ci_bench.worker.looks import Delay  # noqa: E402
from ci_bench.worker.referee import Referee  # noqa: E402

pytestmark = pytest.mark.engine


class Product:
    """Rows times a weight. `work` is what the arm makes of rows and weight."""

    items, parts, compiler = None, (), Compiler.NONE
    learns, epsilon, memory, unrefereed = False, 2.0**-24, 0.0, ""

    def __init__(self, work=torch.mm, *, fresh=True):
        self.work, self.fresh = work, fresh
        self.weight = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
        self.prepared = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
        self.rows, self.out = self.prepared, torch.zeros(4, 6)

    def step(self, mark):
        self.out = self.work(self.rows, self.weight)

    def finish(self):
        return ()

    def remember(self):
        pass

    def state(self):
        return {"weights.weight": self.weight.clone()}

    def refresh(self, seed, *, moved, state=None, shaken=0):
        self.resume()
        if state is not None:
            self.weight.copy_(state["weights.weight"])
        rows = (
            torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
            if self.fresh
            else self.prepared.clone()
        )
        if shaken:
            noise = torch.randn(4, 6, generator=torch.Generator().manual_seed(shaken))
            rows *= 1 + self.epsilon * noise
        if moved:
            self.rows = rows
        else:
            self.kept = self.prepared.clone()
            self.prepared.copy_(rows)
        return self.fresh

    def outputs(self):
        return {"outputs": self.out}

    def resume(self):
        if getattr(self, "kept", None) is not None:
            self.prepared.copy_(self.kept)
        self.kept, self.rows = None, self.prepared


class Replaying(HostClock):
    """A clock that captured a call of each program: it reads from the prepared memory and writes into one output, for ever."""

    def __init__(self):
        super().__init__(lambda: None)
        self.captured = {}

    def replays(self, program):
        return True

    def take(self, program, *, calls, write=None):
        out = self.captured.setdefault(id(program), torch.zeros(4, 6))

        class Replay:
            parts = ()

            @staticmethod
            def step(mark):
                out.copy_(program.work(program.prepared, program.weight))
                program.out = out

        return super().take(Replay, calls=calls, write=write)


class Simulated(HostClock):
    """Calls take what the work said that it took (`seconds`), times how busy the machine was at that moment."""

    def __init__(self, seed, *, busy):
        super().__init__(lambda: None)
        self.draws, self.busy = torch.Generator().manual_seed(seed), busy

    def take(self, program, *, calls, write=None):
        for _ in range(calls):
            program.step(None)
        stall = 1 + 6 * float(torch.rand((), generator=self.draws)) ** 2
        return Taken(wall_s=getattr(program.work, "seconds", 1.0) * (stall if self.busy else 1.0))


class Remembering:
    """Right for all rows, and quick for those that it has computed before."""

    def __init__(self, known):
        self.known, self.seconds = known, 1.0

    def __call__(self, rows, weight):
        key = rows.numpy().tobytes()
        self.seconds = 0.1 if key in self.known else 1.0
        return self.known.setdefault(key, torch.mm(rows, weight))


def refereed(work=torch.mm, *, clock=None, calls=8, plain_s=1.0, seeds=(5, 6), **fields):
    reference, program = Product(**fields), Product(work, **fields)
    referee = Referee(clock=clock or HostClock(lambda: None), reference=reference)
    referee.begin()
    for seed in seeds:
        referee.look("arm", program, seed=seed, calls=calls)
    return referee.check("arm", program, plain_s=plain_s)


def test_a_right_arm_passes_and_says_how_many_calls_agree():
    check = refereed()
    assert (check.outcome, check.informative) == (Outcome.PASS, False)
    assert check.detail.startswith("4 timed calls with fresh inputs agree")
    assert refereed(calls=1).detail.startswith("2 timed calls")


def test_a_captured_call_is_looked_at_in_the_memory_that_it_reads():
    assert refereed(clock=Replaying()).outcome is Outcome.PASS
    wrong = refereed(lambda rows, weight: torch.mm(rows, weight) * 1.001, clock=Replaying())
    assert wrong.outcome is Outcome.FAIL
    assert "at known addresses" in wrong.detail


def test_a_captured_call_that_leaves_nothing_to_look_at_is_no_failure(monkeypatch):
    monkeypatch.setattr(Product, "outputs", lambda self: {})
    check = refereed(clock=Replaying())
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)


@pytest.mark.parametrize("busy", [False, True])
def test_what_remembers_rows_is_refused_also_where_a_launch_before_left_it_all_that_it_computed(
    busy,
):
    known = {}
    for secret in (5, 60_000, 700_000):
        check = refereed(
            Remembering(known),
            clock=Simulated(secret, busy=busy),
            plain_s=0.1,
            seeds=(secret, secret + 1),
        )
        assert check.outcome is Outcome.FAIL, check
        assert "remembers results" in check.detail


class Partly(Remembering):
    """Right for all rows, and quicker for those that it has computed before, by a share of a call."""

    def __init__(self, share, *, sightings=1):
        super().__init__({})
        self.share, self.sightings, self.seen = share, sightings, {}

    def __call__(self, rows, weight):
        key = rows.numpy().tobytes()
        self.seen[key] = self.seen.get(key, 0) + 1
        self.seconds = 1.0 - (self.share if self.seen[key] > self.sightings else 0.0)
        return torch.mm(rows, weight)


@pytest.mark.parametrize(("plain_s", "outcome"), [(0.1, Outcome.FAIL), (1.0, Outcome.PASS)])
def test_an_arm_whose_looks_are_slow_is_looked_at_again_though_no_write_delays_it(
    monkeypatch, plain_s, outcome
):
    """Code that skips calls within microseconds is not slower behind a write that is quicker."""
    monkeypatch.setattr(referee_module, "delayed_call", lambda *_, **__: Delay(call_s=1.0))
    stale = LookAnswer.fails("a stale result")
    monkeypatch.setattr(Referee, "_looked_again", lambda *_, **__: stale)
    check = refereed(Partly(0.0), clock=Simulated(5, busy=False), plain_s=plain_s)
    assert check.outcome is outcome
    assert ("a stale result" in check.detail) is (outcome is Outcome.FAIL)


@pytest.mark.parametrize(("share", "sightings"), [(0.2, 1), (0.33, 2)])
def test_a_part_that_is_remembered_by_value_fails(share, sightings):
    check = refereed(
        Partly(share, sightings=sightings), clock=Simulated(5, busy=False), plain_s=1.0 - share
    )
    assert check.outcome is Outcome.FAIL, check
    assert "the third time" in check.detail


def test_a_reference_that_remembers_a_part_is_unknown():
    made = Product(Partly(0.33))
    referee = Referee(clock=Simulated(5, busy=False), reference=made)
    referee.begin()
    referee.look("eager", made, seed=5, calls=8)
    check = referee.check_reference("eager", lambda: Product(Partly(0.33)), plain_s=0.67)
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert "may be meant" in check.detail


def test_a_machine_that_stalls_makes_no_right_arm_a_remembering_one():
    outcomes = [
        refereed(clock=Simulated(seed, busy=True), plain_s=0.1).outcome for seed in range(16)
    ]
    assert outcomes == [Outcome.PASS] * 16


def test_one_wrong_element_is_a_failure():
    def off(rows, weight):
        out = torch.mm(rows, weight)
        out[2, 3] += 1e-3
        return out

    assert refereed(off).outcome is Outcome.FAIL


def test_sums_in_another_order_are_right():
    assert (
        refereed(lambda rows, weight: (rows[:, None, :] * weight.T[None]).flip(-1).sum(-1)).outcome
        is Outcome.PASS
    )


def test_memory_that_runs_out_and_inputs_that_cannot_change_are_no_failures():
    def greedy(rows, weight):
        raise MemoryError("no more")

    for check in (refereed(greedy), refereed(fresh=False)):
        assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)


def test_what_raises_on_fresh_inputs_fails_where_the_reference_computes_from_them():
    def picky(rows, weight):
        raise ValueError("not these rows")

    check = refereed(picky)
    assert check.outcome is Outcome.FAIL
    assert "raised ValueError: not these rows" in check.detail


def test_a_reference_that_cannot_compute_from_fresh_inputs_is_no_failure_of_the_arm(monkeypatch):
    def refusing(self, seed, **_):
        raise RuntimeError("ids out of range")

    monkeypatch.setattr(Product, "refresh", refusing)
    assert refereed().outcome is Outcome.UNKNOWN


def dropped(generator=None):
    def drop(rows, weight):
        kept = torch.rand(rows.shape, generator=generator) > 0.5
        return torch.mm(rows * kept, weight)

    return drop


def test_random_numbers_that_are_drawn_alike_are_compared_and_others_by_their_spread(monkeypatch):
    reference = dropped()
    original = Product.__init__
    monkeypatch.setattr(
        Product, "__init__", lambda self, work=reference, **fields: original(self, work, **fields)
    )
    assert refereed(reference).outcome is Outcome.PASS
    own = torch.Generator().manual_seed(99)
    assert refereed(dropped(own)).outcome is not Outcome.FAIL
    scaled = refereed(lambda rows, weight: 20 * reference(rows, weight))
    assert scaled.outcome is Outcome.FAIL


def test_an_arm_that_takes_its_time_only_on_fresh_inputs_is_refused():
    import time

    known = set()

    def remembering(rows, weight):
        key = float(rows.sum())
        if key not in known:
            time.sleep(0.003)
        known.add(key)
        return torch.mm(rows, weight)

    check = refereed(remembering, plain_s=1e-5)
    assert check.outcome is Outcome.FAIL
    assert "remembers results" in check.detail


def of_the_reference(work=torch.mm, *, build=None, calls=8):
    made = Product(work)
    referee = Referee(clock=HostClock(lambda: None), reference=made)
    referee.begin()
    for _ in range(40):
        made.step(None)
    referee.look("eager", made, seed=5, calls=calls)
    return referee.check_reference("eager", build or (lambda: Product(work)), plain_s=1.0)


def remembering():
    """A product that is computed once for each place in memory."""
    results = {}

    def work(rows, weight):
        return results.setdefault(rows.data_ptr(), torch.mm(rows, weight))

    return work


def lazy_when_warm():
    """A product that leaves its last row out once it was called twenty times."""
    calls = []

    def work(rows, weight):
        calls.append(None)
        out = torch.mm(rows, weight)
        if len(calls) > 20:
            out[-1] = 0
        return out

    return work


def test_the_reference_is_held_against_a_fresh_build_of_itself():
    assert of_the_reference().outcome is Outcome.PASS


@pytest.mark.parametrize("cheat", [remembering, lazy_when_warm])
def test_a_reference_that_remembers_or_computes_less_once_warm_fails(cheat):
    check = of_the_reference(cheat(), build=lambda: Product(cheat()))
    assert (check.arm, check.outcome) == ("eager", Outcome.FAIL), check.detail


def test_a_model_that_counts_its_calls_by_design_is_unknown():
    def counting():
        calls = []

        def work(rows, weight):
            calls.append(None)
            return torch.mm(rows, weight) * len(calls)

        return work

    check = of_the_reference(counting(), build=lambda: Product(counting()))
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert "keeps state" in check.detail


def test_a_reference_that_cannot_be_built_once_more_is_unknown():
    def full():
        raise MemoryError("no room")

    check = of_the_reference(build=full)
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)
    assert "no room" in check.detail


def test_nobody_looked_at_the_reference():
    made = Product()
    assert (
        Referee(clock=HostClock(lambda: None), reference=made).check_reference(
            "eager", Product, plain_s=1.0
        )
        is None
    )


def test_what_looks_leave_lies_outside_of_the_heap():
    """There it would decide for good where later steps find memory; the state that looks at a training begin from as well."""
    program = Product()
    program.learns = True
    referee = Referee(clock=HostClock(lambda: None), reference=program)
    referee.begin()
    for seed in range(4):
        referee.look("arm", program, seed=seed, calls=2)
    kept = [value for look in referee.looks["arm"] for left in look.left for value in left.values()]
    assert len(kept) == 8
    if not is_in_heap(program.weight.data_ptr()):
        pytest.skip("malloc has small blocks elsewhere in this process")
    assert not any(is_in_heap(value.data_ptr()) for value in (*kept, *referee.start.values()))
