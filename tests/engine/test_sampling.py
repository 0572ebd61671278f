"""The order of turns, and what sampling makes of them."""

import random
from pathlib import Path

import pytest

from ci_bench.engine import sampling
from ci_bench.engine.sampling import compile_latency, measure_in_turns, plan_turns
from ci_bench.records.case import Check, Outcome
from ci_bench.records.config import RunOptions
from ci_bench.suites.base import Compiler, Context


@pytest.mark.parametrize("arms", [1, 2, 3, 5])
def test_each_block_is_a_palindrome_in_which_each_arm_has_two_turns_around_the_same_time(arms: int) -> None:
    for order in plan_turns(arms, 20, random.Random(0)):
        assert order == order[::-1]
        assert sorted(order) == sorted([*range(arms)] * 2)
        positions = [[at for at, arm in enumerate(order) if arm == one] for one in range(arms)]
        assert {sum(turns) / 2 for turns in positions} == {(len(order) - 1) / 2}


def test_which_arm_begins_is_drawn_by_the_launch_alone() -> None:
    turns = [plan_turns(2, 40, random.Random(launch)) for launch in (0, 0, 1)]
    assert turns[0] == turns[1] != turns[2]
    assert {tuple(order) for order in turns[0]} == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_a_linear_drift_hits_all_arms_alike() -> None:
    spent = {0: [], 1: [], 2: []}
    for at, arm in enumerate(arm for order in plan_turns(3, 10, random.Random(1)) for arm in order):
        spent[arm].append(1.0 + 0.01 * at)
    means = [sum(values) / len(values) for values in spent.values()]
    assert max(means) - min(means) < 1e-12


class Workload:
    """Steps that move a fake clock: the first call of each arm is slow, arm b takes twice as long as arm a."""

    def __init__(self) -> None:
        self.now, self.opened = 0.0, []

    def open(self, arm: str) -> "Workload.Program":
        self.opened.append(arm)
        return self.Program(self, arm)

    class Program:
        items = 8
        parts = ()

        def __init__(self, workload: "Workload", arm: str) -> None:
            self.workload, self.arm, self.first = workload, arm, True
            self.compiler = Compiler.NONE if arm == "a" else Compiler.OTHER

        def step(self, mark) -> None:
            self.workload.now += (2.0 if self.arm == "b" else 1.0) + (5.0 if self.first else 0.0)
            self.first = False

        def finish(self) -> tuple[Check, ...]:
            return (Check(name="finished", arm=self.arm, outcome=Outcome.PASS, detail="yes"),)


def test_samples_of_all_arms_come_with_their_blocks_checks_and_compile_latency(monkeypatch, tmp_path: Path) -> None:
    workload, told = Workload(), []
    monkeypatch.setattr("ci_bench.engine.timing.time.perf_counter", lambda: workload.now)
    context = Context(device="cpu", scratch=tmp_path, progress=lambda *told_now: told.append(told_now))
    options = RunOptions(blocks=3, sample_s=0.5, warmup_s=1000)
    evidence = measure_in_turns(workload, ("a", "b"), launch=4, options=options, context=context)
    metrics = {(metric.name, metric.arm): metric for metric in evidence.metrics}
    assert list(metrics) == [("step_time", "a"), ("step_time", "b"), ("compile_warm", "b")]
    taken = metrics["step_time", "b"].launches[0]
    assert (taken.launch, taken.values, taken.blocks, taken.steady) == (4, (2.0,) * 6, (0, 0, 1, 1, 2, 2), True)
    assert metrics["step_time", "b"].items == 8
    assert metrics["compile_warm", "b"].launches[0].values == (5.0,)
    assert [(check.name, check.arm) for check in evidence.checks] == [
        ("steady", "a"), ("finished", "a"), ("steady", "b"), ("finished", "b"),
    ]  # fmt: skip
    assert told == [("a+b", 2, 6), ("a+b", 4, 6), ("a+b", 6, 6)]


def test_an_arm_that_never_became_steady_says_so(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sampling, "warm_up", lambda *_, **__: ((3.0, 2.0, 1.0), False))
    context = Context(device="cpu", scratch=tmp_path, progress=lambda *_: None)
    evidence = measure_in_turns(Workload(), ("a",), launch=0, options=RunOptions(blocks=1, sample_s=1e-9), context=context)
    assert evidence.checks[0].outcome is Outcome.UNKNOWN
    assert "not steady after 3 warm-up samples (6.0 s)" in evidence.checks[0].detail


@pytest.mark.parametrize(("first_s", "steady_s", "values"), [(1.5, 0.5, [1.0]), (0.5, 0.5, []), (0.4, 0.5, [])])
def test_a_latency_that_cannot_be_told_is_left_out_and_is_never_zero(first_s, steady_s, values) -> None:
    found = compile_latency("compile_cold", "inductor", first_call_s=first_s, steady_s=steady_s, launch=2)
    assert [metric.launches[0].values[0] for metric in found] == values
