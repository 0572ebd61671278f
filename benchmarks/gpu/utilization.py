"""Watch the first GPU while a command runs: utilization, clocks, power, memory and processes.

Run as ``python -m benchmarks.gpu.utilization FILE -- COMMAND``. FILE gets a look every 0.2 s, and
their sums. The exit code is the command's.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LOOK_S = 0.2
Look = dict[str, float]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, look meanwhile, write."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--")
    ended = threading.Event()
    looks: list[Look] = []
    trouble: list[str] = []
    thread = threading.Thread(target=_watch, args=(ended, looks, trouble))
    begun = time.monotonic()
    thread.start()
    try:
        code = subprocess.call(words[split + 1 :])
    finally:
        ended.set()
        thread.join()
    document = summarize(looks) | {
        "seconds": round(time.monotonic() - begun, 2),
        "code": code,
        "trouble": trouble[:3],
        "every": looks,
    }
    Path(words[0]).write_text(json.dumps(document), encoding="utf-8")
    return code


def summarize(looks: Sequence[Look]) -> dict[str, object]:
    """Return means and sums of the looks; unknown values are None."""
    busy = [look["busy"] for look in looks if "busy" in look]
    joules = [look["joules"] for look in looks if "joules" in look]
    return {
        "looks": len(looks),
        "busy_mean": sum(busy) / len(busy) if busy else None,
        "idle_share": busy.count(0) / len(busy) if busy else None,
        "joules": joules[-1] - joules[0] if joules else None,
        "most_bytes": max((look["bytes"] for look in looks if "bytes" in look), default=None),
    }


def _watch(ended: threading.Event, looks: list[Look], trouble: list[str]) -> None:
    try:
        questions = _questions()
    except Exception as error:  # noqa: BLE001 - without a driver there are no looks
        trouble.append(repr(error))
        return
    begun = time.monotonic()
    while not ended.wait(LOOK_S):
        look = {"at": round(time.monotonic() - begun, 2)}
        for name, ask in questions.items():
            try:
                look[name] = float(ask())
            except Exception as error:  # noqa: BLE001 - unknown values are left out
                if len(trouble) < len(questions):
                    trouble.append(f"{name}: {error!r}")
        looks.append(look)


def _questions() -> Mapping[str, Callable[[], float]]:
    import pynvml as nvml

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    return {
        "busy": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        "mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "watts": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
        "joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
        "bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
        "pids": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
    }


if __name__ == "__main__":
    sys.exit(main())
