"""The backends of PyTorch's own pages are right, on a model with dropout; those that are wrong in their masks alone are caught.

State: a model of attention and dropout 0.1, SGD, 12 steps (100 where seeds decide), fp32, one
thread, CPU.
"""

from dataclasses import replace

import plain_backends
import pytest
import torch
from training_loss_builders import context

from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity, Tier
from ci_bench.records.results import ArmMasks, Masks, Role
from ci_bench.suites.shared.planning.arms import arm_name
from ci_bench.suites.shared.worker import randomness
from ci_bench.suites.training_loss import recipes, verify
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import open_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ENTRY = {
    "name": "dropping",
    "epochs": 1,
    "num_samples": 96,
    "batch_size": 8,
    "evaluation": False,
    "optimizer": "SGD",
    "lr": 0.05,
    "dataset": {"factory": "dropping_models:rows", "num_labels": 3},
    "model": {"factory": "dropping_models:Net"},
}
WRONG = {
    "same_mask": "loss",
    "two_masks": "loss",
    "no_dropout": "loss",
    "half_dropout": "loss",
    "redrawn": "grad_norm",
}


def verified(folder, backends, **changes):
    """The evidence about all of them, and the finding of each arm."""
    torch.compiler.reset()
    (case,) = SUITE.plan({**ENTRY, "backend": list(backends), **changes})
    workload = open_workload(case, context(folder))
    workload.prepare()
    evidence = workload.verify(case.arms).parity
    return evidence, {finding.arm: finding for finding in parity_findings(evidence)}


def own(*names):
    return [f"plain_backends:{name}" for name in names]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return verified(tmp_path_factory.mktemp("plain"), plain_backends.RIGHT)


@pytest.mark.parametrize("backend", plain_backends.RIGHT)
def test_a_plain_backend_is_right(plain, backend):
    finding = plain[1][arm_name(backend)]
    assert finding.verdict in {Parity.BITWISE, Parity.NUMERIC_PARITY}, finding.detail
    assert (finding.masks, finding.steps) == (Masks.ALIGNED, 12)


def test_a_step_that_leaves_the_generator_elsewhere_moves_no_other_step(
    plain, tmp_path, monkeypatch
):
    """Some of them do, without being wrong: with one seed for the whole training, they would be called so."""
    restless = {entry.arm for entry in plain[0].masks if "stands elsewhere" in entry.detail}
    assert restless >= {*own("aot_plain", "aot_boxed_func", "aot_interpreted")}

    def once(seed, *place):
        of_training = (
            len(place) == 2
        )  # the training's seed and the step; masks are drawn by their number alone
        if not of_training or place[-1] == 0:
            randomness.seed_step(seed, *place)

    monkeypatch.setattr(recipes, "seed_step", once)
    _, findings = verified(tmp_path, own("aot_plain"))
    (finding,) = findings.values()
    assert (finding.verdict, finding.first_step) == (Parity.DIFFERENT_MATH, 1)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    return verified(tmp_path_factory.mktemp("wrong"), own(*WRONG), perturbations=1)


@pytest.mark.parametrize(("backend", "signal"), WRONG.items())
def test_masks_that_are_wrong_are_different_math_from_the_first_step_on(wrong, backend, signal):
    finding = wrong[1][f"plain_backends:{backend}"]
    assert (finding.verdict, finding.masks, finding.first_step, finding.signal) == (
        Parity.DIFFERENT_MATH,
        Masks.ALIGNED,
        0,
        signal,
    )


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return verified(
        tmp_path_factory.mktemp("others"),
        own("drawing", "own_generator", "tuning"),
        num_samples=800,
        seeds=2,
        perturbations=1,
    )


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("drawing", "it draws other random numbers; after a step, torch cpu stands elsewhere"),
        ("own_generator", "it draws other random numbers"),
        ("tuning", "in its first step, which compiles, it draws other random numbers"),
    ],
)
def test_other_numbers_of_the_same_kind_are_judged_over_seeds_and_say_why(others, backend, reason):
    evidence, findings = others
    finding = findings[f"plain_backends:{backend}"]
    assert (finding.tier, finding.masks) == (Tier.STATISTICAL, Masks.DIFFER)
    assert finding.verdict is Parity.EQUIVALENT, finding.detail
    assert reason in finding.detail
    assert "100 steps is equal in every bit; a learning rate 1 % off would" in finding.detail
    assert {trace.seed for trace in evidence.traces if trace.arm == finding.arm} == {0, 1}


WRONG_WITH_OWN = {
    "drawing_and_scaled": (Parity.DIFFERENT_MATH, "without dropout, in fp32: loss leaves"),
    "drawing_and_detached": (Parity.DIFFERENT_MATH, "without dropout, in fp32: gradient norm"),
    "drawing_and_late": (Parity.DIFFERENT_MATH, "the mean loss of steps 50 to 74 is off by 6 %"),
    "drawing_and_redrawn": (Parity.DIFFERENT, "its gradients are not those of its loss"),
    "drawing_and_sharing": (Parity.DIFFERENT, "other dropout masks do not explain that over"),
    "drawing_and_halving": (Parity.DIFFERENT, "other dropout masks do not explain that over"),
}
"""Faults of backends with masks of their own: the verdict, and its reason."""


@pytest.fixture(scope="module")
def wrong_with_own(tmp_path_factory):
    return verified(
        tmp_path_factory.mktemp("wrong_with_own"),
        own(*WRONG_WITH_OWN),
        num_samples=800,
        seeds=2,
        perturbations=1,
        precision="amp_bf16",
    )


@pytest.mark.parametrize(("backend", "expected"), WRONG_WITH_OWN.items())
def test_other_masks_hide_no_fault(wrong_with_own, backend, expected):
    finding = wrong_with_own[1][f"plain_backends:{backend}"]
    verdict, reason = expected
    assert (finding.verdict, finding.masks) == (verdict, Masks.DIFFER), finding.detail
    assert reason in finding.detail


MISSING = {
    "drawing": ("", 3),
    "drawing_and_keeping": ("over", 0),
    "drawing_and_doubling": ("over", 0),
    "drawing_and_attending": ("with only dropout in attention, loss takes 1 values", 0),
}
"""What one step under many seeds shows: how a difference begins, and places that it would see."""


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    (case,) = SUITE.plan({**ENTRY, "backend": own(*MISSING)})
    workload = open_workload(case, context(tmp_path_factory.mktemp("masks")))
    workload.prepare()
    verifier = workload.verifier()

    def tested(name):
        arm = f"plain_backends:{name}"
        probed = ArmMasks(arm=arm, masks=Masks.DIFFER, detail="others")
        return verifier.with_masks_tested(probed, verifier.masks_tested(arm))

    return tested


@pytest.mark.parametrize(("backend", "expected"), MISSING.items())
def test_dropout_that_is_missing_in_one_place_is_seen(masks, backend, expected):
    """Attention's is drowned by that of the layers, and is looked at alone."""
    words, places = expected
    tested = masks(backend)
    assert tested.unexplained is not None
    assert tested.unexplained[: len(words) or None] == words
    assert (tested.places, tested.unseen) == (places, "")


def test_a_model_that_draws_more_than_dropout_is_judged_over_seeds_alone(tmp_path):
    evidence, findings = verified(
        tmp_path,
        own("drawing"),
        num_samples=800,
        seeds=2,
        perturbations=1,
        model={"factory": "dropping_models:Noisy"},
    )
    (finding,) = findings.values()
    assert evidence.without_dropout is None
    assert finding.verdict is Parity.INCONCLUSIVE, finding.detail


def test_other_masks_are_other_in_every_step(others):
    """A reference's losses under other masks are near its own, and never equal."""
    evidence, _ = others
    own_masks, other = (
        next(trace for trace in evidence.traces if (trace.role, trace.seed) == (role, 0))
        for role in (Role.REFERENCE, Role.OTHER_MASKS)
    )
    assert replace(other, loss=(), grad_norm=(), role=Role.REFERENCE) == replace(
        own_masks, loss=(), grad_norm=()
    )
    assert all(one != two for one, two in zip(own_masks.loss, other.loss, strict=True))


def test_without_memory_for_two_models_masks_are_not_tested(tmp_path, monkeypatch):
    def too_large(*_arguments, **_options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(verify, "compare_first_steps", too_large)
    evidence, findings = verified(
        tmp_path, own("drawing"), num_samples=800, seeds=2, perturbations=1
    )
    assert [entry.unexplained for entry in evidence.masks] == [None]
    (finding,) = findings.values()
    assert finding.verdict is Parity.INCONCLUSIVE, finding.detail
