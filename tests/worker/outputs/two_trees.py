"""A repository on two sides: models, a configuration of transformers, a kernel of its own, and torch itself as each side has it.

The sources are filled in: what base has, and what head changes. Each planted change and each honest
one is a model of its own, so that one run of both sides shows them all.
"""

import json
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ci_bench.checkouts.sides import Side, caller_environment
from ci_bench.judge.compare import compare
from ci_bench.judge.times.sequential import fixed
from ci_bench.records.comparison import BaselineMode, Comparison
from ci_bench.records.config import Policy, Rule, RunOptions, Sampling, Severity
from ci_bench.records.results import (
    Better,
    Case,
    Lane,
    Launch,
    Metric,
    Results,
    Run,
    RunState,
    SideName,
    Status,
    Unit,
)
from ci_bench.runner.beside import OutputsOptions
from ci_bench.runner.ledger import Ledger
from ci_bench.runner.recording import results_of
from ci_bench.runner.runner import Runner
from ci_bench.suites.contract import Stage, StageKind, Suite
from ci_bench.suites.registry import find_suite

NETS = """
    import torch
    from torch import nn
    from torch.nn import functional

    BASE = {base}

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (1 if BASE else 1.001)

    class Net(nn.Module):
        def __init__(self, what, spread=1.0):
            super().__init__()
            self.what = what
            self.body = nn.Linear(16, 32)
            self.norm = nn.LayerNorm(32, eps=1e-6 if what == "epsilon" and not BASE else 1e-5)
            if what == "renamed" and not BASE:
                self.head = nn.Linear(32, 10)
            else:
                self.last = nn.Linear(32, 10)
            self.drop = nn.Dropout(0.5)
            nn.init.normal_(self.body.weight, std=spread)

        def linear(self, x):
            weight, bias = self.body.weight, self.body.bias
            if self.what == "gradient":
                weight = Scaled.apply(weight)
            if self.what == "split" and not BASE:
                return x[:, :8] @ weight[:, :8].T + x[:, 8:] @ weight[:, 8:].T + bias
            return functional.linear(x, weight, bias)

        def forward(self, x):
            last = self.head if hasattr(self, "head") else self.last
            hidden = self.norm(torch.tanh(self.linear(x)))
            if self.what == "masks":
                hidden = self.drop(hidden) if BASE else self.drop(self.drop(hidden)) / 2
            y = last(hidden)
            if BASE:
                return y
            if self.what == "logit":
                y = y.clone()
                y[3, 5] += 0.001
            return y * {{"half_more": 1.5, "slightly": 1.0005}}.get(self.what, 1.0)

    def make(what):
        torch.manual_seed(7)
        torch.set_num_threads(2 if what == "threads" and not BASE else 1)
        net = Net(what, spread=2.0 if what == "start" and not BASE else 1.0)
        torch.manual_seed(9 if what == "inputs" and not BASE else 8)
        return net, (torch.randn(8, 16),)
"""
PLANTED = ("half_more", "slightly", "logit", "epsilon")
HONEST = ("split", "threads")
UNKNOWN = ("start", "inputs")

KERNEL = """
    import torch

    from ci_bench.suites.contract import Computed, Evidence
    from ci_bench.suites.shared.worker.digests import digest

    class Workload:
        def __init__(self, context):
            self._context = context

        def prepare(self):
            pass

        def verify(self, arms):
            x = torch.randn(64, generator=torch.Generator().manual_seed(0))
            computed, truth = (torch.softmax(one, 0) for one in (x, x.double()))
            if {wrong}:
                computed[7] *= 1.001
            self._context.keep(Computed(
                arm="kernel", epsilon=2**-24, outputs={{"output: 0": computed}}, inputs=[digest(x)], truth={{"output: 0": truth}}
            ))
            return Evidence()

    def open_workload(case, context):
        return Workload(context)
"""
OPTIMIZERS = """
    import torch

    BASE = {base}

    class Momentum(torch.optim.Optimizer):
        wrong, other_order = False, False

        def __init__(self, params, lr=0.1, decay=0.01):
            super().__init__(params, {{"lr": lr, "decay": decay}})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for weight in group["params"]:
                    if weight.grad is None:
                        continue
                    state = self.state[weight]
                    speed = state.setdefault("speed", torch.zeros_like(weight))
                    state["steps"] = state.get("steps", 0) + 1
                    keep = 0.9 if not (self.wrong and state["steps"] > 2) else 0.909
                    if self.other_order:
                        speed.copy_(speed * keep + weight.grad + weight * group["decay"])
                        weight.copy_(weight - speed * group["lr"])
                    else:
                        speed.mul_(keep).add_(weight.grad).add_(weight, alpha=group["decay"])
                        weight.sub_(speed, alpha=group["lr"])

    class Forgetful(Momentum):
        wrong = not BASE

    class Rewritten(Momentum):
        other_order = not BASE
"""
"""On head one remembers otherwise from the third step on, one is written in another way."""
LIBRARY = """
    import torch

    lstm = torch._VF.lstm
    torch._VF.lstm = lambda *given: (lambda out, *states: (out * 1.0005, *states))(*lstm(*given))
"""
"""Read when Python starts: a torch whose LSTM was changed, on head alone."""


def write_tree(folder: Path, *, base: bool) -> Path:
    """One side.

    What head changes in its configuration, kernel and library is planted; `nets` has honest
    changes, too.
    """
    wrong = not base
    folder.mkdir()
    made = "".join(
        f"\ndef {what}():\n    return make({what!r})\n"
        for what in (*PLANTED, *HONEST, *UNKNOWN, "gradient", "masks", "renamed")
    )
    (folder / "nets.py").write_text(textwrap.dedent(NETS).format(base=base) + made)
    (folder / "optimizers.py").write_text(textwrap.dedent(OPTIMIZERS).format(base=base))
    (folder / "own_kernel.py").write_text(textwrap.dedent(KERNEL).format(wrong=wrong))
    if wrong:
        (folder / "sitecustomize.py").write_text(textwrap.dedent(LIBRARY))
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 64,
        "rms_norm_eps": 1e-5 if wrong else 1e-6,
    }
    for name, own in (("tiny", {}), ("same", {"rms_norm_eps": 1e-6})):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(
            json.dumps({"architectures": ["LlamaForCausalLM"], **config, **own})
        )
    return folder


@dataclass(frozen=True)
class Verified(Suite):
    """A suite of which only the verification is run."""

    suite: Any

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        return tuple(self.suite.plan(options))

    @property
    def name(self) -> str:
        return str(self.suite.name)

    @property
    def worker(self) -> str:
        return str(self.suite.worker)

    @property
    def preload(self) -> tuple[str, ...]:
        return ("torch", "torch._dynamo", "transformers")

    def stages(self, case: Case) -> tuple[Stage, ...]:
        return tuple(
            one
            for one in self.suite.stages(case)
            if one.kind is StageKind.VERIFY and one.arms == case.arms
        )


class Kernel(Suite):
    """A plugin of the tree."""

    name, worker = "own_kernel", "own_kernel"

    def plan(self, _: Mapping[str, Any]) -> tuple[Case, ...]:
        return (KERNEL_CASE,)

    def stages(self, case: Case) -> tuple[Stage, ...]:
        return (Stage(kind=StageKind.VERIFY, arms=case.arms),)


def plan_of(*entries: tuple[str, Mapping[str, Any]]) -> tuple[tuple[Any, Case], ...]:
    """The cases of built-in suites."""
    return tuple(
        (Verified(find_suite(name)), case)
        for name, options in entries
        for case in find_suite(name).plan(options)
    )


def nets(*names: str, **options: Any) -> tuple[str, dict[str, Any]]:
    """An entry of `torchbench` with these models of the tree."""
    models = [f"nets:{name}" for name in names]
    defaults = {
        "name": "own",
        "source": "own",
        "models": models,
        "backend": "eager",
        "perturbations": 1,
        "prepared": 1,
        "steps": 1,
    }
    return "torchbench", {**defaults, **options}


KERNEL_CASE = Case(
    id="own_kernel/softmax",
    suite="own_kernel",
    name="softmax",
    params={},
    arms=("kernel",),
    reference="kernel",
)
TINY = {"model": {"path": "./tiny"}, "candidate": "none", "batch_size": 2, "sequence_length": 8}
LSTM = {
    "variants": ["aten"],
    "hidden_size": 8,
    "input_size": 8,
    "seq_length": 5,
    "batch_size": 2,
    "num_layers": 1,
}


def timed(results: Results) -> Results:
    """As if each case had been timed, too: a run that measured nothing fails for that."""
    taken = (Launch(launch=0, values=(1.0,) * 8),)
    rows = []
    for row in results.cases:
        common = {
            "unit": Unit.SECONDS,
            "better": Better.LOWER,
            "lane": Lane.WALL,
            "launches": taken,
        }
        rows.append(
            replace(
                row,
                metrics=tuple(Metric(name="step_time", arm=arm, **common) for arm in row.case.arms),
            )
        )
    return replace(results, cases=tuple(rows))


def measured(
    folder: Path, plan: Any, *, outputs: OutputsOptions | None = None, launches: int = 1
) -> dict[SideName, Results]:
    """The sides that are in `folder`, verified by the engine."""
    sides = [
        Side(name=name, environ=caller_environment(folder / name, os.environ), folder=folder / name)
        for name in SideName
        if (folder / name).is_dir()
    ]
    options = RunOptions(device="cpu", threads=1, sampling=Sampling.FIXED, launches=launches)
    with TemporaryDirectory(dir=folder) as scratch:
        runner = Runner(
            options=options,
            scratch=Path(scratch),
            observe=lambda _: None,
            outputs=outputs or OutputsOptions(),
        )
        ledger = Ledger.open(
            [case for _, case in plan], reproduce={case.id: "again" for _, case in plan}
        )
        found = runner.run(plan, sides, {side.name: ledger for side in sides}, lambda *_: None)
        left = [path.name for path in Path(scratch).rglob("*.safetensors")]
    run = Run(
        id="r",
        started_at="2026-01-01T00:00:00Z",
        state=RunState.COMPLETE,
        config_digest="c",
        device="cpu",
    )
    results = {side.name: timed(results_of(run, side.source, *found[side.name])) for side in sides}
    failed = {
        row.case.id: row.failure
        for one in results.values()
        for row in one.cases
        if row.status is not Status.OK
    }
    assert (failed, left) == ({}, []), (failed, left)
    return results


def judged(folder: Path, plan: Any) -> Comparison:
    """Both sides of `folder`, judged for their outputs alone."""
    results = measured(folder, plan)
    return verdict(results[SideName.BASE], results[SideName.HEAD])


def verdict(base: Results, head: Results, *, launches: int = 1) -> Comparison:
    """What is said of two sides' outputs; all other findings are notes."""
    severities = {
        **dict.fromkeys(Rule, Severity.NOTE),
        Rule.OUTPUTS_CHANGED: Severity.FAIL,
        Rule.OUTPUTS_UNKNOWN: Severity.WARN,
    }
    return compare(
        base=base,
        head=head,
        policy=Policy(severities=severities),
        mode=BaselineMode.PAIRED,
        absence=None,
        tool_version="1",
        rule=fixed(launches),
    )
