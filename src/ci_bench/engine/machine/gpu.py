"""One GPU as NVML tells of it. Needs no CUDA context and leaves none behind.

Every question may go unanswered: by a driver without the function, a GPU without the sensor, a container without the right. The
answer is then `None`, whatever NVML raised. torch and NVML number GPUs differently, so that a GPU is found by its UUID.
"""

from collections.abc import Callable
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Why clocks are below what they could be: `nvmlClocksEventReason…` of NVML's API reference."""


class NoNvml(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """NVML, or the GPU in it, cannot be reached. The message says why."""


def load_nvml() -> Any:
    """The module `pynvml` of the package nvidia-ml-py."""
    import pynvml

    return pynvml


class Gpu:
    """One GPU. Close it when done."""

    def __init__(self, uuid: str, load: Callable[[], Any] = load_nvml) -> None:
        """`uuid` may lack its prefix, as torch's does. `load` gives `pynvml`, or what behaves like it.

        Raises:
            NoNvml: no library, no driver, no permission, or no such GPU.
        """
        try:
            self._nvml = load()
            self._nvml.nvmlInit()
        except Exception as error:
            message = f"NVML cannot be used ({type(error).__name__}: {error})"
            raise NoNvml(message) from error
        self._handle = self._find(uuid)
        if self._handle is None:
            self.close()
            message = f"NVML knows no GPU {uuid or '(torch told no UUID)'}"
            raise NoNvml(message)

    def close(self) -> None:
        """Let NVML go."""
        self._try(self._nvml.nvmlShutdown)

    def driver(self) -> str | None:
        """The version of the driver."""
        told = self._try(self._nvml.nvmlSystemGetDriverVersion)
        return told.decode() if isinstance(told, bytes) else told

    def sm_mhz(self) -> int | None:
        """The clock of the multiprocessors now."""
        return self._try(lambda: int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)))

    def memory_mhz(self) -> int | None:
        """The clock of the memory now."""
        return self._try(lambda: int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_MEM)))

    def power_w(self) -> float | None:
        """Power drawn; the GPU averages it over up to a second."""
        return self._try(lambda: self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000)

    def power_limit_w(self) -> float | None:
        """The power limit in force."""
        return self._try(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000)

    def temperature_c(self) -> int | None:
        """The temperature of the chip."""
        return self._try(lambda: int(self._nvml.nvmlDeviceGetTemperature(self._handle, self._nvml.NVML_TEMPERATURE_GPU)))

    def ecc(self) -> bool | None:
        """Whether memory errors are corrected."""
        return self._try(lambda: bool(self._nvml.nvmlDeviceGetEccMode(self._handle)[0]))

    def reasons(self) -> tuple[str, ...] | None:
        """Why the clocks are held back now, by name; the bits of reasons that are not known here as numbers."""
        mask = self._try(lambda: int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)))
        if mask is None:  # the name before driver 535
            mask = self._try(lambda: int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)))
        if mask is None:
            return None
        return tuple(REASONS.get(1 << bit, hex(1 << bit)) for bit in range(mask.bit_length()) if mask >> bit & 1)

    def thermal_s(self) -> float | None:
        """For how many seconds in all, since the driver was loaded, heat has kept the clocks down."""
        policy = self._try(lambda: self._nvml.NVML_PERF_POLICY_THERMAL)
        return self._try(lambda: self._nvml.nvmlDeviceGetViolationStatus(self._handle, policy).violationTime / 1e9)

    def pids(self) -> frozenset[int] | None:
        """The processes with a compute context; in a container, their numbers may be those of the host."""
        return self._try(lambda: frozenset(int(one.pid) for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)))

    def _find(self, uuid: str) -> Any:
        """The GPU's handle; a part of a GPU (MIG) has a prefix of its own."""
        for name in (uuid,) if uuid.startswith(("GPU-", "MIG-")) else (f"GPU-{uuid}", f"MIG-{uuid}"):
            handle = self._try(lambda name=name: self._nvml.nvmlDeviceGetHandleByUUID(name))  # type: ignore[misc]
            if handle is not None:
                return handle
        return None

    def _try(self, ask: Callable[[], _Answer]) -> _Answer | None:
        try:
            return ask()
        except Exception:  # noqa: BLE001 - NVMLError, its version mismatch (which is none), or a function this version lacks
            return None
