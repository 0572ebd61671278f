"""Suggestions for an unknown name: the nearest spelling, or the place of that name in a schema.

Pure. A wrong hint costs more than none: `mode` is not a misspelt `model` if other suites have a
`mode`. So a name that the schema has close by gets that place as its hint, and only names within
one typing error in every third character count as near.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ci_bench.records.predecessors import describe_field

MAX_WORD = 60
MOST_PLACES = 3
CANDIDATES = 5
NESTED = ("items", "then", "else")
ALTERNATIVES = ("anyOf", "oneOf", "allOf")

Places = Mapping[str, Sequence[str]]
"""Places of a field in a schema, by its name.

Examples are ``run``, ``suites.transformers.model``, and the empty text for the top.
"""


def nearest(word: str, words: Iterable[str]) -> str:
    """End a sentence with the nearest spelling, or else with all candidates."""
    candidates = list(words)
    return meant(word, candidates) or f"; known are {', '.join(candidates)}"


def meant(word: Any, candidates: Sequence[str]) -> str:
    """End a sentence with the nearest spelling; empty if none is near."""
    near = _near(word, candidates) if isinstance(word, str) else None
    return f"; did you mean {near!r}?" if near else ""


def unknown_field(name: str, fields: Sequence[str], place: Sequence[str], places: Places) -> str:
    """Describe an unknown field of a mapping at `place`; `places` are those of the whole schema."""
    if (
        place[:1] == ["suites"]
        and name not in places
        and (successor := describe_field(name, fields))
    ):
        return f"unknown field{successor}"
    near = _near(name, fields)
    homes = _homes(name, place, places)
    if not homes or (near and (near.rstrip("s") == name.rstrip("s") or not _are_kin(homes, place))):
        return f"unknown field{nearest(name, fields)}"
    remaining = len(homes) - MOST_PLACES
    *first, last = [*homes[:MOST_PLACES], f"{remaining} more"] if remaining > 0 else homes
    homes_text = f"{', '.join(first)} and {last}" if first else last
    return f"unknown field here; {name!r} belongs to {homes_text}"


def find_places(schema: Mapping[str, Any]) -> Places:
    """Return the places of all fields in a JSON Schema. Only its own definitions are followed."""
    places_of: dict[str, dict[str, None]] = {}
    for name, place in _walk(schema, schema, "", frozenset()):
        places_of.setdefault(name, {})[place] = None
    return {name: tuple(places) for name, places in places_of.items()}


def _walk(
    node: Any, root: Mapping[str, Any], place: str, followed: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yield each field with its place. A schema that refers to itself is followed once."""
    if not isinstance(node, Mapping):
        return
    target = str(node.get("$ref", ""))
    if target.startswith("#/$defs/") and target not in followed:
        yield from _walk(
            root.get("$defs", {}).get(target.removeprefix("#/$defs/")),
            root,
            place,
            followed | {target},
        )
    for name, child in node.get("properties", {}).items():
        yield name, place
        yield from _walk(child, root, f"{place}.{name}".removeprefix("."), followed)
    inner = [node.get(key) for key in NESTED] + [
        child for key in ALTERNATIVES for child in node.get(key, ())
    ]
    for child in inner:
        yield from _walk(child, root, place, followed)


def _homes(name: str, place: Sequence[str], places: Places) -> list[str]:
    """Return the nearest places of a field: those inside of the same suite, else the outermost."""
    here = ".".join(place)
    others = [home for home in places.get(name, ()) if home != here]
    inside = [home for home in others if here and home.startswith(f"{here}.")]
    chosen = inside or others
    depth = min((home.count(".") for home in chosen), default=0)
    return [home or "the top level" for home in chosen if home.count(".") == depth]


def _are_kin(homes: Sequence[str], place: Sequence[str]) -> bool:
    """Return whether one of the homes is inside of the place or next to it, as another suite is.

    Then the name was not a typing error.
    """
    here = ".".join(place)
    return any(
        home.startswith(f"{here}.") or home.rpartition(".")[0] == here.rpartition(".")[0]
        for home in homes
        if home
    )


def _near(word: str, candidates: Sequence[str]) -> str | None:
    from difflib import get_close_matches

    short = word[:MAX_WORD]
    return next(
        (
            name
            for name in get_close_matches(short, candidates, CANDIDATES)
            if _is_near(short, name)
        ),
        None,
    )


def _is_near(word: str, name: str) -> bool:
    """Return whether one is a prefix of the other, or differs by one slip per three characters."""
    begins = name.startswith(word) or word.startswith(name)
    return begins or slips(word.lower(), name.lower()) <= max(1, len(word) // 3)


def slips(word: str, other: str) -> int:
    """Count the characters missing, added, wrong, or swapped (optimal string alignment distance).

    https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance#Optimal_string_alignment_distance
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(word, start=1):
        now = [row]
        for column, target in enumerate(other, start=1):
            cost = min(last[column] + 1, now[column - 1] + 1, last[column - 1] + (letter != target))
            if row > 1 and column > 1 and letter == other[column - 2] and word[row - 2] == target:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]
