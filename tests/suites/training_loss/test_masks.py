"""The probe knows matching dropout masks from others, other masks from none, and models that draw nothing."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from training_loss_builders import start_of_model

from ci_bench.records.results import Masks
from ci_bench.suites.shared.worker.randomness import generator_states, moved, seed_everything
from ci_bench.suites.training_loss.masks import DRAWS, MaskDraws, compare_masks, take_draws
from ci_bench.suites.training_loss.network import start_state
from ci_bench.suites.training_loss.options import Model, TrainingOptions
from ci_bench.suites.training_loss.training import build_trainee

pytestmark = pytest.mark.engine

ELEMENTS = 300
STANDS: dict[str, object] = {"torch cpu": b"here"}


def draws(seed=0, *, common=0, mean=1.0, scale=1.0, rounding=0.0, after=STANDS):
    """What `seed`'s masks make of one loss and gradient; `common` is the part that all masks share."""
    generator = torch.Generator().manual_seed(seed)
    gradients = mean + 0.1 * torch.randn(DRAWS, ELEMENTS, generator=generator, dtype=torch.float64)
    losses = 1 + 0.1 * torch.randn(DRAWS, generator=generator, dtype=torch.float64)
    gradients = scale * (gradients + rounding * torch.randn(DRAWS, ELEMENTS, generator=generator))
    return MaskDraws(losses=losses + common, gradients=gradients, again=gradients[0], after=after)


REFERENCE = draws()
FIRST = float(REFERENCE.losses[0])


def compared(candidate, reference=REFERENCE, first=None):
    return compare_masks(
        "arm",
        reference,
        candidate,
        first_losses=(FIRST, float(candidate.losses[0]) if first is None else first),
    )


def repeating(candidate, period):
    """A backend that has so many masks, one after the other."""
    order = [index % period for index in range(DRAWS)]
    return replace(candidate, losses=candidate.losses[order], gradients=candidate.gradients[order])


def with_gradients(candidate, other):
    """Masks drawn anew in the backward pass."""
    return replace(candidate, gradients=other.gradients, again=other.again)


@pytest.mark.parametrize(
    "candidate",
    [
        REFERENCE,
        draws(rounding=1e-6),
        draws(scale=1.5),
        draws(mean=3.0),
        draws(common=5.0),
        replace(REFERENCE, after={"torch cpu": b"elsewhere"}),
        with_gradients(REFERENCE, draws(1)),
    ],
    ids=[
        "the same",
        "rounded",
        "scaled",
        "shifted",
        "another loss",
        "another state after it",
        "other masks backwards",
    ],
)
def test_masks_match_where_what_a_seed_changes_is_the_same_whatever_else_is_wrong(candidate):
    assert compared(candidate).masks is Masks.ALIGNED


@pytest.mark.parametrize("seed", range(1, 30))
def test_other_numbers_of_the_same_kind_are_other_masks(seed):
    found = compared(draws(seed))
    assert (found.arm, found.masks) == ("arm", Masks.DIFFER)
    assert "it draws other random numbers" in found.detail


@pytest.mark.parametrize(
    "candidate",
    [
        *(repeating(draws(1), period) for period in (1, 2, 4, DRAWS - 1)),
        draws(1, scale=0.1),
        draws(1, scale=10.0),
    ],
    ids=["one mask", "two masks", "four masks", "one of them twice", "hardly any", "far too much"],
)
def test_what_is_no_dropout_of_that_kind_has_no_excuse(candidate):
    found = compared(candidate)
    assert found.masks is Masks.ALIGNED
    assert "these are not other masks" in found.detail


def test_the_generators_that_stand_elsewhere_after_a_step_are_named():
    assert (
        "torch cpu stands elsewhere"
        in compared(replace(REFERENCE, after={"torch cpu": b"there"})).detail
    )
    assert "stands elsewhere" not in compared(REFERENCE).detail


def test_a_model_without_random_numbers_has_no_masks():
    still = draws()
    still = replace(
        still,
        losses=still.losses[:1].expand(DRAWS),
        gradients=still.gradients[:1].expand(DRAWS, -1),
    )
    shaken = replace(still, again=still.again * (1 + 1e-7))
    for reference in (still, shaken):
        assert compared(still, reference).masks is Masks.NO_DROPOUT


def test_a_model_with_a_generator_of_its_own_cannot_be_aligned():
    restless = replace(REFERENCE, again=draws(9).gradients[0])
    found = compared(REFERENCE, restless)
    assert found.masks is Masks.DIFFER
    assert "does not repeat from the same seed" in found.detail


def test_what_is_not_finite_is_left_to_the_traces():
    assert (
        compared(replace(REFERENCE, losses=REFERENCE.losses * float("nan"))).masks is Masks.ALIGNED
    )


@pytest.mark.parametrize(
    ("apart", "masks"),
    [
        (0.0, Masks.ALIGNED),
        (1e-3, Masks.ALIGNED),
        (0.05, Masks.DIFFER),
        (100.0, Masks.ALIGNED),
        (float("nan"), Masks.ALIGNED),
    ],
    ids=["equal", "rounding", "as other masks would", "as no mask could", "no number"],
)
def test_numbers_drawn_while_the_first_step_compiles_are_seen(apart, masks):
    found = compared(REFERENCE, first=FIRST + apart)
    assert found.masks is masks
    assert ("in its first step" in found.detail) is (masks is Masks.DIFFER)


@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_models_own_step_has_masks_when_it_has_dropout(share, kind, bench):
    start = start_of_model(bench.options.model, 0)
    trainee = build_trainee(bench.options, start, device="cpu", candidate=None)
    trainee.model.to(kind)
    for module in trainee.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = share
    found = take_draws(trainee, start, bench.rows.batch(torch.arange(2)), seed=0)
    first = float(found.losses[0])
    assert (
        compare_masks("arm", found, found, first_losses=(first, first)).masks is Masks.ALIGNED
    ) is (share > 0)


def test_draws_begin_from_the_start_and_from_their_own_seeds(bench):
    """Neither the weights of the step before nor numbers drawn meanwhile are in them."""
    start = start_of_model(bench.options.model, 0)
    batch = bench.rows.batch(torch.arange(4))
    found = []
    for noise in (0, 5):
        trainee = build_trainee(bench.options, start, device="cpu", candidate=None)
        seed_everything(noise)
        found.append(take_draws(trainee, start, batch, seed=7))
    assert torch.equal(found[0].gradients, found[1].gradients)
    assert torch.equal(found[0].gradients[0], found[0].again)
    assert found[0].after == found[1].after
    assert len({tuple(one.tolist()) for one in found[0].gradients}) == DRAWS


def test_a_large_gradient_is_sampled_evenly():
    from ci_bench.suites.training_loss.masks import ELEMENTS as MOST
    from ci_bench.suites.training_loss.masks import _sampled_gradient

    wide, narrow = torch.zeros(10 * MOST), torch.zeros(3)
    wide.grad, narrow.grad = torch.arange(10.0 * MOST), None
    trainee = SimpleNamespace(model=SimpleNamespace(parameters=lambda: iter([wide, narrow])))
    found = _sampled_gradient(trainee)
    assert found.tolist() == [*range(0, 10 * MOST, 10), 0, 0, 0]


@pytest.mark.parametrize("dropout", [True, False])
def test_dropout_that_is_off_draws_nothing_wherever_a_layer_keeps_its_share(dropout):
    model = Model(factory="dropping_models:Layered")
    options = TrainingOptions(model=model, dropout=dropout, backends=("aot_eager",))
    start = start_state(options, seed=0)
    trainee = build_trainee(options, start, device="cpu", candidate=None)
    before = generator_states()
    trainee.step({"pixels": torch.zeros(8, 4, 2), "labels": torch.zeros(8, dtype=torch.long)})
    assert bool(moved(before, generator_states())) is dropout
