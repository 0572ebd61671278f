"""The answer for one line, and what a rule says of all of them together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ci_bench.judge.cases.lines import Key
from ci_bench.records.comparison import CommonShift, Interval, Pairing, SpeedupChange, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The word for one metric of one arm and why; the figures are those of `Pair`."""

    verdict: Verdict
    reason: str
    speedup: float | None = None
    interval: Interval | None = None
    calibrated: bool | None = None
    noise: float | None = None
    resolvable: float | None = None
    q: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The outcomes of lines, in their order, and what was seen over all of them.

    `changes` tells by case, then by metric and arm, whether head changed the speedup of that arm.
    """

    outcomes: tuple[Outcome, ...]
    shifts: tuple[CommonShift, ...] = ()
    pairing: Pairing | None = None
    changes: Mapping[str, Mapping[Key, SpeedupChange]] = field(default_factory=dict)
