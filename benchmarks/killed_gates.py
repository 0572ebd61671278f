"""Kills gates of several processes at random moments, and looks for their leftovers.

A leftover process may also hold a port.

``python -m benchmarks.killed_gates --gates 100``. Each gate runs a command whose two ranks are
sessions of their own, listen on the loopback and write losses. Its first process alone is killed
(SIGKILL), 0.2 to 6 s after its start, so that nothing of it can clean up. What carries the gate's
mark in its environment ten seconds later was left over.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

MARK = "CI_BENCH_KILLED_GATE"
GRACE_S = 10.0
PROGRAM = """
import os, socket, sys, time
import ci_bench

def rank(number):
    os.setsid()
    listening = socket.create_server(("127.0.0.1", 0))
    for step in range(400):
        ci_bench.step(loss=1.0 + number, rank=number)
        time.sleep(0.005)
    os._exit(0)

children = []
for number in range(2):
    child = os.fork()
    children += [child] if child else rank(number)
for child in children:
    os.waitpid(child, 0)
"""
CONFIG = """
schema_version: 1
run: {launches: 3, device: cpu}
suites:
  command:
    - {name: ranks, command: [python, ranks.py], losses: {}}
"""


def marked(mark: str) -> list[int]:
    """Return the living processes that carry the mark.

    Those that have ended and wait to be reaped are left out.
    """
    entry, pids = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    return pids


def kill_one(folder: Path, draws: random.Random) -> tuple[int, int]:
    """Start a gate and kill it; return its number of processes then, and of those left over."""
    mark = uuid.uuid4().hex
    environ = {
        **os.environ,
        MARK: mark,
        "CI_BENCH_LOCKS": str(folder / "locks"),
        "CI_BENCH_NOISE": str(folder / "noise"),
    }
    command = [sys.executable, "-m", "ci_bench.cli", "run", "--output", str(folder / mark)]
    gate = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(draws.uniform(0.2, 6.0))
    running = len(marked(mark))
    gate.kill()
    gate.wait()
    deadline = time.monotonic() + GRACE_S
    while (leftover := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in leftover:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return running, len(leftover)


def main() -> None:
    """Kill, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draws = random.Random(options.seed)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "ranks.py").write_text(PROGRAM)
        (folder / "ci-bench.yml").write_text(CONFIG)
        outcomes = [kill_one(folder, draws) for _ in range(options.gates)]
    busy = sum(running >= 4 for running, _ in outcomes)  # noqa: PLR2004 - the gate, its server, its worker, the command
    sys.stdout.write(
        f"{len(outcomes)} gates killed, {busy} of them with at least four processes (most:"
        f" {max(running for running, _ in outcomes)});"
        f" {sum(leftover for _, leftover in outcomes)} processes left over\n"
    )


if __name__ == "__main__":
    main()
