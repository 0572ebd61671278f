"""Judge the machine's condition while samples are taken, and decide if they must be taken again.

Defines a reading and judges it by pure functions; `monitor` does the reading. A value that could
not be read is `None`, and unknown values taint nothing. On the CPU nothing does: other work comes
and goes there all the time. Its condition is recorded, and the order of turns has to make it
harmless.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci_bench.host.gpus.protocol import ClockCause, Reason
from ci_bench.records.forms import Fact
from ci_bench.records.results import SideName

HARMFUL = (ClockCause.HARDWARE, ClockCause.THERMAL)
"""Causes of low clocks that are not a normal state.

A power cap is normal on loaded data-centre GPUs.
"""
THERMAL_SHARE = 0.01
"""The share of the time above which heat that kept the clocks down counts."""
UNEVEN_CLOCKS = 0.02
"""The largest accepted difference between mean clocks of base and head for one arm and block."""
SHOWN_PIDS = 5
Seat = tuple[SideName, int]
"""A side, and the place of one of its arms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthReading:
    """The machine at one moment; `None` is unknown, and so is all of the GPU on a CPU run.

    Counters only grow.
    """

    at_s: float
    """Time of the reading by the monotonic clock (s)."""
    sm_mhz: int | None = None
    """Clock of the multiprocessors (MHz)."""
    memory_mhz: int | None = None
    """Clock of the GPU's memory (MHz)."""
    power_w: float | None = None
    """Power of the GPU (W)."""
    temperature_c: int | None = None
    """Temperature of the GPU (°C)."""
    reasons: tuple[Reason, ...] | None = None
    """Reasons for the GPU's reduced clocks; empty if nothing holds them back."""
    thermal_s: float | None = None
    """Time for which heat has kept the clocks down (s), a counter."""
    pids: frozenset[int] | None = None
    """Processes that compute on the GPU."""
    load_1min: float | None = None
    """Load average of the last minute."""
    cpu_mhz: float | None = None
    """Mean clock of the CPUs this process may use (MHz)."""
    ticks: int | None = None
    """Time of all CPUs since boot, in the kernel's ticks, a counter."""
    stolen_ticks: int | None = None
    """The hypervisor's share of `ticks`, a counter."""
    throttled_s: float | None = None
    """Time for which a CPU quota throttled this container (s), a counter."""
    involuntary_switches: int | None = None
    """Number of times that workers were taken off a CPU, a counter."""


def taint(
    before: HealthReading, after: HealthReading, residents: frozenset[int] | None
) -> str | None:
    """Return why samples between two readings must be taken again, or `None`.

    `residents` comes from `Monitor.residents`. A reason that holds at one of the two moments
    counts, and so does heat between them.
    """
    active = dict.fromkeys((*(before.reasons or ()), *(after.reasons or ())))
    harmful = [reason.word for cause in HARMFUL for reason in active if reason.cause is cause]
    reasons = [f"the GPU was slowed down ({', '.join(harmful)})"] if harmful else []
    hot = _share(before.thermal_s, after.thermal_s, after.at_s - before.at_s)
    if hot is not None and hot > THERMAL_SHARE:
        reasons.append(f"heat kept the GPU's clocks down for {hot:.0%} of the time")
    if residents is not None:
        foreign = ((before.pids or frozenset()) | (after.pids or frozenset())) - residents
        reasons += [f"{processes(foreign)} of others started using the GPU"] if foreign else []
    return "; ".join(reasons) or None


def uneven_clocks(readings: Mapping[Seat, Sequence[HealthReading]]) -> str | None:
    """Describe a block whose sides had different clocks under the same arm, or return `None`.

    `readings` holds the readings at the end of each turn, by side and arm. Arms are never compared
    with each other: an arm that draws more power runs at a lower clock. So does a side that draws
    more, so clocks under a power cap do not show another machine. A GPU that had already gone idle
    at that moment, or may have, tells nothing about the turn and is left out.
    """
    differences = []
    for arm in dict.fromkeys(arm for _, arm in readings):
        by_side = {side: looks for (side, of), looks in readings.items() if of == arm}
        if any(
            _is(ClockCause.POWER_CAP, reading.reasons)
            for looks in by_side.values()
            for reading in looks
        ):
            continue
        for what, field in (("SM clock", "sm_mhz"), ("memory clock", "memory_mhz")):
            means = {
                side: mean
                for side, looks in by_side.items()
                if (mean := _mean_clock(looks, field)) is not None
            }
            if len(means) < len(by_side):
                continue
            low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
            if means[high] > means[low] * (1 + UNEVEN_CLOCKS):
                sides = f"{means[high]:.0f} MHz under {high}, {means[low]:.0f} MHz under {low}"
                differences.append(f"the {what} of arm {arm} was {sides}")
    return "; ".join(differences) or None


def condition_facts(
    reading: HealthReading, *, since: HealthReading | None = None
) -> dict[str, Fact]:
    """Return a reading as facts to store, without unknown values.

    With an earlier one, also shares and counts between the two.
    """
    facts: dict[str, Fact] = {
        "gpu_sm_mhz": reading.sm_mhz,
        "gpu_memory_mhz": reading.memory_mhz,
        "gpu_power_w": _rounded(reading.power_w, 1),
        "gpu_temperature_c": reading.temperature_c,
        "gpu_held_back_by": None if reading.reasons is None else spell(reading.reasons),
        "gpu_processes": None if reading.pids is None else len(reading.pids),
        "load_1min": reading.load_1min,
        "cpu_mhz": _rounded(reading.cpu_mhz, 0),
    }
    if since is not None:
        spent_s = reading.at_s - since.at_s
        facts |= {
            "gpu_thermal_share": _rounded(_share(since.thermal_s, reading.thermal_s, spent_s), 4),
            "cpu_steal_share": _rounded(
                _share(
                    since.stolen_ticks, reading.stolen_ticks, _grown(since.ticks, reading.ticks)
                ),
                4,
            ),
            "cpu_throttled_share": _rounded(
                _share(since.throttled_s, reading.throttled_s, spent_s), 4
            ),
            "involuntary_switches": _grown(
                since.involuntary_switches, reading.involuntary_switches
            ),
        }
    return {name: value for name, value in facts.items() if value is not None}


def mean_sm_hz(readings: Sequence[HealthReading]) -> float | None:
    """Return the mean clock of the multiprocessors (Hz) over looks at a GPU that was not idle.

    `None` without any.
    """
    mhz = _mean_clock(readings, "sm_mhz")
    return None if mhz is None else 1e6 * mhz


def _mean_clock(readings: Sequence[HealthReading], field: str) -> float | None:
    answered = [reading for reading in readings if reading.reasons is not None]
    values = [
        getattr(reading, field) for reading in answered if not _is(ClockCause.IDLE, reading.reasons)
    ]
    clocks = [value for value in values if value is not None]
    return sum(clocks) / len(clocks) if clocks else None


def _is(cause: ClockCause, reasons: tuple[Reason, ...] | None) -> bool:
    return any(reason.cause is cause for reason in reasons or ())


def _grown(earlier: float | None, later: float | None) -> float | None:
    """Return a counter's growth.

    One that shrank was another counter (a worker that ended), and is ignored.
    """
    return None if earlier is None or later is None or later < earlier else later - earlier


def _share(earlier: float | None, later: float | None, total: float | None) -> float | None:
    grown = _grown(earlier, later)
    return None if grown is None or not total or total < 0 else grown / total


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def spell(reasons: tuple[Reason, ...]) -> str:
    """Return the reasons that hold clocks back, as one fact, in the vendor's words."""
    return ", ".join(reason.word for reason in reasons) or "nothing"


def processes(pids: frozenset[int]) -> str:
    """Return the number of processes and their PIDs."""
    shown = ", ".join(map(str, sorted(pids)[:SHOWN_PIDS]))
    more = ", …" if len(pids) > SHOWN_PIDS else ""
    return f"{len(pids)} process{'es' if len(pids) > 1 else ''} ({shown}{more})"
