"""The Python environment of a trial: the host's packages, the wheels of .gpu-kit, this checkout.

Needs only the standard library: it runs before anything is installed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / ".gpu-kit"
FIXTURE = ROOT / "tests" / "fixtures" / "simulated_device"
CARD = '{"least_kernel_s": 0.0002}'
OFFLINE = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def make_environment(folder: Path) -> Path:
    """Create the environment in a folder, if it is not there; return its Python.

    Raises:
        OSError: the folder cannot be written.
        subprocess.CalledProcessError: Python cannot create an environment.
    """
    python = folder / "bin" / "python"
    script = folder / "bin" / "ci-bench"
    if script.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    places = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", places))
    install(sorted((KIT / "wheels").glob("*.whl")), site)
    host_sites = dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))
    lines = [
        str(ROOT / "src"),
        *(f"import site; site.addsitedir({host_site!r})" for host_site in host_sites),
    ]
    (site / "zz_gpu_kit.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.write_text(f'#!/bin/sh\nexec "{python}" -m ci_bench.cli "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return python


def install(wheels: Sequence[Path], site: Path) -> None:
    """Install wheels into a folder of packages; unpack them if there is no pip."""
    if not wheels:
        return
    options = ("--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "-q")
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(site)]
    if subprocess.run([*pip, *map(str, wheels)], check=False).returncode:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)


def find_git(folder: Path) -> Path | None:
    """Return a folder with a script that calls the git of .gpu-kit; None if the host has one."""
    program = KIT / "git" / "git.bin"
    if shutil.which("git") or not program.exists():
        return None
    script = folder / "git"
    folder.mkdir(parents=True, exist_ok=True)
    library = f'LD_LIBRARY_PATH="{program.parent / "lib"}"'
    script.write_text(f'#!/bin/sh\n{library} exec "{program}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return folder


def make_environ(environ: Mapping[str, str], python: Path, work: Path) -> dict[str, str]:
    """Return the environment of all stages; with GPU_KIT_SIMULATED, one with a simulated card."""
    git = find_git(work / "bin")
    paths = [str(python.parent), environ.get("PATH", os.defpath), *([str(git)] if git else [])]
    variables = {
        **environ,
        **OFFLINE,
        "CI_BENCH_LOCKS": str(work / "locks"),
        "COLUMNS": "200",
        "PATH": os.pathsep.join(paths),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if environ.get("GPU_KIT_SIMULATED"):
        card = work / "card.json"
        card.write_text(CARD, encoding="utf-8")
        path = [str(FIXTURE), environ.get("PYTHONPATH", "")]
        variables["SIMULATED_CARD"] = str(card)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return variables
