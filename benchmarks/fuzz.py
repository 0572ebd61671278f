"""Fuzzes every reader and renderer of ci-bench: what strangers can send must be read or refused, and never anything else.

``python -m benchmarks.fuzz --runs 1000000 --json fuzz.json``

Each target (`fuzz_targets`) is fed in a process of its own, with at most 1 GiB of memory beyond what it starts with and ten
seconds for one input. Inputs come from `fuzz_mutator`, changing valid documents. With ``--engine atheris`` coverage guides them
(libFuzzer, where the package atheris is installed; the same mutator is one of its own); without, they are drawn anew from the
seeds each time. An input that makes a target raise anything but its one refusal, hang or grow is a finding: it is written down,
and the exit code is 1.
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.fuzz_mutator import mutate
from benchmarks.fuzz_targets import TARGETS, Target
from benchmarks.tables import publish, render

ENGINES = ("own", "atheris")
LIMIT_S = 10
LIMIT_BYTES = 1 << 30
FINDING = 77
"""The exit code of a child that found something."""
EVERY = 500
"""How often a child writes down how far it has come."""
GUIDED = """
import sys
import atheris
with atheris.instrument_imports(include=["ci_bench"]):
    from benchmarks import fuzz
sys.exit(fuzz.main(sys.argv[1:]))
"""
"""A child whose engine has to see our code being loaded."""


@dataclass(kw_only=True, slots=True)
class Figures:
    """What became of the inputs of one target. `grown_bytes` is by how much its process grew at most."""

    target: str
    engine: str
    seed: int
    runs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    grown_bytes: int = 0
    finding: str = ""


class Child:
    """Feeds one target, and keeps its figures in a file, so that they outlive whatever ends the process."""

    def __init__(self, target: Target, figures: Figures, kept: Path) -> None:
        """`kept` is the file of the figures."""
        self.target, self.figures, self._kept = target, figures, kept
        self._at_first, self._began = _peak_bytes(), time.monotonic()

    def feed(self, content: bytes) -> None:
        """One input. Raises what the target raised, once it is written down."""
        figures, start = self.figures, time.monotonic()
        signal.alarm(LIMIT_S)
        try:
            figures.accepted += self.target.feed(content)
        except BaseException:
            figures.finding = f"{traceback.format_exc()[-2000:]}\ninput: {content[:4000]!r}"
            self.keep()
            raise
        finally:
            signal.alarm(0)
        figures.runs += 1
        figures.slowest_s = max(figures.slowest_s, time.monotonic() - start)
        if figures.runs % EVERY == 0:
            self.keep()

    def keep(self) -> None:
        """Write the figures down."""
        self.figures.seconds = round(time.monotonic() - self._began, 1)
        self.figures.grown_bytes = _peak_bytes() - self._at_first
        young = self._kept.with_suffix(".new")  # whoever ends this process must find the old figures or the new ones
        young.write_text(json.dumps(asdict(self.figures)))
        young.replace(self._kept)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _own(child: Child, runs: int) -> None:
    """Documents drawn from the seeds and changed, `runs` of them."""
    rng, seeds = random.Random(child.figures.seed), child.target.seeds()  # noqa: S311 - a fuzzer's dice are no secret
    for _ in range(runs):
        child.feed(mutate(rng.choice(seeds), rng, seeds))


def _atheris(child: Child, runs: int, corpus: Path) -> None:
    """Let libFuzzer choose; it ends the process itself."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an optional tool, for some versions of Python

    for number, seed in enumerate(child.target.seeds()):
        (corpus / str(number)).write_bytes(seed)

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)  # noqa: S311 - a fuzzer's dice are no secret
        changed = mutate(data, rng) if rng.random() < 0.5 else bytes(atheris.Mutate(data, max_size))  # noqa: PLR2004 - each half
        return changed[:max_size]

    def one_input(data: bytes) -> None:
        child.feed(data)
        if child.figures.runs >= runs:
            child.keep()
            os._exit(0)  # the seeds are runs too, so that libFuzzer's own count is another one

    arguments = [sys.argv[0], f"-seed={child.figures.seed or 1}", "-max_len=20000", "-print_final_stats=0", str(corpus)]
    atheris.Setup(arguments, one_input, custom_mutator=mutator)
    atheris.Fuzz()


def run_child(name: str, engine: str, runs: int, seed: int, folder: Path) -> int:
    """The life of a child: one target, all its inputs."""
    target = TARGETS[name]
    for content in target.seeds():
        assert target.feed(content), f"a seed of {name} is refused"  # noqa: S101 - only a bug of ours
    child = Child(target, Figures(target=name, engine=engine, seed=seed), folder / "figures.json")
    signal.signal(signal.SIGALRM, _too_slow)
    try:
        if engine == "atheris":
            corpus = folder / "corpus"
            corpus.mkdir()
            _atheris(child, runs, corpus)
        else:
            _own(child, runs)
    except Exception:  # noqa: BLE001 - whatever a target raises beyond its refusal is what is looked for
        sys.stderr.write(traceback.format_exc())
        return FINDING
    child.keep()
    return 0


def limit_memory() -> None:
    """From now on, this process can have so much more memory than it has, and no more."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + LIMIT_BYTES, size + LIMIT_BYTES))


def _too_slow(_number: int, _frame: object) -> None:
    raise TimeoutError(f"one input took more than {LIMIT_S} s")


def fuzz(name: str, *, engine: str, runs: int, seed: int, limit_s: float | None = None) -> Figures:
    """Feed one target in a process of its own, for `limit_s` seconds at most."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        start = ["-c", GUIDED] if engine == "atheris" else ["-m", "benchmarks.fuzz"]
        command = [sys.executable, *start, "--child", name, "--engine", engine]
        command += ["--runs", str(runs), "--seed", str(seed), "--folder", folder]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, said = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.terminate()
            _, said = child.communicate()
            said, child.returncode = "", 0
        kept = Path(folder) / "figures.json"
        figures = Figures(**json.loads(kept.read_text())) if kept.exists() else Figures(target=name, engine=engine, seed=seed)
        if child.returncode and not figures.finding:
            figures.finding = f"the process ended with {child.returncode}: {said[-2000:]}"
        return figures


def table(every: Sequence[Figures]) -> str:
    """The figures, one target a row."""
    rows: list[Mapping[str, str]] = [
        {
            "target": one.target,
            "engine": one.engine,
            "inputs": f"{one.runs:,}",
            "accepted": f"{one.accepted:,}",
            "seconds": f"{one.seconds:,.0f}",
            "slowest (s)": f"{one.slowest_s:.2f}",
            "grown (MiB)": f"{one.grown_bytes / 2**20:.0f}",
            "findings": "1" if one.finding else "0",
        }
        for one in every
    ]
    return render("Fuzzed", rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz the targets, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; repeatable")
    parser.add_argument("--engine", choices=ENGINES, default="own")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, metavar="S", help="seconds for each target, at most")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", choices=sorted(TARGETS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        if arguments.engine == "own":  # libFuzzer maps terabytes that it never touches
            limit_memory()
        return run_child(arguments.child, arguments.engine, arguments.runs, arguments.seed, arguments.folder)
    every: list[Figures] = []
    for name in arguments.target or TARGETS:
        every.append(fuzz(name, engine=arguments.engine, runs=arguments.runs, seed=arguments.seed, limit_s=arguments.limit))
        publish(table(every), {"fuzzed": [asdict(one) for one in every]}, arguments.json)
    for one in every:
        if one.finding:
            sys.stderr.write(f"{one.target}: {one.finding}\n")
    return int(any(one.finding for one in every))


if __name__ == "__main__":
    sys.exit(main())
