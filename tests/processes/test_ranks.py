"""Which rank is named when several end ill, and how messages between ranks travel.

No torch here.
"""

import os
import signal
from pathlib import Path

import pytest

from ci_bench.processes.protocol import WorkerFault
from ci_bench.records.results import Status
from ci_bench.worker.ranks import DONE, PeerLost, RankEnd, Seat, blame, is_of_a_peer, supervise


def well(rank: int) -> RankEnd:
    return RankEnd(rank=rank, code=0, word=DONE, order=9)


def waiting(rank: int, order: int = 5) -> RankEnd:
    return RankEnd(
        rank=rank,
        code=1,
        word="failed",
        message="Connection closed by peer",
        waited=True,
        order=order,
    )


def raised(rank: int, message: str, order: int = 5, word: str = "failed") -> RankEnd:
    return RankEnd(rank=rank, code=1, word=word, message=message, order=order)


@pytest.mark.parametrize(
    ("ends", "kind", "said"),
    [
        (
            [waiting(0), RankEnd(rank=1, code=-9, order=0)],
            "crashed",
            "rank 1 of 2 was ended by SIGKILL",
        ),
        (
            [waiting(0, order=0), RankEnd(rank=1, code=-11, order=1)],
            "crashed",
            "rank 1 of 2 was ended by SIGSEGV",
        ),
        (
            [waiting(0), RankEnd(rank=1)],
            "timeout",
            "rank 1 of 2 hangs: the others gave up waiting (Connection closed by peer)",
        ),
        ([waiting(0), RankEnd(rank=1), RankEnd(rank=2)], "timeout", "ranks 1 and 2 of 3 hang"),
        (
            [waiting(0), RankEnd(rank=1, code=0, order=0)],
            "failed",
            "rank 1 of 2 left early, with exit code 0 and without a word",
        ),
        (
            [raised(0, "out", word="out_of_memory"), waiting(1)],
            "out_of_memory",
            "rank 0 of 2 failed: out",
        ),
        (
            [waiting(0, order=0), raised(1, "bad rows", order=1)],
            "failed",
            "rank 1 of 2 failed: bad rows",
        ),
        ([raised(0, "no plan"), raised(1, "no plan")], "failed", "all ranks failed: no plan"),
        ([raised(0, "no GPUs", word="skipped"), waiting(1)], "skipped", "no GPUs"),
        (
            [waiting(0), waiting(1)],
            "timeout",
            "all 2 ranks gave up waiting for each other (Connection closed by peer)",
        ),
        ([raised(0, "bad"), well(1)], "failed", "rank 0 of 2 failed: bad"),
        (
            [RankEnd(rank=0), raised(1, "second", order=1), raised(2, "first", order=0)],
            "failed",
            "rank 2 of 3 failed: first",
        ),
    ],
)
def test_the_rank_that_went_wrong_by_itself_is_named(
    ends: list[RankEnd], kind: str, said: str
) -> None:
    fault = blame(ends)
    assert (str(fault.kind), said in fault.message) == (kind, True), fault


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            RuntimeError(
                "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"
            ),
            True,
        ),
        (RuntimeError("NCCL watchdog timeout"), True),
        (PeerLost("rank 1 is gone"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("gloo is a word"), False),
        (RuntimeError("out of memory"), False),
    ],
)
def test_what_comes_of_a_peer_is_known_by_its_words(error: Exception, expected: bool) -> None:
    assert is_of_a_peer(error) is expected


def perform(seat: Seat) -> WorkerFault | None:
    """Rank 0 orders numbers, the others return them doubled."""
    if seat.rank:
        for order in seat.orders():
            seat.send({"twice": 2 * order["number"], "rank": seat.rank})
        return None
    for number in (3, 4):
        seat.send({"number": number})
        assert seat.answers() == [
            {"twice": 2 * number, "rank": rank} for rank in range(1, seat.count)
        ]
    return None


def supervised(tmp_path: Path, work, count: int = 3, patience_s: float = 5.0) -> WorkerFault | None:
    return supervise(count, scratch=tmp_path, patience_s=patience_s, perform=work, keep=())


@pytest.mark.usefixtures("way")
def test_orders_and_answers_travel_between_ranks_and_nothing_is_left(tmp_path: Path) -> None:
    assert supervised(tmp_path, perform) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("way")
def test_a_rank_that_dies_before_it_answers_is_named_and_the_others_are_gone(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def dies(seat: Seat) -> WorkerFault | None:
        (pids / str(os.getpid())).touch()
        if seat.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return perform(seat)
        except PeerLost as error:
            return WorkerFault(kind=Status.FAILED, message=str(error), waited=True)

    fault = supervised(tmp_path, dies)
    assert fault is not None
    assert (fault.kind, fault.message) == (Status.CRASHED, "rank 1 of 3 was ended by SIGKILL")
    assert not any(Path("/proc", path.name).exists() for path in pids.iterdir())


@pytest.mark.usefixtures("way")
def test_a_rank_that_is_silent_is_the_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci_bench.worker.ranks.GRACE_S", 0.2)

    def hangs(seat: Seat) -> WorkerFault | None:
        if seat.rank == 2:
            signal.pause()
        try:
            return perform(seat)
        except PeerLost as error:
            return WorkerFault(kind=Status.FAILED, message=str(error), waited=True)

    fault = supervised(tmp_path, hangs, patience_s=0.3)
    assert fault is not None
    assert fault.kind == Status.TIMEOUT
    assert (
        fault.message
        == "rank 2 of 3 hangs: the others gave up waiting (timed out waiting for rank 2: no answer within 0.3 s)"
    )
