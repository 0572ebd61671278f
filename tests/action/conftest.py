"""A GPU runner's job: the composite action, the fake docker, the fake GitHub, a checkout, and what measuring leaves."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from action_steps import Steps
from composite import Expressions, Runner
from fake_github import READ_ONLY, TOKEN, serve
from fake_github_events import BASE, HEAD, RUN, environment, pull_request
from fake_github_state import sha_of
from gpu_runner import CI_BENCH, CONFIG, GIGABYTE, ROOT, UPLOAD, document
from stand_ins import program


@pytest.fixture(scope="session")
def expressions():
    running = Expressions()
    yield running
    running.close()


@pytest.fixture
def fake():
    """Fails the test where a request or a reply breaks GitHub's description."""
    with serve() as running:
        running.state.history = [BASE, *(sha_of(f"main {number}") for number in range(1, 20))]
        running.state.files["main", "ci-bench.yml"] = CONFIG.encode()
        running.state.files[HEAD, "ci-bench.yml"] = CONFIG.encode()
        yield running
        assert running.faults == []


@pytest.fixture
def notes(tmp_path):
    """The fake docker's folder: `results` is what measuring leaves, `plan.json` what goes wrong."""
    folder = tmp_path / "docker"
    program(folder / "bin" / "docker", (ROOT / "tests/fixtures/fake_docker.py").read_text())
    return folder


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


@pytest.fixture
def plan(notes):
    return lambda **given: (notes / "plan.json").write_text(json.dumps(given))


@pytest.fixture
def measured(notes):
    """What measuring leaves: both sides' documents."""

    def leave(head=GIGABYTE, base=GIGABYTE):
        document(notes / "results" / "results.json", head)
        document(notes / "results" / "base" / "results.json", base, commit=BASE)

    return leave


@pytest.fixture
def runner(expressions, fake, notes, checkout, tmp_path):
    """A runner whose next job is of `event`; what is uploaded becomes an artifact of the run."""

    def make(name="pull_request", event=None, *, fork=False, token=None, head=HEAD, **more):
        temporary = tmp_path / "temp"
        temporary.mkdir(exist_ok=True)
        event = event or pull_request(fork=fork, head=head, base=fake.state.history[0])
        if name == "pull_request":
            fake.state.add_pull(7, head, fork=fork)
        standard = {
            "PATH": f"{notes / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "CI": "true",
            "GITHUB_WORKSPACE": str(checkout),
            "GITHUB_API_URL": fake.url,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_BASE_REF": "main",
            "DOCKER_FAKE": str(notes),
            "DOCKER_FAKE_CI_BENCH": str(CI_BENCH),
            "ACTIONS_RUNTIME_TOKEN": "the-runtime-token",
            "THE_TOKEN": token or (READ_ONLY if fork else TOKEN),
        }
        environ = environment(tmp_path, name, event, **{**standard, **more})

        def upload(given):
            run = fake.state.runs.get(RUN) or fake.state.add_run(
                HEAD, id=RUN, event=name, head_branch="feature", fork=fork, conclusion="success"
            )
            folder = Path(given["path"])
            members = {
                str(path.relative_to(folder)): path.read_bytes()
                for path in folder.rglob("*")
                if path.is_file()
            }
            made = fake.state.add_artifact(run, members, name=given["name"])
            return {"artifact-url": f"https://github.example/artifacts/{made['id']}"}

        return Runner(expressions, temporary, environ, {UPLOAD: upload})

    return make


@pytest.fixture
def steps(notes, checkout, tmp_path):
    """Runs a step; outputs of `preflight` become the environment of the others."""
    stub = notes / "bin" / "stub-ci-bench"
    program(stub, (ROOT / "tests/fixtures/stub_ci_bench.py").read_text())
    (tmp_path / "temp").mkdir()
    return Steps(notes, checkout, tmp_path, stub)
