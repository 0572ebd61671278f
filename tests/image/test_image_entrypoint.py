"""The image's entrypoint, run without an engine: it finds places to write, and changes nothing that the caller set."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).resolve().parents[2] / "entrypoint" / "image.sh"
TOLD = (
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "MPLCONFIGDIR",
)


@pytest.fixture
def place():
    """A folder that every user can reach, as pytest's own can't."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def enter(place):
    """Runs the entrypoint with a `ci-bench` that tells its arguments and its environment; what was told."""
    (place / "bin").mkdir()
    program = place / "bin" / "ci-bench"
    program.write_text("#!/bin/bash\nprintf '%s\\0' \"$@\"; printf '\\0'; env -0\n")
    program.chmod(0o755)
    entrypoint = shutil.copy(ENTRYPOINT, place / "bin")

    def run(*arguments, user=None, **environ):
        given = {"PATH": f"{place / 'bin'}:/usr/bin:/bin", **environ}
        done = subprocess.run(
            ["/bin/bash", entrypoint, *arguments],
            env=given,
            capture_output=True,
            text=True,
            check=False,
            user=user,
            cwd="/",
        )
        if done.returncode:
            return done.returncode, done.stderr
        words, _, variables = done.stdout.partition("\0\0")
        return words.split("\0"), dict(
            line.split("=", 1) for line in variables.strip("\0").split("\0")
        )

    return run


def test_arguments_arrive_as_they_were_given(enter):
    words, _ = enter("run", "--filter", "a b; $(rm) *", "-k", "c\nd")
    assert words == ["run", "--filter", "a b; $(rm) *", "-k", "c\nd"]


def test_what_the_caller_set_and_can_be_used_stays(enter, place):
    given = {name: str(place) for name in TOLD}
    _, told = enter("run", **given)
    assert {name: told[name] for name in TOLD} == given


def test_a_home_of_nobody_is_replaced(enter, place):
    for home in ("/", str(place / "gone")):
        _, told = enter("run", HOME=home, TMPDIR=str(place))
        assert Path(told["HOME"]).parent == place
        assert os.access(told["HOME"], os.W_OK)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that nobody knows")
def test_a_user_without_an_entry_gets_a_name_and_places_to_write(enter, place):
    _, told = enter("run", user=12345, TMPDIR=str(place))
    assert (told["USER"], told["LOGNAME"]) == ("uid-12345", "uid-12345")
    for name in TOLD[4:]:
        assert Path(told[name]).is_relative_to(place)
    assert Path(told["HOME"]).stat().st_uid == 12345


def test_a_folder_that_cannot_be_used_is_not_used(enter, place):
    _, told = enter("run", TMPDIR=str(place / "missing"))
    assert told["TMPDIR"] in {"/tmp", "/var/tmp"}  # noqa: S108 - that is the point


def test_no_probe_is_left_behind(enter, place):
    enter("run", HOME=str(place), TMPDIR=str(place))
    assert list(place.glob("probe.*")) == []
