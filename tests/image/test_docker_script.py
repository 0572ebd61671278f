"""Where an engine comes from, and what is said where there can be none; with stand-ins for docker, apt-get and id."""

import os
import shutil
import subprocess
from pathlib import Path

import container_engine
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "docker.sh"
TOOLS = ("bash", "cat", "dirname", "grep", "mkdir", "rm", "sed", "tail")


@pytest.fixture
def machine(tmp_path):
    """A machine with these programs and nothing else; runs the script there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name))

    def run(*arguments, **stubs):
        for name, line in stubs.items():
            path = programs / name.replace("_", "-")
            path.write_text(f"#!{programs}/bash\n{line}\n")
            path.chmod(0o755)
        environ = {"PATH": str(programs), "HOME": str(tmp_path)}
        command = [programs / "bash", SCRIPT, *arguments]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_an_engine_that_answers_is_used_as_it_is(machine, tmp_path):
    code, out, _ = machine(
        "up",
        tmp_path / "engine",
        docker="exit 0",
        id="echo 0",
        apt_get="exit 9",
        dpkg_query="exit 1",
    )
    assert (code, out) == (0, f"DOCKER={tmp_path / 'bin' / 'docker'}\n")


@pytest.mark.parametrize(
    ("stubs", "reason"),
    [
        ({"id": "echo 0"}, "there is no apt-get to install one with"),
        ({"id": "echo 1000", "apt_get": "exit 0"}, "only root can install docker.io"),
        (
            {"id": "echo 0", "apt_get": "echo E: no network; exit 100"},
            "apt-get can't install docker.io: E: no network",
        ),
    ],
)
def test_where_there_can_be_none_it_says_why(machine, tmp_path, stubs, reason):
    code, out, told = machine(
        "up", tmp_path / "engine", docker="exit 1", dpkg_query="exit 1", **stubs
    )
    assert (code, out) == (container_engine.CANNOT, "")
    assert reason in told.splitlines()[-1]


def test_a_wrong_command_is_refused_with_the_usage(machine, tmp_path):
    assert machine("up")[0] == 2
    code, _, told = machine("fly", tmp_path / "engine")
    assert (code, "unknown command: fly" in told) == (2, True)


def test_stopping_where_nothing_was_started_only_removes_the_folder(machine, tmp_path):
    machine("up", tmp_path / "engine", docker="exit 0")
    assert machine("down", tmp_path / "engine")[0] == 0
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize(
    ("code", "outcome"), [(77, pytest.skip.Exception), (1, pytest.fail.Exception)]
)
def test_tests_are_skipped_with_the_reason_and_fail_for_any_other(
    tmp_path, monkeypatch, code, outcome
):
    script = tmp_path / "docker.sh"
    script.write_text(f"#!/bin/bash\necho 'docker: only root can' >&2\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(container_engine, "SCRIPT", script)
    with pytest.raises(outcome, match="only root can"):
        container_engine.call("up", tmp_path)


def test_images_are_kept_in_memory_only_where_there_is_plenty(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(
        shutil,
        "disk_usage",
        lambda _: shutil._ntuple_diskusage(0, 0, container_engine.ROOM_BYTES - 1),
    )
    assert container_engine.place() is None
