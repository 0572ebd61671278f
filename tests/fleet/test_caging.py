"""A caged lease: what its containers are started with, what ends them, and what comes out."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from repositories import environ as clean
from repositories import topic_repository
from stand_ins import program

from ci_bench.checkouts.bundled import make_bundle
from ci_bench.checkouts.worktrees import WantedTrees
from ci_bench.cli import main
from ci_bench.command_line.settings import Measuring
from ci_bench.commands.fleet import check_cage, lease_command
from ci_bench.errors import BadInput, ExitCode, NoCage
from ci_bench.fleet.caging import Cage, gpus_of, take_documents
from ci_bench.fleet.protocol import FleetLease, LeaseOrder
from ci_bench.records.config import Config, Setup
from ci_bench.records.documents import read_results
from ci_bench.records.results import Run, RunState, Status

FIXTURE = Path(__file__).parents[1] / "fixtures" / "lease_docker.py"
IMAGE = "ghcr.io/you/ci-bench@sha256:" + "5" * 64
TOKEN = "ghs_" + "secret" * 5
WORDS = ("lease", "--lease", "r/0/1")
NO_PROXIES = {
    f"{name}="
    for kind in ("HTTP", "HTTPS", "FTP", "ALL", "NO")
    for name in (f"{kind}_PROXY", f"{kind}_proxy".lower())
}
"""What docker's client would else hand on of its configuration."""


@pytest.fixture
def notes(tmp_path):
    """The stand-in's folder."""
    folder = tmp_path / "docker"
    program(folder / "bin" / "docker", FIXTURE.read_text().replace("@NOTES@", str(folder)))
    return folder


def calls(notes):
    return [json.loads(line)["words"] for line in (notes / "calls.jsonl").read_text().splitlines()]


def runs(notes):
    return [words for words in calls(notes) if words[0] == "run"]


def cage_of(tmp_path, *, gpus="none"):
    for name in ("place/prepared", "results", "locks"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    environ = {
        "PATH": f"{tmp_path / 'docker' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GITHUB_TOKEN": TOKEN,
        "RAY_ADDRESS": "head:6379",
    }
    return Cage(
        image=IMAGE,
        place=tmp_path / "place",
        prepared=tmp_path / "place" / "prepared",
        results=tmp_path / "results",
        locks=tmp_path / "locks",
        gpus=gpus,
        name="ci-bench-r-0-1",
        environ=environ,
    )


def complaints(argv, writable):
    """What a container of a lease must not have, or lacks."""
    mounts = [
        dict(part.partition("=")[::2] for part in value.split(","))
        for flag, value in pairwise(argv)
        if flag == "--mount"
    ]
    named = [value for flag, value in pairwise(argv) if flag == "-e"]
    found = [
        f"variable {name}"
        for name in named
        if name not in NO_PROXIES
        and not name.startswith(("NVIDIA_", "CI_BENCH_LOCKS=", "CI_BENCH_REQUIRE_DEVICE="))
    ]
    found += [f"docker's own {name[:-1]}" for name in sorted(NO_PROXIES - {*named})]
    found += [
        f"{each['target']} can be written"
        for each in mounts
        if "readonly" not in each and each["target"] not in writable
    ]
    found += [f"a socket: {word}" for word in argv if re.search(r"\.sock|/run\b|munge|ray", word)]
    found += [] if "--network=none" in argv else ["a network"]
    found += [
        "another network"
        for word in argv
        if word.startswith("--network=") and word != "--network=none"
    ]
    lacking = {
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--pids-limit=4096",
        "--rm",
    } - {*argv}
    lacking |= {"--pull=never"} - {*argv}
    found += [f"no {flag}" for flag in sorted(lacking)]
    found += [
        "powers"
        for word in argv
        if word.startswith(("--cap-add", "--privileged", "--pid=", "--ipc=", "-v"))
    ]
    return found + (["a token"] if TOKEN in " ".join(argv) else [])


@pytest.mark.parametrize("gpus", ["none", "device=3"])
@pytest.mark.parametrize(("phase", "more"), [("setup", {"{place}/prepared"}), ("lease", set())])
def test_a_lease_sees_its_sources_its_device_and_nothing_else(tmp_path, phase, more, gpus):
    made = cage_of(tmp_path, gpus=gpus)
    argv = made.arguments((phase,), here=tmp_path / "place" / "checkout", user="7:8", way="cdi")
    writable = {"/results", "/locks", *(each.format(place=tmp_path / "place") for each in more)}
    assert complaints(argv, writable) == []
    assert [value for flag, value in pairwise(argv) if flag == "--device"] == (
        ["nvidia.com/gpu=3"] if gpus != "none" else []
    )
    assert argv[argv.index("--user") + 1] == "7:8"
    assert argv[argv.index("--workdir") + 1] == str(tmp_path / "place" / "checkout")
    assert ("CI_BENCH_REQUIRE_DEVICE=cuda" in argv) == (gpus != "none")


@pytest.mark.parametrize(
    "planted",
    [
        lambda argv: [*argv, "--network=host"],
        lambda argv: [word for word in argv if word != "--network=none"],
        lambda argv: [word for word in argv if word != "--read-only"],
        lambda argv: [word for word in argv if word != "--pull=never"],
        lambda argv: [word for word in argv if word != "https_proxy="],
        lambda argv: [*argv, "-e", "HTTPS_PROXY=http://user:password@proxy"],
        lambda argv: [word.replace(",readonly", "") for word in argv],
        lambda argv: [*argv, "--mount", "type=bind,source=/run/munge,target=/munge,readonly"],
        lambda argv: [*argv, "-e", "GITHUB_TOKEN"],
        lambda argv: [*argv, "-e", f"CI_BENCH_LOCKS={TOKEN}"],
        lambda argv: [*argv, "--cap-add=SYS_ADMIN"],
    ],
)
def test_the_check_sees_what_is_planted(tmp_path, planted):
    argv = cage_of(tmp_path).arguments(("lease",), here=tmp_path, user="7:8", way="")
    assert complaints(planted(argv), {"/results", "/locks"})


class TestRunning:
    def test_a_command_runs_to_its_end_and_docker_sees_no_variable_of_the_node(
        self, notes, tmp_path
    ):
        (notes / "says.py").write_text("code = 3")
        assert cage_of(tmp_path).run(WORDS, here=tmp_path) == 3
        (container,) = runs(notes)
        assert container[-len(WORDS) - 1 :] == [IMAGE, *WORDS]
        seen = {
            name
            for line in (notes / "calls.jsonl").read_text().splitlines()
            for name in json.loads(line)["environ"]
        }
        assert seen <= {"PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "LC_CTYPE"}

    def test_its_container_ends_with_it(self, notes, tmp_path):
        (notes / "says.py").write_text("import time; time.sleep(60)")

        def kill():
            while not ((notes / "calls.jsonl").exists() and runs(notes)):
                pass
            os.kill(os.getpid(), signal.SIGINT)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            cage_of(tmp_path).run(WORDS, here=tmp_path)
        killer.join()
        assert calls(notes)[-1] == ["rm", "--force", "--volumes", "ci-bench-r-0-1-lease"]

    def test_what_a_killed_starter_left_is_removed_and_nothing_else(self, notes, tmp_path):
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        host = socket.gethostname()
        lines = [
            f"dead {host}/{ended.pid}",
            f"mine {host}/{os.getpid()}",
            f"other elsewhere/{ended.pid}",
            "odd what",
        ]
        (notes / "ps.txt").write_text("\n".join(lines))
        cage_of(tmp_path).run(WORDS, here=tmp_path)
        assert [words[-1] for words in calls(notes) if words[0] == "rm"] == ["dead"]

    def test_gpus_come_by_the_first_way_that_works(self, notes, tmp_path):
        (notes / "ways").write_text("--gpus")
        cage_of(tmp_path, gpus="device=GPU-12345678").run(WORDS, here=tmp_path)
        *_, container = runs(notes)
        assert container[container.index("--gpus") + 1] == '"device=GPU-12345678"'
        (notes / "ways").unlink()
        with pytest.raises(
            NoCage,
            match=r"no container gets device=0: cdi: .*; gpus: .*; runtime: .*could not select",
        ):
            cage_of(tmp_path, gpus="device=0").run(WORDS, here=tmp_path)

    def test_an_image_that_is_missing_is_pulled_once_before_anything_of_it_runs(
        self, notes, tmp_path
    ):
        (notes / "missing").touch()
        for _ in range(2):
            cage_of(tmp_path, gpus="none").run(WORDS, here=tmp_path)
        pulls = [place for place, words in enumerate(calls(notes)) if words[0] == "pull"]
        assert [calls(notes)[place] for place in pulls] == [["pull", "--quiet", IMAGE]]
        assert pulls[0] < min(
            place for place, words in enumerate(calls(notes)) if words[0] == "run"
        )

    def test_an_image_that_cannot_be_had_runs_nothing_and_says_what_to_do(self, notes, tmp_path):
        (notes / "missing").write_text("unauthorized: authentication required")
        made = cage_of(tmp_path, gpus="device=0")
        words = f"{socket.gethostname()} could not pull the image.*authentication required.*try `docker pull {IMAGE}` there"
        with pytest.raises(NoCage, match=words):
            made.run(WORDS, here=tmp_path)
        with pytest.raises(NoCage, match=r"an id can't be pulled: name it NAME@sha256"):
            replace(made, image=IMAGE.partition("@")[2]).run(WORDS, here=tmp_path)
        assert runs(notes) == []

    @pytest.mark.parametrize(
        "image",
        [
            "ghcr.io/you/ci-bench",
            "ghcr.io/you/ci-bench:latest",
            f"{IMAGE[:-1]}",
            "sha256:5555",
            "--help",
        ],
    )
    def test_an_image_that_is_named_by_no_digest_is_not_even_asked_for(
        self, notes, tmp_path, image
    ):
        with pytest.raises(BadInput, match=r"name the image by its digest, NAME@sha256:…"):
            replace(cage_of(tmp_path), image=image).run(WORDS, here=tmp_path)
        assert not (notes / "calls.jsonl").exists()

    def test_without_docker_or_with_a_path_that_it_cannot_read_nothing_runs(self, notes, tmp_path):
        made = cage_of(tmp_path)
        with pytest.raises(NoCage, match="needs docker on its node"):
            replace(made, environ={"PATH": "/nonexistent"}).run(WORDS, here=tmp_path)
        with pytest.raises(BadInput, match="has a comma"):
            replace(made, results=tmp_path / "a,readonly=false").run(WORDS, here=tmp_path)
        assert not (notes / "calls.jsonl").exists()


@pytest.mark.parametrize(
    ("device", "shown", "selection"),
    [
        ("cpu", None, "none"),
        ("cpu", "3", "none"),
        ("auto", "", "none"),
        ("auto", "3", "device=3"),
        (None, "GPU-12345678,5", "device=GPU-12345678,5"),
        ("cuda:1", None, "device=1"),
        ("cuda:1", "4,5", "device=5"),
        ("cuda", None, "device=0"),
        ("cuda", "6", "device=6"),
        ("auto", None, BadInput),
        ("cuda:2", "4,5", BadInput),
        ("auto", "all --privileged", BadInput),
    ],
)
def test_a_lease_gets_the_gpus_that_its_engine_shows_it_or_its_slot_names(device, shown, selection):
    environ = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    if selection is BadInput:
        with pytest.raises(BadInput, match="which GPU a lease of"):
            gpus_of(device, environ)
    else:
        assert gpus_of(device, environ) == selection


def test_documents_that_are_links_or_no_files_stay_in_the_cage(tmp_path):
    results, out, secret = tmp_path / "caged", tmp_path / "out", tmp_path / "secret"
    for folder in (results / "base", out, tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    for file in (
        results / "results.json",
        results / "base" / "results.json",
        secret,
        tmp_path / "elsewhere" / "results.json",
    ):
        file.write_text("plain" if file.is_relative_to(results) else "secret")
    take_documents(results, out)
    assert [(out / name).read_text() for name in ("results.json", "base/results.json")] == [
        "plain",
        "plain",
    ]
    (results / "results.json").unlink()
    (results / "results.json").symlink_to(secret)
    (results / "base" / "results.json").unlink()
    (results / "base").rmdir()
    (results / "base").symlink_to(tmp_path / "elsewhere")
    take_documents(results, new(tmp_path / "second"))
    assert [*(tmp_path / "second").rglob("*")] == []
    (results / "results.json").unlink()
    os.mkfifo(results / "results.json")
    take_documents(results, new(tmp_path / "third"))
    assert [*(tmp_path / "third").rglob("*")] == []


def new(folder):
    folder.mkdir()
    return folder


SIDES = """
import json, os
places = {str(path): path for path in folders.values()}
if words[0] == "setup":
    prepared = places[words[words.index("--prepared") + 1]]
    (prepared / "paired").mkdir()
    terms = {"base": None, "setup": {}, "engine": "", "python": "", "version": ""}
    side = {"tree": "", "here": "", "venv": None, "source": {}, "failure": FAILURE}
    sides = [{"name": name, **side} for name in ("base", "head")]
    kept = {"terms": terms, "checkout": "", "snapshot": "", "sides": sides}
    (prepared / "paired" / "sides.json").write_text(json.dumps(kept))
else:
    (folders["/results"] / "base").mkdir(exist_ok=True)
    for name in ("results.json", "base/results.json"):
        (folders["/results"] / name).write_text("a document")
"""


class TestALease:
    @pytest.fixture
    def lease(self, notes, tmp_path, monkeypatch):
        """Runs one lease after the other of one bundle; the words of its containers."""
        repository, *_ = topic_repository(tmp_path / "project")
        wanted = WantedTrees(repository=repository.top, base=None, setup=Setup(), environ=clean())
        sources, _ = make_bundle(wanted, tmp_path / "sources.bundle", config=None)
        monkeypatch.setenv("PATH", f"{notes / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CI_BENCH_SOURCES", str(tmp_path / "node"))
        monkeypatch.setenv("GITHUB_TOKEN", TOKEN)

        def run(number, *, failure="None"):
            (notes / "says.py").write_text(SIDES.replace("FAILURE", failure))
            (notes / "calls.jsonl").unlink(missing_ok=True)
            out = tmp_path / f"out{number}"
            settings = Measuring(environ={}, here=repository.top, fleet="local", image=IMAGE)
            run_of = Run(
                id="r",
                started_at="2026-02-01T00:00:00Z",
                state=RunState.PARTIAL,
                config_digest="c",
                device="cpu",
            )
            lease = FleetLease(number=number, cases=("s/a",), first=0, launches=1, expected_s=1.0)
            words = lease_command(settings, run_of, sources)(
                LeaseOrder(lease=lease, attempt=1, slot="cpu"), out
            )
            assert main([*words[words.index("fleet") :]]) == ExitCode.OK
            assert (
                (out / "results.json").read_text()
                == (out / "base" / "results.json").read_text()
                == "a document"
            )
            return [each[each.index(IMAGE) + 1 :] for each in runs(notes)]

        return run

    def test_both_sides_are_made_once_and_measured_in_containers_alone(self, lease, tmp_path):
        first, second = lease(0), lease(1)
        assert [words[0] for words in first] == ["setup", "fleet"]
        assert [words[0] for words in second] == ["fleet"]
        assert second[0][second[0].index("--output") + 1] == "/results"
        assert second[0][second[0].index("--lease") + 1] == "r/1/1"
        (place,) = (path for path in (tmp_path / "node").iterdir() if path.is_dir())
        assert second[0][second[0].index("--prepared") + 1] == str(place / "prepared")

    def test_a_side_that_could_not_be_made_is_made_again_by_the_next(self, lease):
        assert [words[0] for words in lease(0, failure="'no wheel'")] == ["setup", "fleet"]
        assert [words[0] for words in lease(1)] == ["setup", "fleet"]
        assert [words[0] for words in lease(2)] == ["fleet"]


def test_a_gate_whose_image_cannot_be_pulled_names_the_slot_and_what_to_do(
    notes, tmp_path, monkeypatch, capfd
):
    """Nothing else is measured in its place, and nothing is waited for."""
    repository, base, _ = topic_repository(tmp_path / "project")
    config = tmp_path / "own.yml"
    config.write_text(
        "schema_version: 1\nrun: {device: cpu}\nsuites: {command: [{name: work, command: [/bin/true]}]}\n"
    )
    (notes / "missing").write_text("manifest unknown")
    monkeypatch.setenv("PATH", f"{notes / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CI_BENCH_SOURCES", str(tmp_path / "node"))
    monkeypatch.chdir(repository.top)
    words = (
        "--config",
        str(config),
        "--base",
        base,
        "--output",
        str(tmp_path / "out"),
        "--image",
        IMAGE,
    )
    assert main(["gate", "--fleet", "local:cpu", *words]) == ExitCode.MEASURING_FAILED
    told = " ".join(capfd.readouterr().err.split())
    assert "lost: lease 0, attempt 1 on cpu: exit code 3:" in told
    assert f"manifest unknown; try `docker pull {IMAGE}` there" in told
    assert runs(notes) == []
    head = read_results(tmp_path / "out" / "results.json")
    assert [(row.status, "on cpu: exit code 3" in row.failure.reason) for row in head.cases] == [
        (Status.NOT_RUN, True)
    ]


@pytest.mark.parametrize(
    ("given", "config", "words"),
    [
        ({"image": "ci-bench:latest"}, {}, "name the image by its digest"),
        ({"fleet": None}, {}, "add --fleet ENGINE"),
        ({"prepared": Path("/sides")}, {}, "omit --prepared"),
        ({}, {"setup": Setup(network=True)}, "caged leases have no network"),
        ({"config": "plugin"}, {}, "planned by code of the tree"),
    ],
)
def test_a_cage_that_would_have_a_hole_is_refused(given, config, words, tmp_path):
    if "config" in given:
        given = {"config": tmp_path / "own.yml"}
        given["config"].write_text(
            "schema_version: 1\nplugins: {own: own.suite:SUITE}\nsuites: {own: [{}]}\n"
        )
    settings = Measuring(
        **{"environ": {}, "here": tmp_path, "fleet": "local:cpu", "image": IMAGE, **given}
    )
    with pytest.raises(BadInput, match=words):
        check_cage(settings, Config(entries=(), **config))
    check_cage(
        replace(settings, fleet="local:cpu", image=IMAGE, prepared=None, config=None),
        Config(entries=()),
    )


STUB = """
import json, os, sys
from pathlib import Path
words = sys.argv[sys.argv.index("ci_bench.cli") + 1 :]
said = {"words": words, "flags": sys.argv[1:3], "here": os.getcwd(), "starter": os.environ["CI_BENCH_LEASE_STARTER"]}
with Path(NOTES).open("a") as stream:
    stream.write(json.dumps(said) + chr(10))
out = Path(words[words.index("--output") + 1])
folders = {"/results": out, "/prepared": Path(words[words.index("--prepared") + 1])}
out.mkdir(exist_ok=True)
"""


def test_without_an_image_both_sides_are_made_and_measured_by_processes_in_the_checkout(
    tmp_path, monkeypatch
):
    repository, base, head = topic_repository(tmp_path / "project")
    config = tmp_path / "own.yml"
    config.write_text("schema_version: 1\n")
    wanted = WantedTrees(repository=repository.top, base=None, setup=Setup(), environ=clean())
    sources, _ = make_bundle(wanted, tmp_path / "sources.bundle", config=config)
    stub, notes = tmp_path / "python", tmp_path / "notes"
    program(stub, STUB.replace("NOTES", repr(str(notes))) + SIDES.replace("FAILURE", "None"))
    monkeypatch.setattr(sys, "executable", str(stub))
    monkeypatch.setenv("CI_BENCH_SOURCES", str(tmp_path / "node"))
    run = Run(
        id="r",
        started_at="2026-02-01T00:00:00Z",
        state=RunState.PARTIAL,
        config_digest="c",
        device="cpu",
    )
    words = lease_command(
        Measuring(environ={}, here=repository.top, fleet="local", config=config), run, sources
    )
    order = LeaseOrder(
        lease=FleetLease(number=0, cases=("s/a",), first=0, launches=1, expected_s=1.0),
        attempt=1,
        slot="cpu",
    )
    command = words(order, tmp_path / "out")
    assert main([*command[command.index("fleet") :]]) == ExitCode.OK
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [each["words"][0] for each in told] == ["setup", "fleet"]
    for each in told:
        assert each["flags"] == ["-P", "-m"], "a module of the checkout's own is not ours"
        assert (
            subprocess.run(
                ["git", "rev-parse", "HEAD"],
                cwd=each["here"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            == head
        )
        assert each["words"][each["words"].index("--base") + 1] == base
        assert (
            Path(each["words"][each["words"].index("--config") + 1]).read_text()
            == "schema_version: 1\n"
        )
        assert each["starter"] == str(os.getpid())
