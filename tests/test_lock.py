"""The locks pin what is installed by version and by hash, as constraints.txt has it."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text()
OTHERS = [
    (ROOT / name).read_text() for name in ("requirements-build.lock", "requirements-audit.lock")
]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
ENTRY = re.compile(
    r"^([A-Za-z0-9_.-]+)==(\S+?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\\n|\n|$))+)",
    re.MULTILINE,
)


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text):
    """Versions and numbers of hashes by name; what is not of that form is left over."""
    rest = ENTRY.sub("", text)
    left = [line for line in rest.splitlines() if line.strip() and not line.startswith("#")]
    return {
        plain(name): (version, hashes.count("sha256:"))
        for name, version, hashes in ENTRY.findall(text)
    }, left


def test_every_line_is_a_pin_with_hashes():
    pins, left = locked(LOCK)
    assert left == []
    assert len(pins) > 30
    for text in OTHERS:
        pins, left = locked(text)
        assert left == []
        assert pins


@pytest.mark.parametrize("text", [LOCK, *OTHERS], ids=["image", "build", "audit"])
def test_it_agrees_with_the_constraints(text):
    constraints = {
        plain(name): version
        for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", CONSTRAINTS, re.MULTILINE)
    }
    pins, _ = locked(text)
    assert {
        name: version
        for name, (version, _) in pins.items()
        if constraints.get(name, version) != version
    } == {}


def test_what_the_package_declares_is_in_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["engine"]]
    pins, _ = locked(LOCK)
    assert {plain(re.split(r"[<>=!~\[; ]", one)[0]) for one in wanted} <= {*pins}


@pytest.mark.parametrize(
    "careless",
    [
        "requests\n",
        "requests==2.0\n",
        "requests>=2.0\n",
        "requests @ https://x.example/y.whl\n",
        "requests==2.0 \\\n    --hash=md5:1\n",
    ],
)
def test_a_line_without_a_hash_is_seen(careless):
    assert locked(LOCK + careless)[1] != []
