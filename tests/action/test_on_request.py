"""The example for runs on request, from the comment to the verdict: its own expressions, the action's steps, the fake GitHub."""

import os
import re

import pytest
import yaml
from fake_github import TOKEN
from fake_github_events import BASE, HEAD, environment, issue_comment
from fake_github_state import WORKFLOW
from gpu_runner import GIGABYTE, ROOT, calls

import hosted
import inputs
from ci_bench.command_line.flags import make_parser
from ci_bench.commands.dispatch import COMMANDS
from ci_bench.github.http import HttpClock

JOBS = yaml.safe_load((ROOT / "examples" / "workflows" / "on-request.yml").read_text())["jobs"]
REPORT = yaml.safe_load((ROOT / "report" / "action.yml").read_text())["inputs"]
OPENED, PUSHED, SAID = "2030-01-01T00:00:00Z", "2030-01-01T12:00:00Z", "2030-01-01T12:05:00Z"
OUTPUT = re.compile(r"(?m)^(\w+)<<(.*)\n((?:.*\n)*?)\2$")


@pytest.fixture
def starts(expressions):
    """Return whether a job of the example starts in these contexts."""

    def evaluate(job, *, cancelled=False, **contexts):
        condition = re.sub(r"^\$\{\{(.*)\}\}$", r"\1", JOBS[job]["if"])
        answer = expressions.evaluate(
            {"if": f"${{{{ !!({condition}) }}}}"}, contexts, {"cancelled": cancelled}
        )
        return answer["if"] == "true"

    return evaluate


@pytest.mark.parametrize(
    ("body", "pull", "begins"),
    [
        ("/ci-bench run", {"url": "x"}, True),
        ("/ci-bench run s/a", {"url": "x"}, True),
        ("/ci-bench run", None, False),
        ("please /ci-bench run", {"url": "x"}, False),
        ("${{ github.token }}", {"url": "x"}, False),
    ],
)
def test_other_comments_start_no_job(starts, body, pull, begins):
    event = {
        "issue": {"number": "7", **({"pull_request": pull} if pull else {})},
        "comment": {"body": body},
    }
    assert starts("answer", github={"event": event}) is begins


@pytest.mark.parametrize("allowed", ["", "false", "True!", "1"])
def test_nothing_but_true_starts_the_measuring(starts, allowed):
    needs = {"answer": {"outputs": {"allowed": allowed}}}
    assert not starts("measure", needs=needs)
    assert not starts("verdict", needs=needs)


def test_the_verdict_waits_for_the_answer_and_survives_the_measuring(starts):
    needs = {"answer": {"outputs": {"allowed": "true"}}}
    assert starts("measure", needs=needs)
    assert starts("verdict", needs=needs)
    assert not starts("verdict", cancelled=True, needs=needs)


@pytest.fixture
def hosted_job(expressions, fake, tmp_path, monkeypatch):
    """Run the only step of a hosted job as report/action.yml does; its exit code and its outputs."""
    monkeypatch.setattr("ci_bench.github.client.HttpClock", lambda: HttpClock(sleep=lambda _: None))

    def run(job, event, needs):
        (step,) = JOBS[job]["steps"]
        given = expressions.evaluate(step["with"], {"needs": needs}, {})
        texts = {
            f"INPUT_{name.upper()}": given.get(name, REPORT[name]["default"])
            for name in hosted.FIELDS
        }
        argv = hosted.arguments(inputs.read(texts, hosted.FIELDS), str(tmp_path / "documents"))
        output = tmp_path / f"outputs of {job}"
        environ = environment(
            tmp_path,
            "issue_comment",
            event,
            GITHUB_OUTPUT=str(output),
            GITHUB_API_URL=fake.url,
            GITHUB_TOKEN=TOKEN,
        )
        flags = make_parser().parse_args(argv)
        command = COMMANDS[flags.command]
        code = command.act(command.kind.of(flags, {**os.environ, **environ}, tmp_path))
        return code, {name: value[:-1] for name, _, value in OUTPUT.findall(output.read_text())}

    return run


@pytest.mark.parametrize(("size", "verdict", "icon"), [(1, "passed", "✅"), (2, "failed", "❌")])
def test_a_comment_becomes_a_verdict(  # noqa: PLR0917 - by name
    fake, runner, hosted_job, measured, notes, expressions, *, size, verdict, icon
):
    state = fake.state
    state.roles = {"wil": "write"}
    state.add_pull(7, HEAD, fork=True, created_at=OPENED, mergeable=True)
    state.add_run(HEAD, event="pull_request", head_branch="feature", fork=True, created_at=PUSHED)
    for ref in ("main", HEAD):
        state.files[ref, WORKFLOW] = b"on: pull_request"
    event = issue_comment(
        state.add_comment(7, "/ci-bench run s/a", login="wil", created_at=SAID, updated_at=SAID)
    )

    code, outputs = hosted_job("answer", event, {})
    assert (code, outputs["allowed"]) == (0, "true")
    needs = {"answer": {"outputs": {name: outputs[name] for name in JOBS["answer"]["outputs"]}}}

    checkout, measuring = JOBS["measure"]["steps"]
    assert expressions.evaluate({"ref": checkout["with"]["ref"]}, {"needs": needs}, {}) == {
        "ref": HEAD
    }
    measured(head=size * GIGABYTE)
    given = expressions.evaluate(measuring["with"], {"needs": needs}, {})
    action = ROOT / "action.yml"
    job = runner("issue_comment", event, GITHUB_BASE_REF="").run(action, **given)
    assert (job.steps["bench"]["outcome"], job.outputs["verdict"]) == ("success", verdict), job.log
    (gate,) = (one["command"] for one in calls(notes, "run") if one["command"][0] == "gate")
    assert [gate[gate.index(flag) + 1] for flag in ("--base", "--filter")] == [BASE, "s/a"]
    assert len(state.texts_of(7)) == 2, "the measuring job comments nothing"

    assert hosted_job("verdict", event, needs)[1]["verdict"] == verdict
    _, answer, report = state.texts_of(7)
    assert "### Measuring on request: 1 case" in answer
    assert icon in report
    assert (state.checks, state.statuses) == ({}, [])


def test_a_run_on_request_is_not_native(runner, fake):
    comment = fake.state.add_comment(7, "/ci-bench run", login="wil")
    job = runner("issue_comment", issue_comment(comment)).run(
        ROOT / "action.yml", mode="native", head=HEAD
    )
    assert job.steps["preflight"]["outcome"] == "failure"
    assert "a run on request has to be 'container'" in job.log
    assert fake.seen == []
