"""A candidate with dropout masks of its own: what it does without dropout, and over seeds of a step, decides where few trainings cannot."""

from dataclasses import replace

import pytest
from judge_builders import ArmMasks, candidate, control, numeric, only, shaken, statistical, trace
from test_parity_statistical import apart

from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import Masks, Role

TOO_FEW = {"shifts": (0.02, -0.02, 0.004), "nulls": (0.02, -0.02)}
"""What three seeds leave undecided."""


def own_masks(
    evidence=None, *, run=None, unexplained="", controlled=True, arm="inductor", **tested
):
    """Undecided evidence, with a training without dropout: the reference's losses unless `run` has others."""
    evidence = evidence or statistical(**TOO_FEW)
    reference = trace(Role.REFERENCE)
    traces = (reference, shaken(reference), replace(run or candidate(), arm=arm))
    controls = (control(reference),) if controlled else ()
    rest = replace(numeric(candidate()), traces=(*traces, *controls))
    return replace(
        evidence,
        masks=(
            ArmMasks(
                arm="inductor",
                masks=Masks.DIFFER,
                detail="own",
                unexplained=unexplained,
                **{"places": 3, **tested},
            ),
        ),
        without_dropout=rest,
    )


def test_a_difference_that_chance_explains_is_none_where_everything_else_agrees():
    finding = only(own_masks())
    assert (finding.verdict, finding.tier, finding.masks) == (
        Parity.EQUIVALENT,
        Tier.STATISTICAL,
        Masks.DIFFER,
    )
    assert finding.interval.low < finding.difference < finding.interval.high
    assert "95 % interval" in finding.detail
    assert "without dropout, in fp32, every loss" in finding.detail
    assert "a learning rate 1 % off would have scored" in finding.detail
    assert "other masks explain the rest of a step over many seeds; dropout" in finding.detail
    assert "missing in the least visible of its places (3) would have shown" in finding.detail


def test_ranks_run_eager_s_layers_and_need_no_control_of_masks():
    finding = only(own_masks(places=0))
    assert finding.verdict is Parity.EQUIVALENT
    assert "would have shown" not in finding.detail


def test_dropout_that_could_be_missing_unseen_decides_nothing():
    finding = only(own_masks(unseen="attention"))
    assert finding.verdict is Parity.INCONCLUSIVE
    assert "would not show dropout missing in attention" in finding.detail
    assert "`dropout: false`" in finding.detail
    near = only(own_masks(statistical((0.0001, -0.0002, 0.0001)), unseen="attention"))
    assert near.verdict is Parity.EQUIVALENT
    assert "explain the rest" not in near.detail


def test_a_final_loss_within_the_margin_says_what_else_was_seen():
    finding = only(own_masks(statistical((0.0001, -0.0002, 0.0001))))
    assert finding.verdict is Parity.EQUIVALENT
    assert finding.detail.count("a learning rate 1 % off would have scored") == 1
    assert "interval" not in finding.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"unexplained": None},
        {"controlled": False},
        {"arm": "another"},
        {"run": candidate(steps=20)},
        {"run": candidate(loss=[2.0] * 60, grad_norm=[0.0] * 60, data="other rows")},
    ],
    ids=[
        "steps were not drawn again",
        "no control",
        "of another arm",
        "too short",
        "not comparable",
    ],
)
def test_what_was_not_shown_decides_nothing(changes):
    assert only(own_masks(**changes)).verdict is Parity.INCONCLUSIVE


def test_a_control_that_passes_decides_nothing():
    weak = own_masks()
    traces = tuple(
        control(trace(Role.REFERENCE), off=1e-9) if one.role is Role.CONTROL else one
        for one in weak.without_dropout.traces
    )
    weak = replace(weak, without_dropout=replace(weak.without_dropout, traces=traces))
    assert only(weak).verdict is Parity.INCONCLUSIVE


def test_a_fault_without_dropout_is_a_fault():
    finding = only(own_masks(run=candidate(scale=1.001)))
    assert (finding.verdict, finding.masks) == (Parity.DIFFERENT_MATH, Masks.DIFFER)
    assert finding.detail.startswith("without dropout, in fp32: loss leaves the rounding envelope")


@pytest.mark.parametrize("undecided", [True, False])
def test_what_masks_do_not_explain_is_a_fault(undecided):
    evidence = statistical(**TOO_FEW) if undecided else statistical((0.0001, -0.0002, 0.0001))
    finding = only(own_masks(evidence, unexplained="its gradients are not those of its loss"))
    assert finding.verdict is Parity.DIFFERENT
    assert "do not explain that its gradients are not those of its loss" in finding.detail


def test_a_certain_difference_stays_one():
    finding = only(own_masks(statistical((0.02, 0.021, 0.019))))
    assert finding.verdict is Parity.DIFFERENT
    assert "more than other dropout masks explain" in finding.detail


def test_a_growing_difference_stays_undecided():
    growing = apart(lambda _, step: 0.00006 * (step - 174.5))
    assert "still growing" in only(own_masks(growing)).detail
    assert only(own_masks(growing)).verdict is Parity.INCONCLUSIVE
