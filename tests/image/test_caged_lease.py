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
from loopback_registry import served
from repositories import environ as clean
from repositories import new_repository

from ci_bench.checkouts.bundled import make_bundle
from ci_bench.checkouts.worktrees import WantedTrees
from ci_bench.cli import main
from ci_bench.commands.merge import read_pair
from ci_bench.errors import ExitCode, NoCage
from ci_bench.fleet.caging import Cage, take_documents
from ci_bench.records.config import Setup
from ci_bench.records.results import Lease, Status

PATH = "/bin:/usr/bin"
TRIES = """
try() { if "$@" 2>/dev/null; then printf true; else printf false; fi; }
touch_it() { (: > "$1"); }
seen=$(cat "$2/sources")
mkdir -p /results/base
for file in /results/results.json /results/base/results.json; do
  printf '{"user": "%s", "seen": "%s", "net": "%s", "power": "%s", "token": "%s", "proxy": "%s", "login": "%s"' \
    "$(id -u)" "$seen" "$(ls /sys/class/net)" "$(grep CapEff /proc/self/status)" "$TOKEN" "$HTTP_PROXY$http_proxy" \
    "$(cat $HOME/.docker/config.json /root/.docker/config.json "$DOCKER_CONFIG/config.json" 2>/dev/null)" > $file
  printf ', "root": %s, "place": %s, "prepared": %s, "temporary": %s, "locks": %s, "daemon": %s}' \
    "$(try touch_it /new)" "$(try touch_it $2/new)" "$(try touch_it $2/prepared/new)" "$(try touch_it /tmp/new)" \
    "$(try touch_it /locks/new)" "$(try ls /var/run/docker.sock /run/docker.sock)" >> $file
done
"""


@pytest.fixture(scope="module")
def small_root():
    """Some of this machine's programs with what they load, and a program that tries things: a tar, and its entry point."""
    archive = io.BytesIO()
    programs = [shutil.which(name) for name in ("sh", "id", "ls", "cat", "grep", "mkdir")]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    libraries = {word for word in told.split() if word.startswith("/") and not word.endswith(":")}
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted({*programs, *libraries}):
            tar.add(os.path.realpath(path), arcname=path)
        script = tarfile.TarInfo("tries.sh")
        script.size = len(TRIES)
        tar.addfile(script, io.BytesIO(TRIES.encode()))
    return archive.getvalue(), [programs[0], "/tries.sh"]


@pytest.fixture(scope="module")
def small_image(engine, small_root, tmp_path_factory):
    """The image's id."""
    archive, (program, script) = tmp_path_factory.mktemp("small") / "root.tar", small_root[1]
    archive.write_bytes(small_root[0])
    made = engine(
        "import",
        "--change",
        f'ENTRYPOINT ["{program}", "{script}"]',
        "--change",
        f"ENV PATH={PATH}",
        archive,
    )
    return made.stdout.strip()


def put_client(engine, folder: Path) -> None:
    """A `docker` that finds the engine without a variable, none of which reaches it."""
    host = engine.environ.get("DOCKER_HOST")
    (folder / "docker").write_text(
        f'#!/bin/sh\n{f"DOCKER_HOST={host} " if host else ""}exec {engine.docker} "$@"\n'
    )
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
    may = {
        "root": False,
        "place": False,
        "prepared": False,
        "temporary": True,
        "locks": True,
        "daemon": False,
    }
    sees = {
        "seen": "what is measured",
        "net": "lo",
        "token": "",
        "proxy": "",
        "login": "",
        "user": str(os.getuid()),
    }
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


TOLD = "what a registry, or a proxy, is to be told"


@pytest.fixture
def pulled(caged, small_root, tmp_path):
    """A cage whose image only a registry has, which asks for a password; what docker knows is in its user's home."""
    archive, entry = small_root
    with served(TOLD) as registry:
        digest = registry.put(
            archive, Entrypoint=entry, Env=[f"PATH={PATH}", f"REGISTRY={registry.address}"]
        )
        (tmp_path / "home" / ".docker").mkdir(parents=True)
        proxy = {"httpProxy": f"http://user:{TOLD}@127.0.0.1:1"}
        knows = {
            "auths": {registry.address: {"auth": registry.auth}},
            "proxies": {"default": proxy},
        }
        (tmp_path / "home" / ".docker" / "config.json").write_text(json.dumps(knows))
        environ = {**caged.environ, "HOME": str(tmp_path / "home")}
        yield (
            registry,
            replace(caged, image=f"{registry.address}/tests/small@{digest}", environ=environ),
        )


def test_an_image_that_a_registry_has_is_pulled_once_and_its_password_stays_outside(
    pulled, engine, tmp_path
):
    registry, cage = pulled
    found = told(cage, "setup", tmp_path / "one")
    assert (found["seen"], found["net"], found["token"], found["proxy"], found["login"]) == (
        "what is measured",
        "lo",
        "",
        "",
        "",
    )
    asked = len(registry.asked)
    assert told(cage, "lease", tmp_path / "two")["prepared"] is False
    assert (len(registry.asked), asked > 0) == (asked, True), "measuring asks no registry"
    engine("image", "rm", cage.image)


def another(registry, cage):
    return replace(cage, image=cage.image[:-64] + "5" * 64)


def changed(registry, cage):
    """The registry hands out another manifest in its place, as whole as the right one."""
    wanted = cage.image.rpartition("@")[2]
    registry.content[wanted] = registry.content[wanted].replace(b'"size": ', b'"size":  ')
    return cage


def stranger(registry, cage):
    return replace(cage, environ={**cage.environ, "HOME": "/nonexistent"})


def nobody(registry, cage):
    """No registry listens at the first port."""
    return replace(cage, image=cage.image.replace(registry.address, "127.0.0.1:1"))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (another, "manifest unknown"),
        (changed, "manifest verification failed|failed size validation|unexpected.* digest"),
        (stranger, "no basic auth credentials|authentication required|unauthorized"),
        (nobody, "connection refused"),
    ],
)
def test_where_the_image_of_the_digest_cannot_be_had_nothing_runs(
    pulled, engine, tmp_path, made, words
):
    """An image of the same name, which the node has under another digest, is not taken in its place."""
    registry, cage = pulled
    name = cage.image.partition("@")[0]
    archive = tmp_path / "root.tar"
    archive.write_bytes(b"\0" * 10240)
    engine("import", archive, f"{name}:latest")
    wanted = made(registry, cage)
    with pytest.raises(
        NoCage,
        match=f"could not pull the image: .*({words}).*try `docker pull {wanted.image}` there",
    ):
        wanted.run(("lease", str(wanted.place)), here=wanted.place)
    assert [*wanted.results.iterdir()] == []
    engine("image", "rm", f"{name}:latest")


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
    wanted = WantedTrees(repository=repository.top, base="HEAD~1", setup=Setup(), environ=clean())
    sources, _ = make_bundle(wanted, tmp_path / "sources.bundle", config=config)
    for name in ("bin", "locks"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CI_BENCH_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("CI_BENCH_SOURCES", str(tmp_path / "node"))
    monkeypatch.delenv("CI_BENCH_LEASE_STARTER", raising=False)

    def measure(image: str):
        out = tmp_path / "out"
        named = (
            "--sources",
            str(sources.file),
            "--sha256",
            sources.sha256,
            "--commit",
            sources.commit,
        )
        which = (
            "--lease",
            "r/7/1",
            "--output",
            str(out),
            "--device",
            "cpu",
            "--filter",
            "command/work",
        )
        return main(["fleet", "lease", *named, *which, "--image", image]), read_pair(out)

    return measure


@pytest.mark.container
@pytest.mark.slow
def test_the_real_image_measures_a_lease_of_which_nothing_gets_out(
    image, lease, tmp_path, capfd
) -> None:
    """Set-up works in there, and so does torch, which the machine's identity is read of; in no cage the same work finds holes.

    An image that is named by its digest is the node's to pull; one that was built here has its id
    alone.
    """
    put_client(image.engine, tmp_path / "bin")
    built = "@" not in image.name
    code, pair = lease(
        image.engine("image", "inspect", "--format", "{{.Id}}", image.name).stdout.strip()
        if built
        else image.name
    )
    assert code == ExitCode.OK, capfd.readouterr().err
    assert [[row.status for row in side.cases] for side in pair.sides] == [[Status.OK]] * 2
    assert pair.head.run.lease == Lease(run="r", number=7, attempt=1)
    assert pair.head.environment.identity["torch"]
    assert image.engine("ps", "--all", "--quiet", "--filter", "label=ci-bench.agent").stdout == ""
    (tmp_path / "made.txt").write_text("made\n")
    loose = subprocess.run(
        [sys.executable, "-c", WORK], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "holes: [" in loose.stderr
    assert "the tree" in loose.stderr
