"""Compile a transformer layer, and print its time and the kernels that inductor chose, as JSON.

Run as ``python -m benchmarks.gpu.compiled_step MODE``, with the caches of the environment.
"""

import hashlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.measuring import MILLISECONDS, Call, load_torch, this_trial, time_between

MEASURED = frozenset({"time_taken_ms", "triton_cache_hash"})
"""Fields of a chosen configuration that differ each time."""


def main() -> int:
    """Compile, time, print."""
    mode = sys.argv[1]
    trial = this_trial()
    torch = load_torch(trial)
    torch.manual_seed(0)
    width, rows, length = trial.size(512, 32), trial.size(16, 2), trial.size(256, 8)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = layer.to(trial.device).bfloat16()
    x = torch.randn(rows, length, width, device=trial.device, dtype=torch.bfloat16)
    run = torch.compile(model, mode=None if mode == "default" else mode)

    def step() -> None:
        model.zero_grad()
        run(x).sum().backward()

    figures = _time(torch, step, calls=trial.size(20, 2), samples=trial.size(30, 3)) | _kernels()
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def _time(torch: Any, step: Call, *, calls: int, samples: int) -> dict[str, float]:
    def steps() -> None:
        for _ in range(calls):
            step()

    begun = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first_s = time.perf_counter() - begun
    steps()
    seconds = [time_between(torch, steps) / calls for _ in range(samples)]
    return {"ms": statistics.median(seconds) * MILLISECONDS, "first s": first_s}


def _kernels() -> dict[str, object]:
    """Return how many configurations inductor chose, and a digest of them."""
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    chosen = []
    for path in folder.rglob("*.best_config"):
        fields = json.loads(path.read_text(encoding="utf-8"))
        config = {name: value for name, value in fields.items() if name not in MEASURED}
        chosen.append((path.name, config))
    digest = hashlib.sha256(repr(sorted(chosen, key=repr)).encode()).hexdigest()[:10]
    return {"kernels": len(chosen), "choice": digest}


if __name__ == "__main__":
    sys.exit(main())
