"""The worker of `referee_cost`: each suite's own, with a clock around all the referee's work.

Or it is without a referee.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.referee_cost import OFF, SPENT
from ci_bench.records.results import Case
from ci_bench.suites.contract import Context, Workload
from ci_bench.suites.registry import find_suite
from ci_bench.worker.referee import Referee
from ci_bench.worker.sampling import ResidentArms

CLOCKED = ("begin", "look", "check", "check_reference")


def open_workload(case: Case, context: Context) -> Workload:
    """Open the workload of one case.

    The referee's seconds are written to the file that the environment names.
    """
    if os.environ.get(OFF):
        _go_without()
    else:
        for name in CLOCKED:
            setattr(Referee, name, _clocked(getattr(Referee, name)))
    workload: Workload = import_module(find_suite(case.suite).worker).open_workload(case, context)
    return workload


def _go_without() -> None:
    """Open arms without a referee, which pass over looks.

    The engine orders looks of both sides alike.
    """
    opened = ResidentArms.open

    def open_without(
        self: ResidentArms, workload: Workload, arms: tuple[str, ...]
    ) -> tuple[int, ...]:
        self.options = replace(self.options, referee=False)
        return opened(self, workload, arms)

    ResidentArms.open = open_without  # type: ignore[method-assign]


def _clocked(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def clocked(*arguments: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            with Path(os.environ[SPENT]).open("a", encoding="utf-8") as spent:
                spent.write(f"{time.perf_counter() - begun}\n")

    return clocked
