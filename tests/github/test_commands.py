"""publish, announce and fetch-baseline, from a workflow's environment to what stands on the pull request, the job and the exit code."""

import json
import logging
import re
from pathlib import Path

import cmarkgfm
import pytest
from bound_results import CONFIG, GIGABYTE, bound, leave, written
from fake_github import LOST, READ_ONLY, RESET, TOKEN, Fault
from fake_github_events import BASE, HEAD, RUN, pull_request, push, workflow_run
from fake_github_state import WORKFLOW, sha_of
from judge_builders import judged, peak, result, results

from ci_bench.command_line.settings import Publishing
from ci_bench.commands.baseline_files import absence
from ci_bench.commands.trusted import publishing
from ci_bench.commands.trusted.judging import Judged, JudgedMachine
from ci_bench.commands.trusted.publishing import announce, fetch_baseline, fetch_config, publish
from ci_bench.errors import (
    BadConfig,
    BadDocument,
    BadInput,
    ExitCode,
    GitHubFailed,
    GitHubUnreachable,
    NotOnGitHub,
)
from ci_bench.records import documents
from ci_bench.records.results import Status

LOOSE = f"{CONFIG}policy:\n  severities: {{regressed: note, inconclusive: note}}\n"
FORKS = workflow_run()


def document(tmp_path, size, *, id="r", case="s/a", **more):  # noqa: A002 - the field's name
    """A results document with one case of a known peak of memory, which is compared exactly."""
    path = tmp_path / "made.json"
    documents.write(bound(result(peak(size, size), id=case), id=id, **more), path)
    return path.read_text()


def both(tmp_path, base=GIGABYTE, head=GIGABYTE, *, of=None, **members):
    """Both sides' documents; `of` are fields of what they are of."""
    sides = {"results.json": document(tmp_path, head, **(of or {}))}
    return {
        **sides,
        "base/results.json": document(tmp_path, base, **{**(of or {}), "commit": BASE}),
        **members,
    }


def outputs(tmp_path):
    text = (tmp_path / "output").read_text()
    return dict(re.findall(r"(?m)^(\w+)<<(?:.*)\n(.*)\n", text))


def comment(fake):
    (only,) = fake.state.texts_of(7)
    return only


def check(fake):
    (only,) = fake.state.checks.values()
    return only


# Where GitHub takes no comment

CLOSED = {
    "a locked conversation": "Unable to create comment because issue is locked.",
    "an archived repository": "Repository was archived so is read-only.",
    "an interaction limit": "Interactions on this repository have been restricted to prior contributors only.",
    "an interaction limit in other words": "An owner of this repository has limited the ability to comment to collaborators.",
}


@pytest.fixture
def report(fake, job, flags, tmp_path):
    """Report a run of a fork whose head takes `size` GiB, where GitHub refuses requests of these parts in these words."""

    def made(size=1, *, refused=(), words="", method="POST", attempt=1):
        job("workflow_run", workflow_run(attempt=attempt), GITHUB_ACTIONS="true")
        fake.state.add_pull(7, HEAD, fork=True)
        fake.state.artifacts.clear()
        leave(fake, both(tmp_path, head=size * GIGABYTE, of={"attempt": attempt}))
        for part in refused:
            fake.plan(method, part, Fault(status=403, message=words))
        return publish(flags())

    return made


def summary(tmp_path):
    return (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize(("size", "code", "conclusion"), [(1, 0, "success"), (2, 1, "failure")])
@pytest.mark.parametrize("words", CLOSED.values(), ids=CLOSED)
def test_a_closed_place_changes_no_verdict(
    report, fake, tmp_path, *, words, size, code, conclusion
):
    assert report(size, refused=["comments"], words=words) == code
    assert check(fake)["conclusion"] == conclusion
    assert f"_no comment: GitHub takes nothing there: {words} (POST " in summary(tmp_path)
    assert "permission" not in summary(tmp_path)


def test_a_closed_place_is_a_notice(report, capsys):
    report(refused=["comments"], words=CLOSED["a locked conversation"])
    assert (
        "::notice title=ci-bench comment::GitHub takes nothing there: Unable to"
        in capsys.readouterr().out
    )


def test_an_old_comment_of_a_locked_conversation_stays(report, fake):
    report(2)
    assert (
        report(
            refused=["issues/comments"],
            words=CLOSED["a locked conversation"],
            method="PATCH",
            attempt=2,
        )
        == ExitCode.OK
    )
    assert "❌" in comment(fake)


def test_an_archived_repository_takes_no_check_either(report, fake, tmp_path):
    assert (
        report(refused=["check-runs", "comments"], words=CLOSED["an archived repository"])
        == ExitCode.OK
    )
    assert (fake.state.checks, fake.state.statuses) == ({}, [])
    assert "_no check: GitHub takes nothing there" in summary(tmp_path)


def test_a_missing_permission_is_still_an_error(report):
    assert (
        report(refused=["comments"], words="Resource not accessible by integration")
        == ExitCode.GITHUB
    )


# From a fork's pull request to its comment


def test_a_regression_of_a_fork_is_told_on_its_pull_request(fake, job, flags, tmp_path, capsys):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path, head=2 * GIGABYTE))
    assert publish(flags()) == ExitCode.POLICY_NOT_MET
    assert comment(fake).startswith(
        f"<!-- ci-bench:v1 key=default run={RUN} attempt=1 head={HEAD} -->\n\n### ❌ Failed:"
    )
    assert (check(fake)["conclusion"], check(fake)["head_sha"]) == ("failure", HEAD)
    assert check(fake)["annotations"][0]["annotation_level"] == "failure"
    assert "Failed:" in capsys.readouterr().out
    told = outputs(tmp_path)
    assert (told["verdict"], told["exit_code"], told["regressed"], told["unchanged"]) == (
        "failed",
        "1",
        "1",
        "0",
    )
    assert told["comment_url"] == fake.state.comments_of(7)[0]["html_url"]
    assert "s/a" in (tmp_path / "summary.md").read_text()
    assert {"comparison.json", "report.md", "comment.md"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_a_second_push_updates_the_same_comment(fake, job, flags, tmp_path):
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path, head=2 * GIGABYTE))
    job("workflow_run", FORKS)
    publish(flags())
    fake.state.artifacts.clear()
    leave(fake, both(tmp_path, of={"attempt": 2}))
    job("workflow_run", workflow_run(attempt=2))
    assert publish(flags()) == ExitCode.OK
    assert "✅" in comment(fake)
    assert [one["conclusion"] for one in fake.state.checks.values()] == ["failure", "success"]


def test_the_verdict_in_an_artifact_is_not_believed(fake, job, flags, tmp_path):
    """A comparison that says it passed lies beside results that do not."""
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    forged = '{"kind": "comparison", "judgement": {"verdict": "passed", "exit_code": 0}}'
    leave(
        fake,
        both(
            tmp_path, head=2 * GIGABYTE, **{"comparison.json": forged, "report.md": "all is well"}
        ),
    )
    assert publish(flags()) == ExitCode.POLICY_NOT_MET
    assert "all is well" not in comment(fake)


def test_the_number_in_an_artifact_is_not_believed(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.add_pull(1, sha_of("a victim"))
    leave(fake, both(tmp_path, **{"pr_number.txt": "1", "event.json": '{"number": 1}'}))
    publish(flags())
    assert fake.state.texts_of(1) == []
    assert comment(fake)


def test_the_policy_is_the_base_branchs(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.files[HEAD, "ci-bench.yml"] = LOOSE.encode()
    leave(fake, both(tmp_path, head=2 * GIGABYTE))
    assert publish(flags()) == ExitCode.POLICY_NOT_MET
    assert "this branch's own is different, and not used" in comment(fake)


def test_the_base_branchs_looser_policy_counts(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.files["main", "ci-bench.yml"] = LOOSE.encode()
    leave(fake, both(tmp_path, head=2 * GIGABYTE))
    assert publish(flags()) == ExitCode.OK


@pytest.fixture
def first(fake, job, flags, tmp_path):
    """Report the first pull request: only head has a configuration."""

    def made(config, *, size=1, event="workflow_run", left=True):
        job(event, FORKS if event == "workflow_run" else pull_request())
        fake.state.add_pull(7, HEAD, fork=event == "workflow_run")
        del fake.state.files["main", "ci-bench.yml"]
        fake.state.files[HEAD, "ci-bench.yml"] = config.encode()
        if left:
            leave(fake, both(tmp_path, head=size * GIGABYTE))
        return publish(flags())

    return made


@pytest.mark.parametrize("event", ["workflow_run", "pull_request"])
def test_the_first_configuration_waits(first, fake, event):
    """Head's own would let head say what passes, and the embedded one measures what nobody asked for."""
    assert first(LOOSE, size=2, event=event) == ExitCode.OK
    assert check(fake)["conclusion"] == "neutral"
    assert "### ❔ Nothing to compare with yet: main has no ci-bench.yml." in comment(fake)
    assert "its own is used: it can fail this check and never pass it" in comment(fake)
    assert comment(fake).count("### ") == 1
    assert "built-in" not in comment(fake)


@pytest.mark.parametrize("change", ["baseline: none\n", "base: topic\n", ""])
def test_no_configuration_of_its_own_passes_head(first, fake, change):
    assert first(f"{change}{CONFIG}") == ExitCode.OK
    assert check(fake)["conclusion"] == "neutral"
    assert "✅" not in comment(fake).partition("<details>")[0]


def test_its_own_configuration_fails_head(first, fake):
    assert first(CONFIG, size=2) == ExitCode.POLICY_NOT_MET
    assert check(fake)["conclusion"] == "failure"
    assert "Nothing to compare with yet" not in comment(fake)


def test_a_first_pull_request_that_was_not_measured_says_so(first, fake):
    assert first(CONFIG, left=False) == ExitCode.OK
    assert check(fake)["conclusion"] == "neutral"
    assert "Nothing to compare with yet" in comment(fake)
    assert "has left no artifact" in comment(fake)


def test_a_first_configuration_that_breaks_its_schema_fails(first, fake):
    assert first("schema_version: 1\nsuites: {}\n") == ExitCode.BAD_INPUT
    assert check(fake)["conclusion"] == "failure"


@pytest.mark.parametrize("base", ["ci-bench.yaml", ".github/ci-bench.yml", None])
def test_a_path_that_nobody_has_fails(fake, job, flags, tmp_path, base):
    job("pull_request", pull_request())
    fake.state.add_pull(7, HEAD)
    fake.state.files.clear()
    if base is not None:
        fake.state.files["main", base] = CONFIG.encode()
    leave(fake, both(tmp_path))
    assert publish(flags()) == ExitCode.BAD_INPUT
    assert check(fake)["conclusion"] == "failure"
    assert "ci-bench.yml: neither main nor this commit has such a file" in comment(fake)
    assert (f"did you mean '{base}'?" in comment(fake)) is (base is not None)
    with pytest.raises(BadConfig, match="neither main nor this commit"):
        fetch_config(flags())


def test_suites_of_plugins_that_are_not_here_hold_nothing_up(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    foreign = f"{CONFIG}  our_own_suite:\n    - anything: 1\n"
    fake.state.files.update(
        {("main", "ci-bench.yml"): foreign.encode(), (HEAD, "ci-bench.yml"): foreign.encode()}
    )
    leave(fake, both(tmp_path, of={"config": foreign}))
    assert publish(flags()) == ExitCode.OK
    assert "are planned only by head's tree" in comment(fake)


# Hostile and missing results


BROKEN = {
    "not JSON": (b'{"kind": "results"', ExitCode.BAD_INPUT, "not JSON"),
    "NaN": (
        b'{"kind": "results", "schema_version": NaN}',
        ExitCode.BAD_INPUT,
        "not a finite number",
    ),
    "deep": (b"[" * 100_000, ExitCode.BAD_INPUT, "neither a zip nor a JSON document"),
    "deep within an object": (
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        ExitCode.BAD_INPUT,
        "nested too deep",
    ),
    "a byte order mark": (b'\xef\xbb\xbf{"kind": "results"}', ExitCode.BAD_INPUT, "not JSON"),
    "another kind": (
        b'{"kind": "comparison"}',
        ExitCode.BAD_INPUT,
        "'comparison' is not 'results'",
    ),
    "a newer schema": (
        b'{"kind": "results", "schema_version": 2}',
        ExitCode.BAD_INPUT,
        "newer ci-bench",
    ),
    "a field twice": (
        b'{"kind": "results", "kind": "results"}',
        ExitCode.BAD_INPUT,
        "sound results document",
    ),
    "traversal": ({"../../evil.json": "{}"}, ExitCode.BAD_INPUT, "is not allowed"),
    "a bomb": ({"results.json": "0" * 20_000_000}, ExitCode.BAD_INPUT, "as bombs are"),
    "no results": ({"report.md": "# words"}, ExitCode.MEASURING_FAILED, "results.json is missing"),
}


@pytest.mark.parametrize(("members", "code", "words"), BROKEN.values(), ids=BROKEN)
def test_results_that_cannot_be_read_fail_the_check_and_say_why(  # noqa: PLR0917 - by name
    fake, job, flags, members, code, words
):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, members)
    assert publish(flags()) == code
    assert check(fake)["conclusion"] == "failure"
    assert "### ❌ No verdict" in comment(fake)
    assert words in comment(fake)


def test_a_run_without_an_artifact_fails_the_check(fake, job, flags, tmp_path):
    """The workflow may have been stopped before it could say anything: silence must not look like a pass."""
    job("workflow_run", workflow_run(conclusion="timed_out"))
    fake.state.add_pull(7, HEAD, fork=True)
    assert publish(flags()) == ExitCode.MEASURING_FAILED
    assert check(fake)["conclusion"] == "failure"
    assert "has left no artifact ci-bench, which is expected" in comment(fake)
    assert "The run that measured ended as timed_out" in comment(fake)


def test_no_base_side_is_no_pass(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, {"results.json": document(tmp_path, GIGABYTE)})
    assert publish(flags()) == ExitCode.POLICY_NOT_MET
    assert "the run has left no results of the base side" in comment(fake)


def test_a_base_side_of_another_run_is_no_pair(fake, job, flags, tmp_path):
    """Runs of two moments are judged less finely: a stranger must not choose that."""
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(
        fake,
        {
            "results.json": document(tmp_path, GIGABYTE),
            "base/results.json": document(tmp_path, GIGABYTE, id="other", commit=BASE),
        },
    )
    assert publish(flags()) == ExitCode.BAD_INPUT
    assert "belongs to another run than results.json" in comment(fake)


def test_a_judge_that_breaks_fails_the_check(fake, job, flags, tmp_path, monkeypatch):
    def breaks(*_, **__):
        raise ZeroDivisionError

    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path))
    monkeypatch.setattr("ci_bench.commands.trusted.judging.judge", breaks)
    assert publish(flags()) == ExitCode.MEASURING_FAILED
    assert "judging these results broke: ZeroDivisionError" in comment(fake)


HOSTILE = "##[set-output name=v]passed<img onerror=alert(1)>-->|`@org/team`::error::x\u202e #1 www.evil.example"


def in_a_name(text):
    """Nothing that is a case's id: the schema turns it down, and the complaint repeats it."""
    return text.replace("s/a", json.dumps(f"s/{HOSTILE}")[1:-1])


def in_a_reason(text):
    """Free text, which every document may hold."""
    return text.replace("it broke", json.dumps(HOSTILE)[1:-1]).replace(
        "the end", json.dumps(f"{HOSTILE}\n::error::{HOSTILE}")[1:-1]
    )


@pytest.mark.parametrize("hostile", [in_a_name, in_a_reason])
def test_hostile_text_reaches_no_page_and_no_log(fake, job, flags, tmp_path, capsys, hostile):  # noqa: PLR0917 - by name
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    path = tmp_path / "made.json"
    text = CONFIG.replace("[s/a]", "2")
    fake.state.files.update(
        {("main", "ci-bench.yml"): text.encode(), (HEAD, "ci-bench.yml"): text.encode()}
    )
    rows = (result(status=Status.FAILED), result(peak(1, 1), id="s/b"))
    documents.write(bound(*rows, config=text), path)
    head = path.read_text()
    assert hostile(head) != head
    leave(
        fake,
        {
            "results.json": hostile(head),
            "base/results.json": written(bound(*rows, config=text, commit=BASE), tmp_path),
        },
    )
    assert publish(flags()) != ExitCode.OK
    page = cmarkgfm.github_flavored_markdown_to_html(comment(fake))
    assert "set-output" in page
    assert str(tmp_path) not in page
    assert not re.search(r"<(img|script|a)\b", page)
    assert "@org" not in comment(fake)
    printed = capsys.readouterr()
    told = printed.out + printed.err + (tmp_path / "output").read_text()
    assert not re.search(r"(?m)^\s*::(?!warning |notice )|##\[|\u202e", told)
    assert outputs(tmp_path)["verdict"] == "failed"


def noisy(tmp_path, **more):
    """Results whose peaks differ so much from launch to launch that nothing can be said of them."""
    path = tmp_path / "made.json"
    documents.write(bound(result(peak(GIGABYTE, 2 * GIGABYTE), id="s/a"), id="r", **more), path)
    return path.read_text()


def undecided(tmp_path):
    return {"results.json": noisy(tmp_path), "base/results.json": noisy(tmp_path, commit=BASE)}


def test_what_is_not_decided_is_neutral_and_says_so(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, undecided(tmp_path))
    assert publish(flags()) == ExitCode.OK
    assert "### ❔ Not decided: 1 of 1 metric (a)" in comment(fake)
    assert check(fake)["conclusion"] == "neutral"
    assert check(fake)["output"]["title"].startswith("Not decided: ")
    told = outputs(tmp_path)
    assert (told["verdict"], told["exit_code"], told["inconclusive"]) == ("undecided", "0", "1")


@pytest.mark.parametrize(
    ("severity", "code", "conclusion"),
    [("fail", 1, "failure"), ("warn", 0, "neutral"), ("note", 0, "success")],
)
def test_the_policy_says_what_undecided_is(fake, job, flags, tmp_path, severity, code, conclusion):  # noqa: PLR0917 - by name
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.files["main", "ci-bench.yml"] = (
        f"{CONFIG}policy:\n  severities: {{undecided: {severity}}}\n".encode()
    )
    leave(fake, undecided(tmp_path))
    assert publish(flags()) == code
    assert check(fake)["conclusion"] == conclusion


# Several machines


def test_one_undecided_machine_is_no_pass_of_all(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path), name="ci-bench-a100")
    leave(fake, undecided(tmp_path), name="ci-bench-h200")
    assert publish(flags(artifact="ci-bench-*", machines=("h200", "a100"))) == ExitCode.OK
    assert "### ❔ Not decided on 1 of 2 machines: " in comment(fake)
    assert check(fake)["conclusion"] == "neutral"


def test_one_comment_for_all_machines_the_failed_first(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path), name="ci-bench-a100")
    leave(fake, both(tmp_path, head=2 * GIGABYTE), name="ci-bench-h200")
    assert (
        publish(flags(artifact="ci-bench-*", machines=("h200", "a100"))) == ExitCode.POLICY_NOT_MET
    )
    text = comment(fake)
    assert "Failed on 1 of 2 machines" in text
    assert text.index("ci-bench-h200") < text.index("ci-bench-a100")
    assert check(fake)["annotations"][0]["message"].partition(":")[0] == "ci-bench-h200"


def test_missing_machine_does_not_pass(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path), name="ci-bench-a100")
    assert (
        publish(flags(artifact="ci-bench-*", machines=("h200", "a100")))
        == ExitCode.MEASURING_FAILED
    )
    assert "has left no artifact ci-bench-h200, which is expected" in comment(fake)


def test_artifacts_of_machines_that_nobody_declared_are_refused_by_name(fake, job, flags, tmp_path):
    """Names of one's own would satisfy a count; and a flood of them is not downloaded."""
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    for number in range(17):
        leave(fake, both(tmp_path), name=f"ci-bench-{number}")
    assert publish(flags(artifact="ci-bench-*", machines=("0", "1"))) == ExitCode.BAD_INPUT
    assert "undeclared machines: ci-bench-10, ci-bench-11" in comment(fake)
    assert fake.storage.seen == []


def test_several_machines_have_to_be_named(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path), name="ci-bench-h200")
    assert publish(flags(artifact="ci-bench-*")) == ExitCode.BAD_INPUT
    assert "none are declared" in comment(fake)
    fake.state.files["main", "ci-bench.yml"] = (
        f"{CONFIG}machines: {{h200: {{gpu: H200}}}}\n".encode()
    )
    assert publish(flags(artifact="ci-bench-*")) == ExitCode.OK
    assert publish(flags(artifact="ci-bench-*", machines=("a100",))) == ExitCode.BAD_INPUT
    assert publish(flags()) == ExitCode.BAD_INPUT, (
        "a workflow must not leave out what the base branch declares"
    )


def test_a_machine_is_what_it_is_declared_to_be(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path), name="ci-bench-l4")
    fake.state.files["main", "ci-bench.yml"] = (
        f"{CONFIG}machines: {{l4: {{device: cuda, gpu: L4}}}}\n".encode()
    )
    assert publish(flags(artifact="ci-bench-*")) == ExitCode.BAD_INPUT
    assert (
        "environment.identity.gpu: is 'H200', and `machines` says that its name contains L4"
        in comment(fake)
    )


CODES = {
    "no machine": ([], ExitCode.MEASURING_FAILED),
    "all passed": ([None, None], ExitCode.OK),
    "one could not be fetched": ([None, GitHubUnreachable("x")], ExitCode.GITHUB),
    "a bad document wins over GitHub": (
        [GitHubUnreachable("x"), BadDocument("x")],
        ExitCode.BAD_INPUT,
    ),
}


@pytest.mark.parametrize(("faults", "code"), CODES.values(), ids=CODES)
def test_the_gravest_machine_decides_and_a_verdict_before_github(faults, code):
    passed = judged(results(result(peak(1, 1))), results(result(peak(1, 1))))
    machines = [
        JudgedMachine(name="x", fault=fault)
        if fault
        else JudgedMachine(name="x", comparison=passed)
        for fault in faults
    ]
    assert Judged(machines=tuple(machines)).exit_code == code


# In the job that measured


def test_our_own_pull_request_from_the_folder_of_the_run(fake, job, flags, tmp_path):
    job("pull_request", pull_request())
    fake.state.add_pull(7, HEAD)
    folder = tmp_path / "results"
    for name, text in both(tmp_path, head=2 * GIGABYTE).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert publish(flags(folders=[folder])) == ExitCode.POLICY_NOT_MET
    assert "❌ Failed" in comment(fake)


def test_folders_of_several_machines_may_have_the_same_name(fake, job, flags, tmp_path):
    job("push", push())
    fake.state.parents[HEAD] = BASE
    fake.state.branches["main"] = HEAD
    for machine in ("one", "two"):
        folder = tmp_path / machine / "results"
        for name, text in both(tmp_path).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    assert (
        publish(flags(folders=[tmp_path / "one" / "results", tmp_path / "two" / "results"]))
        == ExitCode.OK
    )
    assert {path.name for path in (tmp_path / "out" / "reports").iterdir()} == {
        "1-results",
        "2-results",
    }


def test_a_job_of_one_machine_does_not_pass_for_all_that_are_declared(fake, job, flags, tmp_path):
    job("pull_request", pull_request())
    fake.state.add_pull(7, HEAD)
    for name, text in both(tmp_path).items():
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / name).write_text(text)
    given = {"folders": [tmp_path / "results"], "machines": ("h200", "a100")}
    assert publish(flags(**given, comment="never")) == ExitCode.OK
    assert (fake.state.checks, fake.state.statuses) == ({}, []), (
        "another job sets the check for all"
    )
    assert publish(flags(**given)) == ExitCode.MEASURING_FAILED
    assert "2 machines are declared (h200, a100), and these are the results of 1" in comment(fake)
    assert check(fake)["conclusion"] == "failure"


@pytest.mark.parametrize("given", [{}, {"comment": "never"}])
def test_a_job_that_only_measures_needs_no_permissions(fake, job, flags, tmp_path, capsys, given):  # noqa: PLR0917 - by name
    """What is missing is told as a notice. The job that reports still needs its permissions."""
    job("pull_request", pull_request(), token=READ_ONLY)
    fake.state.add_pull(7, HEAD)
    for name, text in both(tmp_path).items():
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / name).write_text(text)
    leave(fake, both(tmp_path))
    code = publish(flags(folders=[tmp_path / "results"], **given))
    assert code == (ExitCode.OK if given else ExitCode.GITHUB)
    assert (
        f"::{'notice' if given else 'warning'} title=ci-bench status::" in capsys.readouterr().out
    )
    assert publish(flags(**given)) == ExitCode.GITHUB, "it reports on artifacts"


@pytest.mark.parametrize(
    ("size", "code"), [(GIGABYTE, ExitCode.OK), (2 * GIGABYTE, ExitCode.POLICY_NOT_MET)]
)
def test_a_fork_in_its_own_job_gets_the_verdict_and_no_comment(  # noqa: PLR0917 - by name
    fake, job, flags, tmp_path, capsys, size, code
):
    """Its token can only read; that is as it should be, and must not turn a pass into an error."""
    job("pull_request", pull_request(fork=True), token=READ_ONLY)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path, head=size))
    assert publish(flags()) == code
    assert (fake.state.comments, fake.state.checks, fake.state.statuses) == ({}, {}, [])
    assert "s/a" in (tmp_path / "summary.md").read_text()
    assert "::notice title=ci-bench comment::" in capsys.readouterr().out


def test_a_token_without_the_permissions_is_an_error_after_a_pass(
    fake, job, flags, tmp_path, capsys
):
    job("pull_request", pull_request(), token=READ_ONLY)
    fake.state.add_pull(7, HEAD)
    leave(fake, both(tmp_path))
    assert publish(flags()) == ExitCode.GITHUB
    told = capsys.readouterr().out
    assert "Passed:" in told
    assert "::warning title=ci-bench comment::" in told
    assert "issues=write; pull_requests=write" in told


def test_an_outage_after_the_verdict_hides_no_failure(fake, job, flags, tmp_path, capsys):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path, head=2 * GIGABYTE))
    fake.plan("POST", "", *[RESET] * 50)
    assert publish(flags()) == ExitCode.POLICY_NOT_MET
    assert "Failed:" in capsys.readouterr().out


def test_an_outage_after_a_pass_is_told(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path))
    fake.plan("POST", "", *[Fault(status=502)] * 50)
    assert publish(flags()) == ExitCode.GITHUB


def test_without_a_pull_request_the_check_is_made_all_the_same(fake, job, flags, tmp_path):
    job("push", push())
    fake.state.add_run(HEAD, id=RUN)
    fake.state.branches["main"] = HEAD
    leave(fake, both(tmp_path))
    assert publish(flags()) == ExitCode.OK
    assert check(fake)["conclusion"] == "success"
    assert fake.state.comments == {}


def test_outside_of_a_workflow(flags, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    with pytest.raises(NotOnGitHub):
        publish(flags())


def test_a_key_that_cannot_be_is_refused(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path))
    with pytest.raises(BadInput, match="the key is"):
        publish(flags(key="--> hello"))


@pytest.mark.parametrize("fault", [None, LOST, Fault(status=500), Fault(status=401, message=TOKEN)])
def test_the_token_is_nowhere(fake, job, flags, tmp_path, caplog, capsys, fault):  # noqa: PLR0917 - by name
    caplog.set_level(logging.DEBUG)
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, both(tmp_path, head=2 * GIGABYTE))
    if fault:
        fake.plan("POST", "", fault)
    publish(flags())
    captured = capsys.readouterr()
    written = "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    )
    said = (
        caplog.text
        + captured.out
        + captured.err
        + written
        + json.dumps([*fake.state.comments.values()])
    )
    assert "connectionpool" in {record.name.rpartition(".")[2] for record in caplog.records}
    assert TOKEN not in said
    assert "SECRET" not in said


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ({"action": "publish"}, 600),
        ({"action": "announce"}, 600),
        ({"action": "answer-request"}, 600),
        ({"action": "publish", "folders": (Path("results"),)}, 120),
        ({"action": "fetch-baseline"}, 120),
        ({"action": "fetch-config"}, 120),
    ],
)
def test_a_job_with_a_gpu_waits_less_for_github(monkeypatch, tmp_path, given, waits):
    monkeypatch.setattr(publishing, "Client", lambda _, *, patience_s: patience_s)
    environ = {"GITHUB_TOKEN": TOKEN, "GITHUB_REPOSITORY": "o/r"}
    assert publishing.client_of(Publishing(environ=environ, here=tmp_path, **given)) == waits


# Announce


def test_a_required_check_waits_from_the_start(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    assert announce(flags()) == ExitCode.OK
    assert (check(fake)["status"], check(fake)["conclusion"]) == ("in_progress", None)
    leave(fake, both(tmp_path))
    publish(flags())
    assert (check(fake)["status"], check(fake)["conclusion"]) == ("completed", "success")


def test_a_status_can_wait_too(fake, job, flags):
    fake.tokens["ghp_person"] = (
        "someone",
        frozenset({"statuses", "contents", "actions", "pull_requests"}),
    )
    job("workflow_run", FORKS, token="ghp_person")  # noqa: S106 - the test's own
    announce(flags())
    assert [one["state"] for one in fake.state.statuses] == ["pending"]


# The baseline


def keep_baseline(fake, tmp_path, number, size=GIGABYTE, **run):
    made = fake.state.add_run(fake.state.history[number], path=WORKFLOW, **run)
    commit = fake.state.history[number]
    return fake.state.add_artifact(
        made, {"results.json": document(tmp_path, size, id="earlier", commit=commit)}
    )


def test_the_baseline_is_fetched_into_the_folder(fake, job, flags, tmp_path):
    job("pull_request", pull_request())
    fake.state.parents[HEAD] = fake.state.history[2]
    keep_baseline(fake, tmp_path, 5)
    keep_baseline(fake, tmp_path, 0)
    assert fetch_baseline(flags()) == ExitCode.OK
    folder = tmp_path / "out"
    assert documents.read_results(folder / "results.json").run.id == "earlier"
    said = json.loads((folder / "baseline.json").read_text())
    assert (said["outcome"], said["commit"], said["distance"]) == (
        "found",
        fake.state.history[5],
        3,
    )
    assert outputs(tmp_path)["found"] == "true"
    assert absence(folder) is None


def test_a_base_commit_that_is_named_wins(fake, job, flags, tmp_path):
    """The merge commit's first parent, say, which only the checkout knows."""
    job("pull_request", pull_request())
    keep_baseline(fake, tmp_path, 1)
    assert fetch_baseline(flags(base=fake.state.history[1])) == ExitCode.OK
    assert json.loads((tmp_path / "out" / "baseline.json").read_text())["distance"] == 0


def test_no_baseline_is_an_outcome_and_leaves_no_old_results(fake, job, flags, tmp_path, capsys):
    job("pull_request", pull_request(), GITHUB_ACTIONS="true")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.json").write_text("of another time")
    assert fetch_baseline(flags()) == ExitCode.OK
    assert not (tmp_path / "out" / "results.json").exists()
    assert absence(tmp_path / "out") == "no run has left an artifact ci-bench-baseline yet"
    told = outputs(tmp_path)
    assert (told["found"], told["reason"]) == ("false", "no_artifact")
    assert "no run has left" in capsys.readouterr().err


def test_an_artifact_with_unsound_results_is_passed_over(fake, job, flags, tmp_path):
    job("pull_request", pull_request())
    made = fake.state.add_run(fake.state.history[0])
    fake.state.add_artifact(made, {"results.json": '{"kind": "results", "schema_version": 2}'})
    assert fetch_baseline(flags()) == ExitCode.OK
    assert "not sound" in absence(tmp_path / "out")


@pytest.mark.parametrize(
    ("fault", "reason"), [(Fault(status=403), "refused"), (RESET, "unreachable")]
)
def test_github_that_does_not_answer_is_told_by_the_exit_code(  # noqa: PLR0917 - by name
    fake, job, flags, tmp_path, fault, reason
):
    job("pull_request", pull_request())
    fake.plan("GET", "artifacts", *[fault] * 9)
    assert fetch_baseline(flags()) == ExitCode.GITHUB
    assert outputs(tmp_path)["reason"] == reason


def test_a_tag_has_no_base_branch(fake, job, flags, tmp_path):
    job("schedule", {}, GITHUB_REF="")
    assert fetch_baseline(flags()) == ExitCode.OK
    assert absence(tmp_path / "out") == "this event does not name the base branch"


def test_a_folder_where_nothing_was_fetched_has_no_reason(tmp_path):
    assert absence(tmp_path) is None
    (tmp_path / "baseline.json").write_text("[]")
    assert absence(tmp_path) is None


def test_the_trusted_half_fetches_the_baseline_itself(fake, job, flags, tmp_path):
    """What a fork's run says the base had is not asked."""
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.parents[HEAD] = BASE
    keep_baseline(fake, tmp_path, 0, GIGABYTE)
    leave(fake, both(tmp_path, base=4 * GIGABYTE, head=2 * GIGABYTE))
    assert publish(flags(baseline="artifact")) == ExitCode.POLICY_NOT_MET
    assert documents.read_comparison(tmp_path / "out" / "comparison.json").base.run.id == "earlier"


def test_each_machine_has_its_own_baseline(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.parents[HEAD] = BASE
    for gpu in ("h200", "a100"):
        made = fake.state.add_run(BASE)
        fake.state.add_artifact(
            made,
            {"results.json": document(tmp_path, GIGABYTE, commit=BASE)},
            name=f"ci-bench-baseline-{gpu}",
        )
        leave(fake, {"results.json": document(tmp_path, GIGABYTE)}, name=f"ci-bench-{gpu}")
    code = publish(
        flags(
            artifact="ci-bench-*",
            machines=("h200", "a100"),
            baseline="artifact",
            baseline_artifact="ci-bench-baseline-*",
        )
    )
    assert code == ExitCode.OK
    assert "Passed on all 2 machines" in comment(fake)


def test_no_baseline_in_the_trusted_half_is_judged_by_the_policy(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, {"results.json": document(tmp_path, GIGABYTE)})
    assert publish(flags(baseline="artifact")) == ExitCode.POLICY_NOT_MET
    assert "no run has left an artifact" in comment(fake)


def test_a_baseline_is_not_asked_for(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    leave(fake, {"results.json": document(tmp_path, GIGABYTE)})
    assert publish(flags(baseline="none")) == ExitCode.OK
    assert check(fake)["conclusion"] == "neutral"
    assert check(fake)["output"]["title"].startswith("Nothing was compared")


def test_the_configuration_that_cannot_be_had_fails_the_run(fake, job, flags, tmp_path):
    job("workflow_run", FORKS)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.files["main", "ci-bench.yml"] = (
        b"schema_version: 1\nsuites: {}\npolicy: {tresholds: {}}\n"
    )
    leave(fake, both(tmp_path))
    assert publish(flags()) == ExitCode.BAD_INPUT
    assert check(fake)["conclusion"] == "failure"


# What a pull request is measured by, and against what was fetched before


def test_the_configuration_to_measure_by_is_the_base_branchs(fake, job, flags, tmp_path, capsys):
    job("pull_request", pull_request(fork=True), token=READ_ONLY)
    fake.state.add_pull(7, HEAD, fork=True)
    fake.state.files[HEAD, "ci-bench.yml"] = LOOSE.encode()
    assert fetch_config(flags()) == ExitCode.OK
    assert (tmp_path / "out" / "ci-bench.yml").read_text() == CONFIG
    assert "configuration: ci-bench.yml of main" in capsys.readouterr().err


def test_without_one_heads_own_is_fetched(fake, job, flags, tmp_path, capsys):
    job("pull_request", pull_request())
    fake.state.add_pull(7, HEAD)
    del fake.state.files["main", "ci-bench.yml"]
    fake.state.files[HEAD, "ci-bench.yml"] = LOOSE.encode()
    kept = tmp_path / "out" / "ci-bench.yml"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("of an earlier job")
    assert fetch_config(flags()) == ExitCode.OK
    assert kept.read_text() == LOOSE
    told = "configuration: ci-bench.yml of this commit: main has no ci-bench.yml yet, so this run can fail and never pass"
    assert told in capsys.readouterr().err
    assert outputs(tmp_path)["configured"] == "head"


def test_a_configuration_that_breaks_its_schema_is_refused_before_measuring(fake, job, flags):
    job("push", push())
    fake.state.files["main", "ci-bench.yml"] = (
        b"schema_version: 1\nsuites: {}\npolicy: {tresholds: {}}\n"
    )
    with pytest.raises(BadConfig, match="tresholds"):
        fetch_config(flags())


def test_an_outage_is_no_missing_configuration(fake, job, flags):
    """Measuring by the built-in one instead would answer another question."""
    job("push", push())
    fake.plan("GET", "contents/", *[Fault(status=502)] * 50)
    with pytest.raises(GitHubUnreachable):
        fetch_config(flags())


def test_without_an_answer_no_configuration_is_fetched(fake, job, flags):
    """The default branch's is not the one of the branch that is meant, which nobody knows."""
    job("workflow_run", FORKS)
    fake.plan(
        "GET", "/pulls", *[Fault(status=403, message="Resource not accessible by integration")] * 9
    )
    with pytest.raises(GitHubFailed, match="Resource not accessible"):
        fetch_config(flags())


def test_what_was_fetched_before_is_the_baseline(fake, job, flags, tmp_path):
    job("pull_request", pull_request())
    fake.state.add_pull(7, HEAD)
    fake.state.parents[HEAD] = BASE
    keep_baseline(fake, tmp_path, 0)
    fetch_baseline(flags(output=tmp_path / "fetched"))
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.json").write_text(document(tmp_path, 2 * GIGABYTE))
    fake.seen.clear()
    assert (
        publish(flags(folders=[folder], baseline="artifact", fetched=tmp_path / "fetched"))
        == ExitCode.POLICY_NOT_MET
    )
    assert "❌ Failed" in comment(fake)
    assert not [path for path in fake.paths("GET") if path.startswith("actions/")], (
        "nothing is looked for again"
    )


def test_that_none_was_found_before_is_told_in_those_words(fake, job, flags, tmp_path):
    job("pull_request", pull_request())
    fake.state.add_pull(7, HEAD)
    fetch_baseline(flags(output=tmp_path / "fetched"))
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.json").write_text(document(tmp_path, GIGABYTE))
    assert (
        publish(flags(folders=[folder], baseline="artifact", fetched=tmp_path / "fetched"))
        == ExitCode.POLICY_NOT_MET
    )
    assert "no run has left an artifact ci-bench-baseline yet" in comment(fake)
