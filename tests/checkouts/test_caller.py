"""The caller's own tree as a side: which modules and which programs its workers find first."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from ci_bench.checkouts.sides import caller_environment, program_path

HERE = str(Path(sys.executable).parent)


def test_the_engines_programs_come_first_where_no_environment_is_activated(tmp_path: Path) -> None:
    """`.venv/bin/ci-bench` called by its path: `python` has to be that of `.venv`, not the system's."""
    seen = caller_environment(tmp_path, {"PATH": "/usr/bin:/bin"})
    assert seen["PATH"] == f"{HERE}:/usr/bin:/bin"
    assert shutil.which("python", path=seen["PATH"]) == str(Path(HERE) / "python")


def test_another_activated_environment_is_not_measured_in_place_of_the_engines(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other" / "bin"
    other.mkdir(parents=True)
    (other / "python").symlink_to("/bin/false")
    seen = caller_environment(
        tmp_path, {"PATH": f"{other}:/usr/bin", "VIRTUAL_ENV": str(other.parent)}
    )
    assert shutil.which("python", path=seen["PATH"]) == str(Path(HERE) / "python")
    assert str(other) in seen["PATH"].split(":"), "its other programs are found behind"


def test_without_a_path_the_systems_default_lies_behind(tmp_path: Path) -> None:
    assert caller_environment(tmp_path, {})["PATH"] == ":".join([HERE, *os.defpath.split(":")])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a:/b", f"{HERE}:/a:/b"),
        (f"/a:{HERE}:/b", f"{HERE}:/a:/b"),
        ("/a::/a:", f"{HERE}:/a"),
        ("", HERE),
    ],
)
def test_each_folder_is_looked_in_once_and_an_empty_part_is_not_the_working_folder(
    path: str, expected: str
) -> None:
    assert program_path(path) == expected


def test_a_sides_own_environment_comes_before_the_engines() -> None:
    assert program_path("/usr/bin", Path("/side")) == f"/side/bin:{HERE}:/usr/bin"
