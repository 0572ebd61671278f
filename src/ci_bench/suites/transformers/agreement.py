"""Results of a step, and the check `agrees`: do the arms compute the same, by the shared rule?

Outputs, losses and gradients are compared with the same program in fp64. The optimizer's updates
are compared with the same optimizer in fp64 after the arm's own gradients: Adam makes a whole
update of the rounding of a tiny gradient, and that is not its fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Computed
from ci_bench.suites.shared.worker.numerics import (
    Agreement,
    conclude,
    jolt_of,
    judged,
    measure_change,
    measured,
    of_optimizer,
    yardstick_of,
)
from ci_bench.suites.transformers.options import AGREES, REFERENCE_ARM


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputChange:
    """An optimizer's change of a weight, from `start` to `after`.

    `ideal` is the change (fp64) for the arm's own gradient.
    """

    start: Tensor
    after: Tensor
    ideal: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputObservation:
    """Results of steps, on the CPU, by name.

    Names are for example ``output: 0``, ``loss: of the step``, ``gradient: lm_head.weight``.
    """

    values: Mapping[str, Tensor]
    changes: Mapping[str, OutputChange] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceOutputsOfModel:
    """Reference for candidates: fp64, eager, and eager from weights that are shaken by `shake_of`.

    The shaken run may lack steps.
    """

    exact: OutputObservation
    eager: OutputObservation
    shaken: OutputObservation


def shake_of(epsilon: float) -> float:
    """Return how hard the weights of the one shaken run are shaken.

    In formats that seldom cross kinks, the shake is for the kinks, too.
    """
    return jolt_of(epsilon) or epsilon


def compared(
    observation: OutputObservation,
    reference: ReferenceOutputsOfModel,
    *,
    epsilon: float,
    beta: float = 0.0,
) -> Agreement:
    """Judge all results of an arm's steps. `beta` is the optimizer's longest memory."""
    extra = {"jolts" if jolt_of(epsilon) else "runs": [reference.shaken.values]}
    runs = [reference.eager.values, *extra.get("runs", [])]
    usual = yardstick_of(epsilon)
    deviations = measured(
        observation.values,
        truth=reference.exact.values,
        runs=runs,
        jolts=extra.get("jolts", ()),
        starts={},
    )
    eager, changes = reference.eager.changes, []
    for name in eager.keys() & observation.changes.keys():
        candidate, eager_change = observation.changes[name], eager[name]
        changes.append(
            measure_change(
                name,
                candidate.after,
                candidate.ideal,
                reference=(eager_change.after, eager_change.ideal),
                start=eager_change.start,
            )
        )
    return conclude([*judged(deviations, usual), *judged(changes, of_optimizer(usual, beta))])


def as_computed(reference: ReferenceOutputsOfModel, *, epsilon: float) -> Computed:
    """Return the reference's results, for a process that compares again.

    Changes of weights are not included.
    """
    shaken = [reference.shaken.values]
    return Computed(
        arm=REFERENCE_ARM,
        epsilon=epsilon,
        outputs=reference.eager.values,
        runs=() if jolt_of(epsilon) else shaken,
        jolts=shaken if jolt_of(epsilon) else (),
        truth=reference.exact.values,
    )


def check_of(arm: str, agreement: Agreement) -> Check:
    """Return the check `agrees` of one arm."""
    return Check(
        name=AGREES, arm=arm, outcome=agreement.outcome, detail=f"{agreement.detail} (against fp64)"
    )


def disagrees(arm: str, reason: str) -> Check:
    """Return the check `agrees`, failed for a reason without a number."""
    return Check(name=AGREES, arm=arm, outcome=Outcome.FAIL, detail=reason)
