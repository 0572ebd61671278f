"""Models of the user's own, of transformers' configurations, and of a timm that is there."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torchbench_builders import HERE, QUICK, accuracy, opened, own, verified, word

from ci_bench.suites.contract import Unsupported, no_mark
from ci_bench.suites.shared.worker.fp32_precision import effective_precision
from ci_bench.suites.torchbench.catalogue import HUGGINGFACE
from ci_bench.suites.torchbench.status import ModelFailed

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("model", [
    "planted_models:Plain", f"path:{HERE / 'planted_models.py'},class:Plain", "planted_models:pair", "planted_models:triple",
])  # fmt: skip
def test_an_own_model_runs(model, mode):
    evidence = verified(source="own", models=[model], mode=mode)
    assert word(evidence.checks[0]) == "pass", evidence.checks[0].detail


def test_a_model_that_differentiates_itself_can_be_trained():
    check = accuracy(**own("Meta", backend="eager"))
    assert word(check) == "pass", check.detail


def test_a_model_that_turns_tf32_on_is_measured_without_it():
    _, workload = opened(**own("WithTf32"))
    for arm in ("eager", "aot_eager"):
        workload.open(arm)
        assert {effective_precision()[f"fp32_precision_{kind}"] for kind in ("matmul", "conv")} == {
            "ieee"
        }
        assert (
            torch.get_float32_matmul_precision() == "highest"
        )  # raises where the two interfaces disagree


def test_arguments_reach_the_factory_and_the_batch_is_the_first_dimension():
    _, workload = opened(**own("Plain", model_options={"scale": 0.5}))
    program = workload.open("eager")
    assert (program.items, program._ready.module.scale) == (8, 0.5)


@pytest.mark.parametrize(("model", "words"), [
    ("planted_models", "neither package.module:NAME nor path:FILE,class:NAME"),
    ("no_such_package.models:Model", "cannot be imported: No module named 'no_such_package'"),
    ("path:/nowhere.py,class:Model", "no Python file /nowhere.py"),
    ("path:/nowhere.py", "neither package.module:NAME"),
])  # fmt: skip
def test_a_model_that_is_not_there_is_named(model, words):
    _, workload = opened(source="own", models=[model], mode="inference")
    with pytest.raises(ModelFailed, match=f"model_fail_to_load: LookupError: .*{words}"):
        workload.prepare()


@pytest.mark.parametrize(("model", "shape"), [
    ("Sized", (20, 12)), ("SizedInputs", (20, 12)), ("sized_pair", (20, 12)), ("SequenceFirst", (5, 20, 12)),
])  # fmt: skip
def test_a_batch_size_reaches_whatever_has_a_parameter_for_it(model, shape):
    _, workload = opened(**own(model, batch_size=20))
    program = workload.open("eager")
    assert (program.items, tuple(program._ready.samples[0].args[0].shape)) == (20, shape)


@pytest.mark.parametrize(("model", "more"), [("Plain", {}), ("Sized", {}), ("sized_pair", {})])
def test_a_batch_size_that_the_example_inputs_have_anyway_is_no_fault(model, more):
    _, workload = opened(**own(model, batch_size=8, **more))
    assert workload.open("eager").items == 8


@pytest.mark.parametrize(("model", "more", "words"), [
    ("Plain", {}, r"batch_size: 20 rows are wanted of 'planted_models:Plain', and its example inputs are of shape \(8, 12\); give the"),
    ("Parameterless", {"mode": "inference"}, r"batch_size: 20 rows are wanted"),
    ("pair", {}, r"batch_size: 20 rows are wanted"),
    ("Deaf", {}, r"batch_size: 20 rows are wanted"),
    ("Sized", {"model_options": {"batch_size": 4}}, r"batch_size is 20, and model_options.batch_size 4; leave one out"),
])  # fmt: skip
def test_a_batch_size_without_effect_is_refused(model, more, words):
    _, workload = opened(**own(model, batch_size=20, **more))
    with pytest.raises(ModelFailed, match=f"model_fail_to_load: BadConfig: {words}"):
        workload.prepare()


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_a_list_of_example_inputs_is_one_call_by_position(mode):
    case, workload = opened(**own("TwoInputs", mode=mode))
    ready = workload.open("eager")._ready
    assert [len(sample.args) for sample in ready.samples] == [2]
    assert word(workload.verify(case.arms).checks[0]) == "pass"


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 90,
}
SMALL_T5 = {
    "d_model": 32,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "d_ff": 48,
    "d_kv": 16,
    "vocab_size": 90,
}
SMALL_GPT2 = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 90}


@pytest.mark.parametrize(("model", "small", "mode"), [
    ("BertForMaskedLM", SMALL, "training"),
    ("BertForMaskedLM", SMALL, "inference"),
    ("T5Small", SMALL_T5, "training"),
    ("GPT2ForSequenceClassification", SMALL_GPT2, "inference"),
])  # fmt: skip
def test_a_configuration_of_transformers_runs(model, small, mode):
    entry = {
        "source": "huggingface",
        "models": [model],
        "mode": mode,
        "batch_size": 2,
        "model_options": {**small, "sequence_length": 12},
    }
    case, workload = opened(**entry)
    ready = workload.open("eager")._ready
    assert ready.samples[0].kwargs["input_ids"].shape == (2, 12)
    assert word(workload.verify(case.arms).checks[0]) == "pass"


def test_checkpointing_is_asked_of_transformers():
    entry = {
        "source": "huggingface",
        "models": ["BertForMaskedLM"],
        "mode": "training",
        "batch_size": 2,
        "activation_checkpointing": True,
    }
    entry["model_options"] = {**SMALL, "sequence_length": 8}
    _, workload = opened(**entry)
    assert workload.open("eager")._ready.module.is_gradient_checkpointing
    assert word(accuracy(**entry)) == "pass"


def test_a_setting_that_a_configuration_does_not_have_is_refused():
    _, workload = opened(
        source="huggingface",
        models=["BertForMaskedLM"],
        mode="inference",
        model_options={"layers": 2},
    )
    with pytest.raises(
        ModelFailed,
        match=r"model_options.layers: the configuration of BertForMaskedLM has no such setting",
    ):
        workload.prepare()


def test_every_listed_class_is_in_transformers():
    transformers = pytest.importorskip("transformers")
    missing = [
        name for name, listed in HUGGINGFACE.items() if not hasattr(transformers, listed.cls)
    ]
    settings = {
        f"{name}.{key}"
        for name, listed in HUGGINGFACE.items()
        for key in listed.config
        if not hasattr(getattr(transformers, listed.cls).config_class(), key)
    }
    assert (missing, settings) == ([], set())


def test_timm_gives_models_where_it_is_installed(monkeypatch):
    timm = ModuleType("timm")
    asked = {}

    def create_model(name, **more):
        asked.update(more, name=name)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 5),
        )

    timm.create_model = create_model
    timm.data = SimpleNamespace(resolve_data_config=lambda _, model: {"input_size": (3, 20, 20)})
    monkeypatch.setitem(sys.modules, "timm", timm)
    case, workload = opened(source="timm", models=["tiny"], mode="training", batch_size=4)
    workload.open("eager").step(no_mark)
    assert asked == {"name": "tiny", "pretrained": False, "drop_rate": 0.0}
    assert word(workload.verify(case.arms).checks[0]) == "pass"


def test_a_kind_that_this_torchao_lacks_and_no_torchao_are_reasons_to_skip(monkeypatch):
    torchao = ModuleType("torchao")
    torchao.quantization = SimpleNamespace(
        quantize_=lambda module, config: None, Int8WeightOnlyConfig=lambda: "int8 weights"
    )
    monkeypatch.setitem(sys.modules, "torchao", torchao)
    entry = {**QUICK, "models": ["mlp"], "mode": "inference", "precision": "bf16"}
    with pytest.raises(Unsupported, match="has no Int4WeightOnlyConfig"):
        opened(**entry, quantization="int4weightonly")[1].open("eager")
    with pytest.raises(Unsupported, match="mlp has no layer that torchao quantises"):
        opened(**entry, quantization="int8weightonly")[1].open("eager")
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(Unsupported, match="torchao is not installed"):
        opened(**entry, quantization="int8weightonly")[1].open("eager")
