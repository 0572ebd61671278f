"""Find the device that a run will measure on, and check that it is the intended one.

Runs in the parent, before anything touches a device. Asks only the vendors' libraries: no torch, no
context on a GPU. How torch numbers GPUs is the vendor's to know. Unknown values are not guessed:
the worker that probes the machine reports them later.
"""

from collections.abc import Mapping, Sequence

from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import Cards
from ci_bench.host.lock import cpu_key, gpu_key
from ci_bench.records.results import Environment


def configured_key(
    device: str, gpus: Sequence[Cards], environ: Mapping[str, str], *, on_gpu: bool
) -> str | None:
    """Return the key of the configured device's lock; `None` if only a worker will know.

    That includes GPUs of several vendors. `on_gpu` is true if the plan computes with torch: `auto`
    is the CPU otherwise.
    """
    here = [cards for cards in gpus if cards.seen()]
    if device == "cpu" or (device == "auto" and not (on_gpu and here)):
        return cpu_key()
    if len(here) != 1 or not here[0].cards:
        return None
    visible = here[0].vendor.visible(here[0], environ)
    if visible is None:
        return None
    number = int(device.partition(":")[2] or 0)
    return gpu_key(visible[number], gpus) if number < len(visible) else None


def keys_of_ranks(
    gpus: Sequence[Cards], environ: Mapping[str, str], *, processes: int
) -> tuple[str, ...]:
    """Return the keys of the GPUs for this number of processes, one each, in locking order.

    Empty for one process, on the CPU, or if only a worker will know.
    """
    here = [cards for cards in gpus if cards.seen()]
    if processes < 2 or len(here) != 1 or not here[0].cards:  # noqa: PLR2004 - ranks are several
        return ()
    visible = here[0].vendor.visible(here[0], environ) or ()
    return tuple(sorted(gpu_key(uuid, gpus) for uuid in visible[:processes]))


def refusal(
    environment: Environment,
    gpus: Sequence[Cards],
    environ: Mapping[str, str],
    *,
    device: str,
    required: str = "",
) -> str:
    """Return why a machine that a worker saw is not the requested one; empty if it is.

    `device` is the configured device; `required` is a kind of device that the caller has provided
    for the run. If GPUs are present and visible, `auto` never means the CPU, unless nothing in the
    plan computes with torch. Hiding all of them (``CUDA_VISIBLE_DEVICES=``) selects the CPU.
    """
    reported, torch_is_there = (
        environment.identity.get("device"),
        environment.identity.get("threads") is not None,
    )
    if device != "auto" or reported == "cuda" or not torch_is_there:
        return ""
    here = [
        cards
        for cards in gpus
        if cards.seen() and (not cards.cards or cards.vendor.visible(cards, environ) != ())
    ]
    if not here and required != "cuda":
        return ""
    built_for = [
        cards
        for cards in here or gpus
        if environment.identity.get(cards.vendor.torch_build) is not None
    ]
    cards = (*built_for, *here, *gpus)[0]
    libraries = "neither " + " nor ".join((*(cards.vendor.library for cards in gpus), "/dev"))
    situation = (
        f"this machine has {cards.seen()}"
        if here
        else f"a GPU was asked for (input `gpus`), and {libraries} shows one here"
    )
    return (
        f"{situation}, but torch cannot use it: {_why_not(environment, cards)}. Fix that, "
        "or set `device: cpu` in run (or `--device cpu`) to measure the CPU instead"
    )


def _why_not(environment: Environment, cards: Cards) -> str:
    """Return what torch and the vendor's library report, and what helps."""
    vendor, identity = cards.vendor, environment.identity
    version, toolkit_version = identity.get("torch"), identity.get(vendor.torch_build)
    words = str(environment.condition.get("cuda_trouble") or f"it sees no {vendor.toolkit} device")
    if version is None:
        return f"torch cannot be imported ({words})"
    if toolkit_version is None:
        other = vendors.built_for(identity)
        return (
            f"torch {version} is a build for {other.toolkit if other else 'the CPU'}: install a"
            f" build for {vendor.toolkit}"
        )
    if "no kernel image" in words.lower():
        return f"torch {version} has no code for this GPU ({words}): install a build that has"
    advice = vendor.advice(words, cards, str(toolkit_version))
    if not advice and "permission" in f"{words} {cards.trouble}".lower():
        advice = (
            f"it may not open {vendor.device_files} ({words}): give this user access to the device"
            " files"
        )
    return advice or f"torch {version} for {vendor.toolkit} {toolkit_version} says: {words}"
