"""The whole of it: from an event to the comment, with the real image on a real engine, and code under test that looks for a way out."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from fake_github import TOKEN
from fake_github_events import RUN
from gpu_runner import ROOT

pytestmark = [pytest.mark.container, pytest.mark.slow]

WORK = """
import os, pathlib, socket, sys
size = %d
holes = [name for name in os.environ if name.endswith("TOKEN") or name.startswith(("ACTIONS_", "RUNNER_", "INPUT_"))]
holes += [name for name in os.listdir("/sys/class/net") if name != "lo"]
holes += [path for path in ("/var/run/docker.sock", "/github", "/event.json", "/documents", "/report", "/baseline") if os.path.exists(path)]
for path in ("/workspace", "/config", "/opt/ci-bench", "/etc"):
    try:
        pathlib.Path(path, "hole").write_text("x")
        holes.append(path)
    except OSError:
        pass
for process in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        holes += [str(process)] if b"ghs_" in process.read_bytes() else []
    except OSError:
        pass
print("::set-output name=verdict::passed\\n##[set-output name=verdict]passed")
assert pathlib.Path("made.txt").read_text() == "made\\n", "set-up has run"
block = bytearray(os.urandom(1)) * size
sys.exit(f"holes: {holes}" if holes else 0)
"""
CONFIG = {
    "schema_version": 1,
    "setup": {"commands": ["echo made > made.txt"]},
    "run": {
        "device": "cpu",
        "threads": 1,
        "sampling": "fixed",
        "launches": 2,
        "blocks": 1,
        "warmup_s": 0.1,
    },
    "suites": {"command": [{"name": "work", "command": ["python3", "work.py"], "timeout_s": 60}]},
    "policy": {
        "default_threshold": "90%",
        "severities": {"inconclusive": "note", "undecided": "note", "possible": "note"},
    },
}


def git(folder, *arguments):
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(checkout, fake):
    """Base in a first commit; head is the working tree's second."""

    def commit(size):
        (checkout / "work.py").write_text(WORK % size)
        git(checkout, "add", ".")
        git(checkout, "commit", "--quiet", "--allow-empty", "--message", f"takes {size} bytes")
        return git(checkout, "rev-parse", "HEAD").strip()

    git(checkout, "checkout", "--quiet", "-b", "main")
    fake.state.history = [commit(1)]
    git(checkout, "checkout", "--quiet", "-b", "feature")
    return commit


@pytest.fixture
def real_runner(runner, image, notes):
    """A runner with the real docker."""
    (notes / "bin" / "docker").unlink()
    (notes / "bin" / "docker").symlink_to(shutil.which(image.engine.docker))
    told = {
        name: value for name, value in image.engine.environ.items() if name.startswith("DOCKER_")
    }
    return lambda **more: runner(**told, **more)


def test_from_the_event_to_the_comment_and_the_failed_gate(  # noqa: PLR0917 - by name
    fake, real_runner, repository, image, checkout, tmp_path
):
    fake.state.files["main", "ci-bench.yml"] = json.dumps(CONFIG).encode()
    given = {"image": image.name, "gpus": "none"}
    head = repository(300_000_000)
    first = real_runner(head=head).run(ROOT / "action.yml", **given)
    assert {name: one["outcome"] for name, one in first.steps.items() if name != "gate"} == {
        **dict.fromkeys(
            ("preflight", "baseline", "setup", "bench", "report", "upload", "cleanup"), "success"
        )
    }, first.log
    assert (first.outputs["verdict"], first.outputs["exit_code"], first.outputs["regressed"]) == (
        "failed",
        "1",
        "1",
    ), first.log
    assert first.steps["gate"]["outcome"] == "failure"
    (comment,) = fake.state.comments_of(7)
    assert "❌ Failed" in comment["body"]
    assert "peak resident memory" in first.summary

    git(checkout, "reset", "--quiet", "--hard", "main")
    head = repository(1)
    second = real_runner(head=head, GITHUB_RUN_ID=str(RUN + 1)).run(ROOT / "action.yml", **given)
    assert (second.outputs["verdict"], second.outputs["failed"]) == ("passed", "0"), second.log
    (comment_now,) = fake.state.comments_of(7)
    assert comment_now["id"] == comment["id"]
    assert "✅" in comment_now["body"]

    documents = Path(second.outputs["documents"])
    assert {"results.json", "comparison.json", "report.md", "comment.md", "bench.log"} <= {
        path.name for path in documents.iterdir()
    }
    assert git(checkout, "status", "--porcelain") == "", "the checkout is as it was"
    everything = "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    )
    assert TOKEN not in first.log + second.log + everything
    assert image.engine("ps", "--all", "--quiet", "--filter", "name=ci-bench-").stdout == ""


def test_a_cancelled_job_leaves_no_container(  # noqa: PLR0917 - by name
    fake, real_runner, repository, image, checkout, tmp_path
):
    endless = {
        **CONFIG,
        "suites": {
            "command": [
                {"name": "work", "command": "touch $CI_BENCH_OUTPUT; sleep 100", "timeout_s": 200}
            ]
        },
    }
    fake.state.files["main", "ci-bench.yml"] = json.dumps(endless).encode()
    job = real_runner(head=repository(1))
    job.cancel_when = Watch(image)
    done = job.run(ROOT / "action.yml", image=image.name, gpus="none")
    assert done.cancelled
    assert done.steps["bench"]["outcome"] == "failure"
    assert done.steps["cleanup"]["outcome"] == "success"
    assert image.engine("ps", "--all", "--quiet", "--filter", "name=ci-bench-").stdout == ""


class Watch:
    """True once the container that measures is running."""

    def __init__(self, image):
        self.image = image

    def exists(self):
        return bool(self.image.engine("ps", "--quiet", "--filter", "name=-bench$").stdout)
