"""The words and figures of reasons and headlines. Owns no decision."""

import math
from functools import lru_cache

from ci_bench.records.comparison import Interval, Pair
from ci_bench.records.results import Better, Unit
from ci_bench.records.units import TIMES, UNITS, relative_change, worse_and_better

_MIB = 1024**2
_WHOLE, _PLAIN = 1.0, 1e6
_MINUTE_S, _HOUR_S = 60.0, 3600.0
_MOST_SPEEDUP = 1_000_000
"""The largest speedup that is written out."""


def percent(share: float) -> str:
    """Format a share: 0.123 is ``12.3 %``."""
    value = 100 * abs(share)
    if value > _MOST_SPEEDUP:
        return f"over {_MOST_SPEEDUP:,} %"
    if value < _WHOLE:
        return f"{value:.2g} %"
    text = f"{value:.1f}".removesuffix(".0") if value < _PLAIN else f"{value:.3g}"
    return f"{text} %"


def quantity(value: float, unit: Unit) -> str:
    """Format a value with its unit, in a readable size."""
    match unit:
        case Unit.SECONDS:
            return f"{value:.4g} s" if value >= 1 else f"{1000 * value:.4g} ms"
        case Unit.BYTES:
            return f"{value / _MIB:.4g} MiB" if value >= _MIB else f"{value:.0f} bytes"
        case Unit.COUNT:
            return f"{value:.6g}"
        case Unit.PER_SECOND:
            return f"{value:.4g}/s"
        case _:
            size, name = next(
                ((size, name) for size, name in UNITS[unit].sizes if value >= size),
                UNITS[unit].sizes[-1],
            )
            return f"{value / size:.4g} {name}"


def duration(seconds: float) -> str:
    """Format a duration for people: ``40 seconds``, ``4 minutes``, ``1.5 hours``."""
    if seconds < _MINUTE_S:
        return count_of(max(1, round(seconds)), "second")
    if seconds < _HOUR_S:
        return count_of(round(seconds / _MINUTE_S), "minute")
    return f"{seconds / _HOUR_S:.2g} hours"


def change(speedup: float, unit: Unit, better: Better) -> str:
    """Describe head's change from base: ``12 % slower``, ``3.1 % less``, ``0.54 % higher``."""
    if speedup == 1:
        return "no change"
    relative = speedup - 1 if better is Better.HIGHER else 1 / speedup - 1
    return f"{relative_change(relative)} {worse_and_better(unit, better)[speedup > 1]}"


def interval_text(interval: Interval) -> str:
    """Format an interval of a speedup with its level."""
    high = f"{interval.high:.3f}" if interval.high < _MOST_SPEEDUP else f"over {_MOST_SPEEDUP:,}"
    return f"{_level(interval.level)} interval {interval.low:.3f} to {high}"


@lru_cache(maxsize=100)
def _level(level: float) -> str:
    return percent(level)


def doubt(*, suspected: bool, possible: bool) -> str:
    """Describe an undecided change for the worse, as the beginning of a clause.

    Empty without doubt.
    """
    if suspected:
        return "more than noise explains, but too few launches to be certain: "
    return (
        "it may be worse, by more than the threshold and two standard errors: " if possible else ""
    )


def shortened(text: str, most: int) -> str:
    """Shorten the text to the first words that fit `most` characters, with an ellipsis."""
    if len(text) <= most:
        return text
    words, space, _ = text[:most].rpartition(" ")
    return f"{(words if space else text[: most - 1]).rstrip(' ,;:(')}…"


def count_of(number: int, noun: str) -> str:
    """Return ``1 case`` or ``3 cases``; nouns in -ch take -es."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def place(pair: Pair) -> str:
    """Return the name of a pair: ``eager step time``."""
    return f"{pair.arm} {pair.title or pair.metric}"


def change_size(pair: Pair) -> float:
    """Return the size of a change, either way, as a logarithm.

    Infinite if it starts or ends at zero.
    """
    if pair.speedup is not None:
        return abs(math.log(pair.speedup))
    differs = (
        pair.base is not None and pair.head is not None and pair.base.figure != pair.head.figure
    )
    return math.inf if differs else 0.0


def effect_rank(pair: Pair) -> int:
    """Order the changes of one kind: times first, then bytes, then counts and everything else."""
    return 0 if pair.unit in TIMES else 1 if pair.unit is Unit.BYTES else 2
