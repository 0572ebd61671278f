"""Compare compiled modules with what their sources compile to.

Python runs a file in `__pycache__` as long as it names the source's size and time, so an injected
one changes a program with untouched sources. Compiling again detects it. Code objects are compared,
since equal ones may be stored differently. Line tables are left out, as they depend on options of
the interpreter.

Files that another interpreter, or a tool under its own tag (pytest), stores there cannot be
compared and are skipped.

Run as ``python -I -S bytecode.py``, this file is the process that loads the foreign bytes: paths
come in on standard input, separated by NUL; the numbers of those that passed go out. A file that
ends the process has not passed.
"""

import importlib.util
import marshal
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import CodeType

HEADER_BYTES = 16
"""Magic number, flags, and the source's time and size or hash (PEP 552)."""
TAG = re.compile(rf"\.{re.escape(sys.implementation.cache_tag or '')}(?:\.opt-([12]))?\.pyc")
TIMEOUT_S = 600.0
COMPARED = (
    "co_name",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_code",
)


def foreign_bytecode(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the `.pyc` files in `__pycache__` folders that differ from their compiled sources.

    A file that has disappeared, or whose source has, is never loaded and passes.
    """
    comparable = [path for path in paths if TAG.search(path.name)]
    if not comparable:
        return ()
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", __file__],
            input=b"\0".join(map(os.fsencode, comparable)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return tuple(comparable)
    passed = {int(number) for number in done.stdout.split()}
    return tuple(path for number, path in enumerate(comparable) if number not in passed)


def _main() -> None:
    warnings.simplefilter("ignore")
    for number, path in enumerate(sys.stdin.buffer.read().split(b"\0")):
        if _is_own(Path(os.fsdecode(path))):
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


def _is_own(path: Path) -> bool:
    try:
        stored = path.read_bytes()
        source = Path(importlib.util.source_from_cache(str(path)))
        text = source.read_bytes()
    except FileNotFoundError:
        return True
    level = TAG.search(path.name)
    try:
        compiled = compile(
            text, str(source), "exec", dont_inherit=True, optimize=int((level and level[1]) or 0)
        )
        return _is_same(marshal.loads(stored[HEADER_BYTES:]), compiled)  # noqa: S302 - in a separate process, and not run
    except Exception:  # noqa: BLE001 - whatever cannot be read or compiled has not passed
        return False


def _is_same(first: object, other: object) -> bool:
    """Return whether constants are equal, of equal types, and compute alike if they are code."""
    if type(first) is not type(other):
        return False
    if isinstance(first, CodeType) and isinstance(other, CodeType):
        alike = all(getattr(first, name) == getattr(other, name) for name in COMPARED)
        tables = getattr(first, "co_exceptiontable", b"") == getattr(
            other, "co_exceptiontable", b""
        )
        return alike and tables and _is_same(first.co_consts, other.co_consts)
    if isinstance(first, tuple) and isinstance(other, tuple):
        return len(first) == len(other) and all(map(_is_same, first, other))
    if isinstance(first, frozenset) and isinstance(other, frozenset):
        return sorted(map(repr, first)) == sorted(map(repr, other))
    return repr(first) == repr(other)


if __name__ == "__main__":
    _main()
