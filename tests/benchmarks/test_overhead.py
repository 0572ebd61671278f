"""The overhead benchmark measures what it says, and notices a fence that costs something."""

import time

import pytest

torch = pytest.importorskip("torch")

from benchmarks import overhead  # noqa: E402 - after torch was found

pytestmark = [pytest.mark.alone, pytest.mark.engine]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(overhead, "SIZE", 200)
    monkeypatch.setattr(overhead, "ROUNDS", 6)
    monkeypatch.setattr(overhead, "EMPTY_CALLS", 50)


def test_every_figure_is_there():
    figures = overhead.fence()

    assert figures["sample, fenced, median (ms)"] > 0
    assert 0 < figures["empty fence, median (us)"] < 1000


def test_a_costly_fence_shows(monkeypatch):
    real = overhead.time_calls

    def costly(step, *, calls, synchronize):
        start = time.perf_counter()
        real(step, calls=calls, synchronize=synchronize)
        time.sleep(0.005)
        return time.perf_counter() - start

    monkeypatch.setattr(overhead, "time_calls", costly)
    figures = overhead.fence()

    assert figures["bias against a bare loop (%)"] > 50
    assert figures["empty fence, share of a 20 ms sample (%)"] > 20
