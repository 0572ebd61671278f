"""NVIDIA's GPUs, by NVML (the package nvidia-ml-py) and CUDA's rules of numbering.

The only module that knows either.

torch and NVML number GPUs differently, so a GPU is found by its UUID. CUDA's own rules decide which
GPU is the first: `CUDA_VISIBLE_DEVICES` by index or by the beginning of a UUID, which ends at the
first word that names none (CUDA C++ Programming Guide, CUDA environment variables), and the first
part of a GPU that is divided (MIG User Guide: CUDA sees one part per process).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ci_bench.host.gpus.protocol import Card, Cards, ClockCause, GpuUnreachable, Reason

_Answer = TypeVar("_Answer")

REASONS = {
    0x1: Reason(cause=ClockCause.IDLE, word="gpu_idle"),
    0x2: Reason(cause=ClockCause.OTHER, word="applications_clocks_setting"),
    0x4: Reason(cause=ClockCause.POWER_CAP, word="sw_power_cap"),
    0x8: Reason(cause=ClockCause.HARDWARE, word="hw_slowdown"),
    0x10: Reason(cause=ClockCause.OTHER, word="sync_boost"),
    0x20: Reason(cause=ClockCause.THERMAL, word="sw_thermal_slowdown"),
    0x40: Reason(cause=ClockCause.THERMAL, word="hw_thermal_slowdown"),
    0x80: Reason(cause=ClockCause.HARDWARE, word="hw_power_brake_slowdown"),
    0x100: Reason(cause=ClockCause.OTHER, word="display_clock_setting"),
    0x200: Reason(cause=ClockCause.OTHER, word="board_limit"),
    0x400: Reason(cause=ClockCause.OTHER, word="reliability"),
}
"""Reasons for reduced clocks: `nvmlClocksEventReason…` of NVML's API reference."""
LEAST_DRIVERS = {"11": 450, "12": 525, "13": 580}
"""By CUDA's major version:
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html.
"""
EXCLUSIVE = {1: "compute mode EXCLUSIVE_THREAD", 3: "compute mode EXCLUSIVE_PROCESS"}
"""Values of `nvmlComputeMode_t` with one process.

A second one gets the error that the GPU is busy.
"""
MOST_PARTS = 16
MASK_WORDS = 64
"""Of 64 bits each: 4096 cores, more than Linux allows on most machines."""
PREFIXES = ("GPU-", "MIG-")
"""Of UUIDs: of a whole GPU, and of a part of one."""
_NODE = re.compile(r"nvidia[0-9]+")


def load_nvml() -> Any:
    """Import the module `pynvml` of the package nvidia-ml-py."""
    import pynvml

    return pynvml


@dataclass(frozen=True, kw_only=True, slots=True)
class Nvidia:
    """The vendor."""

    name: ClassVar[str] = "NVIDIA"
    """Name of the vendor."""
    library: ClassVar[str] = "NVML"
    """Library that answers."""
    toolkit: ClassVar[str] = "CUDA"
    """Toolkit that torch has to be built for."""
    torch_build: ClassVar[str] = "cuda"
    """Field of `torch.version` with the toolkit's version."""
    command: ClassVar[str] = "nvidia-smi"
    """Program that comes with the driver."""
    device_files: ClassVar[str] = "/dev/nvidia*"
    """Device files that a user needs access to."""
    container_option: ClassVar[str] = "--gpus all"
    """Option of ``docker run`` that gives a container a GPU."""
    sharing: ClassVar[str] = "nvidia-smi -c DEFAULT"
    """Command after which an exclusive GPU takes several processes."""

    load: Callable[[], Any] = load_nvml
    """Returns `pynvml`, or a replacement."""
    dev: Path = Path("/dev")
    """Folder of device files."""

    def open_gpu(self, uuid: str) -> "NvmlGpu":
        """Open the GPU with this UUID, which may lack its prefix.

        Raises:
            GpuUnreachable: no library, no driver, no permission, or no such GPU.
        """
        try:
            nvml = self.load()
            nvml.nvmlInit()
        except Exception as error:
            message = f"NVML cannot be used ({type(error).__name__}: {error})"
            raise GpuUnreachable(message) from error
        for name in (
            (uuid,) if uuid.startswith(PREFIXES) else (f"{prefix}{uuid}" for prefix in PREFIXES)
        ):
            handle = _ask(partial(nvml.nvmlDeviceGetHandleByUUID, name))
            if handle is not None:
                part = name.startswith("MIG-")
                chip = (
                    _ask(lambda: nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))  # noqa: B023
                    if part
                    else None
                )
                return NvmlGpu(nvml, handle, chip)
        _ask(nvml.nvmlShutdown)
        message = f"NVML knows no GPU {uuid or '(torch told no UUID)'}"
        raise GpuUnreachable(message)

    def look(self) -> Cards:
        """Return NVIDIA's GPUs of this machine, or why they are unknown. Never fails."""
        nodes = tuple(
            sorted(str(path) for path in self.dev.glob("nvidia*") if _NODE.fullmatch(path.name))
        )
        try:
            with _opened(self.load) as nvml:
                driver = _text(nvml.nvmlSystemGetDriverVersion())
                cards = tuple(
                    _card(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
                    for index in range(nvml.nvmlDeviceGetCount())
                )
                trouble = "" if cards else "it lists no GPU"
                return Cards(vendor=self, cards=cards, driver=driver, nodes=nodes, trouble=trouble)
        except Exception as error:  # noqa: BLE001 - whatever NVML's bindings raise: it can't be used, and that is the answer
            return Cards(vendor=self, trouble=f"{type(error).__name__}: {error}", nodes=nodes)

    def visible(self, cards: Cards, environ: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the UUIDs that CUDA will number 0, 1, …; `None` if unknown."""
        selection = environ.get("CUDA_VISIBLE_DEVICES")
        if selection is None:
            return _in_order(cards, environ, range(len(cards.cards)))
        visible: list[str] = []
        for word in selection.split(","):
            uuids = _find_by_word(cards, word.strip(), environ)
            if uuids is None:
                return None
            if not uuids:
                break
            visible += uuids
        return tuple(visible)

    def advice(self, words: str, cards: Cards, toolkit_version: str) -> str:
        """Return why a torch that is built for CUDA cannot use a GPU, and what to do.

        Empty if unknown.
        """
        if "mismatch" in f"{words} {cards.trouble}".lower() or "803" in words:
            return (
                f"the driver was updated while its kernel module stayed loaded ({words}): reboot"
                " the machine"
            )
        least = LEAST_DRIVERS.get(toolkit_version.partition(".")[0], 0)
        major = re.match(r"[0-9]{1,6}", cards.driver)
        if major and int(major[0]) < least:
            return (
                f"torch is built for CUDA {toolkit_version}, which needs driver {least} or newer,"
                f" and {cards.driver} is here"
            )
        return ""


class NvmlGpu:
    """One GPU through NVML.

    A part of a GPU has the clocks, heat and power of the whole chip, which NVML does not report by
    the part's own handle. The processes that compute on it are its own. Its energy is unknown: the
    chip's counter includes the other parts.
    """

    def __init__(self, nvml: Any, handle: Any, chip: Any = None) -> None:
        """Use an initialised `nvml`, which is shut down on `close`.

        `chip` is the handle of the GPU that `handle` is a part of; `None` for a whole GPU.
        """
        self._nvml, self._handle = nvml, handle
        self._chip = handle if chip is None else chip

    def close(self) -> None:
        """Shut NVML down."""
        _ask(self._nvml.nvmlShutdown)

    def driver(self) -> str | None:
        """Return the version of the driver."""
        return _ask(lambda: _text(self._nvml.nvmlSystemGetDriverVersion()))

    def sm_mhz(self) -> int | None:
        """Return the clock of the multiprocessors now."""
        return _ask(
            lambda: int(self._nvml.nvmlDeviceGetClockInfo(self._chip, self._nvml.NVML_CLOCK_SM))
        )

    def memory_mhz(self) -> int | None:
        """Return the clock of the memory now."""
        return _ask(
            lambda: int(self._nvml.nvmlDeviceGetClockInfo(self._chip, self._nvml.NVML_CLOCK_MEM))
        )

    def power_w(self) -> float | None:
        """Return the power drawn.

        NVML has milliwatts, which the GPU averages over up to a second.
        """
        return _ask(lambda: self._nvml.nvmlDeviceGetPowerUsage(self._chip) / 1000)

    def power_limit_w(self) -> float | None:
        """Return the power limit in force."""
        return _ask(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._chip) / 1000)

    def chosen_mhz(self) -> int | None:
        """Return the application clock if a user has changed it.

        NVML has no question for clocks that `nvidia-smi --lock-gpu-clocks` locked: these only show
        in `sm_mhz` under load.
        """
        kind = _ask(lambda: self._nvml.NVML_CLOCK_SM)
        chosen = _ask(lambda: int(self._nvml.nvmlDeviceGetApplicationsClock(self._chip, kind)))
        usual = _ask(
            lambda: int(self._nvml.nvmlDeviceGetDefaultApplicationsClock(self._chip, kind))
        )
        return None if usual is None or chosen == usual else chosen

    def persistence(self) -> bool | None:
        """Return whether persistence mode is on."""
        return _ask(lambda: bool(self._nvml.nvmlDeviceGetPersistenceMode(self._chip)))

    def near_cores(self) -> frozenset[int] | None:
        """Return the cores that NVML calls ideal for the GPU, from a mask in words of 64 bits."""
        words = _ask(lambda: list(self._nvml.nvmlDeviceGetCpuAffinity(self._chip, MASK_WORDS)))
        if words is None:
            return None
        return frozenset(
            64 * place + bit
            for place, word in enumerate(words)
            for bit in range(64)
            if word >> bit & 1
        )

    def energy_j(self) -> float | None:
        """Return the energy since the driver was loaded.

        NVML has millijoules, of Volta and newer, for whole GPUs.
        """
        return _ask(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1000)

    def temperature_c(self) -> int | None:
        """Return the temperature of the chip."""
        return _ask(
            lambda: int(
                self._nvml.nvmlDeviceGetTemperature(self._chip, self._nvml.NVML_TEMPERATURE_GPU)
            )
        )

    def ecc(self) -> bool | None:
        """Return whether memory errors are corrected."""
        return _ask(lambda: bool(self._nvml.nvmlDeviceGetEccMode(self._chip)[0]))

    def reasons(self) -> tuple[Reason, ...] | None:
        """Return why the clocks are held back now.

        Unknown reasons are given as the numbers of their bits.
        """
        mask = _ask(lambda: int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._chip)))
        if mask is None:  # the name before driver 535
            mask = _ask(
                lambda: int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._chip))
            )
        if mask is None:
            return None
        bits = (1 << position for position in range(mask.bit_length()) if mask >> position & 1)
        return tuple(
            REASONS.get(bit, Reason(cause=ClockCause.OTHER, word=hex(bit))) for bit in bits
        )

    def thermal_s(self) -> float | None:
        """Return the seconds since the driver was loaded in which heat has kept the clocks down.

        NVML has nanoseconds.
        """
        policy = _ask(lambda: self._nvml.NVML_PERF_POLICY_THERMAL)
        return _ask(
            lambda: self._nvml.nvmlDeviceGetViolationStatus(self._chip, policy).violationTime / 1e9
        )

    def pids(self) -> frozenset[int] | None:
        """Return the processes with a compute context.

        In a container, their numbers may be those of the host.
        """
        return _ask(lambda: frozenset(int(process.pid) for process in self._processes()))

    def bytes_by_pid(self) -> dict[int, int | None] | None:
        """Return the memory of each of these processes; `None` if the driver does not report it."""
        return _ask(
            lambda: {int(process.pid): process.usedGpuMemory for process in self._processes()}
        )

    def _processes(self) -> Iterable[Any]:
        processes: Iterable[Any] = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return processes


def _find_by_word(cards: Cards, word: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPU or part that a word names: empty if none exists, `None` if that is unknown."""
    if re.fullmatch(r"[0-9]{1,4}", word):
        return _in_order(cards, environ, [int(word)] if int(word) < len(cards.cards) else [])
    everything = [uuid for card in cards.cards for uuid in (card.uuid, *card.parts)]
    fits = [uuid for uuid in everything if word.startswith(PREFIXES) and uuid.startswith(word)]
    return tuple(fits) if len(fits) <= 1 else None


def _in_order(
    cards: Cards, environ: Mapping[str, str], numbers: Iterable[int]
) -> tuple[str, ...] | None:
    """Sort GPUs in CUDA's order.

    The fastest is first by default, which is NVML's order only if all are alike.
    """
    selected = [cards.cards[number] for number in numbers]
    if (
        selected
        and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        and len({card.name for card in cards.cards}) > 1
    ):
        return None
    if any(card.divided and not card.parts for card in selected):
        return None
    divided = [card.parts[0] for card in selected if card.parts]
    return tuple(divided[:1] or [card.uuid for card in selected])


@contextmanager
def _opened(load: Callable[[], Any]) -> Iterator[Any]:
    nvml = load()
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, handle: Any) -> Card:
    """Return a card, with its parts if it is divided.

    A driver or GPU that knows no parts raises when asked for them.
    """
    divided = bool(_ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0]))
    parts = tuple(_parts(nvml, handle)) if divided else ()
    name = _ask(lambda: _text(nvml.nvmlDeviceGetName(handle)))
    mode = EXCLUSIVE.get(_ask(lambda: int(nvml.nvmlDeviceGetComputeMode(handle))) or 0, "")
    unloaded = NvmlGpu(nvml, handle).persistence() is False
    return Card(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=name or "",
        divided=divided,
        parts=parts,
        exclusive=mode,
        keep_loaded="nvidia-smi --persistence-mode=1" if unloaded else "",
    )


def _parts(nvml: Any, handle: Any) -> Iterator[str]:
    for index in range(MOST_PARTS):
        part = _ask(partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index))
        if part is not None:
            yield _text(nvml.nvmlDeviceGetUUID(part))


def _ask(ask: Callable[[], _Answer]) -> _Answer | None:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - NVMLError, its version mismatch (not one), or a function this version lacks
        return None


def _text(answer: Any) -> str:
    return answer.decode() if isinstance(answer, bytes) else str(answer)
