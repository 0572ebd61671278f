"""The sticky comment: found, owned, updated, never doubled, never over a newer run's, never too long."""

import threading

import pytest
from fake_github import LOST, READ_ONLY, RESET, TOKEN, Fault
from fake_github_state import BOT, MOST_CHARACTERS, sha_of

from ci_bench.errors import GitHubInvalid, GitHubOdd, GitHubRefused
from ci_bench.github import client as client_module
from ci_bench.github.clipping import utf16_units
from ci_bench.github.comments import CommentMode, Marker, Sticky, publish_comment
from ci_bench.github.context import RunId
from ci_bench.github.http import HttpClock
from ci_bench.github.outcomes import State

PULL = 7


def sticky(text="all is well", *, run=10, attempt=1, key="default", **fields):
    marker = Marker(key=key, run=RunId(id=run, attempt=attempt), head=sha_of("head"))
    return Sticky(number=PULL, marker=marker, text=f"{marker}\n\n{text}", **fields)


def bodies(fake):
    return [one.partition("\n\n")[2] for one in fake.state.texts_of(PULL)]


def test_the_first_run_creates_the_second_updates(fake, client):
    first = publish_comment(client, sticky("one", run=1))
    second = publish_comment(client, sticky("two", run=2))
    assert bodies(fake) == ["two"]
    assert (first.state, second.state) == (State.DONE, State.DONE)
    assert second.url == fake.state.comments_of(PULL)[0]["html_url"]


def test_ours_is_found_on_page_four_among_350(fake, client):
    for number in range(320):
        fake.state.add_comment(PULL, f"words {number}", login="someone")
    publish_comment(client, sticky("one", run=1))
    for number in range(30):
        fake.state.add_comment(PULL, f"more words {number}", login="someone")
    publish_comment(client, sticky("two", run=2))
    assert [one for one in bodies(fake) if one] == ["two"]
    assert len(fake.state.comments) == 351


def test_a_marker_that_a_human_pasted_is_left_alone(fake, client):
    pasted = fake.state.add_comment(PULL, sticky("look what I found", run=1).text, login="someone")
    publish_comment(client, sticky("two", run=2))
    assert bodies(fake) == ["look what I found", "two"]
    assert [path for path in fake.paths("PATCH") if str(pasted["id"]) in path] == []


def test_a_pasted_marker_of_a_newer_run_keeps_nobody_from_writing(fake, client):
    fake.state.add_comment(PULL, sticky("silence", run=10**17).text, login="someone")
    assert publish_comment(client, sticky("two", run=2)).state is State.DONE
    assert bodies(fake) == ["silence", "two"]


def test_a_marker_that_is_not_the_first_line_is_no_marker(fake, client):
    fake.state.add_comment(PULL, "quoted:\n" + sticky("one", run=1).text)
    publish_comment(client, sticky("two", run=2))
    assert len(fake.state.comments) == 2


def test_another_gates_comment_is_left_alone(fake, client):
    publish_comment(client, sticky("of the other gate", key="other"))
    publish_comment(client, sticky("of this gate"))
    assert bodies(fake) == ["of the other gate", "of this gate"]


def test_duplicates_are_merged_into_the_oldest(fake, client):
    ids = [
        fake.state.add_comment(PULL, sticky(f"number {run}", run=run).text)["id"]
        for run in (1, 3, 2)
    ]
    publish_comment(client, sticky("the only one", run=9))
    assert bodies(fake) == ["the only one"]
    assert [one["id"] for one in fake.state.comments_of(PULL)] == ids[:1]


def test_a_comment_that_is_deleted_between_list_and_update_is_created_again(fake, client):
    one = fake.state.add_comment(PULL, sticky("one", run=1).text)
    fake.when_seen = lambda seen: (
        fake.state.comments.pop(one["id"], None) if seen.method == "PATCH" else None
    )
    assert publish_comment(client, sticky("two", run=2)).state is State.DONE
    assert bodies(fake) == ["two"]


def test_a_comment_that_is_deleted_at_once_is_written_again(fake, client):
    deleted = []

    def delete_the_first(seen):
        if seen.method == "GET" and fake.state.comments and not deleted:
            deleted.append(fake.state.comments.popitem())

    fake.when_seen = delete_the_first
    assert publish_comment(client, sticky("here")).state is State.DONE
    assert deleted
    assert bodies(fake) == ["here"]


# Newer and older


@pytest.mark.parametrize(("older", "newer"), [((1, 1), (2, 1)), ((5, 1), (5, 2)), ((1, 9), (2, 1))])
def test_a_newer_runs_comment_is_not_overwritten(fake, client, older, newer):
    publish_comment(client, sticky("newer", run=newer[0], attempt=newer[1]))
    outcome = publish_comment(client, sticky("older", run=older[0], attempt=older[1]))
    assert bodies(fake) == ["newer"]
    assert (outcome.state, outcome.detail) == (
        State.SKIPPED,
        f"run {newer[0]}, attempt {newer[1]}, is newer and has commented already",
    )


def test_the_same_attempt_may_write_again(fake, client):
    publish_comment(client, sticky("one"))
    publish_comment(client, sticky("two"))
    assert bodies(fake) == ["two"]


def test_a_newer_run_that_is_overwritten_in_between_writes_again(fake, client):
    """The older run listed before the newer one wrote, and updates after it."""
    one = fake.state.add_comment(PULL, sticky("before", run=1).text)
    once = []

    def older_run_updates(seen):
        if seen.method == "GET" and "run=9" in one["body"] and not once:
            once.append(True)
            one["body"] = sticky("older", run=5).text

    fake.when_seen = older_run_updates
    publish_comment(client, sticky("newer", run=9))
    assert once
    assert bodies(fake) == ["newer"]


RACES = {"one run": (4, 4), "the first is older": (4, 5), "the first is newer": (5, 4)}


@pytest.mark.parametrize("runs", RACES.values(), ids=RACES)
def test_concurrent_writes_make_one_comment(fake, connect, runs):
    """Both list, and find nothing, before either creates."""
    together = threading.Barrier(2)
    listed = threading.local()

    def meet(seen):
        if seen.method == "POST" and not getattr(listed, "done", False):
            together.wait(5)

    fake.when_seen = meet
    clients = [
        connect(
            clock=HttpClock(
                sleep=lambda _: threading.Event().wait(0.05), chance=lambda share=share: share
            )
        )
        for share in (0.0, 0.5)
    ]
    outcomes = [None, None]

    def write(index):
        outcomes[index] = publish_comment(
            clients[index], sticky(f"run {runs[index]}", run=runs[index])
        )

    threads = [threading.Thread(target=write, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert bodies(fake) == [f"run {max(runs)}"]
    assert fake.paths("POST") == [f"issues/{PULL}/comments"] * 2
    assert State.DONE in {outcome.state for outcome in outcomes}


# Modes


def test_never_asks_nothing(fake, client):
    outcome = publish_comment(client, sticky(mode=CommentMode.NEVER))
    assert (outcome.state, fake.seen) == (State.SKIPPED, [])


def test_on_change_is_silent_about_nothing_and_brings_an_old_comment_up_to_date(fake, client):
    quiet = publish_comment(
        client, sticky("nothing", run=1, mode=CommentMode.ON_CHANGE, changed=False)
    )
    assert (quiet.state, quiet.detail, bodies(fake)) == (State.SKIPPED, "nothing changed", [])
    publish_comment(client, sticky("slower", run=2, mode=CommentMode.ON_CHANGE, changed=True))
    publish_comment(client, sticky("well again", run=3, mode=CommentMode.ON_CHANGE, changed=False))
    assert bodies(fake) == ["well again"]


# Whose comment


def test_a_wrong_author_makes_no_second_comment_for_ever(fake, connect):
    """An app's token writes as the app; whoever did not say so is told, and still has one comment."""
    fake.tokens["ghs_app"] = ("my-app[bot]", frozenset({"issues"}))
    for run in range(3):
        publish_comment(connect("ghs_app"), sticky(f"run {run}", run=run))
    assert bodies(fake) == ["run 2"]


def test_an_app_that_is_named(fake, connect):
    fake.tokens["ghs_app"] = ("my-app[bot]", frozenset({"issues"}))
    for run in range(3):
        publish_comment(connect("ghs_app"), sticky(f"run {run}", run=run, author="My-App[bot]"))
    assert bodies(fake) == ["run 2"]
    assert len(fake.paths("POST")) == 1


def test_a_fork_may_not(fake, connect):
    with pytest.raises(GitHubRefused, match="Resource not accessible by integration"):
        publish_comment(connect(READ_ONLY), sticky())


# Faults


def test_a_lost_answer_makes_no_second_comment(fake, client):
    fake.plan("POST", "comments", LOST)
    publish_comment(client, sticky("once"))
    assert bodies(fake) == ["once"]
    assert len(fake.paths("POST")) == 1


def test_a_reset_before_the_work_is_made_good(fake, client):
    fake.plan("POST", "comments", RESET, Fault(status=502))
    publish_comment(client, sticky("once"))
    assert bodies(fake) == ["once"]


def test_more_comments_than_are_read_are_an_error_and_no_new_comment(fake, client, monkeypatch):
    monkeypatch.setattr(client_module.Client.pages, "__kwdefaults__", {"key": None, "most": 2})
    fake.per_page = 5
    for number in range(11):
        fake.state.add_comment(PULL, str(number))
    with pytest.raises(GitHubOdd, match="too many comments to search"):
        publish_comment(client, sticky())
    assert fake.paths("POST") == []


# Size


def sized(units, letter="x"):
    """A sticky comment of exactly so many UTF-16 units."""
    empty = utf16_units(sticky("").text)
    return sticky(letter * ((units - empty) // utf16_units(letter)))


@pytest.mark.parametrize("letter", ["x", "€", "😀"])
def test_a_comment_at_the_limit_is_written_whole(fake, client, letter):
    exact = sized(MOST_CHARACTERS, letter)
    publish_comment(client, exact)
    assert fake.state.texts_of(PULL) == [exact.text]


@pytest.mark.parametrize("letter", ["x\n", "€\n", "😀\n"])
def test_a_comment_beyond_the_limit_is_cut_and_stays_ours(fake, client, letter):
    publish_comment(client, sized(MOST_CHARACTERS + 8, letter))
    (text,) = fake.state.texts_of(PULL)
    assert 65_000 < utf16_units(text) <= MOST_CHARACTERS
    assert "Cut here" in text
    assert len(fake.paths("POST")) == 1
    publish_comment(client, sticky("short again", run=11))
    assert bodies(fake) == ["short again"]


def test_a_server_that_counts_otherwise_gets_a_shorter_one(fake, client):
    message = "body is too long (maximum is 40000 characters)"
    fake.plan("POST", "comments", Fault(status=422, message=message))
    publish_comment(client, sticky("line\n" * 9000))
    (text,) = fake.state.texts_of(PULL)
    assert len(text) < 30_001
    assert "Cut here" in text


def test_another_refusal_of_the_text_is_an_error(fake, client):
    fake.plan("POST", "comments", Fault(status=422, message="Body can't be blank"))
    with pytest.raises(GitHubInvalid, match="blank"):
        publish_comment(client, sticky())


def test_the_author_is_the_job_token_unless_told():
    assert sticky().author == BOT
    assert TOKEN
