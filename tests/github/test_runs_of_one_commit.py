"""Several runs report about one commit under one name: the strictest of the newest attempts shows, in whatever order they come."""

from itertools import permutations

import pytest
from fake_github import RESET
from fake_github_state import sha_of

from ci_bench.github.checks import CheckRun, Conclusion, publish_check, publish_status, status_of
from ci_bench.github.context import RunId
from ci_bench.github.outcomes import State

HEAD = sha_of("head")
GREEN, GREY, RED, CANCELLED = (
    Conclusion.SUCCESS,
    Conclusion.NEUTRAL,
    Conclusion.FAILURE,
    Conclusion.CANCELLED,
)


def check(run, attempt, conclusion, **fields):
    said = {None: "Measuring", GREEN: "Passed", GREY: "Open", RED: "Worse", CANCELLED: "Stopped"}[
        conclusion
    ]
    given = {
        "name": "ci-bench",
        "key": "default",
        "title": said,
        "summary": f"### {said}",
        **fields,
    }
    url = f"https://github.example/o/r/actions/runs/{run}"
    return CheckRun(
        **given,
        run=RunId(id=run, attempt=attempt),
        head_sha=HEAD,
        conclusion=conclusion,
        details_url=url,
    )


def shown(fake):
    """What each run's newest check says: GitHub may take any of them."""
    newest = {}
    for one in fake.state.checks.values():
        _, key, run, attempt, reporter, _ = one["external_id"].split(":")
        gate = key, run, reporter
        newest[gate] = max(newest.get(gate, (0, None)), (int(attempt), one["conclusion"]))
    return {conclusion for _, conclusion in newest.values()}


SEQUENCES = {
    "one run": ([(1, 1, RED)], RED),
    "a re-run of its own": ([(1, 1, RED), (1, 2, GREEN)], GREEN),
    "a re-run that is worse": ([(1, 1, GREEN), (1, 2, RED)], RED),
    "an older run is red": ([(1, 1, RED), (2, 1, GREEN)], RED),
    "a newer run is red": ([(1, 1, GREEN), (2, 1, RED)], RED),
    "an older run is grey": ([(1, 1, GREY), (2, 1, GREEN)], GREY),
    "both are green": ([(1, 1, GREEN), (2, 1, GREEN)], GREEN),
    "an older run was red before its re-run": ([(1, 1, RED), (1, 2, GREEN), (2, 1, GREEN)], GREEN),
    "an older run is red again": ([(1, 1, GREEN), (1, 2, RED), (2, 1, GREEN)], RED),
    "one of three": ([(1, 1, GREEN), (2, 1, RED), (3, 1, GREEN)], RED),
    "an older run was cancelled": ([(1, 1, CANCELLED), (2, 1, GREEN)], GREEN),
    "the newest run was cancelled": ([(1, 1, GREEN), (2, 1, CANCELLED)], CANCELLED),
    "cancelled, and red before": ([(1, 1, RED), (2, 1, CANCELLED)], RED),
    "cancelled, and re-run": ([(1, 1, CANCELLED), (1, 2, GREEN)], GREEN),
}


def in_any_order(reports):
    return [(f"{index}", order) for index, order in enumerate(permutations(reports))]


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_strictest_shows_in_any_order(fake, client, name):
    reports, wanted = SEQUENCES[name]
    for _, order in in_any_order(reports):
        fake.state.checks.clear()
        for report in order:
            publish_check(client, check(*report))
        strict = {wanted, CANCELLED} if name == "an older run was cancelled" else {wanted}
        assert shown(fake) <= strict, order
        assert wanted in shown(fake), order


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_last_status_is_the_strictest(fake, client, name):
    reports, wanted = SEQUENCES[name]
    states = {GREEN: "success", GREY: "success", RED: "failure", CANCELLED: "error"}
    for _, order in in_any_order(reports):
        fake.state.statuses.clear()
        for report in order:
            publish_status(client, status_of(check(*report)))
        assert fake.state.statuses[-1]["state"] == states[wanted], order


def test_a_held_check_says_whose_verdict_it_is(fake, client):
    publish_check(client, check(2, 1, GREEN))
    publish_check(client, check(1, 1, RED))
    green = next(one for one in fake.state.checks.values() if ":2:" in one["external_id"])
    assert green["output"]["title"] == "Failed in run 1; success here: Passed"
    assert (
        "_Run 1 measured this commit, too, and its verdict is stricter: failure."
        in green["output"]["summary"]
    )
    assert green["output"]["summary"].endswith("\n\n### Passed")


def test_a_check_is_let_go_as_it_was(fake, client):
    publish_check(client, check(2, 1, GREEN))
    before = dict(fake.state.checks[max(fake.state.checks)]["output"])
    publish_check(client, check(1, 1, RED))
    publish_check(client, check(1, 2, GREEN))
    green = next(one for one in fake.state.checks.values() if ":2:1:" in one["external_id"])
    assert (green["conclusion"], green["output"]) == ("success", before)


def test_the_status_says_whose_verdict_it_is(fake, client):
    publish_status(client, status_of(check(1, 1, RED)))
    publish_status(client, status_of(check(2, 1, GREEN)))
    assert fake.state.statuses[-1]["description"] == "Failed in run 1; success here: Passed"
    publish_status(client, status_of(check(1, 2, GREEN)))
    assert fake.state.statuses[-1]["description"] == "Passed"


def test_two_keys_of_one_name_are_one_check(fake, client):
    """A branch requires the name, and GitHub takes either."""
    publish_check(client, check(1, 1, RED, key="a"))
    publish_check(client, check(1, 1, GREEN, key="b"))
    assert shown(fake) == {"failure"}


def test_another_name_is_another_check(fake, client):
    publish_check(client, check(1, 1, RED, name="slow"))
    publish_check(client, check(2, 1, GREEN))
    assert [one["conclusion"] for one in fake.state.checks.values()] == ["failure", "success"]


def test_two_jobs_that_report_about_one_run_both_count(fake, client):
    publish_check(client, check(1, 1, RED, reporter="aa"))
    publish_check(client, check(1, 1, GREEN, reporter="bb"))
    assert shown(fake) == {"failure"}
    publish_check(client, check(1, 2, GREEN, reporter="aa"))
    assert shown(fake) == {"success"}


def test_a_report_that_is_made_again_may_turn_green(fake, client):
    """GitHub was out of order at the first; the measuring run is the same."""
    publish_check(client, check(1, 1, RED))
    publish_check(client, check(1, 1, GREEN))
    assert shown(fake) == {"success"}


@pytest.mark.parametrize("order", list(permutations([RED, GREEN])))
def test_a_second_report_out_of_one_run_loosens_nothing(fake, client, order):
    for conclusion in order:
        publish_check(client, check(1, 1, conclusion, restates=False))
        publish_status(client, status_of(check(1, 1, conclusion, restates=False)))
    assert shown(fake) == {"failure"}
    assert fake.state.statuses[-1]["state"] == "failure"


def test_the_announced_check_is_the_one_that_ends(fake, client):
    publish_check(client, check(1, 1, None, reporter="aa"))
    publish_check(client, check(1, 1, GREEN, reporter="bb"))
    assert [one["conclusion"] for one in fake.state.checks.values()] == ["success"]


def test_an_announced_run_lets_no_red_go(fake, client):
    publish_check(client, check(1, 1, RED))
    publish_check(client, check(2, 1, GREEN))
    publish_check(client, check(1, 2, None))
    assert "success" not in shown(fake)


def test_a_late_announcement_opens_nothing(fake, client):
    publish_check(client, check(1, 1, RED))
    assert publish_check(client, check(1, 1, None)).state is State.SKIPPED
    assert shown(fake) == {"failure"}


def test_what_an_earlier_version_wrote_counts(fake, client):
    publish_check(client, check(1, 1, RED))
    (old,) = fake.state.checks.values()
    old["external_id"] = "ci-bench:default:1:1"
    publish_check(client, check(2, 1, GREEN))
    assert {one["conclusion"] for one in fake.state.checks.values()} == {"failure"}


def test_reports_that_cross_are_settled(fake, client, connect):
    """The other job writes between our look and our write."""
    other, crossed = connect(), []

    def cross(seen):
        if seen.method == "POST" and not crossed:
            crossed.append(seen)
            publish_check(other, check(1, 1, RED))

    fake.when_seen = cross
    publish_check(client, check(2, 1, GREEN))
    assert shown(fake) == {"failure"}


def test_a_lost_answer_holds_nothing_twice(fake, client):
    publish_check(client, check(2, 1, GREEN))
    fake.plan("PATCH", "check-runs", RESET)
    publish_check(client, check(1, 1, RED))
    assert shown(fake) == {"failure"}
