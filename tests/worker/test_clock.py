"""Clocks on a machine whose time is scripted: what is timed, what isn't, and that each property fails for a planted defect."""

import ctypes
from pathlib import Path
from types import ModuleType, SimpleNamespace

import fake_cuda
import pytest
from fake_cuda import LAUNCH_S, FakeCuda, Machine, Steps
from mutants import plant

from ci_bench.records.config import RunOptions
from ci_bench.records.results import Lane, Outcome
from ci_bench.suites.contract import Part
from ci_bench.worker import clock as clock_module
from ci_bench.worker import cuda_clock
from ci_bench.worker.clock import HostClock, Taken, Write, device_series, part_series
from ci_bench.worker.cuda_clock import CudaClock
from ci_bench.worker.sampling import make_clock

FORWARD, BACKWARD = Part(metric="forward_time", per=4), Part(metric="backward_time")
FLUSH_S = 60e-6
exactly = pytest.approx


def cuda_clock_of(
    module: ModuleType, cuda: FakeCuda, *, flush: bool = False, graphs: bool = False
) -> CudaClock:
    machine = cuda.machine

    def overwrite() -> None:
        machine.log.append("flush")
        machine.kernel(FLUSH_S)
        machine.cached = machine.pinned

    def unpin() -> int:
        machine.log.append("unpin")
        machine.pinned = False
        return 0

    return module.CudaClock(
        cuda,
        "cuda:0",
        flush=overwrite if flush else None,
        unpin=unpin,
        graphs=graphs,
        now=machine.read_clock,
    )


def earlier_work(cuda: FakeCuda) -> None:
    cuda.machine.kernel(0.5)


def the_fence_holds_all_of_the_calls_and_none_of_what_came_before(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda)
    earlier_work(cuda)
    taken = clock.take(Steps(cuda, (0.001, 0)), calls=4)
    assert taken.wall_s == exactly(0.001 + LAUNCH_S / 4)
    assert taken.device_s == exactly(0.001 + LAUNCH_S / 4)


def the_devices_time_never_exceeds_the_hosts_and_leaves_out_the_hosts_way_to_the_end(
    module: ModuleType,
) -> None:
    cuda = FakeCuda()
    taken = cuda_clock_of(module, cuda).take(Steps(cuda, (0.0001, 0), host_s=0.001), calls=10)
    assert taken.device_s == exactly(taken.wall_s)
    assert taken.wall_s == exactly((10 * (0.001 + LAUNCH_S) + 0.0001) / 10)


def parts_are_what_lies_between_their_marks(module: ModuleType) -> None:
    cuda = FakeCuda()
    program = Steps(cuda, (0.004, 0), (0.002, 0), (0.001, 0), parts=(FORWARD, BACKWARD))
    taken = cuda_clock_of(module, cuda).take(program, calls=5)
    assert taken.parts_s == exactly(((0.004 + LAUNCH_S / 5) / 4, 0.002))
    assert taken.wall_s == exactly(0.007 + LAUNCH_S / 5)


def nothing_but_marks_and_calls_is_in_the_fence(module: ModuleType) -> None:
    cuda = FakeCuda()
    program = Steps(cuda, (0.001, 0), (0.001, 0), parts=(BACKWARD,))
    cuda_clock_of(module, cuda).take(program, calls=3)
    first, last = (position for position, what in enumerate(cuda.machine.log) if what == "clock")
    one_call = ["record", "step", "record"]
    assert cuda.machine.log[first + 1 : last] == [
        "record",
        *one_call * 2,
        "record",
        *one_call,
        "record",
        "synchronize",
    ]
    assert cuda.machine.log[first - 1] == "synchronize"


def a_long_sample_takes_no_more_events_than_allowed(module: ModuleType) -> None:
    cuda = FakeCuda()
    taken = cuda_clock_of(module, cuda).take(
        Steps(cuda, (0.0005, 0), (0.0005, 0), parts=(FORWARD,)), calls=9999
    )
    assert cuda.machine.log.count("event created") <= cuda_clock.MAX_EVENTS + 3
    assert cuda.machine.log.count("step") == 9999
    assert taken.parts_s == exactly((0.0005 / 4,), rel=1e-3)


def what_events_cannot_resolve_is_unknown_and_said(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda)
    program = Steps(cuda, (20e-6, 0), (60e-6, 0), parts=(FORWARD, BACKWARD))
    taken = clock.take(program, calls=1)
    assert (taken.device_s, taken.parts_s) == (None, (None, None))
    assert taken.wall_s == exactly(80e-6 + LAUNCH_S)
    (check,) = clock.checks(program, arm="eager")
    assert (check.name, check.arm, check.outcome, check.informative) == (
        "device_clock",
        "eager",
        Outcome.UNKNOWN,
        True,
    )
    assert "backward_time, device time, forward_time" in check.detail


def short_parts_are_resolved_by_many_calls(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda)
    program = Steps(cuda, (5e-6, 0), (60e-6, 0), parts=(FORWARD, BACKWARD))
    taken = clock.take(program, calls=100)
    assert taken.device_s == exactly(65e-6, rel=1e-2)
    assert taken.parts_s == (
        None,
        exactly(60e-6, rel=1e-3),
    )  # 5 µs x 100 is less than 100 µs x √100, 60 µs x 100 is more
    assert "left out: forward_time;" in clock.checks(program, arm="eager")[0].detail


def a_part_of_the_host_alone_is_no_doubt_of_the_devices_clock(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda)
    program = Steps(
        cuda, (0, 0), (0.001, 0), parts=(Part(metric="zero_grad_time", on_host=True), BACKWARD)
    )
    assert clock.take(program, calls=10).parts_s == (None, exactly(0.001, rel=1e-2))
    assert clock.checks(program, arm="eager") == ()


def every_call_is_cold_and_the_flush_is_in_neither_clock(module: ModuleType) -> None:
    cuda = FakeCuda()
    earlier_work(cuda)
    program = Steps(cuda, (20e-6, 30e-6))
    taken = cuda_clock_of(module, cuda, flush=True).take(program, calls=16)
    assert taken.wall_s == exactly(50e-6 + LAUNCH_S)
    assert taken.device_s == exactly(50e-6)
    assert program.calls == 2 * 16


def what_a_step_pins_in_the_cache_is_cold_too(module: ModuleType) -> None:
    cuda = FakeCuda()
    program = Pinning(cuda, (20e-6, 30e-6))
    taken = cuda_clock_of(module, cuda, flush=True).take(program, calls=16)
    assert taken.wall_s == exactly(50e-6 + LAUNCH_S)
    assert taken.device_s == exactly(50e-6)
    assert "unpin" not in cuda.machine.log[cuda.machine.log.index("step") :][:2], (
        "nothing is unpinned in the fence"
    )


def an_error_of_the_driver_is_told_of(module: ModuleType) -> None:
    cuda = FakeCuda()
    program = Steps(cuda, (20e-3, 30e-6))
    for error, expected in ((0, []), (201, ["device_clock"])):
        clock = module.CudaClock(
            cuda,
            "cuda:0",
            flush=lambda: None,
            unpin=lambda error=error: error,
            now=cuda.machine.read_clock,
        )
        clock.take(program, calls=2)
        found = [
            check for check in clock.checks(program, arm="eager") if "persisting" in check.detail
        ]
        assert [check.name for check in found] == expected


class Pinning(Steps):
    """A program whose kernels pin what they read in the cache."""

    def step(self, mark) -> None:
        super().step(mark)
        self.cuda.machine.pinned = True


def parts_are_cold_too(module: ModuleType) -> None:
    cuda = FakeCuda()
    program = Steps(cuda, (40e-6, 40e-6), (20e-6, 30e-6), parts=(FORWARD, BACKWARD))
    taken = cuda_clock_of(module, cuda, flush=True).take(program, calls=100)
    assert taken.parts_s == exactly((20e-6, 20e-6))
    assert taken.device_s == exactly(100e-6)


def a_gpu_that_waits_for_the_host_is_told_of(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda, flush=True)
    slow, quick = Steps(cuda, (0.001, 0), host_s=0.002), Steps(cuda, (0.001, 0))
    for program in (slow, quick):
        clock.take(program, calls=4)
    (check,) = clock.checks(slow, arm="eager")
    assert "waited for the host in 100% of the calls" in check.detail
    assert clock.checks(quick, arm="eager") == ()


def a_hot_step_that_the_host_cannot_queue_in_time_is_told_of(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda)
    slow = Steps(cuda, (0.001, 0), (0.0005, 0), host_s=0.002, parts=(BACKWARD,))
    plain, quick = Steps(cuda, (0.001, 0), host_s=0.002), Steps(cuda, (0.001, 0), host_s=0.0001)
    for program in (slow, plain, quick):
        clock.take(program, calls=4)
    for program in (slow, plain):
        (check,) = clock.checks(program, arm="eager")
        assert "waited for the host in 100% of the calls" in check.detail
    assert clock.checks(quick, arm="eager") == ()


def samples_of_another_length_dilute_no_share(module: ModuleType) -> None:
    """Calls by themselves, and samples that look for the number of calls, say nothing of samples."""
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda)
    program = Steps(cuda, (0.001, 0))
    for calls in (1, 2, 4, 1, 1, 1, 1, 1):
        clock.take(program, calls=calls)
    for host_s in (0.002, *[0.0] * 7):
        program.host_s = host_s
        clock.take(program, calls=8)
    (check,) = clock.checks(program, arm="eager")
    assert "waited for the host in 12% of the calls" in check.detail


def the_flush_lasts_until_the_host_has_queued_the_call(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda, flush=True)
    program = Steps(cuda, (0.001, 0), host_s=0.0005)
    device_s = [clock.take(program, calls=4).device_s for _ in range(6)]
    assert device_s[0] > 0.0013
    assert device_s[-1] == exactly(0.001)
    assert clock.checks(program, arm="eager") == ()
    hopeless = Steps(cuda, (0.001, 0), host_s=1.0)
    for _ in range(12):
        clock.take(hopeless, calls=1)
    assert cuda.machine.log.count("flush") < 12 * 2 * cuda_clock.MOST_FLUSHES
    assert "waited for the host" in clock.checks(hopeless, arm="eager")[0].detail


def settled_flushes_are_as_many_before_every_call(module: ModuleType) -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(module, cuda, flush=True)
    slow, quick = Steps(cuda, (0.001, 0), host_s=0.002), Steps(cuda, (0.001, 0))
    assert clock.flushes() == 1
    for _ in range(3):
        clock.take(slow, calls=4)
        clock.take(quick, calls=4)
    assert clock.flushes() == 4
    clock.settle_flushes(2)
    for program in (slow, quick):
        for _ in range(3):
            before = cuda.machine.log.count("flush")
            clock.take(program, calls=4)
            assert cuda.machine.log.count("flush") - before == 4 * (1 + 2)
    (check,) = clock.checks(slow, arm="eager")
    assert "waited for the host in 100% of the calls" in check.detail
    clock.settle_flushes(2)
    assert clock.checks(slow, arm="eager") == (check,)
    assert cuda_clock_of(module, cuda).flushes() == 0


def a_sample_is_a_thousand_times_as_long_as_its_fence(module: ModuleType) -> None:
    cuda = FakeCuda()
    wait = cuda.machine.wait

    def waiting_costs_time() -> None:
        cuda.machine.now += 7e-6
        wait()

    cuda.machine.wait = waiting_costs_time
    assert cuda_clock_of(module, cuda).least_sample_s() == exactly(0.007)
    assert cuda_clock_of(module, cuda, flush=True).least_sample_s() == 0.0


def a_wrong_number_of_marks_is_refused(module: ModuleType) -> None:
    for flush in (False, True):
        for made in (0, 1, 3):
            cuda = FakeCuda()
            program = Steps(cuda, parts=(FORWARD, BACKWARD))
            program.step = lambda mark, made=made: [mark() for _ in range(made)]
            with pytest.raises(
                ValueError,
                match=rf"2 parts \(forward_time, backward_time\), and made {made} marks per call",
            ):
                cuda_clock_of(module, cuda, flush=flush).take(program, calls=2)


PROPERTIES = [
    the_fence_holds_all_of_the_calls_and_none_of_what_came_before,
    the_devices_time_never_exceeds_the_hosts_and_leaves_out_the_hosts_way_to_the_end,
    parts_are_what_lies_between_their_marks,
    nothing_but_marks_and_calls_is_in_the_fence,
    a_long_sample_takes_no_more_events_than_allowed,
    what_events_cannot_resolve_is_unknown_and_said,
    short_parts_are_resolved_by_many_calls,
    a_part_of_the_host_alone_is_no_doubt_of_the_devices_clock,
    every_call_is_cold_and_the_flush_is_in_neither_clock,
    what_a_step_pins_in_the_cache_is_cold_too,
    an_error_of_the_driver_is_told_of,
    parts_are_cold_too,
    a_gpu_that_waits_for_the_host_is_told_of,
    a_hot_step_that_the_host_cannot_queue_in_time_is_told_of,
    samples_of_another_length_dilute_no_share,
    the_flush_lasts_until_the_host_has_queued_the_call,
    settled_flushes_are_as_many_before_every_call,
    a_sample_is_a_thousand_times_as_long_as_its_fence,
    a_wrong_number_of_marks_is_refused,
]


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
def test_a_gpu_is_timed_as_it_should_be(holds) -> None:
    holds(cuda_clock)


HOT_FENCE = """        self._synchronize()
        begun = now()
        self._start.record(stream)
"""
HOT_END = """        self._end.record(stream)
        self._synchronize()
        wall_s = (now() - begun) / calls
"""
COLD_FENCE = """            flush()
            self._synchronize()
            begun = now()
"""
COLD_QUEUE = """            for _ in range(subject.flushes):
                flush()
            self._start.record(stream)
"""
DEFECTS = {
    "begins without waiting": (HOT_FENCE, HOT_FENCE.replace("        self._synchronize()\n", "")),
    "begins to wait after the start": (HOT_FENCE, "        begun = now()\n        self._synchronize()\n        self._start.record(stream)\n"),
    "starts the span before it waits": (HOT_FENCE, "        self._start.record(stream)\n        self._synchronize()\n        begun = now()\n"),
    "ends without waiting": (HOT_END, HOT_END.replace("        self._synchronize()\n", "") + "        self._synchronize()\n"),
    "ends the span after it waited": (HOT_END, "        self._synchronize()\n        wall_s = (now() - begun) / calls\n        self._end.record(stream)\n"),
    "ends the span before it began": (HOT_FENCE, HOT_FENCE + "        self._end.record(stream)\n        self._end = self._start\n"),
    "reads milliseconds as seconds": ("elapsed_time(later)) / 1e3", "elapsed_time(later))"),
    "does not divide by the calls": ("return span_s / calls", "return span_s"),
    "forgets what a part is per": ("calls=calls * part.per", "calls=calls"),
    "does not mark the start of a call": ("            marks()\n            step(marks)\n        else", "            step(marks)\n        else"),
    "creates events in the fence": ("        for event in events:\n            event.record(self._stream())\n", ""),
    "takes an event for every call": ("stride = math.ceil(calls * (parts + 1) / MAX_EVENTS)", "stride = 1"),
    "trusts any span": ("return span_s >= LEAST_SPAN_S * math.sqrt(pairs)", "return True"),
    "trusts a sum like a span": ("LEAST_SPAN_S * math.sqrt(pairs)", "LEAST_SPAN_S"),
    "trusts only long spans": ("LEAST_SPAN_S * math.sqrt(pairs)", "LEAST_SPAN_S * pairs"),
    "does not say what is left out": ('        subject.unresolved |= {what} - {""}\n', ""),
    "doubts the clock for what the host does": ('"" if part.on_host else part.metric', "part.metric"),
    "flushes inside the fence": (COLD_FENCE, "            self._synchronize()\n            begun = now()\n            flush()\n"),
    "does not wait for the flush": (COLD_FENCE, "            flush()\n            begun = now()\n"),
    "does not flush before the host's call": (COLD_FENCE, COLD_FENCE.replace("            flush()\n", "")),
    "unpins only before the host's call": ("            self._make_evictable()\n            for _", "            for _"),
    "unpins only before the queued call": ("            self._make_evictable()\n            flush()\n            self._sync", "            flush()\n            self._sync"),
    "keeps the driver's error to itself": ("self._pinned_by = self._unpin() or self._pinned_by", "self._unpin()"),
    "flushes inside the span": (COLD_QUEUE, "            self._start.record(stream)\n            flush()\n"),
    "does not flush before the queued call": (COLD_QUEUE, "            self._start.record(stream)\n"),
    "waits between flush and span": (COLD_QUEUE, COLD_QUEUE.replace("flush()\n", "flush()\n            self._synchronize()\n", 1)),
    "keeps only the last of the cold calls": ("device_s += _seconds", "device_s = _seconds"),
    "does not look whether the host is late": ("bool(self._last.query())", "False"),
    "takes every hot sample for late": ("bool(self._last.query())", "True"),
    "flushes once whatever the host takes": ("2 * subject.flushes, 0, 0", "1, 0, 0"),
    "flushes without end": ("and subject.flushes < MOST_FLUSHES", "or subject.queued"),
    "flushes by need though it is settled": ("not self._settled and subject", "subject"),
    "settles only what is settled": ("if not self._settled else ()", "if self._settled else ()"),
    "forgets at each order who waited": ("if not self._settled else ()", ""),
    "tells the least that a program needs": ("max((subject.flushes", "min((subject.flushes"),
    "does not look who waits for whom": ("bool(self._start.query())", "0"),
    "takes every call for overtaken": ("bool(self._start.query())", "1"),
    "counts the fence once": ("return FENCE_SHARE *", "return"),
    "does not count marks": ("expect_marks(marks.made, subject.parts, marked)", "pass"),
    "does not count marks of cold calls": ("expect_marks(marks.made + 1, subject.parts, 1)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_seen(defect: str, tmp_path) -> None:
    mutant = plant(cuda_clock, tmp_path, *DEFECTS[defect])
    assert any(_fails(holds, mutant) for holds in PROPERTIES)


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
def test_each_property_is_broken_by_a_defect(holds, tmp_path) -> None:
    assert any(_fails(holds, plant(cuda_clock, tmp_path, *change)) for change in DEFECTS.values())


def _fails(holds, module: ModuleType) -> bool:
    try:
        holds(module)
    except (AssertionError, RuntimeError, ValueError, IndexError, TypeError, pytest.fail.Exception):
        return True
    return False


def the_hosts_fence(module: ModuleType, machine: Machine) -> None:
    cuda = FakeCuda(machine)
    earlier_work(cuda)
    assert module.HostClock(cuda.synchronize).take(
        Steps(cuda, (0.001, 0)), calls=4
    ).wall_s == exactly(0.001 + LAUNCH_S / 4)


def the_hosts_parts(module: ModuleType, machine: Machine) -> None:
    cuda = FakeCuda(machine)
    earlier_work(cuda)
    program = Steps(cuda, parts=(FORWARD, BACKWARD))
    program.step = lambda mark: [
        _spend(machine, 0.004),
        mark(),
        _spend(machine, 0.002),
        mark(),
        _spend(machine, 0.001),
    ]
    taken = module.HostClock(cuda.synchronize).take(program, calls=5)
    assert taken == Taken(wall_s=exactly(0.007), parts_s=exactly((0.001, 0.002)))


def _spend(machine: Machine, seconds: float) -> None:
    machine.now += seconds


HOST_DEFECTS = {
    "begins without waiting": (
        "        step = program.step\n        self._synchronize()\n",
        "        step = program.step\n",
    ),
    "ends without waiting": (
        "                then.write()\n        self._synchronize()\n        return",
        "                then.write()\n        return",
    ),
    "begins parts without waiting": (
        "        self._synchronize()\n        start = now()\n",
        "        start = now()\n",
    ),
    "forgets what a part is per": ("span_s / calls / part.per", "span_s / calls"),
    "takes the sum for the mean": ("span_s / calls / part.per", "span_s / part.per"),
    "does not mark the start of a call": (
        "                mark()\n                program.step(mark)",
        "                program.step(mark)",
    ),
}


@pytest.mark.parametrize(
    "holds", [the_hosts_fence, the_hosts_parts], ids=lambda holds: holds.__name__
)
def test_the_host_clock_times_as_it_should(monkeypatch, holds) -> None:
    machine = Machine()
    monkeypatch.setitem(clock_module.HostClock.__init__.__kwdefaults__, "now", machine.read_clock)
    holds(clock_module, machine)


@pytest.mark.parametrize("defect", HOST_DEFECTS)
def test_a_defect_planted_in_the_host_clock_is_seen(defect: str, tmp_path) -> None:
    mutant, machine = plant(clock_module, tmp_path, *HOST_DEFECTS[defect]), Machine()
    mutant.HostClock.__init__.__kwdefaults__["now"] = machine.read_clock
    assert any(
        _fails(lambda module, holds=holds: holds(module, machine), mutant)
        for holds in (the_hosts_fence, the_hosts_parts)
    )


@pytest.mark.parametrize("parts", [(), (FORWARD, BACKWARD)], ids=["whole", "parts"])
@pytest.mark.parametrize("behind", [0, 1])
def test_a_write_goes_between_two_calls(parts, behind) -> None:
    program, seen = Steps(FakeCuda(), parts=parts), []
    program.step = lambda mark: (seen.append("call"), *(mark() for _ in parts))
    HostClock(lambda: None).take(
        program, calls=4, write=Write(write=lambda: seen.append("write"), behind=behind)
    )
    assert seen == [*["call"] * (4 - behind), "write", *["call"] * behind]


@pytest.mark.parametrize("flush", [None, lambda: None], ids=["hot", "flushed"])
@pytest.mark.parametrize("behind", [0, 1])
def test_a_gpus_row_waits_at_its_ends_only(flush, behind) -> None:
    cuda, seen = FakeCuda(), []
    clock, program = CudaClock(cuda, "cuda:0", flush=flush), Steps(cuda)
    step, wait = program.step, cuda.synchronize
    program.step = lambda mark: (seen.append("call"), step(mark))
    cuda.synchronize = lambda device: (seen.append("wait"), wait(device))
    clock.take(program, calls=3, write=Write(write=lambda: seen.append("write"), behind=behind))
    assert seen == ["wait", *["call"] * (3 - behind), "write", *["call"] * behind, "wait"]


@pytest.mark.parametrize("marks", [0, 1, 3])
def test_the_host_clock_refuses_a_wrong_number_of_marks(marks: int) -> None:
    program = Steps(FakeCuda(), parts=(FORWARD, BACKWARD))
    program.step = lambda mark: [mark() for _ in range(marks)]
    with pytest.raises(
        ValueError,
        match=rf"2 parts \(forward_time, backward_time\), and made {marks} marks per call",
    ):
        HostClock(lambda: None).take(program, calls=3)


def test_a_series_has_no_holes() -> None:
    whole = [
        Taken(wall_s=1, device_s=0.5, parts_s=(0.1, None)),
        Taken(wall_s=1, device_s=0.6, parts_s=(0.2, 0.3)),
    ]
    assert device_series(whole) == (0.5, 0.6)
    assert device_series([*whole, Taken(wall_s=1)]) == ()
    assert (part_series(whole, 0), part_series(whole, 1), part_series(whole, 2)) == (
        (0.1, 0.2),
        (),
        (),
    )


def test_the_cpu_has_no_parts_of_a_gpu_and_says_what_it_does_not_do() -> None:
    clock = make_clock("cpu", RunOptions(flush_l2=True, cuda_graph=True))
    assert isinstance(clock, HostClock)
    assert clock.parts_lane is Lane.WALL
    assert clock.least_sample_s() == 0.0
    checks = clock.checks(Steps(FakeCuda()), arm="eager")
    assert [(check.name, check.outcome, check.informative) for check in checks] == [
        ("flush_l2", Outcome.UNKNOWN, True),
        ("cuda_graph", Outcome.UNKNOWN, True),
    ]
    assert make_clock("cpu").checks(Steps(FakeCuda()), arm="eager") == ()


@pytest.mark.engine
@pytest.mark.parametrize(
    ("l2_bytes", "flushed"), [(50_000_000, 100_000_000), (0, 256_000_000), (None, 256_000_000)]
)
def test_any_cuda_device_gets_the_gpus_clock_and_a_flush_of_twice_its_cache(
    monkeypatch, l2_bytes, flushed
) -> None:
    torch = pytest.importorskip("torch")
    allocated = []
    cuda = FakeCuda(l2_bytes=l2_bytes)

    def empty(size: int, **options: object) -> SimpleNamespace:
        allocated.append((size, options["device"]))
        return SimpleNamespace(zero_=lambda: cuda.machine.kernel(FLUSH_S))

    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "empty", empty)
    clock = make_clock("cuda:1", RunOptions(flush_l2=True))
    assert isinstance(clock, CudaClock)
    assert clock.parts_lane is Lane.DEVICE
    assert allocated == [(flushed, "cuda:1")]
    program = Steps(cuda, (0.001, 0))
    clock.take(program, calls=2)
    assert program.calls == 4
    assert isinstance(make_clock("cuda:1"), CudaClock)
    assert len(allocated) == 1


@pytest.mark.engine
def test_the_fake_has_the_names_and_arguments_of_torch() -> None:
    import inspect

    torch = pytest.importorskip("torch")
    fake, real = FakeCuda(), torch.cuda
    for name in [name for name in dir(FakeCuda) if not name.startswith("_")] + [
        "Event",
        "CUDAGraph",
        "graph",
        "Stream",
    ]:
        assert hasattr(real, name), name
    for name in (
        "current_stream",
        "set_stream",
        "stream",
        "synchronize",
        "get_device_properties",
        "set_sync_debug_mode",
    ):
        assert [*inspect.signature(getattr(fake, name)).parameters] == [
            *inspect.signature(getattr(real, name)).parameters
        ]
    for kind, methods in {
        "Event": ("record", "query", "elapsed_time"),
        "CUDAGraph": ("replay", "reset"),
    }.items():
        for method in methods:
            given = inspect.signature(getattr(getattr(fake_cuda, kind), method)).parameters
            assert [*given] == [*inspect.signature(getattr(getattr(real, kind), method)).parameters]
    assert "enable_timing" in inspect.signature(real.Event.__new__).parameters
    assert "cuda_graph" in inspect.signature(real.graph.__init__).parameters
    assert "L2_cache_size" in Path(torch.__path__[0], "_C", "__init__.pyi").read_text()


def test_retries_are_those_that_the_allocator_counts() -> None:
    cuda = FakeCuda()
    clock = cuda_clock_of(cuda_clock, cuda)
    assert clock.retries() == 0
    cuda.retries = 3
    assert clock.retries() == 3
    cuda.memory_stats = lambda _device: {}
    assert clock.retries() == 0


@pytest.mark.parametrize(
    ("library", "code"),
    [
        (lambda name: SimpleNamespace(cuCtxResetPersistingL2Cache=lambda: 201), 201),
        (lambda name: SimpleNamespace(cuCtxResetPersistingL2Cache=lambda: 801), 0),
        (lambda name: SimpleNamespace(), 0),
        (ctypes.CDLL, 0),
    ],
    ids=["an error", "not supported", "an old driver", "no driver"],
)
def test_a_driver_unpins(library, code) -> None:
    assert cuda_clock.make_unpin(library)() == code
