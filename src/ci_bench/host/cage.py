"""Return the ``docker run`` arguments of a container for code under test.

The action's steps import this module by its path, on the runner's own Python: standard library
only, 3.9 or newer. The caller chooses the folders and variables that a container gets; this module
holds the restrictions of every container.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

TEMPORARY = "/tmp:rw,exec,nosuid,nodev,mode=1777"  # noqa: S108 - the container's own; compiled kernels are loaded from it
HARDENED = (
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--ulimit",
    "core=0",
    "--log-driver=none",
)
"""Flags that drop all capabilities, forbid new ones, and leave no files, core dumps or logs behind.

The image is read-only.
"""
NO_NETWORK = "--network=none"
PROXIES = tuple(
    name
    for kind in ("HTTP", "HTTPS", "FTP", "ALL", "NO")
    for name in (f"{kind}_PROXY", f"{kind.lower()}_proxy")
)
"""The variables that docker's client passes to every container if its configuration has proxies."""
POWERS = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID")
"""The capabilities root needs to start and stop processes of other users and to hand over files.

The code under test has none of them.
"""

GPU_WAYS = ("cdi", "gpus", "runtime")
"""CDI (``--device nvidia.com/gpu=…``), the toolkit's hook (``--gpus``), NVIDIA's runtime, in the
order they are tried.
"""
NO_GPUS = ("-e", "NVIDIA_VISIBLE_DEVICES=void")
"""Hides GPUs from CUDA images.

Their variable asks for all GPUs, which counts if NVIDIA's runtime is the default.
"""
GPU_PROBE = "ls /dev/nvidiactl /dev/nvidia[0-9]* 2>/dev/null || ls /dev/dxg"
"""A line of shell that fails in a container without a GPU."""
GPU_FORM = "none, all, a number of GPUs, or device=ID,ID with indices or UUIDs"
_ID = r"(?:[0-9]{1,2}(?::[0-9]{1,2})?|(?:GPU|MIG)-[0-9A-Fa-f-]{8,40})"
_SELECTION = re.compile(rf"none|all|[1-9][0-9]?|device={_ID}(?:,{_ID}){{0,15}}")


def private(user: str, *, powers: Sequence[str] = ()) -> list[str]:
    """Return flags of every container: its restrictions, its temporary folder, and its user."""
    return [
        *HARDENED,
        "--tmpfs",
        TEMPORARY,
        "--user",
        user,
        *(f"--cap-add={power}" for power in powers),
    ]


def mount(source: str, target: str, *, writable: bool = False) -> tuple[str, str]:
    """Return the arguments that mount a folder or file of the host, read-only by default."""
    return "--mount", f"type=bind,source={source},target={target}{'' if writable else ',readonly'}"


def can_be_mounted(path: str) -> bool:
    """Return whether docker reads a path as one value: a mount is a line of CSV."""
    return not any(character in path for character in ',"\n')


def names(variables: Iterable[str]) -> list[str]:
    """Return arguments that pass variables by name only, so no process list shows their values."""
    return [part for variable in variables for part in ("-e", variable)]


def no_proxies(exempt: Collection[str] = ()) -> list[str]:
    """Return flags that empty docker's own proxies, except the `exempt` ones.

    Their addresses may contain a password.
    """
    return names(f"{proxy}=" for proxy in PROXIES if proxy not in exempt)


def is_gpu_selection(text: str) -> bool:
    """Return whether the text is a valid selection of GPUs (`GPU_FORM`)."""
    return bool(_SELECTION.fullmatch(text))


def gpu_arguments(selection: str, way: str) -> tuple[str, ...]:
    """Return the arguments that give a container these GPUs.

    `way` is the host's set-up for that, one of `GPU_WAYS`.
    """
    if selection == "none":
        return NO_GPUS
    if way == "gpus":  # docker reads the value as a line of CSV, so a comma needs quotes
        return ("--gpus", f'"{selection}"' if selection.startswith("device=") else selection)
    ids = _ids(selection)
    if way == "cdi":
        return tuple(part for gpu in ids for part in ("--device", f"nvidia.com/gpu={gpu}"))
    visible = (
        "-e",
        f"NVIDIA_VISIBLE_DEVICES={','.join(ids)}",
        "-e",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )
    return ("--runtime=nvidia", *visible)


def _ids(selection: str) -> list[str]:
    if selection.isdigit():
        return [str(index) for index in range(int(selection))]
    return selection.removeprefix("device=").split(",")
