"""Figures of the compiler: the same code compiled into fresh caches, and again from one cache."""

import json
import tempfile
import time
from typing import Any

from benchmarks.gpu.measuring import Finding, Trial, run_module

MODES = {"default": 4, "max-autotune-no-cudagraphs": 2}
"""The number of fresh caches, by mode."""
LAST_START_S, LIMIT_S = 110, 140
CACHED_BUILDS = 2


def measure_autotune(trial: Trial) -> Finding:
    """Compile the same code several times: which kernels are chosen, and how fast they are."""
    begun, rows = time.monotonic(), []
    modes = {"default": 1} if trial.simulated else MODES
    for mode, fresh in modes.items():
        with tempfile.TemporaryDirectory() as cache:
            built = [_compile(trial, cache, mode) for _ in range(CACHED_BUILDS)]
            rows += [(mode, "one cache", figures) for figures in built]
        for _ in range(fresh):
            if time.monotonic() < begun + LAST_START_S * trial.patience:
                with tempfile.TemporaryDirectory() as cache:
                    rows.append((mode, "fresh cache", _compile(trial, cache, mode)))
    summary = "; ".join(f"{mode[:12]}, {cache}: {_brief(figures)}" for mode, cache, figures in rows)
    failed = any("error" in figures for _, _, figures in rows)
    return Finding(values={"builds": rows}, summary=summary, failed=failed)


def _brief(figures: dict[str, Any]) -> str:
    if "error" in figures:
        return str(figures["error"])[-80:]
    return f"{figures['ms']:.4f} ms, kernels {figures['choice']}"


def _compile(trial: Trial, cache: str, mode: str) -> dict[str, Any]:
    environ = {
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
    }
    done = run_module(trial, "compiled_step", mode, limit_s=LIMIT_S, environ=environ)
    if done.returncode:
        return {"error": done.stderr[-400:]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
