"""The issue about a trend: opened once, kept up to date, closed with a word, nobody else's touched."""

import pytest
from fake_github import LOST, READ_ONLY, Fault
from fake_github_state import MOST_CHARACTERS

from ci_bench.errors import BadInput, GitHubRefused
from ci_bench.github.issues import Alert, publish_alert
from ci_bench.github.outcomes import State

PULL = dict.fromkeys(("url", "html_url", "diff_url", "patch_url"), "https://github.example/pulls/1")


def alert(
    text="step_time: 2 % slower", *, worse=True, key="default", title="Trend: worse", **fields
):
    return Alert(key=key, worse=worse, title=title, text=text, **fields)


def open_bodies(fake):
    return [
        one["body"].partition("\n")[2]
        for one in fake.state.issues.values()
        if one["state"] == "open"
    ]


def test_the_first_alarm_opens_the_next_updates_recovery_closes(fake, client):
    opened = publish_alert(client, alert("one"))
    updated = publish_alert(client, alert("two", title="Trend: worse still"))
    assert open_bodies(fake) == ["two"]
    assert (opened.state, updated.state, opened.url) == (State.DONE, State.DONE, updated.url)
    closed = publish_alert(client, alert("all is well", worse=False))
    (issue,) = fake.state.issues.values()
    assert (issue["state"], issue["state_reason"], issue["title"]) == (
        "closed",
        "completed",
        "Trend: worse still",
    )
    assert fake.state.texts_of(issue["number"]) == ["all is well"]
    assert closed.state is State.DONE
    assert publish_alert(client, alert("all is well", worse=False)).state is State.SKIPPED
    assert len(fake.state.comments) == 1


def test_an_alarm_after_that_opens_a_new_one(fake, client):
    publish_alert(client, alert("one"))
    publish_alert(client, alert("", worse=False))
    publish_alert(client, alert("two"))
    assert open_bodies(fake) == ["two"]
    assert len(fake.state.issues) == 2


def test_nothing_is_written_where_nothing_is_new(fake, client):
    publish_alert(client, alert())
    before = len(fake.paths("PATCH"))
    fake.state.issues[next(iter(fake.state.issues))]["body"] = (
        alert().body.replace("\n", "\r\n") + "\r\n"
    )
    publish_alert(client, alert())
    assert len(fake.paths("PATCH")) == before


def test_ours_is_found_among_hundreds_of_issues_and_pull_requests(fake, client):
    publish_alert(client, alert("one"))
    for number in range(230):
        fake.state.add_issue(f"issue {number}", "words", login="someone")
        fake.state.add_issue(f"pull {number}", alert("pull").body, pull_request=PULL)
    publish_alert(client, alert("two"))
    assert not fake.paths("POST")[1:], "no pull request was closed with a word"
    assert [body for body in open_bodies(fake) if body not in {"", "pull"}] == ["two"]


def test_a_pasted_marker_another_key_and_a_marker_further_down_are_left_alone(fake, client):
    fake.state.add_issue("pasted", alert("pasted").body, login="someone")
    fake.state.add_issue("other", alert("other", key="nightly").body)
    fake.state.add_issue("quoted", "quoted:\n" + alert("quoted").body)
    publish_alert(client, alert("ours"))
    assert open_bodies(fake)[-1] == "ours"
    assert len(fake.state.issues) == 4
    publish_alert(client, alert("", worse=False))
    assert len(open_bodies(fake)) == 3


def test_two_jobs_that_open_at_once_settle_on_the_oldest(fake, client):
    ours = fake.state.add_issue

    def both(title, body, **fields):
        ours(title, body, **fields)
        return ours(title, body, **fields)

    fake.state.add_issue = both
    publish_alert(client, alert("one"))
    states = [
        one["state"] for one in sorted(fake.state.issues.values(), key=lambda one: one["number"])
    ]
    assert states == ["open", "closed"]


def test_a_lost_answer_opens_no_second_issue(fake, client):
    fake.plan("POST", "/issues", LOST)
    assert publish_alert(client, alert("one")).state is State.DONE
    assert len(fake.state.issues) == 1


def test_a_token_that_cannot_write_is_refused(fake, connect):
    with pytest.raises(GitHubRefused):
        publish_alert(connect(token=READ_ONLY), alert())


def test_an_outage_is_waited_for(fake, client, slept):
    fake.plan("GET", "/issues", Fault(status=502), Fault(status=502))
    assert publish_alert(client, alert()).state is State.DONE
    assert slept.waits


def test_a_long_text_is_cut_to_what_github_takes(fake, client):
    publish_alert(client, alert("\n".join(["words and more words"] * 20_000)))
    (issue,) = fake.state.issues.values()
    assert len(issue["body"]) <= MOST_CHARACTERS


def test_a_key_that_could_end_the_marker_is_refused():
    with pytest.raises(BadInput, match="the key is"):
        alert(key="a --> b")
