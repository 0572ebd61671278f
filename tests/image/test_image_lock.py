"""What goes into the image is what the lock names, and nothing else."""

import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "entrypoint" / "image_lock.py"
SPEC = importlib.util.spec_from_file_location("image_lock", SCRIPT)
lock = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lock)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()


def test_the_package_is_wanted_with_its_engine():
    wanted = lock.wanted(PROJECT, "")
    assert {"torch>=2.11", "transformers>=5.0", "requests>=2.32"} <= set(wanted)
    assert not any(line.startswith(("pytest", "ruff")) for line in wanted)


def test_another_torch_takes_the_place_of_the_locked_one_and_of_its_libraries():
    assert "torch==2.11.0" in lock.wanted(PROJECT, "torch==2.11.0")
    assert "torch>=2.11" not in lock.wanted(PROJECT, "torch==2.11.0")
    gone = set(lock.locked(CONSTRAINTS, "")) - set(lock.locked(CONSTRAINTS, "torch==2.11.0"))
    names = {line.partition("==")[0] for line in gone}
    assert {"torch", "triton", "nvidia-cublas", "cuda-bindings"} <= names
    assert not names & {"nvidia-ml-py", "numpy", "torchvision"}


def test_every_line_of_the_lock_pins_one_version():
    assert len(lock.pins_of(lock.locked(CONSTRAINTS, ""))) == len(lock.locked(CONSTRAINTS, ""))


def test_everything_that_is_needed_directly_is_locked():
    pins = lock.pins_of(CONSTRAINTS)
    assert [line for line in lock.wanted(PROJECT, "") if lock.name_of(line) not in pins] == []


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ({"numpy": "2.4.6"}, []),
        ({"numpy": "2.4.6", "pip": "24.0", "ci-bench": "0.1.0"}, []),
        ({"numpy": "2.4.7"}, ["numpy 2.4.7 is installed, but 2.4.6 is locked"]),
        (
            {"left-pad": "1"},
            ["left-pad 1 is installed and not locked: add left-pad==1 to constraints.txt"],
        ),
        ({"torch": "2.13.0+cpu"}, []),
        ({"torch": "2.12.0"}, ["torch 2.12.0 is installed, but 2.13.0 is locked"]),
        (
            {"nvidia-new": "1"},
            ["nvidia-new 1 is installed and not locked: add nvidia-new==1 to constraints.txt"],
        ),
    ],
)
def test_what_the_lock_does_not_name_is_named(installed, said):
    assert lock.strays(installed, lock.locked(CONSTRAINTS, "")) == said


def test_another_torch_brings_its_own_libraries_and_nothing_else():
    lines = lock.locked(CONSTRAINTS, "torch==2.11.0")
    assert lock.strays({"torch": "2.11.0", "triton": "3.5", "nvidia-cublas": "12.8"}, lines) == []
    assert len(lock.strays({"torch": "2.11.0", "numpy": "2.0.0", "nvidia-ml-py": "12"}, lines)) == 2


@pytest.mark.parametrize(
    ("line", "pin"),
    [
        ("MarkupSafe==3.0.4", ("markupsafe", "3.0.4")),
        ("ast_serialize==0.13.1", ("ast-serialize", "0.13.1")),
        ("sympy>=1.13.3", None),
        ("nvidia-cudnn==9.*", None),
        ("triton==3.5.0 ; platform_system == 'Linux'", None),
    ],
)
def test_only_a_line_of_exactly_one_version_is_a_pin(line, pin):
    assert lock.pins_of([line]) == ({pin[0]: pin[1]} if pin else {})


def test_the_files_for_pip_are_written_beside_the_script(tmp_path):
    for name in ("pyproject.toml", "constraints.txt", "requirements.lock"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    script = tmp_path / SCRIPT.name
    script.write_text(SCRIPT.read_text())

    done = subprocess.run(
        [sys.executable, script, "write", "torch==2.11.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch==2.11.0" in (tmp_path / "wanted.txt").read_text().splitlines()
    assert f"requests=={version('requests')}" in (tmp_path / "locked.txt").read_text().splitlines()

    refused = subprocess.run(
        [sys.executable, script, "write", "tensorflow"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "torch==2.11.0" in refused.stderr
