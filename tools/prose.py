"""Count phrases that read as translated, per file.

Run as `python tools/prose.py [--update] [--list PATH ...]`.

`tests/prose_limits.json` holds the highest count allowed for each file. `tests/test_prose.py` fails
if a count rises or if a limit is too high. `--update` writes the present counts, `--list` prints
each phrase with its line.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
LIMITS = ROOT / "tests" / "prose_limits.json"

PATTERNS = (
    r"\btold\b|\btells (?:apart|what|whether|which|of)\b",
    r"\bg(?:o|oes|one) on\b",
    r"\b(?:held|holds?) (?:\w+ ){0,3}against\b",
    r"\b(?!(?:let|leave|it|them) )\w+ alone\b",
    r"\bbeside\b",
    r"\bby itself\b|\bof (?:its|their|one's) own\b|\bone's own\b",
    r"\b(?:anew|afresh)\b",
    r"\b(?:is|are) no (?!longer|more)\w+|\b(?:is|are) none\b",
    r"\b(?:lies?|stands?) (?:in|at|on|beside|there)\b",
    r"(?:^|[.;:] )Where [^?]{3,90},",
    r"(?:^|[.;:] )What (?!.*\?)",
    r"\bwhoever\b|\bwho (?:comes|waits|may|is)\b",
    r", say\b",
    r"\bso many\b",
    r"\ball the same\b",
    r"\bof before\b|\bthe (?:run|call|launch) before\b",
    r"\bmend(?:s|ed|ing)?\b",
    r"\bhangs? on\b",
    r"\bbe had\b",
    r"\bin (?:the )?place of\b",
    r"\bnobody\b",
    r"\b(?:comes?|came) of\b",
    r"\bat once\b",
    r"\bbegun\b|\bbegins? anew\b",
    r"\bsa(?:id|ys) no\b|\bis said\b",
    r"\bplant(?:s|ed)?\b",
    r"\bwants?\b(?! to)",
    r", so that\b",
)
_SENTENCE_START = r"(?:^|[.;:] )"
DIALECT = [
    re.compile(pattern, 0 if pattern.startswith(_SENTENCE_START) else re.IGNORECASE)
    for pattern in PATTERNS
]
_COMMENT = re.compile(r"(?:^|  )\s*# (.*)$")

GROUPS = {
    "README": ("README.md",),
    "action files": ("action.yml", "report/action.yml"),
    "documentation": (
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/*.md",
        "docs/suites/*.md",
        "docs/internals/*.md",
        "docs/internals/adr/*.md",
    ),
    "changelog": ("CHANGELOG.md",),
    "schemas": ("schemas/*.json",),
    "strings": ("src/ci_bench/**/*.py",),
    "docstrings": ("src/ci_bench/**/*.py",),
}
INTERNAL = frozenset({"docs/internals/measurements.md"})
"""Records of trials, which users do not read."""

Text = tuple[int, str]
"""A line number, and a paragraph or a string that starts there."""


def markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs of a page, without code, link targets and comments."""
    source = re.sub(
        r"(?ms)^(\s*)(`{3,}|~{3,}).*?^\s*\2\s*$", lambda match: "\n" * match[0].count("\n"), source
    )
    source = re.sub(r"(?s)<!--.*?-->", lambda match: "\n" * match[0].count("\n"), source)
    source = re.sub(r"(`+)(?:(?!\1).)+?\1", "CODE", source)
    source = re.sub(r"\]\([^)]*\)", "]", source)
    line = 1
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*(?:[-*|>#]|\d+\.) ?))", source):
        if paragraph.strip():
            text = re.sub(r"^[\s>#*|-]+", "", paragraph)
            yield line, " ".join(text.split())
        line += paragraph.count("\n")


def descriptions(value: Any) -> Iterator[Text]:
    """Yield the descriptions and titles of a schema or an action; they have no line numbers."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key in {"description", "title", "deprecationMessage"} and isinstance(child, str):
                yield 0, re.sub(r"`[^`]*`", "CODE", child)
            else:
                yield from descriptions(child)
    elif isinstance(value, list):
        for child in value:
            yield from descriptions(child)


def strings(source: str) -> Iterator[Text]:
    """Yield the string constants of a module that are sentences.

    An f-string is one text, with X for each of its values.
    """
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr | ast.Constant | ast.JoinedStr)
    ]
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    skipped |= {
        id(child)
        for node in nodes
        if isinstance(node, ast.JoinedStr)
        for child in ast.walk(node)
        if child is not node
    }
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        else:
            continue
        if " " in text.strip():
            yield node.lineno, text


def docstrings(source: str) -> Iterator[Text]:
    """Yield the docstrings and comments of a module."""
    for node in _statements(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            for paragraph in node.value.value.split("\n\n"):
                yield node.lineno, " ".join(re.sub(r"``[^`]*``|`[^`]*`", "CODE", paragraph).split())
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line and (comment := _COMMENT.search(line)):
            yield number, comment[1]


def _statements(parent: Any) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(parent, field, ()):
            yield child
            yield from _statements(child)


def hits(text: str) -> list[str]:
    """Return the phrases of a text that read as translated."""
    return [match[0] for pattern in DIALECT for match in pattern.finditer(text)]


def texts(group: str, path: Path) -> list[Text]:
    """Return the texts of a file that belong to a group."""
    source = path.read_text(encoding="utf-8")
    if group == "schemas":
        return [*descriptions(json.loads(source))]
    if group == "action files":
        return [*descriptions(yaml.safe_load(source))]
    if group in {"strings", "docstrings"}:
        return [*(strings if group == "strings" else docstrings)(source)]
    return [*markdown(source)]


def files(group: str) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file of a group."""
    for pattern in GROUPS[group]:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if name not in INTERNAL and not path.is_symlink() and "schemas/examples" not in name:
                yield name, path


def counts() -> dict[str, dict[str, int]]:
    """Return the number of phrases by group and file; files without any are left out."""
    return {
        group: {
            name: number
            for name, path in files(group)
            if (number := sum(len(hits(text)) for _, text in texts(group, path)))
        }
        for group in GROUPS
    }


def words(group: str) -> int:
    """Return the number of words of a group."""
    return sum(
        len(re.findall(r"[A-Za-z][\w'’-]*", text))
        for _, path in files(group)
        for _, text in texts(group, path)
    )


def main(arguments: list[str]) -> int:
    """Print a table of all groups, or what the arguments ask for."""
    if arguments[:1] == ["--list"]:
        for group in GROUPS:
            for name, path in files(group):
                if any(name.startswith(prefix) for prefix in arguments[1:]):
                    for line, text in texts(group, path):
                        for phrase in hits(text):
                            sys.stdout.write(
                                f"{name}:{line}: {group}: {phrase.strip()!r} in {text[:160]!r}\n"
                            )
        return 0
    by_group = counts()
    if arguments == ["--update"]:
        LIMITS.write_text(json.dumps(by_group, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for group in GROUPS:
        total, size = sum(by_group[group].values()), words(group)
        sys.stdout.write(
            f"{group:14} {total:5} in {size:7,} words: {1000 * total / size:5.1f} per 1,000\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
