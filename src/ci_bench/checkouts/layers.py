"""A side's own interpreter, which sees the side's packages first and the engine's behind them.

It does not see the other side's.

`python -m venv --system-site-packages` would show the packages of the interpreter that the engine's
own virtual environment was made with, not the engine's. So a plain environment gets one ``.pth``
file, read after all others, with the later entries: first the side's tree, then the engine's
folders. Packages that set-up installs win over both, an installed package over its source in the
tree, too: only the former has its compiled parts.

Packages that the engine's environment has from the checkout itself (an editable install) are left
out: they would be neither side's code.
"""

import json
import shlex
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import ci_bench

VENV_TIMEOUT_S = 120.0
BEHIND = "zzzz_ci_bench_engine.pth"
"""The name sorts behind those that installers choose: such files are read in the order of their
names.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The engine's packages: its `sites`, the `.pth` files in them, and further folders from those.

    `startup` are the `.pth` files that sides use too. `own` are those that would bring code of the
    checkout.
    """

    sites: tuple[Path, ...]
    startup: tuple[Path, ...]
    folders: tuple[Path, ...]
    own: tuple[Path, ...]


def engine_sites() -> tuple[Path, ...]:
    """Return the folders of this interpreter's packages."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return tuple(path for path in map(Path, [*site.getsitepackages(), *user]) if path.is_dir())


def engine_layer(checkout: Path, sites: Sequence[Path]) -> Layer:
    """Return the packages that the engine's environment offers to a side of this checkout."""
    files = [
        path
        for folder in sites
        for path in sorted(folder.glob("*.pth"))
        if not path.name.startswith(".")
    ]
    of_checkout = {path for folder in sites for path in _installed_from(checkout, folder)}
    inside = {path: tuple(_folders(path)) for path in files}
    of_checkout |= {
        path
        for path, folders in inside.items()
        if any(_is_source(folder, checkout, sites) for folder in folders)
    }
    rest = [
        folder
        for path in files
        if path in of_checkout
        for folder in inside[path]
        if not _is_source(folder, checkout, sites)
    ]
    startup = tuple(path for path in files if path not in of_checkout)
    return Layer(
        sites=tuple(sites), startup=startup, folders=tuple(rest), own=tuple(sorted(of_checkout))
    )


def make_environment(folder: Path, layer: Layer, tree: Sequence[Path]) -> str | None:
    """Make a virtual environment in `folder`, with the folders of `tree` and the layer behind it.

    Return the reason for a failure, or `None`.
    """
    scripts = dict(_scripts(layer, folder / "bin" / "python"))
    # Some engines have no pip, having been installed by uv; a pip from elsewhere on PATH would
    # install elsewhere.
    needs_pip = "pip" not in scripts and find_spec("ensurepip") is not None
    command = [
        sys.executable,
        "-I",
        "-m",
        "venv",
        *([] if needs_pip else ["--without-pip"]),
        str(folder),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=VENV_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no environment could be made for this side: {error}"
    if done.returncode:
        return (
            "no environment could be made for this side (is the module `venv` installed?):"
            f" {done.stderr.strip()[-1000:]}"
        )
    lines = [*map(str, [*tree, *layer.sites, *layer.folders]), *map(_startup_line, layer.startup)]
    (packages_of(folder) / BEHIND).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, script in scripts.items():
        path = folder / "bin" / name
        if not path.exists():
            path.write_text(script, encoding="utf-8")
            path.chmod(0o755)
    return None


def packages_of(folder: Path) -> Path:
    """Return the folder of packages of an environment made here."""
    return Path(
        sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)})
    )


def link_engine(folder: Path) -> Path:
    """Make a folder with only this very engine in it, for the front of a side's path.

    Without it a tree with a package `ci_bench`, such as this project's own, would be measured by
    another engine.
    """
    folder.mkdir(exist_ok=True)
    link = folder / "ci_bench"
    if not link.is_symlink():
        link.symlink_to(Path(ci_bench.__file__).resolve().parent, target_is_directory=True)
    return folder


def _startup_line(path: Path) -> str:
    """Return a line that reads an engine's `.pth` file in its own folder, which some inspect."""
    return f"import site; site.addpackage({str(path.parent)!r}, {path.name!r}, None)"


def _installed_from(checkout: Path, folder: Path) -> Iterator[Path]:
    """Yield the `.pth` files of distributions that are installed from the checkout.

    They still point there.
    """
    for distribution in distributions(path=[str(folder)]):
        if _comes_from(distribution, checkout):
            yield from (
                folder / str(file)
                for file in distribution.files or ()
                if str(file).endswith(".pth")
            )


def _comes_from(distribution: Distribution, checkout: Path) -> bool:
    """Return whether a distribution is of the checkout, by the installer's note.

    See https://packaging.python.org/en/latest/specifications/direct-url/.
    """
    try:
        url = urlsplit(json.loads(distribution.read_text("direct_url.json") or "{}").get("url", ""))
    except (ValueError, AttributeError):
        return False
    return url.scheme == "file" and Path(unquote(url.path)).resolve().is_relative_to(checkout)


def _folders(path: Path) -> Iterator[Path]:
    """Yield the folders that a `.pth` file adds to the path."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.strip() and not line.startswith(("#", "import ", "import\t")):
            yield (path.parent / line.strip()).resolve()


def _is_source(folder: Path, checkout: Path, sites: Sequence[Path]) -> bool:
    """Return whether a folder is code of the checkout.

    The engine's environment may be in the checkout, too.
    """
    environments = [Path(sys.prefix).resolve(), *(place.resolve() for place in sites)]
    return folder.is_relative_to(checkout) and not any(
        folder.is_relative_to(place) for place in environments
    )


def _scripts(layer: Layer, python: Path) -> Iterator[tuple[str, str]]:
    """Yield the engine's commands (pip, pytest, torchrun …) for the side's interpreter.

    The form is that of pip's own scripts: the first line may be short and without spaces only, so a
    shell starts the interpreter.
    """
    for distribution in distributions(path=[str(folder) for folder in layer.sites]):
        for entry in distribution.entry_points:
            if entry.group == "console_scripts" and "/" not in entry.name:
                start = (
                    f"from {entry.module} import"
                    f" {entry.attr.partition('.')[0]}\nsys.exit({entry.attr}())"
                )
                yield (
                    entry.name,
                    (
                        f"#!/bin/sh\n'''exec' {shlex.quote(str(python))} \"$0\" \"$@\"\n'"
                        f" '''\nimport sys\n{start}\n"
                    ),
                )
