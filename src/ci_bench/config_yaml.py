"""YAML with line numbers: text in; plain values, the line of each JSON path, and faults out.

Reads what JSON can say, spelled as in YAML 1.2's core schema: PyYAML's own rules make `5e-4` a text and `no` a boolean.
Anchors and aliases may be used, as long as what they unfold to stays small. What the values mean is the business of `config`.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ci_bench.records.faults import Fault, show, step

MAX_DEPTH = 30
MAX_NODES = 20_000
"""Values in a file once its aliases are unfolded."""

_STANDARD = "tag:yaml.org,2002:"
_SCALARS: Mapping[str, tuple[str, list[str], Callable[[str], Any]]] = {
    "null": (r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""], lambda _: None),
    "bool": (r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF"), lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+\Z", list("-+0123456789"), int),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", list("-+.0123456789"), float),
}
"""Of each scalar type: its spelling, what it can begin with, its value. Anything else is text. Source: YAML 1.2.2, 10.3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """A YAML document. `lines` count from 1; a fault's line is that of its path. `value` is partial where there are faults."""

    value: Any
    lines: Mapping[str, int]
    faults: tuple[Fault, ...]


def parse(text: str) -> Parsed:
    """Read one YAML document; never raises: a text that is not YAML is one fault at ``$``."""
    import yaml

    builder = _Builder()
    try:
        _check_depth(text)
        root = yaml.compose(text, Loader=_loader())
        value = None if root is None else builder.value(root, "$", 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
        fault = Fault("$", f"cannot be read as YAML: {problem}")
        return Parsed(value=None, lines={"$": mark.line + 1 if mark else 1}, faults=(fault,))
    return Parsed(value=value, lines=builder.lines, faults=tuple(builder.faults))


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    for name, (spelling, first, _) in _SCALARS.items():
        loader.add_implicit_resolver(_STANDARD + name, re.compile(spelling), first)
    return loader


def _check_depth(text: str) -> None:
    """Refuse deep nesting before `yaml.compose`, which recurses in C and would take the process down."""
    import yaml

    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_loader()):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=event.start_mark)


@dataclass(slots=True)
class _Builder:
    """Turns nodes into values, and remembers lines and faults."""

    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    nodes: int = 0

    def value(self, node: Any, path: str, depth: int) -> Any:
        import yaml

        self.nodes += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            problem = f"more than {MAX_NODES:,} values, or an alias inside itself"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in {_STANDARD + "map", _STANDARD + "seq"}:
            return self._fault(path, f"the tag {show(node.tag)} is not allowed; leave it out")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, step(path, index), depth + 1) for index, item in enumerate(node.value)]
        return self._mapping(node, path, depth)

    def _mapping(self, node: Any, path: str, depth: int) -> dict[str, Any]:
        import yaml

        fields: dict[str, Any] = {}
        for key_node, item in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem="the name of a field is no text", problem_mark=key_node.start_mark)
            inner = step(path, key)
            if key in fields:
                self._fault(inner, f"the field comes twice, first on line {self.lines[inner]}")
            self.lines[inner] = key_node.start_mark.line + 1
            if key_node.tag != _STANDARD + "str":
                self._fault(inner, "the name of a field is text; put it in quotes")
                continue
            fields[key] = self.value(item, inner, depth + 1)
        return fields

    def _scalar(self, node: Any, path: str) -> Any:
        name = node.tag.removeprefix(_STANDARD)
        if name == "str":
            return node.value
        if name not in _SCALARS:
            return self._fault(path, f"the tag {show(node.tag)} is not allowed; leave it out")
        try:
            value = _SCALARS[name][2](node.value)
        except ValueError:
            return self._fault(path, f"{show(node.value)} is not of the type {name}; leave the tag out")
        if isinstance(value, float) and not math.isfinite(value):
            return self._fault(path, f"{show(node.value)} is not a finite number; put it in quotes if it is text")
        return value

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))
