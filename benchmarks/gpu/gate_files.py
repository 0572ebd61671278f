"""The files of the repositories that `benchmarks.gpu.gates` measures: of base, and head's changes.

Gates that look for +3 % count changes of 1 %: by default a change counts from 2 %.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu.measuring import Trial

Files = Mapping[str, str]
Kinds = Sequence[tuple[str, str]]
"""The work of a chain of kernels, and head's change of it."""
BERT_BASE = (
    "{hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12, intermediate_size: 3072, "
    "vocab_size: 30522, max_position_embeddings: 512}"
)
SMALL_RNN = "seq_length: 5, hidden_size: 16, input_size: 16, batch_size: 4"
MIDDLE_RNN = "seq_length: 20, hidden_size: 128, input_size: 128, batch_size: 16"
QUICK = "num_samples: 320, epochs: 1, evaluation_rows: 160"
BASE_COUNTS = {"none": 40, "three": 33, "five": 20}
HEAD_COUNTS = {"none": 40, "three": 34, "five": 21}
"""The kernels of a call, by the change that head makes of it: +3 % and +5 %."""

BENCH = """\
import ci_bench
import kernels

SIZES = {{"products": {side}, "tiny": 64}}
DTYPES = {{"products": "bf16", "tiny": "fp32"}}


@ci_bench.benchmark(cases={cases})
def chain(kind, change):
    size = SIZES[kind]
    one, two = ci_bench.inputs(2, (size, size), DTYPES[kind])
    count = kernels.COUNTS[change]
    if kind == "products":
        return lambda: kernels.products(one, two, count)
    return lambda: kernels.tiny(one, count)
"""
KERNELS = """\
COUNTS = {counts}


def products(one, two, count):
    for _ in range(count):
        out = one @ two
    return out


def tiny(one, count):
    out = one
    for _ in range(count):
        out = out * 1.0
    return out
"""
ROWS = """\
import ci_bench


@ci_bench.benchmark(rows={rows})
def chain(rows):
    (one,) = ci_bench.inputs(1, (rows, 64))

    def call():
        out = one
        for _ in range(20):
            out = out * 1.0
        return out

    return call
"""
WRONG = '''\
"""Backends that run the captured graph with one small fault."""

import torch


def scaled(graph, inputs):
    """Scale the outputs that gradients flow through by one per cent."""

    def run(*values):
        return tuple(
            value * 1.01 if isinstance(value, torch.Tensor) and value.requires_grad else value
            for value in graph.forward(*values)
        )

    return run


def unbiased(graph, inputs):
    """Drop the bias of the last linear layer; that of an attention's first hardly matters."""
    for node in reversed(graph.graph.nodes):
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "linear":
            if len(node.args) > 2 and node.args[2] is not None:
                node.args = (*node.args[:2], None)
            elif node.kwargs.get("bias") is not None:
                node.kwargs = {**node.kwargs, "bias": None}
            else:
                continue
            break
    graph.recompile()
    return graph.forward
'''


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """The files of the base commit, and those that head changes; without them, one commit."""

    base: Files
    head: Files


def smoke(trial: Trial, budget_s: float) -> Repository:
    """Return all four suites, small and unchanged, in one launch."""
    rnn = f"[aten], {SMALL_RNN}" if trial.simulated else f"[cudnn, jit], {MIDDLE_RNN}"
    samples, rows, length = trial.size(80, 40), trial.size(4, 2), trial.size(64, 16)
    backend = "aot_eager" if trial.simulated else "inductor"
    config = f"""\
schema_version: 1
run: {{{_run(trial, budget_s)}, sampling: fixed, launches: 1, blocks: 5,
  warmup_s: {trial.size(3, 1)}, stage_timeout_s: {90 * trial.patience}}}
policy: {{severities: {{check_unknown: note}}}}
suites:
  training_loss:
    - {{name: small, epochs: 1, num_samples: {samples}, batch_size: {samples // 10},
       evaluation_rows: 32, backend: eager}}
  fastrnns:
    - {{variants: {rnn}}}
  torchbench:
    - {{models: [mlp], mode: training, backend: {backend}}}
  transformers:
    - {{model: bert, batch_size: {rows}, sequence_length: {length}, candidate: aot_eager}}
"""
    return _unchanged(config)


def real(trial: Trial, budget_s: float) -> Repository:
    """Return unchanged code at the sizes that people buy GPUs for."""
    base = f"{{path: bert, name: bert-base, config: {BERT_BASE}}}"
    rnn, bert, rows, length, precision, model = (
        (f"[aten], {SMALL_RNN}", "bert", 2, 16, "fp32", "mlp")
        if trial.simulated
        else ("[cudnn, jit, py]", base, 16, 128, "bf16", "resnet")
    )
    backend = "eager" if trial.simulated else "inductor"
    config = f"""\
schema_version: 1
run: {{{_run(trial, budget_s)}, launches: 2, max_launches: 5, warmup_s: 3,
  compile_budget_s: 0, stage_timeout_s: {120 * trial.patience}}}
policy: {{default_threshold: 1%}}
suites:
  fastrnns:
    - {{variants: {rnn}}}
  transformers:
    - {{model: {bert}, mode: training, batch_size: {rows}, sequence_length: {length},
       precision: {precision}, candidate: none}}
  torchbench:
    - {{models: [{model}], mode: training, backend: {backend}}}
"""
    return _unchanged(config)


def tuned(trial: Trial, budget_s: float) -> Repository:
    """Return one model, compiled in three ways by each side."""
    graphs = "{backend: inductor, mode: reduce-overhead}"
    tuned_arm = "{backend: inductor, mode: max-autotune-no-cudagraphs}"
    arms = "[inductor, aot_eager]" if trial.simulated else f"[inductor, {tuned_arm}, {graphs}]"
    model = "mlp" if trial.simulated else "encoder"
    config = f"""\
schema_version: 1
run: {{{_run(trial, budget_s)}, launches: 2, max_launches: 4, warmup_s: 3,
  compile_budget_s: 0, stage_timeout_s: {120 * trial.patience}}}
suites:
  torchbench:
    - {{models: [{model}], mode: training, measure: performance, arms: {arms}}}
"""
    return _unchanged(config)


def planted(trial: Trial, budget_s: float) -> Repository:
    """Return chains of kernels: +5 %, +3 % and unchanged, bound by arithmetic and by the host."""
    kinds = [
        ("products", "five"),
        ("products", "none"),
        ("products", "three"),
        ("tiny", "five"),
        ("tiny", "none"),
    ]
    return _chains(trial, budget_s, kinds, launches=6)


def changes(trial: Trial, budget_s: float) -> Repository:
    """Return the four changes of `planted`, for many gates: +5 % and +3 % of both kinds."""
    kinds = [(kind, change) for change in ("five", "three") for kind in ("products", "tiny")]
    return _chains(trial, budget_s, kinds, launches=6)


def quiet(trial: Trial, budget_s: float) -> Repository:
    """Return unchanged chains of both kinds, for many gates."""
    return _chains(trial, budget_s, [("products", "none"), ("tiny", "none")], launches=5)


def _chains(trial: Trial, budget_s: float, kinds: Kinds, *, launches: int) -> Repository:
    cases = [{"kind": kind, "change": change} for kind, change in kinds]
    bench = BENCH.format(side=trial.size(2048, 64), cases=cases)
    config = _functions(trial, budget_s, launches)
    kernels = {"kernels.py": KERNELS.format(counts=BASE_COUNTS)}
    return Repository(
        base={"ci-bench.yml": config, "bench.py": bench, **kernels},
        head={"kernels.py": KERNELS.format(counts=HEAD_COUNTS)},
    )


def unchanged(trial: Trial, budget_s: float) -> Repository:
    """Return eight small cases of unchanged code.

    Uncalibrated times need five launches for a verdict.
    """
    rows = [8 * (1 + place) for place in range(trial.size(8, 2))]
    files = _unchanged(_functions(trial, budget_s, 5))
    return Repository(base={**files.base, "bench.py": ROWS.format(rows=rows)}, head=files.head)


def parity(trial: Trial, budget_s: float) -> Repository:
    """Return trainings with correct and wrong backends, in three precisions."""
    every = [
        ("wrong-scaled", "fp32", "wrong:scaled"),
        ("right-bf16", "bf16", "inductor"),
        ("wrong-unbiased", "fp32", "wrong:unbiased"),
        ("right-tf32", "tf32", "inductor"),
        ("wrong-bf16", "bf16", "wrong:scaled"),
        ("right-fp32", "fp32", "inductor"),
    ]
    quick = QUICK
    if trial.simulated:
        every = [entry for entry in every if entry[0] in {"wrong-scaled", "right-fp32"}]
        quick = QUICK.replace("320", "192")
    entries = "\n".join(
        f"    - {{name: {name}, precision: {precision}, backend: '{backend}',\n       {quick}}}"
        for name, precision, backend in every
    )
    if trial.simulated:
        entries = entries.replace("inductor", "aot_eager")
    config = f"""\
schema_version: 1
run: {{{_run(trial, budget_s)}, sampling: fixed, launches: 1, blocks: 2, warmup_s: 1,
  compile_budget_s: 0, stage_timeout_s: {150 * trial.patience}}}
policy: {{severities: {{baseline_missing: note}}}}
suites:
  training_loss:
{entries}
"""
    return Repository(base={"ci-bench.yml": config, "wrong.py": WRONG}, head={})


REPOSITORIES: Mapping[str, Callable[[Trial, float], Repository]] = {
    "smoke": smoke,
    "planted": planted,
    "parity": parity,
    "real": real,
    "unchanged": unchanged,
    "tuned": tuned,
    "quiet": quiet,
    "changes": changes,
}


def _functions(trial: Trial, budget_s: float, launches: int) -> str:
    short = "blocks: 5, most_blocks: 5, sample_s: 0.01"
    samples = short if trial.simulated else "blocks: 8, most_blocks: 20"
    return f"""\
schema_version: 1
run: {{{_run(trial, budget_s)}, {samples}, warmup_s: 2,
  max_launches: {trial.size(launches, 2)}, stage_timeout_s: {60 * trial.patience}}}
policy: {{default_threshold: 1%}}
suites: {{functions: [{{path: bench.py}}]}}
"""


def _run(trial: Trial, budget_s: float) -> str:
    budget = f", budget_s: {budget_s:g}" if budget_s else ""
    return f"device: '{trial.device}', threads: 1, explain: never{budget}"


def _unchanged(config: str) -> Repository:
    return Repository(base={"ci-bench.yml": config, "NOTES": "1"}, head={"NOTES": "2"})
