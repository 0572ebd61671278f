"""A fast check that a document is sound: a JSON Schema made into a function.

It is many times as fast as a validator, which finds and words the faults of rejected documents, if
any (`faults.form_faults`). It is made for the schemas of this package, and
rejects everything under one with a keyword that it doesn't know.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Check = Callable[[Any], bool]

_SILENT = {"$schema", "$id", "$defs", "title", "description", "default", "examples"}
_KNOWN = {
    *("$ref", "anyOf", "if", "then", "else", "const", "enum", "type"),
    *(
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
    ),
    *("items", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
_DEFINITIONS = "#/$defs/"
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def compiled(schema: Mapping[str, Any]) -> Check:
    """Return the check of a schema: whether a value read from JSON is certainly sound.

    That includes what JSON Schema cannot say (`faults.oddities`): no field twice, no number that
    isn't finite, no half of a surrogate pair.
    """
    return _Compiler(schema).check(schema)


def compiled_parts(schema: Mapping[str, Any]) -> Callable[[str, Any], bool]:
    """Return the check of a schema's definitions, by reference, such as ``#/$defs/case``."""
    return _Compiler(schema).is_sound


class _Compiler:
    """Makes checks of subschemas; a definition that is used in many places is made once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._made: dict[str, Check] = {}

    def check(self, node: Mapping[str, Any]) -> Check:
        """Return the check of one subschema.

        Next to `$ref`, `anyOf` and `if` only silent keywords are understood.
        """
        words = node.keys() - _SILENT
        if not words <= _KNOWN:
            return _no
        if "$ref" in node:
            return (
                self._definition(node["$ref"].removeprefix(_DEFINITIONS))
                if words == {"$ref"}
                else _no
            )
        if "anyOf" in node:
            return (
                _any([self.check(branch) for branch in node["anyOf"]])
                if words == {"anyOf"}
                else _no
            )
        if "if" in node:
            return self._by_condition(node) if words == {"if", "then", "else"} else _no
        if "const" in node or "enum" in node:
            return (
                _one_of([node["const"]] if "const" in node else node["enum"])
                if len(words) == 1
                else _no
            )
        names = [node["type"]] if isinstance(node.get("type"), str) else node.get("type", [])
        checks = {name: self._of_type(name, node) for name in names}
        return _by_type(checks) if names else _no

    def is_sound(self, reference: str, value: Any) -> bool:
        """Return whether a value is certainly sound under a reference to a definition."""
        name = reference.removeprefix(_DEFINITIONS)
        return name != reference and self._definition(name)(value)

    def _definition(self, name: str) -> Check:
        """Return the check of a definition, which may refer to itself."""

        def later(value: Any) -> bool:
            return self._made[name](value)

        if name not in self._made:
            self._made[name] = later
            self._made[name] = self.check(self._root["$defs"][name])
        return self._made[name]

    def _by_condition(self, node: Mapping[str, Any]) -> Check:
        """Choose by the value's type, which the first branch may leave out, or a text's form."""
        if node["if"].keys() == {"type", "pattern"}:
            fits, yes, no = (
                self.check(node["if"]),
                self.check(node["then"]),
                self.check(node["else"]),
            )
            return lambda value: yes(value) if fits(value) else no(value)
        if node["if"].keys() != {"type"}:
            return _no
        then = node["then"] if "$ref" in node["then"] else {**node["if"], **node["then"]}
        first, second = self.check(then), self.check(node["else"])
        types = _TYPES[node["if"]["type"]] if isinstance(node["if"]["type"], str) else ()
        return lambda value: first(value) if type(value) in types else second(value)

    def _of_type(self, name: str, node: Mapping[str, Any]) -> Check:
        match name:
            case "string":
                return _text(node)
            case "number" | "integer":
                return _number(node)
            case "array":
                return self._list(node)
            case "object":
                return self._mapping(node)
            case _:
                return _yes

    def _list(self, node: Mapping[str, Any]) -> Check:
        least, most = node.get("minItems", 0), node.get("maxItems", math.inf)
        form = node.get("items")
        if form is None:
            return _no
        check_numbers, unique = _plain_numbers(form), node.get("uniqueItems", False)
        item = self.check(form)

        def check(value: Any) -> bool:
            if not least <= len(value) <= most or (unique and not _all_differ(value)):
                return False
            return (check_numbers is not None and check_numbers(value)) or all(map(item, value))

        return check

    def _mapping(self, node: Mapping[str, Any]) -> Check:
        least, most = node.get("minProperties", 0), node.get("maxProperties", math.inf)
        required = frozenset(node.get("required", ()))
        fields = {name: self.check(form) for name, form in node.get("properties", {}).items()}
        form = node.get("additionalProperties", True)
        other = self.check(form) if isinstance(form, dict) else _no
        name_form, field_of = node.get("propertyNames"), fields.get
        name_of = None if name_form is None else self.check({"type": "string", **name_form})

        def check(value: Any) -> bool:
            if (
                not least <= len(value) <= most
                or not required <= value.keys()
                or not (name_of is None or all(map(name_of, value)))
            ):
                return False
            for (  # noqa: SIM110 - half the time of `all` of a generator, for every object
                name,
                item,
            ) in value.items():
                if not field_of(name, other)(item):
                    return False
            return True

        return check


def _yes(_: Any) -> bool:
    return True


def _no(_: Any) -> bool:
    return False


def _any(branches: Iterable[Check]) -> Check:
    every = tuple(branches)
    return lambda value: any(check(value) for check in every)


def _all_differ(values: Any) -> bool:
    """Return whether no item comes twice, if no item is a list or mapping."""
    return all(isinstance(value, str | int | float) for value in values) and len({*values}) == len(
        values
    )


def _one_of(allowed: Iterable[Any]) -> Check:
    """Accept values that are equal and of the same type: 1 is not true."""
    pairs = {(type(value), value) for value in allowed}

    def check(value: Any) -> bool:
        return isinstance(value, str | int | float | bool | None) and (type(value), value) in pairs

    return check


def _by_type(checks: Mapping[str, Check]) -> Check:
    """Return the check for the exact type of a value.

    A mapping with a duplicate field has another type.
    """
    types: dict[type, Check] = {}
    for name, check in checks.items():
        types |= dict.fromkeys(_TYPES[name], check)
    get = types.get

    def typed(value: Any) -> bool:
        return get(type(value), _no)(value)

    return typed


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def _text(node: Mapping[str, Any]) -> Check:
    least, most = node.get("minLength", 0), node.get("maxLength", math.inf)
    form = node.get("pattern")
    # as in `faults`: Python's `$` also matches before a last newline, which must not slip into an
    # id
    search = re.compile(re.sub(r"\$$", r"\\Z", form)).search if form else None

    def check(value: Any) -> bool:
        if not least <= len(value) <= most or not (value.isascii() or not _HALF_PAIR.search(value)):
            return False
        return search is None or search(value) is not None

    return check


def _bounds(node: Mapping[str, Any]) -> tuple[float, float, float, float]:
    names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    least, most, above, below = (node.get(name) for name in names)
    return (
        -math.inf if least is None else least,
        math.inf if most is None else most,
        -math.inf if above is None else above,
        math.inf if below is None else below,
    )


def _number(node: Mapping[str, Any]) -> Check:
    least, most, above, below = _bounds(node)

    def check(value: Any) -> bool:
        return least <= value <= most and above < value < below and _is_finite(value)

    return check


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _all_finite(values: Any) -> bool:
    """Return whether the sum is finite; if only the sum is too large, a validator has to look."""
    try:
        return math.isfinite(sum(values))
    except OverflowError:
        return False


def _plain_numbers(form: Mapping[str, Any]) -> Check | None:
    """Return the check of a whole list of numbers, which takes a fraction of the time.

    `None` for lists of anything else.
    """
    if form.get("type") not in ("number", "integer"):
        return None
    types: set[type] = {*_TYPES[form["type"]]}
    least, most, above, below = _bounds(form)

    def check(values: Any) -> bool:
        if not values:
            return True
        if not {*map(type, values)} <= types:
            return False
        low, high = min(values), max(values)
        return (
            least <= low and high <= most and above < low and high < below and _all_finite(values)
        )

    return check
