"""Sequences of events around an intended change on the fake GitHub: none is green without the right to be."""

from dataclasses import replace

import pytest
from bound_results import CONFIG, GIGABYTE, bound, leave, written
from fake_github import Fault
from fake_github_events import BASE, HEAD, RUN, workflow_run
from fake_github_state import WORKFLOW, sha_of
from judge_builders import computed, off, peak, result

from ci_bench.commands.trusted.publishing import publish
from ci_bench.configuration.accepting import with_entry
from ci_bench.errors import ExitCode
from ci_bench.github.labels import ACCEPT
from ci_bench.records.acceptance import Accepted, AcceptedChange, Direction

FILE = "ci-bench-accepted.yml"
PUSHED, BEFORE, AFTER, LATER = (f"2030-01-01T12:0{minute}:00Z" for minute in (1, 0, 2, 3))
"""When the run of the newest push was created, and moments around it."""
ENTRY = AcceptedChange(
    kind=Accepted.METRIC,
    case="s/a",
    metric="peak_allocated",
    direction=Direction.HIGHER,
    bound="110%",
    reason="a larger cache",
    author="mallory",
    pull_request=7,
    expires="2999-01-01",
)
OUTPUTS = replace(ENTRY, kind=Accepted.OUTPUTS, metric=None, direction=None, bound=600_000)


def file_of(*entries):
    text = ""
    for one in entries:
        text = with_entry(text.encode(), one)
    return text.encode()


class Play:
    """Pull request 7 of a fork, whose head takes twice the memory of base."""

    def __init__(self, fake, job, flags, tmp_path):
        self.fake, self.state, self.job, self.flags, self.folder = (
            fake,
            fake.state,
            job,
            flags,
            tmp_path,
        )
        for ref in ("main", "release", HEAD):
            self.state.files[ref, WORKFLOW] = b"on: pull_request"
        self.state.roles = {
            "ada": "admin",
            "max": "maintain",
            "wil": "write",
            "tri": "triage",
            "rea": "read",
            "non": "none",
        }

    def pull(self, number=7, **fields):
        return self.state.add_pull(number, HEAD, **{"fork": True, "labels": [], **fields})

    def proposed(self, *entries):
        self.state.files[HEAD, FILE] = file_of(*(entries or (ENTRY,)))

    def merged(self, *entries, branch="main"):
        self.state.files[branch, FILE] = file_of(*(entries or (ENTRY,)))

    def label(self, login="wil", at=AFTER, event="labeled", name=ACCEPT, number=7, **more):
        self.state.add_event(number, event, at, login=login, label=name, **more)

    def measured(self, head=2 * GIGABYTE, attempt=1, outputs=(None, None), commit=HEAD, base=BASE):
        run = self.state.runs.get(RUN) or self.state.add_run(
            HEAD, id=RUN, event="pull_request", fork=True, created_at=PUSHED
        )
        self.state.runs[RUN] = run
        self.state.artifacts.clear()
        sizes = {
            "results.json": (head, commit, outputs[0]),
            "base/results.json": (GIGABYTE, base, outputs[1]),
        }
        members = {
            name: written(
                bound(
                    result(peak(size, size), id="s/a", outputs=kept), commit=sha, attempt=attempt
                ),
                self.folder,
            )
            for name, (size, sha, kept) in sizes.items()
        }
        leave(self.fake, members)

    def report(self, event=None, **given):
        self.job("workflow_run", event or workflow_run())
        code = publish(self.flags(**given))
        return code, [one["conclusion"] for one in self.state.checks.values()]

    def comment(self, number=7):
        (only,) = (text for text in self.state.texts_of(number) if text.startswith("<!-- ci-bench"))
        return only


@pytest.fixture
def play(fake, job, flags, tmp_path):
    return Play(fake, job, flags, tmp_path)


def nothing(play):
    """No entry anywhere."""


def only_proposed(play):
    play.proposed()


def only_label(play):
    play.label()


def labelled_by(login, **more):
    def act(play):
        play.proposed()
        play.label(login, **more)

    return act


def labelled_before_the_push(play):
    play.proposed()
    play.label(at=BEFORE)


def labelled_in_the_second_of_the_push(play):
    play.proposed()
    play.label(at=PUSHED)


def labelled_before_a_push_and_again_after(play):
    play.proposed()
    play.label(at=BEFORE)
    play.label(event="unlabeled", at=PUSHED)
    play.label("ada", at=AFTER)


def removed(play):
    play.proposed()
    play.label()
    play.label(event="unlabeled", at=LATER)


def set_and_removed_at_once(play):
    """The event is the last, whatever the pull request's own list of labels still says."""
    removed(play)
    example = play.state.add_event(7, "labeled", BEFORE, label=ACCEPT)
    play.state.events[7].remove(example)


def removed_with_the_label_itself(play):
    """A label that is deleted from the repository leaves no event."""
    play.proposed()
    play.label()
    play.state.pulls[7]["labels"] = []


def taken_over_by_a_stranger(play):
    """Someone with the role triage takes a right label off and sets it again: then it is theirs."""
    play.proposed()
    play.label()
    play.label("tri", event="unlabeled", at=LATER)
    play.label("tri", at=LATER)


def another_label(play):
    play.proposed()
    play.label(name="ci-bench: accepted")


def label_of_another_case(play):
    play.proposed()
    play.label(name=ACCEPT.upper())


def label_of_another_pull(play):
    play.proposed()
    play.pull(8, branch="other")
    play.label(number=8)


def words_in_a_comment(play):
    play.proposed()
    play.state.add_comment(7, f"/ci-bench accept\n{ACCEPT}", login="ada")
    play.state.add_comment(7, f"ada set the label {ACCEPT}", login="mallory")


def forced_after_the_label(play):
    play.proposed()
    play.label(at=AFTER)
    play.state.add_event(7, "head_ref_force_pushed", LATER, login="mallory")


def retargeted_after_the_label(play):
    play.proposed()
    play.label(at=AFTER)
    play.state.add_event(7, "base_ref_changed", LATER, login="mallory")


def reopened_after_the_label(play):
    """What was pushed to a closed pull request has no run until it is opened again."""
    play.proposed()
    play.label(at=AFTER)
    play.state.add_event(7, "reopened", LATER, login="mallory")


def back_and_forth(play):
    """The commit was measured early, replaced by another, which got the label, and pushed again."""
    play.proposed()
    play.label(at=AFTER)
    play.state.add_run(HEAD, event="pull_request", fork=True, created_at=LATER)


def with_a_workflow_of_its_own(play):
    """Started by other events: the run is older than the label, and the push after it has none."""
    play.proposed()
    play.label()
    play.state.files[HEAD, WORKFLOW] = b"on: {pull_request: {types: [edited]}}"


def with_a_new_workflow(play):
    play.proposed()
    play.label()
    del play.state.files["main", WORKFLOW]


def exceeded(play):
    play.proposed(replace(ENTRY, bound="90%"))
    play.label()


def merged_and_exceeded(play):
    play.merged(replace(ENTRY, bound="90%"))


def expired(play):
    play.proposed(replace(ENTRY, expires="2020-01-01"))
    play.label()


def merged_and_expired(play):
    play.merged(replace(ENTRY, expires="2020-01-01"))


def of_another_pull(play):
    play.merged(replace(ENTRY, pull_request=8))


def proposed_for_another_pull(play):
    play.proposed(replace(ENTRY, pull_request=8))
    play.label()


def of_another_metric(play):
    play.merged(replace(ENTRY, metric="peak_reserved"))


def of_another_direction(play):
    play.merged(replace(ENTRY, direction=Direction.LOWER))


def of_another_kind(play):
    play.merged(OUTPUTS)


def on_another_branch(play):
    play.merged(branch="release")


def broken(play):
    play.state.files["main", FILE] = file_of(ENTRY) + b"\nkinds: {all: true}\n"


def proposed_broken(play):
    play.state.files[HEAD, FILE] = file_of(ENTRY).replace(b"metric:", b"metrics:")
    play.label()


def without_events(play):
    play.proposed()
    play.label()
    play.fake.plan(
        "GET",
        "issues/7/events",
        *[Fault(status=403, message="Resource not accessible by integration")] * 9,
    )


def without_permissions(play):
    play.proposed()
    play.label()
    play.fake.plan("GET", "collaborators/wil", *[Fault(status=500, message="oops")] * 9)


def without_runs(play):
    play.proposed()
    play.label()
    play.fake.routes.table["GET", "actions/runs"] = lambda *_: (500, {"message": "oops"})


def by_an_app(play):
    play.proposed()
    play.state.roles["github-actions[bot]"] = "write"
    play.label("github-actions[bot]", kind="Bot")


NOT_GREEN = {
    "nothing is accepted": nothing,
    "an entry on head's branch, no label": only_proposed,
    "a label, no entry": only_label,
    "the label of a stranger": labelled_by("mallory"),
    "the label of the role triage": labelled_by("tri"),
    "the label of the role read": labelled_by("rea"),
    "the label of someone who has lost all rights": labelled_by("non"),
    "the label of an app": by_an_app,
    "the label came before the push": labelled_before_the_push,
    "the label came in the second of the push": labelled_in_the_second_of_the_push,
    "the label was removed while measuring": removed,
    "a list of labels that is out of date": set_and_removed_at_once,
    "the label was deleted": removed_with_the_label_itself,
    "triage sets the label of another again": taken_over_by_a_stranger,
    "a label of another name": another_label,
    "a label in capitals": label_of_another_case,
    "the label of another pull request": label_of_another_pull,
    "words in comments": words_in_a_comment,
    "a force-push after the label": forced_after_the_label,
    "another base after the label": retargeted_after_the_label,
    "reopened after the label": reopened_after_the_label,
    "pushed away and back": back_and_forth,
    "head changes the measuring workflow": with_a_workflow_of_its_own,
    "head adds a measuring workflow": with_a_new_workflow,
    "the bound is exceeded": exceeded,
    "the bound of a merged entry is exceeded": merged_and_exceeded,
    "the entry has expired": expired,
    "a merged entry has expired": merged_and_expired,
    "a merged entry of another pull request": of_another_pull,
    "a label, and an entry for another pull request": proposed_for_another_pull,
    "an entry for another metric": of_another_metric,
    "an entry for another direction": of_another_direction,
    "an entry for outputs": of_another_kind,
    "an entry on another branch": on_another_branch,
    "a broken file on the base branch": broken,
    "a broken file on head's branch": proposed_broken,
    "GitHub does not tell events": without_events,
    "GitHub does not tell permissions": without_permissions,
    "GitHub does not tell runs": without_runs,
}


WHY = {
    "an entry on head's branch, no label": "has entries that do not count (peak_allocated of s/a): the label is not set",
    "the label of the role triage": "tri set the label, who has no write access",
    "the label came before the push": "the label is older than the last push or run",
    "head changes the measuring workflow": "the measuring workflow (.github/workflows/ci-bench.yml) differs from that of main",
    "the bound is exceeded": "accepted up to 90 %, and the change is larger",
    "the entry has expired": "accepted until 2020-01-01, which has passed",
    "a broken file on the base branch": "none of its entries counts",
    "GitHub does not tell events": "no accepted change counts",
}
"""What the comment says, for some of them."""


@pytest.mark.parametrize("name", NOT_GREEN)
def test_nothing_is_green_without_the_right(play, name):
    play.pull()
    NOT_GREEN[name](play)
    play.measured()
    assert play.report() == (ExitCode.POLICY_NOT_MET, ["failure"])
    comment = play.comment().replace("\\", "").replace("\u200b", "")
    assert "### ❌ Failed" in comment
    assert WHY.get(name, "") in comment


GREEN = {
    "an entry that a merge put on the base branch": lambda play: play.merged(),
    "the label of the role write": labelled_by("wil"),
    "the label of the role maintain": labelled_by("max"),
    "the label of the role admin": labelled_by("ada"),
    "the label, set again after a push": labelled_before_a_push_and_again_after,
}


@pytest.mark.parametrize("act", GREEN.values(), ids=GREEN)
def test_an_accepted_change_is_green(play, act):
    play.pull()
    act(play)
    play.measured()
    assert play.report() == (ExitCode.OK, ["success"])
    assert "accepted up to 110 %" in play.comment()
    assert "1 change accepted" in play.comment()


def test_the_comment_names_who_set_the_label(play):
    play.pull()
    labelled_by("wil")(play)
    play.measured()
    play.report()
    assert "by wil, by label (a larger cache)" in play.comment()
    assert "mallory" not in play.comment(), "whoever wrote the entry has no say"


def test_a_failing_change_comes_with_its_command(play):
    play.pull()
    play.measured()
    play.report()
    assert (
        "ci-bench accept s/a --metric peak_allocated --bound 130% --pull-request 7 --reason"
        in play.comment()
    )


def test_an_entry_that_is_not_needed_is_reported(play):
    play.pull()
    play.merged()
    play.measured(head=GIGABYTE)
    assert play.report() == (ExitCode.OK, ["success"])
    assert "accepted, but nothing got worse; remove the entry" in play.comment()


def test_taking_the_label_off_makes_a_report_red_again(play):
    play.pull()
    labelled_by("wil")(play)
    play.measured()
    assert play.report() == (ExitCode.OK, ["success"])
    play.label(event="unlabeled", at=LATER)
    assert play.report() == (ExitCode.POLICY_NOT_MET, ["failure"])


def test_a_label_after_the_report_makes_it_green(play):
    play.pull()
    play.proposed()
    play.measured()
    assert play.report() == (ExitCode.POLICY_NOT_MET, ["failure"])
    play.label()
    assert play.report() == (ExitCode.OK, ["success"])
    assert len(play.state.texts_of(7)) == 1


def test_two_pull_requests_at_once(play):
    """One head into two branches, accepted in one of them: the commit's check is the stricter one."""
    play.state.branches["release"] = BASE
    play.state.files["release", "ci-bench.yml"] = CONFIG.encode()
    play.pull(7)
    play.pull(8, base="release")
    play.proposed()
    play.label()
    play.measured()
    assert play.report() == (ExitCode.POLICY_NOT_MET, ["failure"])
    assert "✅" in play.comment(7)
    assert "❌" in play.comment(8)


def changed_outputs():
    return off("other", (0.5, 1e-6)), computed("base")


def test_outputs_are_accepted_by_their_own_name(play):
    play.pull()
    play.merged(OUTPUTS)
    play.measured(head=GIGABYTE, outputs=changed_outputs())
    assert play.report() == (ExitCode.OK, ["success"])
    play.measured(head=2 * GIGABYTE, outputs=changed_outputs())
    assert play.report() == (ExitCode.POLICY_NOT_MET, ["failure"]), "the metric has no entry"


def test_outputs_beyond_their_bound_fail(play):
    play.pull()
    play.merged(replace(OUTPUTS, bound=400_000))
    play.measured(head=GIGABYTE, outputs=changed_outputs())
    assert play.report() == (ExitCode.POLICY_NOT_MET, ["failure"])


GROUP = f"gh-readonly-queue/main/pr-7-{BASE}"


@pytest.mark.parametrize(
    ("act", "wanted"),
    [(labelled_by("wil"), "success"), (labelled_by("tri"), "failure"), (only_proposed, "failure")],
)
def test_a_merge_queue_keeps_what_was_accepted(play, act, wanted):
    play.pull()
    act(play)
    play.state.add_run(HEAD, event="pull_request", fork=True, created_at=PUSHED)
    play.measured()
    play.state.runs[RUN]["event"] = "merge_group"
    _, conclusions = play.report(workflow_run(event="merge_group", fork=False, branch=GROUP))
    assert conclusions == [wanted]


@pytest.mark.parametrize(
    ("merged", "commit", "wanted"),
    [(True, HEAD, "success"), (True, sha_of("another"), "failure"), (False, HEAD, "failure")],
)
def test_a_push_keeps_what_its_merge_accepted(play, merged, commit, wanted):
    play.state.history.insert(0, HEAD)
    play.pull(state="closed", merged=merged, merge_commit_sha=commit)
    play.proposed()
    play.measured()
    _, conclusions = play.report(workflow_run(event="push", fork=False, branch="main"))
    assert conclusions == [wanted]


def test_an_entry_on_a_branch_of_its_own_rules_counts_for_nothing(play):
    play.pull(state="closed", merged=True, merge_commit_sha=HEAD)
    play.proposed()
    play.merged()
    play.state.files["feature", "ci-bench.yml"] = CONFIG.encode()
    play.measured()
    _, conclusions = play.report(workflow_run(event="push", fork=False, branch="feature"))
    assert conclusions == ["failure"]
