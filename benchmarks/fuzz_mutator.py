"""Changes that a stranger could make to a document: of its bytes, and of values in JSON.

Deterministic for a seed. Coverage-guided engines take `mutate` as their mutator; without one, a
`Herd` is the whole engine. It keeps its seeds parsed, so that an input costs one `json.dumps` and
no more.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**63,
        -(2**63),
        10**30,
        1e308,
        -1e-308,
        float("nan"),
        float("inf"),
        0.5,
    ),
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

MOST_TEXT = 6_000
"""Bytes of a seed beyond which `slim` is worth its while."""

Change = Callable[[bytes, random.Random], bytes]
Undo = Callable[[], object]


def mutate(content: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Make one to four changes, half of the time of values if the content is JSON.

    `others` are spliced in.
    """
    for _ in range(rng.randint(1, 4)):
        changed = _values(content, rng) if rng.random() < 0.5 else None  # noqa: PLR2004 - as said above
        content = changed if changed is not None else rng.choice(_BYTES)(content, rng)
        if others and rng.random() < 0.05:  # noqa: PLR2004 - rarely
            content = _splice(content, rng.choice(others), rng)
    return content[:MAX_BYTES]


def _values(content: bytes, rng: random.Random) -> bytes | None:
    """Change one value at a random place; `None` if this is not JSON."""
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
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
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


_SEPARATORS = (b",", b"\n", b" ", b"\t", b":")
_CELLS = (
    *(
        b"",
        b"nan",
        b"NaN",
        b"-inf",
        b"0",
        b"0.0",
        b"-1",
        b"1e999",
        b"1e-320",
        b"9" * 400,
        b"1_0",
        b"0x10",
        b"1,234",
    ),
    *(
        "\u0663".encode(),
        "\u2212 1".encode(),
        "\u221e".encode(),
        "caf\u00e9".encode(),
        b"\xe9",
        b'"',
        b'"a,b"',
        b"x" * 300,
    ),
    *(
        b"pass",
        b"fail_accuracy",
        b"ns/op",
        b"B/s",
        b"us",
        b"% change",
        b"--- FAIL: BenchmarkX",
        b"name,accuracy",
    ),
)
"""Words that a cell of a table, or a line of a log, may hold instead of its own."""
_FIELD = re.compile(rb'"[^"\\]{1,60}"\s*:\s*(?:"[^"\\]{0,200}"|[-+.\w]+)')


def _cell(content: bytes, rng: random.Random) -> bytes:
    """Replace the word at a random place."""
    spot = rng.randrange(len(content) + 1)
    start = max(content.rfind(separator, 0, spot) for separator in _SEPARATORS) + 1
    ends = [end for separator in _SEPARATORS if (end := content.find(separator, spot)) >= 0]
    return content[:start] + rng.choice(_CELLS) + content[min(ends, default=len(content)) :]


def _line(content: bytes, rng: random.Random) -> bytes:
    """Drop, double or move a line."""
    lines = content.splitlines(keepends=True) or [b""]
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.randrange(3)):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _field_twice(content: bytes, rng: random.Random) -> bytes:
    """Repeat a field of an object."""
    match = _FIELD.search(content, rng.randrange(len(content) + 1))
    return (
        content
        if match is None
        else content[: match.end()] + b", " + match[0] + content[match.end() :]
    )


def _splice(content: bytes, other: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


class Herd:
    """Documents to change, parsed once where they are JSON.

    The same seeds and dice give the same inputs.
    """

    def __init__(self, seeds: Sequence[bytes]) -> None:
        """Draw from `seeds`, which are sound documents."""
        self.seeds = tuple(seeds)
        self._trees = tuple(_tree(seed) for seed in self.seeds)

    def draw(self, rng: random.Random) -> bytes:
        """Return one of the documents with one to four changes.

        The first ones are of values if it is JSON, the others of bytes.
        """
        which = rng.randrange(len(self.seeds))
        tree, changes = self._trees[which], rng.randint(1, 4)
        least = 0 if rng.random() < _ONLY_BYTES else 1 if rng.random() < _MIXED else changes
        valued = 0 if tree is None or not least else rng.randint(least, changes)
        content = self.seeds[which] if tree is None or not valued else _changed(tree, valued, rng)
        kinds = _OF_TEXTS if tree is None else _BYTES
        for _ in range(changes - valued):
            content = rng.choice(kinds)(content, rng)
        if rng.random() < _SPLICED:
            content = _splice(content, rng.choice(self.seeds), rng)
        return content[:MAX_BYTES]


_ONLY_BYTES, _MIXED, _SPLICED = 0.25, 0.3, 0.04
"""Shares of inputs. Most changes of bytes end in the parser of JSON, which needs no million tries;
what lies behind it does.
"""

Places = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class _Tree:
    """A document in a list, so that its root can be changed as well, and every place in it.

    `write` makes a text of the root.
    """

    holder: list[Any]
    places: Places
    write: Callable[[Any], str]


def _tree(seed: bytes) -> _Tree | None:
    """Parse a document: JSON, a script that assigns one, or JSON lines; else return `None`."""
    for parse in (_parse_document, _assigned, _by_line):
        try:
            root, write = parse(seed.decode())
        except (ValueError, RecursionError):
            continue
        holder = [root]
        places: Places = []
        _walk(holder, places)
        return _Tree(holder, places, write)
    return None


Parsed = tuple[Any, Callable[[Any], str]]


def _parse_document(text: str) -> Parsed:
    return json.loads(text), json.dumps


def _assigned(text: str) -> Parsed:
    name, equals, value = text.partition("=")
    return json.loads(value.strip().rstrip(";")), lambda root: f"{name}{equals} {json.dumps(root)}"


def _by_line(text: str) -> Parsed:
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    return (
        lines,
        lambda root: (
            "\n".join(map(json.dumps, root)) if isinstance(root, list) else json.dumps(root)
        ),
    )


def _changed(tree: _Tree, changes: int, rng: random.Random) -> bytes:
    """Return the document with some values changed; its tree is restored afterwards."""
    holder, places = tree.holder, tree.places
    undone = [_change(*rng.choice(places), places, rng) for _ in range(changes)]
    try:
        return tree.write(holder[0] if holder else None).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # a value became its own part
        return b"[" * 2000
    finally:
        for undo in reversed(undone):
            undo()


def _change(holder: Any, key: Any, places: Places, rng: random.Random) -> Undo:
    """Change one value in its holder. Returns what takes it back."""
    if isinstance(holder, dict):
        return _change_field(holder, key, places, rng)
    before = list(holder)
    place = min(key, len(holder) - 1)
    match rng.randrange(5):
        case _ if not holder:
            holder.append(rng.choice(ODD))
        case 0:
            del holder[place]
        case 1:
            holder[place] = _another(places, rng)
        case 2:
            holder.extend([holder[place]] * rng.choice((1, 2, 100)))
        case _:
            holder[place] = _draw_odd(holder[place], rng)
    return lambda: holder.__setitem__(slice(None), before)


def _change_field(holder: dict[Any, Any], key: Any, places: Places, rng: random.Random) -> Undo:
    before = dict(holder)
    match rng.randrange(5):
        case 0:
            holder.pop(key, None)
        case 1:
            holder[key] = _another(places, rng)
        case 2:
            holder[rng.choice(("", "kind", "x" * 80, "\ud800", f"{key}s"))] = holder.pop(key, None)
        case _:
            holder[key] = _draw_odd(holder.get(key), rng)

    def undo() -> None:
        holder.clear()
        holder.update(before)

    return undo


def _another(places: Places, rng: random.Random) -> Any:
    """Return a value from elsewhere in the document."""
    holder, key = rng.choice(places)
    return (
        holder.get(key) if isinstance(holder, dict) else holder[key] if key < len(holder) else None
    )


def _draw_odd(value: Any, rng: random.Random) -> Any:
    """Return any odd value, or, as often, one of the same kind.

    Those are refused late or not at all.
    """
    if rng.random() < _ANY:
        return rng.choice(ODD)
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None))
    if isinstance(value, int | float):
        return (
            rng.choice(_NUMBERS)
            if rng.random() < _ANY
            else value * rng.choice((-1, 2, 10, 1e9, 1e-9))
        )
    if isinstance(value, str):
        spot = rng.randrange(len(value) + 1)
        return value[:spot] + rng.choice(_TEXTS) + value[spot + rng.randrange(3) :]
    return rng.choice(([], {}))


_ANY = 0.5
_NUMBERS = tuple(
    value for value in ODD if isinstance(value, int | float) and not isinstance(value, bool)
)
_TEXTS = (*(value for value in ODD if isinstance(value, str)), "a", "1", " ", "/", "\n", "é")


def slim(content: bytes, is_accepted: Callable[[bytes], bool]) -> bytes:
    """Return a large document with at most two items in each list, if that is still accepted.

    Small inputs are fed more often.
    """
    if len(content) <= MOST_TEXT:
        return content
    try:
        thinner = json.dumps(_thinned(json.loads(content))).encode()
    except ValueError:
        return content
    return thinner if is_accepted(thinner) else content


def _thinned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _thinned(item) for key, item in value.items()}
    return [_thinned(item) for item in value[:2]] if isinstance(value, list) else value


_BYTES: tuple[Change, ...] = (_flip, _flip, _cut, _twice, _token, _field_twice)
_OF_TEXTS: tuple[Change, ...] = (*_BYTES, _cell, _cell, _cell, _cell, _line, _line)
"""Of what is no JSON: most changes of its bytes leave no table and no log, and what lies behind
those needs the tries.
"""
