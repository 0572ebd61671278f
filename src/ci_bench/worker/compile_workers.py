"""Prepare inductor's processes that compile kernels.

They start before a clock starts, are few enough for both sides, and end before samples.

From the first graph on, if the package triton is installed, torch starts a pool of min(32, cores)
processes (torch/_inductor/async_compile.py), each of which imports torch. Started inside a first
call, the pool's start is in `compile_cold`; otherwise it shares the cores with the samples of both
sides. A pool belongs to a thread of one process, so stages cannot share one.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ci_bench.suites.contract import Compiler

SIDES = 2
"""The number of processes that may compile simultaneously: base's and head's."""
START_S = 120.0
POOLS = "torch._inductor.async_compile"
THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
logger = logging.getLogger(__name__)


def limit_workers(environ: Mapping[str, str]) -> None:
    """Limit this process's pool to its side's share of cores, unless the environment sets it."""
    if THREADS not in environ:
        import torch._inductor.config

        config: Any = torch._inductor.config  # noqa: SLF001 - its only name
        config.compile_threads = max(1, len(os.sched_getaffinity(0)) // SIDES)


def start_workers(compiler: Compiler) -> None:
    """Start the pool that torch would start within the first call, and wait until it answers.

    Nothing without triton.
    """
    if compiler is Compiler.NONE:
        return
    from torch.utils._triton import has_triton_package

    if not has_triton_package():
        return
    import torch._inductor.async_compile as pools

    _attempt("started", pools.maybe_warm_pool)
    if _running(pools):
        _attempt("waited for", lambda: pools.AsyncCompile.wait_pool_ready(timeout=START_S))


def end_workers() -> None:
    """End the pool and wait for its end.

    Later compilations run in this process: no pool returns meanwhile.
    """
    pools = sys.modules.get(POOLS)
    if pools is None or not _running(pools):
        return
    _attempt("ended", pools.shutdown_compile_workers)
    config: Any = sys.modules["torch._inductor.config"]
    config.compile_threads = 1


def _running(pools: ModuleType) -> bool:
    return bool(getattr(pools, "_pool_set", ()))


def _attempt(what: str, act: Callable[[], object]) -> None:
    """Call an internal function of torch's.

    A pool that cannot be managed costs time, but no result.
    """
    try:
        act()
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning(
            "inductor's compile workers were not %s: %s: %s", what, type(error).__name__, error
        )
