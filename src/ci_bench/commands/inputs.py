"""Flags to values: the configuration, a baseline's document, how to reproduce a run."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ci_bench.command_line.settings import Comparing, Configured, Measuring, Merging
from ci_bench.commands.config_files import config_path, require_config
from ci_bench.commands.output import tell
from ci_bench.errors import BadConfig, BadDocument, BadInput

if TYPE_CHECKING:
    from ci_bench.commands.pipeline import Baseline
    from ci_bench.records.config import Config
    from ci_bench.records.results import Results, WorkflowRun
    from ci_bench.runner.noise_floor import NoiseFolder
    from ci_bench.suites.contract import Suite

OUTCOME = "baseline.json"
"""File next to a fetched baseline, or instead of it: its origin, or why it is missing."""
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,39}/[A-Za-z0-9_.-]{1,100}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


def load(settings: Configured, forms: "Mapping[str, Mapping[str, Any]] | None" = None) -> "Config":
    """The configuration that the flags name, else the one that is found, else the embedded one; flags win over the file.

    `forms` are JSON Schemas of entries of the tree's own suites, by name.
    """
    from ci_bench.configuration.config import load_config
    from ci_bench.suites.contract import plugin_forms

    return load_config(
        config_path(settings),
        settings.overrides,
        more_suites={**plugin_forms(), **(forms or {})},
        benchmarks=benchmark_paths(settings),
    )


def load_with_suites(settings: Configured) -> "tuple[Config, Callable[[str], Suite]]":
    """The configuration, its entries of the tree's own suites checked by the form that those give, and how suites are found.

    Raises `BadConfig` and `UnknownSuite`. For commands that will measure, or show the plan: the
    tree's code runs in separate processes.
    """
    from ci_bench.configuration.plugins import finder, open_functions, open_suites

    require_config(settings)
    own = open_suites(plugins_of(settings), settings.here, settings.environ)
    config = load(settings, {name: suite.options_schema for name, suite in own.items()})
    return config, finder({**own, "functions": open_functions(settings.here, settings.environ)})


def base_config(settings: Configured, config: "Config", here: Path) -> "Config":
    """The configuration as base's tree has it at `here`, its folder of this one; flags win over it, too.

    It is head's where base's tree has no such file, where it cannot be read, and where the file lies outside of the checkout: one
    file is then meant for both.
    """
    path = _in_base(config_path(settings), settings.here, here)
    if path is None:
        return config
    from ci_bench.configuration.config import load_config
    from ci_bench.suites.contract import plugin_forms

    try:
        return load_config(path, settings.overrides, more_suites=plugin_forms(), benchmarks=benchmark_paths(settings))
    except BadConfig as error:
        first = str(error).partition("\n")[0]
        tell(f"base's configuration cannot be read, so base's tree is planned by this one: {first}")
        return config


def _in_base(path: Path | None, ours: Path, theirs: Path) -> Path | None:
    """Return the path of the file in base's tree; `None` if it is missing there.

    `theirs` is base's folder for `ours`.
    """
    if path is None:
        return None
    inside = os.path.relpath(path.resolve(), ours.resolve())
    found = Path(os.path.normpath(theirs / inside))
    top = next((folder for folder in (theirs, *theirs.parents) if (folder / ".git").exists()), theirs)
    return found if found.is_relative_to(top) and found.is_file() else None


def plugins_of(settings: Configured) -> dict[str, str]:
    """The suites of the tree that are planned: none if paths of benchmarks take the place of the file's suites."""
    from ci_bench.configuration.config import named_plugins

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
            message = f"{path}: not inside {settings.here}, and each side has its own tree; run from the root of that tree"
            raise BadInput(message)
        found.append(whole.relative_to(settings.here).as_posix())
    return tuple(dict.fromkeys(found))


def asked(settings: Measuring, config: "Config") -> dict[str, tuple[str, ...]]:
    """The flags that narrow or move what the configuration file has measured, by name, each with its values as text.

    A flag that equals the file's setting is left out.
    """
    written = config.written or config.run
    changed = {one.name: getattr(config.run, one.name) for one in fields(written)}
    found = {name: (str(value),) for name, value in changed.items() if value != getattr(written, name)}
    for name, value, said in (("base", settings.base, config.base), ("baseline", settings.baseline, config.baseline)):
        if value is not None and value != said and (name == "base" or said is not None):
            found[name] = (str(value),)
    return {**found, **({"filter": settings.filter} if settings.filter else {})}


def workflow_run(environ: Mapping[str, str]) -> "WorkflowRun | None":
    """The run of a GitHub workflow that we are in; `None` outside of one."""
    from ci_bench.records.results import WorkflowRun

    repository, run, attempt = (environ.get(f"GITHUB_{name}", "") for name in ("REPOSITORY", "RUN_ID", "RUN_ATTEMPT"))
    if not (_REPOSITORY.fullmatch(repository) and _NUMBER.fullmatch(run) and _NUMBER.fullmatch(attempt or "1")):
        return None
    return WorkflowRun(repository=repository, run=int(run), attempt=int(attempt or "1"))


def read_baseline(path: Path | None, *, is_artifact: bool = False) -> "Baseline":
    """The results of an earlier run: a document, a run's folder, or an artifact as it was downloaded (``.zip``).

    `is_artifact` says that `fetch-baseline` was to leave them there. Absent results are an absence with its reason; broken ones
    are an error before measuring, `BadDocument`.
    """
    from ci_bench.commands.pipeline import Baseline
    from ci_bench.records import documents
    from ci_bench.records.comparison import BaselineMode

    mode = BaselineMode.ARTIFACT if is_artifact else BaselineMode.FILE
    if path is None:
        return Baseline(mode=mode, absence="none was requested (--baseline PATH)")
    file = results_path(path)
    if not file.exists():
        said = absence(path) if path.suffix not in {".json", ".zip"} else None
        return Baseline(mode=mode, absence=said or f"there is nothing at {file} yet")
    if file.suffix == ".zip":
        return Baseline(mode=BaselineMode.ARTIFACT, results=_from_archive(file))
    return Baseline(mode=mode, results=documents.read_results(file))


def absence(folder: Path) -> str | None:
    """Explain why `fetch_baseline` left no results; `None` if it left some or never ran."""
    try:
        said = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    message = said.get("message") if isinstance(said, dict) and said.get("outcome") == "none" else None
    return message if isinstance(message, str) else None


def _from_archive(path: Path) -> "Results":
    """The results in an artifact, which is checked as any stranger's archive is."""
    from ci_bench.github.archive import Contents, UnsafeArchive, read_members
    from ci_bench.records import documents

    name = "results.json"
    try:
        members = read_members(path.read_bytes(), Contents(members=(name,)))
    except (UnsafeArchive, OSError) as error:
        raise BadDocument(f"{path}: the artifact cannot be read: {error}") from error
    if name not in members:
        raise BadDocument(f"{path}: the artifact has no {name}, which `ci-bench run` and `gate` write")
    with TemporaryDirectory(prefix="ci-bench-") as folder:
        (Path(folder) / name).write_bytes(members[name])
        return documents.read_results(Path(folder) / name)


def noise_folder(settings: Measuring | Comparing | Merging) -> "NoiseFolder":
    """Return the folder of learned noise: the flag's folder, else the caller's own."""
    from ci_bench.runner.noise_floor import NoiseFolder, default_folder

    return NoiseFolder(path=settings.noise or default_folder(settings.environ))


def results_path(path: Path) -> Path:
    """A results document, an artifact that holds one, or the document in a run's folder."""
    return path if path.suffix in {".json", ".zip"} else path / "results.json"


def command_again(command: str, settings: Measuring, *, base: str | None = None) -> tuple[str, ...]:
    """The words of the command that measures the same way again, in the same tree: all cases of it.

    `base` is the base commit of a paired run: what named it may stand for another one by then. Left out are flags that say where
    documents go, or how the verdict is shown.
    """
    flags = {
        "--config": settings.config,
        "--baseline": "paired" if base else settings.baseline,
        "--base": base,
        "--fetched": None if base else settings.fetched,
        "--noise": settings.noise,
        "--device": settings.device,
        "--launches": settings.launches,
        "--threads": settings.threads,
        "--stage-timeout": settings.stage_timeout_s,
        "--budget": settings.budget_s,
    }
    given = {flag: f"{value:g}" if isinstance(value, float) else str(value) for flag, value in flags.items() if value is not None}
    return ("ci-bench", command, *map(str, settings.paths), *(part for flag in given.items() for part in flag))
