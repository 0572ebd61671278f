"""Compares times of the suite `fastrnns` with a plain loop over `torch.nn.LSTM`, in turns.

Run as ``python -m benchmarks.fastrnns_bias [--device cpu] [--json FILE]``. Ours is the reference
arm `aten` as a case opens it, taken by the engine's clock; the plain loop is written out below: a
module, inputs, two differences of `time.perf_counter`, and gradients zeroed in place. Both take one
call per sample, in pairs (ours first, then the plain loop first), in single precision on one
thread. A bias is the median over pairs of ours / plain - 1; its interval is that of the median,
from the order statistics of a repeat's pairs.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from benchmarks.tables import publish, render
from ci_bench.suites.contract import Context
from ci_bench.suites.fastrnns.plan import SUITE
from ci_bench.worker.fence import hold_garbage_collector, synchronizer
from ci_bench.worker.sampling import make_clock

LIMIT = 0.03
SIZES: Mapping[str, tuple[int, int, int, int, int]] = {
    "T 8, L 1, B 4, I 32, H 32": (100, 8, 1, 4, 32),
    "T 50, L 1, B 16, I 128, H 128": (60, 50, 1, 16, 128),
    "T 100, L 1, B 64, I 512, H 512": (15, 100, 1, 64, 512),
}
"""Pairs of one repeat; then time steps, layers, rows, and features of input and state. The last are
the suite's default sizes.
"""
REPEATS = 5
WARM_UP_CALLS = 5

Pair = tuple[float, float]
"""Forward and backward, in seconds."""
Take = Callable[[], Pair]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bias:
    """Bias of one direction at one size, over all pairs: ours / plain - 1."""

    ours_ms: float
    """The median of our samples (ms)."""
    plain_ms: float
    """The median of the plain loop's samples (ms)."""
    median: float
    """The median bias."""
    low: float
    """The lower end of its 95 % interval."""
    high: float
    """The upper end of its 95 % interval."""

    @property
    def answer(self) -> str:
        """Word for whether the bias is within the limit, as far as its interval shows."""
        if self.low >= -LIMIT and self.high <= LIMIT:
            return "yes"
        return "no" if self.low > LIMIT or self.high < -LIMIT else "too noisy to tell"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked.

    The exit code is 1 where a bias is beyond the limit for certain.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:0")
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, help="fresh networks to measure with"
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    biases = {
        (size, direction): bias
        for size, shape in SIZES.items()
        for direction, bias in measure(
            shape, device=arguments.device, repeats=arguments.repeats
        ).items()
    }
    rows = [
        {"size": size, "direction": direction, **_cells(bias)}
        for (size, direction), bias in biases.items()
    ]
    figures = {
        f"{size}, {direction}, bias (%)": bias.median * 100
        for (size, direction), bias in biases.items()
    }
    publish(
        render("fastrnns against a plain loop over nn.LSTM", rows),
        {"figures": figures},
        arguments.json,
    )
    return int(any(bias.answer == "no" for bias in biases.values()))


def measure(shape: tuple[int, int, int, int, int], *, device: str, repeats: int) -> dict[str, Bias]:
    """Return the bias of both directions, over pairs of several fresh networks."""
    pairs, *sizes = shape
    samples: list[tuple[Pair, Pair]] = []
    for _ in range(repeats):
        ways = (ours(sizes, device), plain(sizes, device))
        for way in ways:
            for _ in range(WARM_UP_CALLS):
                way()
        with hold_garbage_collector():
            samples += [_in_turn(ways, backwards=bool(number % 2)) for number in range(pairs)]
    return {
        name: _bias([(our_pair[part], loop_pair[part]) for our_pair, loop_pair in samples])
        for part, name in enumerate(("forward", "backward"))
    }


def ours(sizes: Sequence[int], device: str) -> Take:
    """Return a sample of the reference arm of a case, by the engine's clock."""
    import torch

    from ci_bench.suites.fastrnns.run import open_workload

    torch.set_num_threads(1)
    steps, layers, rows, width = sizes
    options = {
        "seq_length": steps,
        "num_layers": layers,
        "batch_size": rows,
        "input_size": width,
        "hidden_size": width,
    }
    (case,) = SUITE.plan({"variants": ["aten"], **options})
    context = Context(device=device, scratch=Path(), progress=lambda _arm, _done, _total: None)
    program, clock = open_workload(case, context).open("aten"), make_clock(device)

    def take() -> Pair:
        forward_s, backward_s = clock.take(program, calls=1).parts_s
        assert forward_s is not None and backward_s is not None, "a call has a time, however short"  # noqa: S101, PT018 - our own bug
        return forward_s, backward_s

    return take


def plain(sizes: Sequence[int], device: str) -> Take:
    """Return a sample of a loop that a user would write to time `nn.LSTM`."""
    import torch

    steps, layers, rows, width = sizes
    module = torch.nn.LSTM(width, width, layers).to(device)
    x = torch.randn(steps, rows, width, device=device)
    states = tuple(torch.randn(layers, rows, width, device=device) for _ in range(2))
    gradient = torch.randn(steps, rows, width, device=device)
    synchronize = synchronizer(device)
    torch.backends.cudnn.enabled = False

    def take() -> Pair:
        synchronize()
        start = time.perf_counter()
        output, _ = module(x, states)
        synchronize()
        between = time.perf_counter()
        output.backward(gradient)
        synchronize()
        end = time.perf_counter()
        module.zero_grad(set_to_none=False)
        return between - start, end - between

    return take


def _in_turn(ways: tuple[Take, Take], *, backwards: bool) -> tuple[Pair, Pair]:
    """Take one sample of each, in one order or the other."""
    if backwards:
        second = ways[1]()
        return ways[0](), second
    return ways[0](), ways[1]()


def _bias(pairs: Sequence[Pair]) -> Bias:
    """Return the median of the paired ratios with its 95 % interval.

    The interval is between the order statistics n / 2 -+ 0.98 sqrt(n).
    """
    ratios = sorted(ours / loop for ours, loop in pairs)
    reach = 0.98 * sqrt(len(ratios))
    low, high = (
        max(0, int(len(ratios) / 2 - reach)),
        min(len(ratios) - 1, int(len(ratios) / 2 + reach)),
    )
    return Bias(
        ours_ms=statistics.median(ours for ours, _ in pairs) * 1e3,
        plain_ms=statistics.median(loop for _, loop in pairs) * 1e3,
        median=statistics.median(ratios) - 1,
        low=ratios[low] - 1,
        high=ratios[high] - 1,
    )


def _cells(bias: Bias) -> dict[str, str]:
    return {
        "ours (ms)": f"{bias.ours_ms:.4g}",
        "plain (ms)": f"{bias.plain_ms:.4g}",
        "bias": f"{bias.median:+.2%}",
        "95 % interval": f"{bias.low:+.2%} to {bias.high:+.2%}",
        "within 3 %": bias.answer,
    }


if __name__ == "__main__":
    sys.exit(main())
