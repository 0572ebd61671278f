"""Every optimizer that the schema offers does real steps; options that it refuses are named."""

import inspect
import json
from dataclasses import replace
from importlib.resources import files

import pytest
import torch
from training_loss_builders import start_of_model

from ci_bench.suites.shared.worker.optimizers import MODEL, BadOptimizer
from ci_bench.suites.training_loss import training
from ci_bench.suites.training_loss.network import build_optimizer
from ci_bench.suites.training_loss.training import build_trainee

pytestmark = pytest.mark.engine

SCHEMA = json.loads((files("ci_bench") / "schemas" / "config.json").read_text())
OFFERED = SCHEMA["$defs"]["training_loss"]["properties"]["optimizer"]["else"]["enum"]
UNFIT = {"LBFGS", "Muon", "SparseAdam"}
"""A closure; matrices only; sparse gradients only."""


def with_optimizer(bench, name, **optimizer_options):
    return replace(bench.options, optimizer=name, optimizer_options=optimizer_options)


def built(bench, name, *, device="cpu", **optimizer_options):
    return build_optimizer(
        with_optimizer(bench, name, **optimizer_options), torch.nn.Linear(2, 2), device
    )


def test_the_schema_offers_all_that_fit():
    known = {
        name
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and name != "Optimizer"
    }
    assert set(OFFERED) == known - UNFIT
    assert len(OFFERED) == 12


def test_the_schema_says_where_an_optimizer_is_given_the_model_and_only_there():
    said = f"first parameter is named `{MODEL}`"
    suites = [
        name
        for name, form in SCHEMA["$defs"].items()
        if said in str(form.get("properties", {}).get("optimizer"))
    ]
    assert suites == ["training_loss"], "make_optimizer refuses it of any other suite"


@pytest.mark.parametrize("name", OFFERED)
def test_an_optimizer_changes_weights_on_the_cpu(name, bench):
    state = start_of_model(bench.options.model, 0)
    trainee = build_trainee(with_optimizer(bench, name), state, device="cpu", candidate=None)
    batch = bench.rows.batch(torch.arange(8))
    losses = [float(trainee.step(batch)) for _ in range(3)]
    moved = [
        key for key, value in trainee.model.named_parameters() if not torch.equal(value, state[key])
    ]
    assert all(abs(loss) < 100 for loss in losses)
    assert len(moved) > len(state) / 2
    assert trainee.gradient_norm() > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {"betas": [0.9, 0.99], "weight_decay": 0.1}),
        ("Adafactor", {"eps": [None, 1e-3]}),
        ("Rprop", {"etas": [0.5, 1.2], "step_sizes": [1e-6, 50]}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adam", {"amsgrad": True, "foreach": False}),
    ],
)
def test_options_reach_the_optimizer(name, options, bench):
    defaults = built(bench, name, **options).defaults
    for key, value in options.items():
        assert defaults[key] == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("AdamW", {"beta": [0.9, 0.99]}, r"optimizer_options\.beta: .*did you mean betas\?"),
        (
            "Adam",
            {"momentum": 0.9},
            r"optimizer_options\.momentum: torch\.optim\.Adam does not take .*it has betas, eps",
        ),
        ("Adam", {"lr": 0.1}, r"optimizer_options\.lr: .*does not take this option here"),
        ("Adam", {"params": 1}, r"optimizer_options\.params: "),
        (
            "AdamW",
            {"betas": [0.9, 1.5]},
            r"optimizer_options: torch\.optim\.AdamW refuses \{'betas': \(0\.9, 1\.5\)\}.*beta",
        ),
        ("AdamW", {"betas": [0.9]}, r"refuses \{'betas': \(0\.9,\)\}"),
        ("AdamW", {"betas": 0.9}, r"refuses \{'betas': 0\.9\}"),
        ("AdamW", {"eps": "small"}, r"refuses \{'eps': 'small'\}"),
        ("Adam", {"weight_decay": -1.0}, r"refuses \{'weight_decay': -1\.0\}"),
        ("Adam", {"foreach": True, "fused": True}, r"refuses .*cannot be `True` together"),
        ("SGD", {"nesterov": True}, r"refuses .*momentum"),
        ("Adam", {"capturable": True}, r"optimizer_options\.capturable: needs a GPU"),
    ],
)
def test_a_bad_option_is_named(name, options, message, bench):
    with pytest.raises(BadOptimizer, match=message):
        built(bench, name, **options)


@pytest.mark.parametrize("name", OFFERED)
def test_capturable_is_on_where_it_is_asked_for_and_can_be(name, bench):
    def capturable(device, *, asked, **given):
        options, layer = with_optimizer(bench, name, **given), torch.nn.Linear(2, 2)
        return build_optimizer(options, layer, device, capturable=asked).defaults.get(
            "capturable", False
        )

    can = "capturable" in inspect.signature(getattr(torch.optim, name)).parameters
    assert not capturable("cpu", asked=True)
    assert not capturable("cuda", asked=False)
    assert capturable("cuda", asked=True) is can
    if can:
        assert capturable("cuda", asked=True, capturable=False) is False


@pytest.mark.parametrize(
    ("compiled", "captured", "capturable"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_the_eager_reference_is_capturable_only_where_its_step_is_captured(
    compiled, captured, capturable, bench, monkeypatch
):
    asked = []
    build = training.build_optimizer

    def noting(*given, capturable=False):
        asked.append(capturable)
        return build(*given, capturable=capturable)

    monkeypatch.setattr(training, "build_optimizer", noting)
    candidate = bench.options.candidates[0] if compiled else None
    state = start_of_model(bench.options.model, 0)
    build_trainee(bench.options, state, device="cpu", candidate=candidate, captured=captured)
    assert asked == [capturable]
