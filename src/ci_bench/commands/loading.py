"""Load the configuration that the flags name, or the one in or above the folder."""

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
    """Return the named configuration, else the nearest one, else the defaults.

    Flags win over the file. `forms` are JSON Schemas of entries of the tree's own suites, by name.
    """
    return load_config(
        config_path(settings),
        settings.overrides,
        more_suites={**plugin_forms(), **(forms or {})},
        benchmarks=benchmark_paths(settings),
    )


def plugins_of(settings: Configured) -> dict[str, str]:
    """Return the tree's suites that are planned; none if paths of benchmarks replace the file's."""
    return {} if settings.paths else named_plugins(config_path(settings))


def benchmark_paths(settings: Configured) -> tuple[str, ...]:
    """Return the paths of benchmarks on the command line, relative to `here`.

    Raises:
        BadInput: one is outside of it.
    """
    paths = []
    for path in settings.paths:
        absolute = Path(os.path.normpath(settings.here / path))
        if not absolute.is_relative_to(settings.here):
            message = (
                f"{path}: not inside {settings.here}, and each side has its own tree; run from the"
                " root of that tree"
            )
            raise BadInput(message)
        paths.append(absolute.relative_to(settings.here).as_posix())
    return tuple(dict.fromkeys(paths))
