"""Fuzzes every reader and renderer of ci-bench: input must be read or refused, no more.

``python -m benchmarks.fuzz --inputs 1000000 --resume fuzz.json``

Each target (`fuzz_targets`) is fed in a process of its own, with at most 1 GiB of memory beyond its
start and ten seconds of the processor for one input. Inputs come from `fuzz_mutator`, changing
valid documents. With ``--engine atheris`` coverage guides them (libFuzzer, if the package atheris
is installed; the same mutator is one of its own); without, they are drawn again from the seeds each
time. An input that makes a target raise anything but its one refusal, hang or grow is a finding: it
is written down, and the exit code is 1.

With ``--resume`` the file keeps every stretch of inputs that a target got, with the seed of its
dice; a later call continues there, with dice of its own, and the total is the sum of the stretches.
A stretch that ended in a finding counts with the inputs before it; its finding stays in the file,
and the next stretch shows whether it has been fixed.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.fuzz_child import Figures, limit_memory, run_child
from benchmarks.fuzz_targets import TARGETS
from benchmarks.tables import publish, render

ENGINES = ("own", "atheris")
GUIDED = """
import sys
import atheris
with atheris.instrument_imports(include=["ci_bench"]):
    from benchmarks import fuzz
sys.exit(fuzz.main(sys.argv[1:]))
"""
"""A child whose engine has to see our code being loaded."""


def fuzz(
    name: str, *, engine: str, inputs: int, seed: int, limit_s: float | None = None
) -> Figures:
    """Feed one target in a process of its own, for `limit_s` seconds at most."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        start = _start_guided if engine == "atheris" else _start
        code = start(name, inputs, seed, Path(folder), limit_s)
        path = Path(folder) / "figures.json"
        figures = (
            Figures(**json.loads(path.read_text()))
            if path.exists()
            else Figures(target=name, engine=engine, seed=seed)
        )
        if code and not figures.finding:
            figures.finding = f"the process ended with {code}"
        return figures


def _start(name: str, inputs: int, seed: int, folder: Path, limit_s: float | None) -> int:
    """Feed a target in a child; return its exit code, 0 if it was ended at its limit.

    All children come from a server that has loaded everything.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.fuzz_child"])
    child = context.Process(target=_child, args=(name, inputs, seed, folder), daemon=True)
    child.start()
    child.join(limit_s)
    if child.exitcode is None:
        child.terminate()
        child.join()
        return 0
    return child.exitcode


def _child(name: str, inputs: int, seed: int, folder: Path) -> None:
    limit_memory()
    sys.exit(run_child(name, "own", inputs, seed, folder))


def _start_guided(name: str, inputs: int, seed: int, folder: Path, limit_s: float | None) -> int:
    """Start a process for libFuzzer to take over; return its exit code.

    It maps terabytes that it never touches, so that memory has no limit.
    """
    command = [
        sys.executable,
        "-c",
        GUIDED,
        "--child",
        name,
        "--inputs",
        str(inputs),
        "--seed",
        str(seed),
        "--folder",
        str(folder),
    ]
    try:
        return subprocess.run(
            command, stdout=subprocess.DEVNULL, check=False, timeout=limit_s
        ).returncode
    except subprocess.TimeoutExpired:
        return 0


def earlier(path: Path | None) -> list[Figures]:
    """Return the stretches that a file keeps; none if there is no file yet."""
    if path is None or not path.exists():
        return []
    return [Figures(**stretch) for stretch in json.loads(path.read_text())["stretches"]]


def totals(stretches: Sequence[Figures]) -> list[Figures]:
    """Return one row for each target and engine, summed over its stretches.

    It has the slowest and the most grown of them, and the finding of the last one.
    """
    sums: dict[tuple[str, str], Figures] = {}
    for stretch in stretches:
        previous = sums.get((stretch.target, stretch.engine))
        sums[stretch.target, stretch.engine] = (
            stretch if previous is None else _sum(previous, stretch)
        )
    return list(sums.values())


def _sum(before: Figures, after: Figures) -> Figures:
    return replace(
        after,
        inputs=before.inputs + after.inputs,
        accepted=before.accepted + after.accepted,
        seconds=round(before.seconds + after.seconds, 1),
        slowest_s=max(before.slowest_s, after.slowest_s),
        grown_bytes=max(before.grown_bytes, after.grown_bytes),
    )


def table(every: Sequence[Figures]) -> str:
    """Render the figures, one target a row; seconds are those of the processor."""
    rows: list[Mapping[str, str]] = [
        {
            "target": figures.target,
            "engine": figures.engine,
            "inputs": f"{figures.inputs:,}",
            "accepted": f"{figures.accepted:,}",
            "seconds": f"{figures.seconds:,.0f}",
            "slowest (s)": f"{figures.slowest_s:.2f}",
            "grown (MiB)": f"{figures.grown_bytes / 2**20:.0f}",
            "findings": "1" if figures.finding else "0",
        }
        for figures in every
    ]
    return render("Fuzzed", rows)


def fuzz_all(arguments: argparse.Namespace) -> list[Figures]:
    """Fuzz every requested target, up to so many inputs in all; write the figures after each."""
    stretches = earlier(arguments.resume)
    for name in arguments.target or TARGETS:
        done = [
            stretch
            for stretch in stretches
            if (stretch.target, stretch.engine) == (name, arguments.engine)
        ]
        missing = arguments.inputs - sum(stretch.inputs for stretch in done)
        if missing <= 0:
            continue
        seed = arguments.seed + len(done)
        stretches.append(
            fuzz(name, engine=arguments.engine, inputs=missing, seed=seed, limit_s=arguments.limit)
        )
        publish(
            table(totals(stretches)),
            {"stretches": [asdict(stretch) for stretch in stretches]},
            arguments.resume,
        )
    return totals(stretches)


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the targets, print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--target", action="append", choices=sorted(TARGETS), help="only this one; repeatable"
    )
    parser.add_argument("--engine", choices=ENGINES, default="own")
    parser.add_argument(
        "--inputs",
        type=int,
        default=1_000_000,
        help="inputs for each target, those of earlier calls included",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the dice; each later stretch has the next one"
    )
    parser.add_argument(
        "--limit", type=float, metavar="S", help="seconds for each target in this call, at most"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep the figures here, and go on from what is there",
    )
    parser.add_argument("--child", choices=sorted(TARGETS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        return run_child(
            arguments.child, "atheris", arguments.inputs, arguments.seed, arguments.folder
        )
    every = fuzz_all(arguments)
    for figures in every:
        if figures.finding:
            sys.stderr.write(f"{figures.target}: {figures.finding}\n")
    return int(any(figures.finding for figures in every))


if __name__ == "__main__":
    sys.exit(main())
