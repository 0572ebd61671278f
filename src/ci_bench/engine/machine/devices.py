"""Which device a run will measure on, as far as the parent can know before anything touches it, and whether it is the one meant.

Asks NVML alone: no torch, no CUDA context. CUDA's own rules decide which GPU is the first: `CUDA_VISIBLE_DEVICES` by index or by
the beginning of a UUID, which ends at the first word that names none (CUDA C++ Programming Guide, CUDA environment variables),
and the first part of a GPU that is divided (MIG User Guide: CUDA sees one part per process). What NVML can't tell is not guessed:
the worker that looks at the machine tells it later.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ci_bench.engine.machine.gpu import load_nvml
from ci_bench.engine.machine.lock import cpu_key, gpu_key
from ci_bench.records.results import Environment

DEV = Path("/dev")
MOST_PARTS = 16
LEAST_DRIVERS = {"11": 450, "12": 525, "13": 580}
"""By CUDA's major version: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html."""
_NODE = re.compile(r"nvidia[0-9]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One GPU as NVML numbers them. `parts` are the UUIDs of its parts where it is divided."""

    uuid: str
    name: str = ""
    divided: bool = False
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cards:
    """The GPUs of this machine. `trouble` says why NVML tells nothing; `nodes` are the device files that are there anyway."""

    cards: tuple[Card, ...] = ()
    driver: str = ""
    trouble: str = ""
    nodes: tuple[str, ...] = ()

    def visible(self, environ: Mapping[str, str]) -> tuple[str, ...] | None:
        """The UUIDs that CUDA will number 0, 1, …; `None` where that cannot be known."""
        wanted = environ.get("CUDA_VISIBLE_DEVICES")
        if wanted is None:
            return self._in_order(environ, range(len(self.cards)))
        found: list[str] = []
        for word in wanted.split(","):
            uuids = self._named(word.strip(), environ)
            if uuids is None:
                return None
            if not uuids:
                break
            found += uuids
        return tuple(found)

    def seen(self) -> str:
        """What is here, in words; empty where there is no sign of a GPU."""
        if self.cards:
            names = ", ".join(dict.fromkeys(card.name or card.uuid for card in self.cards))
            return f"{len(self.cards)} GPU{'s' if len(self.cards) > 1 else ''} ({names}; driver {self.driver or 'unknown'})"
        return f"{', '.join(self.nodes)}, but NVML tells nothing of it ({self.trouble})" if self.nodes else ""

    def _named(self, word: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
        """The GPU or part that one word names: none where there is no such, `None` where that is not known."""
        if re.fullmatch(r"[0-9]{1,4}", word):
            return self._in_order(environ, [int(word)] if int(word) < len(self.cards) else [])
        everything = [uuid for card in self.cards for uuid in (card.uuid, *card.parts)]
        fits = [uuid for uuid in everything if word.startswith(("GPU-", "MIG-")) and uuid.startswith(word)]
        return tuple(fits) if len(fits) <= 1 else None

    def _in_order(self, environ: Mapping[str, str], numbers: Any) -> tuple[str, ...] | None:
        """CUDA puts the fastest first where not told otherwise, which is NVML's order only where all are alike."""
        wanted = [self.cards[number] for number in numbers]
        if wanted and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({card.name for card in self.cards}) > 1:
            return None
        if any(card.divided and not card.parts for card in wanted):
            return None
        divided = [card.parts[0] for card in wanted if card.parts]
        return tuple(divided[:1] or [card.uuid for card in wanted])


def look(*, load: Callable[[], Any] = load_nvml, dev: Path = DEV) -> Cards:
    """The GPUs of this machine, or why there is no telling. Never fails."""
    nodes = tuple(sorted(str(path) for path in dev.glob("nvidia*") if _NODE.fullmatch(path.name)))
    try:
        with _opened(load) as nvml:
            driver = nvml.nvmlSystemGetDriverVersion()
            cards = tuple(_card(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount()))
            return Cards(cards=cards, driver=_text(driver), nodes=nodes, trouble="" if cards else "it lists no GPU")
    except Exception as error:  # noqa: BLE001 - whatever NVML's bindings raise: it can't be used, and that is the answer
        return Cards(trouble=f"{type(error).__name__}: {error}", nodes=nodes)


def configured_key(device: str, cards: Cards, environ: Mapping[str, str], *, on_gpu: bool) -> str | None:
    """The key of the lock of the configured device; `None` where only a worker will know.

    `on_gpu` says whether the plan computes with torch: `auto` is the CPU otherwise.
    """
    if device == "cpu" or (device == "auto" and not (on_gpu and cards.seen())):
        return cpu_key()
    visible = cards.visible(environ)
    if visible is None or not cards.cards:
        return None
    number = int(device.partition(":")[2] or 0)
    return gpu_key(visible[number]) if number < len(visible) else None


def refusal(environment: Environment, cards: Cards, environ: Mapping[str, str], *, device: str, required: str = "") -> str:
    """Why a machine that a worker saw is not the one that was asked for; empty if it is.

    `device` is the configured one, `required` a kind of device that whoever started the run has provided for it. Where GPUs are
    here and visible, `auto` never means the CPU, unless nothing of the plan computes with torch. ``CUDA_VISIBLE_DEVICES`` without
    any device asks for the CPU.
    """
    told, torch_is_there = environment.identity.get("device"), environment.identity.get("threads") is not None
    if device != "auto" or told == "cuda" or not torch_is_there:
        return ""
    seen = cards.seen() if cards.visible(environ) != () or not cards.cards else ""
    if not seen and required != "cuda":
        return ""
    here = f"this machine has {seen}" if seen else "a GPU was asked for (input `gpus`), and neither NVML nor /dev shows one here"
    return (
        f"{here}, but torch cannot use it: {_why_not(environment, cards)}. The CPU is not measured in its place: "
        "mend that, or set `device: cpu` in run (or `--device cpu`) where the CPU is meant"
    )


def _why_not(environment: Environment, cards: Cards) -> str:
    """What torch and NVML say, and what helps."""
    version, built_for = environment.identity.get("torch"), environment.identity.get("cuda")
    own_words = str(environment.condition.get("cuda_trouble") or "it sees no CUDA device")
    if built_for is None:
        built = f"torch {version} is a build for the CPU: install a build for CUDA"
        return built if version else f"torch cannot be imported ({own_words})"
    if "mismatch" in f"{own_words} {cards.trouble}".lower() or "803" in own_words:
        return f"the driver was updated while its kernel module stayed loaded ({own_words}): reboot the machine"
    if "no kernel image" in own_words.lower():
        return f"torch {version} has no code for this GPU ({own_words}): install a build that has"
    least = LEAST_DRIVERS.get(str(built_for).partition(".")[0], 0)
    major = re.match(r"[0-9]{1,6}", cards.driver)
    if major and int(major[0]) < least:
        return f"torch {version} is built for CUDA {built_for}, which needs driver {least} or newer, and {cards.driver} is here"
    if "permission" in f"{own_words} {cards.trouble}".lower():
        return f"it may not open /dev/nvidia* ({own_words}): give this user access to the device files"
    return f"torch {version} for CUDA {built_for} says: {own_words}"


@contextmanager
def _opened(load: Callable[[], Any]) -> Iterator[Any]:
    nvml = load()
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, handle: Any) -> Card:
    """A card, with its parts where it is divided; a driver or GPU that knows no parts raises where it is asked for them."""
    divided = bool(_asked(lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0))
    parts = tuple(_parts(nvml, handle)) if divided else ()
    uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(_asked(lambda: nvml.nvmlDeviceGetName(handle), ""))
    return Card(uuid=uuid, name=name, divided=divided, parts=parts)


def _parts(nvml: Any, handle: Any) -> Iterator[str]:
    for index in range(MOST_PARTS):
        part = _asked(partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index), None)
        if part is not None:
            yield _text(nvml.nvmlDeviceGetUUID(part))


def _asked(ask: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - NVMLError, or a function that this version lacks
        return otherwise


def _text(told: Any) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)
