"""Check runs with their annotations in portions, commit statuses, and what stands in for what."""

import pytest
from fake_github import LOST, READ_ONLY, RESET, Fault
from fake_github_state import sha_of

from ci_bench.commands.trusted.publishing import send
from ci_bench.errors import ExitCode, GitHubRefused
from ci_bench.github.checks import (
    Annotation,
    AnnotationLevel,
    CheckRun,
    CheckStatus,
    Conclusion,
    StatusState,
    publish_check,
    publish_status,
    status_of,
)
from ci_bench.github.clipping import utf16_units
from ci_bench.github.comments import Marker, Sticky
from ci_bench.github.context import RunId
from ci_bench.github.outcomes import PublishOutcome, State, exit_code

HEAD = sha_of("head")


def annotated(number):
    return tuple(
        Annotation(
            path="ci-bench.yml",
            line=1,
            level=AnnotationLevel.FAILURE,
            title="regressed",
            message=f"finding {index}",
        )
        for index in range(number)
    )


def check(*, run=10, attempt=1, conclusion=Conclusion.FAILURE, annotations=0, **fields):
    standard = {
        "name": "ci-bench",
        "key": "default",
        "head_sha": HEAD,
        "title": "Failed: slower",
        "summary": "### Failed",
    }
    return CheckRun(
        **{**standard, **fields},
        run=RunId(id=run, attempt=attempt),
        conclusion=conclusion,
        annotations=annotated(annotations),
    )


def only(fake):
    (one,) = fake.state.checks.values()
    return one


def told(fake):
    return [one["message"] for one in only(fake)["annotations"]]


@pytest.mark.parametrize("number", [0, 1, 50, 51, 100, 101, 120])
def test_annotations_come_in_portions_each_once(fake, client, number):
    outcome = publish_check(client, check(annotations=number))
    assert told(fake) == [f"finding {index}" for index in range(number)]
    assert [
        len(one.body["output"].get("annotations", [])) <= 50 for one in fake.seen if one.body
    ] == [True] * max(1, -(-number // 50))
    assert (only(fake)["conclusion"], only(fake)["status"]) == ("failure", "completed")
    assert outcome.url == only(fake)["html_url"]


@pytest.mark.parametrize("fault", [LOST, RESET, Fault(status=502)], ids=["lost", "reset", "502"])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_fault_in_between_doubles_and_loses_nothing(fake, client, method, fault):
    fake.plan(method, "check-runs", fault)
    publish_check(client, check(annotations=120))
    assert told(fake) == [f"finding {index}" for index in range(120)]


def test_many_annotations_are_cut(fake, client):
    publish_check(client, check(annotations=700))
    assert len(told(fake)) == 500


def test_the_same_attempt_again_states_anew_and_adds_no_annotation_twice(fake, client):
    publish_check(client, check(annotations=70))
    publish_check(client, check(annotations=70, title="Failed: even slower"))
    assert len(told(fake)) == 70
    assert only(fake)["output"]["title"] == "Failed: even slower"


def test_one_that_was_announced_is_completed(fake, client):
    publish_check(client, check(conclusion=None, title="Measuring"))
    assert (only(fake)["status"], only(fake)["conclusion"]) == ("in_progress", None)
    publish_check(client, check(conclusion=Conclusion.SUCCESS, title="Passed", annotations=3))
    assert (only(fake)["status"], only(fake)["conclusion"], len(told(fake))) == (
        "completed",
        "success",
        3,
    )


def test_an_older_attempt_does_not_check_after_a_newer(fake, client):
    publish_check(client, check(attempt=2, conclusion=Conclusion.SUCCESS))
    outcome = publish_check(client, check(attempt=1))
    assert (only(fake)["conclusion"], outcome.state) == ("success", State.SKIPPED)


def test_a_newer_attempt_makes_its_own(fake, client):
    publish_check(client, check(attempt=1))
    publish_check(client, check(attempt=2, conclusion=Conclusion.SUCCESS))
    assert [one["conclusion"] for one in fake.state.checks.values()] == ["failure", "success"]


def test_checks_of_others_by_the_same_name_are_left_alone(fake, client):
    said = {"title": "theirs", "summary": "theirs"}
    theirs = fake.state.add_check(
        {
            "name": "ci-bench",
            "head_sha": HEAD,
            "external_id": "x",
            "conclusion": "success",
            "output": said,
        }
    )
    publish_check(client, check())
    assert theirs["output"]["title"] == "theirs"
    assert len(fake.state.checks) == 2


@pytest.mark.parametrize("letter", ["x", "€", "😀"])
def test_long_texts_are_cut_to_the_limits(fake, client, letter):
    publish_check(client, check(title=letter * 400, summary=f"{letter * 10}\n" * 20_000))
    output = only(fake)["output"]
    assert utf16_units(output["title"]) <= 255
    assert output["title"].endswith("…")
    assert len(output["summary"].encode()) <= 65_535
    assert "Cut here" in output["summary"]


def test_a_status_says_what_a_check_would(fake, client):
    publish_status(
        client,
        status_of(
            check(title="Failed: " + "slow " * 60, details_url="https://github.example/runs/1")
        ),
    )
    (status,) = fake.state.statuses
    assert (status["sha"], status["state"], status["context"]) == (HEAD, "failure", "ci-bench")
    assert len(status["description"]) <= 140
    assert status["target_url"] == "https://github.example/runs/1"


STATES = {
    None: "pending",
    Conclusion.SUCCESS: "success",
    Conclusion.NEUTRAL: "success",
    Conclusion.FAILURE: "failure",
}


@pytest.mark.parametrize(("conclusion", "state"), STATES.items())
def test_each_conclusion_has_its_status(conclusion, state):
    assert status_of(check(conclusion=conclusion)).state == state


def test_a_status_whose_answer_is_lost_is_set_again(fake, client):
    fake.plan("POST", "statuses", LOST)
    publish_status(
        client,
        CheckStatus(
            context="ci-bench", head_sha=HEAD, state=StatusState.SUCCESS, description="Passed"
        ),
    )
    assert {one["state"] for one in fake.state.statuses} == {"success"}


# Both together, and what is missing


def sticky():
    marker = Marker(key="default", run=RunId(id=10), head=HEAD)
    return Sticky(number=7, marker=marker, text=f"{marker}\n\nwords")


def test_comment_and_check(fake, client):
    outcomes = send(client, check(), (sticky(),))
    assert [(one.part, one.state) for one in outcomes] == [
        ("check", State.DONE),
        ("comment", State.DONE),
    ]


def test_without_the_right_to_check_the_status_stands_in(fake, connect):
    """A personal token may set statuses and write comments, and no check runs."""
    fake.tokens["ghp_person"] = ("someone", frozenset({"issues", "statuses"}))
    outcomes = send(connect("ghp_person"), check(), (sticky(),))
    assert [(one.part, one.state) for one in outcomes] == [
        ("status", State.DONE),
        ("comment", State.DONE),
    ]
    assert [one["state"] for one in fake.state.statuses] == ["failure"]


@pytest.mark.parametrize(("given", "made"), [(check(), 1), (None, 0)])
def test_a_check_is_set_or_none(fake, client, given, made):
    send(client, given)
    assert (len(fake.state.checks), len(fake.state.statuses)) == (made, 0)


def test_a_forks_token_ends_in_outcomes_and_no_error(fake, connect):
    outcomes = send(connect(READ_ONLY), check(), (sticky(),))
    assert [(one.part, one.state) for one in outcomes] == [
        ("status", State.REFUSED),
        ("comment", State.REFUSED),
    ]
    assert "it needs statuses=write" in outcomes[0].detail


def test_one_part_that_fails_leaves_the_other(fake, client):
    fake.plan("GET", "check-runs", *[RESET] * 9)
    outcomes = send(client, check(), (sticky(),))
    assert [(one.part, one.state) for one in outcomes] == [
        ("check", State.FAILED),
        ("comment", State.DONE),
    ]


def test_refusals_are_raised_where_they_are_not_caught(connect):
    with pytest.raises(GitHubRefused):
        publish_check(connect(READ_ONLY), check())


CODES = {
    "a pass that is told": (0, [State.DONE, State.SKIPPED], False, ExitCode.OK),
    "a failure that is told": (1, [State.DONE], False, ExitCode.POLICY_NOT_MET),
    "a failure that could not be told": (
        1,
        [State.FAILED, State.REFUSED],
        False,
        ExitCode.POLICY_NOT_MET,
    ),
    "incomparable, not told": (4, [State.FAILED], False, ExitCode.INCOMPARABLE),
    "a pass that could not be told": (0, [State.DONE, State.FAILED], False, ExitCode.GITHUB),
    "a pass without the permission": (0, [State.REFUSED], False, ExitCode.GITHUB),
    "a pass of a fork, which has no permission": (
        0,
        [State.REFUSED, State.DONE],
        True,
        ExitCode.OK,
    ),
    "a failure of a fork": (1, [State.REFUSED], True, ExitCode.POLICY_NOT_MET),
    "a pass of a fork, during an outage": (0, [State.FAILED], True, ExitCode.GITHUB),
    "nothing to tell": (0, [], False, ExitCode.OK),
}


@pytest.mark.parametrize(("verdict", "states", "read_only", "code"), CODES.values(), ids=CODES)
def test_the_verdicts_own_code_wins(verdict, states, read_only, code):
    outcomes = [PublishOutcome(part="comment", state=state, detail="") for state in states]
    assert exit_code(verdict, outcomes, read_only=read_only) == code
