"""Comparison of trainings that resumed from a checkpoint with one that never stopped.

A resumed run only has the steps after its checkpoint. The reference's steps replace those before
it, so the envelope at each later step is the one that rounding has reached by then. Pure.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ci_bench.judge.parity.runs import Stopped, as_rank_sees, first_of, insufficient, stopped
from ci_bench.records.comparison import ParityFinding, Tier
from ci_bench.records.results import ParityEvidence, RankSeries, Resumed, Role, Trace


def first_apart(
    evidence: ParityEvidence,
    arm: str,
    judge: Callable[[ParityEvidence, Trace], ParityFinding],
    *,
    broken: Collection[str],
) -> ParityFinding | None:
    """Return the finding of the first resumed run of `arm` whose parity does not hold.

    `None` if all hold.

    Runs of a `broken` arm say nothing about checkpoints, and are left out.
    """
    for run in resumed_runs(evidence, arm):
        if run.resumed is not None and run.resumed.saved_by in broken:
            continue
        spliced = spliced_in(evidence, run)
        finding = (
            stopped(spliced, run, masks=None, tier=Tier.NUMERIC)
            if isinstance(spliced, Stopped)
            else judge(*spliced)
        )
        if not finding.verdict.holds:
            return replace(finding, detail=f"{resumption(run)}: {finding.detail}")
    return None


def resumed_runs(evidence: ParityEvidence, arm: str) -> tuple[Trace, ...]:
    """Return the resumed runs whose parity is that of `arm`.

    These are its own, and those of one process from checkpoints that it saved.
    """
    references = {trace.arm for trace in evidence.traces if trace.role is Role.REFERENCE}
    runs = [
        trace
        for trace in evidence.traces
        if trace.role is Role.RESUMED and trace.resumed is not None
    ]
    return tuple(
        run
        for run in runs
        if run.arm == arm or (run.arm in references and run.resumed and run.resumed.saved_by == arm)
    )


def resumption(run: Trace) -> str:
    """Describe a resumed run."""
    assert run.resumed is not None, "one of `resumed_runs`"  # noqa: S101 - our own bug if not
    return (
        f"{run.arm} resumed at step {run.resumed.step} from the checkpoint that"
        f" {run.resumed.saved_by} saved"
    )


def spliced_in(evidence: ParityEvidence, run: Trace) -> tuple[ParityEvidence, Trace] | Stopped:
    """Return the evidence with a reference of the run's length, and the run from step 0 on.

    Steps before its own are the reference's.

    Stopped if the run saw other data, has no reference, or began from the reference's own weights:
    then a checkpoint that restores nothing would pass.
    """
    reference, resumed = first_of(evidence, Role.REFERENCE, run.seed), run.resumed
    if reference is None or resumed is None:
        return insufficient(f"no reference run has seed {run.seed}")
    if not run.loss or len(reference.loss) < resumed.step + len(run.loss):
        return insufficient(
            f"it has {len(run.loss)} steps, and the reference has none to compare with"
        )
    if run.data != reference.data:
        return insufficient("it did not see the same data as the reference")
    if run.start == reference.start:
        return insufficient(
            "it began from the reference's own weights, so loading the checkpoint shows nothing"
        )
    end = resumed.step + len(run.loss)
    shorter = _cut(reference, end)
    traces = tuple(shorter if trace is reference else trace for trace in evidence.traces)
    return replace(evidence, traces=traces), _spliced(shorter, run, resumed)


def _cut(trace: Trace, end: int) -> Trace:
    ranks = trace.ranks
    if ranks is not None:
        ranks = replace(
            ranks,
            loss=tuple(rank[:end] for rank in ranks.loss),
            grad_norm=tuple(rank[:end] for rank in ranks.grad_norm),
            rows=tuple(rank[:end] for rank in ranks.rows),
        )
    holes = tuple(hole for hole in trace.non_finite if hole.step < end)
    return replace(
        trace, loss=trace.loss[:end], grad_norm=trace.grad_norm[:end], non_finite=holes, ranks=ranks
    )


def _spliced(reference: Trace, run: Trace, resumed: Resumed) -> Trace:
    before = resumed.step
    return replace(
        run,
        start=reference.start,
        loss=(*reference.loss[:before], *run.loss),
        grad_norm=(*reference.grad_norm[:before], *run.grad_norm),
        ranks=None if run.ranks is None else _spliced_ranks(reference, run.ranks, before),
    )


def _spliced_ranks(reference: Trace, ranks: RankSeries, before: int) -> RankSeries:
    traces = [as_rank_sees(reference, rank, ranks) or reference for rank in range(len(ranks.loss))]
    return replace(
        ranks,
        loss=_joined([trace.loss for trace in traces], ranks.loss, before),
        grad_norm=_joined([reference.grad_norm] * len(ranks.grad_norm), ranks.grad_norm, before),
    )


def _joined(
    first: Sequence[Sequence[float | None]], then: Sequence[Sequence[float | None]], before: int
) -> tuple[tuple[float | None, ...], ...]:
    return tuple((*start[:before], *rest) for start, rest in zip(first, then, strict=True))
