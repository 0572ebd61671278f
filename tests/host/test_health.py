"""When samples are taken again: throttling, heat, strangers on the GPU, uneven clocks.

What is unknown taints nothing.
"""

import dataclasses
import itertools
from dataclasses import replace
from types import ModuleType

import pytest
from mutants import plant

from ci_bench.host import health
from ci_bench.host.gpus.protocol import ClockCause, Reason
from ci_bench.host.health import HealthReading, condition_facts, taint, uneven_clocks
from ci_bench.records.results import SideName

OURS, STRANGER = 4000, 9999
OWN = frozenset({OURS})
CALM = HealthReading(at_s=0.0, reasons=(), thermal_s=5.0, pids=OWN)
LATER = replace(CALM, at_s=10.0)
BRAKE, HOT, CAPPED, IDLING, SET = (
    Reason(cause=cause, word=word)
    for cause, word in (
        (ClockCause.HARDWARE, "power_brake"),
        (ClockCause.THERMAL, "too_hot"),
        (ClockCause.POWER_CAP, "power_limit"),
        (ClockCause.IDLE, "no_work"),
        (ClockCause.OTHER, "fixed_clocks"),
    )
)
SLOWED, IDLE = (HOT,), (IDLING,)


def held(*reasons: Reason) -> HealthReading:
    return replace(LATER, reasons=reasons)


def hot(seconds: float) -> HealthReading:
    return replace(LATER, thermal_s=5.0 + seconds)


def there(*pids: int) -> HealthReading:
    return replace(LATER, pids=frozenset(pids))


TAINTS = {
    "nothing": (CALM, LATER, OWN, False),
    "by hardware": (CALM, held(BRAKE), OWN, True),
    "by heat": (CALM, held(HOT), OWN, True),
    "by a power cap": (CALM, held(CAPPED), OWN, False),
    "by anything else": (CALM, held(SET), OWN, False),
    "a harmful word of another cause": (CALM, held(replace(SET, word="thermal")), OWN, False),
    "idle": (CALM, held(IDLING, SET), OWN, False),
    "slowed before": (replace(CALM, reasons=SLOWED), LATER, OWN, True),
    "slowed and capped": (CALM, held(CAPPED, *SLOWED), OWN, True),
    "slowed, ours unknown": (CALM, held(*SLOWED), None, True),
    "no heat": (CALM, hot(0.0), OWN, False),
    "less than a hundredth of the time": (CALM, hot(0.09), OWN, False),
    "more than a hundredth of the time": (CALM, hot(0.11), OWN, True),
    "a counter that began anew": (CALM, hot(-1.0), OWN, False),
    "a counter and no time": (LATER, hot(1.0), OWN, False),
    "a stranger": (CALM, there(OURS, STRANGER), OWN, True),
    "a stranger who has left": (replace(CALM, pids=frozenset({OURS, STRANGER})), LATER, OWN, True),
    "a stranger, ours unknown": (CALM, there(OURS, STRANGER), None, False),
    "one of ours ended": (CALM, there(), OWN, False),
    "the list is unknown": (CALM, replace(LATER, pids=None), OWN, False),
    "a stranger before the list is unknown": (
        replace(CALM, pids=frozenset({STRANGER})),
        replace(LATER, pids=None),
        OWN,
        True,
    ),
}


def busy(*clocks: int | None, reasons: tuple[Reason, ...] | None = ()) -> list[HealthReading]:
    return [HealthReading(at_s=0, sm_mhz=mhz, reasons=reasons) for mhz in clocks]


BASE, HEAD, OTHER = (SideName.BASE, 0), (SideName.HEAD, 0), (SideName.HEAD, 1)
UNEVEN = {
    "the same": ({BASE: busy(1980, 1980), HEAD: busy(1980, 1980)}, False),
    "one and a half per cent": ({BASE: busy(1980), HEAD: busy(1950)}, False),
    "two and a half per cent": ({BASE: busy(1980), HEAD: busy(1930)}, True),
    "the same mean": ({BASE: busy(1700, 1980), HEAD: busy(1980, 1700)}, False),
    "one turn of two": ({BASE: busy(1980, 1980), HEAD: busy(1980, 1800)}, True),
    "another arm": (
        {BASE: busy(1980), HEAD: busy(1970), (SideName.BASE, 1): busy(1755), OTHER: busy(1755)},
        False,
    ),
    "the second arm": (
        {BASE: busy(1980), HEAD: busy(1980), (SideName.BASE, 1): busy(1755), OTHER: busy(1500)},
        True,
    ),
    "the second arm, the first unknown": (
        {BASE: busy(None), HEAD: busy(1980), (SideName.BASE, 1): busy(1755), OTHER: busy(1500)},
        True,
    ),
    "memory": (
        {
            BASE: [HealthReading(at_s=0, memory_mhz=2619, reasons=())],
            HEAD: [HealthReading(at_s=0, memory_mhz=1593, reasons=())],
        },
        True,
    ),
    "unknown": ({BASE: busy(None), HEAD: busy(None)}, False),
    "one unknown": ({BASE: busy(None), HEAD: busy(1500)}, False),
    "one of two turns unknown": ({BASE: busy(1980, None), HEAD: busy(1500)}, True),
    "gone idle": ({BASE: busy(1980), HEAD: busy(345, reasons=IDLE)}, False),
    "gone idle after one of two turns": (
        {BASE: busy(1980), HEAD: [*busy(1980), *busy(345, reasons=IDLE)]},
        False,
    ),
    "may have gone idle": ({BASE: busy(1980), HEAD: busy(345, reasons=None)}, False),
    "slow while capped": ({BASE: busy(1980), HEAD: busy(1500, reasons=(CAPPED,))}, False),
    "slow while clocks are set": ({BASE: busy(1980), HEAD: busy(1500, reasons=(SET,))}, True),
    "another arm capped": (
        {BASE: busy(1980), HEAD: busy(1500), OTHER: busy(1500, reasons=(CAPPED,))},
        True,
    ),
    "no turn": ({BASE: [], HEAD: busy(1500)}, False),
    "one side": ({BASE: busy(1980)}, False),
    "no side": ({}, False),
}


@pytest.mark.parametrize("name", TAINTS)
def test_what_taints(name: str) -> None:
    before, after, own, tainted = TAINTS[name]
    assert (taint(before, after, own) is not None) is tainted


@pytest.mark.parametrize("name", UNEVEN)
def test_how_far_the_clocks_of_base_and_head_may_be_apart_under_one_arm(name: str) -> None:
    readings, uneven = UNEVEN[name]
    assert (uneven_clocks(readings) is not None) is uneven


DEFECTS = {
    "overlooks a slowdown by hardware": ("(ClockCause.HARDWARE, ClockCause.THERMAL)", "(ClockCause.THERMAL,)"),
    "overlooks heat": ("(ClockCause.HARDWARE, ClockCause.THERMAL)", "(ClockCause.HARDWARE,)"),
    "takes a power cap for harm": ("HARMFUL = (", "HARMFUL = (ClockCause.POWER_CAP, "),
    "takes everything else for harm": ("HARMFUL = (", "HARMFUL = (ClockCause.OTHER, "),
    "goes by the word": ("if reason.cause is cause]", "if reason.word == cause]"),
    "looks only after": ("(*(before.reasons or ()), *(after.reasons or ()))", "(*(after.reasons or ()),)"),
    "looks only before": ("(*(before.reasons or ()), *(after.reasons or ()))", "(*(before.reasons or ()),)"),
    "overlooks heat in between": ("hot > THERMAL_SHARE", "False"),
    "takes any heat for harm": ("THERMAL_SHARE = 0.01", "THERMAL_SHARE = 0.0"),
    "takes everybody for a stranger": ("| (after.pids or frozenset())) - residents", "| (after.pids or frozenset()))"),
    "looks for strangers only before": (" | (after.pids or frozenset())) - residents", ") - residents"),
    "looks for strangers only after": ("((before.pids or frozenset()) | (", "(("),
    "counts strangers where ours are unknown": ("    if residents is not None:", "    residents = residents or frozenset()\n    if True:"),
    "takes any difference": ("UNEVEN_CLOCKS = 0.02", "UNEVEN_CLOCKS = 0.0"),
    "takes no difference": ("UNEVEN_CLOCKS = 0.02", "UNEVEN_CLOCKS = 2.0"),
    "counts idle clocks": (" if not _is(ClockCause.IDLE, reading.reasons)", ""),
    "compares arms": ("if of == arm}", "}"),
    "overlooks the power cap": ("_is(ClockCause.POWER_CAP, reading.reasons)", "False"),
    "counts clocks that may be idle": ("for reading in readings if reading.reasons is not None]", "for reading in readings]"),
    "overlooks the memory": (', ("memory clock", "memory_mhz")', ","),
    "takes the last turn for all": ("sum(clocks) / len(clocks)", "clocks[-1]"),
    "takes no turn for even": ("if len(means) < len(by_side):", "if False:"),
}  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_seen(defect: str, tmp_path) -> None:
    mutant = plant(health, tmp_path, *DEFECTS[defect])
    wrong = [
        name
        for name, (*given, tainted) in TAINTS.items()
        if _said(mutant, "taint", *given) is not tainted
    ]
    wrong += [
        name
        for name, (readings, uneven) in UNEVEN.items()
        if _said(mutant, "uneven_clocks", readings) is not uneven
    ]
    assert wrong


def _said(module: ModuleType, judge: str, *given: object) -> bool | None:
    try:
        return getattr(module, judge)(*given) is not None
    except (ValueError, TypeError):
        return None


def test_all_reasons_are_told() -> None:
    before = replace(CALM, reasons=(CAPPED, HOT))
    after = replace(
        LATER, reasons=(BRAKE, HOT), pids=frozenset({OURS, *range(9990, 9997)}), thermal_s=6.0
    )
    assert taint(before, after, OWN) == (
        "the GPU was slowed down (power_brake, too_hot); heat kept the GPU's clocks down for 10% of the time; "
        "7 processes (9990, 9991, 9992, 9993, 9994, …) of others started using the GPU"
    )
    assert taint(CALM, there(STRANGER), OWN) == "1 process (9999) of others started using the GPU"
    assert uneven_clocks({BASE: busy(1980), HEAD: busy(1800)}) == (
        "the SM clock of arm 0 was 1980 MHz under base, 1800 MHz under head"
    )


FIELDS = tuple(field.name for field in dataclasses.fields(HealthReading) if field.name != "at_s")


@pytest.mark.parametrize("unknown", [*((name,) for name in FIELDS), FIELDS], ids="+".join)
def test_what_is_unknown_taints_nothing(unknown: tuple[str, ...]) -> None:
    blank = dict.fromkeys(unknown)
    first = replace(CALM, sm_mhz=1980, memory_mhz=2619)
    second = replace(first, at_s=10.0)
    for before, after in itertools.product(
        (first, replace(first, **blank)), (second, replace(second, **blank))
    ):
        assert taint(before, after, OWN) is None
        assert taint(before, after, None) is None
        assert uneven_clocks({BASE: [before], HEAD: [after]}) is None
        assert None not in condition_facts(after, since=before).values()


def test_facts_of_a_reading_and_of_what_lies_before_it() -> None:
    before = HealthReading(
        at_s=100.0,
        thermal_s=1.0,
        ticks=1000,
        stolen_ticks=10,
        throttled_s=2.0,
        involuntary_switches=5,
        pids=frozenset(),
    )
    after = HealthReading(
        at_s=110.0,
        sm_mhz=1980,
        memory_mhz=2619,
        power_w=412.345,
        temperature_c=61,
        reasons=(CAPPED, SET),
        thermal_s=1.5,
        pids=frozenset({1, 2}),
        load_1min=1.25,
        cpu_mhz=2999.6,
        ticks=3000,
        stolen_ticks=110,
        throttled_s=3.0,
        involuntary_switches=12,
    )
    alone = {
        "gpu_sm_mhz": 1980, "gpu_memory_mhz": 2619, "gpu_power_w": 412.3, "gpu_temperature_c": 61,
        "gpu_held_back_by": "power_limit, fixed_clocks", "gpu_processes": 2, "load_1min": 1.25, "cpu_mhz": 3000.0,
    }  # fmt: skip
    assert condition_facts(after) == alone
    assert condition_facts(after, since=before) == alone | {
        "gpu_thermal_share": 0.05, "cpu_steal_share": 0.05, "cpu_throttled_share": 0.1, "involuntary_switches": 7,
    }  # fmt: skip
    assert condition_facts(replace(after, reasons=()))["gpu_held_back_by"] == "nothing"
    assert condition_facts(HealthReading(at_s=1.0)) == {}
