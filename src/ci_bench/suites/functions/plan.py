"""The torch-free half of `functions`: files to benchmarks, grid points to cases, cases to stages.

Files are read, not run, if their decorators use only literals (`literal`). If one of them has to be
imported, a separate process makes the plan: `plan_by_import` starts it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from ci_bench.errors import BadConfig, NothingInTree
from ci_bench.records.metrics import STEP_TIME
from ci_bench.records.results import Case, Due
from ci_bench.suites.contract import Stage, StageKind, Suite
from ci_bench.suites.functions import literal
from ci_bench.suites.functions.bodies import digest_of
from ci_bench.suites.functions.collecting.recognising import RECOGNISED, recognise
from ci_bench.suites.functions.grids import GridDeclaration, Point, as_json, points

FORWARD, BACKWARD = "forward_time", "backward_time"
AGREES, REFEREED = "agrees", "refereed"
MEMORY_LAUNCHES = (0, 1)
"""Peaks are taken in two launches: where they repeat exactly they can be compared exactly."""
LONGEST_NAME, MOST_KNOWN = 80, 1000
MOST_FILES = 1000
MOST_BYTES = 4 << 20
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(kw_only=True, slots=True)
class Functions(Suite):
    """Every benchmark of some files, at every point of its grid."""

    name: str = "functions"
    """Name of the suite."""
    worker: str = "ci_bench.suites.functions.run"
    """Module of the worker's half."""
    preload: tuple[str, ...] = ("torch",)
    """Modules that workers import before they measure."""
    folder: Path = field(default_factory=Path)
    """Root of the tree, which paths are relative to."""
    plan_by_import: Callable[[Mapping[str, Any]], tuple[Case, ...]] | None = None
    """Planner that imports the files in a separate process; `None` if that is not allowed."""

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan the cases of one entry.

        Raises:
            BadConfig: a path leads nowhere, the files have no benchmark, or one contradicts itself.
        """
        files = files_of(self.folder, options)
        read = [_read(self.folder, file) for file in files]
        literals = [declared for declared in read if declared is not None]
        if len(literals) == len(read):
            return self._with_bodies(
                cases_of([benchmark for declared in literals for benchmark in declared], options)
            )
        if self.plan_by_import is None:
            dynamic = files[read.index(None)]
            raise BadConfig(
                f"{dynamic}: has to be imported to be planned, which only commands that measure or"
                " list do"
            )
        return self._with_bodies(self.plan_by_import(options))

    def _with_bodies(self, cases: tuple[Case, ...]) -> tuple[Case, ...]:
        """Return the cases with digests of their code, as the files' text has it."""
        functions = {(str(case.params["file"]), str(case.params["function"])) for case in cases}
        bodies = {
            (file, function): digest_of(source_of(self.folder, file), function)
            for file, function in functions
        }
        return tuple(
            replace(case, body=bodies[case.params["file"], case.params["function"]])
            for case in cases
        )

    def reads(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the paths of the files."""
        return tuple(_paths(options))

    def stages(self, case: Case) -> tuple[Stage, ...]:
        """Verify before timing, then memory and time.

        A case that only reports numbers reports them twice.
        """
        memory = (
            Stage(kind=StageKind.ALONE, arms=(arm,), launches=MEMORY_LAUNCHES) for arm in case.arms
        )
        verify = Stage(kind=StageKind.VERIFY, arms=case.arms)
        if case.params.get("untimed"):
            return (replace(verify, launches=MEMORY_LAUNCHES),)
        return (verify, *memory, Stage(kind=StageKind.TIME, arms=case.arms, launches=None))


SUITE = Functions()


def must_be_imported(folder: Path, options: Mapping[str, Any]) -> bool:
    """Return true if planning an entry runs code of the tree.

    Faults in the entry are not reported here.
    """
    try:
        return any(_read(folder, file) is None for file in files_of(folder, options))
    except BadConfig:
        return False


def files_of(folder: Path, options: Mapping[str, Any]) -> list[str]:
    """Return the Python files that an entry names, relative to the tree, each once.

    Raises:
        BadConfig: a path leads nowhere, or out of the tree.
    """
    files: dict[str, None] = {}
    for path in _paths(options):
        files |= dict.fromkeys(_below(folder, path))
    if len(files) > MOST_FILES:
        raise BadConfig(
            f"suites.functions: {len(files):,} files; at most {MOST_FILES:,} are allowed"
        )
    return list(files)


def cases_of(declared: Sequence[GridDeclaration], options: Mapping[str, Any]) -> tuple[Case, ...]:
    """Return the cases of benchmarks that were read or imported, in their order.

    Raises:
        BadConfig: no benchmark is given, two have the same name, or one contradicts itself.
    """
    selected = [benchmark for benchmark in declared if _is_wanted(benchmark.function, options)]
    if not selected:
        where, functions = (
            " ".join(_paths(options)),
            ", ".join(dict.fromkeys(benchmark.function for benchmark in declared)),
        )
        why = (
            f"none of its benchmarks fits match ({functions[:MOST_KNOWN]})"
            if functions
            else f"it has no benchmark; recognised are {RECOGNISED}"
        )
        raise NothingInTree(f"suites.functions: {where}: {why}")
    names, prefix = _names(selected), f"{options['name']}." if "name" in options else ""
    return tuple(
        _case(benchmark, f"{prefix}{names[benchmark.file, benchmark.function]}", point)
        for benchmark in selected
        for point in points(benchmark)
    )


def _names(declared: Sequence[GridDeclaration]) -> dict[tuple[str, str], str]:
    """Return the name of each benchmark: its function, after its file if two files share it."""
    lines: dict[tuple[str, str], int] = {}
    for benchmark in declared:
        if (
            line := lines.setdefault((benchmark.file, benchmark.function), benchmark.line)
        ) != benchmark.line:
            raise benchmark.fault("name", f"line {line} has a benchmark of this name; rename one")
    files = Counter(function for _, function in lines)
    stems = Counter((PurePosixPath(file).stem, function) for file, function in lines)
    names = {}
    for file, function in lines:
        path = PurePosixPath(file)
        file_part = (
            path.stem if stems[path.stem, function] == 1 else ".".join(path.with_suffix("").parts)
        )
        clean_part = re.sub(r"[^A-Za-z0-9_.-]", "_", file_part)
        names[file, function] = function if files[function] == 1 else f"{clean_part}.{function}"
    return names


def _case(declared: GridDeclaration, name: str, point: Point) -> Case:
    if len(name) > LONGEST_NAME:
        raise declared.fault(
            "name", f"{name} has more than {LONGEST_NAME} characters, the most of a case's name"
        )
    arms = declared.ordered_arms
    backward = declared.keywords.get("backward", False)
    options: dict[str, Any] = {"backward": True} if backward else {}
    options |= {"origin": declared.origin} if declared.origin else {}
    options |= {"untimed": True} if declared.untimed else {}
    return Case(
        id=f"functions/{name}[{point.label}]" if point.label else f"functions/{name}",
        suite="functions",
        name=name,
        params={
            "file": declared.file,
            "function": declared.function,
            "point": point.label,
            "parameters": {parameter: as_json(value) for parameter, value in point.values.items()},
            **options,
        },
        arms=arms,
        reference=arms[0],
        due=Due(
            checks=() if declared.origin else (AGREES, REFEREED),
            times=() if declared.untimed else (STEP_TIME.name,),
        ),
        details=(FORWARD, BACKWARD) if backward else (),
        threshold=declared.keywords.get("threshold"),
    )


def _is_wanted(function: str, options: Mapping[str, Any]) -> bool:
    return "match" not in options or any(
        fnmatchcase(function, pattern) for pattern in options["match"]
    )


def _paths(options: Mapping[str, Any]) -> list[str]:
    path = options["path"]
    return [path] if isinstance(path, str) else list(path)


def _below(folder: Path, path: str) -> Iterator[str]:
    """Yield the files of one path: itself, those in a folder, or those that fit a glob."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise BadConfig(
            f"suites.functions: {path}: not inside of the tree; give a path from its root"
        )
    place = folder / pure
    try:
        if place.is_file():
            yield str(pure)
            return
        candidates = place.rglob("*.py") if place.is_dir() else folder.glob(str(pure))
        inside = sorted(
            file.relative_to(folder)
            for file in candidates
            if file.suffix == ".py" and file.is_file()
        )
    except (OSError, ValueError) as error:
        raise BadConfig(f"suites.functions: {path}: cannot be looked for: {error}") from error
    visible = [
        file
        for file in inside
        if not any(part.startswith(".") or part in _PASSED_OVER for part in file.parts)
    ]
    if not visible:
        raise NothingInTree(
            f"suites.functions: {path}: no Python file found in {folder.resolve()}; correct the"
            " path"
        )
    yield from (file.as_posix() for file in visible)


def _read(folder: Path, file: str) -> tuple[GridDeclaration, ...] | None:
    """Read a file's declarations in literals.

    `None` if it has to be imported, as with other tools' benchmarks.
    """
    source = source_of(folder, file)
    return None if recognise(source, file) else literal.read(source, file)


def source_of(folder: Path, file: str) -> str:
    """Return the text of a file of the tree.

    Raises `BadConfig` if it cannot be read.
    """
    try:
        with (folder / file).open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{file}: cannot be read: {error}") from error
    if len(content) > MOST_BYTES:
        raise BadConfig(f"{file}: larger than {MOST_BYTES:,} bytes, the most that is read")
    return text
