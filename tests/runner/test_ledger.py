"""One row for each planned case, whatever happens."""

import random

import pytest
from fake_suite import SUITE

from ci_bench.records.results import (
    ArmMasks,
    Better,
    Check,
    Failure,
    Lane,
    Launch,
    Masks,
    Metric,
    Outcome,
    ParityEvidence,
    Role,
    Status,
    Trace,
    Unit,
)
from ci_bench.runner.ledger import Ledger, merge_checks, merge_metrics, merge_parity, refuse_row
from ci_bench.suites.contract import Evidence

CASES = tuple(case for name in ("a", "b", "c") for case in SUITE.plan({"name": name}))


def _open() -> Ledger:
    return Ledger.open(CASES, reproduce={case.id: f"run {case.id}" for case in CASES})


def _metric(launch: int, *, name: str = "step_time", arm: str = "plain") -> Metric:
    taken = Launch(launch=launch, values=(float(launch + 1),))
    return Metric(
        name=name,
        arm=arm,
        unit=Unit.SECONDS,
        better=Better.LOWER,
        lane=Lane.WALL,
        launches=(taken,),
    )


def _check(outcome: Outcome, *, name: str = "steady", arm: str = "plain") -> Check:
    return Check(name=name, arm=arm, outcome=outcome, detail=str(outcome))


def _failure() -> Failure:
    return Failure(stage="time", arms=("plain",), reason="because")


def test_a_new_ledger_says_of_each_case_that_it_was_not_run() -> None:
    rows = list(_open().rows.values())
    assert [(row.case, row.status, row.reproduce) for row in rows] == [
        (case, Status.NOT_RUN, f"run {case.id}") for case in CASES
    ]
    assert all(row.failure and row.duration_s is None for row in rows)


@pytest.mark.parametrize("seed", range(5))
def test_no_sequence_of_events_adds_or_loses_a_row_or_makes_it_unreadable(seed: int) -> None:
    coin, ledger = random.Random(seed), _open()
    for launch in range(20):
        case = coin.choice(CASES)
        ledger = coin.choice(
            [
                lambda one, case=case: one.with_success(case),
                lambda one, case=case: one.with_failure(
                    case, coin.choice(list(Status)), _failure(), duration_s=coin.choice([0, 2])
                ),
                lambda one, case=case, launch=launch: one.with_evidence(
                    case,
                    Evidence(
                        metrics=(_metric(launch),), checks=(_check(coin.choice(list(Outcome))),)
                    ),
                    duration_s=0.1,
                ),
            ]
        )(ledger)
    assert list(ledger.rows) == [case.id for case in CASES]
    assert [refuse_row(row) for row in ledger.rows.values()] == ["", "", ""]


def test_a_failure_keeps_the_evidence_and_closes_the_case() -> None:
    case = CASES[0]
    ledger = _open().with_evidence(case, Evidence(metrics=(_metric(0),)), duration_s=1.5)
    ledger = ledger.with_failure(case, Status.TIMEOUT, _failure(), duration_s=0.25)
    row = ledger.rows[case.id]
    assert (row.status, row.metrics, row.duration_s) == (Status.TIMEOUT, (_metric(0),), 1.75)
    assert not ledger.is_open(case)
    assert ledger.is_open(CASES[1])


def test_a_case_of_which_nothing_ran_has_no_duration() -> None:
    row = _open().with_failure(CASES[0], Status.NOT_RUN, _failure()).rows[CASES[0].id]
    assert (row.duration_s, refuse_row(row)) == (None, "")


def test_success_removes_the_reason_for_not_being_run() -> None:
    row = _open().with_success(CASES[0]).rows[CASES[0].id]
    assert (row.status, row.failure) == (Status.OK, None)


def test_a_whole_launch_is_a_result_and_makes_no_failure_good() -> None:
    done = _open().with_launch(CASES[0], 0)
    assert (done.rows[CASES[0].id].status, done.rows[CASES[0].id].failure, done.launches) == (
        Status.OK,
        None,
        {CASES[0].id: 1},
    )
    failed = _open().with_failure(CASES[0], Status.TIMEOUT, _failure()).with_launch(CASES[0], 0)
    assert failed.rows[CASES[0].id].status is Status.TIMEOUT


def test_what_is_resumed_is_a_result_with_its_whole_launches_and_not_run_without_any() -> None:
    earlier = _open()
    for launch in (0, 1):
        earlier = earlier.with_evidence(
            CASES[0], Evidence(metrics=(_metric(launch),)), duration_s=1
        )
    earlier = earlier.with_launch(CASES[0], 0).with_evidence(
        CASES[1], Evidence(metrics=(_metric(0),)), duration_s=1
    )
    resumed = _open().resumed(earlier)
    first, second, third = resumed.rows.values()
    assert (first.status, first.failure, first.metrics) == (Status.OK, None, (_metric(0),))
    assert [(row.status, row.metrics) for row in (second, third)] == [(Status.NOT_RUN, ())] * 2


def test_launches_of_one_metric_and_arm_are_joined_in_order() -> None:
    merged = merge_metrics(
        (_metric(0), _metric(0, arm="other"), _metric(1), _metric(0, name="peak_rss"), _metric(2))
    )
    assert {(one.name, one.arm): [taken.launch for taken in one.launches] for one in merged} == {
        ("step_time", "plain"): [0, 1, 2], ("step_time", "other"): [0], ("peak_rss", "plain"): [0],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outcomes", "worst"),
    [
        ([Outcome.PASS, Outcome.PASS], Outcome.PASS),
        ([Outcome.PASS, Outcome.FAIL, Outcome.PASS], Outcome.FAIL),
        ([Outcome.UNKNOWN, Outcome.PASS], Outcome.UNKNOWN),
        ([Outcome.UNKNOWN, Outcome.FAIL], Outcome.FAIL),
        ([Outcome.FAIL, Outcome.UNKNOWN], Outcome.FAIL),
    ],
)
def test_a_later_pass_does_not_undo_a_failure(outcomes, worst) -> None:
    merged = merge_checks(
        [*(_check(outcome) for outcome in outcomes), _check(Outcome.PASS, arm="other")]
    )
    assert [(check.arm, check.outcome) for check in merged] == [
        ("plain", worst),
        ("other", Outcome.PASS),
    ]


def test_a_row_that_no_results_document_can_hold_is_refused_with_the_place() -> None:
    row = _open().with_evidence(
        CASES[0],
        Evidence(metrics=(_metric(0, arm="other"), _metric(0, name="Odd Name"))),
        duration_s=1,
    )
    reason = refuse_row(row.rows[CASES[0].id])
    assert "$.cases[0].metrics" in reason
    assert "Odd Name" in reason


def _trained(*runs: tuple[Role, int, str], masks: bool) -> ParityEvidence:
    traces = (
        Trace(arm="plain", role=role, seed=seed, loss=(), grad_norm=(), start=start, data="d")
        for role, seed, start in runs
    )
    probed = (ArmMasks(arm="other", masks=Masks.ALIGNED, detail=""),) if masks else ()
    return ParityEvidence(
        precision="fp32",
        epsilon=0.0,
        steps_per_epoch=1,
        evaluation_rows=0,
        masks=probed,
        traces=tuple(traces),
    )


def test_trainings_over_seeds_are_added_to_what_was_verified_and_replace_none_of_it() -> None:
    verified = _trained(
        (Role.REFERENCE, 0, "verified"), (Role.CANDIDATE, 0, "verified"), masks=True
    )
    seeds = _trained(
        (Role.REFERENCE, 0, "again"),
        (Role.REFERENCE, 1, "new"),
        (Role.OTHER_START, 0, "new"),
        masks=False,
    )
    merged = merge_parity(verified, seeds)
    assert merged is not None
    assert merged.masks == verified.masks
    assert {(one.role, one.seed): one.start for one in merged.traces} == {
        (Role.REFERENCE, 0): "verified",
        (Role.CANDIDATE, 0): "verified",
        (Role.REFERENCE, 1): "new",
        (Role.OTHER_START, 0): "new",
    }


def test_what_verifies_again_takes_the_place_of_what_was_there() -> None:
    first, second = (
        _trained((Role.REFERENCE, 0, start), masks=True) for start in ("first", "second")
    )
    assert merge_parity(first, second) == second
    assert merge_parity(first, None) == first
    assert merge_parity(None, second) == second
