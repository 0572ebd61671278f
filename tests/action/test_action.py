"""From an event to what stands on the pull request: the actions' own steps with the real bash, and GitHub's own evaluator.

Measuring is played by a fake docker, which leaves documents; everything that judges and tells is
the real `ci-bench`.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from composite import Runner
from fake_github import READ_ONLY, TOKEN
from fake_github_events import BASE, HEAD, RUN, environment, push, workflow_run
from gpu_runner import CONFIG, GIGABYTE, ROOT, UPLOAD, calls, document

ACTION, REPORT = ROOT / "action.yml", ROOT / "report" / "action.yml"
PIP = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
"""Where packages come from on this machine."""


@pytest.fixture(scope="session")
def hosted_folder(tmp_path_factory):
    """RUNNER_TEMP of the hosted runner: what report/action.yml installs is installed once."""
    return tmp_path_factory.mktemp("hosted")


@pytest.fixture
def hosted(expressions, fake, hosted_folder, tmp_path):
    def make(name, event, *, token=TOKEN, **more):
        shutil.rmtree(hosted_folder / "ci-bench-documents", ignore_errors=True)
        standard = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "GITHUB_WORKSPACE": str(tmp_path),
            "GITHUB_API_URL": fake.url,
        }
        environ = environment(
            tmp_path,
            name,
            event,
            **{**standard, "THE_TOKEN": token, "HOME": str(tmp_path), **PIP, **more},
        )
        return Runner(expressions, hosted_folder, environ)

    return make


def test_a_regression_fails_the_gate_and_the_next_push_brings_the_same_comment_up_to_date(  # noqa: PLR0917 - by name
    fake, runner, measured, plan, notes, tmp_path
):
    plan(verbose=True)
    measured(head=2 * GIGABYTE)
    first = runner().run(ACTION)
    assert {name: one["outcome"] for name, one in first.steps.items()} == {
        **dict.fromkeys(
            ("preflight", "baseline", "setup", "bench", "report", "upload", "cleanup"), "success"
        ),
        "gate": "failure",
    }
    assert (first.outputs["verdict"], first.outputs["exit_code"], first.outputs["regressed"]) == (
        "failed",
        "1",
        "1",
    )
    (comment,) = fake.state.comments_of(7)
    assert "❌ Failed" in comment["body"]
    assert first.outputs["comment_url"] == comment["html_url"]
    assert first.outputs["artifact_url"].startswith("https://github.example/artifacts/")
    (check,) = fake.state.checks.values()
    assert (check["conclusion"], check["head_sha"]) == ("failure", HEAD)
    assert first.outputs["check_url"] == check["html_url"]
    assert "s/a" in first.summary

    measured()
    second = runner(GITHUB_RUN_ID=str(RUN + 1)).run(ACTION)
    assert not second.failed
    assert (
        second.outputs["verdict"],
        second.outputs["exit_code"],
        second.outputs["unchanged"],
    ) == ("passed", "0", "1")
    (comment_now,) = fake.state.comments_of(7)
    assert comment_now["id"] == comment["id"]
    assert "✅" in comment_now["body"]

    seen = calls(notes)
    assert "DEBUG" in first.log, "all that is said at the finest level was looked at"
    files = "".join(
        path.read_text(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.parent != notes
    )
    assert TOKEN not in first.log + second.log + first.summary + files
    for one in seen:
        of_code = one["kind"] == "run" and one["command"][0] in {"setup", "gate"}
        assert TOKEN not in json.dumps(one["argv"])
        assert not of_code or TOKEN not in json.dumps(one["environ"])
    with_token = {name for name, environ in first.environments.items() if TOKEN in environ.values()}
    assert with_token == {"baseline", "report"}


@pytest.mark.slow
def test_a_forks_event_posts_through_the_trusted_half_only(
    fake, runner, hosted, hosted_folder, measured
):
    measured(head=2 * GIGABYTE)
    bench = runner(fork=True).run(ACTION)
    assert (bench.outputs["verdict"], bench.outputs["comment_url"]) == ("failed", "")
    assert (fake.state.comments, fake.state.checks, fake.state.statuses) == ({}, {}, [])
    assert "::notice title=ci-bench comment::" in bench.logs["report"], (
        "as it should be: its token can only read"
    )
    assert "s/a" in bench.summary

    installed = hosted("schedule", {}).run(REPORT, command="install")
    assert not installed.failed, installed.log
    assert "ci-bench 0.1.0" in installed.log

    fake.state.runs[RUN] |= {"status": "in_progress", "conclusion": None}
    waiting = hosted("workflow_run", workflow_run()).run(REPORT, command="announce")
    assert not waiting.failed, waiting.log
    (site,) = hosted_folder.glob("ci-bench-report/lib/python*/site-packages")
    installed = {path.name for path in site.iterdir()}
    assert "requests" in installed
    assert not {"torch", "transformers", "datasets", "ci_bench"} & installed
    (check,) = fake.state.checks.values()
    assert (check["head_sha"], check["status"]) == (HEAD, "in_progress")

    fake.state.runs[RUN] |= {"status": "completed", "conclusion": "failure"}
    told = hosted("workflow_run", workflow_run(conclusion="failure")).run(REPORT, gate="false")
    assert not told.failed, "the check says it; nobody waits for this workflow"
    assert (told.outputs["verdict"], told.outputs["exit_code"]) == ("failed", "1")
    (text,) = fake.state.texts_of(7)
    assert "❌ Failed" in text
    assert told.outputs["comment_url"] == fake.state.comments_of(7)[0]["html_url"]
    (check,) = fake.state.checks.values()
    assert (check["status"], check["conclusion"]) == ("completed", "failure")

    assert TOKEN not in waiting.log + told.log + told.summary


def test_a_run_on_main_leaves_the_baseline_that_the_next_pull_request_is_compared_with(
    fake, runner, notes, measured
):
    fake.state.parents[HEAD] = BASE
    none = runner().run(ACTION, baseline="artifact")
    assert none.outputs["baseline"] == "none: no_artifact"
    assert (none.outputs["verdict"], none.steps["bench"]["outcome"]) == ("failed", "success"), (
        "the policy decides what that means"
    )

    shutil.rmtree(notes / "results", ignore_errors=True)
    document(notes / "results" / "results.json", GIGABYTE, run="earlier", commit=BASE)
    fake.state.add_run(BASE, id=RUN + 5)
    main = runner("push", push() | {"after": BASE}, GITHUB_RUN_ID=str(RUN + 5), GITHUB_SHA=BASE)
    main.uses = {UPLOAD: lambda given: keep(fake, given)}
    kept = main.run(ACTION, baseline="none", artifact="ci-bench-baseline")
    assert not kept.failed, kept.log
    assert kept.outputs["baseline"] == "none"

    measured(head=2 * GIGABYTE)
    job = runner().run(ACTION, baseline="artifact")
    assert job.outputs["baseline"] == "artifact"
    assert (job.outputs["verdict"], job.outputs["regressed"]) == ("failed", "1")
    assert "setup" not in {one["command"][0] for one in calls(notes, "run")}, (
        "nothing is prepared for a head alone"
    )
    measuring = [
        one["command"] for one in calls(notes, "run") if one["command"][0] in {"gate", "run"}
    ]
    assert [command[0] for command in measuring] == ["run", "run", "run"]


def keep(fake, given):
    folder = Path(given["path"])
    members = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    fake.state.add_artifact(fake.state.runs[RUN + 5], members, name=given["name"])
    return {}


def test_the_first_half_of_a_pair_writes_nothing_and_measures_by_the_base_branch(
    fake, runner, measured, notes
):
    """A token that can only read is enough; the pull request's own configuration would decide what is measured, and by which rule."""
    measured()
    fake.state.files["main", "ci-bench.yml"] = (
        f"{CONFIG}policy: {{thresholds: {{step_time: 3%}}}}\n".encode()
    )
    job = runner(token=READ_ONLY).run(ACTION, comment="never", artifact="")
    assert (job.failed, job.outputs["verdict"], job.steps["upload"]["outcome"]) == (
        False,
        "passed",
        "skipped",
    )
    assert (fake.state.comments, fake.state.checks, fake.state.statuses) == ({}, {}, [])
    (measuring,) = (one for one in calls(notes, "run") if one["command"][0] == "gate")
    assert (
        measuring["command"][measuring["command"].index("--config") + 1] == "/config/ci-bench.yml"
    )
    (mount,) = (part for part in measuring["argv"] if "target=/config" in part)
    assert mount.endswith(",readonly")
    assert "this branch's own is different, and not used" in job.summary


@pytest.mark.parametrize(
    ("server", "artifact", "uploads"),
    [
        ("https://github.com", "ci-bench", True),
        ("https://octo.ghe.com", "ci-bench", True),
        ("https://github.com", "", False),
        ("https://github.example", "ci-bench", False),
        ("https://github.com.example", "ci-bench", False),
        ("https://ghe.com.example", "ci-bench", False),
    ],
)
def test_results_are_uploaded_where_github_takes_them(expressions, server, artifact, uploads):
    """GitHub Enterprise Server has no artifacts of the present kind: https://github.com/actions/upload-artifact#v4---whats-new."""
    (upload,) = (
        step
        for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]
        if step["id"] == "upload"
    )
    contexts = {
        "github": {"server_url": server},
        "inputs": {"artifact": artifact},
        "steps": {"bench": {"outcome": "failure"}},
    }
    assert expressions.evaluate({"if": upload["if"]}, contexts, {"success": False}) == {
        "if": str(uploads).lower()
    }


def test_results_that_are_missing_are_told_and_fail(fake, runner, plan):
    plan(codes={"gate": 3})
    job = runner().run(ACTION)
    assert (job.outputs["verdict"], job.outputs["exit_code"]) == ("failed", "3")
    assert "No verdict" in fake.state.texts_of(7)[0]


def test_a_runner_that_cannot_measure_ends_at_once_and_cleans_up(fake, runner, plan, notes):
    plan(gpu_ways=[])
    job = runner().run(ACTION)
    assert {name for name, one in job.steps.items() if one["outcome"] == "success"} == {"cleanup"}
    assert {name for name, one in job.steps.items() if one["outcome"] == "failure"} == {"preflight"}
    assert fake.seen == []


def test_a_cancelled_job_tells_nobody_keeps_what_it_measured_and_cleans_up(
    fake, runner, plan, notes, measured
):
    measured()
    plan(hangs="gate")
    job = runner()
    kept = []
    job.uses = {UPLOAD: lambda given: kept.append(Path(given["path"]))}
    job.cancel_when = notes / "hanging"
    done = job.run(ACTION)
    assert done.steps["bench"]["outcome"] == "failure"
    assert {
        name for name in ("report", "upload", "gate") if done.steps[name]["outcome"] == "skipped"
    } == {"report", "gate"}
    assert len(kept) == 1
    assert done.steps["cleanup"]["outcome"] == "success"
    assert len(calls(notes, "stop")) == 1
    assert fake.state.comments == {}
