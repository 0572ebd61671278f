"""Steps of a few milliseconds, and single lines that make each of them slower.

The lines are marked, so that an explanation can be scored.

A line that ends in ``# planted`` is what a case is slow by. `PLANTS` are what explaining was
developed with; `APART` and `FRESH` were written later and are scored by themselves, so that nothing
is fitted to what it is measured by.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PLANTED = "# planted"
STEPS: Mapping[str, str] = {
    "inference": (
        """
import time
import numpy
import torch
import torch.nn.functional as F

N = 384


def make():
    torch.manual_seed(0)
    return torch.randn(N, 64), torch.randn(64, N), torch.randn(N)


def run(x, w, b):
    with torch.no_grad():
        y = x @ w
        y = F.gelu(y)
        y = y + b
        y = torch.softmax(y, -1)
        return y.mean(-1)
"""
    ),
    "training": (
        """
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

N = 256


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, g):
        return g


def make():
    torch.manual_seed(0)
    return torch.randn(N, N), torch.nn.Linear(N, N), torch.nn.Linear(N, N)


def run(x, first, second):
    y = first(x)
    y = F.gelu(y)
    y = Same.apply(y)
    y = second(y)
    loss = y.square().mean()
    loss.backward()
    first.zero_grad()
    second.zero_grad()
"""
    ),
    "compiled": (
        """
import torch
import torch.nn.functional as F

N = 512


def make():
    torch.manual_seed(0)
    return torch.randn(N, N), torch.randn(N, N)


@torch.compiler.disable
def aside(y):
    return torch.tanh(y)


@torch.compile
def body(x, w):
    y = x + w
    y = F.gelu(y)
    y = y * w
    y = y - x
    return y.sum(-1)


def run(x, w):
    with torch.no_grad():
        return body(x, w)
"""
    ),
}
"""The steps that slowdowns are planted in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plant:
    """One slowdown of a step."""

    name: str
    """The name in the table and on the command line."""
    of: str
    """The name of the step, in `STEPS`."""
    old: str
    """The line that is replaced, without its indentation."""
    new: str
    """The text instead of it; several lines have line breaks."""
    interprets: bool = False
    """Its time is the interpreter's own, known by function and not by line."""

    def source(self) -> str:
        """Return the step with the plant, each of whose lines is marked."""
        base = STEPS[self.of]
        (line,) = [text for text in base.splitlines() if text.strip() == self.old]
        indent = line[: len(line) - len(line.lstrip())]
        added = "\n".join(
            f"{indent}{text}" + ("" if text == self.old else f"  {PLANTED}")
            for text in self.new.splitlines()
        )
        return base.replace(line, added)


def _eager(name: str, new: str, old: str = "y = F.gelu(y)") -> Plant:
    return Plant(name=name, of="inference", old=old, new=new)


def _after(
    name: str,
    more: str,
    of: str = "inference",
    old: str = "y = F.gelu(y)",
    *,
    interprets: bool = False,
) -> Plant:
    return Plant(name=name, of=of, old=old, new=f"{old}\n{more}", interprets=interprets)


_LOSS = "loss = y.square().mean()"
PLANTS = (
    _after("extra copy", "y = y.clone()"),
    _after("copy into another layout", "y = y.t().contiguous().t()"),
    _after("column-major from here on", "y = y.t().contiguous().t().contiguous()"),
    _after("round trip to fp64", "y = y.double().float()"),
    _after("round trip to bf16", "y = y.bfloat16().float()"),
    _eager("GELU by its formula", "y = 0.5 * y * (1 + torch.erf(y / 2**0.5))"),
    _eager(
        "GELU by tanh and a power",
        "y = 0.5 * y * (1 + torch.tanh(0.7979 * (y + 0.0447 * torch.pow(y, 3))))",
    ),
    _eager(
        "softmax by hand",
        "y = torch.exp(y) / torch.exp(y).sum(-1, keepdim=True)",
        "y = torch.softmax(y, -1)",
    ),
    _eager(
        "softmax of the wrong axis", "y = torch.softmax(y.t(), 0).t()", "y = torch.softmax(y, -1)"
    ),
    _eager(
        "product in halves",
        "y = torch.cat([x[: N // 2] @ w, x[N // 2 :] @ w]) + 0 * (x @ w)",
        "y = x @ w",
    ),
    _eager("product row by row", "y = torch.stack([row @ w for row in x])", "y = x @ w"),
    _eager("product in fp64", "y = (x.double() @ w.double()).float()", "y = x @ w"),
    _eager(
        "product by broadcasting",
        "y = torch.cat([(x[i : i + 8, :, None] * w).sum(1) for i in range(0, 64, 8)] * 6)",
        "y = x @ w",
    ),
    _eager("product twice", "y = (x @ w + x @ w) / 2", "y = x @ w"),
    _after(
        "synchronising for numbers", "rows = [y[i, 0].item() for i in range(300)]", interprets=True
    ),
    _after("through numpy", "y = torch.from_numpy(y.numpy().copy())"),
    _after("waiting", "time.sleep(0.002)"),
    _after("a loop in Python", "for i in range(30_000): i * i", interprets=True),
    _after("a sum in Python", "total = sum(y[0].tolist() * 40)", interprets=True),
    _after("in chunks and back", "y = torch.cat(y.chunk(16, 0))"),
    _after("unbound and stacked", "y = torch.stack(y.unbind(0))"),
    _after("indexed by a range", "y = y[torch.arange(N)]"),
    _after("columns gathered", "y = y.gather(1, torch.arange(N).expand(N, N))"),
    _after("a mask filled", "y = y.masked_fill(y != y, 0)"),
    _after("where instead of nothing", "y = torch.where(y > 1e9, 0.0, y)"),
    _after("sorted", "y = y.sort(-1).values"),
    _after("repeated and averaged", "y = y.repeat(2, 1, 1).mean(0)"),
    _after("dropout left on", "y = F.dropout(y, 0.1)"),
    _after("another normalisation", "y = F.layer_norm(y, (N,))"),
    _after("a power for a square", "y = torch.pow(y.abs(), 1.7)"),
    _after("zeros, then assigned", "y = torch.zeros_like(y).copy_(y)"),
    _after("rolled", "y = y.roll(1, 0)"),
    _after("flipped twice", "y = y.flip(0).flip(0)"),
    _after("a running sum", "y = y.cumsum(0)"),
    _after(
        "another term of the loss", "loss = (y.exp().log1p().tanh() + y).mean()", "training", _LOSS
    ),
    _after("a copy in both passes", "y = y.t().contiguous().t()", "training"),
    Plant(
        name="computed again in the backward pass",
        of="training",
        old="y = first(x)",
        new="y = checkpoint(lambda z: first(first(z)), x, use_reentrant=False)",
    ),
    Plant(name="a slow backward", of="training", old="return g", new="return g.sort(-1).values"),
    _after("a graph break", "torch._dynamo.graph_break()", "compiled"),
    _after("a number read", "y = y + y[0, 0].item()", "compiled"),
    _after("left to run uncompiled", "y = aside(y)", "compiled"),
    _after("a fusion broken by a sort", "y = y.sort(-1).values", "compiled"),
    _after("more in the fused kernel", "y = torch.lgamma(y.abs() + 1.5)", "compiled"),
    _after("a copy between kernels", "y = y.cumsum(0)", "compiled"),
)
APART = (
    _eager("product in bf16", "y = (x.bfloat16() @ w.bfloat16()).float()", "y = x @ w"),
    _after("less its largest eight", "y = y - y.topk(8, -1).values.mean(-1, keepdim=True)"),
    _after("assigned by a mask", "y[y < -9] = 0"),
    _after("sorted by numpy", "y = torch.from_numpy(numpy.sort(y.numpy(), -1))", interprets=True),
    _after("one-hot rows, multiplied", "y = F.one_hot(torch.arange(N), N).float() @ y"),
    _after("printed", "text = str(y)"),
    _after(
        "gradients clipped",
        "torch.nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 1.0)",
        "training",
        "loss.backward()",
    ),
    Plant(
        name="SiLU by its formula for GELU",
        of="training",
        old="y = F.gelu(y)",
        new="y = y / (1 + torch.exp(-y))",
    ),
    _after("a product among fused operators", "y = y @ w", "compiled"),
    _after("rows in the order of a column", "y = y[torch.argsort(y[:, 0])]", "compiled"),
)
"""Written before explaining was changed to what it is."""
FRESH = (
    _after("spectrum and back", "y = torch.fft.irfft(torch.fft.rfft(y), n=N)"),
    _after("a triangular mask", "y = y * torch.tril(torch.ones(N, N))"),
    _after("padded and cut", "y = F.pad(y, (1, 0))[:, 1:]"),
    _after(
        "a copy of the weights",
        "kept = {k: v.clone() for k, v in second.state_dict().items()}",
        "training",
        "y = second(y)",
    ),
    _after(
        "decay in the loss",
        "loss = loss + sum(p.square().sum() for p in second.parameters())",
        "training",
        _LOSS,
    ),
    _after("four products at once", "y = (y[:, None, :] * w[None, :4, :]).sum(1)", "compiled"),
)
"""Written after it was changed: nothing was changed since they were first scored."""
