"""Planted defects: each has to turn the agreement check red, in every form it is planted in; and what is sound has to stay green."""

# ruff: noqa: PLR0917 - cells in the form that TorchScript reads have no keyword-only arguments
import pytest
import torch
from fastrnns_builders import (
    HAND_WRITTEN,
    IMAGES,
    SMALL,
    WITHOUT_COMPILER,
    make_case,
    open_case,
    verified,
)
from torch import Tensor, nn
from torch.nn import functional

from ci_bench.records.results import Outcome
from ci_bench.suites.contract import no_mark
from ci_bench.suites.fastrnns import networks, residual
from ci_bench.suites.fastrnns.cells import gated, lstm_cell
from ci_bench.suites.fastrnns.networks import Network
from ci_bench.suites.fastrnns.structures import stacked
from ci_bench.suites.fastrnns.variants import VARIANTS, FastrnnsTask

pytestmark = pytest.mark.engine


def layer_around(cell):
    """The plain loop around a cell, in the form that TorchScript reads."""

    def layer(
        x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        w_ih, w_hh, b_ih, b_hh = weights
        outputs: list[Tensor] = []
        for step in x.unbind(0):
            state = cell(step, state, w_ih, w_hh, b_ih, b_hh)
            outputs.append(state[0])
        return torch.stack(outputs), state

    return stacked(layer)


def forget_before_input(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    z = torch.mm(x, w_ih.t()) + torch.mm(state[0], w_hh.t()) + b_ih + b_hh
    f, i, g, o = z.chunk(4, 1)
    return gated(torch.cat([i, f, g, o], 1), state[1])


def output_before_candidate(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    z = torch.mm(x, w_ih.t()) + torch.mm(state[0], w_hh.t()) + b_ih + b_hh
    i, f, o, g = z.chunk(4, 1)
    return gated(torch.cat([i, f, g, o], 1), state[1])


def without_input_bias(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    return gated(torch.mm(x, w_ih.t()) + torch.mm(state[0], w_hh.t()) + 0 * b_ih + b_hh, state[1])


def without_hidden_bias(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    return gated(torch.mm(x, w_ih.t()) + torch.mm(state[0], w_hh.t()) + b_ih + 0 * b_hh, state[1])


def bias_at_one_per_mille_less(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    return gated(
        torch.mm(x, w_ih.t()) + torch.mm(state[0], w_hh.t()) + b_ih + 0.999 * b_hh, state[1]
    )


def gradient_cut_in_time(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    return lstm_cell(x, (state[0].detach(), state[1]), w_ih, w_hh, b_ih, b_hh)


def in_half_precision(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    product = torch.mm(x.half(), w_ih.half().t()).float()
    return gated(product + torch.mm(state[0], w_hh.t()) + b_ih + b_hh, state[1])


def candidate_squashed_wrongly(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    z = torch.mm(x, w_ih.t()) + torch.mm(state[0], w_hh.t()) + b_ih + b_hh
    i, f, g, o = z.chunk(4, 1)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.sigmoid(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


CELLS = [
    forget_before_input,
    output_before_candidate,
    without_input_bias,
    without_hidden_bias,
    bias_at_one_per_mille_less,
    gradient_cut_in_time,
    in_half_precision,
    candidate_squashed_wrongly,
]


def states_of_the_start(
    x: Tensor, states: list[Tensor], weights: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    output, _ = layer_around(lstm_cell)(x, states, weights)
    return output, states


def last_layer_with_the_weights_of_the_first(x, states, weights):
    return layer_around(lstm_cell)(x, states, [*weights[:4], weights[4], *weights[1:4]])


def outputs_a_step_late(x, states, weights):
    output, finals = layer_around(lstm_cell)(x, states, weights)
    return output.roll(1, 0), finals


def one_layer_whatever_is_asked_for(x, states, weights):
    output, finals = layer_around(lstm_cell)(x, [state[:1] for state in states], weights[:4])
    return output, finals


def not_a_number(x, states, weights):
    output, finals = layer_around(lstm_cell)(x, states, weights)
    return output + float("nan"), finals


def one_wrong_element(x, states, weights):
    output, finals = layer_around(lstm_cell)(x, states, weights)
    nudge = torch.zeros_like(output)
    nudge[1, 2, 3] = 1e-4
    return output + nudge, finals


WHOLE = [
    states_of_the_start,
    last_layer_with_the_weights_of_the_first,
    outputs_a_step_late,
    one_layer_whatever_is_asked_for,
    not_a_number,
    one_wrong_element,
]


def plant(monkeypatch, name, structure):
    monkeypatch.setitem(networks.STRUCTURES, name, structure)


@pytest.mark.parametrize("name", WITHOUT_COMPILER)
def test_what_is_sound_agrees(name):
    for arm, check in verified(name).items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)
        assert "in double precision" in check.detail


@pytest.mark.parametrize("form", ["py", "jit"])
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.__name__)
def test_a_wrong_cell_is_seen_eager_and_scripted(monkeypatch, cell, form):
    plant(monkeypatch, "loop", layer_around(cell))
    checks = verified(form)
    assert checks["aten"].outcome is Outcome.PASS
    assert checks[form].outcome is Outcome.FAIL, checks[form].detail


@pytest.mark.parametrize("structure", WHOLE, ids=lambda structure: structure.__name__)
def test_a_wrong_structure_is_seen(monkeypatch, structure):
    plant(monkeypatch, "loop", structure)
    assert verified("py")["py"].outcome is Outcome.FAIL


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "cell",
    [forget_before_input, without_input_bias, without_hidden_bias, candidate_squashed_wrongly],
)
def test_a_wrong_cell_is_seen_in_every_number_format(monkeypatch, cell, dtype):
    plant(monkeypatch, "loop", layer_around(cell))
    checks = verified("py", dtype=dtype)
    assert checks["aten"].outcome is Outcome.PASS, checks["aten"].detail
    assert checks["py"].outcome is Outcome.FAIL, checks["py"].detail


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "name",
    [
        "py",
        "jit_premul_bias",
        "py_simple",
        "vl_py",
        "py_gru",
        "py_rnn_tanh",
        "py_bidirectional",
        "py_milstm",
    ],
)
def test_what_is_sound_agrees_in_every_number_format(name, dtype):
    for arm, check in verified(name, dtype=dtype).items():
        assert check.outcome is Outcome.PASS, (arm, check.detail)


@pytest.mark.parametrize("name", ["aten", "py", "jit", "vl_py", "py_layernorm"])
def test_gradients_that_are_not_zeroed_are_seen(monkeypatch, name):
    monkeypatch.setattr(Network, "zero_gradients", lambda self: None)
    check = verified(name)[name]
    assert check.outcome is Outcome.FAIL
    assert "gradient: " in check.detail


def test_gradients_that_are_not_zeroed_are_seen_where_they_are_timed(monkeypatch):
    program = open_case(make_case("py")).open("py")
    program.step(no_mark)
    assert {check.name: check.outcome for check in program.finish()} == {
        "gradients_zeroed": Outcome.PASS,
        "finite": Outcome.PASS,
    }
    monkeypatch.setattr(Network, "zero_gradients", lambda self: None)
    program.step(no_mark)
    (zeroed, _) = program.finish()
    assert zeroed.outcome is Outcome.FAIL
    assert "gradients were left from the round before" in zeroed.detail


def test_what_is_not_finite_is_seen_where_it_is_timed(monkeypatch):
    plant(monkeypatch, "loop", not_a_number)
    program = open_case(make_case("py")).open("py")
    program.step(no_mark)
    assert (
        next(check for check in program.finish() if check.name == "finite").outcome is Outcome.FAIL
    )


def test_arms_that_start_from_other_weights_are_seen(monkeypatch):
    real = networks._hand_written

    def other(job, given):
        network = real(job, given)
        with torch.no_grad():
            network.parameters["weight_ih_l0"].mul_(1.001)
        return network

    monkeypatch.setattr(networks, "_hand_written", other)
    assert verified("py")["py"].outcome is Outcome.FAIL


def test_a_gradient_from_the_last_step_alone_is_not_that_of_all_steps(monkeypatch):
    """What the original ranked side by side: `jit_simple` beside variants that it does not compute the same as."""

    def last_only(x, states, weights):
        output, finals = layer_around(lstm_cell)(x, states, weights)
        return torch.cat([output[:-1].detach(), output[-1:]]), finals

    plant(monkeypatch, "loop", last_only)
    assert verified("py")["py"].outcome is Outcome.FAIL


def unbiased(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def without_scale(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, [x.size(-1)], None, bias) + 0 * weight


@pytest.mark.parametrize("norm", [unbiased, without_scale], ids=lambda norm: norm.__name__)
def test_a_wrong_norm_is_seen(monkeypatch, norm):
    from ci_bench.suites.fastrnns.structures import normalised

    plant(monkeypatch, "layernorm_decom", stacked(normalised(norm)))
    assert verified("py_layernorm_decom")["py_layernorm_decom"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "name", [name for name in HAND_WRITTEN if VARIANTS[name].task is not FastrnnsTask.SEQUENCE]
)
def test_a_structure_of_another_task_is_seen(monkeypatch, name):
    """An LSTM over the whole sequence where something else was asked for."""
    real = networks.STRUCTURES[VARIANTS[name].structure]

    def scaled(*arguments):
        output, finals = real(*arguments)
        return [one * 1.001 for one in output] if isinstance(
            output, list
        ) else output * 1.001, finals

    if name.startswith("py") or name == "vl_py":
        plant(monkeypatch, VARIANTS[name].structure, scaled)
        assert verified(name)[name].outcome is Outcome.FAIL


# Dropout


def dropping(change):
    """The stacked loop with another way to drop; `change` gets layer, features, share and whether dropout is on."""

    def structure(x, states, weights, share, training):
        finals = []
        for k in range(states[0].size(0)):
            one = [state[k : k + 1] for state in states]
            x, last = layer_around(lstm_cell)(x, one, weights[4 * k : 4 * k + 4])
            x = change(k, states[0].size(0), x, share, training)
            finals.append(last)
        return x, [torch.cat(kind) for kind in zip(*finals, strict=True)]

    return structure


def between(k, layers, x, share, training):
    return functional.dropout(x, share, training) if k < layers - 1 else x


def fixed_mask(k, layers, x, share, training):
    if k == layers - 1 or not training:
        return x
    kept = torch.rand(x.shape[-1], generator=torch.Generator().manual_seed(k)) >= share
    return x * kept / (1 - share)


FALSE_DROPS = {
    "no dropout": lambda k, layers, x, share, training: x,
    "half again as much": lambda k, layers, x, share, training: between(
        k, layers, x, 1.5 * share, training
    ),
    "kept features not scaled": lambda k, layers, x, share, training: (
        between(k, layers, x, share, training) * (1 - share if training and k < layers - 1 else 1)
    ),
    "after the last layer, too": lambda k, layers, x, share, training: functional.dropout(
        x, share, training
    ),
    "never switched off": lambda k, layers, x, share, training: between(k, layers, x, share, True),
    "the same mask in every round": fixed_mask,
}


def test_the_planted_dropout_without_a_defect_passes(monkeypatch):
    plant(monkeypatch, "dropout", dropping(between))
    check = verified("py_dropout", hidden_size=64)["py_dropout"]
    assert check.outcome is Outcome.PASS, check.detail
    assert "asked for 0.4" in check.detail


@pytest.mark.parametrize("change", FALSE_DROPS.values(), ids=FALSE_DROPS)
def test_wrong_dropout_is_seen(monkeypatch, change):
    plant(monkeypatch, "dropout", dropping(change))
    check = verified("py_dropout", hidden_size=64)["py_dropout"]
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_shares_are_told_apart(share):
    for check in verified("jit_dropout", dropout=share, hidden_size=32).values():
        assert check.outcome is Outcome.PASS, check.detail


# Convolutional


class Meddled(nn.Module):
    """A network whose forward pass has been changed."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, images):
        return self.change(self.inner, images)

    def load_state_dict(self, state):
        return self.inner.load_state_dict(state)

    def named_parameters(self):
        return self.inner.named_parameters()


def halved_gradient(inner, images):
    logits = inner(images)
    return logits.detach() + 0.5 * (logits - logits.detach())


FALSE_RESNETS = {
    "logits scaled": lambda inner, images: inner(images) * 1.001,
    "gradient halved": halved_gradient,
    "statistics of the training": lambda inner, images: inner.eval()(images),
    "first image twice": lambda inner, images: inner(images[:1].expand_as(images)),
}


@pytest.mark.parametrize("change", FALSE_RESNETS.values(), ids=FALSE_RESNETS)
def test_a_wrong_resnet_is_seen(monkeypatch, change):
    """Planted where a network is built in single precision: what it is compared with stays right."""
    real = networks.build_resnet
    built = []

    def meddled(options, task):
        built.append(task)
        model = real(options, task)
        return Meddled(model, change) if len(built) == 1 else model

    monkeypatch.setattr(networks, "build_resnet", meddled)
    assert verified("resnet18", **IMAGES)["resnet18"].outcome is Outcome.FAIL


def test_a_sound_resnet_agrees_traced_as_well():
    for check in verified("resnet18_jit").values():
        assert check.outcome is Outcome.PASS, check.detail
    assert residual.CLASSES == 1000
    assert SMALL["num_layers"] > 1, "one layer would leave dropout and stacking unseen"
