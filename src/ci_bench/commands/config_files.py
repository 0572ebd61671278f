"""Find the configuration's file: the named one, else ``ci-bench.yml`` here or above.

The search ends at the repository's root. A file whose name is nearly right is an error: otherwise
another configuration would be measured than the intended one.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ci_bench.checkouts.git import top_of
from ci_bench.command_line.settings import Configured
from ci_bench.configuration.config import QUICKSTART
from ci_bench.errors import BadConfig
from ci_bench.records.spelling import slips

NAME = "ci-bench.yml"
GITHUB = ".github"
MOST_SLIPS = 2
"""Most typing errors in a typed path; a name that was only found may have one."""
_ENDINGS = (".yml", ".yaml", ".json", ".toml")
_Settings = TypeVar("_Settings", bound=Configured)


def rooted(settings: _Settings) -> _Settings:
    """Move `here` to the folder of the configuration, and make `paths` relative to it.

    A file that is named with ``--config`` moves nothing: its paths are relative to the working
    directory.

    Raises:
        BadConfig: the folder cannot be read, or a file there is nearly called ``ci-bench.yml``.
    """
    file = None if settings.config is not None else _search(settings.here)
    if file is None or file.parent == settings.here:
        return settings
    paths = tuple(
        Path(os.path.relpath(settings.here / path, file.parent)) for path in settings.paths
    )
    return replace(settings, here=file.parent, paths=paths)


def config_path(settings: Configured) -> Path | None:
    """Return the configuration's file; ``None`` if the defaults apply.

    It is `QUICKSTART` if the embedded configuration is named.

    Raises:
        BadConfig: the named file is missing, or a file is nearly called ``ci-bench.yml``.
    """
    if settings.config is not None:
        if settings.config != QUICKSTART and not settings.config.exists():
            raise BadConfig(f"{settings.config}: no such file{_meant(settings.config)}")
        return settings.config
    file = _search(settings.here)
    return None if file is None else Path(os.path.relpath(file))


def require_config(settings: Configured) -> None:
    """Refuse to measure the embedded configuration unless it is named.

    Raises `BadConfig` with the next steps.
    """
    if settings.paths or settings.config is not None or config_path(settings) is not None:
        return
    top = top_of(settings.here)
    where = f"in {settings.here}" + (
        f" or above it, up to {top}" if top != settings.here.resolve() else ""
    )
    below = sorted(settings.here.glob(f"*/{NAME}"))
    near = (
        f"name {below[0].relative_to(settings.here)} with --config"
        if below
        else "let `ci-bench init` write one"
    )
    others = (
        "name files of benchmarks (`ci-bench gate benchmarks/`), or try the embedded suites:"
        f" --config {QUICKSTART}"
    )
    raise BadConfig(f"no {NAME} {where}; {near}, {others}")


def nearly(names: Iterator[str] | list[str]) -> str | None:
    """Return the name that is ``ci-bench.yml`` except for case, dots, dashes or ending, if any."""
    return min(
        (name for name in names if name != NAME and _plain(name) == _plain(NAME)), default=None
    )


def misspelt(names: Iterator[str] | list[str]) -> str | None:
    """Return the name that is one typing error away from ``ci-bench.yml``, if any."""
    candidates = (
        (slips(_plain(name), _plain(NAME)), name)
        for name in names
        if name.casefold().endswith(_ENDINGS)
    )
    return min(((count, name) for count, name in candidates if count == 1), default=(0, None))[1]


def _search(here: Path) -> Path | None:
    """Return the file in the nearest folder that has it. Raises `BadConfig`."""
    folders = [here, *(folder for folder in here.parents if folder.is_relative_to(_top(here)))]
    for folder in folders:
        names = _names(folder)
        if _is_there(folder) and (names is None or NAME in names):
            return folder / NAME
        if near := nearly(names or []):
            _refuse(folder / near)
        if near := next(
            (name for name in _names(folder / GITHUB) or [] if _plain(name) == _plain(NAME)), None
        ):
            _refuse(folder / GITHUB / near)
    for folder in folders:
        if slip := misspelt(_names(folder) or []):
            _refuse(folder / slip)
    return None


def _top(here: Path) -> Path:
    """Return the repository's root, spelled as `here` is, or `here` outside of a repository."""
    top = top_of(here)
    return next((folder for folder in (here, *here.parents) if folder.resolve() == top), here)


def _refuse(file: Path) -> None:
    shown = os.path.relpath(file)
    raise BadConfig(
        f"{shown}: the configuration is {NAME} in its folder or at the root; move this file, or"
        f" name it: --config {shown}"
    )


def _is_there(folder: Path) -> bool:
    try:
        return (folder / NAME).exists() or (folder / NAME).is_symlink()
    except OSError as error:
        way_out = "go to one that you may enter, or name a file with --config"
        raise BadConfig(
            f"{NAME}: cannot be looked for in {folder}: {error.strerror}; {way_out}"
        ) from error


def _names(folder: Path) -> list[str] | None:
    """Return the names of a folder's files; ``None`` if it cannot be listed."""
    with suppress(OSError):
        return [entry.name for entry in os.scandir(folder) if not entry.is_dir()]
    return None


def _plain(name: str) -> str:
    """Return a name without case, dots, dashes, underscores and ending."""
    lower = name.casefold()
    ending = next((ending for ending in _ENDINGS if lower.endswith(ending)), "")
    return lower.removesuffix(ending).translate(str.maketrans("", "", ".-_ "))


def _meant(path: Path) -> str:
    """Return the end of a message: the file that was probably meant, or the next step."""
    names = _names(path.parent) or []
    near = sorted(
        (slips(path.name.casefold(), name.casefold()), name) for name in [*names, str(QUICKSTART)]
    )
    count, name = near[0]
    alike = [other for other in names if _plain(other) == _plain(path.name)]
    meant = alike[0] if alike else name if count <= MOST_SLIPS else None
    if meant is None:
        return "; check the path"
    shown = meant if meant == str(QUICKSTART) and meant not in names else path.parent / meant
    return f"; did you mean {str(shown)!r}?"
