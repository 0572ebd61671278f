"""A memory snapshot is kept as JSON, as long as allowed, and becomes the file for torch's viewer by the documented line."""

import gzip
import json
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch.cuda import _memory_viz

from ci_bench.worker.profiling import snapshots
from ci_bench.worker.profiling.snapshots import MOST_FRAMES, MemoryHistory, packed

pytestmark = pytest.mark.engine

REPORTS = Path(__file__).resolve().parents[3] / "docs" / "reports.md"


def event(action, addr, size, name="model.py"):
    frames = [
        {"filename": name, "line": number, "name": "forward"} for number in range(MOST_FRAMES + 9)
    ]
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": addr,
        "frames": frames,
    }


def snapshot(events):
    segment = {
        "address": 1,
        "total_size": 4096,
        "allocated_size": 512,
        "segment_pool_id": (0, 0),
        "blocks": [{"size": 512}],
    }
    return {
        "segments": [segment],
        "device_traces": [[], events],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
    }


EVENTS = [
    event("alloc", 1, 512),
    event("alloc", 600, 1024),
    event("free_requested", 600, 1024),
    event("free_completed", 600, 1024),
]


@pytest.fixture
def calls(monkeypatch):
    """A stand-in for the history of a GPU's allocator."""
    made = []
    monkeypatch.setattr(
        torch.cuda.memory,
        "_record_memory_history",
        lambda enabled="all", **named: made.append((enabled, named)),
    )
    monkeypatch.setattr(
        torch.cuda.memory, "_snapshot", lambda device: made.append(device) or snapshot(EVENTS)
    )
    return made


def test_it_records_until_it_is_kept_and_once(calls, tmp_path) -> None:
    history = MemoryHistory("cuda:1")
    assert [(enabled, named["device"]) for enabled, named in calls] == [("all", "cuda:1")]
    history.keep(tmp_path / "memory.json.gz")
    assert calls[1] == "cuda:1"
    assert [one[0] for one in calls[2:]] == [None]
    history.keep(tmp_path / "again.json.gz")
    assert (history.note, [path.name for path in tmp_path.iterdir()]) == ("", ["memory.json.gz"])


def test_the_documented_line_makes_the_file_that_torchs_viewer_reads(calls, tmp_path) -> None:
    MemoryHistory("cuda:0").keep(tmp_path / "memory.json.gz")
    (program,) = re.findall(r'python -c "(import gzip[^"]+)"', REPORTS.read_text())
    subprocess.run(
        [sys.executable, "-S", "-c", program, "memory.json.gz", "memory.pickle"],
        cwd=tmp_path,
        check=True,
    )
    read = pickle.loads((tmp_path / "memory.pickle").read_bytes())  # noqa: S301 - written above
    shown = _memory_viz.trace(read)
    assert "Device 1" in shown
    assert "a = seg_0[0:512.0B]" in shown
    assert "del b # 1.0KiB" in shown
    assert read["device_traces"][1][0]["frames"][0] == {
        "filename": "model.py",
        "line": 0,
        "name": "forward",
    }
    assert len(read["device_traces"][1][0]["frames"]) == MOST_FRAMES


def test_a_long_one_keeps_its_last_events(monkeypatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_BYTES", 40_000)
    noise = random.Random(0)
    value = snapshot(
        [event("alloc", at, 1, f"{noise.getrandbits(400):x}.py") for at in range(1000)]
    )
    content = packed(value)
    kept = json.loads(gzip.decompress(content))["device_traces"][1]
    assert len(content) <= 40_000
    assert 100 <= len(kept) < 1000
    assert [one["addr"] for one in kept] == list(range(1000 - len(kept), 1000))
    monkeypatch.setattr(snapshots, "MOST_BYTES", 50)
    with pytest.raises(ValueError, match="bytes without any event"):
        packed(value)


def test_a_card_without_a_history_says_so_and_the_cpu_has_nothing_to_say(
    monkeypatch, tmp_path
) -> None:
    def refuse(*_, **__):
        raise RuntimeError("no allocator of this kind")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", refuse)
    history = MemoryHistory("cuda:0")
    history.keep(tmp_path / "memory.json.gz")
    assert history.note == "no memory snapshot: RuntimeError: no allocator of this kind"
    history = MemoryHistory("cpu")
    history.keep(tmp_path / "memory.json.gz")
    assert (history.note, list(tmp_path.iterdir())) == ("", [])


def test_a_file_that_cannot_be_written_is_a_note_and_recording_ends(calls, tmp_path) -> None:
    history = MemoryHistory("cuda:0")
    history.keep(tmp_path / "nowhere" / "memory.json.gz")
    assert history.note.startswith("no memory snapshot: FileNotFoundError")
    assert calls[-1][0] is None
