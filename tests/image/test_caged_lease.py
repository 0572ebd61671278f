"""What a container of a caged lease can do, asked of a real engine: a small image whose program tries it."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from ci_bench.fleet.caging import Cage, take_documents

TRIES = """
try() { if "$@" 2>/dev/null; then printf true; else printf false; fi; }
touch_it() { (: > "$1"); }
seen=$(cat "$2/sources")
mkdir -p /results/base
for file in /results/results.json /results/base/results.json; do
  printf '{"user": "%s", "seen": "%s", "net": "%s", "power": "%s", "token": "%s"' \
    "$(id -u)" "$seen" "$(ls /sys/class/net)" "$(grep CapEff /proc/self/status)" "$TOKEN" > $file
  printf ', "root": %s, "place": %s, "prepared": %s, "temporary": %s, "locks": %s, "daemon": %s}' \
    "$(try touch_it /new)" "$(try touch_it $2/new)" "$(try touch_it $2/prepared/new)" "$(try touch_it /tmp/new)" \
    "$(try touch_it /locks/new)" "$(try ls /var/run/docker.sock /run/docker.sock)" >> $file
done
"""


@pytest.fixture(scope="module")
def small_image(engine, tmp_path_factory):
    """Some of this machine's programs with what they load, and a program that tries things as the entry point. The image's id."""
    archive = tmp_path_factory.mktemp("small") / "root.tar"
    programs = [shutil.which(name) for name in ("sh", "id", "ls", "cat", "grep", "mkdir")]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in told.split() if word.startswith("/") and not word.endswith(":")}
    with tarfile.open(archive, "w") as tar:
        for path in sorted({*programs, *libraries}):
            tar.add(os.path.realpath(path), arcname=path)
        script = tarfile.TarInfo("tries.sh")
        script.size = len(TRIES)
        tar.addfile(script, io.BytesIO(TRIES.encode()))
    made = engine(
        "import", "--change", f'ENTRYPOINT ["{programs[0]}", "/tries.sh"]', "--change", "ENV PATH=/bin:/usr/bin", archive
    )
    return made.stdout.strip()


@pytest.fixture
def caged(engine, small_image, tmp_path):
    """A cage whose folders lie below the folder that a container has its own one of, as they do by default."""
    for name in ("place/prepared", "results", "locks", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "place" / "sources").write_text("what is measured")
    client = tmp_path / "bin" / "docker"
    client.write_text(f'#!/bin/sh\nDOCKER_HOST={engine.environ["DOCKER_HOST"]} exec {engine.docker} "$@"\n')
    client.chmod(0o755)
    return Cage(
        image=small_image,
        place=tmp_path / "place",
        prepared=tmp_path / "place" / "prepared",
        results=tmp_path / "results",
        locks=tmp_path / "locks",
        gpus="none",
        name="ci-bench-small-0-1",
        environ={"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "TOKEN": "secret"},
    )


def told(cage: Cage, phase: str, out: Path) -> dict:
    out.mkdir()
    assert cage.run((phase, str(cage.place)), here=cage.place) == 0
    take_documents(cage.results, out)
    return json.loads((out / "base" / "results.json").read_text(), strict=False)


def test_what_runs_in_there_reaches_its_folders_and_nothing_else(caged, tmp_path) -> None:
    may = {"root": False, "place": False, "prepared": False, "temporary": True, "locks": True, "daemon": False}
    sees = {"seen": "what is measured", "net": "lo", "token": "", "user": str(os.getuid())}
    found = told(caged, "lease", tmp_path / "one")
    assert int(found.pop("power").split()[1], 16) == 0
    assert found == {**sees, **may}
    made = told(caged, "setup", tmp_path / "two")
    made.pop("power")
    assert made == {**sees, **may, "prepared": True}
    assert (caged.prepared / "new").stat().st_uid == os.getuid()


def test_nothing_is_left_of_it(caged, engine) -> None:
    missing = replace(caged, name="ci-bench-small-1-1")
    assert missing.run(("lease", "/nowhere"), here=caged.place) != 125
    listed = engine("ps", "--all", "--filter", "label=ci-bench.agent", "--format", "{{.Names}}")
    assert listed.stdout.split() == []
