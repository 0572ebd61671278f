"""The device of a worker: choosing it, fixing its threads, waiting for it. Imports torch inside functions only."""

from collections.abc import Callable


class NoSuchDevice(Exception):
    """The configured device is not on this machine."""


def select_device(wanted: str, *, threads: int | None) -> str:
    """Turn ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` into a device string, make it current, and fix the thread count.

    Raises:
        NoSuchDevice: the machine has no such GPU, or torch was built without CUDA.
    """
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
