"""Import paths and backends in a configuration that certainly do not exist.

Runs none of the tree's code.

Only what is certain is refused, because a configuration may be checked where the measured code is
not installed:

- a module's file that is in the tree, and binds no such name at its top level. One with a star
import, `__getattr__` or names that are made at run time may have any; - a module of the tree's own
package that has no file, a file named by its path that is not there, and a top-level package that
is neither in the tree nor installed: only where torch is installed, as it is where one measures,
and where no set-up command may make or install it; - a model of `source: own` in neither of the two
forms; - a backend one slip away from one that torch ships, unless an installed package registers it
(``torch_dynamo_backends``). Any other name may be registered where it is measured.
"""

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ci_bench.records.faults import Fault, show, step
from ci_bench.records.spelling import meant, slips

BACKENDS = (
    "inductor",
    "eager",
    "aot_eager",
    "cudagraphs",
    "tensorrt",
    "torch_tensorrt",
    "onnxrt",
    "openxla",
    "tvm",
)
"""Backends of torch that users name (``torch/_dynamo/backends``)."""
MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of `torch.compile`: candidates of the suite `transformers`, but not backends."""
ENTRY_POINTS = "torch_dynamo_backends"
OWN = "own"
"""The source of models that are named by import path (`torchbench`)."""
IMPORTED = frozenset({"factory", "loss", "optimizer", "backend", "candidate"})
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"path:(?P<file>.+?),class:(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_FORMS = "package.module:NAME nor path:FILE,class:NAME"
_CORRECT = "; correct the name"
_DYNAMIC = frozenset({"globals", "exec", "setattr", "vars"})


def backend_faults(raw: Any, *, suites: Container[str]) -> Iterator[Fault]:
    """Yield a fault for each misspelt backend or mode in entries of these `suites`."""
    for path, name, word in _words(_at(raw, "suites"), suites):
        if name in {"backend", "candidate"} and ":" not in word and not _is_known(word):
            near = [
                backend
                for backend in (*BACKENDS, *MODES)
                if not word.startswith(backend) and slips(word, backend) == 1
            ]
            if near:
                kind = "mode of torch.compile" if near[0] in MODES else "backend"
                yield Fault(
                    path, f"{show(word)} is not a {kind} that torch has; did you mean {near[0]!r}?"
                )


def import_faults(raw: Any, folders: Sequence[Path], *, suites: Container[str]) -> Iterator[Fault]:
    """Yield a fault for each import path that leads nowhere.

    `folders` are those that the tree's modules are looked for in.
    """
    set_up = bool(_at(_at(raw, "setup"), "commands"))
    certain = not set_up and _has_torch()
    for path, word in _import_paths(raw, suites):
        if fault := _missing(word, folders, certain=certain):
            yield Fault(path, f"{show(word)}: {fault}")


def _missing(word: str, folders: Sequence[Path], *, certain: bool) -> str | None:
    if match := _FILE.fullmatch(word):
        return _missing_in_file(
            Path(match["file"]).expanduser(), match["name"], folders, certain=certain
        )
    if not _PATH.fullmatch(word):
        return f"neither {_FORMS}"
    module, _, attribute = word.partition(":")
    return _missing_in_module(module, attribute, folders, certain=certain)


def _missing_in_file(
    file: Path, attribute: str, folders: Sequence[Path], *, certain: bool
) -> str | None:
    """Look for a file from the folder where a run starts, which is the first of the tree's."""
    place = folders[0] / file
    if place.is_file():
        return _without([place], attribute)
    beside = [other.name for other in place.parent.glob("*.py")]
    return f"no Python file {place}{meant(place.name, beside) or _CORRECT}" if certain else None


def _missing_in_module(
    module: str, attribute: str, folders: Sequence[Path], *, certain: bool
) -> str | None:
    parts = module.split(".")
    if "" in parts:
        return "an empty name between dots; write package.module:NAME"
    homes = [folder for folder in folders if _is_there(folder / parts[0])]
    if not homes:
        if not certain or _is_installed(parts[0]):
            return None
        where, near = " or ".join(map(str, folders)), meant(parts[0], _modules(folders))
        return (
            f"the module {parts[0]!r} is neither in {where} nor installed{near}; correct the name,"
            " or install it"
        )
    places = [folder.joinpath(*parts) for folder in homes]
    files = [
        file
        for place in places
        for file in (place.with_suffix(".py"), place / "__init__.py")
        if file.is_file()
    ]
    if not files:
        elsewhere = any(_is_there(place) for place in places) or _is_installed(parts[0])
        near = meant(parts[-1], _modules([place.parent for place in places])) or _CORRECT
        return None if elsewhere or not certain else f"no module {module} in {homes[0]}{near}"
    return _without(files, attribute)


def _without(files: Sequence[Path], attribute: str) -> str | None:
    """Report that no file has the name; `None` if one has it, or may."""
    if any(_may_have(file, attribute) for file in files):
        return None
    return f"{files[0]} has no {attribute!r}{meant(attribute, _top_level(files[0])) or _CORRECT}"


def _modules(folders: Iterable[Path]) -> list[str]:
    """List the Python modules that can be imported from these folders."""
    files = (
        file for folder in folders for file in (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
    )
    return sorted({file.parent.name if file.stem == "__init__" else file.stem for file in files})


def _top_level(file: Path) -> list[str]:
    """List the functions, classes and variables of a module that was parsed before."""
    body = ast.parse(file.read_bytes()).body
    defined = [
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    assigned = [
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return [*defined, *assigned]


def _is_there(place: Path) -> bool:
    """Return whether it exists as a file, a package, or an extension module."""
    return (
        place.is_dir()
        or place.with_suffix(".py").is_file()
        or any(place.parent.glob(f"{place.name}.*"))
    )


def _has_torch() -> bool:
    """Return whether this environment can measure; one that only reads lacks the tree's imports."""
    try:
        return find_spec("torch") is not None
    except ImportError:
        return False


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return True


def _may_have(file: Path, attribute: str) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True
    if (file.parent / attribute).is_dir() or (file.parent / f"{attribute}.py").is_file():
        return True
    return any(_binds(node, attribute) for node in ast.walk(tree))


def _binds(node: ast.AST, name: str) -> bool:
    """Return whether a part of a module may bind a name, also as global in a function."""
    match node:
        case (
            ast.FunctionDef(name=bound)
            | ast.AsyncFunctionDef(name=bound)
            | ast.ClassDef(name=bound)
        ):
            return bound in {name, "__getattr__"}
        case ast.Name(id=bound, ctx=ast.Store()):
            return bound == name
        case ast.Name(id=bound):
            return bound in _DYNAMIC
        case ast.alias(name=bound, asname=other):
            return bound == "*" or (other or bound.partition(".")[0]) == name
        case ast.ExceptHandler(name=bound) | ast.MatchAs(name=bound) | ast.MatchStar(name=bound):
            return bound == name
    return False


def _import_paths(raw: Any, suites: Container[str]) -> Iterator[tuple[str, str]]:
    plugins = _at(raw, "plugins")
    for name, entry in plugins.items() if isinstance(plugins, Mapping) else ():
        target = _at(entry, "target") if isinstance(entry, Mapping) else entry
        if isinstance(target, str) and _PATH.fullmatch(target):
            yield step("$.plugins", str(name)), target
    for path, name, word in _words(_at(raw, "suites"), suites):
        if name in IMPORTED and _PATH.fullmatch(word):
            yield path, word
    yield from _own_models(_at(raw, "suites"), suites)


def _own_models(entries: Any, suites: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the models of entries whose source is the user's own code."""
    for suite, items in entries.items() if isinstance(entries, Mapping) else ():
        for number, entry in enumerate(
            items if suite in suites and isinstance(items, list) else ()
        ):
            models = _at(entry, "models") if _at(entry, "source") == OWN else None
            for place, model in enumerate(models if isinstance(models, list) else ()):
                if isinstance(model, str):
                    yield (
                        step(step(step(step("$.suites", str(suite)), number), "models"), place),
                        model,
                    )


def _words(entries: Any, suites: Container[str]) -> Iterator[tuple[str, str, str]]:
    """Each text of the suites' entries: its path, its field, and the text.

    Fields of a plugin's entries mean what it likes.
    """
    for suite, items in entries.items() if isinstance(entries, Mapping) else ():
        if suite in suites:
            yield from _texts(items, step("$.suites", str(suite)), "")


def _texts(value: Any, path: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the texts in a value; a list's items are in the list's field."""
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, step(path, str(key)), str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, step(path, index), name)


def _at(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _is_known(word: str) -> bool:
    return word in BACKENDS or word in MODES or word in _registered()


@cache
def _registered() -> frozenset[str]:
    """Return the backends that installed packages register."""
    from importlib.metadata import entry_points

    return frozenset(entry.name for entry in entry_points(group=ENTRY_POINTS))
