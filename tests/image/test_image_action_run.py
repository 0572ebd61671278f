"""The short form of the action in the real image, started as GitHub's runner starts a container action, against the fake GitHub."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from container_engine import Image
from fake_github import TOKEN, serve
from fake_github_events import environment, pull_request
from image_config import MODEL, config

pytestmark = [
    pytest.mark.container,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a workspace to another user"),
]

ROOT = Path(__file__).resolve().parents[2]
RUNTIME_TOKEN = "the-runtime-token"  # noqa: S105 - nobody's


@pytest.fixture
def fake():
    with serve() as running:
        running.state.files["main", "ci-bench.yml"] = yaml.safe_dump({**config("eager"), "baseline": "none"}).encode()
        yield running
        assert running.faults == []


@pytest.fixture
def runner(image: Image, fake, tmp_path: Path):
    """What the runner does for a container action: folders, variables, and its one docker command."""
    folders = {name: tmp_path / name for name in ("workspace", "home", "workflow", "file_commands", "runner_temp")}
    for folder in folders.values():
        folder.mkdir()
    workspace = folders["workspace"]
    (workspace / "model.py").write_text(MODEL)
    git = ["git", "-C", str(workspace), "-c", "user.name=x", "-c", "user.email=x@localhost"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "x"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    fake.state.add_pull(7, head)
    for path in [workspace, *workspace.rglob("*")]:
        os.chown(path, 12345, 54321)

    def run(*, fork: bool = False, **inputs):
        declared = yaml.safe_load((ROOT / "docker" / "action.yml").read_text())["inputs"]
        given = {f"INPUT_{name.upper()}": str(about["default"]) for name, about in declared.items()}
        event = environment(
            folders["workflow"],
            "pull_request",
            pull_request(fork=fork, head=head),
            GITHUB_EVENT_PATH="/github/workflow/event.json",
        )
        standard = {
            "HOME": "/github/home",
            "GITHUB_WORKSPACE": "/github/workspace",
            "GITHUB_OUTPUT": "/github/file_commands/output",
            "GITHUB_STEP_SUMMARY": "/github/file_commands/summary",
            "GITHUB_API_URL": fake.url,
            "GITHUB_BASE_REF": "main",
            "RUNNER_TEMP": "/github/runner_temp",
            "ACTIONS_RUNTIME_TOKEN": RUNTIME_TOKEN,
            "INPUT_TOKEN": TOKEN,
            "INPUT_BASELINE": "none",
            "INPUT_MIN_FREE_DISK_GB": "1",
        }
        values = event | given | standard | {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        for name in ("output", "summary"):
            (folders["file_commands"] / name).write_text("")
        mounts = [part for name, folder in folders.items() for part in ("-v", f"{folder}:/github/{name}")]
        variables = [part for name in values for part in ("-e", name)]
        command = [
            "run",
            "--workdir",
            "/github/workspace",
            "--rm",
            "--network=host",
            *variables,
            *mounts,
            image.name,
            "github-action",
        ]
        done = subprocess.run(
            [image.engine.docker, *command], env={**image.engine.environ, **values}, capture_output=True, text=True, check=False
        )
        told = dict(line.split("=", 1) for line in (folders["file_commands"] / "output").read_text().splitlines())
        return done.returncode, done.stdout + done.stderr, told

    return run, folders


def test_from_the_event_to_the_comment_in_one_container(fake, runner):
    run, folders = runner
    code, printed, told = run()

    assert code == 0, printed
    assert told["verdict"] == "passed"
    (comment,) = fake.state.comments_of(7)
    assert "mine" in comment["body"]
    documents = folders["workspace"] / told["documents"]
    assert json.loads((documents / "results.json").read_text())["cases"]
    owned = {path.lstat().st_uid for path in folders["workspace"].rglob("*")}
    assert owned == {12345}, "the runner can't remove what belongs to root"
    texts = [printed, *(path.read_text(errors="replace") for path in documents.iterdir())]
    assert not any(secret in text for text in texts for secret in (TOKEN, RUNTIME_TOKEN))


def test_a_fork_is_refused_and_nothing_of_it_is_run(fake, runner):
    run, folders = runner
    (folders["workspace"] / "model.py").write_text("import pathlib; pathlib.Path('/github/workspace/was_run').touch()")
    code, printed, told = run(fork=True)

    assert (code, told) == (2, {})
    assert "::error title=ci-bench::this pull request comes from a fork" in printed
    assert not (folders["workspace"] / "was_run").exists()
    assert fake.state.comments_of(7) == []
