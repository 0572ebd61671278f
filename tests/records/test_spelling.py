"""Which name was meant: the nearest spelling, the place where the very name belongs, or nothing."""

from typing import Any

import pytest

from ci_bench.records.documents import Kind, schema
from ci_bench.records.faults import schema_faults
from ci_bench.records.spelling import find_places, meant, nearest


def test_the_nearest_spelling_is_suggested_or_all_are_named() -> None:
    assert nearest("launchs", ["launches", "blocks"]) == "; did you mean 'launches'?"
    assert nearest("zzz", ["launches", "blocks"]) == "; known are launches, blocks"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("stauts", "status"), ("gtp2", "gpt2"), ("berd", "bert"), ("optimiser", "optimizer"), ("training", "training_loss"),
        ("rnn", "rnns"), ("seqlength", "seq_length"), ("okay", "ok"), ("ms", "s"), ("batch_Size", "batch_size"), ("pth", "path"),
    ],
)  # fmt: skip
def test_a_slip_of_the_fingers_is_near(word: str, name: str) -> None:
    assert meant(word, ["something", name]) == f"; did you mean {name!r}?"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("pretrained", "only_pretrain_model"),
        ("precision", "version"),
        ("warmup", "compute"),
        ("timeout_s", "items"),
    ],
)
def test_what_shares_some_letters_is_not_near(word: str, name: str) -> None:
    assert not meant(word, [name])


@pytest.mark.parametrize("word", [3, None, ["a"], "", "x" * 10_000])
def test_what_is_no_name_has_no_neighbour(word: Any) -> None:
    assert not meant(word, ["launches"])


FORM = schema(Kind.CONFIG)
HINTS = [
    (
        {"suites": {"training_loss": [{"mode": "max-autotune"}]}},
        "'mode' belongs to suites.training_loss.compile and suites.training_loss.arms",
    ),
    (
        {"suites": {"transformers": [{"pretrained": True}]}},
        "'pretrained' belongs to suites.transformers.model",
    ),
    ({"suites": {"fastrnns": [{"launches": 3}]}}, "'launches' belongs to run"),
    ({"budget_s": 60}, "'budget_s' belongs to run"),
    ({"policy": {"baseline": "paired"}}, "'baseline' belongs to the top level"),
    ({"run": {"severities": {}}}, "'severities' belongs to policy"),
]


@pytest.mark.parametrize(("raw", "hint"), HINTS)
def test_a_field_that_belongs_elsewhere_is_sent_there(raw: dict[str, Any], hint: str) -> None:
    (message,) = [
        fault.message for fault in schema_faults(raw, FORM) if fault.message.startswith("unknown")
    ]
    assert message == f"unknown field here; {hint}"


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        ({"suites": {"transformers": [{"models": ["bert"]}]}}, "; did you mean 'model'?"),
        ({"suites": {"transformers": [{"candidate": {"mod": "x"}}]}}, "; did you mean 'mode'?"),
        ({"policy": {"floors": {"speed": 1.1}}}, "; did you mean 'speedup'?"),
        ({"run": {"launchs": 3}}, "; did you mean 'launches'?"),
        ({"run": {"zzz": 3}}, "; known are device, "),
    ],
)
def test_a_misspelt_field_is_not_sent_elsewhere(raw: dict[str, Any], hint: str) -> None:
    (message,) = [
        fault.message for fault in schema_faults(raw, FORM) if fault.message.startswith("unknown")
    ]
    assert message.startswith(f"unknown field{hint}")


def test_a_schema_that_refers_to_itself_is_walked_once() -> None:
    inner = {"properties": {"child": {"$ref": "#/$defs/node"}, "size": {}}}
    form = {"properties": {"node": {"$ref": "#/$defs/node"}}, "$defs": {"node": inner}}
    assert find_places(form) == {"node": ("",), "child": ("node",), "size": ("node",)}
    assert find_places(
        {"properties": {"a": True}, "items": {"$ref": "https://example.org/elsewhere"}}
    ) == {"a": ("",)}


def test_places_that_are_many_are_counted() -> None:
    names = ("a", "b", "c", "d", "e")
    form = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"type": "object", "properties": {"size": {}}} for name in names},
    }
    (fault,) = schema_faults({"size": 1}, form)
    assert fault.message == "unknown field here; 'size' belongs to a, b, c and 2 more"
