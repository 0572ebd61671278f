"""The device of a worker: choosing it, fixing its threads, waiting for it.

A suite that computes with torch names it among the modules to preload. Where no suite of a plan does, nothing here imports it: a
worker then starts in milliseconds, and `auto` means the CPU.
"""

import sys
from collections.abc import Callable


class NoSuchDevice(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """The configured device is not on this machine."""


def torch_is_loaded() -> bool:
    """Whether the suites of this plan compute with torch."""
    return "torch" in sys.modules


def select_device(wanted: str, *, threads: int | None) -> str:
    """Turn ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` into a device string, make it current, and fix the thread count.

    Raises:
        NoSuchDevice: the machine has no such GPU, or torch was built without CUDA.
    """
    if not wanted.startswith("cuda") and not torch_is_loaded():
        return "cpu"
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return "cpu"
    index = int(wanted.partition(":")[2] or 0)
    count = torch.cuda.device_count()
    if index >= count:
        message = f"device {wanted!r} was asked for, but torch {torch.__version__} sees {count} CUDA device(s) here"
        raise NoSuchDevice(message)
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def synchronizer(device: str) -> Callable[[], None]:
    """A function that waits until the device has done all that was asked of it; does nothing on the CPU."""
    if device == "cpu":
        return _nothing
    import torch

    return lambda: torch.cuda.synchronize(device)


def _nothing() -> None:
    return None
