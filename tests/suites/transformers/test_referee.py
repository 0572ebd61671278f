"""Timed calls of transformers models under a referee: each mode, right arms and replaying ones."""

import pytest
from refereeing import referee_checks
from transformers_builders import case, context, tiny

from ci_bench.records.results import Outcome
from ci_bench.suites.transformers.run import open_workload

pytestmark = pytest.mark.engine


def refereed(entry, **options):
    made = case(**entry)
    return referee_checks(open_workload(made, context()), made.arms, context(), **options)[
        made.arms[-1]
    ]


@pytest.mark.parametrize(("mode", "calls"), [("inference", 2), ("training", 1), ("generation", 2)])
def test_a_right_arm_agrees_in_every_mode(mode, calls):
    check = refereed(tiny("llama", mode=mode, candidate="aot_eager"), calls=calls)
    assert check.outcome is Outcome.PASS, check


def test_a_traced_arm_and_one_in_bf16_agree():
    assert refereed(tiny("bert", mode="inference", candidate="torchscript")).outcome is Outcome.PASS
    check = refereed(tiny("vit", mode="training", candidate="aot_eager", precision="bf16"))
    assert check.outcome is not Outcome.FAIL, check


@pytest.mark.parametrize(("mode", "backend"), [
    ("inference", "planted_replays:by_address"),
    ("generation", "planted_replays:by_count"),
    ("training", "planted_replays:stale_gradients"),
])  # fmt: skip
def test_what_was_not_computed_in_the_timed_call_is_refused(mode, backend):
    check = refereed(tiny("gpt2", mode=mode, candidate=backend))
    assert check.outcome is Outcome.FAIL, check


def test_a_model_that_drops_out_is_held_to_what_other_masks_change():
    check = refereed(tiny("bert", mode="training", candidate="aot_eager", dropout=True))
    assert check.outcome is not Outcome.FAIL, check
