"""What runs by itself: CI both halves of the tests, every night all of them, with a token that can only read."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NIGHTLY = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()


def complaints(text):
    """Why a night would test too little, could write something, or would hide a failure."""
    workflow = yaml.safe_load(text)
    jobs = workflow["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    if not {"schedule", "workflow_dispatch"} <= {*workflow[True]}:
        yield "it runs on a schedule, and by hand"
    if not any(step.get("run", "").startswith("make test-all") for step in steps):
        yield "it runs all tests"
    if not any(step.get("run") == "make test-oldest" for step in steps):
        yield "it runs tests with the oldest versions"
    if (
        any(job["permissions"] != {"contents": "read"} for job in jobs)
        or "secrets." in text
        or "github.token" in text
    ):
        yield "it only reads"
    if any("continue-on-error" in part for part in [*jobs, *steps]) or any(
        "|| " in step.get("run", "") for step in steps
    ):
        yield "a failure is a failure"


def test_every_night_all_tests_run_and_a_failure_is_seen():
    assert [*complaints(NIGHTLY)] == []


@pytest.mark.parametrize(
    ("what", "instead", "complaint"),
    [
        ("  schedule:\n    - cron:", "  push:\n    paths:\n      -", "schedule"),
        ("make test-all", "make test", "all tests"),
        ("make test-oldest", "make test", "oldest versions"),
        ("      contents: read", "      contents: read\n      issues: write", "only reads"),
        ("contents: read #", "contents: write #", "only reads"),
        ('durations.xml"', 'durations.xml" || true', "a failure"),
        ("timeout-minutes:", "continue-on-error: true\n    timeout-minutes:", "a failure"),
    ],
)
def test_a_night_that_is_not_so_is_seen(what, instead, complaint):
    assert what in NIGHTLY
    found = [*complaints(NIGHTLY.replace(what, instead, 1))]
    assert len(found) == 1
    assert complaint in found[0]


def test_ci_lints_builds_the_docs_and_runs_both_halves_of_the_tests():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == [
        "make lint",
        "make docs",
        "make test",
        "make test-rest",
    ]
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["test"][
        "steps"
    ]
    assert ".ci/run" in [step.get("run") for step in steps]


@pytest.mark.parametrize(
    ("target", "marks"),
    [
        ("test", '-m "not thorough"'),
        ("test-rest", '-m "thorough and not nightly"'),
        ("test-all", ""),
    ],
)
def test_the_two_halves_and_the_night_are_all_tests(target, marks):
    command = ["make", "--dry-run", target]
    environ = {
        "PATH": os.environ["PATH"]
    }  # what a `make` around this test was given is none of its business
    printed = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    *_, command = printed.stdout.splitlines()
    _, _, arguments = command.partition("--max-worker-restart 0")
    assert arguments.strip() == marks
