"""Load a configuration with the suites of the tree, whose code runs in separate processes."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ci_bench.checkouts.paired import prepared_head
from ci_bench.command_line.settings import Configured, Measuring
from ci_bench.commands.config_files import config_path, require_config
from ci_bench.commands.loading import benchmark_paths, load, plugins_of
from ci_bench.commands.output import tell
from ci_bench.configuration.config import QUICKSTART, load_config
from ci_bench.configuration.plugins import (
    PlanningTree,
    caller_tree,
    finder,
    functions_of,
    open_suites,
    side_tree,
)
from ci_bench.errors import BadConfig
from ci_bench.records.config import Config
from ci_bench.suites.contract import Suite
from ci_bench.suites.registry import plugin_forms


def load_with_suites(settings: Configured) -> tuple[Config, Callable[[str], Suite]]:
    """Return the configuration, and the function that finds suites by name.

    Entries of the tree's own suites are checked by the forms of those suites. For commands that
    will measure, or show the plan: the tree's code runs in separate processes.

    Raises `BadConfig` and `UnknownSuite`.
    """
    require_config(settings)
    suites = open_suites(plugins_of(settings), settings.here, settings.environ)
    config = load(settings, {name: suite.options_schema for name, suite in suites.items()})
    return config, finder(
        {**suites, "functions": functions_of(settings.here, partial(_planning_tree, settings))}
    )


def _planning_tree(settings: Configured) -> PlanningTree:
    """Return the tree that plans benchmarks: head's prepared one, or else the caller's.

    The prepared one has the packages of set-up.
    """
    if isinstance(settings, Measuring) and settings.prepared is not None:
        head = prepared_head(settings.prepared, settings.here, settings.environ)
        if head.failure is None:
            return side_tree(head)
    return caller_tree(settings.here, settings.environ)


def base_config(settings: Configured, config: Config, here: Path) -> Config:
    """Return the configuration in base's tree, with the flags applied.

    `here` is base's folder for the folder of this configuration. Head's configuration is used if
    base's tree has no such file or it cannot be read, and if the file is outside of the checkout:
    it is then for both sides.
    """
    path = _in_base(config_path(settings), settings.here, here)
    if path is None:
        return config

    try:
        return load_config(
            path,
            settings.overrides,
            more_suites=plugin_forms(),
            benchmarks=benchmark_paths(settings),
        )
    except BadConfig as error:
        first = str(error).partition("\n")[0]
        tell(f"base's configuration cannot be read, so base's tree is planned by this one: {first}")
        return config


def _in_base(path: Path | None, ours: Path, theirs: Path) -> Path | None:
    """Return the path of the file in base's tree; `None` if it is missing there.

    `theirs` is base's folder for `ours`.
    """
    if path is None or path == QUICKSTART:
        return None
    inside = os.path.relpath(path.resolve(), ours.resolve())
    counterpart = Path(os.path.normpath(theirs / inside))
    top = next(
        (folder for folder in (theirs, *theirs.parents) if (folder / ".git").exists()), theirs
    )
    return counterpart if counterpart.is_relative_to(top) and counterpart.is_file() else None
