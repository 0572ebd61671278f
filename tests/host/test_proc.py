"""The host's condition, read from files as kernels write them, and unknown where they don't."""

import os

import pytest

from ci_bench.host.monitor import Host

CPUINFO = """processor\t: {0}
model name\t: Some CPU
cpu MHz\t\t: 2000.000

processor\t: {1}
model name\t: Some CPU

processor\t: {2}
cpu MHz\t\t: 3000.000
flags\t\t: fpu

processor\t: 999999
cpu MHz\t\t: 100.000
"""


def host_with(tmp_path, **files: str) -> Host:
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Host(tmp_path)


def test_the_clock_is_the_mean_over_the_cpus_this_process_may_use(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert host_with(tmp_path, proc__cpuinfo=CPUINFO.format(0, 1, 2)).cpu_mhz() == 2500.0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2})
    assert host_with(tmp_path).cpu_mhz() == 3000.0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    assert host_with(tmp_path).cpu_mhz() is None


def test_stolen_time_is_the_eighth_number_and_guests_are_not_counted_twice(tmp_path) -> None:
    host = host_with(
        tmp_path,
        proc__stat="cpu  100 20 30 400 5 6 7 8 90 10\ncpu0 50 10 15 200 2 3 3 4 45 5\nintr 1\n",
    )
    assert host.ticks() == (576, 8)


def test_the_quota_of_the_own_group_is_read_or_of_the_root(tmp_path) -> None:
    stat = "usage_usec 10\nnr_periods 4\nnr_throttled 2\nthrottled_usec 2500000\n"
    host = host_with(
        tmp_path, proc__self__cgroup="0::/jobs/one\n", sys__fs__cgroup__jobs__one__x=""
    )
    assert host.throttled_s() is None
    host_with(tmp_path, **{"sys__fs__cgroup__cpu.stat": "throttled_usec 1000000\n"})
    assert host.throttled_s() == 1.0
    host_with(tmp_path, **{"sys__fs__cgroup__jobs__one__cpu.stat": stat})
    assert host.throttled_s() == 2.5


def test_involuntary_switches_are_those_of_all_threads_of_all_workers(tmp_path) -> None:
    files = {
        f"proc__{pid}__task__{thread}__status": f"Name:\tx\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t{count}\n"
        for pid, thread, count in ((7, 7, 1), (7, 8, 20), (9, 9, 300))
    }
    host = host_with(tmp_path, **files)
    assert host.involuntary_switches([7, 9]) == 321
    assert host.involuntary_switches([7, 555]) == 21
    assert host.involuntary_switches([555]) is None
    assert host.involuntary_switches([]) is None


@pytest.mark.parametrize("content", [None, "", "garbage\n\x00\xff", "cpu\n", "cpu 1 2 3\n"])
def test_what_cannot_be_read_is_unknown(tmp_path, content: str | None) -> None:
    names = (
        "proc__loadavg",
        "proc__cpuinfo",
        "proc__stat",
        "proc__self__cgroup",
        "sys__fs__cgroup__cpu.stat",
        "proc__7__task__7__status",
    )
    host = host_with(tmp_path, **({} if content is None else dict.fromkeys(names, content)))
    told = (
        host.load_1min(),
        host.cpu_mhz(),
        *host.ticks(),
        host.throttled_s(),
        host.involuntary_switches([7]),
    )
    assert told == (None,) * 6


def test_this_machine_tells_of_itself() -> None:
    host = Host()
    ticks, stolen = host.ticks()
    assert ticks > stolen >= 0
    assert host.load_1min() >= 0
    assert host.involuntary_switches([os.getpid()]) >= 0
