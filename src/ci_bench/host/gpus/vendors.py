"""The table of vendors, and queries to all of them in turn.

Another vendor is one module next to this one, and a line here. A GPU's vendor needs no
configuration: a UUID belongs to the vendor whose library knows it, and a build of torch to the one
whose toolkit it was made for.
"""

from collections.abc import Mapping

from ci_bench.host.gpus import nvidia
from ci_bench.host.gpus.protocol import Cards, Gpu, GpuUnreachable, Vendor

VENDORS: tuple[Vendor, ...] = (
    nvidia.Nvidia(),
)  # fmt: skip
"""The vendors, in the order of queries."""


def open_gpu(uuid: str) -> Gpu:
    """Open the GPU with this UUID, of any vendor.

    Raises:
        GpuUnreachable: no vendor's library can reach it. The message has the error of each.
    """
    complaints = []
    for vendor in VENDORS:
        try:
            return vendor.open_gpu(uuid)
        except GpuUnreachable as reason:
            complaints.append(str(reason))
    raise GpuUnreachable("; ".join(complaints))


def look() -> tuple[Cards, ...]:
    """Return the GPUs of this machine, by vendor.

    A vendor without any is listed too, with its library's message. Never fails.
    """
    return tuple(vendor.look() for vendor in VENDORS)


def torch_builds(version: object) -> dict[str, str]:
    """Return torch's build versions by the names that the identity has.

    They are read from `torch.version`; empty in a build for the CPU.
    """
    versions = {
        vendor.torch_build: getattr(version, vendor.torch_build, None) for vendor in VENDORS
    }
    return {
        name: str(toolkit_version)
        for name, toolkit_version in versions.items()
        if toolkit_version is not None
    }


def built_for(identity: Mapping[str, object]) -> Vendor | None:
    """Return the vendor whose toolkit torch was built for, by the facts of an identity.

    `None` for the CPU.
    """
    return next(
        (vendor for vendor in VENDORS if identity.get(vendor.torch_build) is not None), None
    )
