"""Perturbed trainings end with the envelope where accuracy is decided without them, and are whole where it is not."""

import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_bench.records.results import ArmMasks, Masks, Role, Trace
from ci_bench.suites.training_loss.options import TrainingOptions
from ci_bench.suites.training_loss.recipes import ENVELOPE_STEPS
from ci_bench.suites.training_loss.verify import TrainingVerifier

WHOLE = 250


def trace(role, accuracy, *, arm="eager", index=0, steps=WHOLE):
    return Trace(
        arm=arm,
        role=role,
        seed=0,
        index=index,
        loss=(1.0,) * steps,
        grad_norm=(1.0,) * steps,
        start="s",
        data="d",
        accuracy=accuracy,
    )


TO_THE_END = 249
"""Stands for a whole training that is not evaluated: it shows how far rounding moves later steps."""


def lengths(
    monkeypatch,
    candidates,
    *,
    peers=(0.61, 0.59, 0.60),
    masks=Masks.ALIGNED,
    evaluation=True,
    provisional=False,
):
    """How long each perturbed training is, and how many can follow, beside candidates of these accuracies.

    `peers` are the accuracies of perturbed trainings that are whole.
    """

    def run(_self, recipe):
        steps = WHOLE if recipe.steps is None else recipe.steps or TO_THE_END
        shown = peers[recipe.index] if evaluation and recipe.steps is None else None
        return trace(recipe.role, shown, index=recipe.index, steps=steps)

    monkeypatch.setattr(TrainingVerifier, "_run", run)
    runs = [
        trace(Role.REFERENCE, 0.60),
        *(trace(Role.CANDIDATE, one, arm=f"a{at}") for at, one in enumerate(candidates)),
    ]
    if not evaluation:
        runs = [replace(one, accuracy=None) for one in runs]
    with tempfile.TemporaryDirectory() as folder:
        context = SimpleNamespace(provisional=provisional, scratch=Path(folder))
        verifier = TrainingVerifier(
            options=TrainingOptions(), context=context, train=(), test=() if evaluation else None
        )
        found = verifier._envelope(runs, [ArmMasks(arm="a0", masks=masks, detail="")])
        further = verifier.further_envelope().traces
    expected = 6 if further else 3
    assert [(one.role, one.index) for one in (*found, *further)] == [
        (Role.PERTURBED, index) for index in range(expected)
    ]
    assert {len(one.loss) for one in further} <= {TO_THE_END}
    return [len(one.loss) for one in found], len(further)


@pytest.mark.parametrize(
    ("candidates", "whole"),
    [
        ([0.601], 0),
        ([], 0),
        ([0.585], 1),
        ([0.64], 2),
        ([0.60, 0.20], 3),
        ([0.20], 3),
        ([None], 3),
    ],
    ids=[
        "as the reference",
        "none",
        "a bit off",
        "further off",
        "one of two is off",
        "far off",
        "was not evaluated",
    ],
)
def test_as_many_are_whole_as_it_takes_to_decide(monkeypatch, candidates, whole):
    told, further = lengths(monkeypatch, candidates)
    assert told == ([WHOLE] * whole or [TO_THE_END]) + [ENVELOPE_STEPS] * (3 - max(1, whole))
    assert further == (0 if whole else 3), (
        "short ones beside whole ones would leave accuracy in doubt"
    )


def test_where_masks_differ_all_are_whole(monkeypatch):
    assert lengths(monkeypatch, [0.60], masks=Masks.DIFFER) == ([WHOLE] * 3, 0)


def test_without_evaluation_all_are_short(monkeypatch):
    assert lengths(monkeypatch, [0.20], evaluation=False) == (
        [TO_THE_END, ENVELOPE_STEPS, ENVELOPE_STEPS],
        3,
    )


@pytest.mark.parametrize("evaluation", [True, False])
def test_one_is_enough_at_first_where_others_can_follow(monkeypatch, evaluation):
    assert lengths(monkeypatch, [0.601], evaluation=evaluation, provisional=True) == (
        [TO_THE_END],
        5,
    )


def test_all_are_trained_at_once_where_one_has_to_be_whole(monkeypatch):
    assert (
        lengths(monkeypatch, [0.64], provisional=True)
        == lengths(monkeypatch, [0.64])
        == ([WHOLE, WHOLE, ENVELOPE_STEPS], 0)
    )
    found = lengths(monkeypatch, [0.605], provisional=True)
    assert found == ([TO_THE_END, ENVELOPE_STEPS, ENVELOPE_STEPS], 0), (
        "certain beside three, not beside six"
    )
    assert lengths(monkeypatch, [0.60], masks=Masks.DIFFER, provisional=True) == ([WHOLE] * 3, 0)


def test_a_note_of_an_earlier_look_is_not_taken_for_this_ones(monkeypatch, tmp_path):
    monkeypatch.setattr(
        TrainingVerifier,
        "_run",
        lambda _, recipe: trace(recipe.role, None, index=recipe.index, steps=recipe.steps or WHOLE),
    )
    context = SimpleNamespace(provisional=True, scratch=tmp_path)
    verifier = TrainingVerifier(options=TrainingOptions(), context=context, train=(), test=None)
    assert len(verifier._envelope([], [])) == 1
    context.provisional = False
    assert len(verifier._envelope([], [])) == 3
    assert [one.index for one in verifier.further_envelope().traces] == [3, 4, 5]
