"""From flags to values: the configuration, a baseline's document, how to reproduce a run."""

import argparse
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ci_bench.errors import BadConfig, BadDocument

if TYPE_CHECKING:
    from ci_bench.noise_floor import NoiseFolder
    from ci_bench.pipeline import Baseline
    from ci_bench.records.config import Config
    from ci_bench.records.results import Results
    from ci_bench.suites.base import Suite

HERE = Path("ci-bench.yml")


def load(arguments: argparse.Namespace, forms: "Mapping[str, Mapping[str, Any]] | None" = None) -> "Config":
    """The configuration that the flags name, else the one in this folder, else the built-in one; flags win over the file.

    `forms` are JSON Schemas of entries of the tree's own suites, by name.
    """
    from ci_bench.config import Overrides, load_config
    from ci_bench.suites.base import plugin_forms

    overrides = Overrides(**{field.name: getattr(arguments, field.name, None) for field in fields(Overrides)})
    return load_config(_config_path(arguments), overrides, more_suites={**plugin_forms(), **(forms or {})})


def load_with_suites(arguments: argparse.Namespace) -> "tuple[Config, Callable[[str], Suite]]":
    """The configuration, its entries of the tree's own suites checked by the form that those give, and how suites are found.

    Raises `BadConfig` and `UnknownSuite`. For commands that go on to measure, or show what would be measured: code of the tree is
    run, in processes of its own.
    """
    from ci_bench.config import named_plugins
    from ci_bench.plugins import finder, open_suites

    own = open_suites(named_plugins(_config_path(arguments)), Path.cwd(), os.environ)
    return load(arguments, {name: suite.options_schema for name, suite in own.items()}), finder(own)


def read_baseline(path: Path | None, *, is_artifact: bool = False) -> "Baseline":
    """The results of an earlier run: a document, a run's folder, or an artifact as it was downloaded (``.zip``).

    `is_artifact` says that `fetch-baseline` was to leave them there. Absent results are an absence with its reason; broken ones
    are an error before measuring, `BadDocument`.
    """
    from ci_bench.commands.trusted.publishing import absence
    from ci_bench.pipeline import Baseline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    mode = BaselineMode.ARTIFACT if is_artifact else BaselineMode.FILE
    if path is None:
        return Baseline(mode=mode, absence="none was asked for (--baseline PATH)")
    file = results_path(path)
    if not file.exists():
        said = absence(path) if path.suffix not in {".json", ".zip"} else None
        return Baseline(mode=mode, absence=said or f"there is nothing at {file} yet")
    if file.suffix == ".zip":
        return Baseline(mode=BaselineMode.ARTIFACT, results=_from_archive(file))
    return Baseline(mode=mode, results=documents.read_results(file))


def _from_archive(path: Path) -> "Results":
    """The results in an artifact, which is checked as any stranger's archive is."""
    from ci_bench.github.archive import Contents, UnsafeArchive, read_members
    from ci_bench.records import documents

    name = "results.json"
    try:
        members = read_members(path.read_bytes(), Contents(members=(name,)))
    except (UnsafeArchive, OSError) as error:
        raise BadDocument(f"{path}: the artifact is not read: {error}") from error
    if name not in members:
        raise BadDocument(f"{path}: the artifact has no {name}, which is what `ci-bench run` and `gate` write")
    with TemporaryDirectory(prefix="ci-bench-") as folder:
        (Path(folder) / name).write_bytes(members[name])
        return documents.read_results(Path(folder) / name)


def _config_path(arguments: argparse.Namespace) -> Path | None:
    path: Path | None = arguments.config
    try:
        return path or (HERE if HERE.exists() else None)
    except OSError as error:
        way_out = "go to one that you may enter, or name a file with --config"
        raise BadConfig(f"{HERE}: cannot be looked for in this folder: {error.strerror}; {way_out}") from error


def noise_folder(arguments: argparse.Namespace) -> "NoiseFolder":
    """Where what is known of machines' noise lies: the flag's folder, else the caller's own."""
    from ci_bench.noise_floor import NoiseFolder, default_folder

    return NoiseFolder(path=arguments.noise or default_folder(os.environ))


def results_path(path: Path) -> Path:
    """A results document, an artifact that holds one, or the document in a run's folder."""
    return path if path.suffix in {".json", ".zip"} else path / "results.json"


def reproduce_prefix(arguments: argparse.Namespace) -> str:
    """The command that measures again, without its filter."""
    parts = ["ci-bench", "run"]
    if arguments.config:
        parts += ["--config", str(arguments.config)]
    if arguments.device:
        parts += ["--device", arguments.device]
    return shlex.join(parts)
