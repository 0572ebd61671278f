"""The search for the largest batch: what it finds, by models whose memory is known, and what it says where it finds none."""

import json
import subprocess
import sys

import pytest

from ci_bench.suites.contract import SizeLimits, Unsupported
from ci_bench.suites.shared.worker.memory_errors import OutOfMemoryError
from ci_bench.worker.sizing import PARTS, SMALLEST_TRIED, Attempt, _limit, search


class Model:
    """Fits up to `room` rows, raises below `least`, and above `breaks`."""

    def __init__(self, *, room, least=1, breaks=10**9):
        self.room, self.least, self.breaks = room, least, breaks
        self.tried = []

    def attempt(self, rows):
        self.tried.append(rows)
        if not self.least <= rows <= self.breaks:
            return Attempt(rows=rows, reason="ValueError: no", error=ValueError("no"))
        return Attempt(
            rows=rows, peak_bytes=float(rows), reason="" if rows <= self.room else "memory ran out"
        )


def by_hand(room, most):
    """The largest size that is ever tried: `most`, or a sixteenth of the power of two below."""
    if room >= most:
        return most
    low = 2 ** (room.bit_length() - 1)
    part = max(1, low // PARTS)
    return low + (room - low) // part * part


@pytest.mark.parametrize("most", [1, 7, 64, 1000, 1024])
def test_it_finds_what_trying_every_size_finds(most):
    for room in range(1, 1100, 3):
        model = Model(room=room)
        found = search(model.attempt, most)
        rows = found.largest.rows
        assert rows == by_hand(room, most), room
        assert room >= rows > room / (1 + 1 / PARTS) - 1 or rows == most
        assert found.tries == len(model.tried) <= 16
        assert len(set(model.tried)) == len(model.tried)
        assert (found.beyond is None) == (rows == most)


def test_a_model_that_wants_more_rows_than_one_is_searched_all_the_same():
    found = search(Model(room=100, least=2).attempt, 1024)
    assert found.largest.rows == 100
    assert search(Model(room=8, least=SMALLEST_TRIED).attempt, 1024).largest.rows == 8


def test_what_a_model_says_of_too_many_rows_ends_the_search_like_memory():
    found = search(Model(room=900, breaks=40).attempt, 1024)
    assert (found.largest.rows, found.beyond.reason) == (40, "ValueError: no")


def test_a_fault_that_no_small_size_is_without_is_the_models_own():
    model = Model(room=900, least=SMALLEST_TRIED + 1)
    with pytest.raises(ValueError, match="no"):
        search(model.attempt, 1024)
    assert model.tried == [1, 2, 4, 8]


def test_where_not_one_row_fits_that_is_out_of_memory():
    model = Model(room=0)
    with pytest.raises(OutOfMemoryError, match="not even 1 row fits: memory ran out"):
        search(model.attempt, 1024)
    assert model.tried == [1]


def test_the_limit_is_what_was_asked_for_or_a_share_but_never_what_others_have(monkeypatch):
    limits = SizeLimits(share=0.5)
    monkeypatch.setattr("ci_bench.worker.sizing._memory", lambda _: (1000.0, 900.0))
    assert _limit(limits, "cpu") == 500
    assert _limit(SizeLimits(memory_bytes=300), "cpu") == 300
    monkeypatch.setattr("ci_bench.worker.sizing._memory", lambda _: (1000.0, 200.0))
    assert _limit(limits, "cpu") == 180
    assert _limit(SizeLimits(memory_bytes=300), "cpu") == 180
    monkeypatch.setattr("ci_bench.worker.sizing._memory", lambda _: (None, None))
    assert _limit(SizeLimits(memory_bytes=300), "cpu") == 300
    with pytest.raises(Unsupported, match="the memory size of this machine is unknown"):
        _limit(limits, "cpu")


PLANTED = """
import json, sys
from pathlib import Path
import numpy as np
from ci_bench.suites.shared.worker.memory_errors import OutOfMemoryError
from ci_bench.worker.sizing import find_largest_batch
from ci_bench.suites.contract import Context, SizeLimits, Stage, StageKind

MIB = 2**20

class Program:
    items, parts, compiler = None, (), "none"
    def __init__(self, mib): self.mib = mib
    def step(self, mark): self.last = np.ones(int(self.mib * MIB // 8))
    def finish(self): return ()

class Planted:
    def open_sized(self, arm, rows):
        return Program(float(sys.argv[1]) * rows)

context = Context(device="cpu", scratch=Path("."), progress=lambda *_: None)
limits = SizeLimits(most=int(sys.argv[3]), memory_bytes=int(sys.argv[2]))
stage = Stage(kind=StageKind.SIZE, arms=("eager",), limits=limits)
print(json.dumps(dict(find_largest_batch(Planted(), stage, context=context).facts)))
"""


def found(mib_of_a_row, limit_mib, most=1024):
    told = subprocess.run(
        [sys.executable, "-c", PLANTED, str(mib_of_a_row), str(limit_mib * 2**20), str(most)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


@pytest.mark.slow
def test_the_memory_of_a_planted_model_is_weighed():
    facts = found(
        2, 41
    )  # steps hold the array of the step before, and make the next: two of 2 MiB a row
    assert facts["largest_batch"] == 10
    assert facts["largest_batch_bytes"] == pytest.approx(40 * 2**20, abs=2**20)
    assert facts["largest_batch_limit_bytes"] == 41 * 2**20
    assert facts["largest_batch_search"].startswith("10 rows fit, and 11 rows do not: they take 4")


@pytest.mark.slow
def test_an_allocation_far_beyond_the_limit_fails_and_ends_no_process():
    facts = found(400, 900)
    assert facts["largest_batch"] == 1
    assert facts["largest_batch_search"].startswith(
        "1 row fits, and 2 rows do not: memory ran out ("
    )


@pytest.mark.slow
def test_the_most_that_was_asked_for_ends_the_search():
    facts = found(0.01, 100, most=24)
    assert facts["largest_batch"] == 24
    assert (
        facts["largest_batch_search"]
        == "24 rows fit, which is the most that was asked for (6 sizes tried)"
    )
