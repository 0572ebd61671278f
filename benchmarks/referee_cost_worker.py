"""The worker of `referee_cost`: torchbench's own, with a clock around all that the referee does."""

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.referee_cost import SPENT
from ci_bench.engine.timing.referee import Referee
from ci_bench.records.results import Case
from ci_bench.suites.base import Context
from ci_bench.suites.torchbench import run

CLOCKED = ("begin", "look", "check")


def open_workload(case: Case, context: Context) -> run.ModelWorkload:
    """The workload of one case; what the referee takes is written to the file that the environment names."""
    for name in CLOCKED:
        setattr(Referee, name, _clocked(getattr(Referee, name)))
    return run.open_workload(case, context)


def _clocked(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def clocked(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return method(*arguments, **named)
        finally:
            with Path(os.environ[SPENT]).open("a", encoding="utf-8") as spent:
                spent.write(f"{time.perf_counter() - begun}\n")

    return clocked
