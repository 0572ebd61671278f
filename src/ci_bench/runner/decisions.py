"""Types of the decisions that measuring asks for, and the defaults that decide nothing.

The judge decides on launches, stages and arms; the host on machines and protected files.
"""

from collections.abc import Callable, Mapping, Sequence

from ci_bench.records.open_cases import OpenCase
from ci_bench.records.results import CaseResult, Environment, SideName
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.turns import NoWatch, Watch

Measured = Mapping[SideName, tuple[Environment, Ledger]]
"""The state of each side. The environment is empty until a worker has looked at the machine."""

Record = Callable[[SideName, Environment, Ledger], None]
StillOpen = Callable[[int, Measured], Mapping[str, OpenCase]]
"""The judge's decision after this many launches: cases that need another, with their metrics."""
Asks = Callable[[CaseResult, CaseResult], bool]
"""The judge's decision on a conditional stage for base and head, or for the only remaining side."""
ToExplain = Callable[[Measured], Mapping[str, Sequence[str]]]
"""The judge's decision: the cases, by id, with the arms to explain, the most important first."""
Inspect = Callable[[bool], tuple[str, ...]]
"""Changes to protected files. After a launch only quickly inspected files are checked; in the end
(true) all of them.
"""


def intact(_everything: bool) -> tuple[str, ...]:  # noqa: FBT001 - the contract's signature
    """Report no change: the sides cannot reach each other, or are the same."""
    return ()


def no_refusal(_environment: Environment) -> str:
    """Refuse no machine."""
    return ""


def no_watch(_environment: Environment) -> Watch:
    """Watch nothing: the machine needs no watching."""
    return NoWatch()
