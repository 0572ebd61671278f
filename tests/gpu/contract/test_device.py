"""What the engine takes for granted of a CUDA device, tried on whichever is there: a card, or the simulated one.

The simulated card has to keep the same contract (`tests/runner/test_simulated_device.py` runs this
file on it), so that the first run on a real card tells where it was simulated wrongly. Times are
given to a fifth: this is no benchmark.
"""

import copy
import ctypes
import time

import pytest

torch = pytest.importorskip("torch")

from ci_bench.host.gpus import vendors  # noqa: E402 - likewise
from ci_bench.records.config import RunOptions  # noqa: E402 - likewise
from ci_bench.worker.cuda_clock import CudaClock, capture, make_flush  # noqa: E402 - needs torch
from ci_bench.worker.sampling import make_clock  # noqa: E402 - likewise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA GPU, or the simulated one"
    ),
]
DEVICE = "cuda:0"
CYCLES = 20_000_000


@pytest.fixture(autouse=True)
def _current():
    torch.cuda.set_device(0)
    torch.cuda.synchronize()


def events(count):
    made = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for event in made:
        event.record()
    torch.cuda.synchronize()
    return made


def span_ms(work):
    begin, end = events(2)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def test_queueing_returns_at_once_and_synchronizing_waits():
    torch.cuda._sleep(CYCLES)
    torch.cuda.synchronize()

    begun = time.perf_counter()
    torch.cuda._sleep(CYCLES)
    queued_s = time.perf_counter() - begun
    torch.cuda.synchronize()
    done_s = time.perf_counter() - begun

    assert queued_s < done_s / 2


def test_an_event_is_over_when_the_work_before_it_is():
    (event,) = events(1)
    torch.cuda._sleep(CYCLES)
    event.record()

    assert not event.query()
    torch.cuda.synchronize()
    assert event.query()


@pytest.mark.usefixtures("_warm")
def test_events_time_the_queue_and_not_the_host():
    once, twice = (
        span_ms(lambda: torch.cuda._sleep(CYCLES)),
        span_ms(lambda: [torch.cuda._sleep(CYCLES) for _ in range(2)]),
    )

    assert twice == pytest.approx(2 * once, rel=0.2)
    assert span_ms(lambda: torch.cuda._sleep(CYCLES)) == pytest.approx(once, rel=0.2)


def test_the_time_between_events_that_have_not_come_to_pass_is_refused():
    begin, end = events(2)
    torch.cuda._sleep(CYCLES)
    end.record()

    with pytest.raises(RuntimeError):
        begin.elapsed_time(end)
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0


def test_a_value_on_the_host_waits_for_the_queue():
    value = torch.ones(1, device=DEVICE)
    torch.cuda.synchronize()
    (event,) = events(1)
    torch.cuda._sleep(CYCLES)
    event.record()

    assert (value + 1).item() == 2
    assert event.query()


def test_memory_counts_from_a_tensors_beginning_to_its_end():
    before = torch.cuda.memory_allocated()
    one = torch.zeros(1 << 20, device=DEVICE)
    torch.cuda.reset_peak_memory_stats()
    two = one * 2
    both = torch.cuda.memory_allocated()
    del two

    assert both - before == 8 << 20
    assert torch.cuda.memory_allocated() - before == 4 << 20
    assert torch.cuda.max_memory_allocated() - before == 8 << 20
    assert torch.cuda.max_memory_reserved() >= torch.cuda.max_memory_allocated()


def test_what_the_host_keeps_takes_none_of_the_devices_memory():
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    host = torch.zeros(1 << 18)
    double = host * 2
    assert torch.cuda.memory_allocated() == before

    there = double.to(DEVICE)
    assert torch.cuda.memory_allocated() == before + (1 << 20)
    more = [there * 2, torch.zeros(1 << 18, device=there.device), copy.deepcopy(there)]
    assert torch.cuda.memory_allocated() == before + 4 * (1 << 20)
    del there, more
    assert host.sum() == 0


def test_a_generator_of_the_device_repeats_its_values():
    one, same, other = (
        torch.randn(1000, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed)).cpu()
        for seed in (1, 1, 2)
    )

    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_what_has_no_room_is_out_of_memory_and_leaves_the_device_usable():
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.empty(torch.cuda.mem_get_info()[1] + (1 << 30), dtype=torch.uint8, device=DEVICE)

    assert float(torch.ones(4, device=DEVICE).sum()) == 4
    assert torch.cuda.memory_stats(DEVICE)["num_alloc_retries"] >= 1


class Sleeping:
    """A program of one kernel, and what is done beside it."""

    items, parts, compiler = None, (), None

    def __init__(self, beside=lambda: None):
        self.beside = beside

    def step(self, _mark):
        torch.cuda._sleep(CYCLES)
        self.beside()

    def finish(self):
        return ()


@pytest.mark.usefixtures("_warm")
def test_the_clock_reads_the_same_on_the_host_and_on_the_device():
    clock, program = CudaClock(torch.cuda, DEVICE), Sleeping()
    clock.take(program, calls=2)

    taken = clock.take(program, calls=4)

    assert taken.device_s == pytest.approx(taken.wall_s, rel=0.2)
    assert taken.device_s == pytest.approx(
        span_ms(lambda: torch.cuda._sleep(CYCLES)) / 1e3, rel=0.2
    )


@pytest.mark.usefixtures("_warm")
def test_a_flush_is_outside_what_is_timed():
    flush = make_flush(
        torch.cuda,
        DEVICE,
        allocate=lambda size: torch.empty(size, dtype=torch.uint8, device=DEVICE),
    )
    hot, cold = CudaClock(torch.cuda, DEVICE), CudaClock(torch.cuda, DEVICE, flush=flush)
    program = Sleeping()
    for clock in (hot, cold):
        clock.take(program, calls=2)

    assert cold.take(program, calls=3).device_s == pytest.approx(
        hot.take(program, calls=3).device_s, rel=0.2
    )


class Window(ctypes.Structure):
    """`CUaccessPolicyWindow` of CUDA's driver."""

    _fields_ = (
        ("base_ptr", ctypes.c_void_p),
        ("num_bytes", ctypes.c_size_t),
        ("hitRatio", ctypes.c_float),
        ("hitProp", ctypes.c_int),
        ("missProp", ctypes.c_int),
        ("padding", ctypes.c_char * 32),
    )


def pins(address, size):
    """Let accesses to a stretch of memory persist in the L2 cache; false if the card refuses."""
    driver, stream = ctypes.CDLL("libcuda.so.1"), torch.cuda.current_stream().cuda_stream
    window = Window(address, size, 1.0, 2 if size else 0, 0)
    refused = driver.cuCtxSetLimit(6, ctypes.c_size_t(size))  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    return not (
        refused or driver.cuStreamSetAttribute(ctypes.c_void_p(stream), 1, ctypes.byref(window))
    )


@pytest.mark.usefixtures("_warm")
def test_a_flush_evicts_what_persists_in_the_cache():
    torch.cuda.synchronize()
    held = torch.ones(torch.cuda.get_device_properties(0).L2_cache_size // 8, device=DEVICE)
    program = Sleeping()
    program.step = lambda _mark: held.add_(1.0)
    clock = make_clock(DEVICE, RunOptions(flush_l2=True))
    clock.take(program, calls=1)
    clock.settle_flushes(2)

    plain_s = clock.take(program, calls=150).device_s
    if not pins(held.data_ptr(), held.numel() * held.element_size()):
        pytest.skip("this card pins nothing in its cache")
    pinned_s = clock.take(program, calls=150).device_s
    pins(0, 0)

    assert pinned_s == pytest.approx(plain_s, rel=0.2)
    assert [
        check.detail for check in clock.checks(program, arm="eager") if "persisting" in check.detail
    ] == []


def test_a_fence_costs_less_than_a_millisecond():
    assert 0 < CudaClock(torch.cuda, DEVICE).least_sample_s() / 1000 < 1e-3


def captured(step):
    return capture(step, torch.cuda, DEVICE, draw=lambda: torch.rand(1, device=DEVICE))


@pytest.mark.usefixtures("_warm")
def test_a_captured_step_is_replayed_in_the_time_of_its_kernels():
    held = torch.zeros(1024, device=DEVICE)

    def step():
        torch.cuda._sleep(CYCLES)
        held.add_(1)

    found = captured(step)

    assert found.replay is not None, found.reason
    assert span_ms(found.replay) == pytest.approx(span_ms(step), rel=0.2)


def test_a_step_that_waits_for_the_device_cannot_be_captured_and_runs_on():
    value = torch.ones(1, device=DEVICE)

    def step():
        return (value + 1).item()

    found = captured(step)

    assert found.replay is None
    assert found.reason
    assert (value + 1).item() == 2


def test_the_driver_knows_the_device_by_the_uuid_that_torch_gives():
    gpu = vendors.open_gpu(str(torch.cuda.get_device_properties(0).uuid))
    torch.cuda._sleep(CYCLES)
    torch.cuda.synchronize()
    try:
        assert gpu.driver()
        assert gpu.sm_mhz() > 0
        assert gpu.pids() is not None
        assert gpu.power_limit_w() > 0
        assert gpu.temperature_c() > 0
    finally:
        gpu.close()


def test_energy_goes_up_with_work_and_never_back():
    gpu = vendors.open_gpu(str(torch.cuda.get_device_properties(0).uuid))
    try:
        readings = [gpu.energy_j()]
        for _ in range(20):
            torch.cuda._sleep(CYCLES)
            torch.cuda.synchronize()
            readings.append(gpu.energy_j())
    finally:
        gpu.close()

    assert readings == sorted(readings)
    assert readings[-1] > readings[0]


def test_the_clock_counts_what_the_allocator_had_to_free_first():
    clock = CudaClock(torch.cuda, DEVICE)
    before = clock.retries()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(torch.cuda.mem_get_info()[1] + (1 << 30), dtype=torch.uint8, device=DEVICE)

    assert clock.retries() > before
