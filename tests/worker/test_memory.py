"""Memory of a process: what counts as its peak, what as growth, and what the page cache has no part in."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from ci_bench.worker import held, memory
from ci_bench.worker.memory import DeviceMemory, HostMemory, growth, watch

MIB = float(1024**2)
CHILD = """
import json, mmap, os, sys
import numpy as np
from ci_bench.worker.memory import memory_of, watch
kept, calls = [], []
def buffer(mib): return np.ones(int(mib * 2**17))
def map_file():
    with open(np._core._multiarray_umath.__file__, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    sum(kept[-1][::4096])
def huge():
    region = mmap.mmap(-1, 16 << 20)
    region.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, 16 << 20, 1 << 20): region[at] = 1
    kept.append(region)
def step():
    calls.append(1)
    if PREPARE: exec(PREPARE)
    buffer(4)
PREPARE = sys.argv[2]
before = buffer(30)
memory = memory_of("cpu")
exec(sys.argv[1])
step(); step()
print(json.dumps(watch(step, memory, steps=12, more=int(*sys.argv[3:4] or [0]), most_s=60)), flush=True)
"""


def watched(
    model: str = "kept.append(buffer(20))", step: str = "", more: int = 0
) -> dict[str, float]:
    """What is seen of a process that held 30 MiB before: a model of 20 MiB, steps that need 4 MiB more for a moment."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, model, step, str(more)],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return {name: value / MIB for name, value in json.loads(told).items()}


def test_the_peak_is_what_steps_need_above_what_was_there_before_the_model() -> None:
    found = watched()
    assert found["peak_anonymous"] == pytest.approx(24, abs=0.6)
    assert found["memory_growth"] == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(("model", "step"), [
    ("kept.append(buffer(22))", ""),
    ("kept.append(buffer(20))", "gone = buffer(2); again = buffer(4)"),
], ids=["kept", "for a moment"])  # fmt: skip
def test_two_mib_more_are_seen(model, step) -> None:
    more = watched(model, step)["peak_anonymous"] - watched()["peak_anonymous"]
    assert more == pytest.approx(6 if step else 2, abs=0.6)


def test_a_peak_of_one_step_alone_counts() -> None:
    assert watched(step="if len(calls) == 7: buffer(40)")["peak_anonymous"] == pytest.approx(
        60, abs=1
    )


@pytest.mark.parametrize(("more", "peak"), [(100, 24 + 60), (0, 24)])
def test_a_late_leak_is_in_the_peak(more, peak) -> None:
    found = watched(step="if 18 < len(calls) <= 78: kept.append(buffer(1))", more=more)
    assert found["peak_anonymous"] == pytest.approx(peak, abs=1)


@pytest.mark.parametrize(("most_s", "calls"), [(60.0, 112), (0.01, 12)])
def test_more_steps_come_if_they_are_quick(monkeypatch, most_s, calls) -> None:
    monkeypatch.setattr(memory, "make_repeatable", lambda: None)
    made: list[None] = []
    watch(
        lambda: time.sleep(0.001) or made.append(None),
        HostMemory(),
        steps=12,
        more=100,
        most_s=most_s,
    )
    assert len(made) == calls


def test_pages_of_files_are_counted_apart() -> None:
    plain, mapping = watched(), watched(step="if len(calls) == 5: map_file()")
    assert mapping["file_backed"] > plain["file_backed"] + 1
    assert mapping["peak_anonymous"] == pytest.approx(plain["peak_anonymous"], abs=0.6)


SHARED = {
    "memfd": "fd = os.memfd_create('x'); os.ftruncate(fd, SIZE); kept.append(page := mmap.mmap(fd, SIZE)); fill(page)",
    "memfd, closed": (
        "fd = os.memfd_create('x'); os.ftruncate(fd, SIZE); kept.append(page := mmap.mmap(fd, SIZE)); fill(page); os.close(fd)"
    ),
    "memfd, not mapped": "kept.append(fd := os.memfd_create('x')); os.write(fd, bytes(SIZE))",
    "anonymous": "kept.append(page := mmap.mmap(-1, SIZE)); fill(page)",
    "in /dev/shm": (
        "from multiprocessing.shared_memory import SharedMemory; kept.append(SharedMemory(create=True, size=SIZE));"
        " kept[-1].unlink(); fill(kept[-1].buf)"
    ),
    "file": (
        "file = tempfile.TemporaryFile(); file.truncate(SIZE); kept.append(page := mmap.mmap(file.fileno(), SIZE)); fill(page)"
    ),
    "child": (
        "ready, done = os.pipe()\n"
        "if os.fork() == 0:\n    more = bytearray(SIZE); fill(more); os.write(done, b'x'); signal.pause()\n"
        "os.read(ready, 1)"
    ),
    "grandchild": (
        "ready, done = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n        more = bytearray(SIZE); fill(more); os.write(done, b'x'); signal.pause()\n"
        "    signal.pause()\n"
        "os.read(ready, 1)"
    ),
}
READ_ONLY = {
    "weights": "file = weights(); kept.append(mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)); sum(kept[-1][::4096])",
    "weights, private": (
        "file = weights(); kept.append(mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_COPY)); sum(kept[-1][::4096])"
    ),
}
HELPERS = """
import signal, tempfile
SIZE = 16 << 20
def fill(page): page[::4096] = b"x" * (SIZE >> 12)
def weights():
    file = tempfile.TemporaryFile()
    file.write(bytes(SIZE)); file.flush()
    return file
"""


@pytest.mark.parametrize("code", [*SHARED.values()], ids=[*SHARED])
def test_memory_counts_wherever_it_lies(code) -> None:
    """16 MiB that the fifth step takes, and at most as much again for an interpreter that it takes to do so."""
    once = "if len(calls) == 5:\n" + "".join(f"    {line}\n" for line in code.splitlines())
    found = watched(HELPERS + "kept.append(buffer(20))", once)
    assert 39 < found["peak_anonymous"] < 54


@pytest.mark.parametrize("code", [*READ_ONLY.values()], ids=[*READ_ONLY])
def test_files_read_only_are_apart(code) -> None:
    once = f"if len(calls) == 5: {code}"
    found = watched(HELPERS + "kept.append(buffer(20))", once)
    assert found["peak_anonymous"] == pytest.approx(24, abs=2)


def test_what_a_child_shares_counts_once() -> None:
    """It has 200 MiB of its parent's, and copies of no more than an interpreter's pages."""
    found = watched(
        HELPERS + "kept.append(buffer(200))", "if len(calls) == 5: os.fork() or signal.pause()"
    )
    assert found["peak_anonymous"] < 204 + 30


@pytest.mark.parametrize("size", [8_000, 20_000, 60_000])
def test_where_blocks_that_are_gone_lay_between_others_does_not_count(size) -> None:
    blocks = f"kept.extend(bytearray({size}) for _ in range(40_000_000 // {size}))"
    at_the_end, in_between = (
        watched(f"{blocks}; del kept[{gone}]")["peak_anonymous"]
        for gone in ("len(kept) // 2:", "::2")
    )
    assert in_between == pytest.approx(at_the_end, abs=0.5)


def test_half_of_what_a_process_may_map_is_left_to_others() -> None:
    """Of 40,000 blocks every second one is gone: as many pieces as blocks with pages of their own are left."""
    model = """
kept.extend(bytearray(8_000) for _ in range(40_000)); del kept[::2]
with open("/proc/self/maps") as file: print(len(list(file)), file=sys.stderr)
"""
    told = subprocess.run(
        [sys.executable, "-c", CHILD, model, ""], capture_output=True, text=True, check=True
    )
    assert 15_000 < int(told.stderr) < 18_000


def test_no_page_is_a_huge_one() -> None:
    assert watched("huge()")["peak_anonymous"] == pytest.approx(4, abs=0.6)


@pytest.mark.parametrize(("step", "least", "most"), [
    ("kept.append(buffer(1))", 0.98, 1.05),
    ("kept.append(bytearray(2**10)) or kept.extend(bytes(1000) for _ in range(1000))", 0.9, 1.2),
    ("if len(calls) % 3 == 0: kept.append(buffer(3))", 0.7, 1.4),
    ("if len(calls) < 8: kept.append(buffer(1))", 0, 0.02),
    ("if len(calls) == 9: kept.append(buffer(8))", 0, 0.02),
    ("kept.append(buffer(1)); kept[:-3] = []", 0, 0.02),
    ("ring = [buffer(1)]; ring.append(ring)", 0, 0.02),
    ("rows = [bytes(3000) for _ in range(len(calls) * 100)]", 0, 0.05),
], ids=[
    "a tensor a step", "small objects", "now and then", "a cache that fills up", "one that grows once", "a window", "cycles",
    "more for a moment each step",
])  # fmt: skip
def test_growth_is_what_never_ends(step, least, most) -> None:
    assert least <= watched(step=step)["memory_growth"] <= most


@pytest.mark.parametrize(("readings", "slope"), [
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], 1),
    ([0, 1, 2, 3, 4, 4, 4, 4, 4], 0),
    ([0, 0, 0, 0, 0, 5, 5, 5, 5], 0),
    ([8, 7, 6, 5, 4, 3, 2, 1, 0], 0),
    ([0, 1, 2, 9, 4, 5, 1, 7, 8], 1),
])  # fmt: skip
def test_the_slope_is_that_of_the_flatter_half_and_robust(readings, slope) -> None:
    assert growth([float(reading) for reading in readings]) == pytest.approx(slope)


@pytest.mark.parametrize("count", [400, 401, 1000, 20_000])
@pytest.mark.parametrize("slope", [0, 100])
def test_the_slope_of_long_trainings_is_found_at_once(count, slope) -> None:
    readings = [float(slope * step + 1000 * (step % 7 == 0)) for step in range(count)]
    begun = time.monotonic()
    assert growth(readings) == pytest.approx(slope, abs=20)
    assert time.monotonic() - begun < 5


def test_without_a_rollup_nothing_is_told(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "make_repeatable", lambda: None)
    monkeypatch.setattr(held, "_PROC", tmp_path / "missing")
    assert watch(lambda: None, HostMemory(), steps=2) == {}


@pytest.mark.parametrize("status", [None, "VmRSS:\t1 kB\n"])
def test_without_a_high_water_mark_there_is_growth_and_no_peak(
    monkeypatch, tmp_path, status
) -> None:
    file = tmp_path / "status"
    if status is not None:
        file.write_text(status)
    monkeypatch.setattr(memory, "make_repeatable", lambda: None)
    monkeypatch.setattr(memory, "_STATUS", file)
    assert watch(lambda: None, HostMemory(), steps=4).keys() == {"memory_growth"}


def test_without_a_reset_of_the_mark_there_is_no_peak(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "make_repeatable", lambda: None)
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "missing" / "clear_refs")
    assert watch(lambda: None, HostMemory(), steps=4).keys() == {"memory_growth"}


class FakeAllocator:
    """As much of torch's allocator as peaks need: what is allocated, what compiling left cached, and a CUDA graph's pool."""

    def __init__(self, *, graph_pool=0, allocated_in_pool=0):
        self.allocated, self.cached, self.pool = 1000, 5000, (graph_pool, allocated_in_pool)
        self.peak = self.peak_reserved = 0

    def memory_allocated(self, _device):
        return self.allocated

    def empty_cache(self):
        self.cached = 0

    def reset_peak_memory_stats(self, _device):
        self.peak, self.peak_reserved = self.allocated, self.allocated + self.cached

    def step(self, need):
        self.cached = max(self.cached, need)
        self.peak, self.peak_reserved = (
            self.allocated + need,
            self.allocated + self.cached + self.pool[0],
        )

    def max_memory_allocated(self, _device):
        return self.peak

    def max_memory_reserved(self, _device):
        return self.peak_reserved

    def memory_snapshot(self):
        common = {"total_size": 9000, "allocated_size": 1000, "segment_pool_id": (0, 0)}
        total, allocated = self.pool
        return (
            [common, {"total_size": total, "allocated_size": allocated, "segment_pool_id": (0, 1)}]
            if total
            else [common]
        )


def peaks_on(allocator, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "cuda", allocator)
    return watch(lambda: allocator.step(200), DeviceMemory("cuda:0"), steps=3)


@pytest.mark.engine
def test_what_compiling_left_cached_is_not_in_a_peak(monkeypatch):
    found = peaks_on(FakeAllocator(), monkeypatch)
    assert (found["peak_allocated"], found["peak_reserved"], found["memory_growth"]) == (
        1200,
        1200,
        0,
    )


@pytest.mark.engine
def test_a_graphs_pool_is_in_the_peak_whatever_the_allocator_calls_free(monkeypatch):
    found = peaks_on(FakeAllocator(graph_pool=700, allocated_in_pool=100), monkeypatch)
    assert (found["peak_allocated"], found["peak_reserved"]) == (1200 + 600, 1200 + 700)


@pytest.mark.engine
def test_outputs_in_a_graphs_pool_count_once(monkeypatch):
    """During the step they are allocated, at its end they are free memory of the pool."""
    allocator = FakeAllocator(graph_pool=700, allocated_in_pool=0)
    monkeypatch.setattr(
        allocator, "step", lambda need: setattr(allocator, "peak", allocator.allocated + 600)
    )
    allocator.max_memory_reserved = lambda _device: allocator.allocated + 700
    assert peaks_on(allocator, monkeypatch)["peak_allocated"] == 1000 + 700


@pytest.mark.engine
def test_another_gpus_pool_does_not_count(monkeypatch):
    allocator = FakeAllocator(graph_pool=700)
    pools = allocator.memory_snapshot
    allocator.memory_snapshot = lambda: [{**pool, "device": 1} for pool in pools()]
    allocator.max_memory_reserved = lambda _device: 9999
    assert peaks_on(allocator, monkeypatch)["peak_allocated"] == 1200


FAULTS = """
import ctypes, resource, sys
from ci_bench.worker import held, memory
ctypes.CDLL(None).prctl(41, *map(ctypes.c_ulong, (1, 0, 0, 0)))  # no huge pages, of which there are few
_, keep, count, size = sys.argv
if keep:
    getattr(memory, keep)()
def call():
    list(map(bytearray, int(count) * [int(size)]))
call()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    call()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: str, count: int, size: int) -> int:
    """Of four calls that allocate so many blocks of so many bytes, behind a first one."""
    command = [sys.executable, "-c", FAULTS, keep, str(count), str(size)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_freed_memory_that_is_kept_costs_no_page_faults():
    assert faults("keep_freed_memory", 1, 64 << 20) < 1000 < faults("", 1, 64 << 20)


def test_a_heap_that_is_kept_costs_no_page_faults_and_large_blocks_come_and_go_as_before():
    assert faults("keep_heap", 100, 100_000) < 1000 < faults("", 100, 100_000)
    assert faults("keep_heap", 1, 20 << 20) < 1000
    assert faults("keep_heap", 1, 64 << 20) > 1000
