"""What each rank saw, held against what its rows cost one process: who left first is named, who did not is not."""

from dataclasses import replace

import pytest

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.records.results import ArmMasks, Masks, ParityEvidence, RankSeries, Role, Trace

STEPS, COUNT = 20, 2
BASE = tuple(2.0 - 0.01 * step for step in range(STEPS))


def shifted(values: tuple[float, ...], by: float, start: int = 0) -> tuple[float, ...]:
    return tuple(value + (by if step >= start else 0.0) for step, value in enumerate(values))


def trace(
    role: Role,
    *,
    by: float = 0.0,
    index: int = 0,
    start: str = "s",
    ranks: RankSeries | None = None,
) -> Trace:
    losses = shifted(BASE, by)
    own = RankSeries(own_rows=True, loss=(shifted(losses, 0.1), shifted(losses, -0.1)))
    arm = "ddp" if role is Role.CANDIDATE else "eager"
    return Trace(
        arm=arm,
        role=role,
        seed=0,
        index=index,
        loss=losses,
        grad_norm=losses,
        start=start,
        data="d",
        ranks=ranks or own,
    )


def evidence(candidate: Trace, *, reference: Trace | None = None) -> ParityEvidence:
    perturbed = [
        trace(Role.PERTURBED, by=1e-5 * (1 + index), index=index, start=f"p{index}")
        for index in range(3)
    ]
    return ParityEvidence(
        precision="fp32",
        epsilon=2.0**-24,
        steps_per_epoch=5,
        evaluation_rows=0,
        masks=(ArmMasks(arm="ddp", masks=Masks.NO_DROPOUT, detail=""),),
        traces=(
            reference or trace(Role.REFERENCE),
            *perturbed,
            candidate,
            trace(Role.CONTROL, by=0.01),
        ),
    )


def finding(candidate: Trace, **more):
    (found,) = parity_findings(evidence(candidate, **more))
    return found


def ranks(
    *losses: tuple[float | None, ...],
    own_rows: bool = True,
    norms: tuple[tuple[float, ...], ...] = (),
) -> RankSeries:
    return RankSeries(own_rows=own_rows, loss=losses, grad_norm=norms or (BASE,) * len(losses))


RIGHT = (shifted(BASE, 0.1), shifted(BASE, -0.1))


def test_ranks_that_see_what_they_should_change_nothing() -> None:
    found = finding(trace(Role.CANDIDATE, ranks=ranks(*RIGHT)))
    assert found.verdict is Parity.BITWISE
    assert "rank" not in found.detail


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_diverges_alone_breaks_parity_and_is_named_with_its_step(rank: int) -> None:
    losses = [*RIGHT]
    losses[rank] = shifted(losses[rank], 1e-3, start=7)
    found = finding(trace(Role.CANDIDATE, ranks=ranks(*losses)))
    assert (found.verdict, found.first_step, found.signal) == (Parity.DIFFERENT_MATH, 7, "loss")
    assert found.detail.startswith(f"rank {rank} of 2 first, by the loss at step 7: up to 33")


def test_a_norm_that_one_rank_has_otherwise_names_it() -> None:
    found = finding(
        trace(Role.CANDIDATE, ranks=ranks(*RIGHT, norms=(BASE, shifted(BASE, 0.01, start=3))))
    )
    assert "rank 1 of 2 first, by the gradient norm at step 3" in found.detail


def test_all_that_leave_at_once_are_named_together_a_loss_before_a_norm() -> None:
    off = shifted(BASE, 0.01)
    alike = finding(trace(Role.CANDIDATE, by=0.01, ranks=ranks(*RIGHT, norms=(off, off))))
    assert alike.detail.endswith("all 2 ranks first, by the gradient norm at step 0")
    own = finding(
        trace(
            Role.CANDIDATE,
            by=0.01,
            ranks=ranks(RIGHT[0], shifted(RIGHT[1], 0.02), norms=(off, off)),
        )
    )
    assert own.detail.endswith("rank 1 of 2 first, by the loss at step 0")


def test_a_rank_whose_loss_is_no_number_left() -> None:
    hole = (*RIGHT[1][:4], None, *RIGHT[1][5:])
    found = finding(trace(Role.CANDIDATE, ranks=ranks(RIGHT[0], hole)))
    assert "rank 1 of 2 first, by the loss at step 4" in found.detail


def test_ranks_that_see_the_whole_batch_are_held_against_the_whole() -> None:
    assert finding(trace(Role.CANDIDATE, ranks=ranks(BASE, BASE, own_rows=False))).verdict.holds
    assert (
        "all 2 ranks" in finding(trace(Role.CANDIDATE, ranks=ranks(*RIGHT, own_rows=False))).detail
    )


def test_what_nobody_noted_of_the_reference_is_not_asked() -> None:
    bare = replace(trace(Role.REFERENCE), ranks=None)
    assert (
        finding(
            trace(Role.CANDIDATE, ranks=ranks(shifted(BASE, 5.0), BASE)), reference=bare
        ).verdict
        is Parity.BITWISE
    )


def test_series_that_are_too_short_are_not_asked() -> None:
    assert finding(trace(Role.CANDIDATE, ranks=ranks(RIGHT[0], (9.0,)))).verdict is Parity.BITWISE


SHARED = (RIGHT[0], RIGHT[1], shifted(BASE, 0.3), shifted(BASE, -0.5))
"""What the rows of four ranks cost one process; these have as many rows as `COUNTED` says."""
COUNTED = tuple((count,) * STEPS for count in (3, 1, 1, 1))
GROUPS = (shifted(BASE, 0.05), shifted(BASE, -0.1))
"""The mean of three rows off by 0.1 and one by -0.1, and of one row off by 0.3 and one by -0.5."""


def in_groups(*losses: tuple[float, ...], reference: RankSeries | None = None):
    """The finding about four ranks, two and two with the same rows, each group with its own losses."""
    own = reference or RankSeries(own_rows=True, loss=SHARED, rows=COUNTED)
    candidate = RankSeries(
        own_rows=True,
        loss=tuple(loss for loss in losses for _ in range(2)),
        grad_norm=(BASE,) * 4,
        sharing=2,
    )
    whole = evidence(
        trace(Role.CANDIDATE, ranks=candidate), reference=trace(Role.REFERENCE, ranks=own)
    )
    perturbed = tuple(
        replace(one, ranks=own) if one.role is Role.PERTURBED else one for one in whole.traces
    )
    (found,) = parity_findings(replace(whole, traces=perturbed))
    return found


def test_ranks_that_share_rows_are_held_against_the_mean_of_these() -> None:
    assert in_groups(*GROUPS).verdict.holds
    found = in_groups(GROUPS[0], shifted(GROUPS[1], 0.01, start=4))
    assert (found.verdict, found.first_step) == (Parity.DIFFERENT_MATH, 4)
    assert found.detail.startswith("rank 2, 3 of 4 first, by the loss at step 4")


def test_of_ranks_that_share_rows_nothing_is_said_where_nobody_counted_them() -> None:
    """A mean without weights would be another training's."""
    bare = RankSeries(own_rows=True, loss=SHARED)
    assert in_groups(GROUPS[0], shifted(GROUPS[1], 5.0), reference=bare).verdict.holds
