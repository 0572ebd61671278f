"""Ranks meet on devices of their own: no rank makes a context on another rank's GPU."""

import pytest

torch = pytest.importorskip("torch")

from ci_bench.processes.protocol import Task  # noqa: E402
from ci_bench.records.config import RunOptions  # noqa: E402
from ci_bench.suites.contract import Unsupported  # noqa: E402
from ci_bench.worker.ranked import join, own_device  # noqa: E402
from ci_bench.worker.ranks import Seat  # noqa: E402 - only with torch
from ci_bench.worker.worker import _select  # noqa: E402

pytestmark = pytest.mark.engine


def seat(folder, *, rank=1, count=2):
    return Seat(rank=rank, count=count, folder=folder, readers={}, writers={}, patience_s=30.0)


@pytest.mark.parametrize(
    ("wanted", "gpus", "device"),
    [("cuda", 2, "cuda:1"), ("auto", 2, "cuda:1"), ("auto", 0, "cpu"), ("cpu", 2, "cpu")],
)
def test_each_rank_has_a_device_of_its_own(tmp_path, monkeypatch, wanted, gpus, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert own_device(seat(tmp_path), wanted) == device


def test_fewer_gpus_than_ranks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(Unsupported, match="2 processes need as many GPUs, and torch sees 1 here"):
        own_device(seat(tmp_path), "cuda")


def test_a_rank_makes_no_other_gpu_current(tmp_path, monkeypatch):
    """A device that is current has a context: half a gigabyte on the first GPU for each rank."""
    current = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    task = Task(launch=0, device="cuda", options=RunOptions(), scratch=str(tmp_path))
    assert _select(task, seat(tmp_path)) == "cuda:1"
    assert current == [1]
    assert _select(task) == "cuda:0"


def test_nccl_learns_the_device_before_the_first_collective(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda *args, **named: told.append((*args, named["device_id"])),
    )
    join(seat(tmp_path), "cuda:1")
    join(seat(tmp_path), "cpu")
    assert told == [("nccl", torch.device("cuda:1")), ("gloo", None)]
