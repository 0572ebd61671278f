"""Changes to a document that a stranger could make: of its bytes, and of its values where it is JSON.

Deterministic for a seed. Coverage-guided engines take it as their mutator; without one, it is the whole engine.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, -(2**63), 10**30, 1e308, -1e-308, float("nan"), float("inf"), 0.5),
    *(
        "",
        "x" * 300,
        "\ud800",
        "\u202e",
        "\x00",
        "nan",
        "1e999",
        "../../etc/passwd",
        "${{ x }}",
        "::error::x",
        "=1+1",
        "<b>",
        "|`@u #1",
    ),
    *([], {}, [[]], [None], {"": 0}, {"kind": "results"}, [0] * 50, {"a": {"a": {"a": {}}}}),
)
TOKENS = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"1e999",
    b"NaN",
    b"-",
    b"[" * 50,
    b"{",
    b'"',
    b"\\u0000",
    b"\\",
    b"&a *a",
    b"!!python/object:x",
    b",",
)
MAX_BYTES = 20_000

Change = Callable[[bytes, random.Random], bytes]


def mutate(content: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four changes; half of the time of values, where the content is JSON. `others` are spliced in."""
    for _ in range(rng.randint(1, 4)):
        changed = _values(content, rng) if rng.random() < 0.5 else None  # noqa: PLR2004 - as said above
        content = changed if changed is not None else rng.choice(_BYTES)(content, rng)
        if others and rng.random() < 0.05:  # noqa: PLR2004 - rarely
            content = _splice(content, rng.choice(others), rng)
    return content[:MAX_BYTES]


def _values(content: bytes, rng: random.Random) -> bytes | None:
    """A change of one value, at a random place; `None` where this is no JSON."""
    try:
        root = json.loads(content)
    except (ValueError, RecursionError):
        return None
    places: list[tuple[Any, Any]] = []
    _walk(root, places)
    if not places:
        return json.dumps(rng.choice(ODD)).encode()
    holder, key = rng.choice(places)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1:
            other, name = rng.choice(places)
            holder[key] = other[name]
        case 2 if isinstance(holder, dict):
            holder[rng.choice(("", "kind", "x" * 80, "\ud800", f"{key}s"))] = holder.pop(key)
        case 3 if isinstance(holder, list):
            holder.extend([holder[key]] * rng.choice((1, 2, 100)))
        case _:
            holder[key] = rng.choice(ODD)
    try:
        return json.dumps(root).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # a value became its own part
        return content


def _walk(value: Any, places: list[tuple[Any, Any]]) -> None:
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, item in items:
        places.append((value, key))
        _walk(item, places)


def _flip(content: bytes, rng: random.Random) -> bytes:
    spot = rng.randrange(len(content) + 1)
    return content[:spot] + bytes([rng.randrange(256)]) + content[spot + 1 :]


def _cut(content: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + content[end:]


def _twice(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    piece = content[start : start + rng.randint(1, 200)]
    return content[:start] + piece * rng.choice((2, 2, 30)) + content[start + len(piece) :]


def _token(content: bytes, rng: random.Random) -> bytes:
    spot = rng.randrange(len(content) + 1)
    return content[:spot] + rng.choice(TOKENS) + content[spot:]


def _splice(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


_BYTES: tuple[Change, ...] = (_flip, _flip, _cut, _twice, _token)
