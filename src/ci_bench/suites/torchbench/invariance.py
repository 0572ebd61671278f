"""Does a row's result depend on how many rows are computed with it? Compiled forward passes at N, N/2, ... 1, bit by bit."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ci_bench.records.case import Check, Outcome
from ci_bench.suites.base import Unsupported, no_mark
from ci_bench.suites.torchbench.options import Options
from ci_bench.suites.torchbench.program import Ready
from ci_bench.suites.torchbench.snapshot import flatten
from ci_bench.suites.torchbench.sources.transforms import leaves, resized
from ci_bench.suites.torchbench.status import Word


def batch_invariance(arm: str, build: Callable[..., Ready], options: Options) -> Check:
    """Compare the first rows of the full batch with a batch of these rows alone, each with a fresh compiled model."""

    def answer(outcome: Outcome, detail: str) -> Check:
        return Check(name="batch_invariance", arm=arm, outcome=outcome, detail=detail)

    ready = build(backend=options.backend)
    sample = ready.samples[0]
    full = next((one.shape[0] for one in leaves(sample) if one.dim()), 0)
    if full < 2:  # noqa: PLR2004 - one row has no part
        return answer(Outcome.UNKNOWN, "the inputs have no batch to cut")
    whole = _batched(_run(ready), full)
    size = full // 2
    while size:
        try:
            smaller = build(backend=options.backend)
            smaller = replace(smaller, samples=(resized(sample, full, size),))
            part = _batched(_run(smaller), size)
        except Unsupported as reason:
            return answer(Outcome.UNKNOWN, str(reason))
        except Exception as error:  # noqa: BLE001 - benched code may raise anything
            return answer(Outcome.FAIL, f"{Word.FAIL_TO_RUN_AT_BATCH}_{size}: {type(error).__name__}: {str(error)[:300]}")
        for name, value in part.items():
            if name not in whole or not torch.equal(whole[name][:size], value):
                return answer(Outcome.FAIL, f"{Word.FAIL_BATCH_INVARIANCE_AT}_{size}: {name} differs")
        size //= 2
    return answer(Outcome.PASS, f"{len(whole)} outputs alike in every bit at {full}, {full // 2}, ... 1 rows")


def _run(ready: Ready) -> object:
    torch.compiler.reset()
    return ready.step(ready.samples[0], no_mark)[1]


def _batched(outputs: object, rows: int) -> dict[str, Tensor]:
    found = {name: leaf for name, leaf in flatten(outputs, "outputs") if isinstance(leaf, Tensor)}
    return {name: leaf for name, leaf in found.items() if leaf.dim() and leaf.shape[0] == rows}
