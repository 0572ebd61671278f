"""Renders the JSON schemas of the documents from their dataclasses, which declare each field once.

Run as ``python tools/render_schemas.py``: it writes schemas/results.json, comparison.json,
calibration.json and history.json, and those parts of config.json that have dataclasses (`SETTINGS`
and the severities). The rest of config.json is written by hand. A test compares the committed files
with the output.

A field's type gives its form (`ci_bench.records.forms`), and the text below the field its
description. A class, an enumeration and a type with a name become definitions, in the order of
their first use.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ci_bench.records.calibration import Calibration
from ci_bench.records.comparison import Comparison
from ci_bench.records.config import Rule, RunOptions, Setup
from ci_bench.records.forms import Bounds, Value
from ci_bench.records.history import History
from ci_bench.records.results import Results

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS: Mapping[str, type] = {
    "results": Results,
    "comparison": Comparison,
    "calibration": Calibration,
    "history": History,
}
SETTINGS: Mapping[str, type] = {"run": RunOptions, "setup": Setup}
"""Definitions of the configuration that are rendered."""
Node = dict[str, Any]


class OfSettings(dict[str, Node]):
    """Definitions of the configuration.

    There enumerations are written out, every default is given, and texts are Markdown.
    """


_WIDTH = 110
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_TEXT = {"max_length": "maxLength", "min_length": "minLength", "pattern": "pattern"}
_NUMBER = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LIST = {"min_items": "minItems", "max_items": "maxItems"}
_MAPPING = {"max_items": "maxProperties"}


def main() -> int:
    """Write each schema."""
    for kind in (*DOCUMENTS, "config"):
        (ROOT / "schemas" / f"{kind}.json").write_text(rendered(kind), encoding="utf-8")
    return 0


def rendered(kind: str) -> str:
    """Return the text of a document's schema."""
    if kind == "config":
        return _configuration()
    definitions: dict[str, Node] = {}
    root = _object(DOCUMENTS[kind], definitions)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://ci-bench.dev/schemas/{kind}-1.json",
    }
    body = {**head, **root, "title": f"ci-bench {kind}", "$defs": definitions}
    return _lines(body, "") + "\n"


def _configuration() -> str:
    """Return the present schema of the configuration, its rendered parts renewed."""
    document = json.loads((ROOT / "schemas" / "config.json").read_text(encoding="utf-8"))
    definitions = OfSettings()
    for name, kind in SETTINGS.items():
        definitions[name] = _object(kind, definitions) | {"title": name.capitalize()}
    described = _descriptions(Rule)
    document["$defs"]["severities"]["properties"] = {
        rule.value: {
            "description": _plain(described[rule.name], markdown=True),
            "$ref": "#/$defs/severity",
            "default": rule.default.value,
        }
        for rule in Rule
    }
    document["$defs"] |= definitions
    return _lines(document, "") + "\n"


def _lines(value: Any, indent: str) -> str:
    """Return JSON with an object on one line if it is short, as people would write it."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(line) <= _WIDTH:
        return line
    inner = indent + "  "
    if isinstance(value, list):
        items = [_lines(item, inner) for item in value]
        return "[\n" + ",\n".join(f"{inner}{item}" for item in items) + f"\n{indent}]"
    fields_text = [
        f"{inner}{json.dumps(name)}: {_lines(item, inner)}" for name, item in value.items()
    ]
    return "{\n" + ",\n".join(fields_text) + f"\n{indent}}}"


def _object(kind: type, definitions: dict[str, Node]) -> Node:
    hints = get_type_hints(kind, include_extras=True)
    described = _descriptions(kind)
    required = [field.name for field in fields(kind) if _is_required(field)]
    node: Node = {
        "title": _words(kind).capitalize(),
        "description": _plain(inspect.cleandoc(kind.__doc__ or "").splitlines()[0]),
        "type": "object",
        "additionalProperties": False,
    }
    properties = {}
    for field in fields(kind):
        form = _node(hints[field.name], definitions)
        of_settings = isinstance(definitions, OfSettings)
        text = _plain(described[field.name], markdown=of_settings)
        default = _any_default(field) if of_settings else _default(field)
        properties[field.name] = {"description": text, **form, **default}
    return node | ({"required": required} if required else {}) | {"properties": properties}


def _is_required(field: Field[Any]) -> bool:
    has_default = field.default is not MISSING or field.default_factory is not MISSING
    return not has_default or field.name in {"kind", "schema_version"}


def _default(field: Field[Any]) -> Node:
    is_plain = isinstance(field.default, bool | int | float | str)
    return {"default": field.default} if is_plain and not _is_required(field) else {}


def _any_default(field: Field[Any]) -> Node:
    default = [*field.default] if isinstance(field.default, tuple) else field.default
    return {"default": default}


def _node(hint: Any, definitions: dict[str, Node]) -> Node:
    """Return the schema of a type; what has a name is put into `definitions`, and named here."""
    if get_origin(hint) is Annotated:
        return _annotated(hint, definitions)
    if get_origin(hint) in {types.UnionType, typing.Union}:
        return _union(get_args(hint), definitions)
    if get_origin(hint) is Literal:
        return {"const": get_args(hint)[0]}
    if get_origin(hint) is tuple:
        return _array(get_args(hint), definitions)
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, StrEnum)):
        return _defined(hint, definitions)
    return {"type": _TYPES[hint]}


def _annotated(hint: Any, definitions: dict[str, Node]) -> Node:
    (form,) = hint.__metadata__
    if not form.name:
        return _bounded(hint.__origin__, form, definitions)
    if form.name not in definitions:
        definitions[form.name] = {}
        of_value = _any_value() if hint is Value else _bounded(hint.__origin__, form, definitions)
        definitions[form.name] = {"description": form.description, **of_value}
    return {"$ref": f"#/$defs/{form.name}"}


def _bounded(kind: Any, form: Bounds, definitions: dict[str, Node]) -> Node:
    """Return a type's schema with its bounds."""
    if get_origin(kind) is not None and issubclass(get_origin(kind), Mapping):
        key, value = get_args(kind)
        names = {name: bound for name, bound in _node(key, definitions).items() if name != "type"}
        bounds = _bounds(form, _MAPPING) | {"propertyNames": names}
        return {"type": "object"} | bounds | {"additionalProperties": _node(value, definitions)}
    if get_origin(kind) is tuple:
        node = _node(kind, definitions)
        return {"type": "array"} | _bounds(form, _LIST) | {"items": node["items"]} | _examples(form)
    if form.choices:
        return {"enum": [*form.choices]}
    words = _NUMBER if kind in {int, float} else _TEXT
    return _node(kind, definitions) | _bounds(form, words) | _examples(form)


def _examples(form: Bounds) -> Node:
    example = [*form.example] if isinstance(form.example, tuple) else form.example
    return {"examples": [example]} if example else {}


def _bounds(form: Bounds, words: Mapping[str, str]) -> Node:
    values = ((word, getattr(form, name)) for name, word in words.items())
    return {word: bound for word, bound in values if bound is not None}


def _any_value() -> Node:
    """Return the schema of any small JSON value, which holds such values itself."""
    inner = {"$ref": "#/$defs/value"}
    return {
        "type": ["string", "number", "boolean", "null", "array", "object"],
        **_bounds(Value.__metadata__[0], {"max_length": "maxLength", **_LIST, **_MAPPING}),
        "maxItems": Value.__metadata__[0].max_items,
        "items": inner,
        "propertyNames": {"maxLength": 60},
        "additionalProperties": inner,
    }


def _union(members: tuple[Any, ...], definitions: dict[str, Node]) -> Node:
    """Return the schema of one type or null, or of several plain types."""
    if len(members) > 2:  # noqa: PLR2004 - a type, and None
        names = [_TYPES[member] for member in members if member is not int]
        return {"type": names}
    node = _node(members[0], definitions)
    if "$ref" in node:
        return {"anyOf": [node, {"type": "null"}]}
    return node | {"type": [node["type"], "null"]}


def _array(members: tuple[Any, ...], definitions: dict[str, Node]) -> Node:
    size = {} if members[-1] is ... else {"minItems": len(members), "maxItems": len(members)}
    return {"type": "array"} | size | {"items": _node(members[0], definitions)}


def _defined(kind: type, definitions: dict[str, Node]) -> Node:
    if isinstance(definitions, OfSettings):
        return {"enum": [word.value for word in kind]}
    name = _words(kind).replace(" ", "_")
    if name not in definitions:
        definitions[name] = {}
        if is_dataclass(kind):
            definitions[name] = _object(kind, definitions)
        else:
            summary = _plain(inspect.cleandoc(kind.__doc__ or "").splitlines()[0])
            definitions[name] = {"description": summary, "enum": [word.value for word in kind]}
    return {"$ref": f"#/$defs/{name}"}


def _words(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()


@cache
def _descriptions(kind: type) -> Mapping[str, str]:
    """Return the text below each field of a class, as it stands."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
    texts = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr)  # noqa: S101 - a test wants each field documented
            texts[field.target.id] = inspect.cleandoc(ast.literal_eval(text.value))
        if isinstance(field, ast.Assign) and isinstance(field.targets[0], ast.Name):
            assert isinstance(text, ast.Expr)  # noqa: S101 - likewise
            texts[field.targets[0].id] = inspect.cleandoc(ast.literal_eval(text.value))
    return texts


def _plain(text: str, *, markdown: bool = False) -> str:
    """Return a docstring's words as a reader of JSON knows them."""
    text = re.sub(r"\s+", " ", text).strip().replace("`None`", "null").replace("``", "`")
    return re.sub(r"(?<=\. )null", "Null", text) if markdown else text.replace("`", "")


if __name__ == "__main__":
    sys.exit(main())
