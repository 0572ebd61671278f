"""A limit to memory ends in a memory error; a process finds its share on a GPU; allocations are told by line."""

import gzip
import json
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fake_nvml import FakeNvml
from transformers_builders import tiny, workload

from ci_bench.suites.contract import Context
from ci_bench.suites.transformers import process_memory
from ci_bench.suites.transformers.process_memory import (
    Timeline,
    own_share,
    process_vram,
    sites_at_peak,
    told_sites,
)
from ci_bench.suites.transformers.verify import TransformersVerifier

pytestmark = pytest.mark.engine

LIMITED = """
import torch
from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory
from ci_bench.suites.transformers.process_memory import limit_memory
torch.set_num_threads(1)
limit_memory(100_000_000, "cpu")
held = torch.ones(10_000_000)
try:
    more = torch.ones(40_000_000)
except BaseException as error:
    print(type(error).__name__, is_out_of_memory(error))
"""


def test_a_limit_on_the_cpu_lets_a_little_through_and_ends_much_in_a_memory_error():
    told = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["RuntimeError", "True"]


def test_a_limit_on_a_gpu_is_a_share_of_its_memory(monkeypatch):
    set_to = []
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1000)
    )
    monkeypatch.setattr(
        torch.cuda,
        "set_per_process_memory_fraction",
        lambda share, device: set_to.append((share, device)),
    )
    for limit in (250, 4000, None):
        process_memory.limit_memory(limit, "cuda:1")
    assert set_to == [(0.25, "cuda:1"), (1.0, "cuda:1")]


@pytest.mark.parametrize(
    ("running", "found", "how"),
    [
        ([(7, 100), (9, 200)], 200, "by its pid"),
        ([(7, 100)], 100, "the only process on the GPU"),
        ([(7, 100), (8, 50)], None, "lists 2 processes, none with the pid"),
        ([], None, "lists 0 processes"),
        ([(9, None)], None, "does not tell"),
    ],
)
def test_the_share_of_a_process_on_its_gpu(running, found, how):
    used, told = own_share(dict(running), pid=9)
    assert used == found
    assert how in told


@pytest.fixture
def nvml(monkeypatch):
    """An NVML with one GPU of a known UUID, which is torch's second."""
    nvml = FakeNvml(uuid="GPU-uuid-of-cuda:1")
    nvml.pids, nvml.bytes_by_pid = [os.getpid()], {os.getpid(): 123}
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(uuid=f"uuid-of-{device}"),
    )
    return nvml


def test_a_gpu_is_found_by_its_uuid_and_not_by_its_index(nvml):
    assert process_vram("cuda:1") == (123, "by its pid")
    assert nvml.opened == 0
    assert process_vram("cuda:0") == (None, "NVML knows no GPU uuid-of-cuda:0")


def test_a_driver_that_does_not_tell_is_no_error(nvml):
    nvml.failing = {"nvmlDeviceGetComputeRunningProcesses"}
    assert process_vram("cuda:1") == (None, "the driver does not list the processes on this GPU")
    nvml.failing = {"nvmlInit"}
    assert process_vram("cuda:1") == (None, "NVML cannot be used (NVMLError: nvmlInit)")


def event(action, addr, size, *lines):
    frames = [
        {
            "filename": f"/site-packages/{line.partition(':')[0]}",
            "line": int(line.partition(":")[2]),
            "name": "f",
        }
        for line in lines
    ]
    return {"action": action, "addr": addr, "size": size, "frames": frames}


EVENTS = [
    event(
        "alloc", 1, 100, "torch/nn/functional.py:1", "transformers/models/bert/modeling_bert.py:10"
    ),
    event("alloc", 2, 50, "transformers/models/bert/modeling_bert.py:20"),
    event("free_requested", 1, 100),
    event("free_completed", 1, 100),
    event("alloc", 3, 200, "transformers/models/bert/modeling_bert.py:10"),
    event("alloc", 4, 25, "torch/optim/adamw.py:3"),
    event("free_completed", 99, 1000),
    event("free_completed", 3, 200),
    event("alloc", 5, 10, "transformers/models/bert/modeling_bert.py:30"),
]


def test_the_lines_that_hold_the_peak():
    peak, sites = sites_at_peak(EVENTS)
    assert peak == 275
    assert sites == [("modeling_bert.py:10", 200), ("modeling_bert.py:20", 50), ("elsewhere", 25)]
    assert sites_at_peak([]) == (0, [])


def test_the_largest_lines_are_told_and_the_rest_is_counted():
    sites = [(f"m.py:{line}", (10 - line) << 20) for line in range(8)]
    assert told_sites(sites).startswith("m.py:0 10.0 MiB, m.py:1 9.0 MiB, ")
    assert told_sites(sites).endswith("m.py:5 5.0 MiB and 2 more lines")


def test_a_timeline_is_kept_as_lines_of_json(tmp_path, monkeypatch):
    calls = []
    memory = torch.cuda.memory
    monkeypatch.setattr(
        memory, "_record_memory_history", lambda enabled="all", **named: calls.append(enabled)
    )
    monkeypatch.setattr(memory, "_snapshot", lambda device: {"device_traces": [[], EVENTS]})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("synchronize"))
    timeline = Timeline("cuda:1")
    with timeline.record():
        calls.append("step")
    assert calls == ["all", "step", "synchronize", None]
    timeline.write(tmp_path / "timeline.jsonl.gz")
    lines = [
        json.loads(line)
        for line in gzip.decompress((tmp_path / "timeline.jsonl.gz").read_bytes()).splitlines()
    ]
    assert len(lines) == len(EVENTS)
    assert lines[1] == {
        "action": "alloc",
        "addr": 2,
        "size": 50,
        "frames": ["/site-packages/transformers/models/bert/modeling_bert.py:20 f"],
    }


def test_a_long_timeline_is_kept_as_far_as_it_fits_and_says_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(process_memory, "MOST_BYTES", 20_000)
    timeline = Timeline("cuda:0")
    noise = random.Random(0)
    names = [f"{noise.getrandbits(400):x}.py:1" for _ in range(3000)]
    timeline._snapshot = {
        "device_traces": [[event("alloc", at, 1, name) for at, name in enumerate(names)]]
    }
    timeline.write(tmp_path / "timeline.jsonl.gz")
    assert 20_000 < (tmp_path / "timeline.jsonl.gz").stat().st_size < 100_000
    lines = [
        json.loads(line)
        for line in gzip.decompress((tmp_path / "timeline.jsonl.gz").read_bytes()).splitlines()
    ]
    assert lines[-1] == {"left_out": 3000 - (len(lines) - 1)}


def test_a_timeline_is_left_where_it_is_kept_with_the_run(tmp_path, monkeypatch):
    """As on a GPU, whose allocator the CPU lacks."""
    verifier = _verifier(tmp_path, monkeypatch)
    facts = verifier._timeline("torch.compile", SimpleNamespace(step=lambda mark: None))
    assert facts["step_peak_bytes_torch_compile"] == 275
    (path,) = Context(device="cuda:0", scratch=tmp_path, progress=print).attachments.iterdir()
    assert path.name == "memory-timeline-torch_compile.jsonl.gz"


def _verifier(tmp_path, monkeypatch):
    monkeypatch.setattr(
        torch.cuda.memory, "_record_memory_history", lambda enabled="all", **named: None
    )
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda device: {"device_traces": [EVENTS]})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    context = Context(device="cuda:0", scratch=tmp_path, progress=lambda arm, done, total: None)
    return TransformersVerifier(recipe=None, context=context, open_program=None)


def test_a_look_at_one_arm_says_nothing_on_the_cpu_but_that_a_timeline_needs_a_gpu():
    assert workload(**tiny("bert")).verify(("eager",)).metrics == ()
    evidence = workload(**tiny("bert"), memory_timeline=True).verify(("eager",))
    assert evidence.facts == {"memory_timeline": "not recorded: it needs a GPU"}
