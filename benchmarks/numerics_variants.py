"""Right and wrong variants of common operators: how many does the rule of numbers refuse, and find?

Run as ``python -m benchmarks.numerics_variants [--seed N] [--json FILE]``. CPU only, one thread, 3
minutes. A variant is an operator, a number format, a size and another way to compute it. The
constants of `ci_bench.suites.shared.worker.tilts` were chosen with seed 1; reported figures take
another seed. Returns 1 if a right variant is refused.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from benchmarks.tables import publish, render
from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker.numerics import agree, jolt_of, shaken

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = {"small": (16, 64), "medium": (128, 256), "large": (1024, 512)}
SEED = 2001
Work = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """An operator on a matrix, with right and wrong ways to compute it."""

    name: str
    """The name in the tables."""
    reference: Work
    """The way that defines the result."""
    right: Mapping[str, Work] = field(default_factory=dict)
    """Other right ways, by name."""
    wrong: Mapping[str, Work] = field(default_factory=dict)
    """Wrong ways, by name."""
    by_rows: bool = True
    """True if each row of the result depends only on the same row of the input."""


def _weight(x: Tensor, columns: int = 96) -> Tensor:
    generator = torch.Generator().manual_seed(9)
    drawn = torch.randn(x.shape[-1], columns, generator=generator) / math.sqrt(x.shape[-1])
    return drawn.to(torch.float16).to(torch.bfloat16).to(x.dtype)


def _serially(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[:, 0], dtype=torch.float32)
    for column in x.float().unbind(1):
        total = total + column
    return total.to(x.dtype)


def _in_pairs(x: Tensor) -> Tensor:
    wide = x.float()
    while wide.shape[1] > 1:
        half = wide.shape[1] // 2
        wide = wide[:, :half] + wide[:, half:]
    return wide[:, 0].to(x.dtype)


def _in_blocks(x: Tensor, *, blocks: int = 8, left_out: int = 0) -> Tensor:
    weight, size = _weight(x), x.shape[1] // blocks
    parts = [slice(at * size, (at + 1) * size) for at in range(blocks - left_out)]
    wide = sum((x[:, part].float() @ weight[part].float() for part in parts), torch.zeros(1))
    return wide.to(x.dtype)


def _split(x: Tensor, terms: int) -> Tensor:
    """Return a product of fp32 from products of bf16 parts, as on tensor cores."""
    weight = _weight(x).float()
    high, low = x.bfloat16().float(), (x.float() - x.bfloat16().float())
    middle = low.bfloat16().float()
    parts = [high, middle, low - middle][:terms]
    return sum((part @ weight for part in parts), torch.zeros(1)).to(x.dtype)


def cut(x: Tensor, bits: int) -> Tensor:
    """Cut numbers to so many bits of mantissa, towards zero."""
    keep = ~((1 << (23 - bits)) - 1)
    return (x.float().view(torch.int32) & keep).view(torch.float32)


def _online(x: Tensor) -> Tensor:
    wide = x.float()
    top, total = torch.full_like(wide[:, 0], -math.inf), torch.zeros_like(wide[:, 0])
    for column in wide.unbind(1):
        new = torch.maximum(top, column)
        total = total * torch.exp(top - new) + torch.exp(column - new)
        top = new
    return (torch.exp(wide - top[:, None]) / total[:, None]).to(x.dtype)


def _welford(x: Tensor) -> Tensor:
    wide = x.float()
    mean, squares = torch.zeros_like(wide[:, 0]), torch.zeros_like(wide[:, 0])
    for number, column in enumerate(wide.unbind(1), 1):
        off = column - mean
        mean = mean + off / number
        squares = squares + off * (column - mean)
    return ((wide - mean[:, None]) * torch.rsqrt(squares[:, None] / wide.shape[1] + 1e-5)).to(
        x.dtype
    )


def _attention(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[None], x[None].roll(1, 1), x[None].roll(2, 1))[0]


def _attention_by_hand(x: Tensor, *, scale: float | None = None, causal: bool = False) -> Tensor:
    query, key, value = x.float(), x.float().roll(1, 0), x.float().roll(2, 0)
    logits = query @ key.T * (scale or 1 / math.sqrt(x.shape[1]))
    logits = logits.tril() if causal else logits
    return (logits.softmax(-1) @ value).to(x.dtype)


OPERATORS = (
    Operator(
        name="gelu",
        reference=F.gelu,
        right={
            "by erf": (
                lambda x: (0.5 * x.float() * (1 + torch.erf(x.float() / math.sqrt(2)))).to(x.dtype)
            )
        },
        wrong={
            "by a sigmoid": lambda x: (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype),
        },
    ),
    Operator(
        name="silu",
        reference=F.silu,
        right={
            "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
            "x / (1 + exp(-x))": lambda x: (x.float() / (1 + torch.exp(-x.float()))).to(x.dtype),
        },
        wrong={"hard": F.hardswish},
    ),
    Operator(
        name="tanh",
        reference=torch.tanh,
        right={"by exp": lambda x: (1 - 2 / (torch.exp(2 * x.float()) + 1)).to(x.dtype)},
        wrong={
            "a rational function": (
                lambda x: (x.float() * (27 + x.float() ** 2) / (27 + 9 * x.float() ** 2)).to(
                    x.dtype
                )
            )
        },
    ),
    Operator(
        name="scaled",
        reference=lambda x: x * 1.37,
        right={
            "factor in the format": lambda x: x * torch.tensor(1.37, dtype=x.dtype),
            "divided": lambda x: (x.float() / (1 / 1.37)).to(x.dtype),
        },
    ),
    Operator(
        name="exp",
        reference=torch.exp,
        right={"by exp2": lambda x: torch.exp2(x.float() * math.log2(math.e)).to(x.dtype)},
    ),
    Operator(
        name="row sum",
        reference=lambda x: x.sum(1),
        right={
            "serially": _serially,
            "in pairs": _in_pairs,
            "by a product": lambda x: (x.float() @ torch.ones(x.shape[1])).to(x.dtype),
        },
        wrong={
            "last left out": lambda x: x[:, :-1].sum(1),
            "first twice": lambda x: (x.float().sum(1) + x[:, 0].float()).to(x.dtype),
        },
    ),
    Operator(
        name="row mean of squares",
        reference=lambda x: (
            x.float().square().mean(1).to(x.dtype)
            if x.dtype is not torch.float64
            else x.square().mean(1)
        ),
        right={
            "serially": lambda x: (_serially(x.float().square()) / x.shape[1]).to(x.dtype),
            "in pairs": lambda x: (_in_pairs(x.float().square()) / x.shape[1]).to(x.dtype),
            "norm squared": lambda x: (x.float().norm(dim=1) ** 2 / x.shape[1]).to(x.dtype),
        },
        wrong={
            "over n + 5 %": lambda x: (x.float().square().sum(1) / (1.05 * x.shape[1])).to(x.dtype)
        },
    ),
    Operator(
        name="softmax",
        reference=lambda x: x.softmax(1),
        right={
            "online": _online,
            "by exp and sum": (
                lambda x: (torch.exp(x.float()) / torch.exp(x.float()).sum(1, keepdim=True)).to(
                    x.dtype
                )
            ),
        },
        wrong={
            "without its last column": lambda x: torch.cat(
                [x[:, :-1].softmax(1), torch.zeros_like(x[:, :1])], 1
            ),
            "temperature of 1.05": lambda x: (x.float() / 1.05).softmax(1).to(x.dtype),
        },
    ),
    Operator(
        name="log_softmax",
        reference=lambda x: x.log_softmax(1),
        right={
            "x - logsumexp": (
                lambda x: (x.float() - x.float().logsumexp(1, keepdim=True)).to(x.dtype)
            )
        },
        wrong={
            "sum of half": (
                lambda x: (x.float() - x[:, ::2].float().logsumexp(1, keepdim=True)).to(x.dtype)
            )
        },
    ),
    Operator(
        name="layer norm",
        reference=lambda x: F.layer_norm(x, x.shape[1:]),
        right={
            "Welford": _welford,
            "two passes": (
                lambda x: (
                    (x.float() - x.float().mean(1, keepdim=True))
                    * torch.rsqrt(x.float().var(1, unbiased=False, keepdim=True) + 1e-5)
                ).to(x.dtype)
            ),
            "one pass": (
                lambda x: (
                    (x.float() - x.float().mean(1, keepdim=True))
                    * torch.rsqrt(
                        x.float().square().mean(1, keepdim=True)
                        - x.float().mean(1, keepdim=True) ** 2
                        + 1e-5
                    )
                ).to(x.dtype)
            ),
        },
        wrong={
            "epsilon of 0.1": lambda x: F.layer_norm(x, x.shape[1:], eps=0.1),
            "without the mean": (
                lambda x: (x.float() * torch.rsqrt(x.float().var(1, keepdim=True) + 1e-5)).to(
                    x.dtype
                )
            ),
        },
    ),
    Operator(
        name="product",
        reference=lambda x: x @ _weight(x),
        right={
            "in blocks": _in_blocks,
            "in two blocks": lambda x: _in_blocks(x, blocks=2),
            "transposed": lambda x: (_weight(x).T @ x.T).T,
            "by einsum": lambda x: torch.einsum("ij,jk->ik", x, _weight(x)),
            "of three parts": lambda x: _split(x, 3),
        },
        wrong={
            "a block left out": lambda x: _in_blocks(x, left_out=1),
            "a part of fp8": (
                lambda x: (x.to(torch.float8_e4m3fn).float() @ _weight(x).float()).to(x.dtype)
            ),
        },
    ),
    Operator(
        name="linear and gelu",
        reference=lambda x: F.gelu(x @ _weight(x)),
        right={
            "fused": lambda x: F.gelu(x.float() @ _weight(x).float()).to(x.dtype),
            "in blocks": lambda x: F.gelu(_in_blocks(x).float()).to(x.dtype),
        },
        wrong={
            "tanh of the wrong scale": (
                lambda x: F.gelu(1.03 * (x.float() @ _weight(x).float())).to(x.dtype)
            )
        },
    ),
    Operator(
        name="attention",
        reference=_attention,
        right={
            "by hand": _attention_by_hand,
            "unfused": (
                lambda x: (x @ x.roll(1, 0).T / math.sqrt(x.shape[1])).softmax(-1) @ x.roll(2, 0)
            ),
        },
        wrong={
            "scale of 1.1": lambda x: _attention_by_hand(x, scale=1.1 / math.sqrt(x.shape[1])),
            "causal": lambda x: _attention_by_hand(x, causal=True),
        },
        by_rows=False,
    ),
    Operator(
        name="convolution",
        reference=lambda x: F.conv1d(
            x[None, None].flatten(0, 1).transpose(1, 2), _weight(x)[:, :32, None].transpose(0, 1)
        )[0],
        right={"as a product": lambda x: (x.float() @ _weight(x)[:, :32].float()).T.to(x.dtype)},
        wrong={
            "one tap lost": lambda x: (x[:, 1:].float() @ _weight(x)[1:, :32].float()).T.to(x.dtype)
        },
        by_rows=False,
    ),
)


def _ways(operator: Operator) -> Mapping[str, Work]:
    """Return the ways that any operator has, then its own."""
    reference = operator.reference
    common: dict[str, Work] = {
        "in fp64, rounded": lambda x: reference(x.double()).to(x.dtype),
        "in fp32, rounded": lambda x: reference(x.float()).to(x.dtype),
        "another layout": lambda x: reference(x.T.contiguous().T),
        "decomposed by a compiler": torch.compile(reference, backend="aot_eager_decomp_partition"),
    }
    if operator.by_rows:
        common["rows in four parts"] = lambda x: torch.cat([reference(part) for part in x.chunk(4)])
        common["rows in reverse"] = lambda x: reference(x.flip(0)).flip(0)
    return {**common, **operator.right}


FACTORS = {"fp32": 1 + 2.0**-14, "bf16": 1.02, "fp16": 1.003}
"""A factor that is a few roundings of each format."""


def _faults(operator: Operator, precision: str, shape: tuple[int, ...]) -> Mapping[str, Work]:
    """Return the faults that any result can have, then the operator's own wrong ways."""
    reference, factor = operator.reference, FACTORS[precision]

    def spoilt(change: Callable[[Tensor], Tensor]) -> Work:
        return lambda x: change(reference(x.double()).clone()).to(x.dtype)

    def part(place: object, change: Callable[[Tensor], Tensor]) -> Work:
        def spoil(result: Tensor) -> Tensor:
            result[place] = change(result[place])  # type: ignore[index]
            return result

        return spoilt(spoil)

    bits = {"fp32": 23, "fp16": 10, "bf16": 7}[precision]
    common: dict[str, Work] = {
        "all off by a factor": spoilt(lambda y: y * factor),
        "one row stale": part(5, lambda row: row * 0 + 0.5),
        "one row zeroed": part(-1, torch.zeros_like),
        "one element off by a tenth of the largest": spoilt(_one_element),
        "one element infinite": part((7,), lambda element: element + math.inf),
        "clamped at half of the largest": spoilt(
            lambda y: y.clamp(-float(y.abs().max()) / 2, float(y.abs().max()) / 2)
        ),
    }
    if len(shape) > 1:  # one number is no row, and a few dozen numbers show no direction
        common["one row off by a factor"] = part(5, lambda row: factor * row)
        common["two rows swapped"] = spoilt(lambda y: torch.cat([y[:3], y[4:5], y[3:4], y[5:]]))
        common["cut off towards zero"] = lambda x: _cut_off(reference(x.double()), x.dtype, bits)
    if precision == "fp32":
        common["inputs cut to 16 bits"] = lambda x: reference(cut(x, 16).double()).to(x.dtype)
        common["inputs cut to 10 bits"] = lambda x: reference(cut(x, 10).double()).to(x.dtype)
        common["kept in bf16 for a moment"] = lambda x: reference(x.double()).bfloat16().to(x.dtype)
    return {**common, **operator.wrong}


def _one_element(value: Tensor) -> Tensor:
    flat = value.reshape(-1)
    flat[flat.numel() // 3] += 0.1 * float(flat.abs().max())
    return flat.reshape(value.shape)


def _cut_off(true: Tensor, dtype: torch.dtype, bits: int) -> Tensor:
    step = torch.ldexp(torch.ones_like(true), true.frexp().exponent - 1 - bits)
    return ((true / step).trunc() * step).to(dtype)


def main(argv: Sequence[str] | None = None) -> int:
    """Judge all variants, print the tables, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows, missed = [], []
    for precision in DTYPES:
        counts: Counter[tuple[str, bool]] = Counter()
        for kind, name, size, outcome in judged(precision, arguments.seed):
            right = outcome is (Outcome.PASS if kind == "right" else Outcome.FAIL)
            counts[kind, right] += 1
            if not right:
                missed.append(
                    {
                        "kind": kind,
                        "precision": precision,
                        "size": size,
                        "variant": name,
                        "outcome": str(outcome),
                    }
                )
        for kind, words in (("right", "passed"), ("wrong", "found")):
            good, bad = counts[kind, True], counts[kind, False]
            rows.append(
                {
                    "precision": precision,
                    "variants": f"{kind}: {good + bad}",
                    words: f"{good / (good + bad):.1%}",
                }
            )
    text = "".join(
        render(title, [row for row in rows if words in row]) + "\n"
        for title, words in (("Right variants", "passed"), ("Wrong variants", "found"))
    )
    publish(
        text + render("Misjudged", missed or [{"kind": "none"}]),
        {"rows": rows, "misjudged": missed},
        arguments.json,
    )
    return int(any(miss["kind"] == "right" for miss in missed))


def judged(precision: str, seed: int) -> Iterator[tuple[str, str, str, Outcome]]:
    """Yield kind, name, size and outcome of each variant."""
    for operator in OPERATORS:
        for size, shape in SIZES.items():
            trial = _Trial.of(operator, precision, shape, seed)
            torch._dynamo.reset()  # noqa: SLF001 - the public name is torch.compiler.reset, and warns
            for kind, ways in (
                ("right", _ways(operator)),
                ("wrong", _faults(operator, precision, trial.truth.shape)),
            ):
                for name, way in ways.items():
                    yield kind, f"{operator.name}: {name}", size, trial.answer(way)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trial:
    """The input of an operator, and results of its reference."""

    x: Tensor
    """The input [rows, columns], or one row of it."""
    epsilon: float
    """One rounding of the format."""
    truth: Tensor
    """The reference in fp64."""
    runs: tuple[Tensor, ...]
    """The reference in the format, first of the input, then of shaken ones."""
    jolts: tuple[Tensor, ...]
    """The reference of a strongly shaken input; empty if the format is too coarse."""

    @classmethod
    def of(cls, operator: Operator, precision: str, shape: tuple[int, ...], seed: int) -> "_Trial":
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(shape, generator=generator).to(DTYPES[precision])
        epsilon = torch.finfo(x.dtype).eps / 2

        def shake(by: float) -> Tensor:
            return operator.reference(shaken({"x": x}, by, generator)["x"])

        jolt = jolt_of(epsilon)
        return cls(
            x=x,
            epsilon=epsilon,
            truth=operator.reference(x.double()),
            runs=(operator.reference(x), shake(epsilon), shake(epsilon)),
            jolts=(shake(jolt),) if jolt else (),
        )

    def answer(self, way: Work) -> Outcome:
        """Judge a way to compute it."""

        def name_output(value: Tensor) -> dict[str, Tensor]:
            return {"output: 0": value}

        return agree(
            name_output(way(self.x)),
            truth=name_output(self.truth),
            runs=[name_output(run) for run in self.runs],
            jolts=[name_output(run) for run in self.jolts],
            epsilon=self.epsilon,
        ).outcome


if __name__ == "__main__":
    raise SystemExit(main())
