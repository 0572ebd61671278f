"""Copies of a program that are called in turn: who is called when, on either clock, and what a launch makes of them."""

from itertools import pairwise
from pathlib import Path

import pytest
from fake_cuda import LAUNCH_S, FakeCuda, Steps

from ci_bench.records.config import RunOptions
from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Compiler, Context, Part
from ci_bench.worker import sampling
from ci_bench.worker.cuda_clock import CudaClock
from ci_bench.worker.fence import Rotation, copies_of, in_turn
from ci_bench.worker.sampling import ResidentArms


class Copy:
    """Writes its number down whenever it is called."""

    items, compiler = 5, Compiler.NONE
    parts: tuple[Part, ...] = ()

    def __init__(self, number: int, log: list[int]) -> None:
        self.number, self.log = number, log

    def step(self, mark) -> None:
        self.log.append(self.number)
        mark()

    def finish(self) -> tuple[Check, ...]:
        outcome = Outcome.FAIL if self.number == 2 else Outcome.PASS
        return (Check(name="finite", arm="a", outcome=outcome, detail=str(self.number)),)


class Workload:
    """Opens one copy after the other."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.opened = 0

    def open(self, arm: str) -> Copy:
        self.opened += 1
        return Copy(self.opened - 1, self.log)


def table_of(workload: Workload, folder: Path, **options) -> ResidentArms:
    context = Context(device="cpu", scratch=folder, progress=lambda *_: None)
    resident = ResidentArms(
        options=RunOptions(**{"sample_s": 1e-9, "warmup_s": 0.0, **options}), context=context
    )
    resident.open(workload, ("a",))
    return resident


def test_each_call_is_one_of_the_next_copy_across_samples(tmp_path: Path) -> None:
    workload = Workload()
    resident = table_of(workload, tmp_path, rotate=3)
    assert workload.opened == 3
    assert workload.log[:3] == [0, 1, 2]  # the first calls, one of each
    del workload.log[:]
    resident.warm([4])
    resident.turn(0, 0, samples=2, touch=False)
    assert all((before + 1) % 3 == after for before, after in pairwise(workload.log))
    assert len(resident.arms[0].taken) == 2


def test_without_rotation_there_is_one_program_and_nothing_around_it(tmp_path: Path) -> None:
    workload = Workload()
    resident = table_of(workload, tmp_path)
    assert workload.opened == 1
    assert isinstance(resident.arms[0].program, Copy)
    assert copies_of(resident.arms[0].program) == (resident.arms[0].program,)


def test_a_launch_that_rotated_in_name_only_would_be_noticed(monkeypatch, tmp_path: Path) -> None:
    """The planted defect: a rotation that stays with its first copy."""
    monkeypatch.setattr(sampling, "Rotation", lambda copies: copies[0])
    with pytest.raises(AssertionError):
        test_each_call_is_one_of_the_next_copy_across_samples(tmp_path)


def test_what_one_copy_did_wrong_is_said() -> None:
    checks = Rotation([Copy(number, []) for number in range(3)]).finish()
    assert [check.outcome for check in checks] == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]


def test_compile_latency_is_that_of_the_first_copy(monkeypatch, tmp_path: Path) -> None:
    took_s = iter([7.0, 1.0, 1.0])
    monkeypatch.setattr(sampling, "time_calls", lambda *_, **__: next(took_s))
    monkeypatch.setattr(sampling, "find_calls", lambda *_, **__: 1)
    assert table_of(Workload(), tmp_path, rotate=3).arms[0].first_call_s == 7.0


def test_marks_are_passed_on_to_the_copy_that_is_called() -> None:
    made: list[str] = []
    rotation = Rotation([Copy(0, []), Copy(1, [])])
    rotation.step(lambda: made.append("mark"))
    assert (made, rotation.items, rotation.compiler) == (["mark"], 5, Compiler.NONE)


def test_one_call_needs_no_turns() -> None:
    def call() -> None:
        return None

    assert in_turn([call]) is call
    log: list[int] = []
    turns = in_turn([lambda: log.append(1), lambda: log.append(2)])
    for _ in range(5):
        turns()
    assert log == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("graphs", [False, True])
def test_a_gpus_clock_goes_round_the_copies_as_they_are_or_as_graphs(graphs: bool) -> None:
    cuda = FakeCuda()
    copies = [Steps(cuda, (0.001, 0)), Steps(cuda, (0.003, 0))]
    rotation = Rotation(copies)
    clock = CudaClock(cuda, "cuda:0", graphs=graphs, now=cuda.machine.read_clock)
    clock.prepare(rotation)
    before = [copy.calls for copy in copies]
    taken = clock.take(rotation, calls=4)
    assert taken.wall_s == pytest.approx(0.002 + LAUNCH_S / 4)  # half of the calls are of either
    calls = [copy.calls - earlier for copy, earlier in zip(copies, before, strict=True)]
    assert calls == ([0, 0] if graphs else [2, 2])  # a replay calls no step


def test_one_copy_that_cannot_be_captured_leaves_all_of_them_plain() -> None:
    cuda = FakeCuda()

    rotation = Rotation(
        [Steps(cuda, (0.001, 0)), Steps(cuda, (0.001, 0), trouble=cuda.machine.item)]
    )
    clock = CudaClock(cuda, "cuda:0", graphs=True, now=cuda.machine.read_clock)
    clock.prepare(rotation)
    (check,) = clock.checks(rotation, arm="a")
    assert (check.name, check.outcome) == ("graphed", Outcome.UNKNOWN)
    clock.call(rotation)
