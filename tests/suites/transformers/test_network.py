"""The same model every time, of the right class, without chance; and clear words for what cannot be built."""

import json

import pytest
import torch
from transformers_builders import ONE_LAYER, options, recipe, tiny

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.transformers.network import (
    ModelRecipe,
    UnusableModel,
    find_class,
    load_config,
    parameter_counts,
)

pytestmark = pytest.mark.engine


def built_class(**entry):
    found = options(**entry)
    return find_class(found, load_config(found)).__name__


def states_equal(one, two):
    return all(
        torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items()
    )


def test_every_build_has_the_same_bytes():
    first = recipe(**tiny("bert"))
    assert states_equal(first.build(), first.build())
    other = recipe(**tiny("bert"), seed=1)
    assert not torch.equal(
        first.build().cls.predictions.bias, other.build().cls.predictions.decoder.weight[:, 0]
    )
    assert not states_equal(first.build(), other.build())


@pytest.mark.parametrize(
    ("precision", "kept"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("amp_bf16", torch.float32)],
)
def test_the_reference_has_the_rounded_weights_of_the_arms(precision, kept):
    one = recipe(**tiny("gpt2"), precision=precision)
    arm, exact = one.build(), ModelRecipe(options=one.options, device="cpu", exact=True).build()
    assert {value.dtype for value in arm.parameters()} == {kept}
    assert {value.dtype for value in exact.parameters()} == {torch.float64}
    assert all(
        torch.equal(a.double(), b)
        for a, b in zip(arm.parameters(), exact.parameters(), strict=True)
    )


def test_a_model_trains_where_the_case_trains():
    assert recipe(**tiny("bert"), mode="training").build().training
    assert not recipe(**tiny("bert")).build().training


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"model": "bert"}, "BertForMaskedLM"),
        ({"model": "bert", "only_pretrain_model": True}, "BertModel"),
        (
            {
                "model": {
                    "path": "bert",
                    "config": {"architectures": ["BertForSequenceClassification"]},
                }
            },
            "BertForSequenceClassification",
        ),
        ({"model": {"config": {"model_type": "bert", **ONE_LAYER["bert"]}}}, "BertForMaskedLM"),
        ({"model": {"config": {"model_type": "llama", **ONE_LAYER["llama"]}}}, "LlamaForCausalLM"),
        (
            {"model": {"config": {"model_type": "t5", **ONE_LAYER["t5"]}}},
            "T5ForConditionalGeneration",
        ),
        ({"model": {"config": {"model_type": "resnet"}}}, "ResNetForImageClassification"),
        ({"model": {"config": {"model_type": "whisper"}}}, "WhisperForConditionalGeneration"),
        ({"model": {"config": {"model_type": "wav2vec2"}}}, "Wav2Vec2ForCTC"),
    ],
)
def test_the_class_is_that_of_architectures_or_what_the_family_is_made_for(entry, name):
    assert built_class(**entry) == name


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (
            {"path": "bert", "config": {"architectures": ["BertForMaskLM"]}},
            r"has no BertForMaskLM; did you mean BertForMaskedLM\?",
        ),
        (
            {"path": "bert", "config": {"architectures": ["NoSuchThing"]}},
            r"has no NoSuchThing \(only_pretrain_model: true takes",
        ),
        (
            {"config": {"model_type": "berd"}},
            r"model_type: transformers [\d.]+ knows no 'berd'; did you mean bert\?",
        ),
        (
            {"path": "bert", "config": {"hidden_sizee": 3}},
            r"model\.config\.hidden_sizee: bert has no such field; did you mean hidden_size\?",
        ),
        (
            {"path": "bert", "config": {"hidden_size": "x"}},
            r"refuses it for bert: .*hidden_size.* expected int",
        ),
        (
            {"path": "bert", "config": {"hidden_size": 130}},
            r"BertForMaskedLM cannot be built: The hidden size \(130\)",
        ),
        ("nobody/nothing-here", r"'nobody/nothing-here' cannot be read: .*\(check the spelling"),
    ],
)
def test_what_cannot_be_built_is_told_with_its_field(model, fault):
    with pytest.raises(UnusableModel, match=fault):
        recipe(model=model).build("meta")


def test_attention_is_as_asked_and_recorded_by_the_model():
    assert (
        recipe(**tiny("bert"), attention="eager").build("meta").config._attn_implementation
        == "eager"
    )
    assert recipe(**tiny("bert")).build("meta").config._attn_implementation == "sdpa"


def test_attention_that_is_not_installed_is_a_reason_to_skip(monkeypatch):
    with pytest.raises(Unsupported, match=r"attention flash_attention_2: .*FlashAttention"):
        recipe(**tiny("bert"), attention="flash_attention_2", precision="bf16").build("meta")


def rates(model, **entry):
    config = load_config(options(model=model, mode="training", **entry))
    return {
        name: value
        for name, value in vars(config).items()
        if "drop" in name and isinstance(value, float)
    }


@pytest.mark.parametrize("model", ["bert", "gpt2", "t5", "wav2vec2"])
def test_dropout_is_off_unless_it_is_asked_for(model):
    assert set(rates(model).values()) == {0.0}
    assert max(rates(model, dropout=True).values()) == 0.1


def test_no_random_masks_of_sound():
    config = {"model_type": "wav2vec2", "apply_spec_augment": True}
    assert load_config(options(model={"config": config})).apply_spec_augment is False


@pytest.fixture
def stored(tmp_path):
    """A model with weights of its own, as `save_pretrained` leaves it."""
    model = recipe(**tiny("bert"), seed=77).build()
    model.save_pretrained(tmp_path / "stored")
    return model, str(tmp_path / "stored")


def test_a_folder_gives_its_configuration_and_on_request_its_weights(stored):
    model, path = stored
    drawn = recipe(model=path).build()
    loaded = recipe(model={"path": path, "pretrained": True}).build()
    assert drawn.config.hidden_size == loaded.config.hidden_size == 32
    assert states_equal(model, loaded)
    assert not states_equal(model, drawn)


def test_a_folders_configuration_can_be_changed(stored):
    _, path = stored
    model = recipe(model={"path": path, "config": {"num_hidden_layers": 2}}).build("meta")
    assert len(model.bert.encoder.layer) == 2
    with pytest.raises(
        UnusableModel, match=r"model\.config\.layers: the configuration of .* has no such field"
    ):
        recipe(model={"path": path, "config": {"layers": 2}}).build("meta")


def test_weights_that_only_a_pickle_holds_are_not_loaded(stored, tmp_path):
    model, _ = stored
    folder = tmp_path / "pickled"
    folder.mkdir()
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises((UnusableModel, OSError), match="safetensors"):
        recipe(model={"path": str(folder), "pretrained": True}).build()


def test_shared_parameters_count_once(tmp_path):
    model = recipe(**tiny("bert")).build()
    model.bert.embeddings.position_embeddings.weight.requires_grad_(requires_grad=False)
    everything, trained = parameter_counts(model)
    named = dict(model.named_parameters())
    assert "cls.predictions.decoder.weight" not in named, "tied to the embeddings"
    assert everything == sum(one.numel() for one in named.values())
    assert everything - trained == model.bert.embeddings.position_embeddings.weight.numel()


def test_an_unreadable_folder_is_told(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-family"}))
    with pytest.raises(
        UnusableModel, match=r"cannot be read: .*no-such-family.*\(check its config\.json\)"
    ):
        recipe(model=str(tmp_path)).build("meta")
