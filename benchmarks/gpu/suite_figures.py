"""Figures of suites: the clock of ci-bench against plain loops, on an RNN and on BERT-base."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.measuring import (
    MILLISECONDS,
    Finding,
    Trial,
    load_torch,
    middle,
    new_event,
)
from ci_bench.suites.contract import Context, Program, no_mark
from ci_bench.suites.fastrnns.plan import SUITE as FASTRNNS
from ci_bench.suites.transformers.options import parse
from ci_bench.suites.transformers.plan import SUITE as TRANSFORMERS
from ci_bench.worker.clock import Clock, Taken
from ci_bench.worker.fence import hold_garbage_collector, synchronizer, time_calls
from ci_bench.worker.memory import memory_of, watch
from ci_bench.worker.sampling import make_clock

if TYPE_CHECKING:
    from ci_bench.suites.fastrnns.networks import Network

VARIANTS = ("aten", "cudnn", "jit", "py")
SLOW_VARIANTS = frozenset({"jit", "py"})
PARTS = ("forward", "backward")
BERT_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
BERT_TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 200,
    "max_position_embeddings": 64,
}
MEBIBYTE = 2**20
Seconds = tuple[float, float]


def measure_fastrnns(trial: Trial) -> Finding:
    """Compare cudnn, jit and py at PyTorch's sizes with plain loops of CUDA events."""
    torch = load_torch(trial)
    variants = ("aten",) if trial.simulated else VARIANTS
    values = {name: _variant(torch, trial, name) for name in variants}
    biases = {name: variant["bias"]["step, many calls"] for name, variant in values.items()}
    steps = [f"{name} {values[name]['step ms']:.2f} ms {biases[name]:+.1%}" for name in values]
    summary = "; ".join(steps)
    return Finding(values=values, summary=summary)


def _variant(torch: Any, trial: Trial, name: str) -> dict[str, Any]:
    tiny = {"seq_length": 5, "hidden_size": 16, "input_size": 16, "batch_size": 4}
    (case,) = FASTRNNS.plan({"variants": [name], **(tiny if trial.simulated else {})})
    from ci_bench.suites.fastrnns.program import TimedProgram
    from ci_bench.suites.fastrnns.run import open_workload

    with tempfile.TemporaryDirectory() as scratch:
        context = Context(device=trial.device, scratch=Path(scratch), progress=lambda *_: None)
        program, clock = open_workload(case, context).open(name), make_clock(trial.device)
    assert isinstance(program, TimedProgram)  # noqa: S101 - a case of this suite
    loop = PlainRnn(torch, program._network, program._gradient)  # noqa: SLF001 - the same network
    for _ in range(6):
        program.step(no_mark)
    torch.cuda.synchronize()
    calls = 4 if name in SLOW_VARIANTS else 20
    parts, steps = [], []
    with hold_garbage_collector():
        for place in range(trial.size(14, 4)):
            parts.append(_both(partial(clock.take, program, calls=1), loop.parts, place))
            several = partial(clock.take, program, calls=calls)
            steps.append(_both(several, partial(loop.step, calls), place))
    return _compared(parts, steps) | {"checks": _details(clock, program, name)}


class PlainRnn:
    """The loops that a user would write around the network of a case."""

    def __init__(self, torch: Any, network: "Network", gradient: Any) -> None:
        """Run `network`; `gradient` is the output's."""
        self._torch, self._network, self._gradient = torch, network, gradient

    def parts(self) -> Seconds:
        """Return the seconds of forward and backward, by CUDA events."""
        torch = self._torch
        start, between, end = (new_event(torch) for _ in range(3))
        torch.cuda.synchronize()
        start.record()
        output, _ = self._network.forward()
        between.record()
        torch.autograd.backward([output], [self._gradient])
        end.record()
        self._network.zero_gradients()
        torch.cuda.synchronize()
        forward_ms, backward_ms = start.elapsed_time(between), between.elapsed_time(end)
        return forward_ms / MILLISECONDS, backward_ms / MILLISECONDS

    def step(self, calls: int) -> float:
        """Return the seconds of a step, by the host's clock over several."""
        torch = self._torch
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            output, _ = self._network.forward()
            torch.autograd.backward([output], [self._gradient])
            self._network.zero_gradients()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / calls


def _both(ours: Callable[[], Taken], loop: Callable[[], Any], place: int) -> tuple[Taken, Any]:
    """Take a sample of both; at every other place, ours is first."""
    if place % 2:
        sample = ours()
        return sample, loop()
    other = loop()
    return ours(), other


def _compared(
    parts: Sequence[tuple[Taken, Seconds]],
    steps: Sequence[tuple[Taken, float]],
) -> dict[str, Any]:
    """Return medians and biases (ours / plain - 1) of the parts and of whole steps."""
    figures: dict[str, Any] = {
        "bias": {"step, many calls": middle([ours.wall_s / loop - 1 for ours, loop in steps])},
        "step ms": MILLISECONDS * middle([ours.wall_s for ours, _ in steps]),
        "plain step ms": MILLISECONDS * middle([loop for _, loop in steps]),
        "steps": [(ours.wall_s, loop, ours.device_s) for ours, loop in steps],
        "parts": [(ours.parts_s, loop) for ours, loop in parts],
    }
    for place, part in enumerate(PARTS):
        both = [(ours.parts_s[place], loop[place]) for ours, loop in parts]
        pairs = [(ours_s, plain_s) for ours_s, plain_s in both if ours_s is not None]
        if pairs:
            figures["bias"][part] = middle([ours / loop - 1 for ours, loop in pairs])
            figures[f"{part} ms"] = MILLISECONDS * middle([ours for ours, _ in pairs])
            figures[f"plain {part} ms"] = MILLISECONDS * middle([loop for _, loop in pairs])
    return figures


def _details(clock: Clock, program: Program, arm: str) -> list[str]:
    return [check.detail for check in clock.checks(program, arm=arm)]


def measure_bert(trial: Trial) -> Finding:
    """Compare a training step of BERT-base with a plain loop, and its peaks with torch's."""
    torch = load_torch(trial)
    from ci_bench.suites.transformers.network import ModelRecipe
    from ci_bench.suites.transformers.run import open_program

    fields = BERT_TINY if trial.simulated else BERT_BASE
    rows, length = trial.size(16, 2), trial.size(128, 16)
    entry = {
        "model": {"path": "bert", "name": "base", "config": fields},
        "mode": "training",
        "batch_size": rows,
        "sequence_length": length,
        "candidate": "none",
    }
    (case,) = TRANSFORMERS.plan(entry)
    before = torch.cuda.memory_allocated()
    recipe = ModelRecipe(options=parse(case.params), device=trial.device)
    program = open_program(recipe, "eager", None)
    peaks = _peaks(torch, trial, program) | {"allocated before": before}
    clock, calls = make_clock(trial.device), trial.size(5, 1)
    loop = _bert_loop(torch, trial, fields, (rows, length))

    def plain() -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            loop()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / calls

    def ours() -> Taken:
        return clock.take(program, calls=calls)

    for _ in range(3):
        plain()
        ours()
    with hold_garbage_collector():
        pairs = [_both(ours, plain, place) for place in range(trial.size(16, 2))]
    figures = _compared((), pairs) | {"peaks": peaks, "checks": _details(clock, program, "eager")}
    return Finding(values=figures, summary=_bert_summary(figures))


def _bert_summary(figures: Mapping[str, Any]) -> str:
    ours = figures["peaks"].get("peak_allocated", 0.0)
    more = (ours - figures["peaks"]["torch max_memory_allocated"]) / MEBIBYTE
    bias = figures["bias"]["step, many calls"]
    step = f"step {figures['step ms']:.2f} ms, bias {bias:+.2%}"
    return f"{step}; peak_allocated {ours / MEBIBYTE:.1f} MiB, {more:+.1f} compared with torch's"


def _peaks(torch: Any, trial: Trial, program: Program) -> dict[str, float]:
    """Return the peaks of six steps by ci-bench, and torch's own of three."""
    wait = synchronizer(trial.device)

    def step() -> None:
        time_calls(lambda: program.step(no_mark), calls=1, synchronize=wait)

    for _ in range(3):
        step()
    peaks = dict(watch(step, memory_of(trial.device), steps=6))
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step()
    peaks["torch max_memory_allocated"] = float(torch.cuda.max_memory_allocated())
    return peaks


def _bert_loop(
    torch: Any,
    trial: Trial,
    fields: Mapping[str, int],
    shape: tuple[int, int],
) -> Callable[[], None]:
    """Return a training step as a user would write it."""
    from transformers import BertConfig, BertForMaskedLM

    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    options: dict[str, Any] = {**fields, **without_dropout}
    torch.manual_seed(0)
    model: Any = BertForMaskedLM(BertConfig(**options))
    model.to(trial.device).train()
    ids = torch.randint(10, fields["vocab_size"], shape, device=trial.device)
    mask = torch.ones_like(ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
        loss.backward()
        optimizer.step()

    return step
