"""What a container of a caged lease can do, asked of a real engine: a small image whose program tries it, and the real one."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from repositories import environ as clean
from repositories import new_repository

from ci_bench.cli import main
from ci_bench.commands.merging import read_pair
from ci_bench.engine.trees.bundled import make_bundle
from ci_bench.engine.trees.worktrees import Wanted
from ci_bench.errors import ExitCode
from ci_bench.fleet.caging import Cage, take_documents
from ci_bench.records.config import Setup
from ci_bench.records.results import Lease, Status

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


def put_client(engine, folder: Path) -> None:
    """A `docker` that finds the engine without a variable, none of which reaches it."""
    (folder / "docker").write_text(f'#!/bin/sh\nDOCKER_HOST={engine.environ["DOCKER_HOST"]} exec {engine.docker} "$@"\n')
    (folder / "docker").chmod(0o755)


@pytest.fixture
def caged(engine, small_image, tmp_path):
    """A cage whose folders lie below the folder that a container has its own one of, as they do by default."""
    for name in ("place/prepared", "results", "locks", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "place" / "sources").write_text("what is measured")
    put_client(engine, tmp_path / "bin")
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


WORK = """
import os, pathlib, sys
holes = [name for name in os.listdir("/sys/class/net") if name != "lo"]
holes += [name for name in os.environ if name in {"TOKEN", "DOCKER_HOST"}]
holes += [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)]
try:
    pathlib.Path("hole").write_text("x")
    holes.append("the tree")
except OSError:
    pass
assert pathlib.Path("made.txt").read_text() == "made\\n", "set-up has run"
sys.exit(f"holes: {holes}" if holes else 0)
"""
CONFIG = {
    "schema_version": 1,
    "setup": {"commands": ["echo made > made.txt"]},
    "run": {"device": "cpu", "threads": 1, "blocks": 1, "warmup_s": 0.0},
    "suites": {"command": [{"name": "work", "command": ["python3", "work.py"], "timeout_s": 60}]},
}


@pytest.fixture
def lease(tmp_path, monkeypatch):
    """Measures a lease of a bundle in an image, as a node does: the exit code and its documents."""
    repository = new_repository(tmp_path / "project")
    repository.commit({"work.py": WORK})
    repository.commit({"more.txt": "head"})
    config = tmp_path / "ci-bench.yml"
    config.write_text(yaml.safe_dump(CONFIG))
    wanted = Wanted(repository=repository.top, base="HEAD~1", setup=Setup(), environ=clean())
    sources, _ = make_bundle(wanted, tmp_path / "sources.bundle", config=config)
    for name in ("bin", "locks"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CI_BENCH_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("CI_BENCH_SOURCES", str(tmp_path / "node"))
    monkeypatch.delenv("CI_BENCH_LEASE_STARTER", raising=False)

    def measure(image: str):
        out = tmp_path / "out"
        named = ("--sources", str(sources.file), "--sha256", sources.sha256, "--commit", sources.commit)
        which = ("--lease", "r/7/1", "--output", str(out), "--device", "cpu", "--filter", "command/work")
        return main(["lease", *named, *which, "--image", image]), read_pair(out)

    return measure


@pytest.mark.container
@pytest.mark.slow
def test_the_real_image_measures_a_lease_of_which_nothing_gets_out(image, lease, tmp_path, capfd) -> None:
    """Set-up works in there, and so does torch, which the machine's identity is read of; in no cage the same work finds holes."""
    put_client(image.engine, tmp_path / "bin")
    code, pair = lease(image.engine("image", "inspect", "--format", "{{.Id}}", image.name).stdout.strip())
    assert code == ExitCode.OK, capfd.readouterr().err
    assert [[row.status for row in side.cases] for side in pair.sides] == [[Status.OK]] * 2
    assert pair.head.run.lease == Lease(run="r", number=7, attempt=1)
    assert pair.head.environment.identity["torch"]
    assert image.engine("ps", "--all", "--quiet", "--filter", "label=ci-bench.agent").stdout == ""
    (tmp_path / "made.txt").write_text("made\n")
    loose = subprocess.run([sys.executable, "-c", WORK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "holes: [" in loose.stderr
    assert "the tree" in loose.stderr
