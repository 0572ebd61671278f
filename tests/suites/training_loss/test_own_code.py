"""Models, data, losses, optimizers and backends of the user's own, by import path: found, tried, and told by name where they do not fit."""

import textwrap
from pathlib import Path

import pytest
import torch
from training_loss_builders import context

from ci_bench.errors import BadConfig
from ci_bench.judge.parity.verdict import parity_findings
from ci_bench.records.comparison import Parity
from ci_bench.records.results import Case
from ci_bench.suites.shared.worker.optimizers import BadOptimizer, make_optimizer
from ci_bench.suites.training_loss.corpus import BadData, load_rows
from ci_bench.suites.training_loss.model_files import BadModel
from ci_bench.suites.training_loss.network import build_model, build_optimizer
from ci_bench.suites.training_loss.options import parse
from ci_bench.suites.training_loss.plan import SUITE
from ci_bench.suites.training_loss.run import TrainingWorkload, open_workload

pytestmark = pytest.mark.engine
MINE = """
    from types import SimpleNamespace

    import torch
    from torch import nn
    from torch.nn import functional

    class Net(nn.Module):
        def __init__(self, width=8, gives="both"):
            super().__init__()
            self.body, self.gives = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)), gives

        def forward(self, pixels, labels=None):
            logits = self.body(pixels)
            if self.gives == "logits":
                return logits
            loss = None if labels is None else functional.cross_entropy(logits, labels)
            return SimpleNamespace(loss=loss, logits=logits)

    def rows(split, count):
        generator = torch.Generator().manual_seed(0 if split == "train" else 1)
        pixels = torch.randn(count + 5, 4, generator=generator)
        return {"pixels": pixels, "labels": (pixels @ torch.arange(12.0).reshape(4, 3)).argmax(dim=1)}

    def texts(split, count):
        for number in range(count + 5):
            yield {"text": f"{split} number {number}", "label": number % 2}

    def loss(logits, labels):
        return functional.cross_entropy(logits, labels, label_smoothing=0.1)

    def vector(logits, labels):
        return functional.cross_entropy(logits, labels, reduction="none")

    class Signed(torch.optim.Optimizer):
        def __init__(self, params, lr, decay=0.0):
            super().__init__(params, {"lr": lr, "decay": decay})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(1 - group["decay"]).add_(parameter.grad.sign(), alpha=-group["lr"])

    def decayed(model, lr, decay=0.1):
        weights = [value for name, value in model.named_parameters() if name.endswith("weight")]
        biases = [value for name, value in model.named_parameters() if name.endswith("bias")]
        return torch.optim.AdamW([{"params": weights, "weight_decay": decay}, {"params": biases, "weight_decay": 0.0}], lr=lr)

    def muon(params, lr):
        return torch.optim.Muon([one for one in params if one.ndim == 2], lr=lr)

    def no_optimizer(params, lr):
        return object()

    def scaled(graph, inputs):
        return lambda *given: tuple(1.01 * out if out.requires_grad else out for out in graph.forward(*given))

    NUMBER = 3
    def not_rows(split, count):
        return {"pixels": [1, 2], "labels": torch.zeros(2)}
    def uneven(split, count):
        return {"pixels": torch.zeros(3, 4), "labels": torch.zeros(2, dtype=torch.long)}
    def no_rows(split, count):
        return count
    def no_model():
        return "a model"
"""
OWN = {
    "name": "mine",
    "backend": "aot_eager",
    "epochs": 1,
    "num_samples": 96,
    "batch_size": 8,
    "evaluation_rows": 24,
    "lr": 0.01,
    "dataset": {"factory": "own_training:rows", "num_labels": 3},
    "model": {"factory": "own_training:Net", "options": {"width": 6}},
}


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a side, in front of the path as in its workers."""
    (tmp_path / "own_training.py").write_text(textwrap.dedent(MINE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "own_training", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def workload(tree: Path, **changes: object) -> TrainingWorkload:
    (case,) = SUITE.plan({**OWN, **changes})
    scratch = tree / "scratch"
    scratch.mkdir(exist_ok=True)
    return open_workload(case, context(scratch))


def verified(tree: Path, **changes: object):
    opened = workload(tree, **changes)
    opened.prepare()
    evidence = opened.verify(("eager", *(SUITE.plan({**OWN, **changes})[0].arms[1:])))
    (finding,) = parity_findings(evidence.parity)
    return evidence.parity, finding


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loss": "own_training:loss"},
        {
            "loss": "torch.nn.functional:cross_entropy",
            "model": {"factory": "own_training:Net", "options": {"gives": "logits"}},
        },
        {"loss": "path:own_training.py,class:loss"},
        {"optimizer": "own_training:Signed", "optimizer_options": {"decay": 0.001}},
        {"optimizer": "own_training:decayed", "optimizer_options": {"decay": 0.2}},
        {"optimizer": "own_training:muon"},
    ],
    ids=[
        "the model's loss",
        "own loss",
        "bare logits",
        "a file",
        "own optimizer",
        "an optimizer of the model's parts",
        "an optimizer of matrices",
    ],
)
def test_own_code_is_trained_and_agrees_with_itself_compiled(tree, compiler_cache, changes) -> None:
    evidence, finding = verified(tree, **changes)
    assert finding.verdict.holds, finding.detail
    losses = evidence.traces[0].loss
    assert len(losses) == 12
    assert min(losses) > 0
    assert losses[-1] < losses[0]
    assert finding.accuracy is not None


def test_an_optimizer_is_given_the_model_that_it_asks_for(tree) -> None:
    def decays(name: str, **options: float) -> list[tuple[float, list[torch.Size]]]:
        (case,) = SUITE.plan({**OWN, "optimizer": name, "optimizer_options": options})
        parsed = parse(case.params)
        optimizer = build_optimizer(parsed, build_model(parsed, seed=0), "cpu")
        return [
            (group["weight_decay"], [value.shape for value in group["params"]])
            for group in optimizer.param_groups
        ]

    assert decays("own_training:decayed", decay=0.2) == [
        (0.2, [(6, 4), (3, 6)]),
        (0.0, [(6,), (3,)]),
    ]
    assert decays("AdamW", weight_decay=0.3) == [(0.3, [(6, 4), (6,), (3, 6), (3,)])]


def test_an_optimizer_that_wants_the_model_where_there_is_none_is_refused(tree) -> None:
    with pytest.raises(
        BadOptimizer,
        match=r"optimizer: own_training:decayed takes the model, which only training_loss passes",
    ):
        make_optimizer("own_training:decayed", [torch.zeros(2)], lr=0.1, device="cpu")


def test_each_part_of_ones_own_makes_a_difference(tree, compiler_cache) -> None:
    """Whoever names a loss or an optimizer gets that one: the trainings differ from each other."""
    changes = (
        {},
        {"loss": "own_training:loss"},
        {"optimizer": "own_training:Signed"},
        {"optimizer": "SGD"},
        {"optimizer": "own_training:decayed"},
    )
    trained = [verified(tree, evaluation=False, **change)[0].traces[0].loss for change in changes]
    assert len({*trained}) == len(changes)


def test_a_backend_of_ones_own_that_computes_something_else_is_caught(tree, compiler_cache) -> None:
    _, finding = verified(tree, backend="own_training:scaled", evaluation=False)
    assert finding.verdict is Parity.DIFFERENT_MATH


def test_rows_of_ones_own_may_be_texts(tree) -> None:
    changes = {
        "dataset": {"factory": "own_training:texts", "num_labels": 2},
        "model": {},
        "num_samples": 7,
        "max_length": 8,
    }
    workload(tree, **changes).prepare()
    rows = load_rows(tree / "scratch", "train")
    assert (len(rows), rows.inputs["input_ids"].shape, rows.labels.tolist()) == (
        7,
        (7, 8),
        [0, 1, 0, 1, 0, 1, 0],
    )


def test_no_more_rows_are_taken_than_are_wanted(tree) -> None:
    workload(tree).prepare()
    rows = load_rows(tree / "scratch", "train")
    assert (len(rows), rows.inputs["pixels"].dtype) == (96, torch.float32)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        (
            {"model": {"factory": "own_training:missing"}},
            LookupError,
            r"model\.factory: own_training has no 'missing'",
        ),
        (
            {"model": {"factory": "nowhere:Net"}},
            LookupError,
            r"model\.factory: 'nowhere:Net' cannot be imported",
        ),
        (
            {"model": {"factory": "path:nowhere.py,class:Net"}},
            LookupError,
            r"model\.factory: no Python file",
        ),
        (
            {"model": {"factory": "own_training:no_model"}},
            BadModel,
            r"gives str; it has to give a torch\.nn\.Module",
        ),
        (
            {"model": {"factory": "own_training:Net", "options": {"gives": "logits"}}},
            BadModel,
            r"name a `loss` of logits",
        ),
        (
            {"loss": "own_training:vector"},
            BadModel,
            r"loss: own_training:vector gives a tensor of shape \(2,\)",
        ),
        ({"loss": "own_training:NUMBER"}, BadModel, r"loss: own_training:NUMBER does not fit"),
        (
            {"optimizer": "own_training:no_optimizer"},
            BadOptimizer,
            r"gives object; it has to give a torch\.optim\.Optimizer",
        ),
        (
            {"optimizer": "own_training:Signed", "optimizer_options": {"decai": 1}},
            BadOptimizer,
            r"did you mean decay\?",
        ),
        (
            {"dataset": {"factory": "own_training:not_rows"}},
            BadData,
            r"one per input of the model and `labels`; not so: \['pixels'\]",
        ),
        ({"dataset": {"factory": "own_training:uneven"}}, BadData, r"as many rows in each tensor"),
        (
            {"dataset": {"factory": "own_training:no_rows"}},
            BadData,
            r"gives int; it has to give rows \(mappings\), or a mapping",
        ),
    ],
)
def test_what_does_not_fit_is_told_by_the_name_of_its_option(tree, changes, error, said) -> None:
    with pytest.raises(error, match=said):
        workload(tree, **changes).prepare()


def test_rows_come_from_one_place() -> None:
    with pytest.raises(
        BadConfig,
        match=r"dataset\.factory: makes the rows itself; leave out dataset\.path and dataset\.files",
    ):
        SUITE.plan({**OWN, "dataset": {"factory": "own_training:rows", "path": "./data"}})


def test_own_code_needs_no_network(tree) -> None:
    (case,) = SUITE.plan(OWN)
    assert isinstance(case, Case)
    assert not SUITE.needs_network(case)
