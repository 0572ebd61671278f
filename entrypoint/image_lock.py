"""The image's lock: says what is to be installed, and checks that nothing else was.

Standard library only; runs in the image.

    image_lock.py write [TORCH [INDEX]]   writes the files below, next to pyproject.toml,
                                          constraints.txt and requirements.lock
    image_lock.py check                   compares what is installed with locked.txt

hashed.txt is what pip installs by its hash: all of requirements.lock. wanted.txt has the
requirements of pyproject.toml, and locked.txt the versions of constraints.txt. Another torch than
the locked one, such as ``torch==2.11.0``, or one of a further index, has other hashes and other
libraries with it: their lines give way, and pip chooses them by wanted.txt and locked.txt.
Everything else stays locked, hashes and all.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

REQUIREMENT = re.compile(r"^([A-Za-z0-9][\w.-]*)")
PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;*]+)$")
COMES_WITH_TORCH = re.compile(r"^(torch|triton|cuda-.*|nvidia-(?!ml-py$).*)$")
"""torch, and what its builds with CUDA bring; nvidia-ml-py is a dependency of ours."""
OF_THE_INTERPRETER = "pip"
"""Comes with Python's venv, in the version of the base's release."""
OUR_OWN = "ci-bench"
OTHER_TORCH = "# another torch: its own libraries are as it pins them"


def wanted(pyproject: Mapping[str, Any], torch: str) -> list[str]:
    """Return the requirements of the package with its engine, with the requested torch."""
    project = pyproject["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["engine"]]
    return [torch if torch and name_of(line) == "torch" else line for line in requirements]


def locked(constraints: Iterable[str], torch: str) -> list[str]:
    """Return the lock's lines, without torch and its libraries if another torch is requested."""
    lines = [line.strip() for line in constraints if line.strip() and not line.startswith("#")]
    return (
        [OTHER_TORCH, *(line for line in lines if not COMES_WITH_TORCH.match(name_of(line)))]
        if torch
        else lines
    )


def hashed(lock: Iterable[str], *, other_torch: bool) -> list[str]:
    """Return the lines of a lock with hashes.

    The entries of torch and its libraries are left out if those come from elsewhere.
    """
    entries, keep = [], True
    for line in lock:
        if line[:1].isalnum():
            keep = not (other_torch and COMES_WITH_TORCH.match(name_of(line)))
        if keep:
            entries.append(line)
    return entries


def strays(installed: Mapping[str, str], lines: Iterable[str]) -> list[str]:
    """Return a sentence for each installed package that the lock lacks or has otherwise."""
    lines = tuple(lines)
    pins, other_torch = pins_of(lines), OTHER_TORCH in lines
    complaints = []
    for name, version in sorted(installed.items()):
        if name in {OF_THE_INTERPRETER, OUR_OWN} or (other_torch and COMES_WITH_TORCH.match(name)):
            continue
        if name not in pins:
            complaints.append(
                f"{name} {version} is installed and not locked: add {name}=={version} to"
                " constraints.txt"
            )
        elif version.partition("+")[0] != pins[name]:
            complaints.append(f"{name} {version} is installed, but {pins[name]} is locked")
    return complaints


def pins_of(lines: Iterable[str]) -> dict[str, str]:
    """Return the version by name, of the lines that pin exactly one version."""
    return {normal(match[1]): match[2] for line in lines if (match := PINNED.match(line.strip()))}


def normal(name: str) -> str:
    """Return a project's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(line: str) -> str:
    """Return the project that a requirement names."""
    match = REQUIREMENT.match(line.strip())
    return normal(match[1]) if match else ""


def _write(folder: Path, torch: str = "", index: str = "") -> int:
    if torch and name_of(torch) != "torch":
        sys.stderr.write(
            f"TORCH has to be a requirement of torch, such as torch==2.11.0, and is {torch!r}\n"
        )
        return 2
    pyproject = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    constraints = (folder / "constraints.txt").read_text(encoding="utf-8").splitlines()
    lock = (folder / "requirements.lock").read_text(encoding="utf-8").splitlines()
    (folder / "hashed.txt").write_text(
        "\n".join(hashed(lock, other_torch=bool(torch or index))) + "\n", encoding="utf-8"
    )
    (folder / "wanted.txt").write_text("\n".join(wanted(pyproject, torch)) + "\n", encoding="utf-8")
    (folder / "locked.txt").write_text(
        "\n".join(locked(constraints, torch)) + "\n", encoding="utf-8"
    )
    return 0


def _check(folder: Path) -> int:
    installed = {
        normal(distribution.metadata["Name"]): distribution.version
        for distribution in distributions()
    }
    complaints = strays(installed, (folder / "locked.txt").read_text(encoding="utf-8").splitlines())
    sys.stdout.write(
        "\n".join(complaints) + "\n" if complaints else f"{len(installed)} packages, all locked\n"
    )
    return int(bool(complaints))


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.exit(_check(here) if sys.argv[1] == "check" else _write(here, *sys.argv[2:]))
