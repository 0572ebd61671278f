"""What each task computes, in numpy alone: row by row, gate by gate, straight from the formulas.

Shares nothing with the suite.

Gradients are found by central differences, so that nothing here knows how to differentiate.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Array = np.ndarray
Weights = Mapping[str, Array]
STEP = 1e-5


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm_step(x: Array, state: tuple[Array, ...], w: Weights) -> tuple[Array, ...]:
    h, c = state
    z = w["weight_ih"] @ x + w["weight_hh"] @ h + w["bias_ih"] + w["bias_hh"]
    return from_gates(z, c)


def from_gates(
    z: Array, c: Array, settle: Callable[[Array], Array] = lambda cell: cell
) -> tuple[Array, Array]:
    n = len(c)
    i, f, g, o = (
        sigmoid(z[:n]),
        sigmoid(z[n : 2 * n]),
        np.tanh(z[2 * n : 3 * n]),
        sigmoid(z[3 * n :]),
    )
    c = settle(f * c + i * g)
    return o * np.tanh(c), c


def milstm_step(x: Array, state: tuple[Array, ...], w: Weights) -> tuple[Array, ...]:
    h, c = state
    wx, uh = w["weight_ih"] @ x, w["weight_hh"] @ h
    return from_gates(w["alpha"] * wx * uh + w["beta_ih"] * wx + w["beta_hh"] * uh + w["bias"], c)


def layernorm_step(x: Array, state: tuple[Array, ...], w: Weights) -> tuple[Array, ...]:
    def norm(v: Array, name: str) -> Array:
        return (v - v.mean()) / np.sqrt(((v - v.mean()) ** 2).mean() + 1e-5) * w[
            f"scale_{name}"
        ] + w[f"shift_{name}"]

    h, c = state
    return from_gates(
        norm(w["weight_ih"] @ x, "ih") + norm(w["weight_hh"] @ h, "hh"),
        c,
        lambda cell: norm(cell, "c"),
    )


def gru_step(x: Array, state: tuple[Array, ...], w: Weights) -> tuple[Array, ...]:
    (h,) = state
    n = len(h)
    a, b = w["weight_ih"] @ x + w["bias_ih"], w["weight_hh"] @ h + w["bias_hh"]
    r, z = sigmoid(a[:n] + b[:n]), sigmoid(a[n : 2 * n] + b[n : 2 * n])
    new = np.tanh(a[2 * n :] + r * b[2 * n :])
    return (new + z * (h - new),)


def rnn_step(squash: Callable[[Array], Array]) -> Callable[..., tuple[Array, ...]]:
    def step(x: Array, state: tuple[Array, ...], w: Weights) -> tuple[Array, ...]:
        return (
            squash(w["weight_ih"] @ x + w["weight_hh"] @ state[0] + w["bias_ih"] + w["bias_hh"]),
        )

    return step


STEPS = {
    "milstm": milstm_step,
    "layernorm": layernorm_step,
    "gru": gru_step,
    "rnn_relu": rnn_step(lambda x: np.maximum(x, 0)),
    "rnn_tanh": rnn_step(np.tanh),
}
"""All other tasks are an LSTM."""


def row_through_layers(
    task: str, x: Array, states: Sequence[Array], weights: Weights, row: int
) -> tuple[Array, list[tuple[Array, ...]]]:
    """One row's sequence (T, I) through all layers.

    Returns its outputs (T, features) and final states by layer and direction.
    """
    step = STEPS.get(task, lstm_step)
    directions = ("", "_reverse") if task == "bidirectional" else ("",)
    finals = []
    for layer in range(len(states[0]) // len(directions)):
        sides = []
        for side, tail in enumerate(directions):
            ending = f"_l{layer}{tail}"
            own = {
                name.removesuffix(ending): value
                for name, value in weights.items()
                if name.endswith(ending)
            }
            state = tuple(kind[layer * len(directions) + side, row] for kind in states)
            outputs = []
            for features in x[::-1] if tail else x:
                state = step(features, state, own)
                outputs.append(state[0])
            finals.append(state)
            sides.append(np.stack(outputs[::-1] if tail else outputs))
        x = np.concatenate(sides, 1)
    return x, finals


def compute(
    task: str, inputs: Sequence[Array], states: Sequence[Array], weights: Weights
) -> tuple[Array, list[Array]]:
    """What the gradient is driven into, and the final states."""
    rows = (
        [one[:, 0] for one in inputs]
        if task == "variable_length"
        else list(np.moveaxis(inputs[0], 1, 0))
    )
    ran = [row_through_layers(task, x, states, weights, row) for row, x in enumerate(rows)]
    longest = max(len(output) for output, _ in ran)
    padded = [np.pad(output, ((0, longest - len(output)), (0, 0))) for output, _ in ran]
    finals = [
        np.stack([np.stack([state[kind] for state in finals]) for _, finals in ran], 1)
        for kind in range(len(states))
    ]
    if task == "last_state":
        return finals[0][-1], [final[-1] for final in finals]
    return np.stack(padded, 1), finals


def slope(
    task: str, inputs, states, weights: Weights, *, gradient: Array, name: str, direction: Array
) -> float:
    """The derivative of sum(output * gradient) as one weight moves in a direction, by central differences."""
    ends = []
    for sign in (1, -1):
        moved = {**weights, name: weights[name] + sign * STEP * direction}
        ends.append(float((compute(task, inputs, states, moved)[0] * gradient).sum()))
    return (ends[0] - ends[1]) / (2 * STEP)
