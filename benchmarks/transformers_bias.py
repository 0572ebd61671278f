"""Compares the times of the suite `transformers` with those of a hand-written loop.

Step times of the small BERT, in turns with such a loop.

Run as ``python -m benchmarks.transformers_bias [--json FILE]``. CPU only, one thread. The loops
below know nothing of the suite: they build the model by its class, make their own inputs, and read
`time.perf_counter` around a step. Samples of both are taken in turns, and the bias of a build is
the median ratio of two neighbours, so that a slow moment counts for both. Before each sample comes
a call that doesn't count: otherwise one way pays for what the other leaves to the allocator (5 %
here). The position of a model's weights in memory can change its time by a fifth, so both are built
repeatedly: the bias is of all builds.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import publish, render
from ci_bench.suites.transformers.catalog import preset
from ci_bench.suites.transformers.options import parse
from ci_bench.suites.transformers.plan import SUITE
from ci_bench.worker.fence import hold_garbage_collector
from ci_bench.worker.sampling import make_clock

BATCH, LENGTH = 4, 64
BUILDS = 24
ROUNDS = 40
LARGEST_BALLAST = 1 << 22
WARM_UP = 3
MODES = ("inference", "training")
WAYS = ("suite", "hand-written")
LIMIT = 0.03


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked.

    Returns 1 where a bias is beyond the limit by more than its error.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    figures = {mode: compare(mode) for mode in MODES}
    rows = [
        {"mode": mode, **{name: f"{value:.4g}" for name, value in by_name.items()}}
        for mode, by_name in figures.items()
    ]
    publish(
        render("Step times of the small BERT: suite against a hand-written loop", rows),
        {"figures": figures},
        arguments.json,
    )
    return (
        0
        if all(
            abs(by_name["bias (%)"]) - by_name["+- (%)"] <= 100 * LIMIT
            for by_name in figures.values()
        )
        else 1
    )


def compare(mode: str) -> dict[str, float]:
    """Return the medians of both (ms) and the bias (%), with its error.

    The error is by the spread of the builds.
    """
    import torch

    torch.set_num_threads(1)
    coin = random.Random(0)  # noqa: S311 - the order of turns is no secret
    ballast = []
    builds = []
    for _ in range(BUILDS):
        ballast.append(torch.ones(coin.randrange(LARGEST_BALLAST)))
        builds.append(_build(mode, coin))
    ratios = [
        statistics.median(
            ours / theirs
            for ours, theirs in zip(build["suite"], build["hand-written"], strict=True)
        )
        for build in builds
    ]
    low, middle, high = statistics.quantiles(ratios, n=4)
    error = (
        1.57 * (high - low) / len(ratios) ** 0.5
    )  # of a median, by its quartiles: McGill, Tukey, Larsen 1978
    return {
        **{
            f"{way} (ms)": statistics.median(value for build in builds for value in build[way])
            * 1e3
            for way in WAYS
        },
        "bias (%)": (middle - 1) * 100,
        "+- (%)": error * 100,
    }


def _build(mode: str, coin: random.Random) -> dict[str, list[float]]:
    """Build both ways again, and return their samples (s), one of each in every round.

    Chance decides which is first.
    """
    order = list(WAYS)
    coin.shuffle(order)
    ways = {
        name: measured_by_the_suite(mode) if name == "suite" else HAND_WRITTEN[mode]()
        for name in order
    }
    for _ in range(WARM_UP):
        for take in ways.values():
            take()
    samples: dict[str, list[float]] = {name: [] for name in ways}
    with hold_garbage_collector():
        for _ in range(ROUNDS):
            coin.shuffle(order)
            for name in order:
                ways[name]()
                samples[name].append(ways[name]())
    return samples


def measured_by_the_suite(mode: str) -> Callable[[], float]:
    """Return a call that takes one sample of the eager arm as the engine does (s)."""
    from ci_bench.suites.transformers.network import ModelRecipe
    from ci_bench.suites.transformers.run import open_program

    entry = {
        "model": "bert",
        "mode": mode,
        "batch_size": BATCH,
        "sequence_length": LENGTH,
        "candidate": "none",
    }
    (case,) = SUITE.plan(entry)
    program = open_program(ModelRecipe(options=parse(case.params), device="cpu"), "eager", None)
    clock = make_clock("cpu")
    return lambda: clock.take(program, calls=1).wall_s


def _bert() -> tuple[Any, Mapping[str, Any]]:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(**{**preset("bert"), **without_dropout})
    torch.manual_seed(0)
    ids = torch.randint(10, config.vocab_size, (BATCH, LENGTH))
    return BertForMaskedLM(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def hand_written_inference() -> Callable[[], float]:
    """Return a call that times a forward pass by hand (s)."""
    import torch

    model, inputs = _bert()
    model.eval()

    def take() -> float:
        start = time.perf_counter()
        with torch.no_grad():
            model(**inputs)
        return time.perf_counter() - start

    return take


def hand_written_training() -> Callable[[], float]:
    """Return a call that times a training step by hand (s)."""
    import torch

    model, inputs = _bert()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def take() -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(**inputs, labels=inputs["input_ids"]).loss
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    return take


HAND_WRITTEN = {"inference": hand_written_inference, "training": hand_written_training}


if __name__ == "__main__":
    sys.exit(main())
