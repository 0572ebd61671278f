"""Open a context on a GPU, compute one number, and describe any obstacle.

A script with its own process. Run as ``python -m ci_bench.worker.context`` before anything
is measured: by the action, in the image, with its GPUs. Ends with 0, or with 3 and the message on
stderr.
"""

import os
import sys
from collections.abc import Mapping

from ci_bench.errors import ExitCode
from ci_bench.host.devices import refusal
from ci_bench.host.gpus import vendors
from ci_bench.host.gpus.protocol import Cards
from ci_bench.records.results import Environment


def main() -> ExitCode:
    """Try the first GPU, as a run with `device: auto` would take it."""
    gpus = vendors.look()
    identity: dict[str, str | int | None] = {"device": "cpu", "threads": 1}
    try:
        import torch

        identity |= {"torch": str(torch.__version__), **vendors.torch_builds(torch.version)}
        torch.ones(1, device="cuda").add_(1).item()
        sys.stdout.write(f"{torch.cuda.get_device_name()}{_software(identity, gpus)}\n")
    except Exception as error:  # noqa: BLE001 - any obstacle is the answer
        environment = Environment(
            identity=identity, condition={"cuda_trouble": " ".join(str(error).split())[:300]}
        )
        sys.stderr.write(
            f"{refusal(environment, gpus, os.environ, device='auto', required='cuda')}\n"
        )
        return ExitCode.MEASURING_FAILED
    return ExitCode.OK


def _software(identity: Mapping[str, object], gpus: tuple[Cards, ...]) -> str:
    """Return the driver of the vendor that torch was built for, and the toolkit."""
    for cards in gpus:
        version = identity.get(cards.vendor.torch_build)
        if version is not None:
            return f", driver {cards.driver or 'unknown'}, {cards.vendor.toolkit} {version}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
