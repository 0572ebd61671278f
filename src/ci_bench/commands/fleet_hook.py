"""The way from a gate to a fleet, whose modules are loaded only with `--fleet`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from ci_bench.checkouts.bundled import Sources
from ci_bench.checkouts.sides import Side
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.measuring import Measurement
from ci_bench.errors import BadInput
from ci_bench.records.config import Config
from ci_bench.records.results import Results, SideName
from ci_bench.runner.noise_floor import NoiseFolder


def check_fleet(settings: Measuring, config: Config) -> None:
    """Check the flags of a fleet.

    Raises `BadInput`: an ignored budget or image would be worse than none.
    """
    check_budgets(settings)
    if settings.fleet is not None or settings.image is not None:
        _fleet().check_cage(settings, config)


def check_budgets(settings: Measuring) -> None:
    """Check that a budget of a fleet can be kept. Raises `BadInput`."""
    spent = settings.gpu_seconds
    if spent is not None and settings.fleet is None:
        raise BadInput(
            "--gpu-seconds limits the leases of a fleet: add --fleet ENGINE, or limit the time with"
            " --budget"
        )
    if spent is not None and not 0 < spent < float("inf"):
        raise BadInput(f"--gpu-seconds {spent:g}: an amount above 0")


def alone(settings: Measuring) -> AbstractContextManager[None]:
    """Hold the output folder of a gate on a fleet; without a fleet nothing is held."""
    context: AbstractContextManager[None] = (
        nullcontext() if settings.fleet is None else _fleet().alone(settings)
    )
    return context


def bundle_sides(config: Config, settings: Measuring) -> tuple[Sequence[Side], Sources]:
    """Return both sides by their commits, and the bundle for nodes.

    See `commands.fleet.bundle_sides`.
    """
    sides: tuple[Sequence[Side], Sources] = _fleet().bundle_sides(config, settings)
    return sides


def measure_on_fleet(
    measurement: Measurement,
    settings: Measuring,
    sides: Sequence[Side],
    noise: NoiseFolder | None,
    *,
    sources: Sources | None,
) -> Mapping[SideName, Results]:
    """Measure in leases, as `commands.fleet.measure_on_fleet`."""
    results: Mapping[SideName, Results] = _fleet().measure_on_fleet(
        measurement, settings, sides, noise, sources=sources
    )
    return results


def _fleet() -> Any:
    return import_module("ci_bench.commands.fleet")
