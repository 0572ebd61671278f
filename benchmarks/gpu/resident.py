"""A process that stays on the GPU and works on request, for the figures of the hand-over.

Run as ``python -m benchmarks.gpu.resident``. A line ``KIND REPEATS CALLS`` on its input (``heavy``
or ``tiny``) makes that many calls; the answer is a line with the seconds of each.
"""

import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.measuring import Call, Trial, load_torch, products, this_trial, time_each

TINY_CALLS = 20


def main() -> int:
    """Warm up, then answer until the input ends."""
    trial = this_trial()
    torch = load_torch(trial)
    work = _work(torch, trial)
    for call in work.values():
        for _ in range(50):
            call()
    torch.cuda.synchronize()
    for line in sys.stdin:
        kind, repeats, calls = line.split()
        seconds = time_each(_repeated(torch, work[kind], int(repeats)), int(calls))
        sys.stdout.write(" ".join(map(str, seconds)) + "\n")
        sys.stdout.flush()
    return 0


def _repeated(torch: Any, call: Call, repeats: int) -> Call:
    def work() -> None:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()

    return work


def _work(torch: Any, trial: Trial) -> Mapping[str, Call]:
    value = torch.ones(16, device=trial.device)

    def tiny() -> None:
        for _ in range(TINY_CALLS):
            value.add_(0.0)

    return {"heavy": products(torch, trial, count=1), "tiny": tiny}


if __name__ == "__main__":
    sys.exit(main())
