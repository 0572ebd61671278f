"""Which GPUs a container gets: the input's words to arguments of ``docker run``, for each of the ways that hosts are set up."""

from __future__ import annotations

import re

WAYS = ("cdi", "gpus", "runtime")
"""CDI (``--device nvidia.com/gpu=…``), the toolkit's hook (``--gpus``), NVIDIA's runtime, in the order they are tried."""
NONE = ("-e", "NVIDIA_VISIBLE_DEVICES=void")
"""CUDA images ask for all GPUs by a variable of theirs, which counts where NVIDIA's runtime is the default."""
_ID = r"(?:[0-9]{1,2}(?::[0-9]{1,2})?|(?:GPU|MIG)-[0-9A-Fa-f-]{8,40})"
_SELECTION = re.compile(rf"none|all|[1-9][0-9]?|device={_ID}(?:,{_ID}){{0,15}}")
FORM = "none, all, a number of GPUs, or device=ID,ID with indices or UUIDs"


def is_selection(text: str) -> bool:
    """Whether this names GPUs, and nothing else."""
    return bool(_SELECTION.fullmatch(text))


def arguments(selection: str, way: str) -> tuple[str, ...]:
    """The arguments that give a container these GPUs."""
    if selection == "none":
        return NONE
    if way == "gpus":  # docker reads the value as a line of CSV, so that a comma needs quotes
        return ("--gpus", f'"{selection}"' if selection.startswith("device=") else selection)
    ids = _ids(selection)
    if way == "cdi":
        return tuple(part for one in ids for part in ("--device", f"nvidia.com/gpu={one}"))
    visible = ("-e", f"NVIDIA_VISIBLE_DEVICES={','.join(ids)}", "-e", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    return ("--runtime=nvidia", *visible)


def _ids(selection: str) -> list[str]:
    if selection.isdigit():
        return [str(index) for index in range(int(selection))]
    return selection.removeprefix("device=").split(",")
