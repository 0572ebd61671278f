"""Loads the configuration that the flags name, or that is found."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci_bench.command_line.settings import Configured
from ci_bench.commands.config_files import config_path
from ci_bench.configuration.config import load_config, named_plugins
from ci_bench.errors import BadInput
from ci_bench.records.config import Config
from ci_bench.suites.registry import plugin_forms


def load(settings: Configured, forms: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
    """The configuration that the flags name, else the one that is found, else the defaults; flags win over the file.

    `forms` are JSON Schemas of entries of the tree's own suites, by name.
    """
    return load_config(
        config_path(settings),
        settings.overrides,
        more_suites={**plugin_forms(), **(forms or {})},
        benchmarks=benchmark_paths(settings),
    )


def plugins_of(settings: Configured) -> dict[str, str]:
    """The suites of the tree that are planned: none if paths of benchmarks take the place of the file's suites."""
    return {} if settings.paths else named_plugins(config_path(settings))


def benchmark_paths(settings: Configured) -> tuple[str, ...]:
    """The paths of benchmarks that the command line names, relative to the folder that it was given in.

    Raises:
        BadInput: one lies outside of it.
    """
    found = []
    for path in settings.paths:
        whole = Path(os.path.normpath(settings.here / path))
        if not whole.is_relative_to(settings.here):
            message = (
                f"{path}: not inside {settings.here}, and each side has its own tree; run from the"
                " root of that tree"
            )
            raise BadInput(message)
        found.append(whole.relative_to(settings.here).as_posix())
    return tuple(dict.fromkeys(found))
