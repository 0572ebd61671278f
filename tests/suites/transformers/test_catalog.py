"""What a model's name in the configuration means, and what is wrong with it before anything runs."""

import json
import re
from importlib.resources import files

import pytest

from ci_bench.errors import BadConfig
from ci_bench.suites.transformers.catalog import (
    IMAGE_FAMILIES,
    PRESETS,
    has_sequence,
    preset,
    resolve_models,
)
from ci_bench.suites.transformers.plan import SUITE

PLACE = "suites.transformers"
WITH_TEXT = {"clip", "imagegpt", "metaclip_2", "shieldgemma2", "siglip", "siglip2"}
"""Families of images that read text as well, or images as ids."""
FOLDER = files("ci_bench.suites.transformers").joinpath("presets")


@pytest.fixture
def folder(tmp_path):
    """A model's folder with its configuration alone."""
    path = tmp_path / "my model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 9}))
    return path


def one(raw):
    (model,) = resolve_models(raw, PLACE)
    return model


def test_the_presets_are_the_files():
    assert sorted(PRESETS) == sorted(path.name.removesuffix(".yml") for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_its_family_its_class_and_real_ids(name):
    config = preset(name)
    assert config["model_type"] == name
    assert len(config["architectures"]) == 1
    comment = FOLDER.joinpath(f"{name}.yml").read_text().partition("model_type")[0]
    assert re.search(r"Real ones of the family: [\w.-]+/[\w.-]+", comment)


def test_a_preset_is_resolved_to_its_whole_configuration_and_can_be_changed():
    plain, wide = one("bert"), one({"path": "bert", "name": "wide", "config": {"hidden_size": 256}})
    assert (plain.name, plain.config, plain.stored, plain.on_hub) == (
        "bert",
        preset("bert"),
        False,
        False,
    )
    assert (wide.name, wide.config) == ("wide", {**preset("bert"), "hidden_size": 256})


def test_a_configuration_stands_for_itself():
    model = one({"config": {"model_type": "gpt2", "n_layer": 1}})
    assert (model.name, model.path, model.stored) == ("gpt2", None, False)


def test_a_hub_id_is_named_by_its_last_part():
    model = one("google-bert/bert-base-uncased")
    assert (model.name, model.path, model.stored, model.on_hub) == (
        "bert-base-uncased",
        "google-bert/bert-base-uncased",
        True,
        True,
    )


def test_a_folder_is_named_by_its_last_part(folder):
    model = one(str(folder))
    assert (model.name, model.stored, model.on_hub) == ("my-model", True, False)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ("berd", r"suites\.transformers\.model: unknown preset 'berd'; did you mean 'bert'\?"),
        (
            "bert-base-uncased",
            r"the hub calls it google-bert/bert-base-uncased \(a hub id is owner/name, a folder starts with \./",
        ),
        ("gpt2-medium", r"the hub calls it openai-community/gpt2-medium"),
        ("t5-small", r"the hub calls it google-t5/t5-small"),
        (
            ["bert", "gtp2"],
            r"suites\.transformers\.model\[1\]: unknown preset 'gtp2'; did you mean 'gpt2'\?",
        ),
        (
            "./nowhere",
            r"model: nowhere/config\.json not found; give the folder that save_pretrained wrote",
        ),
        ({"config": {"hidden_size": 3}}, r"model\.config\.model_type: missing"),
        (
            {"path": "bert", "pretrained": True},
            r"model\.pretrained: only a folder or a hub id has this",
        ),
        (
            {"config": {"model_type": "bert"}, "revision": "v1"},
            r"model\.revision: only a folder or a hub id has this",
        ),
        (["bert", "bert"], r"model: 'bert' is listed twice; give one of them a `name`"),
        (["a/x", "b/x"], r"model: 'x' is listed twice"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(raw, fault):
    with pytest.raises(BadConfig, match=fault):
        resolve_models(raw, PLACE)


def test_all_faults_are_told_at_once():
    with pytest.raises(BadConfig) as caught:
        resolve_models(["berd", "llamma", "bert"], PLACE)
    assert [line.partition(": unknown")[0] for line in str(caught.value).splitlines()] == [
        f"{PLACE}.model[0]",
        f"{PLACE}.model[1]",
    ]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": 3}'])
def test_a_folder_whose_configuration_is_none_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(BadConfig, match=r"model: .*config\.json"):
        resolve_models(str(folder), PLACE)


def test_images_have_no_sequence(folder):
    assert [name for name in PRESETS if not has_sequence(one(name))] == ["vit"]
    assert has_sequence(one(str(folder)))
    (folder / "config.json").write_text(json.dumps({"model_type": "vit", "image_size": 32}))
    assert not has_sequence(one(str(folder)))
    assert has_sequence(one("google/vit-base-patch16-224")), "only the hub knows"


@pytest.mark.parametrize(
    ("config", "sequence"),
    [
        ({"model_type": "resnet", "depths": [1, 1, 1, 1]}, False),
        ({"model_type": "segformer"}, False),
        ({"model_type": "beit", "vocab_size": 8192}, False),
        ({"model_type": "clip", "text_config": {}}, True),
        ({"model_type": "bert"}, True),
    ],
)
def test_a_family_of_images_has_no_sequence(config, sequence):
    assert has_sequence(one({"config": config})) is sequence


def test_lengths_of_an_image_family_make_one_case():
    entry = {"model": {"config": {"model_type": "resnet"}}, "sequence_length": [8, 32]}
    assert len(SUITE.plan(entry)) == 1


@pytest.mark.engine
def test_image_families_are_those_of_transformers():
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    classes = {
        *auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        *auto.MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES,
        *auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES,
    }
    text = {
        *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    }
    assert classes - text - WITH_TEXT <= IMAGE_FAMILIES
    assert not IMAGE_FAMILIES & text
