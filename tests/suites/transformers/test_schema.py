"""The form of an entry in the configuration says what the options say."""

from dataclasses import MISSING, fields

import pytest
from jsonschema import Draft202012Validator

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.records.documents import Kind, schema
from ci_bench.suites.shared.planning.arms import MODES
from ci_bench.suites.transformers.catalog import PRESETS
from ci_bench.suites.transformers.options import (
    FIELDS,
    Attention,
    CacheKind,
    Candidate,
    Mode,
    TransformersModel,
    TransformersOptions,
    TransformersPrecision,
)
from ci_bench.suites.transformers.plan import DEFAULT_MODELS, MOST_CASES

DEFS = schema(Kind.CONFIG)["$defs"]


def defaults(kind):
    return {one.name: one.default for one in fields(kind) if one.default is not MISSING}


def test_an_entry_has_the_fields_and_defaults_of_a_case():
    properties = DEFS["transformers"]["properties"]
    assert {*properties} == {
        *FIELDS,
        "name",
        "cases",
        "arms",
        "compile",
        "layouts",
        "processes",
        "largest_batch",
    }
    told = {name: node["default"] for name, node in properties.items() if "default" in node}
    assert told.pop("model") == list(DEFAULT_MODELS)
    assert (
        told.pop("candidate")
        == TransformersOptions(model=TransformersModel(name="any")).candidate.backend
    )
    own = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in defaults(TransformersOptions).items()
        if name in told
    }
    assert told == own
    assert {*FIELDS} - {*told} == {"model", "candidate", "optimizer_options"}


def test_a_model_and_a_candidate_have_the_fields_of_their_dataclasses():
    assert {*DEFS["transformers_model"]["properties"]} == {
        one.name for one in fields(TransformersModel)
    } - {"stored"}
    assert {*DEFS["transformers_candidate"]["properties"]} == {
        one.name for one in fields(Candidate)
    } - {
        "way",
        "compiled_autograd",
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("transformers_mode", Mode),
        ("transformers_precision", TransformersPrecision),
        ("attention", Attention),
        ("generation_cache", CacheKind),
    ],
)
def test_choices_are_those_of_the_code(name, kind):
    assert DEFS[name]["enum"] == [*kind]


def test_modes_of_compile_are_those_of_the_code():
    assert sorted(DEFS["compile_mode"]["enum"]) == sorted(MODES)


def test_every_preset_is_named():
    assert all(
        name in DEFS["transformers"]["properties"]["model"]["description"] for name in PRESETS
    )


def test_a_case_is_within_what_results_hold():
    assert schema(Kind.RESULTS)["properties"]["cases"]["maxItems"] > MOST_CASES


def test_defaults_are_allowed():
    part = DEFS["transformers"]
    told = {name: node["default"] for name, node in part["properties"].items() if "default" in node}
    assert [*Draft202012Validator({"$defs": DEFS, **part}).iter_errors(told)] == []


def load(tmp_path, entry):
    path = tmp_path / "ci-bench.yml"
    path.write_text(f"schema_version: 1\nsuites: {{transformers: [{entry}]}}\n")
    return load_config(path)


@pytest.mark.parametrize(
    "entry",
    [
        "{}",
        "{model: bert, candidate: none}",
        "{model: [bert, {config: {model_type: gpt2, rope: {type: x, factors: [1, 2.5]}}}], candidate: [export, {whole: true}]}",
        "{mode: [inference, training], batch_size: [1, 8], precision: fp16, cache: [dynamic, static]}",
    ],
)
def test_entries_are_taken(tmp_path, entry):
    assert load(tmp_path, entry).entries


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("{mode: traning}", "transformers.0..mode: 'traning' .* did you mean 'training'"),
        ("{batch_size: [8, 0]}", r"batch_size\[1\]: 0 is less than 1"),
        ("{models: [bert]}", "models: unknown field; did you mean 'model'"),
        ("{dynamic: true, varies: [sequnce]}", r"varies.0.: 'sequnce' .* did you mean 'sequence'"),
        (
            "{dynamic: true, dynamic_shapes: markd}",
            "dynamic_shapes: 'markd' .* did you mean 'marked'",
        ),
        ("{batch_size: larges}", "batch_size: 'larges' is not 'largest'"),
        (
            "{batch_size: largest, larges_batch: {}}",
            "larges_batch: unknown field; did you mean 'largest_batch'",
        ),
        ("{candidate: {mod: x}}", "candidate.mod: unknown field; did you mean 'mode'"),
        ("{candidate: [3]}", r"candidate\[0\]"),
        ("{model: {path: bert, confg: {}}}", "model.confg: unknown field; did you mean 'config'"),
        ("{new_tokens: 1}", "new_tokens: 1 is less than 2"),
    ],
)
def test_faults_name_their_field(tmp_path, entry, fault):
    with pytest.raises(BadConfig, match=fault):
        load(tmp_path, entry)
