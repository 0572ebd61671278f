"""What a machine has to spare beside one side's work."""

import os
from pathlib import Path

import pytest

from ci_bench.host import headroom
from ci_bench.host.headroom import (
    Headroom,
    available_bytes,
    cores,
    cores_near,
    fastest_cores,
    has_cores_for_two,
    shares_of_cores,
)
from ci_bench.records.config import RunOptions

GIB = 1 << 30


def cgroup(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(headroom.os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.parametrize(
    ("quota", "found"),
    [
        ("max 100000", 2),
        ("100000 100000", 1),
        ("150000 100000", 1),
        ("800000 100000", 2),
        ("50000 100000", 1),
    ],
)
def test_cores_are_those_of_the_container(two_cores, tmp_path, quota, found) -> None:
    assert cores(cgroup(tmp_path, cpu_max=quota)) == found
    assert cores(tmp_path / "no container") == 2


@pytest.mark.parametrize(
    ("device", "threads", "room"),
    [
        ("cpu", 1, True),
        ("cpu", 2, False),
        ("cpu", None, False),
        ("cuda:0", None, True),
        ("cuda:0", 8, True),
    ],
)
def test_two_sides_need_their_threads_each_or_a_core_each_beside_a_gpu(
    two_cores, device, threads, room
) -> None:
    assert has_cores_for_two(RunOptions(threads=threads), device=device) is room


def test_one_core_is_for_one_side(monkeypatch) -> None:
    monkeypatch.setattr(headroom.os, "sched_getaffinity", lambda _: {3})
    assert not has_cores_for_two(RunOptions(threads=1), device="cpu")
    assert not has_cores_for_two(RunOptions(), device="cuda:0")


def test_memory_is_what_machine_and_container_both_still_give(tmp_path) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemTotal: 99 kB\nMemAvailable: {8 * GIB // 1024} kB\n")
    limited = cgroup(
        tmp_path,
        memory_max=str(4 * GIB),
        memory_current=str(3 * GIB),
        memory_stat=f"anon 1\ninactive_file {GIB}\n",
    )
    assert available_bytes(memory, limited) == 2 * GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(memory, limited) == 8 * GIB
    assert available_bytes(tmp_path / "nobody", tmp_path / "nobody") is None


@pytest.mark.parametrize(("left", "short"), [(9, False), (5, False), (4, True), (None, False)])
def test_memory_is_short_where_half_of_what_was_free_is_gone(monkeypatch, left, short) -> None:
    monkeypatch.setattr(headroom, "available_bytes", lambda: None if left is None else left * GIB)
    assert Headroom(free=10 * GIB).is_short() is short
    assert not Headroom(free=None).is_short()


@pytest.mark.parametrize(
    ("allowed", "quota", "shares"),
    [
        ({0, 1}, 2, ((0,), (1,))),
        ({3, 5, 7, 9, 11}, 5, ((3, 5), (7, 9))),
        (set(range(8)), 2, ((0,), (1,))),
        ({4}, 1, ()),
    ],
    ids=["two", "one is left over", "by the container's quota", "too few"],
)
def test_each_side_has_as_many_cores_for_itself(monkeypatch, allowed, quota, shares):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    monkeypatch.setattr(headroom, "cores", lambda: quota)
    assert shares_of_cores(2) == shares


def capacities(folder: Path, **of: str) -> Path:
    for core, text in of.items():
        (place := folder / "system/cpu" / core).mkdir(parents=True)
        (place / "cpu_capacity").write_text(text)
    return folder


class TestFastestCores:
    """Of four cores, which this process may all use but for the last test."""

    @pytest.fixture(autouse=True)
    def four(self, monkeypatch):
        monkeypatch.setattr(headroom.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})

    def test_are_those_of_the_largest_capacity(self, tmp_path) -> None:
        assert fastest_cores(
            capacities(tmp_path, cpu0="512\n", cpu1="1024\n", cpu2="512\n", cpu3="1024\n")
        ) == (1, 3)

    def test_are_all_where_all_are_alike(self, tmp_path) -> None:
        assert fastest_cores(
            capacities(tmp_path, **{f"cpu{core}": "1024" for core in range(4)})
        ) == (0, 1, 2, 3)

    @pytest.mark.parametrize(
        ("listed", "fast"),
        [
            ("0-1\n", (0, 1)),
            ("0,2-3", (0, 2, 3)),
            ("8-15", (0, 1, 2, 3)),
            ("", (0, 1, 2, 3)),
            ("x", (0, 1, 2, 3)),
        ],
    )
    def test_are_those_that_intel_lists_where_nobody_tells_capacities(
        self, tmp_path, listed, fast
    ) -> None:
        (tmp_path / "cpu_core").mkdir()
        (tmp_path / "cpu_core/cpus").write_text(listed)
        assert fastest_cores(tmp_path) == fast

    def test_are_all_where_nobody_tells(self, tmp_path) -> None:
        assert fastest_cores(tmp_path) == (0, 1, 2, 3)
        assert fastest_cores(capacities(tmp_path, cpu0="512", cpu1="1024")) == (0, 1, 2, 3), (
            "of two nobody knows"
        )

    def test_are_of_those_that_this_process_may_use(self, tmp_path, monkeypatch) -> None:
        folder = capacities(tmp_path, cpu0="512", cpu1="1024", cpu2="512", cpu3="1024")
        monkeypatch.setattr(headroom.os, "sched_getaffinity", lambda _: {0, 2, 3})
        assert fastest_cores(folder) == (3,)
        monkeypatch.setattr(headroom.os, "sched_getaffinity", lambda _: {0, 2})
        assert fastest_cores(folder) == (0, 2)


@pytest.mark.parametrize(
    ("near", "cores"),
    [
        (None, (0, 1, 2)),
        (frozenset({1, 2, 9}), (1, 2)),
        (frozenset({9}), (0, 1, 2)),
        (frozenset(), (0, 1, 2)),
    ],
)
def test_cores_near_the_gpu_are_preferred(monkeypatch, near, cores) -> None:
    monkeypatch.setattr(headroom, "fastest_cores", lambda: (0, 1, 2))
    assert cores_near(near) == cores
