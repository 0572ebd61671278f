"""Turn flags into values: requested cases, workflow, noise, and the command that repeats a run."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from ci_bench.command_line.settings import Comparing, Measuring, Merging
from ci_bench.records.config import Config
from ci_bench.records.results import WorkflowRun
from ci_bench.runner.noise_floor import NoiseFolder, default_folder

_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,39}/[A-Za-z0-9_.-]{1,100}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


def asked(settings: Measuring, config: Config) -> dict[str, tuple[str, ...]]:
    """Return the flags that narrow or move the configured measurements, by name.

    Values are texts. A flag that equals the file's setting is left out.
    """
    written = config.written or config.run
    changed = {option.name: getattr(config.run, option.name) for option in fields(written)}
    flags = {
        name: (str(value),) for name, value in changed.items() if value != getattr(written, name)
    }
    for name, value, configured in (
        ("base", settings.base, config.base),
        ("baseline", settings.baseline, config.baseline),
    ):
        if value is not None and value != configured and (name == "base" or configured is not None):
            flags[name] = (str(value),)
    return {**flags, **({"filter": settings.filter} if settings.filter else {})}


def workflow_run(environ: Mapping[str, str]) -> WorkflowRun | None:
    """Return the current run of a GitHub workflow; `None` outside of one."""
    repository, run, attempt = (
        environ.get(f"GITHUB_{name}", "") for name in ("REPOSITORY", "RUN_ID", "RUN_ATTEMPT")
    )
    if not (
        _REPOSITORY.fullmatch(repository)
        and _NUMBER.fullmatch(run)
        and _NUMBER.fullmatch(attempt or "1")
    ):
        return None
    return WorkflowRun(repository=repository, run=int(run), attempt=int(attempt or "1"))


def noise_folder(settings: Measuring | Comparing | Merging) -> NoiseFolder:
    """Return the folder of learned noise: the flag's folder, else the caller's own."""
    return NoiseFolder(path=settings.noise or default_folder(settings.environ))


def results_path(path: Path) -> Path:
    """Return the file of results: a document, an artifact, or the document in a run's folder."""
    return path if path.suffix in {".json", ".zip"} else path / "results.json"


def command_again(command: str, settings: Measuring, *, base: str | None = None) -> tuple[str, ...]:
    """Return the words of the command that measures all cases again, in the same tree.

    `base` is the base commit of a paired run: the name of base may mean another commit by then.
    Flags for the place of documents and the form of the verdict are left out.
    """
    flags = {
        "--config": settings.config,
        "--baseline": "paired" if base else settings.baseline,
        "--base": base,
        "--fetched": None if base else settings.fetched,
        "--noise": settings.noise,
        "--device": settings.device,
        "--launches": settings.launches,
        "--budget": settings.budget_s,
    }
    texts = {
        flag: f"{value:g}" if isinstance(value, float) else str(value)
        for flag, value in flags.items()
        if value is not None
    }
    return (
        "ci-bench",
        *command.split(),
        *map(str, settings.paths),
        *(part for flag in texts.items() for part in flag),
    )
