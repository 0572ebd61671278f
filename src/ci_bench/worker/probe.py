"""Probe the machine of a worker: identity (may two runs be compared?) and condition (its state).

Runs in a worker, since it touches the GPU. Unknown values are `None`.
"""

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import GpuUnreachable
from ci_bench.host.health import spell
from ci_bench.records.config import RunOptions
from ci_bench.records.forms import Fact
from ci_bench.worker import memory
from ci_bench.worker.fence import CONTRACT, torch_is_loaded

Facts = dict[str, Fact]
MOST_TROUBLE = 300
SWITCHES = frozenset(
    {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "NVIDIA_TF32_OVERRIDE",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    }
)
FAMILIES = ("CUBLAS", "CUDNN_", "NCCL_", "TORCHINDUCTOR_", "TRITON_")
SWITCH = "env_"
"""The prefix of their names in an identity."""
PLACES = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME"})
"""Variables with the folders of caches. Each side has its own, and no number depends on them."""


def probe_environment(device: str, options: RunOptions | None = None) -> dict[str, Facts]:
    """Return identity and condition of this machine for one device string.

    Of the options, those that change what a time on a GPU means are part of the identity: cold
    caches are never compared with hot ones, nor replays with calls. The GPU's UUID is part of the
    condition: a twin of the same model may be compared.
    """
    identity, condition = _identity(), _condition()
    if torch_is_loaded():
        identity |= _torch_identity()
        if device == "cpu":
            condition |= _cuda_trouble()
    if device.startswith("cuda"):
        gpu_identity, gpu_condition = _gpu(device)
        identity |= gpu_identity
        condition |= gpu_condition
    identity |= _manner(options or RunOptions(), on_gpu=device.startswith("cuda"))
    return {"identity": identity, "condition": condition}


def _manner(options: RunOptions, *, on_gpu: bool) -> Facts:
    """Return the measuring options that are out of the ordinary.

    An omitted option is off, an omitted contract is the first one (older results).
    """
    manner = {"flush_l2": on_gpu and options.flush_l2, "cuda_graph": on_gpu and options.cuda_graph}
    copies: Facts = {"rotate": options.rotate} if options.rotate > 1 else {}
    numbers = {"timing_contract": CONTRACT, "memory_contract": 1 if on_gpu else memory.CONTRACT}
    contracts: Facts = {name: number for name, number in numbers.items() if number > 1}
    return contracts | copies | {name: True for name, enabled in manner.items() if enabled}


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
        **_rocm(torch.version),
        **vendors.torch_builds(torch.version),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        **_switches(os.environ),
    }


def _switches(environ: Mapping[str, str]) -> Facts:
    """Return the variables that change numbers or times unseen, by name.

    No setting of torch shows them.
    """
    chosen = (name for name in sorted(environ) if name in SWITCHES or name.startswith(FAMILIES))
    return {
        f"{SWITCH}{name}": environ[name][:MOST_TROUBLE] for name in chosen if name not in PLACES
    }


def _rocm(version: object) -> Facts:
    """Return ROCm's version, in a build of torch for it.

    Two versions are two machines, though both report `cuda: None`.
    """
    hip = getattr(version, "hip", None)
    return {} if hip is None else {"hip": str(hip)}


def _cuda_trouble() -> Facts:
    """Return torch's reason why it cannot use a GPU.

    Empty if it can, or if it was not built for GPUs.
    """
    import torch

    if not vendors.torch_builds(torch.version):
        return {}
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"cuda_trouble": " ".join(str(error).split())[:MOST_TROUBLE]}
    return {}


def _condition() -> Facts:
    memory = _proc_fields("/proc/meminfo")
    return {
        "load_1min": round(os.getloadavg()[0], 2),
        "memory_total_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "kernel": platform.release(),
        "machine": _machine(),
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
    uuid = str(getattr(properties, "uuid", ""))
    driver, condition = _gpu_facts(uuid)
    return identity | driver, {"gpu_uuid": uuid or None} | condition


def _gpu_facts(uuid: str) -> tuple[Facts, Facts]:
    """Return the driver's facts on the GPU with this UUID: for the identity and the condition."""
    try:
        gpu = vendors.open_gpu(uuid)
    except GpuUnreachable:
        return {"driver": None}, {}
    reasons, pids = gpu.reasons(), gpu.pids()
    condition: Facts = {
        "gpu_temperature_c": gpu.temperature_c(),
        "gpu_power_w": gpu.power_w(),
        "gpu_sm_mhz": gpu.sm_mhz(),
        "gpu_memory_mhz": gpu.memory_mhz(),
        "gpu_held_back_by": None if reasons is None else spell(reasons),
        "gpu_processes": None if pids is None else len(pids),
    }
    settings: Facts = {
        "gpu_power_limit_w": gpu.power_limit_w(),
        "gpu_ecc": gpu.ecc(),
        "gpu_persistence": gpu.persistence(),
        "gpu_chosen_mhz": gpu.chosen_mhz(),
    }
    identity: Facts = {"driver": gpu.driver()}
    identity |= {name: value for name, value in settings.items() if value is not None}
    gpu.close()
    return identity, condition


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _cpu_model() -> str | None:
    with suppress(OSError):
        match = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine() or None


def _machine() -> str | None:
    """Return a digest of the boot's id.

    It distinguishes this machine from identical ones, in containers as well, until the next boot.
    """
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return hashlib.sha256(f"ci-bench {boot}".encode()).hexdigest()[:16]
    return None


def _cpu_mhz() -> float | None:
    with suppress(OSError):
        match = re.search(
            r"^cpu MHz\s*:\s*([\d.]+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
        if match:
            return float(match[1])
    return None


def _cpp_compiler() -> str | None:
    """Return the first line of the version of the C++ compiler of inductor on the CPU."""
    import shutil
    import subprocess

    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        completed = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
        return completed.stdout.splitlines()[0].strip() if completed.stdout else None
    return None


def _proc_fields(path: str) -> dict[str, int]:
    with suppress(OSError):
        rows = re.findall(r"^(\w+):\s+(\d+) kB$", Path(path).read_text(), re.MULTILINE)
        return {name: int(kilobytes) * 1024 for name, kilobytes in rows}
    return {}
