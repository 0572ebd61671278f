"""The stages of a trial on a GPU host, in commands and limits. Needs only the standard library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CI_BENCH = ("-m", "ci_bench.cli")
QUICK_SECTIONS = (
    "device",
    "events",
    "fence",
    "ramp",
    "hand_over",
    "flush",
    "clocks",
    "capture",
    "peaks",
    "atomics",
    "energy",
)
SLOW_SECTIONS = ("caches", "unchanged")
MORE_FIGURES = ("clocks_by_arm", "ramp", "capture", "trainings", "optimizers", "graph_peaks")
DESCRIBED = "CLOCK,POWER,PERFORMANCE,COMPUTE,MEMORY,TEMPERATURE"
DOCTOR_S, GATE_END_S, FIGURES_END_S, SPREAD_END_S = 60, 25, 3, 10
"""Seconds at the end of a stage in which nothing new is started."""
PLUGINS = ("-q", "-p", "xdist.plugin", "-p", "pytest_timeout")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The files of a trial, and the seconds that a stage has."""

    work: Path
    """The folder of repositories and caches on the host."""
    logs: Path
    """The folder that is archived."""
    seconds: int
    """The seconds that the stage may take."""
    device: str
    """The device, such as ``cuda:0``."""
    simulated: bool
    """True if the card is the simulated one of the tests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command of a stage: a program, or with `python` the arguments of Python."""

    words: Sequence[str]
    python: bool = True
    optional: bool = False
    """Its exit code does not count, and the program may be missing."""
    limit_s: float = float("inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One stage of a trial."""

    steps: Callable[[Place], Sequence[Step]]
    limit_s: int
    least_s: int
    """With fewer seconds left, the stage is skipped."""
    forks: bool = False
    """It needs forked workers that can use the GPU."""


def gpu_check(place: Place, folder: str, sections: Sequence[str]) -> Sequence[Step]:
    """Return the command of ci-bench that checks a GPU in sections."""
    only = [word for section in sections for word in ("--only", section)]
    output = ("-o", str(place.logs / folder))
    return [Step(words=(*CI_BENCH, "doctor", "--gpu", "--device", place.device, *output, *only))]


def _env(place: Place) -> Sequence[Step]:
    smi = ("nvidia-smi", "-q", "-d", DESCRIBED)
    file = str(place.logs / "env.json")
    return [
        Step(words=("nvidia-smi",), python=False, optional=True),
        Step(words=smi, python=False, optional=True),
        Step(words=("-m", "benchmarks.gpu.environment", file)),
        Step(words=(*CI_BENCH, "doctor", "--quick"), optional=True, limit_s=DOCTOR_S),
    ]


def _tests(*tiers: str, on_card_only: bool = False) -> Callable[[Place], Sequence[Step]]:
    """Run tiers of tools/gpu_tests.py; tests that need a real card are only collected elsewhere."""

    def steps(place: Place) -> Sequence[Step]:
        limit = ("--session-timeout", str(place.seconds))
        collect = ("--collect-only",) if on_card_only and place.simulated else ()
        options = ("--", *PLUGINS, *limit, *collect)
        return [Step(words=("tools/gpu_tests.py", *tiers, *options))]

    return steps


def _figures(*sections: str) -> Callable[[Place], Sequence[Step]]:
    def steps(place: Place) -> Sequence[Step]:
        file, until = str(place.logs / "figures.jsonl"), str(place.seconds - FIGURES_END_S)
        words = ("-m", "benchmarks.gpu.figures", file, "--until", until, *sections)
        return [Step(words=words)]

    return steps


def _gate(name: str, *, repeat: int = 0) -> Callable[[Place], Sequence[Step]]:
    def steps(place: Place) -> Sequence[Step]:
        folder, budget = str(place.work / "gates" / name), str(place.seconds - GATE_END_S)
        words = ("-m", "benchmarks.gpu.gates", name, folder, "--budget", budget)
        again = ("--repeat", str(2 if place.simulated else repeat)) if repeat else ()
        return [Step(words=(*words, *again))]

    return steps


def _spread(place: Place) -> Sequence[Step]:
    until = ("--until", str(place.seconds - SPREAD_END_S))
    words = ("-m", "benchmarks.gpu.spread", str(place.logs / "spread"), *until)
    tiny = ("--launches", "2", "--blocks", "2", "--only", "products", "tiny")
    return [Step(words=(*words, *tiny) if place.simulated else words)]


def _gpu_check(folder: str, sections: Sequence[str]) -> Callable[[Place], Sequence[Step]]:
    return lambda place: gpu_check(place, folder, sections)


STAGES: Mapping[str, Stage] = {
    "env": Stage(steps=_env, limit_s=130, least_s=20),
    "contract": Stage(steps=_tests("contract"), limit_s=60, least_s=15),
    "gpu-check": Stage(steps=_gpu_check("gpu-check", QUICK_SECTIONS), limit_s=110, least_s=25),
    "clock": Stage(steps=_tests("clock", on_card_only=True), limit_s=100, least_s=20),
    "smoke": Stage(steps=_gate("smoke"), limit_s=180, least_s=50, forks=True),
    "figures": Stage(
        steps=_figures("asking", "fence", "hand_over", "start", "fastrnns", "bert", "energy"),
        limit_s=130,
        least_s=30,
    ),
    "planted": Stage(steps=_gate("planted"), limit_s=180, least_s=80, forks=True),
    "parity": Stage(steps=_gate("parity"), limit_s=170, least_s=60, forks=True),
    "spread": Stage(steps=_spread, limit_s=130, least_s=40, forks=True),
    "real": Stage(steps=_gate("real"), limit_s=200, least_s=80, forks=True),
    "tuned": Stage(steps=_gate("tuned"), limit_s=240, least_s=90, forks=True),
    "autotune": Stage(steps=_figures("autotune"), limit_s=150, least_s=60),
    "more-figures": Stage(
        steps=_figures(*MORE_FIGURES),
        limit_s=120,
        least_s=30,
    ),
    "unchanged": Stage(steps=_gate("unchanged"), limit_s=220, least_s=100, forks=True),
    "gpu-check-slow": Stage(
        steps=_gpu_check("gpu-check-slow", SLOW_SECTIONS),
        limit_s=200,
        least_s=60,
    ),
    "gates": Stage(steps=_tests("gates"), limit_s=300, least_s=90, forks=True),
    "tests": Stage(
        steps=_tests("fastrnns", "transformers", on_card_only=True),
        limit_s=300,
        least_s=60,
    ),
    "unchanged-20": Stage(steps=_gate("quiet", repeat=20), limit_s=540, least_s=120, forks=True),
    "planted-10": Stage(steps=_gate("changes", repeat=10), limit_s=540, least_s=120, forks=True),
}
