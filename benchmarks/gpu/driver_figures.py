"""Figures of the driver: answers and their cost, clocks, the counter of energy."""

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.gpu.measuring import (
    MILLISECONDS,
    Call,
    Finding,
    Trial,
    load_torch,
    products,
    quantiles,
    time_each,
    uuid_of,
)
from ci_bench.host.energy import EnergyCount, Uncountable, mean_power_w
from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import Gpu
from ci_bench.host.health import HealthReading, Seat, uneven_clocks
from ci_bench.host.monitor import open_monitor
from ci_bench.records.results import SideName

LONG_PAUSE_S = 0.1
TURN_S, LONG_TURN_S = 0.02, 0.5
BLOCKS = 25


def measure_questions(trial: Trial) -> Finding:
    """Ask the driver each question: its answer, its cost, and the clocks after idling."""
    torch = load_torch(trial)
    uuid = uuid_of(torch, trial)
    gpu = vendors.open_gpu(uuid)
    call = products(torch, trial)
    for _ in range(50):
        call()
    torch.cuda.synchronize()
    questions = {
        "sm_mhz": gpu.sm_mhz,
        "memory_mhz": gpu.memory_mhz,
        "reasons": gpu.reasons,
        "power_w": gpu.power_w,
        "power_limit_w": gpu.power_limit_w,
        "energy_j": gpu.energy_j,
        "temperature_c": gpu.temperature_c,
        "ecc": gpu.ecc,
        "thermal_s": gpu.thermal_s,
        "pids": gpu.pids,
        "bytes_by_pid": gpu.bytes_by_pid,
    }
    values: dict[str, object] = {name: str(ask())[:120] for name, ask in questions.items()}
    values |= {f"{name} us": quantiles(time_each(ask, 40)) for name, ask in questions.items()}
    monitor = open_monitor(trial.device, uuid)
    glance, read = quantiles(time_each(monitor.glance, 60)), quantiles(time_each(monitor.read, 30))
    is_listed = os.getpid() in (gpu.pids() or ())
    values |= {"glance us": glance, "read us": read, "own pid listed": is_listed}
    values |= {"notes": list(monitor.notes), **_after_idling(torch, gpu, call)}
    costs = f"glance {glance['p50']:.0f} us, read {read['p50']:.0f} us"
    return Finding(values=values, summary=f"{costs}, own pid listed: {is_listed}")


def _after_idling(torch: Any, gpu: Gpu, call: Call) -> dict[str, object]:
    clocks: dict[str, object] = {}
    for pause_s in (0, 0.001, 0.01, 0.1, 0.5, 2):
        for _ in range(20):
            call()
        torch.cuda.synchronize()
        time.sleep(pause_s)
        words = [reason.word for reason in gpu.reasons() or ()]
        clocks[f"after {pause_s} s idle"] = [gpu.sm_mhz(), gpu.memory_mhz(), words]
    return clocks


def measure_energy(trial: Trial) -> Finding:
    """Compare the counter's power with the driver's reading, idle and under load."""
    torch = load_torch(trial)
    gpu = vendors.open_gpu(uuid_of(torch, trial))
    call = products(torch, trial, size=4096, count=2)

    def work() -> None:
        call()
        torch.cuda.synchronize()

    seconds = float(trial.size(3, 1))
    idle = _energy_of(gpu, lambda: time.sleep(0.005), seconds)
    busy = _energy_of(gpu, work, seconds)
    counted, read = busy["watts by the counter"], busy["watts by the driver"]
    period = busy["period ms"]
    summary = f"{counted} W by the counter, {read} W by the driver; moves every {period} ms"
    return Finding(values={"idle": idle, "products": busy}, summary=summary)


def _energy_of(gpu: Gpu, call: Call, seconds: float) -> Mapping[str, object]:
    counts: list[EnergyCount] = []
    watts, moves = [], []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        call()
        now, joules = time.perf_counter(), gpu.energy_j()
        if counts and joules != counts[-1].joules:
            moves.append(now)
        counts.append(EnergyCount(at_s=now, joules=joules))
        watts.append(gpu.power_w() or 0.0)
    periods = [later - earlier for earlier, later in pairwise(moves)]
    try:
        counted: float | str = round(mean_power_w(counts), 1)
    except Uncountable as reason:
        counted = str(reason)
    return {
        "watts by the counter": counted,
        "watts by the driver": round(statistics.mean(watts[len(watts) // 2 :]), 1),
        "period ms": quantiles(periods, MILLISECONDS)["p50"] if periods else None,
    }


def measure_ramp(trial: Trial) -> Finding:
    """Time a fixed amount of work after pauses of different lengths."""
    torch = load_torch(trial)
    call = products(torch, trial, count=5)

    def work() -> None:
        call()
        torch.cuda.synchronize()

    for _ in range(200):
        call()
    by_pause: dict[float, dict[str, float]] = {}
    for pause_s in (0, 0.0005, 0.002, 0.01, 0.05, 0.2, 1.0):
        first: list[float] = []
        for _ in range(20 if pause_s < LONG_PAUSE_S else 4):
            torch.cuda.synchronize()
            time.sleep(pause_s)
            first += time_each(work, 1)
        by_pause[pause_s] = quantiles(first)
    values = {f"us after {pause_s} s": times for pause_s, times in by_pause.items()}
    medians = ", ".join(f"{pause_s} s {times['p50']:.0f}" for pause_s, times in by_pause.items())
    return Finding(values=values, summary=f"after a pause of {medians} us")


def measure_clocks_by_arm(trial: Trial) -> Finding:
    """Read the clocks after turns of different arms, as a gate does, and judge each block."""
    torch = load_torch(trial)
    monitor = open_monitor(trial.device, uuid_of(torch, trial))
    arms = _arms(torch, trial)

    def turn(call: Call, seconds: float = TURN_S) -> HealthReading:
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            call()
            torch.cuda.synchronize()
        return monitor.glance()

    for call in arms.values():
        turn(call, LONG_TURN_S)
    by_arm: dict[str, list[HealthReading]] = {name: [] for name in arms}
    uneven = 0
    for _ in range(BLOCKS):
        block: dict[Seat, list[HealthReading]] = {}
        for side in (SideName.BASE, SideName.HEAD, SideName.HEAD, SideName.BASE):
            for place, (name, call) in enumerate(arms.items()):
                reading = turn(call)
                by_arm[name].append(reading)
                block.setdefault((side, place), []).append(reading)
        uneven += uneven_clocks(block) is not None
    values: dict[str, object] = {name: _clocks(readings) for name, readings in by_arm.items()}
    long_turns = [turn(arms["products"], LONG_TURN_S) for _ in range(6)]
    values["half a second of products"] = [_clocks([reading]) for reading in long_turns]
    clocks = "; ".join(f"{name} {values[name]}" for name in arms)
    summary = f"{clocks}; {uneven} of {BLOCKS} blocks uneven"
    return Finding(values=values | {"uneven blocks": uneven}, summary=summary)


def _arms(torch: Any, trial: Trial) -> Mapping[str, Call]:
    copied = torch.randn(trial.size(64 << 20, 1 << 10), device=trial.device)
    tiny = torch.ones(16, device=trial.device)
    return {
        "products": products(torch, trial, size=8192, count=2),
        "copies": lambda: [copied.mul_(1.0) for _ in range(10)],
        "tiny": lambda: [tiny.add_(0.0) for _ in range(500)],
    }


def _clocks(readings: Sequence[HealthReading]) -> Mapping[str, object]:
    clocks = [float(reading.sm_mhz) for reading in readings if reading.sm_mhz is not None]
    words = sorted({reason.word for reading in readings for reason in reading.reasons or ()})
    return {"mhz": quantiles(clocks, 1)["p50"] if clocks else None, "reasons": words}
