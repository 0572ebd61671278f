"""The schemas say what the dataclasses say: neither can change alone.

And they are closed and bounded throughout.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator

from ci_bench.records.config import (
    DEFAULT_SEVERITIES,
    Policy,
    Rule,
    RunOptions,
    Severity,
    SuitePolicy,
)
from ci_bench.records.documents import Kind, schema
from ci_bench.records.forms import Bounds, Identifier
from ci_bench.suites.training_loss.options import Dataset, Model, TrainingOptions, TrainingPrecision

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import render_schemas  # noqa: E402 - a script of the tools

TOOLS = {"maxLength": "string", "maxItems": "array"}


def resolve(root: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return node


@pytest.mark.parametrize("kind", [*render_schemas.DOCUMENTS, "config"])
def test_a_schema_is_rendered_from_its_dataclasses(kind):
    assert (ROOT / "schemas" / f"{kind}.json").read_text() == render_schemas.rendered(kind), (
        "run `python tools/render_schemas.py`"
    )


class Colour(StrEnum):
    """Colour of a box."""

    RED = "red"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """A box, or `None`.

    More about it.
    """

    name: Identifier
    """Name of the box; `None` is never used."""
    colour: Colour | None
    """Its colour."""
    sizes: Annotated[tuple[Annotated[float, Bounds(gt=0)], ...], Bounds(max_items=3)] = ()
    """Sizes in m."""
    pair: tuple[int, int] | None = None
    """Two numbers."""
    inner: "Box | None" = None
    """The box in it."""
    open: bool = False
    """Whether it is open."""


def test_a_field_has_its_form_description_and_default(monkeypatch):
    monkeypatch.setitem(render_schemas.DOCUMENTS, "box", Box)
    text = json.loads(render_schemas.rendered("box"))
    assert text["description"] == "A box, or null."
    assert text["required"] == ["name", "colour"]
    colour = {"anyOf": [{"$ref": "#/$defs/colour"}, {"type": "null"}]}
    name = {"type": "string", "maxLength": 60, "pattern": "^[a-z0-9_]{1,60}$"}
    pair = {"minItems": 2, "maxItems": 2, "items": {"type": "integer"}}
    assert text["properties"] == {
        "name": {"description": "Name of the box; null is never used.", **name},
        "colour": {"description": "Its colour.", **colour},
        "sizes": {
            "description": "Sizes in m.",
            "type": "array",
            "maxItems": 3,
            "items": {"type": "number", "exclusiveMinimum": 0},
        },
        "pair": {"description": "Two numbers.", "type": ["array", "null"], **pair},
        "inner": {
            "description": "The box in it.",
            "anyOf": [{"$ref": "#/$defs/box"}, {"type": "null"}],
        },
        "open": {"description": "Whether it is open.", "type": "boolean", "default": False},
    }
    assert text["$defs"]["colour"] == {"description": "Colour of a box.", "enum": ["red"]}
    assert [*text["$defs"]["box"]["properties"]] == [*text["properties"]]


def nodes(node: Any, path: str = "$") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every subschema; what is under `properties` or `$defs` is a mapping of them."""
    yield path, node
    for word in ("properties", "$defs"):
        for name, inner in node.get(word, {}).items():
            yield from nodes(inner, f"{path}.{word}.{name}")
    for word in ("items", "additionalProperties", "if", "then", "else"):
        if isinstance(node.get(word), dict):
            yield from nodes(node[word], f"{path}.{word}")
    for inner in node.get("anyOf", []):
        yield from nodes(inner, f"{path}.anyOf")


@pytest.mark.parametrize("kind", Kind)
def test_a_schema_is_sound_named_and_closed(kind: Kind) -> None:
    text = schema(kind)
    Draft202012Validator.check_schema(text)
    assert text["$id"] == f"https://ci-bench.dev/schemas/{kind}-1.json"
    assert text["properties"]["schema_version"]["const"] == 1
    opened = [
        path
        for path, node in nodes(text)
        if node.get("type") == "object" and "additionalProperties" not in node
    ]
    assert opened == []


@pytest.mark.parametrize("kind", Kind)
def test_every_string_list_and_mapping_is_bounded(kind: Kind) -> None:
    unbounded = []
    for path, node in nodes(schema(kind)):
        names = node.get("type", [])
        names = [names] if isinstance(names, str) else names
        unbounded += [
            f"{path}: {bound}"
            for bound, name in TOOLS.items()
            if name in names and bound not in node and not path.endswith(".if")
        ]
        if (
            "object" in names
            and isinstance(node["additionalProperties"], dict)
            and "maxProperties" not in node
        ):
            unbounded.append(f"{path}: maxProperties")
    assert unbounded == []


@pytest.mark.parametrize("kind", Kind)
def test_every_field_is_described(kind: Kind) -> None:
    text = schema(kind)
    silent = [
        f"{path}.{name}"
        for path, node in nodes(text)
        for name, inner in node.get("properties", {}).items()
        if not ("description" in inner or "description" in resolve(text, inner) or "anyOf" in inner)
    ]
    assert silent == []


def test_the_configuration_has_the_fields_and_defaults_of_its_dataclasses() -> None:
    defs = schema(Kind.CONFIG)["$defs"]
    run = defs["run"]["properties"]
    assert {name: node["default"] for name, node in run.items()} == dataclasses.asdict(RunOptions())
    assert {*defs["policy"]["properties"]} == {
        field.name for field in dataclasses.fields(Policy)
    } - {"metrics"}  # suites declare them
    assert {*defs["suite_policy"]["properties"]} == {
        field.name for field in dataclasses.fields(SuitePolicy)
    }
    assert (
        defs["policy"]["properties"]["default_threshold"]["default"] == Policy().default_threshold
    )


def test_the_configuration_knows_every_rule_with_its_default() -> None:
    defs = schema(Kind.CONFIG)["$defs"]
    assert {
        Rule(name): node["default"] for name, node in defs["severities"]["properties"].items()
    } == DEFAULT_SEVERITIES
    assert defs["severity"]["enum"] == [*Severity]


@pytest.mark.parametrize(
    ("name", "hint"), [("training_loss", TrainingOptions), ("dataset", Dataset), ("model", Model)]
)
def test_the_options_of_training_loss_are_those_of_its_dataclasses(name: str, hint: Any) -> None:
    described = schema(Kind.CONFIG)["$defs"][name]["properties"]
    fields = {
        {"backends": "backend", "listed": "arms"}.get(field.name, field.name): field
        for field in dataclasses.fields(hint)
    }
    folded = {"compile"} & {*described}  # into the arms that are listed
    assert {*described} - folded == {*fields}
    scalars = {
        key: field.default
        for key, field in fields.items()
        if isinstance(field.default, str | int | float)
    }
    assert {
        key: node["default"]
        for key, node in described.items()
        if key != "backend" and "default" in node
    } == scalars


def test_the_precisions_and_the_backend_are_those_of_the_suite() -> None:
    defs = schema(Kind.CONFIG)["$defs"]
    assert defs["precision"]["enum"] == [*TrainingPrecision]
    assert (
        defs["training_loss"]["properties"]["backend"]["default"],
    ) == TrainingOptions().backends
    assert defs["backend"]["maxLength"] == schema(Kind.RESULTS)["$defs"]["arm_name"]["maxLength"], (
        "a backend's name is an arm's"
    )


def test_the_defaults_of_a_suites_options_are_allowed_by_the_schema() -> None:
    text = schema(Kind.CONFIG)
    for name in ("training_loss", "dataset", "model", "run"):
        part = text["$defs"][name]
        defaults = {
            field: node["default"]
            for field, node in part["properties"].items()
            if "default" in node
        }
        assert [*Draft202012Validator({"$defs": text["$defs"], **part}).iter_errors(defaults)] == []
