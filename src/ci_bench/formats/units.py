"""Units as tools write them, in terms of those that results know."""

import re
from dataclasses import dataclass

from ci_bench.records.results import Better, Unit

_WORDS = {
    "sec": 1.0,
    "second": 1.0,
    "msec": 1e-3,
    "millisecond": 1e-3,
    "usec": 1e-6,
    "microsecond": 1e-6,
    "nsec": 1e-9,
    "nanosecond": 1e-9,
    "min": 60.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
}
_SECONDS = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "ps": 1e-12,
    "fs": 1e-15,
    "h": 3600.0,
    **_WORDS,
    **{f"{name}s": s for name, s in _WORDS.items()},
}
_JOULES = {"j": 1.0, "joule": 1.0, "joules": 1.0, "kj": 1e3, "wh": 3600.0, "kwh": 3.6e6}
_THOUSANDS = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "t": 1e12,
    "kilo": 1e3,
    "mega": 1e6,
    "giga": 1e9,
    "tera": 1e12,
}
_POWERS = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40}
_BYTES = re.compile(r"(|k|m|g|t|ki|mi|gi|ti|kilo|mega|giga|tera)(b|bytes?)")
_RATES = re.compile(r"(|k|m|g|t)(hz|flops|ops|iops|ips|qps|rps|tps|fps|l?ups|teps)")
_WORK = re.compile(
    r"(?:(|k|m|g|t) ?(?:flop|op|elem|element|it|iter|iteration|item|tok|token|word|sample|example"
    r"|sequence|sentence|step|timestep|batch|batche|image|img|pixel|frame|row|line|file|record|rec"
    r"|req|request|query|querie|lookup|call|inference|prompt|message|msg|event|transaction|update"
    r"|point|edge|node|epoch)s?|1)"
)
"""Numerators of rates that are better higher. The direction of errors and others is unknown."""
_SIMULATED = re.compile(r"(?:fs|ps|ns|us|ms)\s*(?:/|\bper\b)\s*day")
"""Simulated time per day, better higher. GROMACS and OpenMM report it."""
_EACH = re.compile(r"(?<=\S)(?:\s*/\s*|[ _-]per[ _-])(?:gpu|device|chip|rank|node|user)$")
_RATIO = re.compile(r"(.+?)\s*(?:/|\bper\b)\s*(.+)")


@dataclass(frozen=True, slots=True)
class Measured:
    """Meaning of a unit: numbers times `scale` are numbers of `unit`."""

    unit: Unit
    scale: float


def interpret(text: str) -> Measured:
    """Interpret a unit as tools write it: ``ns/iter``, ``MiB``, ``tokens/s``, ``TFLOPS``.

    Per call, iteration or token changes nothing. Anything except a time, a rate, memory or energy
    is a plain number, a count.
    """
    name = _normalise(text)
    if (ratio := _RATIO.fullmatch(name)) is not None:
        return _interpret_ratio(_normalise(ratio[1]), _normalise(ratio[2]))
    if (scale := _SECONDS.get(name)) is not None:
        return Measured(Unit.SECONDS, scale)
    if (scale := _JOULES.get(name)) is not None:
        return Measured(Unit.JOULES, scale)
    if (scale := _bytes(name)) is not None:
        return Measured(Unit.BYTES, scale)
    if (rate := _RATES.fullmatch(name)) is not None:
        return Measured(Unit.PER_SECOND, _THOUSANDS[rate[1]])
    return Measured(Unit.COUNT, 1.0)


_DIRECTIONS = {
    Unit.SECONDS: Better.LOWER,
    Unit.BYTES: Better.LOWER,
    Unit.JOULES: Better.LOWER,
}


def direction(unit: str) -> Better | None:
    """Return the better direction, if the unit determines it.

    Time, memory and energy are better lower, rates of work higher.

    Of other rates nothing is known: there are errors per second.
    """
    measured = interpret(unit)
    if measured.unit is not Unit.PER_SECOND:
        return _DIRECTIONS.get(measured.unit)
    return Better.HIGHER if is_convertible(unit) else None


def is_convertible(unit: str) -> bool:
    """Return whether a number of this unit can be converted to any other unit of its kind.

    The relation of ``W`` and ``mW``, or of ``foo/s`` and ``kfoo/s``, is unknown.
    """
    measured = interpret(unit).unit
    ratio = _RATIO.fullmatch(name := _normalise(unit))
    if measured is Unit.COUNT or ratio is None or measured is not Unit.PER_SECOND:
        return measured is not Unit.COUNT
    return bool(
        _SIMULATED.fullmatch(name) or _WORK.fullmatch(ratio[1]) or _bytes(_normalise(ratio[1]))
    )


_IN_BRACKETS, _RATE = (
    re.compile(r".*\(([^()]+)\)"),
    re.compile(
        r"(?:.*[ _-])?([a-z]+)(?:[ _-]per[ _-]| ?/ ?)(s|ms|us|ns|sec|second|min|minute|day)s?"
    ),
)
_ENDING = re.compile(
    r"(?:.*[ _-])?(ms|us|ns|secs?|seconds|gbps|[tg]flops|qps|rps)|.*(?:latency|time|duration)_(s)"
)
_MEMORY = re.compile(r".*(?:peak|max|(?<!un)used|usage|alloc|reserved).*[ _]([kmg]i?b|bytes)")
_THROUGHPUT = re.compile(r"(?:.*[ _])?throughput")


def unit_in(name: str) -> str:
    """Return the unit that a metric's name ends with.

    Such names are ``load_time(ms)``, ``token_per_sec``, ``mean_ttft_ms``.
    """
    if (brackets := _IN_BRACKETS.fullmatch(name)) is not None:
        return brackets[1]
    lower = _EACH.sub("", name.lower())
    if (rate := _RATE.fullmatch(lower)) is not None:
        return f"{rate[1]}/{'s' if rate[2].startswith('s') else rate[2]}"
    if (ending := _ENDING.fullmatch(lower) or _MEMORY.fullmatch(lower)) is not None:
        unit = next(filter(None, ending.groups()))
        return "GB/s" if unit == "gbps" else unit
    return "1/s" if _THROUGHPUT.fullmatch(lower) else ""


def direction_of(name: str, unit: str) -> Better | None:
    """Return the better direction of a metric by its unit, or by its name.

    Fewer instructions are better, and a larger speedup.
    """
    if name.endswith("instruction_count"):
        return Better.LOWER
    return Better.HIGHER if name.lower().endswith("speedup") else direction(unit)


def _interpret_ratio(above: str, below: str) -> Measured:
    if (seconds := _SECONDS.get(below)) is not None:
        work = _WORK.fullmatch(above)
        amount = _bytes(above) or _THOUSANDS[(work and work[1]) or ""]
        if _SIMULATED.fullmatch(f"{above}/{below}"):
            amount = _SECONDS[above] / _SECONDS["ns"]
        return Measured(Unit.PER_SECOND, amount / seconds)
    if (scale := _SECONDS.get(above)) is not None:
        return Measured(Unit.SECONDS, scale)
    if (scale := _JOULES.get(above)) is not None:
        return Measured(Unit.JOULES, scale)
    if (size := _bytes(above)) is not None:
        return Measured(Unit.BYTES, size)
    return Measured(Unit.COUNT, 1.0)


def _normalise(text: str) -> str:
    """Normalise the code point of the micro sign, and letter case: megaseconds do not occur.

    A suffix such as ``per GPU`` is removed.
    """
    name = text.strip().lower().replace("\N{MICRO SIGN}", "u")
    return _EACH.sub("", name.replace("\N{GREEK SMALL LETTER MU}", "u"))


def _bytes(name: str) -> float | None:
    match = _BYTES.fullmatch(name)
    return None if match is None else (_POWERS.get(match[1]) or _THOUSANDS[match[1]])
