"""Runs from a checkpoint, held against the reference that never stopped."""

from dataclasses import replace

import pytest
from test_parity_ranks import BASE, evidence, shifted, trace

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.records.results import (
    ArmMasks,
    Masks,
    ParityEvidence,
    RankSeries,
    Resumed,
    Role,
    Trace,
)

AT, MORE = 8, 10
RIGHT = BASE[AT : AT + MORE]
RANKS = RankSeries(
    own_rows=True, loss=(shifted(RIGHT, 0.1), shifted(RIGHT, -0.1)), grad_norm=(RIGHT, RIGHT)
)


def resumed(
    losses: tuple[float, ...] = RIGHT, *, arm: str = "ddp", saved_by: str = "eager", **changes
) -> Trace:
    ranks = None if arm == "eager" else RANKS
    run = Trace(
        arm=arm,
        role=Role.RESUMED,
        seed=0,
        loss=losses,
        grad_norm=losses,
        start="elsewhere",
        data="d",
        ranks=ranks,
        resumed=Resumed(saved_by=saved_by, step=AT),
    )
    return replace(run, **changes)


def with_runs(*runs: Trace, candidate: Trace | None = None) -> ParityEvidence:
    whole = evidence(candidate or trace(Role.CANDIDATE))
    return replace(whole, traces=(*whole.traces, *runs))


def finding(*runs: Trace, **more):
    (found,) = parity_findings(with_runs(*runs, **more))
    return found


def test_runs_that_go_on_as_the_reference_did_change_nothing() -> None:
    runs = (resumed(), resumed(saved_by="ddp"), resumed(arm="eager", saved_by="ddp"))
    assert finding(*runs) == finding()


def test_losses_within_the_envelope_of_that_step_hold() -> None:
    assert finding(resumed(shifted(RIGHT, 2e-5))).verdict.holds


def test_a_run_that_leaves_is_named_with_checkpoint_step_and_signal() -> None:
    found = finding(resumed(), resumed(shifted(RIGHT, 1e-3, start=1), saved_by="ddp"))
    assert (found.verdict, found.arm, found.first_step, found.signal) == (
        Parity.DIFFERENT_MATH,
        "ddp",
        AT + 1,
        "loss",
    )
    assert found.detail.startswith(
        "ddp resumed at step 8 from the checkpoint that ddp saved: loss leaves"
    )


def test_one_process_that_leaves_counts_for_the_layout_that_saved() -> None:
    found = finding(resumed(shifted(RIGHT, 1e-3), arm="eager", saved_by="ddp"))
    assert (found.arm, found.first_step) == ("ddp", AT)
    assert found.detail.startswith("eager resumed at step 8 from the checkpoint that ddp saved")


def test_a_rank_that_leaves_alone_after_a_checkpoint_is_named() -> None:
    off = replace(RANKS, loss=(RANKS.loss[0], shifted(RANKS.loss[1], 1e-3, start=4)))
    found = finding(resumed(ranks=off))
    assert "rank 1 of 2 first, by the loss at step 12" in found.detail
    assert finding(resumed(ranks=replace(RANKS, own_rows=False, loss=(RIGHT, RIGHT)))).verdict.holds


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": "other"}, "it did not see the same data as the reference"),
        ({"start": "s"}, "it began from the reference's own weights"),
        ({"loss": (), "grad_norm": ()}, "it has 0 steps"),
        (
            {"loss": BASE, "grad_norm": BASE},
            "it has 20 steps, and the reference has none to compare with",
        ),
        ({"seed": 3}, "no reference run has seed 3"),
    ],
)
def test_a_run_that_cannot_be_held_against_the_reference_is_no_pass(changes, said: str) -> None:
    found = finding(resumed(**changes))
    assert found.verdict is Parity.INSUFFICIENT_DATA
    assert said in found.detail


def test_what_a_layout_saved_that_broke_parity_itself_accuses_nobody_else() -> None:
    broken = replace(trace(Role.CANDIDATE, by=0.01), arm="fsdp")
    whole = with_runs(resumed(shifted(RIGHT, 0.01), saved_by="fsdp"))
    masks = (*whole.masks, ArmMasks(arm="fsdp", masks=Masks.NO_DROPOUT, detail=""))
    by_arm = {
        found.arm: found
        for found in parity_findings(replace(whole, masks=masks, traces=(*whole.traces, broken)))
    }
    assert (by_arm["ddp"].verdict, by_arm["fsdp"].verdict) == (
        Parity.BITWISE,
        Parity.DIFFERENT_MATH,
    )
    assert "resumed" not in by_arm["fsdp"].detail
