"""The test over seeds, on programs written by hand: right masks pass whatever their seeds, wrong ones fail."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - only with torch
from torch.nn import functional  # noqa: E402

from ci_bench.suites.shared.worker import redrawing  # noqa: E402
from ci_bench.suites.shared.worker.draws import (  # noqa: E402
    SEEDS,
    Draws,
    moved_by_seeds,
    off_the_slope,
    slope_ratio,
    told_apart,
)
from ci_bench.suites.shared.worker.dropping import (  # noqa: E402
    Dropout,
    drop_nothing,
    leaving_out,
    without_dropout,
)
from ci_bench.suites.shared.worker.redrawing import (  # noqa: E402
    Control,
    Drawn,
    Redrawing,
    redraw,
)

pytestmark = pytest.mark.engine

EPSILON = 2.0**-24
WEIGHTS = torch.randn(40, 12, generator=torch.Generator().manual_seed(1))
ROWS = torch.randn(16, 40, generator=torch.Generator().manual_seed(2))


def dropped(seed, *, share=0.1, scale=1.0, noise=0.0):
    """Rows of which a share is dropped, times weights; what no mask touches stands beside it."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(ROWS.shape, generator=generator) >= share
    out = scale * ((ROWS * mask) @ WEIGHTS) / (1 - share)
    return {"outputs": out + noise, "first": ROWS.sum(0), "count": mask.sum().reshape(1)}


def drawn(first_seed, work=dropped, direction=None):
    draws = Draws(direction=direction or dropped(999))
    for seed in range(first_seed, first_seed + SEEDS, 2):
        draws.add(work(seed), work(seed + 1))
    return draws


def test_the_same_work_under_other_seeds_is_told_apart_once_in_ten_thousand():
    reference = [drawn(10_000 * run) for run in range(12)]
    assert not [one for one in reference for other in reference if told_apart(one, other, EPSILON)]


def test_fewer_seeds_alone_tell_nothing_apart():
    few = Draws(direction=dropped(999))
    for seed in range(5000, 5000 + SEEDS // 4, 2):
        few.add(dropped(seed), dropped(seed + 1))
    assert not told_apart(drawn(0), few, EPSILON)


@pytest.mark.parametrize(("work", "words"), [
    (lambda seed: dropped(7), "takes 1 values under 32 seeds, where eager's takes 32"),
    (lambda seed: dropped(seed % 3), "takes 3 values"),
    (lambda seed: dropped(seed, share=0.0), "takes 1 values"),
    (lambda seed: dropped(seed, share=0.05), "outputs"),
    (lambda seed: dropped(seed, share=0.2), "outputs"),
    (lambda seed: dropped(seed, scale=0.9), "outputs is another on average"),
    (lambda seed: {**dropped(seed), "first": dropped(seed)["outputs"].sum(0).repeat(4)[:40]}, "first changes with the seed"),
])  # fmt: skip
def test_wrong_masks_are_told_apart(work, words):
    assert words in told_apart(drawn(0), drawn(5000, work), EPSILON)


def test_only_what_seeds_move_is_compared():
    assert moved_by_seeds(drawn(0), EPSILON) == ("outputs",)


@pytest.mark.parametrize("share", [0.28, 0.31, 0.34, 0.37, 0.4, 0.45])
def test_a_tensor_at_the_border_of_what_seeds_move_is_no_difference(share):
    """Its largest distance of two draws lies beyond the border for one program, and below for the other."""

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        moved = 100.0 * math.sqrt(EPSILON) * share * torch.randn(1, generator=generator)
        return {**dropped(seed), "border": torch.cat([torch.tensor([100.0]), moved])}

    one, other = (drawn(first, work, direction=work(999)) for first in (0, 5000))
    assert not told_apart(one, other, EPSILON)
    assert not told_apart(other, one, EPSILON)


def test_few_draws_tell_nothing_and_draws_without_spread_have_to_be_equal():
    few = [Draws(direction=dropped(999)) for _ in range(2)]
    few[0].add(dropped(1), dropped(2))
    few[1].add(dropped(3, scale=3.0), dropped(4, scale=3.0))
    assert not told_apart(*few, EPSILON)


def loss_of(weights):
    return float((weights**2).sum() / 2)


def test_the_slope_along_a_gradient_is_the_gradients_own():
    weights = torch.arange(1.0, 6.0, dtype=torch.float64)

    def ratio(gradient):
        square, along = float(gradient @ gradient), lambda step: loss_of(weights + step * gradient)
        return slope_ratio(
            along, square=square, loss=loss_of(weights), weight=float(weights.norm())
        )

    assert ratio(weights) == pytest.approx(1.0)
    masked = weights * torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]) * 1.25
    assert abs(ratio(masked) - 1) > 0.1
    assert slope_ratio(lambda _: math.nan, square=0.0, loss=1.0, weight=1.0) == 1.0


def test_slopes_may_be_as_far_off_as_the_references_are():
    assert not off_the_slope([1.0, 1.001], [1.0, 1.01])
    assert not off_the_slope([0.9, 1.1], [0.8, 1.2])
    assert "gradients are not those of its loss" in off_the_slope([1.0, 1.001], [0.9, 1.1])


@pytest.mark.parametrize(
    ("epsilon", "wrong"),
    [(2.0**-53, 0.0021), (2.0**-24, 0.0021), (2.0**-12, 0.0025), (2.0**-9, 0.021)],
)
def test_slopes_are_held_to_the_precision(epsilon, wrong):
    eager = [1.0, 1.00001]
    assert not off_the_slope(eager, [1 - 0.9 * wrong, 1 + 0.9 * wrong], epsilon)
    assert off_the_slope(eager, [1 - wrong, 1 + wrong], epsilon)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent = nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)
        self.attend = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.drop = nn.Dropout(0.5)

    def forward(self, rows):
        rows, _ = self.recurrent(rows)
        rows = self.drop(rows) + functional.scaled_dot_product_attention(
            rows, rows, rows, dropout_p=0.5
        )
        return functional.dropout(self.attend(rows, rows, rows)[0], 0.5)


def test_without_dropout_nothing_is_dropped_and_afterwards_all_is_as_it_was():
    model, rows = Dropping(), torch.randn(2, 3, 4)
    before = {
        name: getattr(functional, name) for name in ("dropout", "scaled_dot_product_attention")
    }
    assert not torch.equal(model(rows), model(rows))
    with without_dropout():
        assert not torch.equal(model(rows), model(rows)), "between the layers of the recurrent one"
        drop_nothing(model)
        assert torch.equal(model(rows), model(rows))
    assert {name: getattr(functional, name) for name in before} == before
    assert not torch.equal(model(rows), model(rows))


@pytest.mark.parametrize("kind", Dropout)
def test_without_the_other_kinds_one_kind_still_drops(kind):
    model, rows = Dropping(), torch.randn(2, 3, 4)
    alone = {
        Dropout.RECURRENT: lambda: model.recurrent(rows)[0],
        Dropout.LAYER: lambda: model.drop(rows),
        Dropout.ATTENTION: lambda: functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.5),
    }  # fmt: skip
    with without_dropout(keeping=kind):
        if kind is not Dropout.RECURRENT:
            drop_nothing(model)
        still = [other for other, run in alone.items() if torch.equal(run(), run())]
    assert still == [other for other in alone if other is not kind]


def test_one_place_is_left_out_and_the_others_draw_as_before():
    model, rows = Dropping(), torch.randn(2, 3, 4)

    def out(place):
        torch.manual_seed(0)
        with leaving_out(model, place) as passed:
            return model(rows), dict(passed)

    usual, passed = out(None)
    assert passed == {Dropout.RECURRENT: 1, Dropout.LAYER: 3, Dropout.ATTENTION: 1}
    places = [(kind, number) for kind, count in passed.items() for number in range(count)]
    outs = [out(place)[0] for place in places]
    assert not any(torch.equal(usual, other) for other in outs)
    torch.manual_seed(0)
    assert torch.equal(model(rows), usual), "afterwards all is as it was"
    last = outs[places.index((Dropout.LAYER, 2))]  # the one on the outputs
    assert torch.allclose(usual, torch.where(usual == 0, usual, 2 * last))
    model.eval()
    with leaving_out(model, None) as passed:
        model(rows)
    assert passed == {Dropout.LAYER: 1, Dropout.ATTENTION: 1}, (
        "modules drop nothing outside training"
    )


class Drowned(nn.Module):
    """Two places of dropout, and attention's: `small` times what each of the other two adds."""

    def __init__(self, small):
        super().__init__()
        self.into, self.small = nn.Linear(12, 8, bias=False), small
        self.first, self.second = nn.Dropout(0.5), nn.Dropout(0.5)

    def forward(self, rows):
        rows = self.into(rows)
        attended = functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.5)
        return (self.first(rows) + self.small * (self.second(rows) + 4 * attended)).square().mean()


def eager_steps(model):
    rows = torch.randn(16, 12, generator=torch.Generator().manual_seed(0))

    def draw(seed, moved):
        torch.manual_seed(seed)
        model.zero_grad()
        loss = model(rows)
        loss.backward()
        gradients = {"into": model.into.weight.grad.clone()}
        return Drawn(results={"loss": loss.detach().reshape(1), **gradients}, loss=loss.detach(), gradients=gradients)  # fmt: skip

    return Redrawing(draw=draw, trained={}, module=model)


def test_a_control_sees_that_dropout_is_missing_anywhere():
    control = redraw(eager_steps(Drowned(1.0)), EPSILON, 128).control()
    assert control == Control(places=3, kinds=(Dropout.ATTENTION, Dropout.LAYER), unseen=())


def test_a_place_that_another_drowns_is_not_seen():
    control = redraw(eager_steps(Drowned(1e-3)), EPSILON, 128).control()
    assert control.unseen == (Dropout.ATTENTION, Dropout.LAYER)
    with without_dropout(keeping=Dropout.ATTENTION):
        alone = redraw(eager_steps(Drowned(1e-3)), EPSILON, 128).control()
    assert alone == Control(places=1, kinds=(Dropout.ATTENTION,), unseen=())


def test_a_place_whose_result_nobody_takes_is_no_place():
    assert redraw(eager_steps(Drowned(0.0)), EPSILON, 32).control().places == 1


KINDS = (Dropout.ATTENTION, Dropout.LAYER)
SEEN = Control(places=1, kinds=(Dropout.ATTENTION,), unseen=())


@pytest.mark.parametrize(
    ("kinds", "alone", "expected"),
    [
        (KINDS, redrawing.Tested(unexplained="", control=SEEN), ("", "")),
        (KINDS, redrawing.Tested(unexplained="loss is odd", control=None), ("with only dropout in attention, loss is odd", "")),
        (KINDS, redrawing.Tested(unexplained="", control=Control(places=2, kinds=KINDS[:1], unseen=KINDS[:1])), ("", "attention")),
        (KINDS, None, ("", "attention")),
        (KINDS[:1], redrawing.Tested(unexplained="", control=SEEN), ("", "attention")),
    ],
    ids=["seen by itself", "a fault", "unseen by itself too", "not testable", "the only kind"],
)  # fmt: skip
def test_a_kind_that_others_drown_is_looked_at_by_itself(kinds, alone, expected):
    """With one kind there are no others to turn off."""
    control = Control(places=3, kinds=kinds, unseen=(Dropout.ATTENTION,))
    asked = []

    def test(kind):
        asked.append(kind)
        return alone

    assert redrawing.Tested(unexplained="", control=control).with_each_alone(test) == expected
    assert asked == ([Dropout.ATTENTION] if len(kinds) > 1 else [])
