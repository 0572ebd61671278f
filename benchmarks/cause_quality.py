"""Whether explaining finds what was planted: one slowdown after the other in a small step, each explained as the engine does it.

Each side runs in a process that is forked for it, base's anew for each plant, as a launch forks its workers, under the code that
explains there; the judge matches the two profiles. A line that ends in ``# planted`` is what a case is slow by. Asked are: is the
first part of the change on a planted line (or a graph break there), how much of the change is attributed, how much to planted
lines. And of unchanged code: how often anything is named that would be blamed if it was judged slower.

``python -m benchmarks.cause_quality`` prints the table of docs/measurements.md.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.tables import publish, render
from ci_bench.judge.causes import cause_of
from ci_bench.records.causes import Cause, Part
from ci_bench.records.profiles import Profile, RowKind
from ci_bench.suites.base import Compiler, Context

PLANTED = "# planted"
ENOUGH = 0.8
"""Of the change, to be attributed."""
STEPS: Mapping[str, str] = {
    "inference": """
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
""",
    "training": """
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

N = 256


class Slow(torch.autograd.Function):
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
    y = second(y)
    loss = y.square().mean()
    loss.backward()
    first.zero_grad()
    second.zero_grad()
""",
    "compiled": """
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
""",
}
"""The steps that slowdowns are planted in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plant:
    """One slowdown: in the step `of`, the line `old` becomes `new`, with a line break where it is several."""

    name: str
    of: str
    old: str
    new: str

    def source(self) -> str:
        """The step with it, each of its lines marked."""
        base = STEPS[self.of]
        (line,) = [one for one in base.splitlines() if one.strip() == self.old]
        indent = line[: len(line) - len(line.lstrip())]
        added = "\n".join(f"{indent}{one}" + ("" if one == self.old else f"  {PLANTED}") for one in self.new.splitlines())
        return base.replace(line, added)


def _eager(name: str, new: str, old: str = "y = F.gelu(y)") -> Plant:
    return Plant(name=name, of="inference", old=old, new=new)


def _after(name: str, more: str, of: str = "inference", old: str = "y = F.gelu(y)") -> Plant:
    return Plant(name=name, of=of, old=old, new=f"{old}\n{more}")


PLANTS = (
    _after("extra copy", "y = y.clone()"),
    _after("copy into another layout", "y = y.t().contiguous().t()"),
    _after("column-major from here on", "y = y.t().contiguous().t().contiguous()"),
    _after("round trip to fp64", "y = y.double().float()"),
    _after("round trip to bf16", "y = y.bfloat16().float()"),
    _eager("GELU by its formula", "y = 0.5 * y * (1 + torch.erf(y / 2**0.5))"),
    _eager("GELU by tanh and a power", "y = 0.5 * y * (1 + torch.tanh(0.7979 * (y + 0.0447 * torch.pow(y, 3))))"),
    _eager("softmax by hand", "y = torch.exp(y) / torch.exp(y).sum(-1, keepdim=True)", "y = torch.softmax(y, -1)"),
    _eager("softmax of the wrong axis", "y = torch.softmax(y.t(), 0).t()", "y = torch.softmax(y, -1)"),
    _eager("product in halves", "y = torch.cat([x[: N // 2] @ w, x[N // 2 :] @ w]) + 0 * (x @ w)", "y = x @ w"),
    _eager("product row by row", "y = torch.stack([row @ w for row in x])", "y = x @ w"),
    _eager("product in fp64", "y = (x.double() @ w.double()).float()", "y = x @ w"),
    _eager(
        "product by broadcasting", "y = torch.cat([(x[i : i + 8, :, None] * w).sum(1) for i in range(0, 64, 8)] * 6)", "y = x @ w"
    ),
    _eager("product twice", "y = (x @ w + x @ w) / 2", "y = x @ w"),
    _after("synchronising for numbers", "rows = [y[i, 0].item() for i in range(300)]"),
    _after("through numpy", "y = torch.from_numpy(y.numpy().copy())"),
    _after("waiting", "time.sleep(0.002)"),
    _after("a loop in Python", "for i in range(30_000): i * i"),
    _after("a sum in Python", "total = sum(y[0].tolist() * 40)"),
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
    _after("another term of the loss", "loss = (y.exp().log1p().tanh() + y).mean()", "training", "loss = y.square().mean()"),
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


class _Program:
    """A step from a file, as the suites' programs are."""

    items = None
    parts = ()

    def __init__(self, module: Any, compiler: Compiler) -> None:
        self.compiler = compiler
        self._run, self._inputs = module["run"], module["make"]()

    def step(self, _mark: object) -> None:
        """One call."""
        self._run(*self._inputs)

    def finish(self) -> tuple[()]:
        """Nothing is checked."""
        return ()


class _Workload:
    """One arm, of the step in `step.py` here."""

    keeps_freed_memory = True

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def open(self, _arm: str) -> _Program:
        """Runs the file."""
        module: dict[str, Any] = {"__name__": "step"}
        path = Path("step.py").resolve()
        exec(compile(path.read_text(), str(path), "exec"), module)  # noqa: S102 - our own text
        return _Program(module, self._compiler)


def explained(source: str, *, compiled: bool, limit_s: float = 120.0) -> Profile:
    """The profile of a step, from a process of its own in a folder of its own."""
    context = get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(target=_explain, args=(source, compiled, Path(folder), limit_s, writer))
        child.start()
        writer.close()
        try:
            answer: bytes = reader.recv_bytes()
        except EOFError as error:
            raise RuntimeError("the process that explains died") from error
        finally:
            child.join()
        return msgspec.json.decode(answer, type=Profile)


def _explain(source: str, compiled: bool, folder: Path, limit_s: float, writer: Any) -> None:  # noqa: FBT001 - of a process
    import torch

    from ci_bench.engine.profiling.arm import explain_arm

    tree = folder / "tree"
    tree.mkdir()
    os.chdir(tree)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    torch.set_num_threads(1)
    Path("step.py").write_text(source)
    context = Context(device="cpu", scratch=folder, progress=lambda *_: None)
    workload: Any = _Workload(Compiler.DYNAMO if compiled else Compiler.NONE)
    (profile,) = explain_arm(workload, "arm", context=context, limit_s=limit_s).profiles
    writer.send_bytes(msgspec.json.encode(profile))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What was said of one plant."""

    plant: str
    step: str
    change: float
    first: str
    is_first: bool
    attributed: float
    to_planted: float


def answer_of(plant: Plant, cause: Cause) -> Answer:
    """Whether the first part is what was planted, and how much of the change is attributed: to anything, to what was planted.

    The interpreter's own time is known by function, so that a planted line there is told where its function is. Of a graph break
    what is planted has no time of its own: the line of the break is told.
    """
    share = [part.share or 0.0 for part in cause.parts if is_planted(part, plant)]
    lines = {number for number, line in enumerate(plant.source().splitlines(), 1) if PLANTED in line}
    broken = any(one.place.rpartition(":")[2] in map(str, lines) for one in cause.new_breaks)
    first = cause.parts[0] if cause.parts else None
    base_s, head_s = cause.base_s or 0.0, cause.head_s or 0.0
    return Answer(
        plant=plant.name,
        step=plant.of,
        change=head_s / base_s - 1 if base_s else 0.0,
        first=", ".join((first.after or first.before)[:1]) if first else "nothing",
        is_first=broken or (first is not None and is_planted(first, plant)),
        attributed=cause.attributed or 0.0,
        to_planted=sum(share),
    )


def is_planted(part: Part, plant: Plant) -> bool:
    """Whether a part is on a planted line, or is the own time of the function that a planted loop is in."""
    is_loop = plant.new.rpartition("\n")[2].startswith(("for ", "rows = ", "total = "))
    own_time = is_loop and part.kind is RowKind.PYTHON and part.after == ("run",)
    return own_time or any(PLANTED in code for code in part.codes)


def in_turns(base: str, head: str, *, compiled: bool, turns: int) -> tuple[Profile, Profile]:
    """The profile with the quickest step of each side, of so many taken in turns: a machine is busy in some of them only."""
    sides = [[explained(source, compiled=compiled) for source in (base, head)] for _ in range(turns)]
    before, after = (min(profiles, key=lambda one: one.step_s or math.inf) for profiles in zip(*sides, strict=True))
    return before, after


def measure(names: Sequence[str], repeats: int, turns: int) -> tuple[list[Answer], list[tuple[str, Cause]]]:
    """All plants (or those named), and each step against itself so many times."""
    answers, unchanged = [], []
    for step, source in STEPS.items():
        plants = [plant for plant in PLANTS if plant.of == step and (not names or plant.name in names)]
        if not plants:
            continue
        compiled = step == "compiled"
        for plant in plants:
            answer = answer_of(plant, cause_of(*in_turns(source, plant.source(), compiled=compiled, turns=turns)))
            answers.append(answer)
            sys.stderr.write(f"{answer}\n")
        pairs = range(0 if names else repeats)
        unchanged += [(step, cause_of(*in_turns(source, source, compiled=compiled, turns=turns))) for _ in pairs]
    return answers, unchanged


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of plants")
    parser.add_argument("--repeats", type=int, default=4, help="how often unchanged steps are explained")
    parser.add_argument("--turns", type=int, default=1, help="how often each side is explained; the quickest step counts")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    flags = parser.parse_args()
    import torch._dynamo.backends.common
    import torch._inductor.compile_fx  # noqa: F401 - so that forked processes have them

    answers, unchanged = measure(flags.only, flags.repeats, flags.turns)
    moved = [abs((cause.head_s or 0) / (cause.base_s or 1) - 1) for _, cause in unchanged]
    named = [len([part for part in cause.parts if part.change_s > 0]) for _, cause in unchanged]
    first, enough = sum(one.is_first for one in answers), sum(one.attributed >= ENOUGH for one in answers)
    median = statistics.median([one.attributed for one in answers])
    text = render("What was planted, and what was named", [_row(one) for one in answers])
    text += f"\nranked first: {first} of {len(answers)}; 80 % attributed or more: {enough}, median {median:.0%}\n"
    if unchanged:
        apart = f"steps apart by {max(moved):.1%} at most, {statistics.median(moved):.1%} in the middle"
        text += f"unchanged, {len(unchanged)} pairs: {apart}; {sum(named)} parts longer by more than their noise\n"
    figures = {"moved": moved, "named": named}
    publish(text, {"answers": [msgspec.to_builtins(one) for one in answers], "unchanged": figures}, flags.json)


def _row(answer: Answer) -> dict[str, str]:
    return {
        "planted": answer.plant,
        "step": answer.step,
        "slower by": f"{answer.change:.0%}",
        "first": f"`{answer.first}`",
        "ranked first": "yes" if answer.is_first else "**no**",
        "attributed": f"{answer.attributed:.0%}",
        "to planted lines": f"{answer.to_planted:.0%}",
    }


if __name__ == "__main__":
    main()
