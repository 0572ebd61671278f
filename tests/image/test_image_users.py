"""Base and head as users of their own, in real containers: what head tries with base, and what both can do with their own."""

import json
import subprocess

import pytest
import yaml
from gpu_runner import defaults

import commands
import containers

pytestmark = [pytest.mark.container, pytest.mark.slow]

SCRIPT = """import json, os, pathlib, helper
pathlib.Path("log.txt").write_text(str(os.getuid()))
series = [{"name": "work", "unit": "count", "better": "lower", "value": helper.VALUE}]
print(json.dumps({"kind": "measurements", "schema_version": 1, "series": series}))
"""
REACHING = """
import os, pathlib, signal
base = pathlib.Path.cwd().parents[1] / "base" / pathlib.Path.cwd().name
paired = base.parents[1]
could = []
def attempt(name, act):
    try:
        act()
        could.append(name)
    except OSError:
        pass
attempt("base's tree", lambda: (base / "helper.py").write_text("VALUE = 99"))
attempt("base's environment", lambda: (paired / "base-env" / "x.py").write_text("x"))
attempt("base's cache", lambda: list((paired / "base-home").iterdir()))
attempt("what was prepared", lambda: (paired / "sides.json").write_text("{}"))
attempt("results", lambda: pathlib.Path("/results/results.json").write_text("{}"))
attempt("results by name", lambda: os.listdir("/results"))
attempt("the engine", lambda: (paired / "engine" / "torch").symlink_to("/"))
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        other = process.stat().st_uid != os.getuid()
    except OSError:
        continue
    if other:
        attempt("a signal", lambda: os.kill(int(process.name), signal.SIGSTOP))
        attempt("variables", lambda: (process / "environ").read_bytes())
        attempt("memory", lambda: open(process / "mem", "rb"))
assert not could, could
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvpe("sleep", ["sleep", "600"], {"PATH": os.environ["PATH"]})
    os._exit(0)
"""
CONFIG = {
    "schema_version": 1,
    "setup": {"commands": ["id -u >made; touch $VIRTUAL_ENV/own $HOME/own $TMPDIR/own"]},
    "run": {
        "device": "cpu",
        "threads": 1,
        "sampling": "fixed",
        "launches": 2,
        "blocks": 1,
        "warmup_s": 0.1,
    },
    "suites": {
        "command": [
            {
                "name": "own",
                "command": ["python", "measure.py"],
                "output": "stdout",
                "format": "measurements",
            }
        ],
    },
}


def git(folder, *arguments):
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def job(tmp_path, image):
    """A job's folders as the action makes them, for a runner that is not root; and a way to run its phases."""
    work, workspace = tmp_path / "work", tmp_path / "repo"
    for name in ("config", "results", "prepared", "cache"):
        (work / name).mkdir(parents=True, mode=0o700)
    workspace.mkdir()
    (workspace / "measure.py").write_text(SCRIPT)
    (work / "config" / "ci-bench.yml").write_text(yaml.safe_dump(CONFIG))
    for helper in ("VALUE = 10\n", f"VALUE = 10\n{REACHING}"):
        (workspace / "helper.py").write_text(helper)
        git(workspace, *(["add", "."] if (workspace / ".git").exists() else ["init", "--quiet"]))
        git(workspace, "add", ".")
        git(workspace, "commit", "--quiet", "--message", "x")
    state = {
        "settings": defaults(INPUT_GPUS="none", INPUT_BASE="HEAD~1", INPUT_BASELINE="paired"),
        "work": str(work),
        "workspace": str(workspace),
        "job": "users",
        "user": "1001:1001",
        "image": image.name,
        "gpu_access": "none",
        "locks": "",
        "run": "a test",
        "apart": True,
    }
    for folder in (tmp_path, workspace, work, work / "cache"):
        folder.chmod(0o755)
    subprocess.run(["chown", "-R", "1001:1001", str(tmp_path)], check=True)

    def run(phase, command):
        argv = containers.bench(state, phase, command, {})
        return image.engine(*argv[1:], check=False)

    return state, run


def test_head_finds_no_way_to_base_and_both_have_their_own(job, image, tmp_path):
    state, run = job
    assert image.engine(*containers.try_users(state)).returncode == 0
    (tmp_path / "work" / "results" / "theirs").unlink()
    for phase, command in (("setup", commands.setup(state)), ("bench", commands.bench(state))):
        done = run(phase, command)
        assert done.returncode == 0, done.stdout + done.stderr
    documents = [
        json.loads((tmp_path / "work" / "results" / name).read_text())
        for name in ("results.json", "base/results.json")
    ]
    assert [row["status"] for document in documents for row in document["cases"]] == ["ok", "ok"]
    paired = tmp_path / "work" / "prepared" / "paired"
    for side, user in (("base", "65101"), ("head", "65102")):
        assert (paired / side / "workspace" / "made").read_text().strip() == user
        assert (paired / side / "workspace" / "log.txt").read_text() == user
    image.engine(*containers.settle(state, "results", "prepared"))
    assert {path.lstat().st_uid for path in (tmp_path / "work").rglob("*")} == {1001}


def test_without_users_of_their_own_the_same_reaches_are_noticed(job, tmp_path):
    """So each attempt shows what it says: as one user they succeed, and the seal names the file."""
    state, run = job
    state["apart"] = False
    for phase, command in (("setup", commands.setup(state)), ("bench", commands.bench(state))):
        done = run(phase, command)
    assert done.returncode != 0
    base = json.loads((tmp_path / "work" / "results" / "base" / "results.json").read_text())
    assert (
        "base's tree was changed: helper.py was written" in base["cases"][0]["failure"]["reason"]
    ), done.stdout + done.stderr
