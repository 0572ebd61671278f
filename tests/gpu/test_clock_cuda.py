"""The clock, CUDA graphs and the monitor on a real GPU. Skipped where there is none."""

import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from ci_bench.host.health import HARMFUL
from ci_bench.host.monitor import open_monitor
from ci_bench.records.config import RunOptions
from ci_bench.records.results import Outcome
from ci_bench.suites.contract import Part, no_mark
from ci_bench.worker.clock import Clock
from ci_bench.worker.cuda_clock import SpoiltByCapture
from ci_bench.worker.fence import Rotation
from ci_bench.worker.probe import probe_environment
from ci_bench.worker.sampling import make_clock

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.usefixtures("_warm"),
]

DEVICE = "cuda:0"
SAMPLES = 15


class Steps:
    """A program made of one function; `work` gets the mark."""

    items, compiler = None, None

    def __init__(self, work, parts=()) -> None:
        self.step, self.parts = work, parts

    def finish(self) -> tuple:
        return ()


@pytest.fixture
def matrices():
    torch.cuda.set_device(DEVICE)
    return torch.randn(2048, 2048, device=DEVICE), torch.empty(2048, 2048, device=DEVICE)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def median_s(clock: Clock, program: Steps, *, calls: int, of: str = "wall_s") -> float:
    clock.prepare(program)
    for _ in range(3):
        clock.take(program, calls=calls)
    return statistics.median(getattr(clock.take(program, calls=calls), of) for _ in range(SAMPLES))


def products(matrices, count: int):
    left, out = matrices

    def work(_mark=no_mark) -> None:
        for _ in range(count):
            torch.mm(left, left, out=out)

    return work


def test_host_and_events_agree_on_queued_work_which_takes_longer_than_queueing_it(
    matrices, figure
) -> None:
    clock, program = make_clock(DEVICE), Steps(products(matrices, 20))
    wall_s, device_s = (
        median_s(clock, program, calls=5),
        median_s(clock, program, calls=5, of="device_s"),
    )
    torch.cuda.synchronize()
    begun = time.perf_counter()
    program.step(no_mark)
    queueing_s = time.perf_counter() - begun
    torch.cuda.synchronize()
    figure(
        "twenty products of 2,048: by the host, by events, to queue",
        f"{_us(wall_s)}, {_us(device_s)}, {_us(queueing_s)}",
    )
    assert device_s == pytest.approx(wall_s, rel=0.05)
    assert queueing_s < wall_s / 2
    assert clock.checks(program, arm="eager") == ()


def test_time_grows_with_the_work(matrices) -> None:
    clock = make_clock(DEVICE)
    once, twice = (
        median_s(clock, Steps(products(matrices, count)), calls=5, of="device_s")
        for count in (20, 40)
    )
    assert twice == pytest.approx(2 * once, rel=0.1)


def test_parts_are_timed_by_events_and_leave_nothing_out(matrices) -> None:
    short, long = products(matrices, 10), products(matrices, 30)

    def work(mark) -> None:
        short()
        mark()
        long()
        mark()

    program = Steps(work, parts=(Part(metric="forward_time"), Part(metric="backward_time")))
    clock = make_clock(DEVICE)
    clock.take(program, calls=4)
    taken = clock.take(program, calls=4)
    assert taken.parts_s[1] == pytest.approx(3 * taken.parts_s[0], rel=0.15)
    assert sum(taken.parts_s) == pytest.approx(taken.device_s, rel=0.05)


def test_a_flush_makes_small_operands_cold(figure) -> None:
    torch.cuda.set_device(DEVICE)
    small = torch.ones(torch.cuda.get_device_properties(0).L2_cache_size // 16, device=DEVICE)
    program = Steps(lambda _mark: small.add_(1.0))
    hot = median_s(
        make_clock(DEVICE, RunOptions(cuda_graph=True)), program, calls=1000, of="device_s"
    )
    cold_clock = make_clock(DEVICE, RunOptions(flush_l2=True))
    cold = median_s(cold_clock, program, calls=1000, of="device_s")
    figure("an addition in a sixteenth of the L2 cache: hot, flushed", f"{_us(hot)}, {_us(cold)}")
    assert cold > 1.1 * hot
    assert cold_clock.take(program, calls=1000).wall_s > cold


def test_copies_in_turn_find_their_inputs_in_no_cache(figure) -> None:
    torch.cuda.set_device(DEVICE)
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size

    def copy() -> Steps:
        one = torch.ones(l2_bytes // 16, device=DEVICE)
        return Steps(lambda _mark: one.add_(1.0))

    copies = [copy() for _ in range(16)]
    hot, turned = (
        median_s(make_clock(DEVICE, RunOptions(cuda_graph=True)), program, calls=320, of="device_s")
        for program in (copies[0], Rotation(copies))
    )
    figure(
        "an addition in a quarter of the L2 cache: hot, sixteen copies in turn",
        f"{_us(hot)}, {_us(turned)}",
    )
    assert turned > 1.1 * hot  # a quarter of the cache is one copy, four times the cache are all


def test_cold_times_are_those_of_do_bench(matrices, figure) -> None:
    testing = pytest.importorskip("triton.testing")
    program = Steps(products(matrices, 1))
    ours = median_s(make_clock(DEVICE, RunOptions(flush_l2=True)), program, calls=50, of="device_s")
    theirs = testing.do_bench(lambda: program.step(no_mark), return_mode="median") / 1e3
    figure("a product of 2,048, flushed: ours, Triton's do_bench", f"{_us(ours)}, {_us(theirs)}")
    assert ours == pytest.approx(theirs, rel=0.1)


def test_a_graph_takes_the_hosts_share_away(figure) -> None:
    torch.cuda.set_device(DEVICE)
    tiny = torch.ones(16, device=DEVICE)
    added = []

    def work(_mark) -> None:
        added.append(1)
        for _ in range(200):
            tiny.add_(1.0)

    plain = median_s(make_clock(DEVICE), Steps(work), calls=10)
    clock, program = make_clock(DEVICE, RunOptions(cuda_graph=True)), Steps(work)
    clock.prepare(program)
    called, value = len(added), float(tiny[0])
    clock.take(program, calls=10)
    assert len(added) == called
    assert float(tiny[0]) == value + 10 * 200
    replayed = median_s(clock, program, calls=10)
    figure("200 tiny additions: called, replayed", f"{_us(plain)}, {_us(replayed)}")
    assert replayed < plain
    assert [check.outcome for check in clock.checks(program, arm="eager")] == [Outcome.PASS]


def _waits(noise) -> None:
    noise.add_(float(noise.sum()) * 0)


def _waits_for_the_device(_noise) -> None:
    torch.cuda.synchronize()  # which the debug mode for waiting does not see


def _does_nothing(_noise) -> None:
    pass


def _allocates_too_much(_noise) -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)


SPOILT, SOUND = "reported as spoilt", "sound"


def _after_a_failed_capture(trouble) -> str:
    """Return what became of this process; a test that fails raises."""
    torch.cuda.set_device(DEVICE)
    noise = torch.ones(1024, 1024, device=DEVICE)

    def work(_mark) -> None:
        if trouble is not _does_nothing:
            torch.nn.functional.dropout(noise, 0.1)
        trouble(noise)

    clock, program = make_clock(DEVICE, RunOptions(cuda_graph=True)), Steps(work)
    before = torch.cuda.current_stream()
    try:
        taken = clock.take(program, calls=3)
    except SpoiltByCapture:
        return SPOILT
    assert taken.wall_s > 0
    assert torch.cuda.current_stream() == before
    assert torch.cuda.get_sync_debug_mode() == 0
    (graphed, *_) = clock.checks(program, arm="eager")
    assert (graphed.name, graphed.outcome) == ("graphed", Outcome.UNKNOWN)
    torch.nn.functional.dropout(noise, 0.1)
    other = Steps(lambda _mark: torch.nn.functional.dropout(noise, 0.1))
    assert clock.take(other, calls=3).wall_s > 0
    assert clock.checks(other, arm="eager")[0].outcome is Outcome.PASS
    return SOUND


@pytest.mark.parametrize(
    ("trouble", "outcomes"),
    [(_waits, {SOUND}), (_waits_for_the_device, {SOUND, SPOILT}), (_does_nothing, {SOUND})],
)
def test_a_step_that_cannot_be_captured_is_called_plainly_or_its_process_is_reported(
    trouble, outcomes, figure
) -> None:
    """In another process: if the end of a capture fails, some versions of torch leave their allocator inside it."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as other:
        found = other.submit(_after_a_failed_capture, trouble).result(timeout=200)
    assert found in outcomes
    if len(outcomes) > 1:
        figure("a process in which the end of a capture failed", found)


def test_a_step_that_never_runs_says_so() -> None:
    torch.cuda.set_device(DEVICE)
    program = Steps(lambda _mark: _allocates_too_much(None))
    with pytest.raises(RuntimeError, match="out of memory"):
        make_clock(DEVICE, RunOptions(cuda_graph=True)).prepare(program)


def test_a_fence_costs_little(figure) -> None:
    torch.cuda.set_device(DEVICE)
    least_s = make_clock(DEVICE).least_sample_s()
    figure("least sample for a fence of a thousandth", f"{least_s * 1e3:.1f} ms")
    assert 0 < least_s < 0.2


def test_the_monitor_sees_this_gpu_and_finds_nothing_wrong_with_it(matrices) -> None:
    condition = probe_environment(DEVICE)["condition"]
    monitor = open_monitor("cuda", condition["gpu_uuid"])
    monitor.vacate()
    make_clock(DEVICE).take(Steps(products(matrices, 20)), calls=20)
    monitor.settle()
    before = monitor.read()
    make_clock(DEVICE).take(Steps(products(matrices, 20)), calls=20)
    after = monitor.read()
    assert not [
        note for note in monitor.notes if "cannot be used" in note or "knows no GPU" in note
    ]
    assert after.sm_mhz is None or 100 < after.sm_mhz < 5000
    assert after.temperature_c is None or 0 < after.temperature_c < 120
    assert after.pids == before.pids
    if not {reason.cause for reason in (*(before.reasons or ()), *(after.reasons or ()))} & {
        *HARMFUL
    }:
        assert monitor.taint(before, after) is None
    monitor.close()
