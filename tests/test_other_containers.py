"""Commands of the docs for Podman and Apptainer: each flag is one that the tool's manual has, and nothing is for one architecture."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("docker.md", "other-ci.md")]
FLAGS = {
    # podman-run(1), podman-build(1) of 4.2: each takes a value unless it is in `ALONE`
    "podman run": "--rm -it --user --userns --device --network --read-only --tmpfs --cap-drop --cap-add --security-opt "
    "--pids-limit --shm-size -v -e",
    "podman build": "-t --build-arg",
    # apptainer-run(1), apptainer-build(1) of 1.4
    "apptainer run": "--nv --contain --cleanenv --writable-tmpfs --bind --pwd",
    "apptainer build": "",
}
ALONE = {"--rm", "-it", "--read-only", "--nv", "--contain", "--cleanenv", "--writable-tmpfs"}
IMAGE = re.compile(r"ci-bench(:[\w.-]+)?(\.sif)?|\.|docker-daemon://ci-bench:latest")
ONE_ARCHITECTURE = re.compile(r"x86[-_]64|amd64|i[3-6]86|-march=|mavx|msse")


def commands(text):
    """The documented command lines of container tools; Docker's as Podman takes them."""
    joined = text.replace("\\\n", " ")
    for line in re.findall(r"^\$ ((?:docker|apptainer) .*)$", joined, re.MULTILINE):
        words = shlex.split(line.partition(" #")[0])
        if words[0] == "docker":
            gpus = {"docker": "podman", "--gpus": "--device", "all": "nvidia.com/gpu=all"}
            words = [gpus.get(word, word) for word in words]
        yield words


def complaint(words):
    """The first word that the tool's manual does not have; empty if it has all."""
    known = FLAGS[" ".join(words[:2])].split()
    rest = iter(words[2:])
    for word in rest:
        flag, _, value = word.partition("=")
        if not word.startswith("-"):
            return "" if IMAGE.fullmatch(word) else word
        if flag not in known or (value and flag in ALONE):
            return word
        if (
            not value
            and flag not in ALONE
            and (not (taken := next(rest, "")) or taken.startswith("-"))
        ):
            return word
    return "no image"


DOCUMENTED = [words for page in PAGES for words in commands(page.read_text())]


@pytest.mark.parametrize("words", DOCUMENTED, ids=" ".join)
def test_each_flag_is_in_the_manual(words):
    assert complaint(words) == ""


def test_all_are_read():
    assert {" ".join(words[:2]) for words in DOCUMENTED} == {*FLAGS}


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("apptainer run --writable-tmpf ci-bench.sif", "--writable-tmpf"),
        ("apptainer run --bind ci-bench.sif", "no image"),
        ("docker run --network=none --readonly ci-bench", "--readonly"),
        ("docker run --gpus all other", "other"),
    ],
)
def test_a_wrong_command_is_seen(line, word):
    (words,) = commands(f"$ {line}\n")
    assert complaint(words) == word


def test_the_image_is_for_any_architecture():
    for file in (ROOT / "Dockerfile", *(ROOT / "entrypoint").glob("*.*")):
        assert not ONE_ARCHITECTURE.search(file.read_text()), file
    assert ONE_ARCHITECTURE.search("FROM --platform=linux/amd64 debian")
