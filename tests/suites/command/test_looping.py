"""Loops that are generators: run to their end or so many steps, timed at their own boundaries, refused with what to change."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import ci_bench
from ci_bench.formats.training_log import read
from ci_bench.suites.command import looping
from ci_bench.suites.command.looping import BadLoop, drive, load, steps_of


def driven(steps, most=None):
    noted = []
    drive(iter(steps), most, lambda step, seconds, _: noted.append((step.loss, seconds)), "a:b")
    return noted


def test_a_step_lasts_from_when_the_loop_goes_on_to_its_yield(monkeypatch) -> None:
    """What is written between two steps is part of neither; what the loop does before it goes on is."""
    clock, noted = [100.0], []
    monkeypatch.setattr(
        looping,
        "time",
        SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: 10 * clock[0]),
    )

    def loop():
        clock[0] += 5.0  # its set-up
        for number in range(3):
            clock[0] += 2.0
            yield ci_bench.Step(loss=float(number))
            clock[0] += 0.5  # logs and checkpoints of its own

    def note(step, seconds, cpu_seconds):
        clock[0] += 1000.0
        noted.append((step.loss, seconds, cpu_seconds))

    drive(loop(), None, note, "a:b")
    assert noted == [(0.0, 7.0, 70.0), (1.0, 2.5, 25.0), (2.0, 2.5, 25.0)]


def test_a_step_ends_when_its_device_is_done(monkeypatch) -> None:
    waited = []
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: waited.append("cuda"))
    xpu = SimpleNamespace(is_initialized=lambda: False, synchronize=lambda: waited.append("xpu"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, xpu=xpu))
    driven([ci_bench.Step(loss=1.0)] * 2)
    assert waited == ["cuda", "cuda"], "a device that the loop did not use is not started"


class Lazy:
    """A number that is computed when it is read, as those of a lazy framework are."""

    def __init__(self, clock, value):
        self.clock, self.value, self.read = clock, value, 0

    def __float__(self):
        self.clock[0] += 4.0
        self.read += 1
        return float(self.value + self.read)

    __int__ = __index__ = lambda self: int(self.__float__())


class LazyStep(ci_bench.Step):
    """A step that computes its loss when it is asked for it."""

    __slots__ = ("clock",)

    @property
    def loss(self):
        self.clock[0] += 4.0
        return 1.0


def lazy_step(clock, value):
    step = object.__new__(LazyStep)
    for name, given in (("clock", clock), ("grad_norm", value), ("tokens", None)):
        object.__setattr__(step, name, given)
    return step


@pytest.mark.parametrize(
    "make",
    [
        lambda _, value: ci_bench.Step(loss=value),
        lambda _, value: ci_bench.Step(loss=1.0, grad_norm=value),
        lambda _, value: ci_bench.Step(loss=1.0, tokens=value),
        lambda _, value: ci_bench.Step(loss=SimpleNamespace(detach=lambda: value)),
        lambda clock, _: lazy_step(clock, None),
    ],
    ids=["loss", "grad_norm", "tokens", "detach", "property"],
)
def test_reading_numbers_is_timed(make, monkeypatch, tmp_path) -> None:
    """All that a number costs is part of its own step, and none of it comes again when the step is written."""
    clock, taken = [0.0], []
    fake = SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: clock[0])
    monkeypatch.setattr(looping, "time", fake)
    lazy = [Lazy(clock, number) for number in range(2)]

    def note(step, seconds, cpu_seconds):
        looping.write(str(tmp_path / "out"), step, step_time=seconds, cpu_time=cpu_seconds)
        taken.append((seconds, cpu_seconds))

    drive(iter([make(clock, number) for number in lazy]), None, note, "a:b")
    assert taken == [(4.0, 4.0)] * 2
    assert all(number.read <= 1 for number in lazy)
    assert clock[0] == 8.0


def test_what_reading_queues_on_a_device_is_waited_for(monkeypatch) -> None:
    done = []
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: done.append("waited"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    driven([ci_bench.Step(loss=SimpleNamespace(detach=lambda: done.append("read") or 1.0))])
    assert done == ["read", "waited"]


def test_a_loop_that_is_ended_cleans_up_and_takes_no_step_more() -> None:
    seen = []

    def endless():
        try:
            while True:
                seen.append("step")
                yield ci_bench.Step(loss=1.0)
        finally:
            seen.append("closed")

    assert len(driven(endless(), most=3)) == 3
    assert seen == ["step", "step", "step", "closed"]


@pytest.mark.parametrize(
    ("yielded", "reason"),
    [
        (
            [ci_bench.Step(loss=1.0), 2.5],
            "a:b yielded a float as step 1; have it `yield ci_bench.Step",
        ),
        ([None], "a:b yielded a NoneType as step 0"),
        ([], "a:b yielded no step"),
    ],
)
def test_what_is_no_step_is_refused(yielded, reason) -> None:
    with pytest.raises(BadLoop, match=reason):
        driven(yielded)


def test_what_is_no_loop_is_refused() -> None:
    with pytest.raises(BadLoop, match="json has no function 'trian'"):
        load("json:trian")
    with pytest.raises(BadLoop, match="json:dumps is not a generator, it returned a str"):
        steps_of(json.dumps, {"obj": 1}, "json:dumps")


LOOP = """
import ci_bench

def train(count=5, fail=False):
    for number in range(count):
        ci_bench.step(loss=99.0)  # of a loop that tells its steps as well
        yield ci_bench.Step(loss=2.0 / (number + 1), grad_norm=1.0, tokens=8)
        if fail:
            raise RuntimeError("no data")
"""


def run(tmp_path, *arguments, **environ):
    (tmp_path / "loops.py").write_text(LOOP)
    command = [sys.executable, "-m", looping.__name__, "loops:train", *arguments]
    return subprocess.run(
        command, cwd=tmp_path, env=os.environ | environ, capture_output=True, text=True, check=False
    )


def test_a_loop_as_a_process_writes_what_the_reader_reads(tmp_path) -> None:
    file = tmp_path / "out"
    ended = run(tmp_path, "--steps", "3", "--arguments", '{"count": 4}', CI_BENCH_OUTPUT=str(file))
    assert (ended.returncode, ended.stderr) == (0, "")
    (steps,) = read(file.read_text(), {}).ranks
    assert [(step.loss, step.grad_norm, step.tokens) for step in steps] == [
        (2.0, 1.0, 8),
        (1.0, 1.0, 8),
        (2 / 3, 1.0, 8),
    ]
    assert all(0 < step.time_s < 10 for step in steps)


WAITING = """
import time
import ci_bench

def train():
    while True:
        time.sleep(0.05)
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        yield ci_bench.Step(loss=1.0)
"""


def test_a_step_that_waits_takes_longer_than_it_computes(tmp_path) -> None:
    """As one does whose rank waits for the others: 10 ms of work, and a wait of 50."""
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [sys.executable, "-m", looping.__name__, "waiting:train", "--steps", "3"]
    subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"CI_BENCH_OUTPUT": str(tmp_path / "out")},
        check=True,
    )
    (steps,) = read((tmp_path / "out").read_text(), {}).ranks
    assert all(0.01 <= step.cpu_s <= step.time_s - 0.04 for step in steps), steps


def test_a_loop_that_fails_fails_the_process_with_its_own_words(tmp_path) -> None:
    ended = run(tmp_path, "--arguments", '{"fail": true}', CI_BENCH_OUTPUT=str(tmp_path / "out"))
    assert ended.returncode == 1
    assert "RuntimeError: no data" in ended.stderr
    ended = run(tmp_path, "--arguments", '{"count": 0}')
    assert (ended.returncode, ended.stderr.strip()) == (
        1,
        "loops:train yielded no step; have it `yield ci_bench.Step(loss=loss)` at the end of each step",
    )
