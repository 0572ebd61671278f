"""The quick check says yes only to what the validator finds nothing in, and says it to what we write."""

import copy
import json
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_builders import CALIBRATION, COMPARISON, NO_BASELINE, RESULTS

from ci_bench.configuration.config import parse
from ci_bench.records.documents import Kind, schema, to_json
from ci_bench.records.faults import form_faults
from ci_bench.records.soundness import compiled

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
CONFIG = parse((EXAMPLES / "valid" / "config.yml").read_text()).value
DOCUMENTS = {
    Kind.CONFIG: CONFIG,
    Kind.RESULTS: to_json(RESULTS),
    Kind.COMPARISON: to_json(COMPARISON),
    Kind.CALIBRATION: to_json(CALIBRATION),
}
CHECKS = {kind: compiled(schema(kind)) for kind in DOCUMENTS}
ODD = st.sampled_from(
    [
        *(
            None,
            True,
            False,
            0,
            1,
            -1,
            2**70,
            10**400,
            1.5,
            -0.5,
            1e308,
            float("nan"),
            float("inf"),
            float("-inf"),
        ),
        *(
            "",
            "x",
            "ok",
            "a\nb",
            "s\n",
            "\ud800",
            "é",
            "x" * 2000,
            "2030-01-31T12:00:00Z",
            "results",
        ),
        *(
            [],
            {},
            [1, 2],
            [1.0, "x"],
            [float("nan")],
            [10**400, 1.0],
            {"a": 1},
            {"a": {"b": [None]}},
            [[1]],
        ),
    ]
)


def places(value, path=()):
    """The path of everything in a document."""
    yield path
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from places(item, (*path, key))


def changed(document, path, value, how):
    """A copy with something else at one place: a value, a field more or less."""
    new = copy.deepcopy(document)
    if not path:
        return value
    holder = new
    for key in path[:-1]:
        holder = holder[key]
    if how == "drop":
        del holder[path[-1]]
    elif how == "add" and isinstance(holder, dict):
        holder["unheard_of"] = value
    elif how == "add":
        holder.append(value)
    else:
        holder[path[-1]] = value
    return new


@pytest.mark.parametrize("kind", list(DOCUMENTS))
@pytest.mark.parametrize(
    "document", [RESULTS, COMPARISON, NO_BASELINE, CALIBRATION], ids=lambda one: type(one).__name__
)
def test_what_we_write_is_sound_as_what_it_is(kind, document):
    plain = to_json(document)

    assert CHECKS[kind](plain) is (plain["kind"] == kind)


def test_the_built_in_configuration_is_sound():
    built_in = files("ci_bench").joinpath("default.yml").read_text()

    assert CHECKS[Kind.CONFIG](parse(built_in).value)
    assert CHECKS[Kind.CONFIG](CONFIG)


@pytest.mark.parametrize("kind", list(DOCUMENTS))
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_yes_means_that_the_validator_finds_nothing(kind, data):
    document = DOCUMENTS[kind]
    path = data.draw(st.sampled_from(list(places(document))))
    new = changed(
        document, path, data.draw(ODD), data.draw(st.sampled_from(["replace", "drop", "add"]))
    )

    if CHECKS[kind](new):
        assert form_faults(new, schema(kind)) == ()


@pytest.mark.parametrize("kind", list(DOCUMENTS))
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_the_validator_refuses_is_never_sound(kind, data):
    document = DOCUMENTS[kind]
    path = data.draw(st.sampled_from(list(places(document))))
    new = changed(document, path, data.draw(ODD), "replace")

    if form_faults(new, schema(kind)):
        assert not CHECKS[kind](new)


def test_a_field_that_comes_twice_is_not_sound():
    class Repeated(dict):
        twice = ("kind",)

    assert not CHECKS[Kind.RESULTS](Repeated(DOCUMENTS[Kind.RESULTS]))


def test_the_planted_faults_of_the_examples_are_seen():
    seen = 0
    for path in (EXAMPLES / "invalid").glob("*.json"):
        kind = next((kind for kind in DOCUMENTS if path.name.startswith(kind)), None)
        try:
            raw = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            continue
        if kind and form_faults(raw, schema(kind)):
            seen += 1
            assert not CHECKS[kind](raw), path.name
    assert seen > 30


@pytest.mark.parametrize(
    "form",
    [
        {"type": "string", "format": "date"},
        {"type": "array", "items": {"type": "string"}, "contains": {"const": "x"}},
        {"type": "array"},
        {"if": {"const": 1}, "then": {"type": "null"}, "else": {"type": "null"}},
        {"if": {"type": "null"}, "then": {"type": "null"}},
        {"$ref": "#/$defs/x", "maxLength": 3},
        {"anyOf": [{"type": "null"}], "type": "null"},
        {"description": "anything"},
    ],
)
def test_a_schema_that_is_not_understood_is_left_to_the_validator(form):
    check = compiled({"$defs": {"x": {"type": "string"}}, **form})

    assert not any(map(check, ["a", [], None, 1]))


def test_lists_of_anything_but_numbers_are_checked_one_by_one():
    check = compiled({"type": "array", "items": {"type": ["number", "null"], "minimum": 0}})

    assert check([1, None, 0.5])
    assert not check([1, None, -0.5])
    assert not check([1, "x"])
