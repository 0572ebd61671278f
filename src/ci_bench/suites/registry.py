"""Finds suites: built-in ones, and those that installed plugins register."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci_bench.errors import UnknownSuite
from ci_bench.records.metrics import ENGINE, MetricKind
from ci_bench.records.results import Results
from ci_bench.suites.contract import Suite

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from ci_bench.formats.exporting import Exporter, Files

BUILT_IN = {
    "command": "ci_bench.suites.command.plan:SUITE",
    "fastrnns": "ci_bench.suites.fastrnns.plan:SUITE",
    "functions": "ci_bench.suites.functions.plan:SUITE",
    "torchbench": "ci_bench.suites.torchbench.plan:SUITE",
    "training_loss": "ci_bench.suites.training_loss.plan:SUITE",
    "transformers": "ci_bench.suites.transformers.plan:SUITE",
}
PLUGIN_GROUP = "ci_bench.suites"
INHERIT = "let its class inherit from ci_bench.suites.contract.Suite"


def find_suite(name: str) -> Suite:
    """Load a built-in suite, or one that an installed plugin registers.

    Plugins use the entry point group ``ci_bench.suites``.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        suite: Suite = getattr(import_module(module), attribute)
        return suite
    for entry in _installed().select(name=name):
        return _load(entry)
    names = ", ".join(sorted({*BUILT_IN, *(entry.name for entry in _installed())}))
    message = (
        f"unknown suite {name!r} (known: {names}); install the plugin that provides it or correct"
        " the name"
    )
    raise UnknownSuite(message)


def find_metrics() -> Mapping[str, MetricKind]:
    """Find the metrics that the engine and built-in suites (`METRICS`) declare, by name.

    Imports no plan. Plugins declare none: the process that judges their results need not have them
    installed. The configuration sets thresholds for theirs.
    """
    packages = (import_module(target.partition(".plan")[0]) for target in BUILT_IN.values())
    declared = (kind for package in packages for kind in getattr(package, "METRICS", ()))
    return {**ENGINE, **{kind.name: kind for kind in declared}}


def plans_from_tree(name: str, options: Mapping[str, Any]) -> bool:
    """Return true if the cases of an entry are known only next to the measured tree.

    This holds for a plugin, and for an entry whose plan reads files, even readable ones.
    """
    if name not in BUILT_IN:
        return True
    return bool(find_suite(name).reads(options))


def find_exporters() -> "dict[str, Exporter]":
    """Find the formats that `convert --to` can write from only a results document, by name.

    Suites declare ``{name: "module:function"}``. Raises `UnknownSuite` if a plugin cannot be
    imported.
    """
    plugins = (_load(entry) for entry in _installed())
    suites = (*map(find_suite, BUILT_IN), *plugins)
    declared = {name: where for suite in suites for name, where in suite.exports.items()}
    return {name: _exporter(where) for name, where in sorted(declared.items())}


def _exporter(where: str) -> "Exporter":
    def export(results: Results) -> "Files":
        module, _, attribute = where.partition(":")
        exporter: Exporter = getattr(import_module(module), attribute)
        return exporter(results)

    return export


def plugin_forms() -> dict[str, Mapping[str, Any]]:
    """Return the JSON Schema of each plugin suite's entries, by suite.

    It allows any mapping if a plugin gives none.
    """
    plugins = {entry.name: _load(entry) for entry in _installed()} if _may_be_installed() else {}
    return {name: suite.options_schema for name, suite in plugins.items()}


def plugin_names() -> tuple[str, ...]:
    """Return the names of installed plugins' suites, without importing one."""
    return tuple(entry.name for entry in _installed())


def _installed() -> "EntryPoints":
    """Return entry points of installed packages.

    Built-in suites skip the search and its imports.
    """
    from importlib.metadata import entry_points

    return entry_points(group=PLUGIN_GROUP)


def _may_be_installed() -> bool:
    """Return true if a package on the path may name our group; asking itself takes longer.

    A path that is not a folder, or a finder of distributions other than Python's, may hold one.
    """
    if any(
        hasattr(finder, "find_distributions") and finder is not PathFinder
        for finder in sys.meta_path
    ):
        return True
    return any(map(_names_plugins, dict.fromkeys(sys.path)))


def _names_plugins(place: str) -> bool:
    try:
        packages = [
            path
            for path in Path(place).iterdir()
            if path.name.lower().endswith((".dist-info", "egg-info"))
        ]
        return any(_names_group(package / "entry_points.txt") for package in packages)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _names_group(path: Path) -> bool:
    try:
        return PLUGIN_GROUP.encode() in path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False


def _load(entry: "EntryPoint") -> Suite:
    try:
        plugin = entry.load()
    except Exception as error:
        message = (
            f"the plugin behind suite {entry.name!r} ({entry.value}) cannot be imported: {error};"
            " fix or uninstall it"
        )
        raise UnknownSuite(message) from error
    if not isinstance(plugin, Suite):
        raise UnknownSuite(
            f"the plugin behind suite {entry.name!r} ({entry.value}) is not a Suite; {INHERIT}"
        )
    return plugin
