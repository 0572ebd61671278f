"""From flags to values: the configuration, a baseline's document, how to reproduce a run."""

import argparse
import os
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ci_bench.noise_floor import NoiseFolder
    from ci_bench.pipeline import Baseline
    from ci_bench.records.config import Config

HERE = Path("ci-bench.yml")


def load(arguments: argparse.Namespace) -> "Config":
    """The configuration that the flags name, else the one in this folder, else the built-in one; flags win over the file."""
    from ci_bench.config import Overrides, load_config
    from ci_bench.suites.base import plugin_forms

    path = arguments.config or (HERE if HERE.exists() else None)
    overrides = Overrides(**{field.name: getattr(arguments, field.name, None) for field in fields(Overrides)})
    return load_config(path, overrides, more_suites=plugin_forms())


def read_baseline(path: Path | None) -> "Baseline":
    """The baseline document; an absent file is an absence with its reason, a broken one is an error before measuring."""
    from ci_bench.commands.publishing import absence
    from ci_bench.pipeline import Baseline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    if path is None:
        return Baseline(mode=BaselineMode.FILE, absence="none was asked for (--baseline PATH)")
    file = results_path(path)
    if not file.exists():
        said = absence(path) if path.suffix != ".json" else None
        return Baseline(mode=BaselineMode.FILE, absence=said or f"there is nothing at {file} yet")
    return Baseline(mode=BaselineMode.FILE, results=documents.read_results(file))


def noise_folder(arguments: argparse.Namespace) -> "NoiseFolder":
    """Where what is known of machines' noise lies: the flag's folder, else the caller's own."""
    from ci_bench.noise_floor import NoiseFolder, default_folder

    return NoiseFolder(path=arguments.noise or default_folder(os.environ))


def results_path(path: Path) -> Path:
    """A results document, or the one in a run's folder."""
    return path if path.suffix == ".json" else path / "results.json"


def reproduce_prefix(arguments: argparse.Namespace) -> str:
    """The command that measures again, without its filter."""
    parts = ["ci-bench", "run"]
    if arguments.config:
        parts += ["--config", str(arguments.config)]
    if arguments.device:
        parts += ["--device", arguments.device]
    return shlex.join(parts)
