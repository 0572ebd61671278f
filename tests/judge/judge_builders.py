"""Small documents for the judge's tests: every field has a harmless default."""

import hashlib
import math
from dataclasses import replace

from ci_bench.judge.compare import compare
from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.config import Policy
from ci_bench.records.outputs import OutputsComparison, ReferenceOutputs, TensorError, Weights
from ci_bench.records.results import (
    ArmMasks,
    Better,
    Case,
    CaseResult,
    Check,
    Due,
    Environment,
    Failure,
    Lane,
    Launch,
    Masks,
    Metric,
    NonFinite,
    Outcome,
    ParityEvidence,
    Results,
    Role,
    Run,
    RunState,
    Source,
    Status,
    Trace,
    Unit,
)

NOISE = (-0.010, -0.004, 0.0, 0.003, 0.007, 0.011)


def launches(*groups):
    return tuple(
        Launch(launch=number, values=tuple(map(float, group)))
        for number, group in enumerate(groups)
    )


def sampled(centre, *, count=3, spread=1.0):
    """`count` launches of six samples each around `centre`."""
    return launches(
        *(
            [centre * (1 + spread * noise + 0.001 * spread * launch) for noise in NOISE]
            for launch in range(count)
        )
    )


def metric(
    series, *, name="step_time", arm="eager", unit=Unit.SECONDS, better=Better.LOWER, lane=Lane.WALL
):
    return Metric(name=name, arm=arm, unit=unit, better=better, lane=lane, launches=series)


def count(*values, name="graph_breaks", arm="inductor"):
    return metric(
        launches(*([value] for value in values)),
        name=name,
        arm=arm,
        unit=Unit.COUNT,
        lane=Lane.COUNTERS,
    )


def peak(*values, name="peak_allocated", arm="eager"):
    return metric(
        launches(*([value] for value in values)),
        name=name,
        arm=arm,
        unit=Unit.BYTES,
        lane=Lane.COUNTERS,
    )


def result(
    *metrics,
    id="s/a",  # noqa: A002 - the field's name
    status=Status.OK,
    checks=(),
    parity=None,
    arms=("eager",),
    reason="it broke",
    due=Due(),  # noqa: B008 - frozen
    details=(),
    outputs=None,
    threshold=None,
):
    suite, name = id.split("/", 1)
    failure = (
        None
        if status is Status.OK
        else Failure(stage="train", arms=("inductor",), reason=reason, log_tail="the end")
    )
    return CaseResult(
        case=Case(
            id=id,
            suite=suite,
            name=name,
            params={},
            arms=arms,
            reference="eager",
            due=due,
            details=details,
            threshold=threshold,
        ),
        status=status,
        reproduce=f"ci-bench run --filter {id}",
        failure=failure,
        metrics=metrics,
        checks=checks,
        parity=parity,
        outputs=outputs,
    )


def computed(content, *, start="weights", names="names", inputs="inputs", drawn=None, **fields):
    """What the reference arm computed: the same `content` has the same digest."""
    weights = Weights(names=digest(names), named=digest(f"{names} {start}"), ordered=digest(start))
    fields = {
        "arm": "eager",
        "tensors": 3,
        "size_bytes": 1200,
        "file": digest(f"file of {content}"),
        **fields,
    }
    return ReferenceOutputs(
        digest=digest(content),
        start=weights,
        inputs=digest(inputs),
        drawn=drawn and digest(drawn),
        **fields,
    )


def off(content, *errors, base="base", unknown="", **fields):
    """The same, held against base's: `errors` are pairs of what a tensor is off by and what rounding allows."""
    worst = tuple(
        TensorError(name=f"outputs of step {n}: 0", error=error, allowed=allowed)
        for n, (error, allowed) in enumerate(errors, 1)
    )
    beside = OutputsComparison(base=digest(base), tensors=3, worst=worst, unknown=unknown)
    return replace(computed(content, **fields), beside=beside)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def results(*cases, identity=None, state=RunState.COMPLETE):
    return Results(
        tool_version="1",
        run=Run(
            id="r", started_at="2026-01-01T00:00:00Z", state=state, config_digest="c", device="cpu"
        ),
        source=Source(),
        environment=Environment(
            identity={"gpu": "H200", "torch": "2.13"} if identity is None else identity,
            condition={},
        ),
        cases=cases,
    )


def judged(
    head, base=None, *, policy=None, mode=BaselineMode.FILE, absence="not found", **more
) -> Comparison:
    return compare(
        base=base,
        head=head,
        policy=policy or Policy(),
        mode=mode,
        absence=absence,
        tool_version="1",
        **more,
    )


def check(outcome=Outcome.FAIL):
    return Check(name="really compiled", arm="inductor", outcome=outcome, detail="0 graphs")


def curve(steps, seed=0):
    """A falling loss, slightly different for each seed."""
    return tuple(
        0.5 + (1.5 + 0.01 * seed) * math.exp(-step / 40) + 0.02 * math.sin(7 * step + seed)
        for step in range(steps)
    )


def trace(
    role, *, arm=None, seed=0, steps=60, scale=1.0, shift=0.0, loss=None, grad_norm=None, **fields
):
    base = curve(steps, seed)
    defaults = {"start": f"start-{seed}", "data": f"data-{seed}"}
    return Trace(
        arm=arm or ("inductor" if role is Role.CANDIDATE else "eager"),
        role=role,
        seed=seed,
        loss=tuple(x * scale + shift for x in base) if loss is None else tuple(loss),
        grad_norm=tuple(2 * x * scale for x in base) if grad_norm is None else tuple(grad_norm),
        **{**defaults, **fields},
    )


def perturbed(size=1e-6, *, seed=0, index=0, steps=60, **fields):
    """A reference run that rounding has moved by `size`, relatively."""
    fields = {"start": f"elsewhere-{seed}-{index}", **fields}
    return trace(Role.PERTURBED, seed=seed, steps=steps, scale=1 + size, index=index, **fields)


def _off(reference, off, **fields):
    losses, norms = (
        tuple(x and x * (1 + off) for x in values)
        for values in (reference.loss, reference.grad_norm)
    )
    return replace(reference, loss=losses, grad_norm=norms, **fields)


def control(reference, *, off=0.01):
    """The reference with a known fault."""
    return _off(reference, off, role=Role.CONTROL)


def shaken(reference, size=1e-6, *, index=0):
    """The reference, moved by rounding."""
    return _off(reference, size, role=Role.PERTURBED, index=index, start=f"shaken-{index}")


def evidence(*traces, masks=Masks.NO_DROPOUT, arm="inductor", rows=0, steps_per_epoch=125):
    """Evidence of these runs, with a control that is caught unless there is one."""
    references = [one for one in traces if one.role is Role.REFERENCE]
    if references and all(one.role is not Role.CONTROL for one in traces):
        traces = (*traces, control(references[0]))
    return ParityEvidence(
        precision="fp32",
        epsilon=2.0**-24,
        steps_per_epoch=steps_per_epoch,
        evaluation_rows=rows,
        masks=() if masks is None else (ArmMasks(arm=arm, masks=masks, detail=""),),
        traces=traces,
    )


def numeric(candidate, *, steps=60, size=1e-6, **fields):
    """Evidence of the numeric tier: a reference, one perturbed run, a candidate."""
    return evidence(
        trace(Role.REFERENCE, steps=steps), perturbed(size, steps=steps), candidate, **fields
    )


def statistical(shifts, *, nulls=(0.0002, -0.0002, 0.0001), steps=200, **fields):
    """Evidence of the statistical tier: the candidate's relative differences by seed, and those of other masks."""
    traces = [
        trace(Role.REFERENCE, seed=seed, steps=steps)
        for seed in range(max(len(shifts), len(nulls)))
    ]
    traces += [
        trace(Role.CANDIDATE, seed=seed, steps=steps, scale=1 + shift)
        for seed, shift in enumerate(shifts)
    ]
    traces += [
        trace(Role.OTHER_MASKS, seed=seed, steps=steps, scale=1 + null)
        for seed, null in enumerate(nulls)
    ]
    return evidence(*traces, masks=Masks.DIFFER, **fields)


def poisoned(run, step, signal="loss", value="nan"):
    """The run with one value that is no number."""
    values = list(getattr(run, signal))
    values[step] = None
    hole = NonFinite(signal=signal, step=step, value=value)
    return replace(run, **{signal: tuple(values)}, non_finite=(*run.non_finite, hole))


def candidate(**fields):
    return trace(Role.CANDIDATE, **fields)


def only(evidence_, **options):
    (finding,) = parity_findings(evidence_, **options)
    return finding
