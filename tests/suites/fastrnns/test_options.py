"""Options, schema and files say the same; a value out of range is named with file, line and field."""

import dataclasses

import pytest

from ci_bench.configuration.config import load_config
from ci_bench.errors import BadConfig
from ci_bench.records.documents import Kind, schema
from ci_bench.suites.fastrnns.options import ENUMS, CompileMode, FastrnnsOptions, parse_entry
from ci_bench.suites.fastrnns.variants import GROUPS, VARIANTS

DEFS = schema(Kind.CONFIG)["$defs"]
FIELDS = DEFS["fastrnns"]["properties"]


def test_the_schema_has_the_fields_and_defaults_of_the_dataclass():
    options = {field.name: field.default for field in dataclasses.fields(FastrnnsOptions)}
    assert {*FIELDS} == {*options, "name", "groups", "variants", "compile_modes", "arms", "compile"}
    assert {name: FIELDS[name]["default"] for name in options} == options


def test_the_schema_knows_every_name():
    assert DEFS["fastrnns_variant"]["enum"] == [*VARIANTS]
    assert FIELDS["groups"]["items"]["enum"] == [*GROUPS]
    assert DEFS["compile_mode"]["enum"] == [*CompileMode]
    assert {name: FIELDS[name]["enum"] for name in ENUMS} == {
        name: [*enum] for name, enum in ENUMS.items()
    }


def load(tmp_path, entry):
    path = tmp_path / "ci-bench.yml"
    path.write_text(f"schema_version: 1\nsuites:\n  fastrnns:\n    - {entry}\n")
    return load_config(path)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{seq_length: -1}", "suites.fastrnns[0].seq_length: -1 is less than 1"),
        ("{batch_size: 0}", "suites.fastrnns[0].batch_size: 0 is less than 1"),
        ("{hidden_size: 1.5}", "suites.fastrnns[0].hidden_size"),
        ("{image_size: 8}", "suites.fastrnns[0].image_size: 8 is less than 32"),
        ("{variants: [jit_premult]}", "did you mean 'jit_premul'?"),
        ("{groups: [rnn]}", "did you mean 'rnns'?"),
        ("{fuser: nnc}", "suites.fastrnns[0].fuser"),
        ("{dtype: int8}", "suites.fastrnns[0].dtype"),
        ("{dropout: 1.0, variants: [jit_dropout]}", "suites.fastrnns[0].dropout"),
        ("{seqlength: 3}", "did you mean 'seq_length'?"),
        ("{variants: []}", "suites.fastrnns[0].variants"),
        ("{cuda_pointwise_block_size: 0}", "suites.fastrnns[0].cuda_pointwise_block_size"),
    ],
)
def test_bad_values_are_named_with_their_place(tmp_path, entry, complaint):
    with pytest.raises(BadConfig) as caught:
        load(tmp_path, entry)
    assert complaint in str(caught.value)
    assert "ci-bench.yml:4: " in str(caught.value)


def test_an_entry_knows_what_it_was_given():
    entry = parse_entry({"variants": ["py"], "seq_length": 100})
    assert entry.given == {"seq_length"}
    assert entry.options == FastrnnsOptions()
