"""The schemas say what the dataclasses say: neither can change alone.

And they are closed and bounded throughout.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import Comparison
from ci_bench.records.config import (
    DEFAULT_SEVERITIES,
    Policy,
    Rule,
    RunOptions,
    Severity,
    SuitePolicy,
)
from ci_bench.records.documents import Kind, schema
from ci_bench.records.history import History
from ci_bench.records.results import Results
from ci_bench.suites.training_loss.options import Dataset, Model, TrainingOptions, TrainingPrecision

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ALWAYS_WRITTEN = {"kind", "schema_version"}
TOOLS = {"maxLength": "string", "maxItems": "array"}


def resolve(root: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return node


def differences(  # noqa: C901, PLR0912 - a branch for each kind of type
    root: Mapping[str, Any], node: Mapping[str, Any], hint: Any, path: str
) -> Iterator[str]:
    """Walk a type and a schema side by side, and name every place where they part."""
    node = resolve(root, node)
    if hint is Any or path.count(".twin") > 1:  # a twin has the fields of what it is a twin of
        return
    if get_origin(hint) in {types.UnionType, typing.Union}:
        yield from union_differences(root, node, get_args(hint), path)
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        if node.get("enum") != [member.value for member in hint]:
            yield f"{path}: {node.get('enum')} is not {hint.__name__}"
    elif dataclasses.is_dataclass(hint):
        yield from object_differences(root, node, hint, path)
    elif get_origin(hint) is Literal:
        if node.get("const") != get_args(hint)[0]:
            yield f"{path}: const"
    elif get_origin(hint) is tuple:
        yield from array_differences(root, node, get_args(hint), path)
    elif get_origin(hint) is not None and issubclass(get_origin(hint), Mapping):
        if node.get("type") != "object" or "properties" in node:
            yield f"{path}: not a mapping"
        yield from differences(root, node["additionalProperties"], get_args(hint)[1], f"{path}.*")
    elif "enum" in node:
        if not all(type(value) is hint for value in node["enum"]):
            yield f"{path}: an enum of other types"
    elif node.get("type") != JSON_TYPES[hint]:
        yield f"{path}: {node.get('type')} is not {hint}"


def union_differences(
    root: Mapping[str, Any], node: Mapping[str, Any], members: tuple[Any, ...], path: str
) -> Iterator[str]:
    if "anyOf" in node:
        branch, null = node["anyOf"]
        if null != {"type": "null"} or type(None) not in members:
            yield f"{path}: null"
        yield from differences(root, branch, members[0], path)
    elif len(members) == 2:
        if node.get("type") != [node["type"][0], "null"] or type(None) not in members:
            yield f"{path}: {node['type']} is not {members}"
        else:
            yield from differences(root, {**node, "type": node["type"][0]}, members[0], path)
    elif {*node["type"]} != {JSON_TYPES[member] for member in members} - {"integer"}:
        yield f"{path}: {node['type']} is not {members}"


def object_differences(
    root: Mapping[str, Any], node: Mapping[str, Any], hint: Any, path: str
) -> Iterator[str]:
    fields = {field.name: field for field in dataclasses.fields(hint)}
    if [*node["properties"]] != [*fields]:
        yield f"{path}: fields {[*node['properties']]} are not {[*fields]}"
    needed = {
        name
        for name, field in fields.items()
        if field.default is field.default_factory is dataclasses.MISSING
    }
    if {*node.get("required", [])} != needed | (ALWAYS_WRITTEN & {*fields}):
        yield f"{path}: required {node.get('required')}"
    for name, inner in get_type_hints(hint).items():
        if name in node["properties"]:
            yield from differences(root, node["properties"][name], inner, f"{path}.{name}")


def array_differences(
    root: Mapping[str, Any], node: Mapping[str, Any], members: tuple[Any, ...], path: str
) -> Iterator[str]:
    if node.get("type") != "array":
        yield f"{path}: not an array"
    elif members[-1] is not ... and not node.get("minItems") == node.get("maxItems") == len(
        members
    ):
        yield f"{path}: not {len(members)} items"
    yield from differences(root, node["items"], members[0], f"{path}[]")


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (Kind.RESULTS, Results),
        (Kind.COMPARISON, Comparison),
        (Kind.CALIBRATION, Calibration),
        (Kind.HISTORY, History),
    ],
)
def test_a_schema_matches_its_dataclasses(kind: Kind, hint: type) -> None:
    # The order of the fields matters only to readers, who find `kind` first in both.
    assert [*differences(schema(kind), schema(kind), hint, "$")] == []


def test_the_walk_sees_what_drifts() -> None:
    """The test above would be worth nothing if it saw nothing."""
    text = schema(Kind.RESULTS)
    status = {**text["$defs"], "status": {"enum": ["ok"]}}
    assert any(
        "Status" in line for line in differences({**text, "$defs": status}, text, Results, "$")
    )
    launch = {**text["$defs"]["launch"], "required": ["launch"]}
    assert any(
        "required" in line
        for line in differences(
            {**text, "$defs": {**text["$defs"], "launch": launch}}, text, Results, "$"
        )
    )
    source = {**text["$defs"]["source"]["properties"], "dirty": {"type": "boolean"}}
    changed = {**text["$defs"], "source": {**text["$defs"]["source"], "properties": source}}
    assert any(
        "dirty" in line for line in differences({**text, "$defs": changed}, text, Results, "$")
    )


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
    assert defs["backend"]["maxLength"] == schema(Kind.RESULTS)["$defs"]["arm"]["maxLength"], (
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
