"""Plans one entry of a suite from a tree, in a separate process.

The command is ``python -m ci_bench.suites.shared.planning.planner``. The suite is named by import
path, so this is code under test. The process that judges never imports it: it runs this module in
an environment without secrets, and reads the answer, which is data.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ci_bench.errors import BadConfig, NothingInTree
from ci_bench.records.results import Case
from ci_bench.suites.contract import Stage, Suite
from ci_bench.suites.registry import INHERIT


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """Request to the suite at `target` (``package.module:NAME``).

    It is for a plan of `entry`, or only for the suite's description (`None`).
    """

    target: str
    entry: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCase:
    """A case with its stages, and whether preparing it may have to download."""

    case: Case
    stages: tuple[Stage, ...]
    needs_network: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanAnswer:
    """Description of the suite, and its cases."""

    worker: str
    """Import path of the worker's module."""
    preload: tuple[str, ...] = ()
    """Modules that the process behind a launch imports once."""
    options_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON Schema of one entry."""
    cases: tuple[PlannedCase, ...] = ()
    """The planned cases; empty if only the description was requested."""
    fault: str | None = None
    """The error that the suite reports in the entry; `None` without one."""
    absent: bool = False
    """True if the tree only lacks the suite."""


def answer(request: PlanRequest) -> PlanAnswer:
    """Import the suite and ask it.

    The caller reports its exceptions, except `BadConfig`.
    """
    module, _, attribute = request.target.partition(":")
    suite = getattr(import_module(module), attribute)
    if not isinstance(suite, Suite):
        raise TypeError(f"{request.target} is not a Suite; {INHERIT}")
    about = PlanAnswer(
        worker=suite.worker, preload=tuple(suite.preload), options_schema=dict(suite.options_schema)
    )
    if request.entry is None:
        return about
    try:
        planned = suite.plan(request.entry)
    except BadConfig as error:
        return replace(about, fault=str(error), absent=isinstance(error, NothingInTree))
    return replace(about, cases=tuple(_planned(suite, case) for case in planned))


def _planned(suite: Suite, case: Case) -> PlannedCase:
    return PlannedCase(
        case=case, stages=tuple(suite.stages(case)), needs_network=suite.needs_network(case)
    )


def main(request_file: Path, answer_file: Path) -> None:
    """Read a request from one file and write the answer to another."""
    import msgspec

    request = msgspec.json.decode(request_file.read_bytes(), type=PlanRequest)
    answer_file.write_bytes(msgspec.json.encode(answer(request)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
