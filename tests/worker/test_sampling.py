"""What a worker does as it is told: opening, warming up, turns, and what it makes of them."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_bench.processes.protocol import Abandoned, Order, OrderKind, decode_answer
from ci_bench.records.config import RunOptions
from ci_bench.records.metrics import COMPILE_COLD
from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Compiler, Context, Part
from ci_bench.worker import fence, sampling
from ci_bench.worker.clock import HostClock
from ci_bench.worker.sampling import ResidentArms, compile_latency, serve_turns


class Orders:
    """A channel that gives these orders and keeps what is said."""

    def __init__(self, *orders: Order) -> None:
        self.given, self.said = orders, []

    def say(self, answer) -> None:
        self.said.append(answer)

    def send(self, line: bytes) -> None:
        self.said.append(decode_answer(line.removesuffix(b"\n")))

    def orders(self):
        yield from self.given


def all_turns(arms: int, blocks: int, *, calls: int = 1, touch: bool = False) -> list[Order]:
    turns = [
        Order(kind=OrderKind.TURN, seat=seat, block=block, touch=touch)
        for block in range(blocks)
        for seat in (*range(arms), *reversed(range(arms)))
    ]
    return [Order(kind=OrderKind.WARM, calls=(calls,) * arms), *turns, Order(kind=OrderKind.FINISH)]


def serve(workload, arms, orders, folder: Path, **options):
    context = Context(device="cpu", scratch=folder, progress=lambda *_: None)
    resident = ResidentArms(
        options=RunOptions(**{"sample_s": 0.5, "warmup_s": 1000, **options}), context=context
    )
    channel = Orders(*orders)
    return serve_turns(resident, workload, arms, launch=4, channel=channel), channel


class Workload:
    """Steps that move a fake clock: the first call of each arm is slow, arm b takes twice as long as arm a."""

    def __init__(self) -> None:
        self.now, self.steps, self.parts = 0.0, 0, ()

    def open(self, arm: str) -> "Workload.Program":
        return self.Program(self, arm)

    class Program:
        items = 8

        def __init__(self, workload: "Workload", arm: str) -> None:
            self.workload, self.arm, self.first, self.parts = workload, arm, True, workload.parts
            self.compiler = Compiler.NONE if arm == "a" else Compiler.OTHER

        def step(self, mark) -> None:
            step_s = (2.0 if self.arm == "b" else 1.0) + (5.0 if self.first else 0.0)
            self.first = False
            self.workload.steps += 1
            self.workload.now += step_s / 4
            mark()
            self.workload.now += step_s * 3 / 4
            mark()

        def finish(self) -> tuple[Check, ...]:
            return (Check(name="finished", arm=self.arm, outcome=Outcome.PASS, detail="yes"),)


@pytest.fixture(autouse=True)
def without_torch(monkeypatch) -> None:
    """Whatever other tests of this process have imported."""
    monkeypatch.setattr(sampling, "torch_is_loaded", lambda: False)


@pytest.fixture
def workload(monkeypatch) -> Workload:
    made = Workload()
    for timed in (fence.time_calls, fence.warm_up, HostClock.__init__):
        monkeypatch.setitem(timed.__kwdefaults__, "now", lambda: made.now)
    return made


def test_samples_of_all_arms_come_with_their_blocks_checks_and_compile_latency(
    workload, tmp_path: Path
) -> None:
    evidence, channel = serve(workload, ("a", "b"), all_turns(2, 3), tmp_path)
    metrics = {(metric.name, metric.arm): metric for metric in evidence.metrics}
    assert list(metrics) == [("step_time", "a"), ("step_time", "b"), ("compile_warm", "b")]
    taken = metrics["step_time", "b"].launches[0]
    assert (taken.launch, taken.values, taken.blocks, taken.steady) == (
        4,
        (2.0,) * 6,
        (0, 0, 1, 1, 2, 2),
        True,
    )
    assert metrics["step_time", "b"].items == 8
    assert metrics["compile_warm", "b"].launches[0].values == (5.0,)
    assert [(check.name, check.arm) for check in evidence.checks] == [
        ("steady", "a"), ("finished", "a"), ("steady", "b"), ("finished", "b"),
    ]  # fmt: skip
    assert all(answer.done for answer in channel.said)
    assert len(channel.said) == 1 + 1 + 12  # open, warm, every turn


def test_samples_of_each_arm_are_as_long_as_was_asked_for_and_no_longer_than_that_takes(
    workload, tmp_path: Path
) -> None:
    """Arm b takes twice as long: with as many calls, its samples would be twice as long; the faster of two, too short."""
    _, channel = serve(workload, ("a", "b"), all_turns(2, 1), tmp_path, sample_s=6.0)
    assert channel.said[0].done.calls == (8, 4)


def test_a_metric_tells_the_calls_of_its_own_arm(workload, tmp_path: Path) -> None:
    orders = all_turns(2, 1)
    orders[0] = Order(kind=OrderKind.WARM, calls=(8, 4))
    evidence, _ = serve(workload, ("a", "b"), orders, tmp_path)
    assert {
        metric.arm: metric.calls for metric in evidence.metrics if metric.name == "step_time"
    } == {"a": 8, "b": 4}


def test_a_discarded_block_leaves_no_sample_in_any_arm(workload, tmp_path: Path) -> None:
    orders = all_turns(2, 3)
    orders.insert(-1, Order(kind=OrderKind.DISCARD, block=1))
    evidence, _ = serve(workload, ("a", "b"), orders, tmp_path)
    assert {
        metric.launches[0].blocks for metric in evidence.metrics if metric.name == "step_time"
    } == {(0, 0, 2, 2)}


@pytest.mark.parametrize(
    ("touch", "calls", "steps"), [(False, 64, 128), (True, 64, 130), (True, 49, 98)]
)
def test_a_touch_is_one_call_more_that_is_not_timed_and_few_calls_need_none(
    workload, tmp_path, touch, calls, steps
) -> None:
    serve(workload, ("a",), all_turns(1, 0, calls=calls), tmp_path)
    quiet = workload.steps
    serve(workload, ("a",), all_turns(1, 1, calls=calls, touch=touch), tmp_path)
    assert workload.steps - 2 * quiet == steps


def test_parts_of_a_step_are_metrics_of_their_own(workload, tmp_path: Path) -> None:
    workload.parts = (Part(metric="forward_time"), Part(metric="token_time", per=3, items=2))
    evidence, _ = serve(workload, ("a",), all_turns(1, 2), tmp_path)
    metrics = {metric.name: metric for metric in evidence.metrics}
    assert metrics["step_time"].launches[0].values == (1.0,) * 4
    assert metrics["forward_time"].launches[0].values == (0.25,) * 4
    assert metrics["token_time"].launches[0].values == pytest.approx((0.75 / 3,) * 4)
    assert (metrics["token_time"].items, metrics["token_time"].launches[0].blocks) == (
        2,
        (0, 0, 1, 1),
    )


def test_nobody_is_told_anything_when_the_orders_just_end(workload, tmp_path: Path) -> None:
    with pytest.raises(Abandoned):
        serve(workload, ("a",), all_turns(1, 1)[:-1], tmp_path)


def test_an_arm_that_never_became_steady_says_so(monkeypatch, workload, tmp_path: Path) -> None:
    monkeypatch.setattr(sampling, "warm_up", lambda *_, **__: ((3.0, 2.0, 1.0), False))
    evidence, _ = serve(workload, ("a",), all_turns(1, 1), tmp_path)
    assert evidence.checks[0].outcome is Outcome.UNKNOWN
    assert "not steady after 6 s of warm-up (3 samples; load " in evidence.checks[0].detail


@pytest.mark.parametrize(
    ("calls", "lasted", "helps"), [(1_000_000, "6", False), (2_000_000, "12", True)]
)
@pytest.mark.parametrize("load", [1.9, 2.1])
def test_short_calls_are_not_told_to_warm_up_longer(
    monkeypatch, calls, lasted, helps, load
) -> None:
    """Forty samples of a second were enough: what ended the warm-up was their number, and the machine is what is not steady."""
    arm = sampling.ResidentArm(
        name="a", program=None, first_call_s=1.0, calls=calls, warmup=(1e-6, 2e-6, 3e-6)
    )
    monkeypatch.setattr(sampling.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(sampling.os, "cpu_count", lambda: 2)
    detail = sampling._steadiness(arm, limit_s=10.0).detail
    assert detail.startswith(
        f"not steady after {lasted} s of warm-up (3 samples of {calls:,} calls each; load "
    )
    assert ("raise run.warmup_s" in detail) is helps
    busy = load > 2
    assert detail.endswith("stop other work on this machine") is busy, "a gate makes load itself"
    assert detail.endswith("cores)") is not (helps or busy)


@pytest.mark.parametrize(
    ("first_s", "steady_s", "values"), [(1.5, 0.5, [1.0]), (0.5, 0.5, []), (0.4, 0.5, [])]
)
def test_a_latency_that_cannot_be_told_is_left_out_and_is_never_zero(
    first_s, steady_s, values
) -> None:
    found = compile_latency(
        COMPILE_COLD, "inductor", first_call_s=first_s, steady_s=steady_s, launch=2
    )
    assert [metric.launches[0].values[0] for metric in found] == values


class Drawing:
    """A program that draws as its arm does, and keeps the first number of each sample."""

    def __init__(self, extra: int) -> None:
        self.extra, self.seen = extra, []

    def take(self) -> None:
        self.seen.append(random.random())
        for _ in range(self.extra):
            random.random()


def test_arms_draw_the_same_numbers_in_each_sample_whatever_they_draw_besides(
    tmp_path: Path,
) -> None:
    context = Context(device="cpu", scratch=tmp_path, progress=lambda *_: None)
    resident = ResidentArms(options=RunOptions(), context=context)
    resident.clock = SimpleNamespace(take=lambda program, calls: program.take())
    resident.arms = [
        sampling.ResidentArm(name=str(extra), program=Drawing(extra), first_call_s=0.0)
        for extra in (0, 3)
    ]
    for block in (0, 1):
        for seat, samples in ((0, 1), (1, 2), (0, 1)):
            resident.turn(seat, block, samples=samples, touch=False)
    one, other = (seat.program.seen for seat in resident.arms)
    assert one == other
    assert len(set(one)) == 4


def test_an_arm_is_kept_busy_for_as_long_as_was_ordered_and_tells_its_calls(
    workload, tmp_path: Path
) -> None:
    order = Order(kind=OrderKind.KEEP_BUSY, seat=0, seconds=0.05)
    before = workload.steps
    evidence, channel = serve(
        workload, ("a",), [*all_turns(1, 2)[:-1], order, Order(kind=OrderKind.FINISH)], tmp_path
    )
    made = channel.said[-1].done.made
    assert made > 10
    serve(workload, ("a",), all_turns(1, 2), tmp_path)
    quiet = workload.steps - before
    assert quiet > made
    assert len(evidence.metrics[0].launches[0].values) == 4


@pytest.mark.parametrize(("flushes", "settled"), [(0, []), (4, [4])])
def test_flushes_are_settled_by_the_order_of_a_turn(
    tmp_path: Path, flushes: int, settled: list[int]
) -> None:
    told: list[int] = []
    resident = ResidentArms(
        options=RunOptions(),
        context=Context(device="cpu", scratch=tmp_path, progress=lambda *_: None),
    )
    resident.clock = SimpleNamespace(
        take=lambda program, calls: told[:], settle_flushes=told.append
    )
    resident.arms = [sampling.ResidentArm(name="eager", program=Drawing(0), first_call_s=0.0)]
    resident.turn(0, 0, touch=False, flushes=flushes)
    assert resident.arms[0].taken == [settled]


@pytest.mark.parametrize(("once", "calls"), [(False, 8), (True, 1)])
def test_an_order_may_be_for_a_single_look_at_a_short_step(
    tmp_path: Path, once: bool, calls: int
) -> None:
    """At a sample of one call the referee looks once, in known or in new memory; at one of many in both."""
    looked: list[int] = []
    resident = ResidentArms(
        options=RunOptions(),
        context=Context(device="cpu", scratch=tmp_path, progress=lambda *_: None),
    )
    taken = sampling.Taken(wall_s=0.01)
    resident.clock = SimpleNamespace(take=lambda program, calls: taken)
    digested: list[float] = []
    resident.referee = SimpleNamespace(
        look=lambda *_, calls, **__: looked.append(calls),
        repeats=SimpleNamespace(after_turn=lambda *_, sampled_s: digested.append(sampled_s)),
    )
    resident.arms = [
        sampling.ResidentArm(name="eager", program=Drawing(0), first_call_s=0.0, calls=8)
    ]
    resident.turn(0, 0, touch=False, referee=7, once=once)
    assert (looked, digested, resident.arms[0].taken) == ([calls], [0.08], [taken])


@pytest.mark.parametrize(
    ("before", "while_sampling", "detail"), [(5, 3, "freed its cache 3 times"), (5, 0, "")]
)
def test_memory_that_grew_short_while_samples_were_taken_is_said(
    tmp_path: Path, before, while_sampling, detail
) -> None:
    retries = iter((before, before + while_sampling))
    resident = ResidentArms(
        options=RunOptions(referee=False),
        context=Context(device="cpu", scratch=tmp_path, progress=print),
    )
    taken = sampling.Taken(wall_s=0.01)
    resident.clock = SimpleNamespace(
        take=lambda _program, calls: taken,
        retries=lambda: next(retries),
        checks=lambda _program, arm: (),
    )
    program = SimpleNamespace(finish=lambda: (), parts=(), items=None, compiler=Compiler.NONE)
    resident.arms = [
        sampling.ResidentArm(
            name="eager", program=program, first_call_s=0.0, taken=[taken], blocks=[0]
        )
    ]
    resident.warm([1])
    told = [
        check.detail for check in resident.evidence(0).checks if check.name == "short_of_memory"
    ]
    assert [detail in one for one in told] == ([True] if detail else [])
