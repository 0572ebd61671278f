"""The short form of the action: what it refuses, what each step sees, and that it has the composite's inputs and outputs."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fake_github_events import environment, pull_request, push

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("image_action", ROOT / "entrypoint" / "image_action.py")
action = importlib.util.module_from_spec(SPEC)
sys.modules["image_action"] = action  # dataclasses look their module up
SPEC.loader.exec_module(action)

COMPOSITE, SHORT = (yaml.safe_load((ROOT / name).read_text()) for name in ("action.yml", "docker/action.yml"))
TOKEN = "ghs_" + "A1b2" * 9


def test_inputs_and_outputs_are_those_of_the_composite():
    assert list(SHORT["inputs"]) == list(COMPOSITE["inputs"])
    assert list(SHORT["outputs"]) == list(COMPOSITE["outputs"])
    assert all(one["description"] for kind in ("inputs", "outputs") for one in SHORT[kind].values())


def test_defaults_differ_only_where_one_container_can_do_nothing_else():
    other = {name for name, one in SHORT["inputs"].items() if one["default"] != COMPOSITE["inputs"][name]["default"]}
    assert other == {"mode", "image", "setup_network", "bench_network", "upload"}
    assert {name: SHORT["inputs"][name]["default"] for name in action.FIXED} == action.FIXED


def test_the_runner_starts_it_as_the_image_wants():
    runs = SHORT["runs"]
    assert (runs["using"], runs["args"]) == ("docker", ["github-action"])
    assert not set(runs) & {"entrypoint", "env"}  # tini stays in front, and nothing of an input becomes a variable of its own
    image = runs["image"]
    built = (ROOT / "docker" / image).resolve() == ROOT / "Dockerfile"
    assert built or re.fullmatch(r"docker://[\w./-]+@sha256:[0-9a-f]{64}", image)


def test_a_release_can_put_its_image_in_one_place():
    lines = (ROOT / "docker" / "action.yml").read_text().splitlines()
    assert sum(line.startswith(("  image: ../Dockerfile", "  image: docker://")) for line in lines) == 1
    assert "    default: build" not in lines, "a release would take it for the composite's default image"


def given(tmp_path, name, event, **more):
    inputs = {f"INPUT_{one.upper()}": str(about["default"]) for one, about in SHORT["inputs"].items()}
    return environment(tmp_path, name, event) | inputs | {"INPUT_TOKEN": TOKEN} | more


@pytest.mark.parametrize(
    ("name", "event", "refused"),
    [
        ("pull_request", pull_request(), ""),
        ("push", push(), ""),
        ("schedule", None, ""),
        ("workflow_dispatch", None, ""),
        ("pull_request", pull_request(fork=True), "comes from a fork"),
        ("pull_request", pull_request(deleted=True), "comes from a fork"),
        ("pull_request", None, "from where can't be told"),
        ("pull_request", {"pull_request": {}}, "from where can't be told"),
        ("pull_request", {"repository": {}, "pull_request": {"head": {"repo": {}}}}, "from where can't be told"),
        ("pull_request_target", pull_request(), "not on pull_request_target"),
        ("workflow_run", None, "not on workflow_run"),
        ("issue_comment", None, "not on issue_comment"),
        ("", None, "not on an unknown event"),
    ],
)
def test_only_code_of_those_who_may_push_is_run(tmp_path, name, event, refused):
    environ = given(tmp_path, name, event)
    if refused:
        with pytest.raises(action.Refused, match=refused):
            action.check_event(environ)
    else:
        action.check_event(environ)


@pytest.mark.parametrize("name", action.FIXED)
def test_an_input_that_cannot_be_honoured_is_refused_by_its_name(tmp_path, name):
    other = {"setup_network": "false", "bench_network": "false", "upload": "true", "mode": "container"}.get(name, "other")
    action.check_inputs(given(tmp_path, "push", push()))
    with pytest.raises(action.Refused, match=name):
        action.check_inputs(given(tmp_path, "push", push(), **{f"INPUT_{name.upper()}": other}))


def test_only_the_two_steps_that_talk_to_github_have_the_token(tmp_path):
    environ = given(tmp_path, "push", push(), **dict.fromkeys(action.TOKENS[2:], "other"))
    steps = [action.Step(name="preflight"), action.FETCHING, *action.MEASURING, *action.FINISHING, action.Step(name="cleanup")]
    for step in steps:
        seen = action.environment(step, environ)
        assert (TOKEN in seen.values()) is step.token
        assert "other" not in seen.values()
        assert seen["INPUT_MODE"] == "native"
    assert [step.name for step in steps if step.token] == ["baseline", "report"]


def test_a_fork_is_refused_before_any_step(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(action, "_run", lambda *_: pytest.fail("a step was run"))
    assert action.main(given(tmp_path, "pull_request", pull_request(fork=True))) == 2
    assert capfd.readouterr().out.startswith("::error title=ci-bench::this pull request comes from a fork")


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Runs the action with steps that only answer, and tells which were run."""
    work = tmp_path / "work"
    (work / "documents").mkdir(parents=True)
    (work / "documents" / "results.json").write_text("{}")
    (work / "documents" / "leak").symlink_to("/etc/passwd")
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def run(answers, **inputs):
        told = tmp_path / "outputs"
        told.write_text("")
        seen = []

        def answer(step, environ):
            seen.append(step.name)
            if step.name == "preflight":
                told.write_text(f"work={work}\n")
            return answers.get(step.name, 0)

        monkeypatch.setattr(action, "_run", answer)
        monkeypatch.setattr(action, "give_back", lambda _: seen.append("give back"))
        environ = given(tmp_path, "push", push(), GITHUB_OUTPUT=str(told), GITHUB_WORKSPACE=str(workspace), **inputs)
        return action.main(environ), seen, workspace / action.outputs(told).get("documents", "none")

    return run


def test_the_steps_are_the_composites_in_its_order(steps):
    of_composite = [step["id"] for step in COMPOSITE["runs"]["steps"] if "uses" not in step]
    code, seen, documents = steps({})
    assert (code, seen) == (0, [*of_composite, "give back"])
    assert [path.name for path in documents.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("answers", "code", "seen"),
    [
        ({"preflight": 3}, 3, ["preflight"]),
        ({"baseline": 2}, 2, ["preflight", "baseline", "cleanup", "give back"]),
        ({"bench": 130}, 130, ["preflight", "baseline", "setup", "bench", "cleanup", "give back"]),
        ({"gate": 1}, 1, ["preflight", "baseline", "setup", "bench", "report", "gate", "cleanup", "give back"]),
    ],
)
def test_a_failed_step_ends_it_and_it_is_tidied_up(steps, answers, code, seen):
    assert steps(answers)[:2] == (code, seen)


STEPS = """
import os, sys, time
step = sys.argv[1]
with open(os.environ["SEEN"], "a") as seen:
    seen.write(f"{step} {'token' if 'GITHUB_TOKEN' in os.environ else ''}\\n")
if step == "preflight":
    with open(os.environ["GITHUB_OUTPUT"], "a") as told:
        told.write(f"work={os.environ['WORK']}\\n")
if step == os.environ.get("SLOW"):
    print("slow", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(0)
if step == os.environ.get("DIES"):
    os.kill(os.getpid(), 9)
sys.exit(1 if step == "gate" else 0)
"""


@pytest.fixture
def real(tmp_path):
    """The script with stand-ins for its steps, as a process of its own; the steps that were run."""
    (tmp_path / "entrypoint" / "action").mkdir(parents=True)
    (tmp_path / "entrypoint" / "action" / "__main__.py").write_text(STEPS)
    shutil.copy(ROOT / "entrypoint" / "image_action.py", tmp_path / "entrypoint")
    (tmp_path / "work" / "documents").mkdir(parents=True)
    (tmp_path / "workspace").mkdir()
    files = {"SEEN": "seen", "GITHUB_OUTPUT": "told", "WORK": "work", "GITHUB_WORKSPACE": "workspace"}
    places = {name: str(tmp_path / file) for name, file in files.items()}

    def run(number=None, **more):
        process = subprocess.Popen(
            [sys.executable, "-I", tmp_path / "entrypoint" / "image_action.py"],
            env=given(tmp_path, "push", push(), **places, **more),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if number is not None:
            assert process.stdout.readline() == "slow\n"
            os.killpg(process.pid, number)
        process.communicate(timeout=30)
        return process.returncode, (tmp_path / "seen").read_text().splitlines()

    return run


def test_the_steps_run_as_processes_and_two_of_them_see_the_token(real):
    assert real() == (1, ["preflight ", "baseline token", "setup ", "bench ", "report token", "gate ", "cleanup "])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_cancelled_job_ends_with_the_step_that_runs_and_is_tidied_up(real, number):
    code, seen = real(number, SLOW="bench")
    assert (code, seen) == (130, ["preflight ", "baseline token", "setup ", "bench ", "cleanup "])


def test_a_step_that_is_killed_ends_it(real):
    assert real(DIES="bench") == (137, ["preflight ", "baseline token", "setup ", "bench ", "cleanup "])


def test_set_up_is_for_two_sides(steps):
    assert "setup" not in steps({}, INPUT_BASELINE="none")[1]


def test_the_documents_never_follow_a_link_in_the_workspace(tmp_path):
    (tmp_path / "documents").mkdir()
    first, second = (action.keep(tmp_path / "documents", tmp_path) for _ in range(2))
    assert first != second
    assert re.fullmatch(r"ci-bench-results-[0-9a-f]{8}", first)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_root_left_in_the_workspace_becomes_its_owners(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("root's")
    workspace = tmp_path / "workspace"
    (workspace / "new").mkdir(parents=True)
    (workspace / "new" / "file").write_text("x")
    (workspace / "link").symlink_to(outside)
    os.chown(workspace, 12345, 54321)
    action.give_back(workspace)
    owners = {path.name: path.lstat().st_uid for path in [*workspace.rglob("*"), outside]}
    assert owners == {"new": 12345, "file": 12345, "link": 12345, "outside": 0}


def test_the_last_output_of_a_name_counts(tmp_path):
    (tmp_path / "told").write_text("verdict=passed\nverdict=failed\nnothing\n")
    assert action.outputs(tmp_path / "told") == {"verdict": "failed"}
    assert action.outputs(tmp_path / "none") == {}
    assert json.dumps(action.outputs(Path(os.devnull))) == "{}"
