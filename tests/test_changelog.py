"""What changed for users: sentences in changelog.d, which a release collects into CHANGELOG.md."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
TYPES = [one["directory"] for one in SETTINGS["type"]]


def faults(name, text):
    """What is wrong with a fragment: its name, or that it is not one short paragraph."""
    named = re.fullmatch(rf"(\d+|\+[a-z0-9-]+)\.({'|'.join(TYPES)})\.md", name)
    return [
        *(
            ()
            if named
            else (f"{name} is not called NUMBER.TYPE.md or +WORDS.TYPE.md, with one of {TYPES}",)
        ),
        *(
            ()
            if "\n\n" not in text.strip() and 0 < len(text.split()) <= 60
            else (f"{name} is not 1 to 60 words",)
        ),
    ]


def test_every_sentence_can_be_collected():
    fragments = [
        path for path in (ROOT / SETTINGS["directory"]).iterdir() if path.name != ".gitignore"
    ]
    assert [fault for path in fragments for fault in faults(path.name, path.read_text())] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("12.feature.md", "A word."),
        ("words.added.md", "A word."),
        ("12.added.md", ""),
        ("12.added.md", "a " * 61),
    ],
)
def test_what_cannot_be_collected_is_named(name, text):
    assert len(faults(name, text)) == 1
    assert faults("12.added.md", "A word.") == faults("+a-word.fixed.md", "A word.") == []


def test_a_release_collects_them_above_the_earlier_ones(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "12.fixed.md").write_text("It no longer stops.\n")
    (tmp_path / "changelog.d" / "+save.upgrade.md").write_text("Save the baseline again.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--yes",
        "--version",
        "0.2.0",
        "--date",
        "2027-01-31",
    ]

    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    after = (tmp_path / "CHANGELOG.md").read_text()
    order = [
        "## [0.2.0] - 2027-01-31",
        "Save the baseline again.",
        "It no longer stops.",
        "## [0.1.0]",
    ]
    assert sorted(order, key=after.index) == order
    assert list((tmp_path / "changelog.d").iterdir()) == []


def test_the_first_version_is_told_in_thirty_lines():
    first = (ROOT / "CHANGELOG.md").read_text().partition("## [0.1.0]")[2].partition("\n## ")[0]
    assert 5 < first.count("\n") <= 30
