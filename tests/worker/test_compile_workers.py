"""Inductor's processes that compile are there before a first call is timed, and gone when samples are taken."""

import json
import os
import subprocess
import sys

import pytest

from ci_bench.worker import compile_workers

pytest.importorskip("torch")
pytestmark = pytest.mark.engine

SET_UP = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace

import torch.utils._triton
import torch._inductor.async_compile as pools
torch.utils._triton.has_triton_package = pools.has_triton_package = lambda: {triton}

from ci_bench.processes.protocol import Task
from ci_bench.worker import compile_workers, isolated, sampling
from ci_bench.worker.phases import Stopwatch
from ci_bench.records.config import RunOptions
from ci_bench.suites.contract import Compiler

def children():
    return len(Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split())

seen = []

class Program:
    items, parts, compiler = None, (), Compiler.{compiler}
    def step(self, mark):
        # what inductor's backend does with the first graph (torch/_dynamo/backends/inductor.py)
        if not seen and self.compiler is Compiler.DYNAMO:
            pools.maybe_warm_pool()
        ready = pools.AsyncCompile._ready_future
        seen.append([children(), ready is not None and ready.done()])
    def finish(self):
        return ()

context = SimpleNamespace(device="cpu", ranks=None, progress=lambda *_: None, scratch=Path("."))
workload = SimpleNamespace(open=lambda arm: Program())
"""
RUN = {
    "cold": """
isolated._settle(workload, "x", context, Stopwatch())
""",
    "resident": """
arms = sampling.ResidentArms(options=RunOptions(rotate=2, referee=False, sample_s=1e-4, blocks=1), context=context)
arms.open(workload, ("x",))
""",
}


def seen(run, *, triton=True, compiler="DYNAMO", **environ):
    code = SET_UP.format(triton=triton, compiler=compiler) + RUN[run] + "print(json.dumps(seen))\n"
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": "2"}
    environ = {
        name: value
        for name, value in {**os.environ, **threads, **environ}.items()
        if value is not None
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("run", "compiling"), [("cold", 2), ("resident", 2)])
def test_the_pool_is_ready_before_and_gone_in_samples(run, compiling):
    calls = seen(run)

    assert calls[:compiling] == [[1, True]] * compiling
    assert len(calls) > compiling
    assert {tuple(call) for call in calls[compiling:]} == {(0, False)}


@pytest.mark.parametrize("changed", [{"triton": False}, {"compiler": "NONE"}])
def test_no_pool_starts_where_none_would(changed):
    assert {tuple(call) for call in seen("cold", **changed)} == {(0, False)}


@pytest.mark.parametrize(
    ("asked", "most"), [(None, max(1, len(os.sched_getaffinity(0)) // 2)), ("7", 7)]
)
def test_each_side_has_its_share_of_the_cores(asked, most):
    from torch._inductor import config

    with config.patch(compile_threads=7):
        compile_workers.limit_workers({"TORCHINDUCTOR_COMPILE_THREADS": asked} if asked else {})
        assert config.compile_threads == most
