"""Looks at the machine a worker runs on: identity (may two runs be compared?) and condition (what was it like?).

Runs in a worker, since it touches the GPU. What cannot be found out is `None`.
"""

import os
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ci_bench.engine.device import torch_is_loaded
from ci_bench.records.case import Fact

Facts = dict[str, Fact]


def probe_environment(device: str) -> dict[str, Facts]:
    """Identity and condition of this machine for one device string."""
    identity, condition = _identity(), _condition()
    if torch_is_loaded():
        identity |= _torch_identity()
    if device.startswith("cuda"):
        gpu_identity, gpu_condition = _gpu(device)
        identity |= gpu_identity
        condition |= gpu_condition
    return {"identity": identity, "condition": condition}


def _identity() -> Facts:
    return {
        "device": "cpu",
        "cpu": _cpu_model(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "cpp_compiler": _cpp_compiler(),
        "image_digest": os.environ.get("CI_BENCH_IMAGE_DIGEST") or None,
    }


def _torch_identity() -> Facts:
    import torch

    return {
        "torch": str(torch.__version__),
        "torch_git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _condition() -> Facts:
    memory = _proc_fields("/proc/meminfo")
    return {
        "load_1min": round(os.getloadavg()[0], 2),
        "memory_total_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "kernel": platform.release(),
        "transformers": _version("transformers"),
        "cpu_mhz": _cpu_mhz(),
    }


def _gpu(device: str) -> tuple[Facts, Facts]:
    import torch

    index = int(device.partition(":")[2] or 0)
    properties = torch.cuda.get_device_properties(index)
    identity: Facts = {
        "device": "cuda",
        "gpu": properties.name,
        "gpu_memory_bytes": properties.total_memory,
        "gpu_multiprocessors": properties.multi_processor_count,
        "gpu_capability": f"{properties.major}.{properties.minor}",
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call] # torch leaves it unannotated
    }
    nvml_identity, condition = _nvml(str(getattr(properties, "uuid", "")))
    return identity | nvml_identity, condition


def _nvml(uuid: str) -> tuple[Facts, Facts]:
    """What NVML tells of the GPU with this UUID (torch and NVML number GPUs differently)."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver, no permission: all of them mean "unknown"
        return {"driver": None}, {}
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        ask = _asker(handle)
        identity: Facts = {"driver": _text(pynvml.nvmlSystemGetDriverVersion())}
        condition: Facts = {
            "gpu_temperature_c": ask(lambda h: pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU)),
            "gpu_power_w": ask(lambda h: pynvml.nvmlDeviceGetPowerUsage(h) / 1000),
            "gpu_power_limit_w": ask(lambda h: pynvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
            "gpu_sm_mhz": ask(lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM)),
            "gpu_memory_mhz": ask(lambda h: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM)),
            "gpu_ecc": ask(lambda h: bool(pynvml.nvmlDeviceGetEccMode(h)[0])),
            "gpu_processes": ask(lambda h: len(pynvml.nvmlDeviceGetComputeRunningProcesses(h))),
        }
    except pynvml.NVMLError:
        return {"driver": None}, {}
    finally:
        pynvml.nvmlShutdown()
    return identity, condition


def _asker(handle: object) -> Callable[[Callable[[object], Fact]], Fact]:
    import pynvml

    def ask(question: Callable[[object], Fact]) -> Fact:
        with suppress(pynvml.NVMLError):
            return question(handle)
        return None

    return ask


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _cpu_model() -> str | None:
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine() or None


def _cpu_mhz() -> float | None:
    with suppress(OSError):
        found = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return float(found[1])
    return None


def _cpp_compiler() -> str | None:
    """The first line of the version of the C++ compiler that inductor would use on the CPU."""
    import shutil
    import subprocess

    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20, check=True)
        return told.stdout.splitlines()[0].strip() if told.stdout else None
    return None


def _proc_fields(path: str) -> dict[str, int]:
    with suppress(OSError):
        rows = re.findall(r"^(\w+):\s+(\d+) kB$", Path(path).read_text(), re.MULTILINE)
        return {name: int(kilobytes) * 1024 for name, kilobytes in rows}
    return {}
