"""The image, built for real, does what its contract says; and each protection turns red for an image that lacks it.

The defects are planted as images on top of the one under test, a layer each.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from container_engine import ROOT, Engine, Image
from gpu_runner import defaults
from image_config import MODEL, config
from image_inspection import complaints

import commands
import containers
from ci_bench import __version__
from ci_bench.records import documents
from ci_bench.records.results import Outcome, RunState, Status

pytestmark = [pytest.mark.container, pytest.mark.slow]

STRANGER = "12345:54321"
"""A user and a group without an entry anywhere."""
HARDENED = (
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--pids-limit=512",
)
SCRATCH = ("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777")  # noqa: S108 - in a container of its own
LARGEST_BYTES = 2_600_000_000
"""With torch for the CPU on a bare Debian; see docs/internals/adr/0013-image-and-release.md."""


def docker_run(
    image: Image,
    *arguments: object,
    options: tuple[object, ...] = (),
    name: str | None = None,
    **how,
):
    """Run the image, hardened and as a stranger, as the composite action runs it."""
    given = [*HARDENED, *SCRATCH, "--user", STRANGER, *options]
    return image.engine("run", "--rm", *given, name or image.name, *arguments, **how)


@pytest.fixture
def plant(image: Image):
    """Makes an image with a defect on top of the one under test."""
    names = []

    def build(line: str) -> str:
        name = f"localhost/ci-bench:planted-{len(names)}"
        image.engine(
            "build",
            "--network=none",
            "--quiet",
            "--tag",
            name,
            "-",
            text=f"FROM {image.name}\n{line}\n",
        )
        names.append(name)
        return name

    yield build
    for name in names:
        image.engine("image", "rm", "--force", name)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that belongs to nobody in the image, with a model and a configuration."""
    folder = tmp_path_factory.mktemp("workspace")
    folder.chmod(0o755)
    (folder / "ci-bench.yml").write_text(yaml.safe_dump(config()))
    (folder / "model.py").write_text(MODEL)
    git = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "start"]):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture(scope="module")
def measured(image: Image, workspace: Path, tmp_path_factory: pytest.TempPathFactory):
    """The action's bench step, once: the folder of results and what was printed."""
    return bench(image, workspace, tmp_path_factory.mktemp("work"))


def bench(image: Image, workspace: Path, work: Path, *, name: str | None = None):
    """The composite action's own command for its bench step, as a stranger; the folder of results, and what was printed."""
    for folder in ("config", "results", "prepared"):
        (work / folder).mkdir()
    work.chmod(0o755)
    (work / "results").chmod(0o777)
    shutil.copy(workspace / "ci-bench.yml", work / "config")
    state = {
        "settings": defaults(INPUT_BASELINE="none", INPUT_GPUS="none"),
        "workspace": str(workspace),
        "work": str(work),
        "job": f"test-{os.getpid()}-{work.name}",
        "user": STRANGER,
        "image": name or image.name,
        "gpu_access": "none",
        "locks": "",
        "run": "a test",
    }
    argv = containers.bench(state, "bench", commands.bench(state), image.engine.environ)
    assert argv[:2] == ["docker", "run"]
    done = image.engine(*argv[1:], check=False)
    return work / "results", f"{done.returncode}\n{done.stdout}{done.stderr}"


def test_nothing_is_wrong_with_it(image: Image):
    assert complaints(image.engine, image.name) == []


def test_its_labels_say_what_it_is(image: Image):
    labels = json.loads(image.engine("image", "inspect", image.name).stdout)[0]["Config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == __version__
    revision = labels["org.opencontainers.image.revision"]
    assert re.fullmatch(r"[0-9a-f]{40}", revision)
    subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{revision}^{{commit}}"], check=True)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("USER 1000", "it runs as 1000"),
        ('ENTRYPOINT ["ci-bench"]', "the entrypoint is"),
        ("ENV GITHUB_TOKEN=ghs_x", "its environment has GITHUB_TOKEN"),
        ("ENV INDEX=https://me:hunter2@example.org/simple", "its environment has INDEX"),
        ("ARG HF_TOKEN=hunter2\nRUN true", "its history has a secret"),
        ("LABEL org.opencontainers.image.source=", "label source is missing"),
        ("RUN chmod 700 /opt/ci-bench/lib", "nobody but its owner can read /opt/ci-bench/lib"),
        (
            "RUN chmod 666 /opt/ci-bench/entrypoint/image.sh",
            "anybody can write /opt/ci-bench/entrypoint/image.sh",
        ),
        (
            "RUN mkdir -p /root/.cache && touch /root/.cache/wheel",
            "left behind: /root/.cache/wheel",
        ),
    ],
)
def test_the_inspection_sees_what_is_planted(image: Image, plant, line: str, complaint: str):
    found = complaints(image.engine, plant(line))
    assert any(complaint in one for one in found), found


def test_help_comes_at_once(image: Image):
    start = time.monotonic()
    done = docker_run(image)
    assert "usage: ci-bench" in done.stdout
    assert time.monotonic() - start < 15


def test_its_size_is_known_and_bounded(image: Image):
    size = int(image.engine("image", "inspect", "--format", "{{.Size}}", image.name).stdout)
    if not image.engine.private:
        pytest.skip("the size depends on the base, which is another one on this engine")
    assert size < LARGEST_BYTES


def test_it_measures_as_the_bench_step_does(measured):
    results, printed = measured
    document = documents.read_results(results / "results.json")
    (row,) = document.cases
    assert (document.run.state, row.status) == (RunState.COMPLETE, Status.OK), printed
    assert {check.outcome for check in row.checks if check.name == "compiled"} == {Outcome.PASS}
    assert {metric.arm for metric in row.metrics if metric.launches} >= {"eager", "inductor"}
    assert document.source.commit is not None
    assert {path.stat().st_uid for path in results.iterdir()} == {12345}


def test_without_a_compiler_it_does_not_measure(
    image: Image, plant, workspace: Path, tmp_path: Path
):
    results, printed = bench(
        image, workspace, tmp_path, name=plant("RUN rm /usr/bin/g++ /usr/bin/*-g++*")
    )
    (row,) = documents.read_results(results / "results.json").cases
    assert row.status is Status.FAILED, printed
    assert "compiler" in row.failure.reason.lower() + row.failure.log_tail.lower()


def test_what_it_measured_is_read_and_compared_in_it(image: Image, measured):
    results, _ = measured
    read_only = ("-v", f"{results}:/results:ro")
    assert (
        "a valid results document"
        in docker_run(image, "validate", "/results/results.json", options=read_only).stdout
    )
    assert (
        "mine"
        in docker_run(
            image, "show", "/results/results.json", "--format", "comment", options=read_only
        ).stdout
    )
    compared = docker_run(
        image,
        "compare",
        "/results/results.json",
        "/results/results.json",
        "--format",
        "comment",
        options=read_only,
    )
    assert "ci-bench" in compared.stdout


def python(image: Image, code: str, *, name: str | None = None, check: bool = True):
    """Python in the image, with what the entrypoint sets up for ci-bench."""
    put_before = "mkdir /tmp/bin; printf '#!/bin/bash\\nexec python \"$@\"\\n' >/tmp/bin/ci-bench; chmod +x /tmp/bin/ci-bench; "
    line = f'{put_before} PATH=/tmp/bin:$PATH exec /opt/ci-bench/entrypoint/image.sh -c "$0"'
    return docker_run(
        image, "-c", line, code, options=("--entrypoint", "bash"), name=name, check=check
    )


def test_all_that_measuring_needs_is_there(image: Image):
    assert "This machine can measure" in docker_run(image, "doctor", "--quick").stdout


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("RUN rm /usr/bin/g++ /usr/bin/*-g++*", "c++ compiler"),
        ("RUN rm -r /usr/include/python3*", "python headers"),
        ("RUN pip uninstall --yes transformers", "transformers"),
    ],
)
def test_what_is_missing_for_measuring_is_named(image: Image, plant, line: str, missing: str):
    done = docker_run(image, "doctor", "--quick", name=plant(line), check=False)
    said = next(one for one in done.stdout.splitlines() if missing in one)
    assert not said.startswith("✓"), done.stdout


def test_a_name_and_places_to_write_are_found_for_any_user(image: Image):
    told = python(
        image,
        "import getpass, os, pathlib; print(getpass.getuser(), pathlib.Path.home(), os.environ['TRITON_CACHE_DIR'])",
    )
    name, home, cache = told.stdout.split()
    assert name == "uid-12345"
    assert Path(home).is_relative_to("/tmp")  # noqa: S108 - in the container
    assert Path(cache).is_relative_to("/tmp")  # noqa: S108


def test_without_a_place_to_write_it_says_what_to_add(image: Image):
    given = ["run", "--rm", "--network=none", "--read-only", "--user", STRANGER]
    for options in ((), ("--tmpfs", "/tmp")):  # noqa: S108 - docker mounts it noexec
        done = image.engine(*given, *options, image.name, "--version", check=False)
        assert (done.returncode, "--tmpfs /tmp:exec,mode=1777" in done.stderr) == (3, True)


def test_a_workspace_that_its_user_cannot_read_is_told_so(image: Image, tmp_path: Path):
    tmp_path.chmod(0o700)
    done = docker_run(image, "run", options=("-v", f"{tmp_path}:/workspace:ro"), check=False)
    assert (done.returncode, "--user" in done.stderr) == (2, True)


def test_a_model_of_the_hub_is_refused_at_once(image: Image):
    code = "from huggingface_hub import hf_hub_download\nhf_hub_download('example/none', 'config.json')"
    start = time.monotonic()
    done = python(image, code, check=False)
    assert time.monotonic() - start < 60
    assert re.search(r"offline|LocalEntryNotFound", done.stderr, re.IGNORECASE), done.stderr[-500:]


def test_no_token_of_the_caller_gets_into_it(image: Image):
    environ = {**image.engine.environ, "GITHUB_TOKEN": "ghs_" + "A1b2" * 9}
    engine = Engine(docker=image.engine.docker, environ=environ, folder=image.engine.folder)
    done = engine("run", "--rm", *HARDENED, "--entrypoint", "env", image.name)
    assert "A1b2" not in done.stdout


def test_by_hand_its_progress_is_shown_on_a_terminal(image: Image, tmp_path: Path):
    waiting = {"command": [{"name": "work", "command": ["sleep", "0.3"]}]}
    (tmp_path / "ci-bench.yml").write_text(yaml.safe_dump({**config(), "suites": waiting}))
    tmp_path.chmod(0o755)
    mounts = ("--tty", "-v", f"{tmp_path}:/workspace:ro")
    shown = docker_run(image, "run", "--output", "/tmp/results", options=mounts).stdout  # noqa: S108 - in the container
    assert "left" in shown
    assert "\x1b[2K" in shown, "a line that is drawn again"


@pytest.mark.alone
def test_it_stops_in_time_when_cancelled(image: Image, workspace: Path, tmp_path: Path):
    results = tmp_path / "results"
    results.mkdir()
    results.chmod(0o777)
    name = f"ci-bench-test-{os.getpid()}"
    given = [
        "run",
        "--rm",
        "--name",
        name,
        *HARDENED,
        *SCRATCH,
        "--user",
        STRANGER,
        "-v",
        f"{workspace}:/workspace:ro",
    ]
    command = [
        image.engine.docker,
        *given,
        "-v",
        f"{results}:/results",
        image.name,
        "run",
        "--output",
        "/results",
    ]
    running = subprocess.Popen(
        command,
        env=dict(image.engine.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        assert running.stderr.readline()  # it has begun
        start = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
        assert time.monotonic() - start < 7.5, "GitHub's runner kills what isn't gone by then"
        assert "interrupted" in told
        assert running.returncode == 130
    finally:
        image.engine("rm", "--force", name, check=False)
