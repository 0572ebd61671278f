"""Peaks of a process, as the kernel tells them."""

import subprocess
import sys

import pytest

from ci_bench.engine.timing import isolated

CHILD = """
import numpy as np
from ci_bench.engine.timing.isolated import read_peaks, reset_peaks
def peak(): return read_peaks("cpu").by_metric["peak_rss"]
reset_peaks("cpu")
idle = peak()
large = np.ones(25_000_000)
held = peak()
del large
kept = peak()
reset_peaks("cpu")
after = peak()
print(idle, held, kept, after)
"""
SIZE = 200_000_000


def test_a_peak_is_remembered_after_it_is_gone_and_forgotten_by_a_reset() -> None:
    told = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    idle, held, kept, after = map(float, told.stdout.split())
    assert held - idle == pytest.approx(SIZE, rel=0.05)
    assert kept == pytest.approx(held, rel=0.01)  # the kernel counts pages per core and adds up now and then
    assert abs(after - idle) < 0.05 * SIZE


@pytest.mark.parametrize("status", [None, "VmRSS:\t1 kB\n"])
def test_a_machine_that_does_not_tell_gives_no_peak(monkeypatch, tmp_path, status) -> None:
    file = tmp_path / "status"
    if status is not None:
        file.write_text(status)
    monkeypatch.setattr(isolated, "_STATUS", file)
    monkeypatch.setattr(isolated, "_CLEAR_REFS", tmp_path / "missing" / "clear_refs")
    isolated.reset_peaks("cpu")
    assert isolated.read_peaks("cpu").by_metric == {}
