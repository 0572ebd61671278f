"""What becomes of a run, whatever happens to it and its pull request: the table of docs/internals/outcomes.md, played row by row."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from bound_results import CONFIG, GIGABYTE, bound, leave, written
from fake_github import Fault
from fake_github_events import BASE, HEAD, RUN, payload, pull_request, workflow_run
from fake_github_events import merge_group as merge_group_event
from fake_github_state import FORK_ID, sha_of
from judge_builders import metric, peak, result, sampled

from ci_bench.commands.trusted.publishing import announce, publish
from ci_bench.errors import ExitCode
from ci_bench.judge.times.calibration import fingerprint
from ci_bench.records.calibration import Calibration, PastRun, PastSeries
from ci_bench.records.results import Check, Outcome, Status

DOCS = Path(__file__).parents[2] / "docs" / "internals" / "outcomes.md"
GROUP, MERGE, RELEASE = f"gh-readonly-queue/main/pr-7-{BASE}", sha_of("merge"), sha_of("release 0")
STRICT = f"{CONFIG}policy: {{severities: {{regressed: fail}}}}\n"
LOOSE = f"{CONFIG}policy: {{severities: {{regressed: note, inconclusive: note}}}}\n"


class Play:
    """One run of a fork's pull request 7, as GitHub and the run have left it, and the flags of the half that reports."""

    def __init__(self, fake, job, flags, tmp_path):
        self.fake, self.state, self.job, self.flags, self.folder = (
            fake,
            fake.state,
            job,
            flags,
            tmp_path,
        )

    def pull(self, number=7, **fields):
        return self.state.add_pull(number, HEAD, **{"fork": True, **fields})

    def measured(
        self,
        *,
        head=GIGABYTE,
        base=GIGABYTE,
        base_commit=BASE,
        case="s/a",
        name="ci-bench",
        noisy=False,
        **of,
    ):
        sides = {
            "results.json": (head, of),
            "base/results.json": (base, {**of, "commit": base_commit}),
        }
        members = {
            name: written(
                bound(result(peak(size, 2 * size if noisy else size), id=case), **fields),
                self.folder,
            )
            for name, (size, fields) in sides.items()
        }
        leave(self.fake, members, name=name)

    def report(self, event=None, **given):
        self.job("workflow_run", event or workflow_run())
        return publish(self.flags(**given))

    def branch(self, name, text, commit=BASE):
        self.state.branches[name] = commit
        self.state.files[name, "ci-bench.yml"] = text.encode()


def fine(play):
    play.pull()
    play.measured()
    return play.report()


def undecided(play):
    play.pull()
    play.measured(noisy=True)
    return play.report()


def worse(play):
    play.pull()
    play.measured(head=2 * GIGABYTE)
    return play.report()


def two_bases(play):
    play.branch("release", STRICT)
    play.branch("main", LOOSE)
    play.pull(7)
    play.pull(8, base="release")
    play.measured(head=2 * GIGABYTE)
    return play.report()


def two_bases_one_measured(play):
    play.branch("release", CONFIG, RELEASE)
    play.state.commits[RELEASE] = [play.state.history[5]]
    play.pull(7)
    play.pull(8, base="release")
    play.measured()
    return play.report()


def two_forks(play):
    play.pull()
    other = play.pull(8)
    other["head"]["repo"]["id"] = FORK_ID + 1
    play.measured()
    return play.report()


def closed(play):
    play.pull(state="closed")
    play.measured()
    return play.report()


def moved_on(play):
    play.state.add_pull(7, sha_of("newer"), fork=True)
    play.measured()
    return play.report()


def deleted_fork(play):
    play.pull()
    play.measured()
    return play.report(workflow_run(deleted=True))


def retargeted(play):
    play.branch("release", CONFIG, RELEASE)
    play.state.commits |= {RELEASE: [play.state.history[5]], MERGE: [BASE, HEAD]}
    play.pull(base="release")
    play.measured(commit=MERGE)
    return play.report()


def re_run(play):
    play.pull()
    play.measured(attempt=1)
    return play.report(workflow_run(attempt=2, conclusion="failure"))


def ended(conclusion):
    def play_it(play):
        play.pull()
        return play.report(workflow_run(conclusion=conclusion))

    return play_it


def merge_group(play):
    play.measured()
    return play.report(workflow_run(event="merge_group", fork=False, branch=GROUP))


def another_commit(play):
    play.pull()
    play.measured(commit=BASE)
    return play.report()


def other_cases(play):
    play.branch("main", CONFIG.replace("[s/a]", "[s/a, s/b]"))
    play.pull()
    play.measured()
    return play.report()


def chosen_cases(play):
    play.pull()
    play.measured(asked={"filter": ("s/a",)})
    return play.report()


def invented_machine(play):
    play.pull()
    play.measured(name="ci-bench-invented")
    return play.report(artifact="ci-bench-*", machines=("h200",))


FUNCTIONS = "schema_version: 1\nsuites:\n  functions:\n    - {path: bench}\n"


def functions(play, head, base, *, own_plan=True, configured="main"):
    """Benchmarks of the tree, which nobody declares: those of each side's own plan."""
    play.branch("main", FUNCTIONS)
    play.state.files[configured, "ci-bench.yml"] = play.state.files.pop(("main", "ci-bench.yml"))
    play.pull()
    members = {}
    for name, rows, commit in (("results.json", head, HEAD), ("base/results.json", base, BASE)):
        made = bound(*rows, commit=commit, config=FUNCTIONS)
        members[name] = written(
            replace(made, source=replace(made.source, own_plan=own_plan)), play.folder
        )
    leave(play.fake, members)
    return play.report()


def benchmark(name, **fields):
    return result(
        *([] if "status" in fields else [peak(GIGABYTE, GIGABYTE)]),
        id=f"functions/{name}",
        **fields,
    )


def all_new(play):
    return functions(play, [benchmark("a")], [])


def first(play):
    return functions(play, [benchmark("a")], [], configured=HEAD)


def first_and_failed(play):
    return functions(
        play, [benchmark("a"), benchmark("b", status=Status.FAILED)], [], configured=HEAD
    )


def base_crashed(play):
    rows = [benchmark("a"), benchmark("b")]
    return functions(play, rows, [rows[0], benchmark("b", status=Status.CRASHED)])


def benchmark_gone(play):
    return functions(
        play, [benchmark("a")], [benchmark("a"), benchmark("b", status=Status.SKIPPED)]
    )


PLAYS = {
    "the commit was measured against its base, and is not worse": fine,
    "nothing failed, and something that gates could not be decided": undecided,
    "all of its benchmarks are new: there is nothing to compare with yet": all_new,
    "base has no configuration yet: head's own is used, which passes nothing": first,
    "the same, and a benchmark of head fails": first_and_failed,
    "base crashed or timed out in a case that ended well on head": base_crashed,
    "a benchmark that base has is gone": benchmark_gone,
    "it is worse": worse,
    "two pull requests of one head into two branches, one of which fails by its own rules": two_bases,
    "the same, measured against the base of one of them": two_bases_one_measured,
    "two forks with a branch of one name": two_forks,
    "the pull request was closed meanwhile": closed,
    "it has moved on: another commit was pushed, by force or not": moved_on,
    "its fork was deleted": deleted_fork,
    "it was retargeted to another branch": retargeted,
    "a re-run left no results, and the attempt before did": re_run,
    "the run waits for approval (`action_required`)": ended("action_required"),
    "every job was skipped (`skipped`)": ended("skipped"),
    "the run was cancelled (`cancelled`)": ended("cancelled"),
    "GitHub gave the run up (`stale`)": ended("stale"),
    "it ran out of time and left nothing (`timed_out`)": ended("timed_out"),
    "it could not start (`startup_failure`)": ended("startup_failure"),
    "it failed and left nothing (`failure`)": ended("failure"),
    "a merge group was measured against what it is made on": merge_group,
    "the results are of another commit": another_commit,
    "a case of the configuration is missing": other_cases,
    "the workflow chose cases (`filter`)": chosen_cases,
    "an artifact is of an undeclared machine": invented_machine,
}
COMMENTED = {"yes": [7], "on both": [7, 8], "on that one": [7], "none": []}


def table():
    """The rows of the page: what happened, and the check, the comments and the exit code that it says."""
    part = DOCS.read_text().partition("## Outcomes of a run")[2].partition("\n## ")[0]
    rows = re.findall(r"(?m)^\| (.+?) \| `?(\w+)`? \| ([\w ]+) \| (\d) \|$", part)
    return {what: (check, comment, int(code)) for what, check, comment, code in rows}


@pytest.fixture
def play(fake, job, flags, tmp_path):
    return Play(fake, job, flags, tmp_path)


@pytest.mark.parametrize(("own_plan", "conclusion"), [(True, "success"), (False, "neutral")])
def test_what_only_head_planned_is_undecided(play, own_plan, conclusion):
    functions(play, [benchmark("a")], [benchmark("a")], own_plan=own_plan)
    (check,) = play.state.checks.values()
    assert check["conclusion"] == conclusion


def test_the_first_pull_request_shows_its_figures(play):
    first(play)
    (comment,) = play.state.texts_of(7)
    assert "### ❔ Nothing to compare with yet: main has no ci-bench.yml." in comment
    assert comment.count("### ") == 1
    assert re.search(r"\| `a` \(`eager`\) \|.* 1\.00.GiB \|", comment), comment


def test_a_gone_benchmark_is_named(play):
    benchmark_gone(play)
    (check,) = play.state.checks.values()
    assert "b is gone: base has it, and head does not" in check["output"]["title"]


def test_a_declared_time_that_is_a_detail_passes_nothing(play):
    """Both documents say that all times of the plugin's case are details, so that nothing that gates is compared."""
    play.pull()
    slow, quick = (
        result(metric(sampled(value)), id="s/a", details=("step_time",)) for value in (10.0, 1.0)
    )
    sides = {"results.json": (slow, HEAD), "base/results.json": (quick, BASE)}
    leave(
        play.fake,
        {
            name: written(bound(row, commit=commit), play.folder)
            for name, (row, commit) in sides.items()
        },
    )
    play.report()
    (check,) = play.state.checks.values()
    assert check["conclusion"] == "failure"


def test_the_page_and_the_plays_are_of_the_same_events():
    assert [*table()] == [*PLAYS]


@pytest.mark.parametrize("what", PLAYS)
def test_what_becomes_of_a_run(play, what):
    check, comment, code = table()[what]
    assert PLAYS[what](play) == code
    assert [one["conclusion"] for one in play.state.checks.values()] == (
        [] if check == "none" else [check]
    )
    assert [number for number in (7, 8) if play.state.texts_of(number)] == COMMENTED[comment]


@pytest.mark.parametrize("ratio", [0.3, 2.3])
def test_a_noisy_calibration_of_the_artifact_excuses_nothing(play, ratio):
    """It comes from where the pull request's code ran.

    What is within belief could be forged as well as what is not.
    """
    play.pull()
    slow, usual = (result(metric(sampled(value, count=8)), id="s/a") for value in (0.012, 0.01))
    members = {"results.json": written(bound(slow), play.folder)}
    members["base/results.json"] = written(bound(usual, commit=BASE), play.folder)
    identity = bound(slow).environment.identity
    series = PastSeries(
        case="s/a",
        metric="step_time",
        arm="eager",
        ratios=(ratio, -ratio) * 4,
        within=(0.01,) * 8,
        runs=(0,) * 8,
    )
    calibration = Calibration(
        tool_version="1",
        fingerprint=fingerprint(identity),
        identity=identity,
        runs=(PastRun(id="r", at="2026-01-01T00:00:00Z"),),
        series=(series,),
    )
    members["calibration.json"] = written(calibration, play.folder)
    leave(play.fake, members)
    play.report()
    assert {check["conclusion"] for check in play.state.checks.values()} == {"failure"}


def test_each_pull_request_of_one_head_has_its_own_verdict(play):
    two_bases(play)
    assert "✅" in play.state.texts_of(7)[0]
    assert (
        "Another open pull request has the same head commit and does not pass"
        in play.state.texts_of(7)[0]
    )
    assert "❌ Failed" in play.state.texts_of(8)[0]


def test_an_undecided_pull_request_withholds_the_pass_of_another_of_its_head(play):
    play.branch("release", f"{CONFIG}policy:\n  severities: {{undecided: note}}\n")
    play.pull(7, base="release")
    play.pull(8)
    play.measured(noisy=True)
    assert play.report() == ExitCode.OK
    assert "✅ Passed" in play.state.texts_of(7)[0]
    assert "❔ Not decided" in play.state.texts_of(8)[0]
    assert [one["conclusion"] for one in play.state.checks.values()] == ["neutral"]


def test_a_refusal_names_the_field(play):
    another_commit(play)
    text = play.state.texts_of(7)[0]
    assert f"source.commit: is '{BASE}', and has to be {HEAD}" in text
    assert "re-run all jobs" in text


def test_a_green_merge_of_the_head_needs_its_base_on_the_branch(play):
    play.state.commits[MERGE] = [play.state.history[3], HEAD]
    play.pull()
    play.measured(commit=MERGE, base_commit=play.state.history[3])
    assert play.report() == ExitCode.OK
    play.state.commits[MERGE] = [sha_of("anywhere"), HEAD]
    play.state.parents[sha_of("anywhere")] = BASE
    assert play.report() == ExitCode.BAD_INPUT


def test_a_merge_with_a_commit_that_is_not_on_the_branch_is_no_test_merge(play):
    """Whoever made it could have put anything into it; where the branches parted is the right base all the same."""
    play.state.parents[sha_of("anywhere")] = BASE
    play.state.commits[MERGE] = [sha_of("anywhere"), HEAD]
    play.pull()
    play.measured(commit=MERGE, base_commit=BASE)
    assert play.report() == ExitCode.BAD_INPUT
    (text,) = play.state.texts_of(7)
    assert "source.commit: is" in text


def merged(play, *, first=BASE, newest=None, tree=None, parent=None):
    """Report a measured merge of the head into `first`, whose content is `tree`; `newest` is the merge that GitHub knows."""
    pull = play.pull()
    play.state.commits[MERGE] = [first, HEAD]
    play.state.parents[HEAD] = parent or BASE
    if tree is not None:
        play.state.trees[MERGE] = tree
    pull["merge_commit_sha"] = newest
    play.measured(commit=MERGE, base_commit=first)
    code = play.report()
    (conclusion,) = {one["conclusion"] for one in play.state.checks.values()}
    return code, conclusion


OLDER = sha_of("main 5")
"""A commit of the branch that head began at: the branch has moved on since."""
ANOTHER = sha_of("another merge of GitHub's")


def test_the_newest_merge_of_github_is_green(play):
    assert merged(play, newest=MERGE, parent=OLDER) == (0, "success")


def test_a_merge_of_any_content_is_refused(play):
    assert merged(play, newest=None, tree=sha_of("anything")) == (2, "failure")


def test_a_merge_that_adds_nothing_is_green(play):
    assert merged(play, newest=None) == (0, "success")


@pytest.mark.parametrize(
    ("tree", "wanted"), [(sha_of("same"), (0, "success")), (sha_of("evil"), (2, "failure"))]
)
def test_a_merge_is_known_by_its_content(play, tree, wanted):
    """GitHub has made it again, of the same parents."""
    play.state.commits[ANOTHER] = [BASE, HEAD]
    play.state.trees[ANOTHER] = sha_of("same")
    assert merged(play, newest=ANOTHER, tree=tree, parent=OLDER) == wanted


@pytest.mark.parametrize("newest", [None, ANOTHER, sha_of("unknown")])
def test_a_merge_that_github_forgot_is_undecided(play, newest):
    """The branch has moved on while it was measured: whose content it has is not known any more."""
    play.state.commits[ANOTHER] = [play.state.history[0], HEAD]
    assert merged(play, first=play.state.history[2], newest=newest, parent=OLDER) == (0, "neutral")
    (text,) = play.state.texts_of(7)
    assert (
        text.splitlines()[2]
        == f"### ❔ Not decided: GitHub no longer knows the merge {MERGE[:6]}\u200b{MERGE[6:12]} that was measured; run it again."
    )
    assert "✅ Passed" not in text


def test_a_merge_of_another_head_is_refused(play):
    play.pull()["merge_commit_sha"] = None
    play.state.commits[MERGE] = [play.state.history[2], sha_of("another head")]
    play.state.parents |= {HEAD: OLDER, sha_of("another head"): OLDER}
    play.measured(commit=MERGE, base_commit=play.state.history[2])
    assert play.report() == ExitCode.BAD_INPUT


def test_a_forgotten_merge_that_is_worse_is_red(play):
    play.pull()["merge_commit_sha"] = None
    play.state.commits[MERGE] = [play.state.history[2], HEAD]
    play.state.parents[HEAD] = OLDER
    play.measured(commit=MERGE, base_commit=play.state.history[2], head=2 * GIGABYTE)
    assert play.report() == ExitCode.POLICY_NOT_MET
    assert "❌ Failed" in play.state.texts_of(7)[0]


def test_the_runners_own_merge_needs_no_other_word(play, tmp_path):
    """In the pull request's own run the runner says which commit it checked out."""
    play.job("pull_request", pull_request(), GITHUB_SHA=MERGE)
    play.state.add_pull(7, HEAD)["merge_commit_sha"] = None
    play.state.commits[MERGE] = [play.state.history[2], HEAD]
    play.state.parents[HEAD] = OLDER
    (tmp_path / "results" / "base").mkdir(parents=True)
    for name, commit in (("results.json", MERGE), ("base/results.json", play.state.history[2])):
        text = written(bound(result(peak(1, 1), id="s/a"), commit=commit), tmp_path)
        (tmp_path / "results" / name).write_text(text)
    assert publish(play.flags(folders=[tmp_path / "results"])) == ExitCode.OK
    assert [one["conclusion"] for one in play.state.checks.values()] == ["success"]


def test_a_base_of_the_branch_before_is_none_of_the_branch_that_it_is_meant_for_now(play):
    play.branch("release", CONFIG, RELEASE)
    play.state.commits |= {RELEASE: [play.state.history[5]], HEAD: [BASE]}
    play.pull(base="release")
    play.measured()
    assert play.report() == ExitCode.BAD_INPUT
    (text,) = play.state.texts_of(7)
    assert "source.commit: is" not in text.replace("base.source.commit: is", "")
    assert "where head left release" in text


def test_the_base_that_the_configuration_names_counts(play):
    older = play.state.history[4]
    play.branch("main", f"{CONFIG}base: origin/stable\n")
    play.state.branches["stable"] = older
    play.pull()
    play.measured(config=f"{CONFIG}base: origin/stable\n", base_commit=older)
    assert play.report() == ExitCode.OK
    play.measured(config=f"{CONFIG}base: origin/stable\n", base_commit=play.state.history[7])
    assert play.report() == ExitCode.BAD_INPUT, "not an older one, of which head would look better"


def test_a_base_that_the_workflow_names_is_only_the_base_branchs_to_allow(play):
    play.pull()
    asked = {"asked": {"base": (play.state.history[2],)}, "base_commit": play.state.history[2]}
    play.measured(**asked)
    assert play.report() == ExitCode.BAD_INPUT
    play.branch("main", f"{CONFIG}policy: {{severities: {{narrowed: note}}}}\n")
    assert play.report() == ExitCode.OK


def test_a_merge_group_is_held_against_the_group_before_it_in_the_queue(play, tmp_path):
    """Which is on no branch yet."""
    event, before = merge_group_event(), sha_of("the group before")
    event["merge_group"]["base_sha"] = before
    play.job("merge_group", event, GITHUB_REF=f"refs/heads/{GROUP}", GITHUB_SHA=HEAD)
    play.state.parents |= {HEAD: before, before: BASE}
    folder = tmp_path / "results"
    (folder / "base").mkdir(parents=True)
    for name, commit in (("results.json", HEAD), ("base/results.json", before)):
        (folder / name).write_text(
            written(bound(result(peak(1, 1), id="s/a"), commit=commit), tmp_path)
        )
    assert publish(play.flags(folders=[folder])) == ExitCode.OK
    (folder / "base" / "results.json").write_text(
        written(bound(result(peak(1, 1), id="s/a"), commit=play.state.history[3]), tmp_path)
    )
    assert publish(play.flags(folders=[folder])) == ExitCode.BAD_INPUT


def test_a_baseline_that_the_jobs_own_flags_turn_off_is_a_finding(play, tmp_path):
    play.job("pull_request", pull_request())
    play.state.add_pull(7, HEAD)
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.json").write_text(written(bound(result(peak(1, 1), id="s/a")), tmp_path))
    given = {"folders": [folder], "baseline": "none"}
    assert publish(play.flags(**given)) == ExitCode.POLICY_NOT_MET
    assert "the workflow set --baseline none" in play.state.texts_of(7)[0]
    play.branch("main", CONFIG.replace("suites:", "baseline: none\nsuites:"))
    (folder / "results.json").write_text(
        written(
            bound(
                result(
                    peak(1, 1),
                    id="s/a",
                    checks=(Check(name="finite", arm="eager", outcome=Outcome.PASS, detail=""),),
                ),
                config=CONFIG.replace("suites:", "baseline: none\nsuites:"),
            ),
            tmp_path,
        )
    )
    assert publish(play.flags(**given)) == ExitCode.OK


def test_a_baseline_that_the_jobs_own_flags_choose_is_a_finding(play, tmp_path):
    play.job("pull_request", pull_request())
    play.state.add_pull(7, HEAD)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.json").write_text(
        written(bound(result(peak(1, 1), id="s/a")), tmp_path)
    )
    given = {"base": play.state.history[2]}
    publish(play.flags(folders=[tmp_path / "results"], baseline="artifact", **given))
    (text,) = play.state.texts_of(7)
    assert "the workflow set --base " in text


def test_what_is_asked_for_by_hand_is_told_and_fails_nothing(play, tmp_path):
    play.job(
        "workflow_dispatch",
        payload("push") | {"ref": "refs/heads/feature"},
        GITHUB_SHA=HEAD,
        GITHUB_REF="refs/heads/feature",
    )
    play.state.files["feature", "ci-bench.yml"] = CONFIG.encode()
    play.state.parents[HEAD] = BASE
    older = play.state.history[2]
    for name, commit in (("results.json", HEAD), ("base/results.json", older)):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        asked = {"base": (older,), "filter": ("s/a",)}
        path.write_text(
            written(bound(result(peak(1, 1), id="s/a"), commit=commit, asked=asked), tmp_path)
        )
    for comment in ("never", "always"):
        assert publish(play.flags(folders=[tmp_path / "results"], comment=comment)) == ExitCode.OK
    assert (play.state.checks, play.state.statuses) == ({}, []), "a check could be somebody's"


@pytest.mark.parametrize(
    ("baseline", "asked", "code"),
    [
        ("none", ("s/a",), ExitCode.POLICY_NOT_MET),
        ("none", (), ExitCode.OK),
        ("paired", ("s/a",), ExitCode.OK),
    ],
    ids=["a narrowed baseline", "a whole baseline", "a narrowed comparison"],
)
def test_a_baseline_by_hand_has_every_case(play, tmp_path, *, baseline, asked, code):
    """A later pull request could be compared with it, and a case that it lacks would look new."""
    play.job("workflow_dispatch", payload("push"), GITHUB_SHA=HEAD)
    play.state.parents[HEAD] = BASE
    finite = Check(name="finite", arm="eager", outcome=Outcome.PASS, detail="")
    row = result(peak(1, 1), id="s/a", checks=(finite,))
    for name, commit in (("results.json", HEAD), ("base/results.json", BASE)):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            written(bound(row, commit=commit, asked={"filter": asked} if asked else {}), tmp_path)
        )
    assert publish(play.flags(folders=[tmp_path / "results"], baseline=baseline)) == code
    assert ("(--filter s/a)" in (tmp_path / "summary.md").read_text()) is bool(asked)


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2)], ids=["the newer is fine", "the older is fine"])
def test_two_jobs_with_one_artifact_name_both_count(play, sizes):
    play.pull()
    for size in sizes:
        play.measured(head=size * GIGABYTE)
    assert play.report() == ExitCode.POLICY_NOT_MET
    assert "Failed on 1 of 2 machines" in play.state.texts_of(7)[0]


def test_an_artifact_of_an_earlier_attempt_is_left_out(play):
    play.pull()
    play.measured(head=2 * GIGABYTE, attempt=1)
    play.measured(attempt=2)
    assert play.report(workflow_run(attempt=2)) == ExitCode.OK
    assert [one["conclusion"] for one in play.state.checks.values()] == ["success"]


def test_an_earlier_attempt_does_not_stand_in(play):
    """What the newest attempt left has expired."""
    play.pull()
    play.measured(attempt=1)
    play.measured(attempt=2)
    play.state.artifacts[max(play.state.artifacts)]["expired"] = True
    assert play.report(workflow_run(attempt=2)) == ExitCode.BAD_INPUT


def test_many_artifacts_of_one_name_are_a_fault(play):
    play.pull()
    for _ in range(7):
        play.measured()
    assert play.report() == ExitCode.BAD_INPUT
    assert "7 artifacts of one name" in play.state.texts_of(7)[0]


def test_a_broken_artifact_beside_a_fine_one_counts(play):
    play.pull()
    leave(play.fake, b"no zip at all")
    play.measured()
    assert play.report() == ExitCode.BAD_INPUT


def pushed(play, branch, event="push"):
    """Report a push of the head to a branch, which passes by the branch's own rules."""
    play.state.branches[branch] = HEAD
    play.state.files[branch, "ci-bench.yml"] = CONFIG.encode()
    play.state.parents[HEAD] = BASE
    play.state.add_run(HEAD, id=RUN, event=event, head_branch=branch)
    play.measured()
    code = play.report(workflow_run(event=event, fork=False, branch=branch))
    return code, [(one["name"], one["conclusion"]) for one in play.state.checks.values()]


@pytest.mark.parametrize("event", ["push", "schedule"])
def test_a_branch_by_its_own_rules_is_never_green(play, event):
    """A pull request can have that commit as its head, and requires another name."""
    assert pushed(play, "feature", event) == (0, [(f"ci-bench [{event}]", "neutral")])


@pytest.mark.parametrize("branch", ["feature", "main"])
def test_a_run_by_hand_sets_no_check(play, branch):
    assert pushed(play, branch, "workflow_dispatch") == (0, [])
    play.job("workflow_dispatch", payload("workflow_dispatch"))
    assert announce(play.flags()) == ExitCode.OK
    assert play.state.checks == {}


def test_a_push_to_the_default_branch_is_green(play):
    play.state.history.insert(0, HEAD)
    default = workflow_run()["repository"]["default_branch"]
    assert pushed(play, default) == (0, [("ci-bench", "success")])


def test_a_push_says_nothing_for_a_pull_request(play):
    pushed(play, "feature")
    play.pull()
    play.measured(head=2 * GIGABYTE)
    assert play.report() == ExitCode.POLICY_NOT_MET
    said = {one["name"]: one["conclusion"] for one in play.state.checks.values()}
    assert said == {"ci-bench [push]": "neutral", "ci-bench": "failure"}


WAITING = {
    "waits for approval": {"status": "completed", "conclusion": "action_required"},
    "waits for an environment": {"status": "waiting", "conclusion": None},
    "was skipped": {"status": "completed", "conclusion": "skipped"},
    "has ended": {"status": "completed", "conclusion": "success"},
    "has another attempt": {"status": "in_progress", "conclusion": None, "run_attempt": 2},
}


@pytest.mark.parametrize("fields", WAITING.values(), ids=WAITING)
def test_what_does_not_measure_is_not_announced(play, fields):
    play.job("workflow_run", workflow_run(conclusion=None))
    play.pull()
    play.state.add_run(
        HEAD, id=RUN, event="pull_request", head_branch="feature", fork=True, **fields
    )
    assert announce(play.flags()) == ExitCode.OK
    assert play.state.checks == {}


def test_what_measures_is_announced(play):
    play.job("workflow_run", workflow_run(conclusion=None))
    play.state.add_run(
        HEAD,
        id=RUN,
        event="pull_request",
        head_branch="feature",
        fork=True,
        status="in_progress",
        conclusion=None,
    )
    assert announce(play.flags()) == ExitCode.OK
    assert [one["status"] for one in play.state.checks.values()] == ["in_progress"]


def test_without_an_answer_nobodys_rules_are_taken(play):
    """The default branch's could be looser than those of the branch that is meant."""
    play.pull()
    play.measured()
    play.fake.plan(
        "GET", "/pulls", *[Fault(status=403, message="Resource not accessible by integration")] * 9
    )
    assert play.report() == ExitCode.GITHUB
    assert [one["conclusion"] for one in play.state.checks.values()] == ["failure"]
