"""What pip fetches for the image is held against hashes, by the Dockerfile's own commands; and a file of another hash is refused."""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from dockerfile_rules import copied, instructions

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("image_lock", ROOT / "entrypoint" / "image_lock.py")
lock = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(lock)

CONSTRAINTS = (ROOT / "constraints.txt").read_text().splitlines()
LOCK = (ROOT / "requirements.lock").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PLACE = "/opt/ci-bench/lock/"
PROJECT = '[project]\nname = "x"\ndependencies = ["tiny>=1"]\n[project.optional-dependencies]\nengine = ["torch>=2"]\n'


def commands(last):
    """The Dockerfile's pip commands that read this file."""
    runs = [rest for name, rest in instructions(DOCKERFILE) if name == "RUN"]
    parts = [part.strip() for run in runs for part in re.split(r"&&|;|\bthen\b", run)]
    return [shlex.split(part) for part in parts if part.startswith("pip install") and last in part]


@pytest.fixture
def house(tmp_path):
    """A folder of wheels with one in it, and a place as the image has it."""
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/RECORD,,\n")
    return tmp_path, hashlib.sha256(wheel.read_bytes()).hexdigest()


def build(folder, entry, command):
    """Do as the Dockerfile does, with a lock of one entry, from the folder of wheels alone."""
    place = folder / "lock"
    place.mkdir()
    (place / "image_lock.py").write_text((ROOT / "entrypoint" / "image_lock.py").read_text())
    (place / "pyproject.toml").write_text(PROJECT)
    (place / "constraints.txt").write_text("tiny==1.0\ntorch==2.13.0\n")
    for name in ("requirements.lock", "requirements-build.lock"):
        (place / name).write_text(entry)
    subprocess.run([sys.executable, place / "image_lock.py", "write", "", ""], check=True)
    words = [word.replace(PLACE, f"{place}/") for word in command[1:]]
    only_here = [
        "--isolated",
        "--no-index",
        "--find-links",
        folder / "wheels",
        "--target",
        folder / "installed",
    ]
    pip = [sys.executable, "-m", "pip", *words, *only_here]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(pip, capture_output=True, text=True, check=False, cwd=place, env=environ)
    return done.returncode, done.stderr, (folder / "installed" / "tiny.py").exists()


COMMANDS = [*commands("hashed.txt"), *commands("requirements-build.lock")]


def test_the_image_and_the_wheel_are_each_installed_by_one_command():
    assert len(COMMANDS) == 2


def test_a_file_of_the_locked_hash_is_installed(house):
    folder, right = house
    code, told, there = build(
        folder,
        f"tiny==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{right}\n",
        COMMANDS[0],
    )
    assert (code, there) == (0, True), told


@pytest.mark.parametrize("command", COMMANDS, ids=["image", "wheel"])
def test_a_file_of_another_hash_is_refused(house, command):
    folder, _ = house
    code, told, there = build(folder, f"tiny==1.0 \\\n    --hash=sha256:{'0' * 64}\n", command)
    assert (code, "DO NOT MATCH THE HASHES" in told, there) == (1, True, False), told


def test_a_lock_without_a_hash_is_refused(house):
    folder, _ = house
    code, told, there = build(folder, "tiny==1.0\n", COMMANDS[0])
    assert (code, "Hashes are required in --require-hashes mode" in told, there) == (
        1,
        True,
        False,
    ), told


def test_a_command_without_hashes_would_take_it(house):
    """Negative control: what refuses is pip with this flag, not the folder of wheels."""
    folder, _ = house
    careless = [word for word in COMMANDS[0] if word != "--require-hashes"]
    code, told, there = build(folder, "tiny==1.0\n", careless)
    assert (code, there) == (0, True), told


@pytest.mark.container
@pytest.mark.slow
def test_an_image_whose_lock_has_another_hash_is_not_built(image, tmp_path):
    """The very build of the other tests, but for the hash of one package."""
    for name in {
        *(source.partition("/")[0] for source in copied(DOCKERFILE)),
        "Dockerfile",
        ".dockerignore",
        "tools",
    }:
        put = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        put(ROOT / name, tmp_path / name)
    (name, entry), *_ = re.findall(r"(?m)^(\S+==\S+) \\\n((?:    --hash.*\n)+)", LOCK)
    (tmp_path / "requirements.lock").write_text(
        LOCK.replace(entry, re.sub(r"sha256:.{8}", "sha256:00000000", entry))
    )
    command = [
        tmp_path / "tools" / "docker.sh",
        "build",
        image.engine.folder,
        "localhost/ci-bench:refused",
    ]
    done = subprocess.run(
        command,
        env=dict(image.engine.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    told = done.stdout + done.stderr
    assert done.returncode != 0, told[-3000:]
    assert re.search(rf"DO NOT MATCH THE HASHES[\s\S]*{re.escape(name)} from", told), told[-3000:]


def test_by_default_everything_keeps_its_hashes():
    assert lock.hashed(LOCK.splitlines(), other_torch=False) == LOCK.splitlines()


def test_with_another_torch_all_but_torch_and_its_libraries_keep_theirs():
    kept = "\n".join(lock.hashed(LOCK.splitlines(), other_torch=True))
    names = re.findall(r"(?m)^([a-z0-9-]+)==", kept)
    gone = {*re.findall(r"(?m)^([a-z0-9-]+)==", LOCK)} - {*names}
    assert {"torch", "triton", "nvidia-cublas", "cuda-bindings"} <= gone
    assert not any(name.startswith(("torch", "triton", "cuda-")) for name in names)
    assert {"numpy", "transformers", "nvidia-ml-py"} <= {*names}
    for name in names:
        entry = re.search(rf"(?m)^{name}==.*(?:\n    --hash.*)+", LOCK)[0]
        assert f"{entry}\n" in f"{kept}\n"


@pytest.mark.parametrize(
    ("given", "locked"),
    [((), True), (("", ""), True), (("torch==2.11.0",), False), (("", "https://x"), False)],
)
def test_the_hash_of_torch_counts_only_where_it_is_the_locked_one(tmp_path, given, locked):
    for name in (
        "pyproject.toml",
        "constraints.txt",
        "requirements.lock",
        "entrypoint/image_lock.py",
    ):
        (tmp_path / Path(name).name).write_text((ROOT / name).read_text())
    subprocess.run([sys.executable, tmp_path / "image_lock.py", "write", *given], check=True)
    assert bool(re.search(r"(?m)^torch==", (tmp_path / "hashed.txt").read_text())) is locked


def test_what_may_be_installed_is_what_has_hashes():
    """`image_lock.py check` holds what is installed against the constraints; the hashes are of the same versions."""
    pins = lock.pins_of(CONSTRAINTS)
    hashed = {
        lock.normal(name): version for name, version in re.findall(r"(?m)^(\S+)==(\S+)", LOCK)
    }
    assert {name: version for name, version in hashed.items() if pins.get(name) != version} == {}


def test_what_builds_the_wheel_is_locked():
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    text = (ROOT / "requirements-build.lock").read_text()
    assert [line for line in requires if not re.search(rf"(?m)^{lock.name_of(line)}==", text)] == []
