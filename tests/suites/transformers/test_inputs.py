"""Inputs have the shapes that a configuration asks for, the same for every arm, with nothing special among the ids."""

import pytest
import torch
from torch import nn
from transformers_builders import case, context, options, program, recipe, tiny

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.transformers.inputs import (
    Inputs,
    arguments_of,
    described,
    draw_ids,
    refuse_lacking,
    require_inputs,
    require_length,
    samples_of,
    special_ids,
    task_of,
)
from ci_bench.suites.transformers.network import UnusableModel, load_config
from ci_bench.suites.transformers.run import open_workload

pytestmark = pytest.mark.engine

BATCH, LENGTH = 2, 8


def inputs(*, dtype=torch.float32, exact=False, **entry):
    one = recipe(**entry)
    return Inputs(
        options=one.options, model=one.build("meta"), dtype=dtype, device="cpu", exact=exact
    )


SHAPES = [
    ("bert", "inference", "input_ids [2, 8], attention_mask [2, 8]"),
    ("bert", "training", "input_ids [2, 8], attention_mask [2, 8], labels [2, 8]"),
    ("gpt2", "generation", "input_ids [2, 8]"),
    ("t5", "inference", "input_ids [2, 8], attention_mask [2, 8], decoder_input_ids [2, 8]"),
    ("t5", "training", "input_ids [2, 8], attention_mask [2, 8], labels [2, 8]"),
    ("vit", "inference", "pixel_values [2, 3, 64, 64]"),
    ("vit", "training", "pixel_values [2, 3, 64, 64], labels [2]"),
    ("wav2vec2", "training", "input_values [2, 2640], labels [2, 2]"),
    ("whisper", "inference", "input_features [2, 80, 300], decoder_input_ids [2, 8]"),
    ("whisper", "generation", "input_features [2, 80, 300]"),
]


@pytest.mark.parametrize(("model", "mode", "shapes"), SHAPES)
def test_shapes_follow_the_configuration(model, mode, shapes):
    assert described(inputs(model=model, mode=mode).batches()[0]) == shapes


T5 = {"model_type": "t5", "num_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2}
MARIAN = {
    "model_type": "marian",
    "d_model": 32,
    **{f"{half}_{name}": 1 for half in ("encoder", "decoder") for name in ("layers", "ffn_dim")},
    **{f"{half}_attention_heads": 2 for half in ("encoder", "decoder")},
}
SHIFTS, GIVEN = "labels [2, 8]", "labels [2, 8], decoder_input_ids [2, 8]"


@pytest.mark.parametrize(
    ("config", "shapes"),
    [
        (T5, GIVEN),
        ({**T5, "decoder_start_token_id": 0}, SHIFTS),
        ({**T5, "decoder_start_token_id": 0, "pad_token_id": None}, GIVEN),
        ({**MARIAN, "pad_token_id": 0}, GIVEN),  # its first id is beyond this vocabulary
        ({**MARIAN, "pad_token_id": 0, "decoder_start_token_id": 0}, SHIFTS),
    ],
)
def test_a_decoder_without_a_first_id_is_given_ids(config, shapes):
    entry = {"model": {"config": {**config, "vocab_size": 64}}, "mode": "training"}
    made = inputs(**entry)
    assert described(made.batches()[0]) == f"input_ids [2, 8], attention_mask [2, 8], {shapes}"
    stepped = program(**entry)
    stepped.step(lambda: None)
    assert torch.isfinite(stepped.loss())


TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
TOWERS = {
    "vision_config": {**TOWER, "image_size": 32, "patch_size": 16},
    "text_config": {**TOWER, "vocab_size": 64},
}
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8], "depths": [1]}
DETR = {
    "model_type": "detr",
    "backbone_config": {**RESNET, "out_features": ["stage1"]},
    "d_model": 32,
    "num_queries": 5,
    **{f"{half}_{name}": 2 for half in ("encoder", "decoder") for name in ("layers", "ffn_dim")},
    **{f"{half}_attention_heads": 2 for half in ("encoder", "decoder")},
}


@pytest.mark.parametrize(
    ("config", "shapes"),
    [
        ({"model_type": "clip", **TOWERS}, "pixel_values [2, 3, 32, 32]"),
        ({"model_type": "siglip", **TOWERS}, "pixel_values [2, 3, 32, 32]"),
        (DETR, "pixel_values [2, 3, 224, 224]"),
    ],
)
def test_images_of_nested_configurations_are_read(config, shapes):
    made = inputs(model={"config": config})
    (first, *_) = made.batches()
    assert described(first) == shapes
    require_inputs(made.model, first)


@pytest.mark.parametrize("family", ["clip", "siglip", "blip"])
def test_a_model_of_two_inputs_is_unsupported(family):
    names = {"clip": "CLIPModel", "siglip": "SiglipModel", "blip": "BlipModel"}
    config = {"model_type": family, "architectures": [names[family]], **TOWERS}
    made = inputs(model={"config": config})
    with pytest.raises(Unsupported, match=f"{names[family]} needs more inputs than the input_ids"):
        require_inputs(made.model, made.batches()[0])


UDOP = {
    "model_type": "udop", "vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_decoder_layers": 1,
    "num_heads": 4, "image_size": 32, "patch_size": 16,
}  # fmt: skip
"""A model that reads places of words, and cannot run on `meta`."""


@pytest.mark.parametrize("candidate", ["none", "aot_eager"])
def test_an_input_that_only_a_real_pass_misses_is_named(candidate):
    planned = case(model={"config": UDOP}, candidate=candidate)
    workload = open_workload(planned, context())
    workload.prepare()
    with pytest.raises(
        Unsupported, match=r"UdopModel needs more inputs than the input_ids, .*: Bbox is required"
    ):
        workload.verify(planned.arms)


@pytest.mark.parametrize(
    "said", ["'NoneType' object is not callable", "past_key_values was fused wrongly"]
)
def test_another_error_of_a_pass_is_no_lack_of_inputs(said):
    made = inputs(model="bert")
    refuse_lacking(made.model, made.batches()[0], ValueError(said))


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("preset", ["bert", "gpt2", "t5", "llama", "vit", "wav2vec2", "whisper"])
def test_presets_need_no_more_inputs(preset, mode):
    made = inputs(model=preset, mode=mode)
    require_inputs(made.model, made.batches()[0])


def test_other_forms_of_sound_are_unsupported():
    config = {"model_type": "speech_to_text", "d_model": 32, "encoder_layers": 1, "vocab_size": 64}
    with pytest.raises(Unsupported, match="input_features of a form for which no inputs are made"):
        inputs(model={"config": {**config, "decoder_layers": 1}}).batches()


def test_padding_beyond_the_vocabulary_is_named():
    with pytest.raises(
        UnusableModel, match=r"cannot be built: .*; set `pad_token_id`, which is 58100"
    ):
        recipe(model={"config": {**MARIAN, "vocab_size": 64}}).build("meta")


def test_batches_differ_from_each_other_and_not_between_arms():
    one, two = inputs(model="bert").batches(), inputs(model="bert").batches()
    assert len(one) == 4
    assert all(torch.equal(a["input_ids"], b["input_ids"]) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0]["input_ids"], one[1]["input_ids"])
    assert not torch.equal(
        one[0]["input_ids"], inputs(model="bert", seed=1).batches()[0]["input_ids"]
    )


def test_the_reference_reads_what_the_arms_read():
    rounded = inputs(model="vit", dtype=torch.bfloat16).batches()[0]["pixel_values"]
    exact = inputs(model="vit", dtype=torch.bfloat16, exact=True).batches()[0]["pixel_values"]
    assert (rounded.dtype, exact.dtype) == (torch.bfloat16, torch.float64)
    assert torch.equal(rounded.double(), exact)


def test_ids_are_in_the_vocabulary_and_not_special():
    generator = torch.Generator().manual_seed(0)
    ids = draw_ids((50, 100), 16, {0, 1, 5}, generator)
    assert set(ids.unique().tolist()) == set(range(16)) - {0, 1, 5}
    assert draw_ids((2, 2), 2, {0, 1}, generator).max() < 2, "where all are special, any will do"


def test_special_ids_are_those_of_the_configuration():
    config = load_config(options(model="whisper"))
    assert {0, 1, 2, 3} <= special_ids(config)
    config.eos_token_id = [7, 8]
    assert {7, 8} <= special_ids(config)


@pytest.mark.parametrize(
    ("model", "architecture", "labels"),
    [
        ("bert", "BertForSequenceClassification", {"labels": (BATCH,)}),
        ("bert", "BertForTokenClassification", {"labels": (BATCH, LENGTH)}),
        (
            "bert",
            "BertForQuestionAnswering",
            {"start_positions": (BATCH,), "end_positions": (BATCH,)},
        ),
        ("bert", "BertForNextSentencePrediction", {"labels": (BATCH,)}),
        ("bert", "BertModel", {}),
        ("t5", "T5Model", {"decoder_input_ids": (BATCH, LENGTH)}),
    ],
)
def test_labels_are_those_of_the_task_and_the_model_takes_them(model, architecture, labels):
    one = recipe(**tiny(model, config={"architectures": [architecture]}), mode="training")
    built = one.build()
    made = Inputs(options=one.options, model=built, dtype=torch.float32, device="cpu")
    batch = made.batches()[0]
    assert {
        name: tuple(value.shape)
        for name, value in batch.items()
        if name not in {"input_ids", "attention_mask"}
    } == labels
    output = built(**batch, **made.fixed())
    assert (task_of(built) is not None) is (getattr(output, "loss", None) is not None)


def test_waveforms_become_as_many_frames_as_the_sequence_is_long():
    kernels, strides = (10, 3, 3, 2), (5, 2, 2, 2)
    stack = nn.Sequential(
        *(nn.Conv1d(1, 1, kernel, stride) for kernel, stride in zip(kernels, strides, strict=True))
    )
    for frames in (2, 7, 50):
        samples = samples_of(frames, kernels, strides)
        assert stack(torch.zeros(1, 1, samples)).shape[-1] == frames
        assert stack(torch.zeros(1, 1, samples - 1)).shape[-1] == frames - 1


def test_convolutional_networks_and_videos_and_spectrograms_are_fed():
    assert (
        described(inputs(model={"config": {"model_type": "resnet"}}).batches()[0])
        == "pixel_values [2, 3, 224, 224]"
    )
    small = {
        "image_size": 32,
        "num_frames": 4,
        "num_hidden_layers": 1,
        "hidden_size": 24,
        "num_attention_heads": 2,
    }
    video = {"model_type": "videomae", "architectures": ["VideoMAEForVideoClassification"], **small}
    assert (
        described(inputs(model={"config": video}).batches()[0]) == "pixel_values [2, 4, 3, 32, 32]"
    )
    sound = {
        "model_type": "audio-spectrogram-transformer",
        "max_length": 64,
        "num_mel_bins": 16,
        "num_hidden_layers": 1,
    }
    assert described(inputs(model={"config": sound}).batches()[0]) == "input_values [2, 64, 16]"


def test_what_no_inputs_are_made_for_is_skipped_with_the_reason():
    one = inputs(model="bert")
    one.model.main_input_name = "event_stream"
    with pytest.raises(
        Unsupported, match="BertForMaskedLM reads event_stream, for which no inputs are made"
    ):
        one.batches()


@pytest.mark.parametrize(
    ("model", "entry", "allowed"),
    [
        ("bert", {"sequence_length": 512}, True),
        ("bert", {"sequence_length": 513}, False),
        ("gpt2", {"mode": "generation", "sequence_length": 1000, "new_tokens": 24}, True),
        ("gpt2", {"mode": "generation", "sequence_length": 1000, "new_tokens": 25}, False),
        ("llama", {"sequence_length": 5000}, True),
        ("t5", {"sequence_length": 5000}, True),
        ("whisper", {"mode": "generation", "new_tokens": 512}, False),
        (
            {"config": {"model_type": "xlnet", "d_model": 32, "n_layer": 1, "n_head": 4}},
            {"sequence_length": 5000},
            True,
        ),
        ("vit", {}, True),
    ],
)
def test_a_text_longer_than_a_models_positions_is_skipped(model, entry, allowed):
    given = options(model=model, **entry)
    config = load_config(given)
    if allowed:
        require_length(config, given)
        return
    with pytest.raises(Unsupported, match=r"a text of \d+ tokens is longer than the \d+ positions"):
        require_length(config, given)


def test_no_cache_is_kept_where_none_is_read():
    assert inputs(model="gpt2").fixed() == {"use_cache": False}
    one = inputs(model="vit")
    assert one.fixed() == {}
    assert "pixel_values" in arguments_of(one.model)
