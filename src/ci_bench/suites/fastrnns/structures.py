"""The hand-written loops over time and layers, in the subset of Python that TorchScript reads.

A structure takes x (T, B, I), the initial states (each (L, B, H); (2 L, B, H) where it runs in both
directions) and the weights as one flat list, and returns the output of the last layer and the final
states. Every structure honours the number of layers. They place the products differently, and
differ in the collection of outputs and in the values passed on. All compute the function of their
task.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ci_bench.suites.fastrnns.cells import (
    gru_cell,
    library_norm,
    lstm_cell,
    milstm_cell,
    premul_bias_cell,
    premul_cell,
    relu_cell,
    tanh_cell,
    written_norm,
)

Structure = Callable[..., Any]


def lstm_layer(
    x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run the plain loop: both products in every step."""
    w_ih, w_hh, b_ih, b_hh = weights
    outputs: list[Tensor] = []
    for step in x.unbind(0):
        state = lstm_cell(step, state, w_ih, w_hh, b_ih, b_hh)
        outputs.append(state[0])
    return torch.stack(outputs), state


def premul_layer(
    x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run the loop with the product of the inputs computed once for all steps."""
    w_ih, w_hh, b_ih, b_hh = weights
    outputs: list[Tensor] = []
    for step in torch.matmul(x, w_ih.t()).unbind(0):
        state = premul_cell(step, state, w_hh, b_ih, b_hh)
        outputs.append(state[0])
    return torch.stack(outputs), state


def premul_bias_layer(
    x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run the loop with product and input bias once, on all steps and rows.

    The bias's gradient is one reduction.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    flat = torch.mm(x.reshape(-1, x.size(2)), w_ih.t()) + b_ih
    outputs: list[Tensor] = []
    for step in flat.view(x.size(0), x.size(1), -1).unbind(0):
        state = premul_bias_cell(step, state, w_hh, b_hh)
        outputs.append(state[0])
    return torch.stack(outputs), state


def milstm_layer(
    x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run the loop around the cell with multiplicative integration."""
    w_ih, w_hh, alpha, beta_ih, beta_hh, bias = weights
    outputs: list[Tensor] = []
    for step in x.unbind(0):
        state = milstm_cell(step, state, w_ih, w_hh, alpha, beta_ih, beta_hh, bias)
        outputs.append(state[0])
    return torch.stack(outputs), state


def normalised(norm: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Structure:
    """Return a layer with three layer normalisations per step.

    They are LN(x W_ih^T) + LN(h W_hh^T) and c' = LN(f c + i g); h' = o tanh(c').
    """

    def layer(
        x: Tensor, state: tuple[Tensor, Tensor], weights: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        w_ih, w_hh, scale_ih, shift_ih, scale_hh, shift_hh, scale_c, shift_c = weights
        hidden, cell = state
        outputs: list[Tensor] = []
        for step in x.unbind(0):
            z = norm(torch.mm(step, w_ih.t()), scale_ih, shift_ih) + norm(
                torch.mm(hidden, w_hh.t()), scale_hh, shift_hh
            )
            i, f, g, o = z.chunk(4, 1)
            cell = norm(
                torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g), scale_c, shift_c
            )
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        return torch.stack(outputs), (hidden, cell)

    return layer


def stacked(layer: Structure) -> Structure:
    """Stack layers of one kind; each passes on its stacked outputs."""

    def structure(
        x: Tensor, states: list[Tensor], weights: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        share = len(weights) // states[0].size(0)
        for k in range(states[0].size(0)):
            x, (h, c) = layer(x, (states[0][k], states[1][k]), weights[k * share : (k + 1) * share])
            hidden.append(h)
            cell.append(c)
        return x, [torch.stack(hidden), torch.stack(cell)]

    return structure


def recurrent(cell: Structure) -> Structure:
    """Stack layers of a cell that has one state only: GRU, ReLU, tanh."""

    def structure(
        x: Tensor, states: list[Tensor], weights: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        finals: list[Tensor] = []
        for k in range(states[0].size(0)):
            w_ih, w_hh, b_ih, b_hh = weights[4 * k : 4 * k + 4]
            hidden = states[0][k]
            outputs: list[Tensor] = []
            for step in x.unbind(0):
                hidden = cell(step, hidden, w_ih, w_hh, b_ih, b_hh)
                outputs.append(hidden)
            x = torch.stack(outputs)
            finals.append(hidden)
        return x, [torch.stack(finals)]

    return structure


def simple(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Keep only the last state of the last layer: that layer collects no outputs.

    Returns h, and h and c, each (B, H).
    """
    last = states[0].size(0) - 1
    for k in range(last):
        x, _ = lstm_layer(x, (states[0][k], states[1][k]), weights[4 * k : 4 * k + 4])
    w_ih, w_hh, b_ih, b_hh = weights[4 * last : 4 * last + 4]
    hidden, cell = states[0][last], states[1][last]
    for step in x.unbind(0):
        hidden, cell = lstm_cell(step, (hidden, cell), w_ih, w_hh, b_ih, b_hh)
    return hidden, [hidden, cell]


def multilayer(
    x: Tensor, states: list[Tensor], weights: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Run layers outside, time inside.

    The list of a layer's outputs is the next layer's input and is stacked at the very end.
    """
    inputs = list(x.unbind(0))
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    for k in range(states[0].size(0)):
        h, c = states[0][k], states[1][k]
        outputs: list[Tensor] = []
        for step in inputs:
            h, c = lstm_cell(
                step,
                (h, c),
                weights[4 * k],
                weights[4 * k + 1],
                weights[4 * k + 2],
                weights[4 * k + 3],
            )
            outputs.append(h)
        inputs = outputs
        hidden.append(h)
        cell.append(c)
    return torch.stack(inputs), [torch.stack(hidden), torch.stack(cell)]


def with_dropout(
    x: Tensor,
    states: list[Tensor],
    weights: list[Tensor],
    share: float,
    training: bool,  # noqa: FBT001 - TorchScript has no keyword-only
) -> tuple[Tensor, list[Tensor]]:
    """Run the stacked plain loop, with dropout on the output of every layer but the last."""
    layers = states[0].size(0)
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    for k in range(layers):
        x, (h, c) = lstm_layer(x, (states[0][k], states[1][k]), weights[4 * k : 4 * k + 4])
        if k < layers - 1:
            x = functional.dropout(x, share, training)
        hidden.append(h)
        cell.append(c)
    return x, [torch.stack(hidden), torch.stack(cell)]


def bidirectional(
    x: Tensor, states: list[Tensor], weights: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Run each layer once forward and once on the reversed sequence.

    The features of both are concatenated for the next layer.
    """
    hidden: list[Tensor] = []
    cell: list[Tensor] = []
    for k in range(states[0].size(0) // 2):
        first = weights[8 * k : 8 * k + 4]
        second = weights[8 * k + 4 : 8 * k + 8]
        ahead, (h, c) = lstm_layer(x, (states[0][2 * k], states[1][2 * k]), first)
        back, (h_back, c_back) = lstm_layer(
            x.flip(0), (states[0][2 * k + 1], states[1][2 * k + 1]), second
        )
        x = torch.cat([ahead, back.flip(0)], 2)
        hidden += [h, h_back]
        cell += [c, c_back]
    return x, [torch.stack(hidden), torch.stack(cell)]


def sequences_apart(cell: Structure) -> Structure:
    """Run the sequences (length, 1, I) one after the other, each from the states of its batch row.

    Returns their outputs (length, 1, H) and the final states.
    """

    def structure(
        sequences: list[Tensor], states: list[Tensor], weights: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        hidden: list[Tensor] = []
        memory: list[Tensor] = []
        outputs: list[Tensor] = []
        layers = states[0].size(0)
        for row, x in enumerate(sequences):
            steps = list(x.unbind(0))
            for k in range(layers):
                w_ih, w_hh, b_ih, b_hh = weights[4 * k : 4 * k + 4]
                h, c = states[0][k, row : row + 1], states[1][k, row : row + 1]
                collected: list[Tensor] = []
                for step in steps:
                    h, c = cell(step, (h, c), w_ih, w_hh, b_ih, b_hh)
                    collected.append(h)
                steps = collected
                hidden.append(h)
                memory.append(c)
            outputs.append(torch.stack(steps))
        rows = len(sequences)
        return outputs, [
            torch.cat(finals).view(rows, layers, -1).transpose(0, 1) for finals in [hidden, memory]
        ]

    return structure


STRUCTURES: Mapping[str, Structure] = {
    "loop": stacked(lstm_layer),
    "premul": stacked(premul_layer),
    "premul_bias": stacked(premul_bias_layer),
    "multilayer": multilayer,
    "simple": simple,
    "layernorm": stacked(normalised(library_norm)),
    "layernorm_decom": stacked(normalised(written_norm)),
    "dropout": with_dropout,
    "variable_length": sequences_apart(lstm_cell),
    "bidirectional": bidirectional,
    "milstm": stacked(milstm_layer),
    "gru": recurrent(gru_cell),
    "rnn_relu": recurrent(relu_cell),
    "rnn_tanh": recurrent(tanh_cell),
}
