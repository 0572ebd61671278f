"""Runs the tests of a card tier by tier, in the Python and torch of this machine.

Installs nothing and needs no network.

``python tools/gpu_tests.py [--simulated] [TIER…] [-- ARGUMENTS…]``; `make gpu-tests` calls it. The
first tiers are commands of ci-bench that examine the card, the others are tests. Each tier is a
process of its own that is ended after ten minutes, or when it has taken 32 GiB of the host's
memory, and costs the others nothing. The arguments go to tests, and to commands that are named. The
exit code is 1 if a tier failed, 2 if a tier is unknown or a package is missing.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600.0
LAST_TEST_S = 60.0
"""Seconds before the limit in which no further test begins."""
MOST_BYTES = 32 << 30
LOOK_S = 1.0
NEEDED = {
    "hypothesis": "hypothesis",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "torch": "torch",
    "xdist": "pytest-xdist",
}
"""The packages that `tests/conftest.py` and `pyproject.toml` need, by module."""
GATES, TRANSFORMERS = "tests/gpu/test_gates_cuda.py", "tests/gpu/test_transformers_cuda.py"
FASTRNNS, TORCHBENCH = "tests/gpu/test_fastrnns_cuda.py", "tests/gpu/test_torchbench_cuda.py"
COMMANDS = {"doctor": ("doctor", "--quick"), "gpu-check": ("doctor", "--gpu", "--device", "cuda:0")}
"""Commands of ci-bench, by tier."""
TIERS = {
    "contract": ("tests/gpu/contract", ""),
    "clock": ("tests/gpu/test_clock_cuda.py", ""),
    "gates": (GATES, "not real and not fit_together"),
    "gates_without_room": (GATES, "fit_together"),
    "gates_training_loss": (GATES, "real and training_loss"),
    "gates_fastrnns": (GATES, "real and fastrnns"),
    "gates_torchbench": (GATES, "real and torchbench"),
    "gates_transformers": (GATES, "real and transformers"),
    "training_loss": ("tests/gpu/test_training_loss_cuda.py", ""),
    "fastrnns": (FASTRNNS, "not whole_of_the_originals"),
    "fastrnns_whole": (FASTRNNS, "whole_of_the_originals"),
    "torchbench": (TORCHBENCH, "not resnet and not decoder"),
    "torchbench_large": (TORCHBENCH, "resnet or decoder"),
    "transformers": (
        TRANSFORMERS,
        "not every_ and not generations and not tokens and not cuda_graphs",
    ),
    "transformers_formats": (TRANSFORMERS, "every_format"),
    "transformers_presets": (TRANSFORMERS, "every_preset"),
    "transformers_ways": (TRANSFORMERS, "every_way or (cuda_graphs and not decoded)"),
    "transformers_generation": (TRANSFORMERS, "generations or tokens or decoded"),
}
"""Files and an expression for `pytest -k`, by tier; each test is in one tier."""
EVERY = (*COMMANDS, *TIERS)
SIMULATED = ("doctor", "gpu-check", "contract", "gates", "gates_without_room")
"""The tiers that the simulated card can run. `clock` needs a real one: its bounds are those of
kernels that a GPU runs.
"""
CARD = {"least_kernel_s": 0.0002, "memory_bytes": 64 << 20}


def main(argv: Sequence[str]) -> int:
    """Run the tiers; return the exit code."""
    tier_arguments, further = _split(argv)
    parser = argparse.ArgumentParser(
        prog="gpu_tests.py", description="Run the tests of a card tier by tier."
    )
    parser.add_argument(
        "tiers", nargs="*", metavar="TIER", help=f"one of {', '.join(EVERY)}; without any, all"
    )
    parser.add_argument(
        "--simulated", action="store_true", help="run on the simulated card what it can run"
    )
    options = parser.parse_args(tier_arguments)
    if unknown := [tier for tier in options.tiers if tier not in EVERY]:
        sys.stderr.write(
            f"gpu-tests: there is no tier {unknown[0]}; there are {', '.join(EVERY)}\n"
        )
        return 2
    if missing := [package for module, package in NEEDED.items() if find_spec(module) is None]:
        names = ", ".join(missing)
        sys.stderr.write(
            f"gpu-tests: {sys.executable} lacks {names}; install them, or name another Python:"
            " PYTHON=…\n"
        )
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `run` ends its tier
    codes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        environ = _environ(Path(folder) if options.simulated else None)
        for tier in options.tiers or (SIMULATED if options.simulated else EVERY):
            _say(f"tier {tier}")
            codes[tier] = run(
                command(tier, further if tier in TIERS or options.tiers else ()), environ
            )
    for tier, code in codes.items():
        _say(f"tier {tier}: exit code {code}")
    return int(any(codes.values()))


def command(tier: str, further: Sequence[str] = ()) -> list[str]:
    """Return the tier's call: of ci-bench, or of pytest with the plugins that this Python has."""
    if tier in COMMANDS:
        return [sys.executable, "-m", "ci_bench.cli", *COMMANDS[tier], *further]
    place, expression = TIERS[tier]
    limit = ["--session-timeout", f"{LIMIT_S - LAST_TEST_S:.0f}"]
    chosen = ["-k", expression] if expression else []
    return [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        *limit,
        "-p",
        "no:cacheprovider",
        place,
        *chosen,
        *further,
    ]


def run(
    call: Sequence[str],
    environ: Mapping[str, str],
    *,
    limit_s: float = LIMIT_S,
    most_bytes: float = MOST_BYTES,
) -> int:
    """Run a call within its limits; return its exit code, 124 if it was ended."""
    begun, free = time.monotonic(), available_bytes()
    process = subprocess.Popen(call, cwd=ROOT, env=environ, start_new_session=True)
    try:
        while time.monotonic() < begun + limit_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_S)
            if (used_bytes := free - available_bytes()) > most_bytes:
                _say(
                    f"ended: it took {used_bytes / 2**30:.1f} GiB of memory"
                    f" ({most_bytes / 2**30:.1f} at most)"
                )
                return 124
        _say(f"ended after {limit_s:.0f} s")
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # gates end their own processes
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def available_bytes() -> int:
    """Return the host's memory that programs can have (proc_meminfo(5))."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def _environ(simulated: Path | None) -> dict[str, str]:
    """Return this environment, extended for the tiers.

    It has the checkout's source if the package is not installed, and a simulated card if
    `simulated` is a folder.
    """
    environ = dict(os.environ)
    folders = [] if find_spec("ci_bench") else [str(ROOT / "src")]
    if simulated is not None:
        card = simulated / "card.json"
        card.write_text(json.dumps(CARD))
        environ["SIMULATED_CARD"] = str(card)
        folders.append(str(ROOT / "tests" / "fixtures" / "simulated_device"))
    path = os.pathsep.join([*folders, *filter(None, [environ.get("PYTHONPATH")])])
    return {**environ, "PYTHONPATH": path} if path else environ


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what comes before ``--``, and what comes after it."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
