"""Small works with known mathematics, each in several ways that are equal but for rounding.

A right compiler may choose any of them. Owns the works (a perceptron, attention, a convolutional
network, an LSTM), their honest ways, and how one is run in a precision. The first way of a work is
the reference. All is plain torch on the CPU and takes milliseconds. Numbers are drawn in fp64 from
the seed, and rounded once to the format that the precision keeps them in; the truth is the
reference way in fp64 on these.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Tensors = dict[str, Tensor]
Way = Callable[[Tensors, Tensors], Tensors]
"""From weights and inputs to outputs."""

KEPT_IN = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "amp_bf16": torch.float32,
}
EPSILONS = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11, "amp_bf16": 2.0**-8}
PRECISIONS = tuple(KEPT_IN)

ROWS, TOKENS, WIDTH, HIDDEN, HEADS = 4, 16, 64, 128, 4
CHANNELS, SIDE, CLASSES, STEPS = 16, 12, 10, 12
TEXT, VOCABULARY = 512, 128
NORM_EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A computation: the shapes of its weights and inputs, and the ways to do it.

    The reference comes first.
    """

    name: str
    weights: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, tuple[int, ...]]
    ways: Mapping[str, Way]

    @property
    def reference(self) -> Way:
        """The way that the others are compared with."""
        return next(iter(self.ways.values()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """Weights and inputs, and the direction in which each output is summed for the loss.

    The direction is drawn by the output's name.
    """

    weights: Tensors
    inputs: Tensors
    seed: int


def draw(work: Work, precision: str, seed: int) -> Numbers:
    """Draw the start of a work.

    Scales are around 1, other weights of the size that keeps activations at 1, inputs standard
    normal.
    """
    generator = torch.Generator().manual_seed(seed)

    def weight(name: str, shape: tuple[int, ...]) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.startswith("scale"):
            return 1 + 0.1 * values
        return 0.1 * values if len(shape) == 1 else values / math.sqrt(math.prod(shape[1:]))

    dtype = KEPT_IN[precision]
    weights = {name: weight(name, shape).to(dtype) for name, shape in work.weights.items()}
    inputs = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, shape in work.inputs.items()
    }
    return Numbers(weights=weights, inputs=inputs, seed=seed)


def run(way: Way, numbers: Numbers, precision: str, *, exact: bool = False) -> Tensors:
    """Return outputs, the loss and the gradient of every weight; in fp64 if `exact`.

    Their names are ``output: x``, ``loss``, ``gradient: w``.
    """
    dtype = torch.float64 if exact else KEPT_IN[precision]
    weights = {
        name: value.detach().to(dtype).requires_grad_() for name, value in numbers.weights.items()
    }
    inputs = {name: value.to(dtype) for name, value in numbers.inputs.items()}
    mixed = precision == "amp_bf16" and not exact
    with torch.autocast("cpu", dtype=torch.bfloat16) if mixed else nullcontext():
        outputs = way(weights, inputs)
    loss = torch.stack([_projected(value, numbers.seed) for value in outputs.values()]).sum()
    loss.backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
    named_outputs = {f"output: {name}": value.detach() for name, value in outputs.items()}
    gradients = {
        f"gradient: {name}": (
            value.grad.clone() if value.grad is not None else torch.zeros_like(value)
        )
        for name, value in weights.items()
    }
    return {**named_outputs, "loss": loss.detach(), **gradients}


def _projected(value: Tensor, seed: int) -> Tensor:
    """Return a loss that every element influences, summed in fp32 at least."""
    generator = torch.Generator().manual_seed(seed + 1)
    direction = torch.randn(value.shape, generator=generator, dtype=torch.float64).bfloat16()
    wide = torch.promote_types(value.dtype, torch.float32)
    return (value.to(wide) * direction.to(wide)).sum() / math.sqrt(value.numel())


Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute torch's own linear layer."""
    return functional.linear(x, weight, bias)


def transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute product and sum separately, each rounded."""
    product = torch.matmul(x, weight.transpose(-1, -2))
    return product if bias is None else product + bias.to(product.dtype)


def in_pieces(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Split along the sum, the pieces added in fp32 at least: split-K."""
    wide = torch.promote_types(x.dtype, torch.float32)
    parts = [
        functional.linear(a, b).to(wide)
        for a, b in zip(x.chunk(4, -1), weight.chunk(4, -1), strict=True)
    ]
    product = parts[3] + parts[2] + parts[1] + parts[0]
    return (product if bias is None else product + bias).to(_format_of(x))


def reversed_sum(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Sum the terms in the other order."""
    return functional.linear(x.flip(-1), weight.flip(-1), bias)


def by_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute some rows at a time."""
    rows = x.reshape(-1, x.shape[-1]).chunk(4)
    return torch.cat([functional.linear(part, weight, bias) for part in rows]).reshape(
        *x.shape[:-1], -1
    )


def widened(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute in the next wider format, rounded once at the end: the best that a kernel can do."""
    wide = torch.float64 if x.dtype is torch.float32 else torch.float32
    with torch.autocast("cpu", enabled=False):
        product = functional.linear(
            x.to(wide), weight.to(wide), None if bias is None else bias.to(wide)
        )
    return product.to(_format_of(x))


LINEARS: Mapping[str, Linear] = {
    "as it is": linear,
    "product and sum": transposed,
    "split sums": in_pieces,
    "reversed sums": reversed_sum,
    "some rows at a time": by_rows,
    "wider sums": widened,
}


def _format_of(x: Tensor) -> torch.dtype:
    """Return the format that a product of `x` is rounded to: under autocast its narrow one."""
    return (
        torch.get_autocast_dtype("cpu")
        if torch.is_autocast_enabled("cpu") and x.dtype is not torch.float64
        else x.dtype
    )


Norm = Callable[[Tensor, Tensor, Tensor], Tensor]


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Compute torch's own layer norm."""
    return functional.layer_norm(x, [x.shape[-1]], scale, shift, NORM_EPSILON)


def norm_by_hand(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalise by mean and variance, in fp32 at least, as generated code does."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(-1, keepdim=True)
    normed = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + NORM_EPSILON)
    return (normed * scale + shift).to(scale.dtype)


def norm_by_moments(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalise by the mean of squares less the square of the mean."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean, square = wide.mean(-1, keepdim=True), wide.square().mean(-1, keepdim=True)
    normed = (wide - mean) / torch.sqrt(square - mean.square() + NORM_EPSILON)
    return (normed * scale + shift).to(scale.dtype)


def perceptron(product: Linear = linear, norm: Norm = layer_norm, *, fused: bool = False) -> Way:
    """Compute norm, linear, exact GELU, linear, and the sum with the input.

    `fused` does what is elementwise in fp32.
    """

    def way(weights: Tensors, inputs: Tensors) -> Tensors:
        x = inputs["x"]
        hidden = product(
            norm(x, weights["scale"], weights["shift"]), weights["up"], weights["up_bias"]
        )
        if fused:
            wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
            active = (0.5 * wide * (1 + torch.erf(wide * math.sqrt(0.5)))).to(hidden.dtype)
        else:
            active = functional.gelu(hidden)
        return {"y": x + product(active, weights["down"], weights["down_bias"])}

    return way


def logits(product: Linear = linear, norm: Norm = layer_norm) -> Way:
    """Compute the head of a language model.

    The result is so large that one element is a small part of its norm.
    """

    def way(weights: Tensors, inputs: Tensors) -> Tensors:
        return {
            "y": product(
                norm(inputs["x"], weights["scale"], weights["shift"]),
                weights["head"],
                weights["head_bias"],
            )
        }

    return way


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute torch's fused kernel."""
    mixed: Tensor = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with every matrix rounded to the format."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.matmul(scores.masked_fill(_later(scores), -math.inf).softmax(-1).to(v.dtype), v)


def scaled_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scale both factors before their product, with the softmax in fp32."""
    share = q.shape[-1] ** -0.25
    scores = (q * share) @ (k * share).transpose(-1, -2)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(
        _later(scores), -math.inf
    )
    return torch.matmul(wide.softmax(-1).to(v.dtype), v)


def in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend in blocks of keys with a running maximum and sum, in fp32 at least.

    https://arxiv.org/abs/1805.02867
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    high = torch.full((*q.shape[:-1], 1), -math.inf, dtype=wide)
    total, mixed = torch.zeros_like(high), torch.zeros(q.shape, dtype=wide)
    block = q.shape[-2] // 4
    for begin in range(0, q.shape[-2], block):
        keys, values = (part[..., begin : begin + block, :] for part in (k, v))
        scores = (q @ keys.transpose(-1, -2)).to(wide) / math.sqrt(q.shape[-1])
        later = torch.arange(begin, begin + block)[None, :] > torch.arange(q.shape[-2])[:, None]
        scores = scores.masked_fill(later, -math.inf)
        higher = torch.maximum(high, scores.amax(-1, keepdim=True))
        shares, decay = torch.exp(scores - higher), torch.exp(high - higher)
        total = total * decay + shares.sum(-1, keepdim=True)
        mixed = mixed * decay + shares.to(v.dtype).to(wide) @ values.to(wide)
        high = higher
    return (mixed / total).to(v.dtype)


def _later(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)


def attention(
    attend: Attend = fused_attention,
    product: Linear = linear,
    *,
    joined: bool = True,
    biased: bool = True,
) -> Way:
    """Compute causal attention of several heads between its projections.

    The gradient of the key's bias is zero by mathematics.
    """

    def way(weights: Tensors, inputs: Tensors) -> Tensors:
        x = inputs["x"]
        names = ("query", "key", "value")
        if joined:
            weight = torch.cat([weights[name] for name in names])
            bias = torch.cat([weights[f"{name}_bias"] for name in names]) if biased else None
            parts = product(x, weight, bias).chunk(3, -1)
        else:
            parts = tuple(product(x, weights[name], weights[f"{name}_bias"]) for name in names)
        q, k, v = (part.reshape(*part.shape[:-1], HEADS, -1).transpose(1, 2) for part in parts)
        return {
            "y": product(
                attend(q, k, v).transpose(1, 2).flatten(2), weights["out"], weights["out_bias"]
            )
        }

    return way


Convolve = Callable[[Tensor, Tensor], Tensor]


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Compute torch's own convolution."""
    return functional.conv2d(x, kernel, padding=1)


def channels_last(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve in the other layout."""
    nhwc = torch.channels_last
    return functional.conv2d(
        x.contiguous(memory_format=nhwc), kernel.contiguous(memory_format=nhwc), padding=1
    ).contiguous()


def as_product(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve by a matrix product of unfolded patches."""
    patches = functional.unfold(x, kernel.shape[-2:], padding=1)
    return torch.matmul(kernel.flatten(1), patches).reshape(*x.shape[:1], -1, *x.shape[-2:])


def by_taps(x: Tensor, kernel: Tensor) -> Tensor:
    """Tap by tap, added in fp32 at least."""
    padded = functional.pad(x, (1, 1, 1, 1))
    wide = torch.promote_types(x.dtype, torch.float32)
    height, width = x.shape[-2:]
    total = torch.zeros((), dtype=wide)
    for row in range(3):
        for column in range(3):
            window = padded[..., row : row + height, column : column + width]
            total = total + torch.einsum("nchw,oc->nohw", window, kernel[..., row, column]).to(wide)
    return total.to(_format_of(x))


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Compute torch's own batch norm, with the batch's statistics."""
    return functional.batch_norm(x, None, None, scale, shift, training=True, eps=NORM_EPSILON)


def batch_norm_by_hand(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Normalise by mean and variance, in fp32 at least."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean((0, 2, 3), keepdim=True)
    variance = (wide - mean).square().mean((0, 2, 3), keepdim=True)
    normed = (wide - mean) * torch.rsqrt(variance + NORM_EPSILON)
    return (normed * scale[:, None, None] + shift[:, None, None]).to(x.dtype)


def convolutional(conv: Convolve = convolve, norm: Norm = batch_norm) -> Way:
    """Compute two convolutions with batch normalisation and ReLU, the mean, a linear layer.

    The mean is over space.
    """

    def way(weights: Tensors, inputs: Tensors) -> Tensors:
        hidden = norm(
            conv(inputs["x"], weights["first"]), weights["scale_first"], weights["shift_first"]
        ).relu()
        hidden = norm(
            conv(hidden, weights["second"]), weights["scale_second"], weights["shift_second"]
        ).relu()
        return {"y": functional.linear(hidden.mean((2, 3)), weights["head"], weights["head_bias"])}

    return way


def recurrent(
    product: Linear = linear, *, ahead: bool = False, separate: bool = False, fused: bool = False
) -> Way:
    """Compute an LSTM over a sequence.

    All products are in one or `separate`, those of the inputs `ahead`, gates in fp32 if `fused`.
    """

    def way(weights: Tensors, inputs: Tensors) -> Tensors:
        x, h, c = inputs["x"], inputs["h"], inputs["c"]
        early = product(x, weights["input"], weights["bias"]) if ahead else None
        outputs = []
        for step in range(x.shape[0]):
            if early is not None:
                z = early[step] + product(h, weights["hidden"], None)
            elif separate:
                pairs = zip(
                    weights["input"].chunk(4),
                    weights["hidden"].chunk(4),
                    weights["bias"].chunk(4),
                    strict=True,
                )
                z = torch.cat(
                    [product(x[step], a, b) + product(h, u, None) for a, u, b in pairs], -1
                )
            else:
                z = product(x[step], weights["input"], weights["bias"]) + product(
                    h, weights["hidden"], None
                )
            dtype = z.dtype
            wide = z.to(torch.promote_types(dtype, torch.float32)) if fused else z
            i, f, g, o = wide.chunk(4, -1)
            c = (f.sigmoid() * c.to(wide.dtype) + i.sigmoid() * g.tanh()).to(c.dtype)
            h = (o.sigmoid() * c.to(wide.dtype).tanh()).to(h.dtype)
            outputs.append(h)
        return {"y": torch.stack(outputs), "c": c}

    return way


def _of_linears(make: Callable[[Linear], Way]) -> dict[str, Way]:
    return {name: make(product) for name, product in LINEARS.items()}


WORKS: tuple[Work, ...] = (
    Work(
        name="perceptron",
        weights={
            "scale": (WIDTH,),
            "shift": (WIDTH,),
            "up": (HIDDEN, WIDTH),
            "up_bias": (HIDDEN,),
            "down": (WIDTH, HIDDEN),
            "down_bias": (WIDTH,),
        },
        inputs={"x": (ROWS, TOKENS, WIDTH)},
        ways={
            **_of_linears(perceptron),
            "norm by hand": perceptron(norm=norm_by_hand),
            "norm by moments": perceptron(norm=norm_by_moments),
            "fused": perceptron(norm=norm_by_hand, fused=True),
            "fused, split sums": perceptron(in_pieces, norm_by_moments, fused=True),
        },
    ),
    Work(
        name="logits",
        weights={
            "scale": (WIDTH,),
            "shift": (WIDTH,),
            "head": (VOCABULARY, WIDTH),
            "head_bias": (VOCABULARY,),
        },
        inputs={"x": (TEXT, WIDTH)},
        ways={
            **_of_linears(logits),
            "norm by hand": logits(norm=norm_by_hand),
            "norm by moments": logits(norm=norm_by_moments),
        },
    ),
    Work(
        name="attention",
        weights={
            **dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)),
            **{f"{name}_bias": (WIDTH,) for name in ("query", "key", "value", "out")},
        },
        inputs={"x": (ROWS, TOKENS, WIDTH)},
        ways={
            **_of_linears(lambda product: attention(product=product)),
            "unfused": attention(plain_attention),
            "scaled before": attention(scaled_before),
            "in blocks": attention(in_blocks),
            "three products": attention(joined=False),
            "unfused, three products, split sums": attention(
                plain_attention, in_pieces, joined=False
            ),
        },
    ),
    Work(
        name="convolutional",
        weights={
            "first": (CHANNELS, 3, 3, 3),
            "scale_first": (CHANNELS,),
            "shift_first": (CHANNELS,),
            "second": (CHANNELS, CHANNELS, 3, 3),
            "scale_second": (CHANNELS,),
            "shift_second": (CHANNELS,),
            "head": (CLASSES, CHANNELS),
            "head_bias": (CLASSES,),
        },
        inputs={"x": (ROWS, 3, SIDE, SIDE)},
        ways={
            "as it is": convolutional(),
            "channels last": convolutional(channels_last),
            "as a product": convolutional(as_product),
            "tap by tap": convolutional(by_taps),
            "norm by hand": convolutional(norm=batch_norm_by_hand),
            "as a product, norm by hand": convolutional(as_product, batch_norm_by_hand),
        },
    ),
    Work(
        name="recurrent",
        weights={"input": (4 * WIDTH, WIDTH), "hidden": (4 * WIDTH, WIDTH), "bias": (4 * WIDTH,)},
        inputs={"x": (STEPS, ROWS, WIDTH), "h": (ROWS, WIDTH), "c": (ROWS, WIDTH)},
        ways={
            **_of_linears(recurrent),
            "inputs ahead": recurrent(ahead=True),
            "gates apart": recurrent(separate=True),
            "fused": recurrent(fused=True),
            "fused, ahead, split sums": recurrent(in_pieces, ahead=True, fused=True),
        },
    ),
)
