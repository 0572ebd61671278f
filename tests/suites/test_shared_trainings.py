"""Several processes that share a batch, in each suite that has them: right ones are one process, and planted faults are red.

One server for all of them, as most of what this takes is importing torch.
"""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import ranked_stages  # noqa: E402

from ci_bench.records.results import Outcome  # noqa: E402 - after torch was found
from ci_bench.runner.ledger import Ledger, refuse_row  # noqa: E402
from ci_bench.suites.contract import Evidence  # noqa: E402
from ci_bench.suites.torchbench.plan import SUITE as TORCHBENCH  # noqa: E402
from ci_bench.suites.training_loss.plan import SUITE as TRAINING_LOSS  # noqa: E402
from ci_bench.suites.transformers.plan import SUITE as TRANSFORMERS  # noqa: E402

pytestmark = pytest.mark.engine
MODELS = Path(__file__).parent / "torchbench"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ranked_plugin"
FACTOR = "(loss * self._factor).backward()"
RIGHT = ("ddp", "fsdp", "planted_layouts:averaged")
WRONG = tuple(f"planted_layouts:{name}" for name in ("summed", "unsynced", "same_rows", "left_out"))
COMPILED = {"ddp+aot_eager": Outcome.PASS, "planted_layouts:uncompiled+aot_eager": Outcome.FAIL}
"""And whether they really are: what dynamo leaves alone computes rightly all the same."""
LAYER = {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 64,
}
ENTRIES = {
    "torchbench": (
        TORCHBENCH,
        "accuracy",
        {"models": ["mlp"], "perturbations": 1, "prepared": 1, "batch_size": 7},
    ),
    "transformers": (
        TRANSFORMERS,
        "agrees",
        {
            "model": {"path": "bert", "config": LAYER},
            "batch_size": 5,
            "sequence_length": 8,
            "prepared_inputs": 2,
        },
    ),
}
COUNTING = """
from pathlib import Path

import torch
from torch._dynamo.backends.registry import lookup_backend


def backend(graph, inputs):
    exchanges = any("all_reduce" in str(node.target) for node in graph.graph.nodes)
    if torch.distributed.get_rank() == 0:
        with Path(__file__).with_name("graphs").open("a") as file:
            file.write(f"{torch._dynamo.config.optimize_ddp} {'exchange' if exchanges else 'model'}\\n")
    return lookup_backend("aot_eager")(graph, inputs)
"""
"""A backend that leaves a line for each graph: the mode that dynamo is in, and whether the graph
exchanges gradients.
"""
SPLIT = {
    "source": "own",
    "models": ["split_models:Net"],
    "perturbations": 1,
    "prepared": 1,
    "mode": "training",
}
TRAINED = {
    "epochs": 1,
    "num_samples": 48,
    "batch_size": 8,
    "optimizer": "SGD",
    "evaluation": False,
    "loss": "torch.nn.functional:cross_entropy",
    "dataset": {"factory": "split_models:rows", "num_labels": 4},
    "model": {"factory": "split_models:Net"},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Beside the example of a plugin a copy of it, `planted_mlp`, whose gradients are twice as large."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "counting.py").write_text(COUNTING)
    (folder / "planted_mlp").mkdir()
    for source in (EXAMPLE / "shared_mlp").glob("*.py"):
        text = source.read_text()
        assert text.count(FACTOR) == (source.name == "worker.py")
        planted = text.replace(FACTOR, "(loss * self._factor * 2).backward()").replace(
            "shared_mlp", "planted_mlp"
        )
        (folder / "planted_mlp" / source.name).write_text(planted)
    paths, preload = (
        (ranked_stages.HERE, MODELS, EXAMPLE, folder),
        ("transformers.models.bert.modeling_bert",),
    )
    with ranked_stages.opened(TORCHBENCH, folder, paths=paths, preload=preload) as bench:
        yield bench


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)
    from shared_mlp.suite import SUITE

    yield SUITE
    for name in [name for name in sys.modules if name.startswith("shared_mlp")]:
        del sys.modules[name]


def outcomes(evidence: Evidence, name: str) -> dict[str, Outcome]:
    return {check.arm: check.outcome for check in evidence.checks if check.name == name}


@pytest.mark.parametrize("name", ENTRIES)
def test_right_layouts_agree_with_one_process_and_planted_faults_do_not(bench, name: str) -> None:
    """Seven rows, or five, in two processes: their parts are not of one size."""
    suite, check, entry = ENTRIES[name]
    compiled = [
        {"layout": arm.removesuffix("+aot_eager"), "backend": "aot_eager"} for arm in COMPILED
    ]
    (case,) = suite.plan({**entry, "mode": "training", "layouts": [*RIGHT, *WRONG, *compiled]})
    evidence = replace(bench, suite=suite).verified(case)
    assert outcomes(evidence, "compiled") == COMPILED
    expected = dict.fromkeys([*RIGHT, *COMPILED], Outcome.PASS) | dict.fromkeys(WRONG, Outcome.FAIL)
    assert outcomes(evidence, check) == expected, [found.detail for found in evidence.checks]


MODEL, EXCHANGE = "model", "exchange"
GRAPHS = {"ddp_optimizer": 2, "no_optimization": 1, "python_reducer_without_compiled_forward": 1}
"""How many graphs a step without graph breaks is, of a model that is two buckets; of the fourth
mode, see the test.
"""


@pytest.mark.parametrize(
    ("suite", "entry", "modes", "more"),
    [
        (TORCHBENCH, SPLIT, ["python_reducer", *GRAPHS], {}),
        (TRAINING_LOSS, TRAINED, ["python_reducer", "no_optimization"], {"accumulate": 2}),
        (TRANSFORMERS, {**ENTRIES["transformers"][2], "mode": "training"}, ["python_reducer"], {}),
    ],
    ids=["torchbench", "training_loss", "transformers"],
)
def test_a_mode_of_ddp_is_of_its_own_arm_alone_and_computes_what_one_process_does(
    bench, suite, entry, modes, more
) -> None:
    """All arms step in one worker: one whose mode were ignored, or that ran another's graphs, would leave other lines.

    Of the Python reducer the exchange is in a graph: that of the backward pass, which is compiled
    again for gradients to add to.
    """
    compiled = {"layout": "ddp", "backend": "counting:backend", **more}
    (case,) = suite.plan(
        {**entry, "layouts": [*({**compiled, "optimize_ddp": mode} for mode in modes), compiled]}
    )
    assert [layout.get("optimize_ddp") for layout in case.params["layouts"]] == [*modes, None], (
        "the document has them"
    )
    own = replace(bench, suite=suite)
    ranked_stages.done(own.prepared(case))
    evidence = own.timed(case)
    assert outcomes(evidence, "refereed") == dict.fromkeys(case.arms, Outcome.PASS), [
        one.detail for one in evidence.checks
    ]
    assert not outcomes(evidence, "own_masks"), "nothing drops"
    file = bench.folder / "graphs"
    lines = [line.split() for line in file.read_text().splitlines()]
    file.unlink()
    assert {mode for mode, graph in lines if graph == EXCHANGE} == {"python_reducer"}
    assert {mode: lines.count([mode, MODEL]) for mode in modes if mode in GRAPHS} == {
        mode: count for mode, count in GRAPHS.items() if mode in modes
    }
    assert "True" in {mode for mode, _ in lines}, "torch's own mode is back"


@pytest.mark.parametrize(
    ("suite", "entry"),
    [
        (TORCHBENCH, {**SPLIT, "models": ["shared_models:dropping"]}),
        (
            TRANSFORMERS,
            {**ENTRIES["transformers"][2], "batch_size": 4, "mode": "training", "dropout": True},
        ),
    ],
    ids=["seven-rows", "four-rows"],
)
def test_masks_that_are_alike_in_two_processes_are_found_and_masks_of_their_own_pass(
    bench, suite, entry
) -> None:
    """Of seven rows ranks do not have as many, and draw as many numbers: they begin with the same."""
    alike = "planted_layouts:alike_masks"
    (case,) = suite.plan({**entry, "layouts": ["ddp", alike]})
    own = replace(bench, suite=suite)
    ranked_stages.done(own.prepared(case))
    evidence = own.timed(case, looks=False)
    assert outcomes(evidence, "own_masks") == {"ddp": Outcome.PASS, alike: Outcome.FAIL}
    (said,) = [
        check.detail for check in evidence.checks if (check.name, check.arm) == ("own_masks", alike)
    ]
    assert said.startswith(
        "rank 1 draws the same masks as another rank, although its rows differ, in a step after the timed ones"
    )
    assert outcomes(evidence, "replicas") == dict.fromkeys(["ddp", alike], Outcome.PASS), (
        "gradients are exchanged all the same"
    )


def test_the_example_of_a_plugin_agrees_and_gradients_that_are_twice_as_large_do_not(
    bench, example
) -> None:
    three, two = example.plan({"processes": [3, 2]})
    assert not refuse_row(Ledger.open([three], reproduce={three.id: ""}).rows[three.id]), (
        "a document can hold its row"
    )
    own = replace(bench, suite=example)
    right, timed = own.verified(three, prepare=False), own.timed(two, looks=False)
    planted = SimpleNamespace(stages=example.stages, worker="planted_mlp.worker")
    wrong = replace(bench, suite=planted).verified(three, prepare=False)
    assert (outcomes(right, "accuracy"), outcomes(wrong, "accuracy")) == (
        {"shared": Outcome.PASS},
        {"shared": Outcome.FAIL},
    )
    assert outcomes(timed, "replicas") == {"shared": Outcome.PASS}
    assert {"step_time", "rank_skew"} <= {
        metric.name for metric in timed.metrics if metric.arm == "shared"
    }
    assert timed.facts["ranks_shared"].count("rank ") == 2
