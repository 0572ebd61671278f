"""What a release has written or let people write stays readable: its documents, and whatever else its schemas allowed.

`tests/fixtures/releases` keeps both, by release (`tools/release.sh keep`). A schema may allow more
than before under its version; what allows less, or asks for more, needs a new `schema_version` and
a reader for the old one.
"""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ci_bench import cli
from ci_bench.records.documents import Kind, schema

RELEASES = sorted((Path(__file__).parent / "fixtures" / "releases").iterdir())
SCHEMAS = [path for release in RELEASES for path in sorted((release / "schemas").iterdir())]
DOCUMENTS = [path for release in RELEASES for path in sorted((release / "documents").iterdir())]
UPPER, LOWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")  # fmt: skip
SAME = (
    "const",
    "pattern",
    "format",
    "uniqueItems",
    "propertyNames",
    "if",
    "then",
    "else",
    "not",
    "oneOf",
    "prefixItems",
)
Schema = Mapping[str, Any]


def narrowed(before: Schema, now: Schema) -> Iterator[str]:
    """Every place where a schema refuses something that an earlier one of the same version accepted, by its path."""
    if before.get("properties", {}).get("schema_version") != now.get("properties", {}).get(
        "schema_version"
    ):
        return  # another version, which readers tell apart by its number
    yield from _narrowed((before, before), (now, now), "$", set())


def _resolve(root: Schema, node: Any) -> Schema:
    while isinstance(node, dict) and "$ref" in node:
        node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return {} if node is True else {"enum": []} if node is False else node


def _narrowed(
    before: tuple[Schema, Any], now: tuple[Schema, Any], path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    old, new = _resolve(*before), _resolve(*now)
    condition = new.get("if", {})
    if [*condition] == ["type"] and "if" not in old and condition["type"] not in _types(old):
        yield from _narrowed(
            before, (now[0], new["else"]), path, seen
        )  # lists, say, are new: what was accepted is not one
        return
    if (id(old), id(new)) in seen:
        return
    seen.add((id(old), id(new)))
    yield from (f"{path}: {complaint}" for complaint in _own(old, _of_old_documents(old, new)))
    inner = [
        ("properties", name)
        for name in old.get("properties", {})
        if name in new.get("properties", {})
    ]
    for word, name in inner:
        yield from _narrowed(
            (before[0], old[word][name]), (now[0], new[word][name]), f"{path}.{name}", seen
        )
    for word in ("items", "additionalProperties"):
        if isinstance(old.get(word), dict) and word in new:
            yield from _narrowed(
                (before[0], old[word]), (now[0], new[word]), f"{path}.{word}", seen
            )
    if len(old.get("anyOf", ())) > len(new.get("anyOf", old.get("anyOf", ()))):
        yield f"{path}: anyOf has fewer branches"
    for number, (one, other) in enumerate(
        zip(old.get("anyOf", ()), new.get("anyOf", ()), strict=False)
    ):
        yield from _narrowed((before[0], one), (now[0], other), f"{path}.anyOf[{number}]", seen)


def _of_old_documents(old: Schema, new: Schema) -> Schema:
    """A schema whose condition is written as documents without its new fields meet it, where those could not be there before."""
    if (
        old.get("additionalProperties") is not False
        or not {"if", "then"} <= new.keys()
        or "else" in new
    ):
        return new
    fields = new.get("properties", {}).keys() - old.get("properties", {}).keys()
    return {**new, "if": _without(new["if"], fields)}


def _without(condition: Any, fields: Any) -> Any:
    """A condition without the branches that ask for one of these fields."""
    if [*condition] == ["not"]:
        return {"not": _without(condition["not"], fields)}
    if [*condition] == ["anyOf"]:
        kept = [
            branch
            for branch in condition["anyOf"]
            if [*branch] != ["required"] or not fields & {*branch["required"]}
        ]
        return kept[0] if len(kept) == 1 else {"anyOf": kept}
    return condition


def _own(old: Schema, new: Schema) -> Iterator[str]:
    gone = old.get("properties", {}).keys() - new.get("properties", {}).keys()
    if gone and new.get("additionalProperties", True) is not True:
        yield f"{', '.join(sorted(gone))} went"
    if more := {*new.get("required", ())} - {*old.get("required", ())}:
        yield f"{', '.join(sorted(more))} became required"
    if "enum" in new and (
        lost := [
            value
            for value in old.get("enum", [old.get("const", "anything else")])
            if value not in new["enum"]
        ]
    ):
        yield f"{lost} went from the enum"
    if "type" in new and (lost := _types(old) - _types(new)):
        yield f"{', '.join(sorted(lost))} went from the type"
    if (
        new.get("additionalProperties") is False
        and old.get("additionalProperties", True) is not False
    ):
        yield "it became closed"
    yield from (
        f"{word} fell" for word in UPPER if word in new and new[word] < old.get(word, float("inf"))
    )
    yield from (
        f"{word} rose" for word in LOWER if word in new and new[word] > old.get(word, float("-inf"))
    )
    differing = [word for word in SAME if word in new and new[word] != old.get(word)]
    yield from (
        f"{word} changed"
        for word in differing
        if word != "pattern" or not _only_longer(old.get(word), new[word])
    )


def _only_longer(old: str | None, new: str) -> bool:
    """Return whether a pattern is the same but for one limit on its length, which is larger now."""
    bound = re.compile(r"\{1,(\d+)\}\$")
    found = bound.search(old or ""), bound.search(new)
    if old is None or not all(found):
        return False
    before, now = (int(one[1]) for one in found if one)
    return bound.sub("", old) == bound.sub("", new) and before <= now


def _types(node: Schema) -> set[str]:
    named = node.get("type", ["string", "number", "integer", "boolean", "null", "object", "array"])
    types = {named} if isinstance(named, str) else {*named}
    return types | ({"integer"} if "number" in types else set())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parents[1].name}/{path.name}")
def test_a_document_of_an_earlier_release_is_read(path, capsys):
    assert cli.main(["validate", str(path)]) == 0, capsys.readouterr()


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: f"{path.parents[1].name}/{path.name}")
def test_whatever_a_release_accepted_is_accepted(path):
    now = Path(__file__).parents[1] / "schemas" / path.name
    assert now.exists(), f"{path.name} went: who has such a document can no longer read it"
    assert [*narrowed(json.loads(path.read_text()), json.loads(now.read_text()))] == []


def listed(node):
    """What a schema accepts, or a list of it."""
    return {"if": {"type": "array"}, "then": {"items": dict(node)}, "else": dict(node)}


def worded(node):
    """What a schema accepts, or one word."""
    return {"if": {"type": "string"}, "then": {"const": "largest"}, "else": dict(node)}


def change(edit):
    text = copy.deepcopy(schema(Kind.RESULTS))
    edit(text)
    return text


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda text: text["properties"].pop("measured_s"), "$: measured_s went"),
        (lambda text: text["required"].append("measured_s"), "$: measured_s became required"),
        (
            lambda text: text["$defs"]["status"]["enum"].remove("skipped"),
            "['skipped'] went from the enum",
        ),
        (lambda text: text["properties"]["cases"].update(maxItems=2), ".cases: maxItems fell"),
        (
            lambda text: text["properties"]["measured_s"].update(type="number"),
            "null went from the type",
        ),
        (
            lambda text: text["properties"]["tool_version"].update(pattern="^1"),
            ".tool_version: pattern changed",
        ),
        (
            lambda text: text["properties"]["tool_version"].update(minLength=40),
            ".tool_version: minLength rose",
        ),
        (
            lambda text: text["properties"].update(tool_version=listed({"type": "integer"})),
            "string went from the type",
        ),
        (
            lambda text: text["properties"].update(measured_s=worded({"type": "number"})),
            "null went from the type",
        ),
        (
            lambda text: text["properties"].update(tool_version=worded({"type": "integer"})),
            ".tool_version: if changed",
        ),
    ],
    ids=[
        "removed",
        "required",
        "enum",
        "bound",
        "type",
        "pattern",
        "length",
        "a list, and others no more",
        "a word",
        "no word",
    ],
)
def test_a_schema_that_refuses_what_it_accepted_is_told(edit, complaint):
    told = [*narrowed(schema(Kind.RESULTS), change(edit))]
    assert any(line.endswith(complaint) for line in told), told


@pytest.mark.parametrize(
    "edit",
    [
        lambda _: None,
        lambda text: text["properties"].update(more={"type": "string"}),
        lambda text: text["$defs"]["status"]["enum"].append("paused"),
        lambda text: text["required"].remove("cases"),
        lambda text: text["properties"]["cases"].update(maxItems=10**9),
        lambda text: text["properties"]["tool_version"].update(description="in other words"),
        lambda text: text["properties"].update(
            tool_version=listed(text["properties"]["tool_version"])
        ),
        lambda text: text["properties"].update(measured_s=worded(text["properties"]["measured_s"])),
        lambda text: text["properties"].update(
            measured_s=listed(worded(text["properties"]["measured_s"]))
        ),
    ],
    ids=[
        "nothing",
        "a field",
        "a value",
        "no longer required",
        "more",
        "words",
        "a list as well",
        "a word",
        "a list and a word",
    ],
)
def test_a_schema_that_accepts_more_may(edit):
    assert [*narrowed(schema(Kind.RESULTS), change(edit))] == []


@pytest.mark.parametrize(
    ("now", "complaints"),
    [("{1,19}", []), ("{1,15}", ["$: pattern changed"]), ("{2,19}", ["$: pattern changed"])],
)
def test_a_pattern_may_only_accept_longer_texts(now, complaints):
    before, after = ({"type": "string", "pattern": f"^[a-z]{bound}$"} for bound in ("{1,16}", now))
    assert [*narrowed(before, after)] == complaints


def asking(condition, **more):
    """A closed mapping that asks for `a` where a condition holds."""
    fields = {name: {"type": "integer"} for name in ("a", "b", *more)}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": fields,
        "if": condition,
        "then": {"required": ["a"]},
    }


NO_B = {"not": {"required": ["b"]}}


@pytest.mark.parametrize(
    ("condition", "complaints"),
    [
        ({"not": {"anyOf": [{"required": ["b"]}, {"required": ["c"]}]}}, []),
        ({"not": {"anyOf": [{"required": ["c"]}, {"required": ["c", "b"]}]}}, ["$: if changed"]),
        ({"not": {"anyOf": [{"required": ["a"]}, {"required": ["c"]}]}}, ["$: if changed"]),
        ({"not": {"required": ["c"]}}, ["$: if changed"]),
        (
            {"not": {"anyOf": [{"required": ["b"]}, {"properties": {"c": {"const": 1}}}]}},
            ["$: if changed"],
        ),
    ],
    ids=[
        "or a new field",
        "a new field alone",
        "another old field",
        "in its place",
        "whatever is in a new field",
    ],
)
def test_a_field_may_be_asked_for_unless_a_new_one_is_there(condition, complaints):
    assert [*narrowed(asking(NO_B), asking(condition, c=True))] == complaints


def test_a_field_that_others_might_have_had_before_is_not_new():
    before, now = (
        asking(NO_B),
        asking({"not": {"anyOf": [{"required": ["b"]}, {"required": ["c"]}]}}, c=True),
    )
    assert [*narrowed({**before, "additionalProperties": True}, now)] == [
        "$: it became closed",
        "$: if changed",
    ]


def test_under_a_new_version_anything_may_change():
    def edit(text):
        text["properties"]["schema_version"] = {"const": 2, "description": "The second."}
        text["required"].append("measured_s")

    assert [*narrowed(schema(Kind.RESULTS), change(edit))] == []
