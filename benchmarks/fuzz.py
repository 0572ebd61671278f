"""Fuzzes every reader and renderer of ci-bench: what strangers can send must be read or refused, and never anything else.

``python -m benchmarks.fuzz --inputs 1000000 --resume fuzz.json``

Each target (`fuzz_targets`) is fed in a process of its own, with at most 1 GiB of memory beyond
what it starts with and ten seconds of the processor for one input. Inputs come from `fuzz_mutator`,
changing valid documents. With ``--engine atheris`` coverage guides them (libFuzzer, where the
package atheris is installed; the same mutator is one of its own); without, they are drawn anew from
the seeds each time. An input that makes a target raise anything but its one refusal, hang or grow
is a finding: it is written down, and the exit code is 1.

With ``--resume`` the file keeps every stretch of inputs that a target was given, with the seed of
its dice; a later call goes on where it ended, with dice of its own, and the total is the sum of the
stretches. A stretch that ended in a finding counts with the inputs before it; its finding stays in
the file, and the next stretch shows whether it has been mended.
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
        kept = Path(folder) / "figures.json"
        figures = (
            Figures(**json.loads(kept.read_text()))
            if kept.exists()
            else Figures(target=name, engine=engine, seed=seed)
        )
        if code and not figures.finding:
            figures.finding = f"the process ended with {code}"
        return figures


def _start(name: str, inputs: int, seed: int, folder: Path, limit_s: float | None) -> int:
    """One child after the other comes of a server that has loaded everything; 0 where it was ended at its limit."""
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
    """A process for libFuzzer to take over; it maps terabytes that it never touches, so that memory has no limit."""
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
    """The stretches that a file keeps; none where there is no file yet."""
    if path is None or not path.exists():
        return []
    return [Figures(**one) for one in json.loads(path.read_text())["stretches"]]


def totals(stretches: Sequence[Figures]) -> list[Figures]:
    """One row for each target and engine: sums, the slowest, the most grown, and the finding of the last stretch."""
    whole: dict[tuple[str, str], Figures] = {}
    for one in stretches:
        known = whole.get((one.target, one.engine))
        whole[one.target, one.engine] = one if known is None else _sum(known, one)
    return list(whole.values())


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
    """The figures, one target a row. Seconds are those of the processor."""
    rows: list[Mapping[str, str]] = [
        {
            "target": one.target,
            "engine": one.engine,
            "inputs": f"{one.inputs:,}",
            "accepted": f"{one.accepted:,}",
            "seconds": f"{one.seconds:,.0f}",
            "slowest (s)": f"{one.slowest_s:.2f}",
            "grown (MiB)": f"{one.grown_bytes / 2**20:.0f}",
            "findings": "1" if one.finding else "0",
        }
        for one in every
    ]
    return render("Fuzzed", rows)


def fuzz_all(arguments: argparse.Namespace) -> list[Figures]:
    """Every target that was asked for, up to so many inputs in all; what is known is told and written after each."""
    known = earlier(arguments.resume)
    for name in arguments.target or TARGETS:
        own = [one for one in known if (one.target, one.engine) == (name, arguments.engine)]
        missing = arguments.inputs - sum(one.inputs for one in own)
        if missing <= 0:
            continue
        seed = arguments.seed + len(own)
        known.append(
            fuzz(name, engine=arguments.engine, inputs=missing, seed=seed, limit_s=arguments.limit)
        )
        publish(
            table(totals(known)), {"stretches": [asdict(one) for one in known]}, arguments.resume
        )
    return totals(known)


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
    for one in every:
        if one.finding:
            sys.stderr.write(f"{one.target}: {one.finding}\n")
    return int(any(one.finding for one in every))


if __name__ == "__main__":
    sys.exit(main())
