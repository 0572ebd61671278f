"""Sequences of events around a requested run on the fake GitHub: none measures without the right to."""

import re
from dataclasses import replace

import cmarkgfm
import pytest
from bound_results import CONFIG, GIGABYTE, bound, written
from fake_github import Fault
from fake_github_events import BASE, HEAD, RUN, issue_comment, pull_request
from fake_github_state import WORKFLOW, sha_of
from judge_builders import peak, result

from ci_bench.commands.trusted.answer_request import answer_request, starts_on_pushes
from ci_bench.commands.trusted.publishing import announce, fetch_config, publish
from ci_bench.errors import ExitCode, GitHubFailed, NotOnGitHub
from ci_bench.github.comments import read_marker

TWO = CONFIG.replace("[s/a]", "[s/a, s/b]")
COMMAND = "/ci-bench run"
OPENED, BEFORE, PUSHED, AFTER, LATER = (f"2030-01-01T12:0{minute}:00Z" for minute in range(5))
"""When the pull request was opened, its newest push was run, the comment was written, and others."""
LOCKED = "Unable to create comment because issue is locked."


class Play:
    """Pull request 7 of a fork, with a run of its newest push and a gate's comment and check."""

    def __init__(self, fake, job, flags, tmp_path):
        self.fake, self.state, self.job, self.flags, self.folder = (
            fake,
            fake.state,
            job,
            flags,
            tmp_path,
        )
        self.state.roles = {
            "ada": "admin",
            "max": "maintain",
            "wil": "write",
            "tri": "triage",
            "rea": "read",
            "non": "none",
        }
        for ref in ("main", HEAD):
            self.state.files[ref, WORKFLOW] = b"on: pull_request"
            self.state.files[ref, "ci-bench.yml"] = TWO.encode()
        self.pull = self.state.add_pull(7, HEAD, fork=True, created_at=OPENED, mergeable=True)
        self.gates_run = self.pushed(PUSHED)
        self.comment = None

    def pushed(self, at, sha=HEAD, **fields):
        given = {"event": "pull_request", "head_branch": "feature", "fork": True, "created_at": at}
        return self.state.add_run(sha, **{**given, **fields})

    def moved(self, event, at=LATER):
        self.state.add_event(7, event, at, login="mallory")

    def says(self, body=COMMAND, *, login="wil", at=AFTER, kind="User"):
        self.comment = self.state.add_comment(7, body, login=login, created_at=at, updated_at=at)
        self.comment["user"]["type"] = kind
        return self.comment

    def answer(self, comment=None, *, run=RUN, attempt=1, **event):
        """Run `answer-request` for a comment; its exit code and its outputs."""
        event = issue_comment(comment or self.comment or self.says(), **event)
        (self.folder / "output").unlink(missing_ok=True)
        self.job("issue_comment", event, GITHUB_RUN_ID=str(run), GITHUB_RUN_ATTEMPT=str(attempt))
        return answer_request(self.flags()), self.outputs()

    def outputs(self):
        path = self.folder / "output"
        text = path.read_text() if path.exists() else ""
        return {
            name: value[:-1]
            for name, _, value in re.findall(r"(?m)^(\w+)<<(.*)\n((?:.*\n)*?)\2$", text)
        }

    def measure(
        self, granted, *, run=RUN, ids=("s/a", "s/b"), size=1, commit=HEAD, base=None, **asked
    ):
        """Leave what the measuring job leaves, by the outputs of the answer."""
        filters = tuple(granted["filter"].split())
        asked = {
            **({"filter": filters} if filters else {}),
            "base": (granted["base_sha"],),
            **asked,
        }
        sides = {
            "results.json": (size, commit),
            "base/results.json": (1, base or granted["base_sha"]),
        }
        rows = {
            count: [result(peak(count * GIGABYTE, count * GIGABYTE), id=one) for one in ids]
            for count in (1, size)
        }
        members = {
            name: written(
                bound(*rows[count], commit=sha, config=TWO, run=run, asked=asked), self.folder
            )
            for name, (count, sha) in sides.items()
        }
        self.state.runs[run] = self.state.add_run(sha_of("main 0"), id=run, event="issue_comment")
        self.state.add_artifact(self.state.runs[run], members, name="ci-bench")

    def report(self, granted, *, run=RUN, **given):
        """Run `publish` for the last comment."""
        self.job("issue_comment", issue_comment(self.comment), GITHUB_RUN_ID=str(run))
        words = tuple(granted["filter"].split())
        return publish(self.flags(head=granted["head_sha"], filter=words, **given))

    def ours(self):
        """Our comments, by the first part of their keys."""
        marked = [(read_marker(text), text) for text in self.state.texts_of(7)]
        return {marker.key: text for marker, text in marked if marker}

    def verdict(self):
        return self.ours()[f"request-{self.comment['id']}"].replace("\\", "").replace("\u200b", "")

    def told(self):
        """The only comment of ours, as people read it."""
        (text,) = self.ours().values()
        return text.replace("\\", "").replace("\u200b", "")


@pytest.fixture
def play(fake, job, flags, tmp_path):
    return Play(fake, job, flags, tmp_path)


# Who is ignored


def said_by(login, **more):
    return lambda play: play.says(login=login, **more)


def saying(body):
    return lambda play: play.says(body)


def deleted(play):
    del play.state.comments[play.says()["id"]]


IGNORED = {
    "a stranger": said_by("mallory"),
    "a stranger with a filter for a shell": said_by("mallory", body=f"{COMMAND} $(id)"),
    "the role triage": said_by("tri"),
    "a collaborator with read": said_by("rea"),
    "someone who has lost all rights": said_by("non"),
    "an app": said_by("wil", kind="Bot"),
    "a deleted comment": deleted,
    "another command": saying("/ci-bench runs"),
    "a command of another tool": saying("/ci-bench-other run"),
    "words before the command": saying(f"please {COMMAND}"),
    "a space before the command": saying(f" {COMMAND}"),
    "the command in the second line": saying(f"please\n{COMMAND}"),
    "a quoted command": saying(f"> {COMMAND}"),
    "other letters": saying(COMMAND.upper()),
    "nothing": saying(""),
}


@pytest.mark.parametrize("act", IGNORED.values(), ids=IGNORED)
def test_nobody_else_gets_an_answer(play, act):
    act(play)
    assert play.answer() == (ExitCode.OK, {"allowed": "false"})
    assert play.ours() == {}
    assert play.fake.paths("POST") == play.fake.paths("PATCH") == []


@pytest.mark.parametrize("event", [{"on_pull": False}, {"action": "edited"}, {"action": "deleted"}])
def test_only_new_comments_on_pull_requests_count(play, event):
    assert play.answer(**event) == (ExitCode.OK, {"allowed": "false"})
    assert play.fake.seen == []


def test_a_stranger_costs_one_request(play):
    play.says(login="mallory")
    play.answer()
    assert play.fake.paths() == ["collaborators/mallory/permission"]


# What is not measured, and why


def edited(play):
    play.says(f"{COMMAND} s/a")["updated_at"] = LATER


def edited_meanwhile(play):
    event = dict(play.says())
    play.comment["body"] = f"{COMMAND} s/b"
    play.comment = event


def given(**fields):
    return lambda play: play.pull.update(fields)


def pushed_later(play):
    """Head was replaced after the comment by a commit whose run is newer."""
    play.gates_run["created_at"] = LATER


def pushed_in_the_same_second(play):
    play.gates_run["created_at"] = AFTER


def pushed_back(play):
    """Measured early, replaced by what the person saw, and pushed again."""
    play.pushed(LATER)


def pushed_back_without_a_run(play):
    """Measured early, replaced by force, and pushed again after the comment by what starts no run."""
    play.gates_run["created_at"] = BEFORE
    play.moved("head_ref_force_pushed", PUSHED)


def run_before_the_pull(play):
    play.gates_run["created_at"] = "2029-12-31T12:00:00Z"


def moved(event):
    return lambda play: play.moved(event)


def replaced_meanwhile(play):
    asked = []

    def on_request(seen):
        if seen.path.endswith("pulls/7"):
            asked.append(seen)
        if len(asked) == 2:
            play.pull["head"]["sha"] = sha_of("evil")

    play.fake.when_seen = on_request


def with_another_workflow(play):
    play.state.files[HEAD, WORKFLOW] = b"on: [pull_request, push]"


def with_a_new_workflow(play):
    del play.state.files["main", WORKFLOW]


def workflow_of_openings(play):
    for ref in ("main", HEAD):
        play.state.files[ref, WORKFLOW] = b"on: {pull_request: {types: [opened]}}"


def without_a_run(play):
    play.state.runs.clear()


def run_of(**fields):
    """Another pull request has the same head, and only its push has a run."""

    def act(play):
        play.state.runs.clear()
        play.pushed(PUSHED, **fields)

    return act


def without_a_fork(play):
    play.pull["head"]["repo"] = None


def without_configuration(play):
    del play.state.files["main", "ci-bench.yml"]


def with_a_broken_configuration(play):
    play.state.files["main", "ci-bench.yml"] = b"suites: {}"


DECLINED = {
    "an edited comment": (edited, "the comment was edited; write a new one"),
    "a comment that is edited meanwhile": (edited_meanwhile, "the comment was edited"),
    "a closed pull request": (given(state="closed"), "pull request 7 is closed"),
    "a head that was pushed after the comment": (
        pushed_later,
        "is newer than the comment; look at it",
    ),
    "a head that was pushed in the same second": (
        pushed_in_the_same_second,
        "is newer than the comment",
    ),
    "a head that was pushed away and back": (pushed_back, "is newer than the comment"),
    "pushed away, and back without a run": (pushed_back_without_a_run, "no run shows that"),
    "a run from before the pull request": (run_before_the_pull, "no run shows when"),
    "a pull request with conflicts": (given(mergeable=False), "GitHub cannot merge this into main"),
    "a merge that GitHub has not tried": (
        given(mergeable=None),
        "GitHub cannot merge this into main",
    ),
    "a force-push after the comment": (moved("head_ref_force_pushed"), "is newer than the comment"),
    "another base after the comment": (moved("base_ref_changed"), "is newer than the comment"),
    "closed, pushed and reopened after the comment": (
        moved("reopened"),
        "is newer than the comment",
    ),
    "another head while we ask": (replaced_meanwhile, "has moved on to another commit"),
    "head changes the workflow of its runs": (with_another_workflow, "no run shows when"),
    "head adds the workflow of its runs": (with_a_new_workflow, "no run shows when"),
    "a workflow that not each push starts": (workflow_of_openings, "no run shows when"),
    "no run": (without_a_run, "no run shows when"),
    "a run of another branch": (run_of(head_branch="other"), "no run shows when"),
    "a run of another repository": (run_of(fork=False), "no run shows when"),
    "a deleted fork": (without_a_fork, "no run shows when"),
    "a command in a filter": (saying(f"{COMMAND} s/a;id"), "a filter is made of letters"),
    "a substitution": (saying(f"{COMMAND} $(id)"), "a filter is made of letters"),
    "quotes": (saying(f"{COMMAND} `id` \"'"), "a filter is made of letters"),
    "an expression of GitHub": (
        saying(COMMAND + " ${{github.token}}"),
        "a filter is made of letters",
    ),
    "a flag": (saying(f"{COMMAND} --fleet=ray"), "a filter is made of letters"),
    "a tab": (saying(f"{COMMAND} s/a\ts/b"), "a filter is made of letters"),
    "letters that look like others": (saying(f"{COMMAND} \u0455/a"), "a filter is made of letters"),
    "a long filter": (saying(f"{COMMAND} {'x' * 201}"), "a filter is made of letters"),
    "many filters": (saying(f"{COMMAND} {'s ' * 21}"), "a request has at most 20"),
    "a filter of no case": (saying(f"{COMMAND} other"), "no case of ci-bench.yml matches other"),
    "a base without a configuration": (without_configuration, "main has no ci-bench.yml"),
    "a broken configuration": (with_a_broken_configuration, "ci-bench.yml"),
}


@pytest.mark.parametrize(("act", "why"), DECLINED.values(), ids=DECLINED)
def test_what_is_not_measured_is_answered(play, act, why):
    act(play)
    assert play.answer() == (ExitCode.OK, {"allowed": "false"})
    assert "### Not measured" in play.told()
    assert why in play.told()
    assert (play.fake.state.checks, play.fake.state.statuses) == ({}, [])


SILENT_API = {
    "permissions": "collaborators/wil",
    "the comment": "issues/comments",
    "the pull request": "pulls/7",
    "events": "issues/7/events",
    "runs": "actions/runs",
    "the configuration": "contents/ci-bench.yml",
}


@pytest.mark.parametrize("path", SILENT_API.values(), ids=SILENT_API)
@pytest.mark.parametrize("status", [403, 500])
def test_nothing_is_measured_without_an_answer_of_github(play, path, status):
    play.says()
    play.fake.plan(
        "GET", path, *[Fault(status=status, message="Resource not accessible by integration")] * 9
    )
    with pytest.raises(GitHubFailed):
        play.answer()
    assert "allowed" not in play.outputs()


@pytest.mark.parametrize(
    ("words", "code"),
    [("Resource not accessible by integration", ExitCode.GITHUB), (LOCKED, ExitCode.OK)],
)
def test_nothing_is_measured_if_github_refuses_the_answer(play, words, code):
    play.fake.plan("POST", "comments", Fault(status=403, message=words))
    assert play.answer() == (code, {"allowed": "false"})


def test_hostile_words_reach_no_page_and_no_log(play, capsys):
    hostile = f"{COMMAND} <img onerror=alert(1)>-->|`@org/team`::error::x\u202e ##[set-output name=v]x www.evil.example"
    play.says(hostile)
    play.answer()
    (text,) = play.ours().values()
    page = cmarkgfm.github_flavored_markdown_to_html(text)
    assert "onerror" in page, "shown as code"
    assert not re.search(r"<(img|script|a)\b|<p>[^<]*@org", page)
    printed = capsys.readouterr()
    assert not re.search(r"(?m)^\s*::|##\[|\u202e", printed.out + printed.err)


def test_another_event_is_refused(play):
    play.job("pull_request", pull_request())
    with pytest.raises(NotOnGitHub, match="for workflows on `issue_comment`"):
        answer_request(play.flags())


# What is measured


@pytest.mark.parametrize("login", ["wil", "max", "ada"])
@pytest.mark.parametrize("fork", [True, False])
def test_a_person_with_write_access_gets_a_run(play, login, fork):
    play.state.runs.clear()
    play.state.add_pull(7, HEAD, fork=fork, created_at=OPENED, mergeable=True)
    play.pushed(PUSHED, fork=fork)
    play.says(f"{COMMAND}\r\nso that we know", login=login)
    granted = {
        "allowed": "true",
        "pull_number": "7",
        "head_sha": HEAD,
        "base_sha": BASE,
        "filter": "",
    }
    assert play.answer() == (ExitCode.OK, granted)
    assert f"Requested by `{login}`" in play.told()
    assert "### Measuring on request: 2 cases\n" in play.told()
    assert "- `s/a`\n- `s/b`" in play.told()
    assert "shows how long this takes" in play.told()


@pytest.mark.parametrize("second", ["01:58", "02:00", "02:04"])
def test_a_force_push_before_the_comment_is_seen(play, second):
    """Its event may be dated a little later than its run."""
    play.moved("head_ref_force_pushed", f"2030-01-01T12:{second}Z")
    assert play.answer()[1]["allowed"] == "true"


def test_a_merge_is_waited_for(play):
    """GitHub computes it when it is asked."""
    play.pull["mergeable"] = None
    asked = []

    def on_request(seen):
        asked.append(seen.path.endswith("pulls/7"))
        if sum(asked) == 4:
            play.pull["mergeable"] = True

    play.fake.when_seen = on_request
    assert play.answer()[1]["allowed"] == "true"


@pytest.mark.parametrize(
    ("words", "filters", "shown"),
    [
        ("s/a", "s/a", "1 case"),
        (" s/a   s/b  ", "s/a\ns/b", "2 cases"),
        ("b", "b", "1 case"),
    ],
)
def test_words_choose_cases(play, words, filters, shown):
    play.says(f"{COMMAND} {words}")
    _, granted = play.answer()
    assert granted["filter"] == filters
    assert f"### Measuring on request: {shown}\n" in play.told()


def test_ten_cases_are_named(play):
    ids = [f"s/{number:02}" for number in range(14)]
    play.state.files["main", "ci-bench.yml"] = TWO.replace("s/a, s/b", ", ".join(ids)).encode()
    play.answer()
    assert "Measuring on request: 14 cases" in play.told()
    assert "- `s/09`\n- and 4 more" in play.told()


@pytest.mark.parametrize(
    ("cases", "words", "shown"),
    [
        ("cases: 5", "", "Measuring on request: 5 cases\n"),
        (
            "cases: 5",
            " s/a",
            "Measuring on request: the cases of `plugins.s` that only the tree plans\n",
        ),
    ],
)
def test_cases_that_only_the_tree_plans_are_named(play, cases, words, shown):
    play.state.files["main", "ci-bench.yml"] = TWO.replace("cases: [s/a, s/b]", cases).encode()
    play.says(f"{COMMAND}{words}")
    play.answer()
    assert shown in play.told()


def earlier(
    play, *, seconds, ids=("s/a", "s/b"), name="ci-bench", branch="feature", fork=True, **more
):
    rows = (replace(result(peak(1, 1), id=one), duration_s=seconds) for one in ids)
    run = play.state.add_run(sha_of("earlier"), head_branch=branch, fork=fork)
    content = more.pop("content", None) or written(bound(*rows, config=TWO), play.folder)
    return play.state.add_artifact(run, {"results.json": content}, name=name, **more)[
        "workflow_run"
    ]["id"]


def test_the_time_comes_from_this_pull_requests_last_run(play):
    earlier(play, seconds=30, branch="main", fork=False, name="ci-bench-baseline", created_at=LATER)
    earlier(play, seconds=60, created_at=BEFORE)
    run = earlier(play, seconds=45, created_at=PUSHED)
    play.answer()
    assert f"It takes about 3 minutes, as in run {run}, and the set-up." in play.told()


@pytest.mark.parametrize(("words", "minutes"), [("", "2 minutes"), (" s/a", "1 minute,")])
def test_the_time_comes_from_base(play, words, minutes):
    earlier(play, seconds=30, branch="main", fork=False, name="ci-bench-baseline")
    play.says(f"{COMMAND}{words}")
    play.answer()
    assert f"about {minutes}" in play.told()


@pytest.mark.parametrize(
    "given",
    [
        {"branch": "other"},
        {"expired": True},
        {"ids": ("s/a",)},
        {"content": "{}"},
        {"content": "x" * 10**6},
    ],
)
def test_other_results_give_no_time(play, given):
    earlier(play, **{"seconds": 30, **given})
    _, granted = play.answer()
    assert granted["allowed"] == "true"
    assert "shows how long this takes" in play.told()


def test_a_second_attempt_updates_the_answer(play):
    play.answer()
    play.pushed(LATER)
    assert play.answer(attempt=2) == (ExitCode.OK, {"allowed": "false"})
    assert "### Not measured" in play.told()


# The verdict


def gated(play):
    """A gate has commented and set its check."""
    play.state.add_comment(
        7, f"<!-- ci-bench:v1 key=default run=1 attempt=1 head={HEAD} -->\n\n### Passed"
    )
    play.state.add_check(
        {"name": "ci-bench", "head_sha": HEAD, "status": "completed", "conclusion": "success"}
    )
    return repr((play.state.comments_of(7)[0], play.state.checks))


@pytest.mark.parametrize("given", [{}, {"key": "default"}])
@pytest.mark.parametrize(
    ("size", "code", "icon"), [(1, ExitCode.OK, "✅"), (2, ExitCode.POLICY_NOT_MET, "❌")]
)
def test_a_verdict_gates_nothing(play, given, size, code, icon):
    before = gated(play)
    play.says(f"{COMMAND} s/a")
    _, granted = play.answer()
    play.measure(granted, ids=("s/a",), size=size)
    assert play.report(granted, **given) == code
    key = play.comment["id"]
    assert {*play.ours()} == {"default", f"answer-{key}", f"request-{key}"}
    assert icon in play.verdict()
    assert (
        "_Measured on request of the cases that match `s/a`. This run gates nothing._"
        in play.verdict()
    )
    assert "measured only" not in play.verdict(), "that is what was requested"
    assert repr((play.state.comments_of(7)[0], play.state.checks)) == before
    assert play.state.statuses == []


def test_two_requests_at_once_have_an_answer_and_a_verdict_each(play):
    comments = [play.says(f"{COMMAND} s/{name}") for name in "ab"]
    runs = [RUN, RUN + 1]
    granted = [
        play.answer(comment, run=run)[1] for comment, run in zip(comments, runs, strict=True)
    ]
    for index in (1, 0):
        play.comment = comments[index]
        play.measure(granted[index], run=runs[index], ids=(f"s/{'ab'[index]}",))
        assert play.report(granted[index], run=runs[index]) == ExitCode.OK
    ours = play.ours()
    assert len(ours) == 4
    for comment, name in zip(comments, "ab", strict=True):
        assert f"match `s/{name}`" in ours[f"request-{comment['id']}"]


def test_results_of_fewer_cases_than_requested_fail(play):
    _, granted = play.answer()
    play.measure(granted, ids=("s/a",), filter=("s/a",))
    assert play.report(granted) == ExitCode.POLICY_NOT_MET
    assert (
        "the workflow measured only 0 of 0 cases of the suites that are planned here (--filter s/a)"
        in play.verdict()
    )


@pytest.mark.parametrize("of", [{"base": sha_of("main 3")}, {"commit": sha_of("other")}])
def test_results_of_other_commits_are_refused(play, of):
    for ref in ("main", HEAD):
        play.state.files[ref, "ci-bench.yml"] = (
            f"{TWO}policy: {{severities: {{narrowed: warn}}}}\n".encode()
        )
    _, granted = play.answer()
    more = {"base": of["base"]} if "base" in of else {}
    play.measure(
        {**granted, **({"base_sha": of["base"]} if more else {})},
        commit=of.get("commit", HEAD),
        **more,
    )
    assert play.report(granted) == ExitCode.BAD_INPUT
    assert "source.commit" in play.verdict()


@pytest.mark.parametrize("after", [{"state": "closed"}, {"head": None}])
def test_a_run_that_nobody_needs_any_more_has_no_verdict(play, after):
    _, granted = play.answer()
    play.measure(granted)
    if after.get("state"):
        play.pull["state"] = "closed"
    else:
        play.pull["head"]["sha"] = sha_of("newer")
    assert play.report(granted) == ExitCode.POLICY_NOT_MET
    assert "### Not judged" in play.verdict()
    assert (play.state.checks, play.state.statuses) == ({}, [])


def test_a_run_without_results_says_so(play):
    _, granted = play.answer()
    assert play.report(granted) == ExitCode.MEASURING_FAILED
    assert "No verdict" in play.verdict()


def test_the_measuring_job_gets_the_base_branchs_configuration(play):
    _, granted = play.answer()
    play.state.files[HEAD, "ci-bench.yml"] = b"schema_version: 1"
    play.job("issue_comment", issue_comment(play.comment))
    assert fetch_config(play.flags(head=granted["head_sha"])) == ExitCode.OK
    assert (play.folder / "out" / "ci-bench.yml").read_text() == TWO


@pytest.mark.parametrize("command", [publish, announce, fetch_config])
@pytest.mark.parametrize("head", [None, "main", "0" * 40])
def test_without_a_granted_commit_nothing_is_done(play, command, head):
    """A comment's event stands for the default branch, whose checks are not the request's."""
    play.job("issue_comment", issue_comment(play.says()))
    with pytest.raises(NotOnGitHub, match="a comment names no commit"):
        command(play.flags(head=head))


def test_a_comment_on_an_issue_is_not_judged(play):
    play.job("issue_comment", issue_comment(play.says(), on_pull=False))
    with pytest.raises(NotOnGitHub, match="no comment on a pull request"):
        publish(play.flags(head=HEAD))


# Workflows that date pushes


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("on: pull_request", True),
        ("on: [push, pull_request]", True),
        ("on:\n  pull_request:\n", True),
        ("on: {pull_request: {types: [opened, synchronize]}}", True),
        ("on: {pull_request: {branches: [main]}}", True),
        ("on: {pull_request: {types: synchronize}}", True),
        ("on: {pull_request: {types: [opened, labeled]}}", False),
        ("on: pull_request_target", False),
        ("on: {push: {}}", False),
        ("name: x", False),
        ("on: [", False),
        ("", False),
    ],
)
def test_only_workflows_that_each_push_starts_date_pushes(text, starts):
    assert starts_on_pushes(text.encode()) is starts
