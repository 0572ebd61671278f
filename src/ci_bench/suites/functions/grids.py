"""Points of a decorator's grid: its keywords become parameters, and each point gets a label. Pure.

A keyword whose value is a list is a dimension; any other value is the same at every point. A
point's label identifies its case, so it depends only on the values, and two points of one label are
an error. All errors name file, line, function and field.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.spelling import meant

OPTIONS = ("work", "cases", "backward", "threshold", "provider")
"""Keywords about the benchmark itself."""
MOST_POINTS = 1000
MOST_ARMS = 20
MOST_ITEMS = 100
ARM = re.compile(r"[A-Za-z0-9_.:+-]{1,80}")
LONGEST_LABEL, LONGEST_VALUE, LONGEST_ID = 60, 1000, 400
MOST_SHOWN, MOST_WORDS = 80, 1000
"""Characters of a name, and of the quoted text, in an error."""
LARGEST = 2.0**63
"""A number from here on has no place in JSON, as an infinity has none."""
NAME = re.compile(r"[A-Za-z0-9_]{1,60}")
"""A parameter's, as an id can hold it."""
FUNCTION = re.compile(r"[A-Za-z0-9_.]{1,60}")
"""A function's, with the class that it is in."""
_SHOWN = re.compile(r"[A-Za-z0-9_.+:/-]+")
_DIGEST = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One provider."""

    name: str
    parameters: tuple[str, ...]
    """Parameters that its function takes."""
    line: int
    """Line of its decorator."""
    reference: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GridDeclaration:
    """A benchmark as declared."""

    file: str
    """Path of its file, relative to the tree."""
    line: int
    """Line of its first decorator."""
    function: str
    """Name of the function, with its class if it has one."""
    parameters: tuple[str, ...] = ()
    """Parameters of the function."""
    optional: frozenset[str] = frozenset()
    """Parameters that have a default."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the decorator, without `work`, which no plan needs."""
    arms: tuple[Arm, ...] = ()
    """Providers, the decorated function first."""
    origin: str = ""
    """Format of the other tool that the benchmark is of; empty for decorated functions."""
    untimed: bool = False
    """True if the benchmark only reports numbers."""

    def fault(self, what: str, why: str, *, line: int | None = None) -> BadConfig:
        """Return an error at `what` of this benchmark."""
        place = f"{self.file}:{line or self.line}: {self.function[:MOST_SHOWN]}"
        return BadConfig(f"{place}: {what[:MOST_SHOWN]}: {why[:MOST_WORDS]}")

    @property
    def reference(self) -> Arm:
        """The arm with which the others are compared: the marked one, else the first."""
        return next((arm for arm in self.arms if arm.reference), self.arms[0])

    @property
    def ordered_arms(self) -> tuple[str, ...]:
        """The names of the arms, the reference first."""
        return tuple(dict.fromkeys((self.reference.name, *(arm.name for arm in self.arms))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One combination of parameters, by name, with its `label`: ``dtype=bf16,shape=1024x64``."""

    values: Mapping[str, Any]
    label: str


def points(declared: GridDeclaration) -> tuple[Point, ...]:
    """Return all points of a benchmark, in the order of its lists; the last one varies fastest.

    Raises:
        BadConfig: a keyword names no parameter, a parameter has no value, or two points have the
            same label.
    """
    _check(declared)
    combinations = (
        _case_points(declared) if declared.keywords.get("cases") is not None else _grid(declared)
    )
    grid_points = tuple(
        Point(values=values, label=_label_of(declared, values)) for values in combinations
    )
    for label, times in Counter(point.label for point in grid_points).items():
        if times > 1:
            alike = " and ".join(
                str(dict(point.values)) for point in grid_points if point.label == label
            )
            raise declared.fault(
                "cases" if "cases" in declared.keywords else label,
                f"{alike} would be one case; make them differ",
            )
    return grid_points


def as_json(value: Any) -> Any:
    """Convert a value for documents; a value without a JSON form is there by its label."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return value if abs(value) < LARGEST else repr(value)
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    return label_of(value)


def label_of(value: Any) -> str:
    """Return a short name of a value.

    It is ``1024x64`` for a shape, ``float32`` for torch's own, and the name of a function.

    Raises:
        ValueError: it has none that would be the same in the next run.
    """
    match value:
        case None | bool():
            text = str(value).lower()
        case int() | float() if not isinstance(value, Enum):
            text = repr(value)
        case str() if not isinstance(value, Enum):
            text = value
        case list() | tuple():
            deep = any(isinstance(item, list | tuple) for item in value)
            text = (":" if deep else "x").join(map(label_of, value)) or "empty"
        case Mapping():
            text = "_".join(f"{name}:{label_of(item)}" for name, item in value.items()) or "empty"
        case _:
            text = _name_of(value)
    return _short(text)


def _name_of(value: Any) -> str:
    """Return the name of an object that is neither text nor a number."""
    if isinstance(value, Enum):
        return str(value.name)
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and name != "<lambda>":
        return name
    if (
        type(value).__module__.partition(".")[0] == "torch"
        and "\n" not in str(value)
        and " " not in str(value)
    ):
        return str(value).removeprefix("torch.")
    raise ValueError(f"{type(value).__name__} has no short name")


def _short(text: str) -> str:
    """Return the text if an id may hold it, else its allowed part and a digest of the whole."""
    if _SHOWN.fullmatch(text) and len(text) <= LONGEST_LABEL:
        return text
    prefix = re.sub(r"[^A-Za-z0-9_.+:/-]+", "_", text)[: LONGEST_LABEL - _DIGEST - 1]
    return f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]}"


def _label_of(declared: GridDeclaration, values: Mapping[str, Any]) -> str:
    shown = []
    for name in sorted(values):
        try:
            shown.append(f"{name}={label_of(values[name])}")
        except ValueError as error:
            way_out = "write text or a number, and look the object up by it in the function"
            raise declared.fault(name, f"{error}; {way_out}") from None
        if not is_small(as_json(values[name])):
            why = f"a value of more than {LONGEST_VALUE} characters or {MOST_ITEMS} items"
            raise declared.fault(
                name, f"{why}; give it a name, and look it up by that in the function"
            )
    label = ",".join(shown)
    if len(label) > LONGEST_ID:
        raise declared.fault(
            "cases",
            f"the parameters make an id of more than {LONGEST_ID} characters; put some into one"
            " mapping",
        )
    return label


def is_small(value: Any) -> bool:
    """Return true if documents take a value as it is."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    names = value if isinstance(value, dict) else ()
    small = (
        len(items) <= MOST_ITEMS
        and len(str(value)) <= LONGEST_VALUE
        and all(len(name) <= LONGEST_LABEL for name in names)
    )
    return small and all(map(is_small, items))


def _check(declared: GridDeclaration) -> None:
    """Check everything that can be wrong besides the grid."""
    for name, form in (
        (declared.function, FUNCTION),
        *((name, NAME) for name in declared.parameters),
    ):
        if not form.fullmatch(name):
            raise declared.fault(
                "name",
                f"{name[:MOST_SHOWN]!r} is not of up to 60 letters, digits and _, as ids are",
            )
    threshold = declared.keywords.get("threshold")
    if threshold is not None and (
        isinstance(threshold, bool)
        or not isinstance(threshold, int | float)
        or not 0 < threshold < 1
    ):
        raise declared.fault(
            "threshold", f"{_quote(threshold)} is not a fraction between 0 and 1, such as 0.02"
        )
    if not isinstance(declared.keywords.get("backward", False), bool):
        raise declared.fault("backward", "True or False")
    _check_arms(declared)


def _quote(value: Any) -> str:
    try:
        return repr(value)[:MOST_SHOWN]
    except ValueError:  # Python writes no number of thousands of digits
        return "a very long number"


def _check_arms(declared: GridDeclaration) -> None:
    names = [arm.name for arm in declared.arms]
    for place, arm in enumerate(declared.arms):
        if not ARM.fullmatch(arm.name):
            raise declared.fault(
                "provider",
                f"{arm.name!r} may have letters, digits and _ . : + - only",
                line=arm.line,
            )
        if arm.name in names[:place]:
            raise declared.fault(
                "provider", f"two are called {arm.name!r}; rename one", line=arm.line
            )
        if {*arm.parameters} != {*declared.parameters}:
            owed = ", ".join(declared.parameters) or "nothing"
            raise declared.fault(
                "provider",
                f"{arm.name} takes {', '.join(arm.parameters) or 'nothing'} instead of {owed}",
                line=arm.line,
            )
    if sum(arm.reference for arm in declared.arms) > 1:
        raise declared.fault("provider", "two are marked as the reference; mark one")
    if len(names) > MOST_ARMS:
        raise declared.fault("provider", f"{len(names)} of them; at most {MOST_ARMS} are allowed")


def _case_points(declared: GridDeclaration) -> Iterator[Mapping[str, Any]]:
    """Yield the points of an explicit list."""
    others = [name for name in declared.keywords if name not in OPTIONS]
    if others:
        raise declared.fault(
            others[0], "the cases are listed under `cases`, too; write one or the other"
        )
    cases = declared.keywords["cases"]
    if (
        not isinstance(cases, list | tuple)
        or not cases
        or not all(isinstance(item, Mapping) for item in cases)
    ):
        raise declared.fault("cases", "a list of mappings, each from parameters to values")
    if len(cases) > MOST_POINTS:
        raise declared.fault(
            "cases", f"{len(cases):,} cases; at most {MOST_POINTS:,} are allowed for one function"
        )
    for number, item in enumerate(cases):
        for name in item:
            _require_parameter(declared, f"cases[{number}].{name}", str(name))
        yield _require_complete(declared, dict(item), f"cases[{number}]")


def _grid(declared: GridDeclaration) -> Iterator[Mapping[str, Any]]:
    """Yield each combination of the dimensions' values."""
    dimensions: dict[str, Sequence[Any]] = {}
    for keyword, value in declared.keywords.items():
        if keyword in OPTIONS:
            continue
        name = _parameter_of(declared, keyword)
        if name in dimensions:
            raise declared.fault(keyword, f"{name} has values already, by another keyword")
        dimensions[name] = value if isinstance(value, list) else [value]
        if not dimensions[name]:
            raise declared.fault(
                keyword, "an empty list makes no case; leave the benchmark out instead"
            )
    size = 1
    for values in dimensions.values():
        size *= len(values)
    if size > MOST_POINTS:
        raise declared.fault(
            "cases",
            f"the grid has {size:,}, but at most {MOST_POINTS:,} are allowed; list some under"
            " `cases`",
        )
    for combination in product(*dimensions.values()):
        yield _require_complete(declared, dict(zip(dimensions, combination, strict=True)), "grid")


def _parameter_of(declared: GridDeclaration, keyword: str) -> str:
    """Return the parameter that a keyword names: itself, or its singular."""
    singular = {
        keyword.removesuffix("s"),
        keyword.removesuffix("es"),
        re.sub("ies$", "y", keyword),
    } - {keyword}
    fitting = [name for name in declared.parameters if name == keyword] or [
        name for name in declared.parameters if name in singular
    ]
    if len(fitting) == 1:
        return fitting[0]
    _require_parameter(declared, keyword, keyword)
    raise AssertionError(keyword)


def _require_parameter(declared: GridDeclaration, place: str, name: str) -> None:
    if name not in declared.parameters:
        accepted = ", ".join(declared.parameters) or "none"
        near = meant(name, (*declared.parameters, *OPTIONS))
        raise declared.fault(place, f"no parameter of this name (there are: {accepted}){near}")


def _require_complete(
    declared: GridDeclaration, values: dict[str, Any], place: str
) -> Mapping[str, Any]:
    missing = [
        name for name in declared.parameters if name not in values and name not in declared.optional
    ]
    if missing:
        raise declared.fault(
            place,
            f"{missing[0]} has no value; give a list `{missing[0]}=[…]`, or the parameter a"
            " default",
        )
    return values
