"""Small cases of the suite, and their programs, without the engine."""

from pathlib import Path
from typing import Any

from ci_bench.records.results import Case, Check, Outcome
from ci_bench.suites.contract import Context, Evidence
from ci_bench.suites.transformers.network import ModelRecipe
from ci_bench.suites.transformers.options import TransformersOptions, parse
from ci_bench.suites.transformers.plan import SUITE
from ci_bench.suites.transformers.run import open_program, open_workload
from ci_bench.suites.transformers.steps import Observed
from ci_bench.suites.transformers.verify import TransformersVerifier

SMALL = {"batch_size": 2, "sequence_length": 8, "new_tokens": 4, "candidate": "eager"}
"""Dynamo's own backend `eager` is the candidate that is translated fastest."""

ONE_LAYER = {
    "bert": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 64,
    },
    "gpt2": {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 64},
    "llama": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 48,
        "vocab_size": 64,
    },
    "t5": {
        "num_layers": 1,
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 64,
        "num_heads": 2,
        "vocab_size": 64,
    },
    "vit": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 16,
    },
}


def cases(**entry: Any) -> tuple[Case, ...]:
    return SUITE.plan({**SMALL, **entry})


def case(**entry: Any) -> Case:
    (only,) = cases(**entry)
    return only


def options(**entry: Any) -> TransformersOptions:
    return parse(case(**entry).params)


def tiny(model: str, **entry: Any) -> dict[str, Any]:
    """An entry with one layer of a family."""
    return {
        "model": {"path": model, "config": {**ONE_LAYER[model], **entry.pop("config", {})}},
        **entry,
    }


def recipe(**entry: Any) -> ModelRecipe:
    return ModelRecipe(options=options(**entry), device="cpu")


def program(arm: str = "eager", **entry: Any) -> Observed:
    return open_program(recipe(**entry), arm, None)


def context(scratch: Path = Path("/nonexistent")) -> Context:
    return Context(device="cpu", scratch=scratch, progress=lambda arm, done, total: None)


def workload(**entry: Any):
    return open_workload(case(**entry), context())


def verified(open_one=open_program, **entry: Any) -> Evidence:
    return TransformersVerifier(
        recipe=recipe(**entry), context=context(), open_program=open_one
    ).gather()


def agrees(open_one=open_program, **entry: Any) -> Check:
    (check,) = verified(open_one, **entry).checks
    return check


def steps(one: Observed, count: int) -> list[int]:
    """Take some steps; how often each of them marked."""
    marks = []
    for _ in range(count):
        made = []
        one.step(lambda made=made: made.append(1))
        marks.append(len(made))
    return marks


def outcomes(one: Observed) -> dict[str, Outcome]:
    return {check.name: check.outcome for check in one.finish()}
