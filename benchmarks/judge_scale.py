"""How far the judge scales: seconds and peak memory to compare and judge many cases.

``python -m benchmarks.judge_scale --json judge_scale.json``

Each case has 4 launches of 20 samples per arm and a history of 20 launches. *Compare* makes one figure per launch from the
samples; *judge* decides, with q values and the geometric mean. Times are the least of three; memory is what numpy allocated at
its peak beyond the input, by tracemalloc, in a run of its own.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.tables import publish, render
from ci_bench.judge import aggregates, noise, sequential
from ci_bench.judge.ruling import Rule, Ruling

SIZES = (1_000, 10_000, 100_000)
LAUNCHES, SAMPLES, HISTORY = 4, 20, 20
REPEATS = 3
_MIB = 1024**2


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """Log samples of both arms [cases, launches, samples], and what was learned."""

    base: noise.Floats
    head: noise.Floats
    learned: noise.Learned


def draw(cases: int, seed: int) -> Input:
    """White noise of 0.1 to 3 % by case; one case in a hundred is 5 % slower."""
    rng = np.random.Generator(np.random.PCG64(seed))
    spread = np.exp(rng.uniform(np.log(0.001), np.log(0.03), cases))
    shape = (cases, LAUNCHES, SAMPLES)
    slower = np.where(rng.random(cases) < 0.01, np.log(1.05), 0.0)  # noqa: PLR2004 - one in a hundred, as said above
    base, head = (spread[:, None, None] * rng.standard_normal(shape) for _ in range(2))
    past = spread[:, None] * rng.standard_normal((cases, HISTORY)) / np.sqrt(SAMPLES / 2)
    ages = noise.forgetting(rng.uniform(0, 60, (cases, HISTORY)))
    return Input(
        base=base,
        head=head + slower[:, None, None],
        learned=noise.learn(past, np.broadcast_to(spread[:, None], past.shape), ages),
    )


def compare(given: Input) -> tuple[noise.Floats, noise.Floats]:
    """The log-ratio and inner spread of every launch."""
    return noise.launch_ratio(given.base, given.head), noise.within_spread(given.base, given.head)


def judge(given: Input, d: noise.Floats, within: noise.Floats) -> Ruling:
    """Decisions, q values and the geometric mean."""
    ruling = sequential.replay(d, within, given.learned, Rule())
    aggregates.false_discovery(aggregates.p_values(ruling))
    aggregates.geometric_mean(d, given.learned)
    return ruling


def measure(cases: int, seed: int) -> dict[str, float]:
    """Seconds and MiB for one number of cases."""
    given = draw(cases, seed)
    d, within = compare(given)
    tracemalloc.start()
    judge(given, *compare(given))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "cases": cases,
        "compare_s": _least_s(lambda: compare(given)),
        "judge_s": _least_s(lambda: judge(given, d, within)),
        "peak_mib": peak / _MIB,
    }


def _least_s(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def row(result: Mapping[str, float]) -> dict[str, str]:
    """A row of the printed table."""
    return {
        "cases": f"{result['cases']:,.0f}",
        "compare, s": f"{result['compare_s']:.4f}",
        "judge, s": f"{result['judge_s']:.4f}",
        "both, s": f"{result['compare_s'] + result['judge_s']:.4f}",
        "peak, MiB": f"{result['peak_mib']:.0f}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge_scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    results = [measure(cases, options.seed) for cases in options.cases]
    title = f"Scale of the judge: {LAUNCHES} launches of {SAMPLES} samples per arm"
    document = {"benchmark": "judge_scale", "seed": options.seed, "results": results}
    publish(render(title, [row(result) for result in results]), document, options.json)


if __name__ == "__main__":
    main()
