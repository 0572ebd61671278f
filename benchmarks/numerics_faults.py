"""A wrong compiler's faults, put into tensors of a result, or into how a work is computed.

Each fault says in which precisions it has to be refused. Where a precision is left out, the fault
is smaller than what rounding does to a right result in that format, and no rule can tell them
apart: a factor of 1.0005 is an eighth of bfloat16's last digit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import numerics_works as works
from benchmarks.numerics_works import PRECISIONS, Tensors, Way

Spoil = Callable[[Tensors, Tensors], Tensors]
"""From a right result and the right result of another step to a wrong one; names as
`numerics_works.run` gives them.
"""
NEAR_FP32 = ("fp32",)
TEN_BITS = ("fp32", "fp16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One way to be wrong.

    `ways` are wrong ways to compute a work, by its name; `spoil` works on the result of any.
    """

    name: str
    spoil: Spoil | None = None
    ways: Mapping[str, Way] | None = None
    seen_in: tuple[str, ...] = PRECISIONS

    def applies_to(self, work: str) -> bool:
        """Return whether the work can be wrong in this way."""
        return self.ways is None or work in self.ways


def _output(result: Tensors) -> str:
    return next(name for name in result if name.startswith("output"))


def _gradient(result: Tensors) -> str:
    """Return the name of the largest gradient."""
    return max(
        (name for name in result if name.startswith("gradient")),
        key=lambda name: result[name].numel(),
    )


def _changed(pick: Callable[[Tensors], str], change: Callable[[Tensor], Tensor]) -> Spoil:
    def spoil(result: Tensors, _: Tensors) -> Tensors:
        name = pick(result)
        return {**result, name: change(result[name].clone())}

    return spoil


def _one_element(value: Tensor) -> Tensor:
    flat = value.view(-1)
    flat[flat.numel() // 3] += 10 * value.double().std().to(value.dtype)
    return value


def _first_row(value: Tensor) -> Tensor:
    rows = value.view(-1, value.shape[-1])
    rows[0] = 0
    return value


def _one_row_twice(value: Tensor) -> Tensor:
    rows = value.view(-1, value.shape[-1])
    rows[-1] = rows[0]
    return value


def _one_head(value: Tensor) -> Tensor:
    width = max(value.shape[-1] // works.HEADS, 1)
    value[..., :width] = value[..., :width].roll(1, 0)
    return value


def _last_part(value: Tensor) -> Tensor:
    value[-1] = 0
    return value


def _sign_of_largest(value: Tensor) -> Tensor:
    flat = value.view(-1)
    flat[flat.abs().argmax()] *= -1
    return value


def _swapped(value: Tensor) -> Tensor:
    flat = value.view(-1)
    low, high = int(flat.argmin()), int(flat.argmax())
    flat[[low, high]] = flat[[high, low]]
    return value


def _uninitialised(value: Tensor) -> Tensor:
    value.view(-1)[-3:] = float("nan")
    return value


def _coarser(value: Tensor) -> Tensor:
    """Round to two formats down: to three bits of mantissa."""
    return value.to(torch.float8_e4m3fn).to(value.dtype)


def _every(change: Callable[[Tensor], Tensor], kind: str) -> Spoil:
    return lambda result, _: {
        name: change(value) if name.startswith(kind) else value for name, value in result.items()
    }


def _stale(pick: Callable[[Tensors], str]) -> Spoil:
    return lambda result, before: {**result, pick(result): before[pick(result)]}


def _all_stale(_: Tensors, before: Tensors) -> Tensors:
    return before


def _no_bias(weights: Tensors, drop: str) -> Tensors:
    return {**weights, drop: 0 * weights[drop]}


def _without_bias(way: Way, drop: str) -> Way:
    return lambda weights, inputs: way(_no_bias(weights, drop), inputs)


def _other_epsilon(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return functional.layer_norm(x, [x.shape[-1]], scale, shift, 0.1)


def _unbiased_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normed = (wide - wide.mean(-1, keepdim=True)) / (
        wide.var(-1, keepdim=True) + works.NORM_EPSILON
    ).sqrt()
    return (normed * scale + shift).to(scale.dtype)


def _narrow_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute only the product in the next narrower format.

    That is bfloat16 for fp32, eight bits for the others.
    """
    if x.dtype is torch.float32 and not torch.is_autocast_enabled("cpu"):
        product = functional.linear(x.bfloat16(), weight.bfloat16()).to(x.dtype)
    else:
        eight = torch.float8_e4m3fn
        product = functional.linear(x.to(eight).to(x.dtype), weight.to(eight).to(weight.dtype))
    return product if bias is None else product + bias.to(product.dtype)


def _seeing_ahead(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with a mask that is off by one."""
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(1)
    mixed: Tensor = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return mixed


def _unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mixed: Tensor = functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=q.shape[-1] ** -0.5 * 1.1
    )
    return mixed


def _coarse_gelu(weights: Tensors, inputs: Tensors) -> Tensors:
    x = inputs["x"]
    hidden = functional.linear(
        works.layer_norm(x, weights["scale"], weights["shift"]), weights["up"], weights["up_bias"]
    )
    active = functional.gelu(hidden, approximate="tanh")
    return {"y": x + functional.linear(active, weights["down"], weights["down_bias"])}


def _no_backward_through_time(weights: Tensors, inputs: Tensors) -> Tensors:
    early = {name: value[:-1] if name == "x" else value for name, value in inputs.items()}
    before = works.recurrent()(weights, early)
    late = {"x": inputs["x"][-1:], "h": before["y"][-1].detach(), "c": before["c"].detach()}
    after = works.recurrent()(weights, late)
    return {"y": torch.cat([before["y"], after["y"]]), "c": after["c"]}


def _eval_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalise with the statistics of the first half of the batch."""
    half = x.detach()[: x.shape[0] // 2].to(torch.promote_types(x.dtype, torch.float32))
    mean, variance = half.mean((0, 2, 3)), half.var((0, 2, 3), unbiased=False)
    return functional.batch_norm(
        x, mean.to(scale.dtype), variance.to(scale.dtype), scale, shift, training=False
    )


def _of_products(product: works.Linear) -> dict[str, Way]:
    return {
        "perceptron": works.perceptron(product),
        "logits": works.logits(product),
        "attention": works.attention(product=product),
        "recurrent": works.recurrent(product),
    }


IN_OUTPUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "one element off by ten sigma": _one_element,
    "first row zeroed": _first_row,
    "last row a copy of the first": _one_row_twice,
    "one head rolled": _one_head,
    "last part zeroed": _last_part,
    "sign of the largest element": _sign_of_largest,
    "two elements swapped": _swapped,
    "last elements not written": _uninitialised,
    "outputs × 1.2": lambda value: value * 1.2,
}
"""Faults of one tensor that every precision has to show: from a right copy to a wrong one."""
IN_GRADIENTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "one gradient zeroed": torch.zeros_like,
    "one gradient × 0.5": lambda value: value * 0.5,
    "one gradient accumulated": lambda value: value * 2,
    "one element of a gradient": _one_element,
}
"""Likewise, of the largest gradient."""


def scaled(value: Tensor) -> Tensor:
    """Scale by half a thousandth: fp32 has to show it."""
    return value * 1.0005


FAULTS: tuple[Fault, ...] = (
    *(Fault(name=name, spoil=_changed(_output, change)) for name, change in IN_OUTPUTS.items()),
    *(Fault(name=name, spoil=_changed(_gradient, change)) for name, change in IN_GRADIENTS.items()),
    Fault(name="outputs × 1.0005", spoil=_changed(_output, scaled), seen_in=NEAR_FP32),
    Fault(name="outputs to three bits", spoil=_every(_coarser, "output"), seen_in=TEN_BITS),
    Fault(name="everything of the step before", spoil=_all_stale),
    Fault(name="loss of the step before", spoil=_stale(lambda _: "loss"), seen_in=TEN_BITS),
    Fault(
        name="loss off by its usual size, 1",
        spoil=_changed(lambda _: "loss", lambda value: value + 1),
    ),
    Fault(name="one gradient stale", spoil=_stale(_gradient)),
    Fault(
        name="one gradient × 1.01",
        spoil=_changed(_gradient, lambda value: value * 1.01),
        seen_in=NEAR_FP32,
    ),
    Fault(name="all gradients negated", spoil=_every(lambda value: -value, "gradient")),
    Fault(
        name="bias dropped",
        ways={
            "perceptron": _without_bias(works.perceptron(), "up_bias"),
            "attention": _without_bias(works.attention(), "out_bias"),
            "logits": _without_bias(works.logits(), "head_bias"),
            "convolutional": _without_bias(works.convolutional(), "head_bias"),
            "recurrent": _without_bias(works.recurrent(), "bias"),
        },
    ),
    Fault(name="epsilon of a norm 0.1", ways={"perceptron": works.perceptron(norm=_other_epsilon)}),
    Fault(
        name="variance over n - 1",
        ways={"perceptron": works.perceptron(norm=_unbiased_norm)},
        seen_in=TEN_BITS,
    ),
    Fault(name="tanh for the exact GELU", ways={"perceptron": _coarse_gelu}, seen_in=NEAR_FP32),
    Fault(
        name="products in a lower precision", ways=_of_products(_narrow_product), seen_in=TEN_BITS
    ),
    Fault(name="mask off by one", ways={"attention": works.attention(_seeing_ahead)}),
    Fault(name="scale of attention 10 % off", ways={"attention": works.attention(_unscaled)}),
    Fault(
        name="statistics of half the batch",
        ways={"convolutional": works.convolutional(norm=_eval_norm)},
    ),
    Fault(name="gradient cut in time", ways={"recurrent": _no_backward_through_time}),
)
