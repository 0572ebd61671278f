"""A process that feeds one target: its figures, in a file that outlives it, and two engines."""

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.fuzz_mutator import Herd, mutate
from benchmarks.fuzz_targets import TARGETS, Target

LIMIT_S = 10
WAITING_LIMIT_S = 300
"""An input may take `LIMIT_S` seconds of the processor: next to other work they take longer. One
that only waits is ended, too.
"""
LIMIT_BYTES = 1 << 30
FINDING = 77
"""The exit code of a child that found something."""
EVERY = 100
"""The number of inputs after which a child writes its figures."""


@dataclass(kw_only=True, slots=True)
class Figures:
    """Figures of one target's inputs."""

    target: str
    """The name of the target."""
    engine: str
    """The engine that makes the inputs: own or atheris."""
    seed: int
    """The seed of the dice."""
    inputs: int = 0
    """The number of inputs that were fed."""
    accepted: int = 0
    """The number of inputs that the target accepted."""
    seconds: float = 0.0
    """The processor time of the process (s)."""
    slowest_s: float = 0.0
    """The processor time of the slowest input (s)."""
    grown_bytes: int = 0
    """The growth of the process's peak memory."""
    finding: str = ""
    """A description of the input that is a finding; empty if there is none."""


class Child:
    """Feeds one target, and keeps its figures in a file.

    The file outlives any end of the process.
    """

    def __init__(self, target: Target, figures: Figures, file: Path) -> None:
        """Keep the figures in `file`."""
        self.target, self.figures, self._kept = target, figures, file
        self._at_first, self._began = _peak_bytes(), time.process_time()

    def feed(self, content: bytes) -> None:
        """Feed one input.

        Raises what the target raised, once it is written down. Seconds are those of the processor.
        """
        figures, start = self.figures, time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        signal.alarm(WAITING_LIMIT_S)
        try:
            figures.accepted += self.target.feed(content)
        except BaseException:
            figures.finding = f"{traceback.format_exc()[-2000:]}\ninput: {content[:4000]!r}"
            self.keep()
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        figures.inputs += 1
        spent = time.process_time() - start
        figures.slowest_s = max(figures.slowest_s, spent)
        if figures.inputs % EVERY == 0:
            self.keep()

    def keep(self) -> None:
        """Write the figures down."""
        self.figures.seconds = round(time.process_time() - self._began, 1)
        self.figures.grown_bytes = _peak_bytes() - self._at_first
        young = self._kept.with_suffix(
            ".new"
        )  # whatever ends this process must leave the old figures or the new ones
        young.write_text(json.dumps(asdict(self.figures)))
        young.replace(self._kept)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _feed_drawn(child: Child, inputs: int) -> None:
    """Feed so many documents that are drawn from the seeds and changed."""
    rng, herd = random.Random(child.figures.seed), Herd(child.target.seeds())  # noqa: S311 - a fuzzer's dice are no secret
    for _ in range(inputs):
        child.feed(herd.draw(rng))


def _atheris(child: Child, inputs: int, corpus: Path) -> None:
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
        if child.figures.inputs >= inputs:
            child.keep()
            os._exit(0)  # the seeds are inputs too, so that libFuzzer's own count is another one

    arguments = [
        sys.argv[0],
        f"-seed={child.figures.seed or 1}",
        "-max_len=20000",
        "-print_final_stats=0",
        str(corpus),
    ]
    atheris.Setup(arguments, one_input, custom_mutator=mutator)
    atheris.Fuzz()


def run_child(name: str, engine: str, inputs: int, seed: int, folder: Path) -> int:
    """Feed all inputs of one target; return the exit code."""
    target = TARGETS[name]
    for content in target.seeds():
        assert target.feed(content), f"a seed of {name} is refused"  # noqa: S101 - only a bug of ours
    child = Child(target, Figures(target=name, engine=engine, seed=seed), folder / "figures.json")
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _too_slow)
    try:
        if engine == "atheris":
            corpus = folder / "corpus"
            corpus.mkdir()
            _atheris(child, inputs, corpus)
        else:
            _feed_drawn(child, inputs)
    except Exception:  # noqa: BLE001 - whatever a target raises beyond its refusal is what is looked for
        sys.stderr.write(traceback.format_exc())
        return FINDING
    child.keep()
    return 0


def limit_memory() -> None:
    """Limit the memory of this process: so much more than it has now."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + LIMIT_BYTES, size + LIMIT_BYTES))


def _too_slow(_number: int, _frame: object) -> None:
    raise TimeoutError(
        f"one input took more than {LIMIT_S} s of the processor, or {WAITING_LIMIT_S} s in all"
    )
