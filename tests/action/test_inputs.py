"""Inputs: any text may come; what is let through cannot become another argument, and all complaints come together."""

import pytest
from composite import ROOT
from gpu_runner import defaults
from hypothesis import given, settings
from hypothesis import strategies as st
from yaml import safe_load

import hosted
import inputs
from faults import Fault

REFUSED = {
    "gpus": [
        "",
        "All",
        "0",
        "-1",
        "100",
        "device=",
        "device=0,",
        "device=0;1",
        "all --privileged",
        'device=0"',
        "device=0 --network=host",
        "device=\n0",
    ],
    "image": ["", "-v/:/host", "Image", "x y", "x\n--privileged", "x" * 301],
    "base": ["-x", "--upload-pack=x", "a b", "a\nb", "a" * 201, "$(id)"],
    "config_path": ["", "/etc/passwd", "-c", "a b", "~/x"],
    "filter": ["x" * 301, "a\x00b", "\x1b[2J"],
    "head": ["main", "1234567", "0" * 39, "A" * 40, f"{'0' * 40}\n--x"],
    "setup_network": ["", "True", "yes", "1", "true "[:-1] + "x"],
    "memory": ["64", "64G", "0g", "-1g", "1g --privileged"],
    "timeout_minutes": ["0", "", "1.5", "8000"],
    "noise": ["relative", "/does/not/exist", "/", "/etc", "/var/run"],
    "mounts": [
        "/",
        "/proc",
        "/var/run",
        "/home",
        "relative",
        "/srv,target=/x",
        "/srv:/x",
        "/srv/../etc",
        "/srv\n/etc",
    ],
    "pass_env": [
        "GITHUB_TOKEN",
        "MY_SECRET",
        "AWS_SECRET_ACCESS_KEY",
        "NPM_AUTH_TOKEN",
        "A=B",
        "A-B",
        "PATH",
        "LD_PRELOAD",
        "DOCKER_HOST",
        "PYTHONPATH",
        "-e",
    ],
    "artifact": ["a/b", "a b", "-x", 'a"b', "a" * 101, "a\nb"],
    "baseline": ["", "pair", "--baseline"],
    "baseline_workflow": ["ci.yml", ".github/workflows/../x.yml", "/x"],
    "comment": ["", "sometimes"],
    "comment_author": ["", "a b", "<img>", "x[bot"],
    "key": ["", "-->", "a b", "x" * 65],
    "mode": ["", "host"],
    "fleet": [
        "lokal",
        "--fleet",
        "slurm:a b",
        "ray;x",
        "local:",
        "slurm:a\nb",
        "ray:$(id)",
        "ray:" + "x" * 301,
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts]
)
def test_what_cannot_be_is_refused_by_name(name, text):
    with pytest.raises(Fault, match=f"an input of this action cannot be: {name} is ") as caught:
        defaults(**{f"INPUT_{name.upper()}": text})
    assert caught.value.code == 2


ACCEPTED = {
    "fleet": [
        "",
        "local",
        "local:cuda:0,cuda:1",
        "ray",
        "ray:10.0.0.1:6379",
        "ray:ray://head:10001",
        "slurm:partition=gpu,constraint=a&b",
    ],
    "gpus": [
        "none",
        "all",
        "1",
        "8",
        "device=0,1",
        "device=GPU-8a8f2b52-3a0d-4f0e-9a6b-0c1f6f3b2d11",
        "device=0:1",
    ],
    "image": ["build", "ghcr.io/ci-bench/ci-bench@sha256:" + "0" * 64, "localhost:5000/x/y:tag"],
    "base": ["", "main", "v1.0", "HEAD~3", "feature/x", "0" * 40],
    "mounts": ["", "/usr/share"],
    "pass_env": ["", "SEED HF_HOME", "A\nB", "A,B"],
    "artifact": ["", "ci-bench", "ci-bench-h200.2"],
    "comment_author": ["github-actions[bot]", "my-app[bot]", "someone"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in ACCEPTED.items() for text in texts]
)
def test_what_people_write_is_taken(name, text):
    assert name in defaults(**{f"INPUT_{name.upper()}": text})


def test_all_complaints_come_together():
    with pytest.raises(Fault) as caught:
        defaults(INPUT_GPUS="x", INPUT_MODE="y", INPUT_KEY="-->")
    assert [
        name
        for name in ("gpus is 'x'", "mode is 'y'", "key is '-->'")
        if name not in str(caught.value)
    ] == []


def test_a_requested_run_keeps_its_code_in_containers():
    """It belongs to the default branch, whose caches what runs as the runner's user could write."""
    native = defaults(INPUT_MODE="native", INPUT_FLEET="local", INPUT_IMAGE="none")
    caged = {**native, "image": f"x@sha256:{'0' * 64}"}
    with pytest.raises(Fault, match="a run on request has to be 'container'"):
        inputs.check_event(native, "issue_comment")
    inputs.check_event(native, "pull_request")
    inputs.check_event(defaults(), "issue_comment")
    inputs.check_event(caged, "issue_comment")


def test_a_link_to_a_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(Fault, match="no link"):
        defaults(INPUT_MOUNTS=str(tmp_path / "link"))


@given(st.sampled_from(sorted(set(inputs.FIELDS) - {"filter"})), st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_input_that_is_taken_looks_like_a_flag_or_holds_a_line(name, text):
    """`filter` is free text, which always follows its flag."""
    try:
        value = inputs.FIELDS[name](text.strip())
    except inputs.Wrong:
        return
    for one in value if isinstance(value, list) else [str(value)]:
        assert not one.startswith("-")
        assert "\n" not in one


@pytest.mark.parametrize(
    ("path", "fields"), [("action.yml", inputs.FIELDS), ("report/action.yml", hosted.FIELDS)]
)
def test_every_input_is_checked_and_only_the_token_is_not(path, fields):
    declared = safe_load((ROOT / path).read_text())
    assert {*declared["inputs"]} == {*fields, "token"}
    (step,) = (
        step for step in declared["runs"]["steps"] if "INPUT_CONFIG_PATH" in step.get("env", {})
    )
    passed = {name: value for name, value in step["env"].items() if name.startswith("INPUT_")}
    assert passed == {f"INPUT_{name.upper()}": f"${{{{ inputs.{name} }}}}" for name in fields}
