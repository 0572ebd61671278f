"""Surveys a repository: benchmarks, trainings, modules and the package in it, by its files' names and text.

The repository is a stranger's. Symbolic links are not followed, files and folders with unusual
names are passed over, and the number and size of files that are read is limited.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path, PurePosixPath
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.starting.sources import (
    NAME,
    LossReport,
    Module,
    SourceProgram,
    read_program,
    reads_metadata,
    uses_gpu,
)
from ci_bench.suites.functions import literal
from ci_bench.suites.functions.collecting.recognising import Format, count_benchmarks
from ci_bench.suites.functions.grids import points

MOST_FILES, MOST_ENTRIES, MOST_BYTES = 5000, 100_000, 1 << 20
"""Files that are read, names that are looked at, and the size of a file that is read."""
BENCHMARK_FOLDERS = frozenset(
    {"asv_bench", "bench", "benches", "benchmark", "benchmarks", "perf", "performance"}
)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_PASSED_OVER = frozenset(
    {"__pycache__", "build", "ci-bench-history", "dist", "node_modules", "site-packages", "vendor"}
)
_NO_PACKAGE = (
    frozenset({"docs", "doc", "examples", "example", "scripts", "tests", "test", "tools"})
    | BENCHMARK_FOLDERS
)
_NOT_MEASURED = frozenset({"docs", "doc", "tests", "test", "testing"})
_COMPILED = (".c", ".cc", ".cpp", ".cu", ".cxx", ".pyx", ".rs")
_HAVING = frozenset(
    {
        "datasets",
        "evaluate",
        "jsonschema",
        "numpy",
        "pyyaml",
        "requests",
        "rich",
        "safetensors",
        "scipy",
    }
)
_HAVING |= {"torch", "transformers", "triton"}
"""Packages that are there wherever ci-bench measures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkFile:
    """A file with benchmarks of `functions`: their number by tool, and the number of cases if the source shows it."""

    file: str
    tools: Mapping[str, int]
    cases: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingScript:
    """A script that trains and reports its losses."""

    file: str
    losses: LossReport


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryPackage:
    """The package of a repository: its import name, and what it takes to use it."""

    name: str
    compiled: bool = False
    """It has sources that are compiled, or reads its own version from its installation."""
    dependencies: bool = False
    """It needs packages that ci-bench does not bring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Measurable parts of a repository. Paths are relative to its root."""

    benchmarks: tuple[BenchmarkFile, ...] = ()
    paths: tuple[str, ...] = ()
    """Files and folders that name all of `benchmarks`, and no other program."""
    trainings: tuple[TrainingScript, ...] = ()
    loops: tuple[str, ...] = ()
    """Functions that yield the steps of a training, as ``module:function``."""
    scripts: tuple[str, ...] = ()
    """Programs among the benchmarks that are timed as a whole."""
    modules: tuple[tuple[str, Module], ...] = ()
    """Modules of torch, each with the import name of its file."""
    package: RepositoryPackage | None = None
    projects: tuple[str, ...] = ()
    """Folders below the root with a separate package and measured files."""
    gpu: bool = False
    """Some file imports a library that computes on GPUs."""
    remarks: tuple[str, ...] = ()
    """Sentences on what the user has to add by hand."""

    @property
    def measures(self) -> bool:
        """Return whether there is anything to measure as it is."""
        return bool(self.benchmarks or self.trainings or self.loops or self.scripts)


@dataclass(kw_only=True, slots=True)
class _Findings:
    benchmarks: list[BenchmarkFile] = field(default_factory=list)
    trainings: list[TrainingScript] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    modules: list[tuple[str, Module]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    gpu: bool = False
    compiled: bool = False


def survey(root: Path) -> Survey:
    """Read a repository. Faults of its files are remarks."""
    found = _Findings()
    files, remarks = _files(root)
    found.remarks += remarks
    for file in files:
        if file.endswith(".py") and (source := read_text(root / file)) is not None:
            try:
                _look(file, source, found)
            except BadConfig as error:
                found.remarks.append(f"passed over: {error}")
        found.compiled |= file.endswith(_COMPILED)
    return Survey(
        benchmarks=tuple(found.benchmarks),
        paths=_paths([one.file for one in found.benchmarks], files),
        trainings=tuple(found.trainings),
        loops=tuple(found.loops),
        scripts=tuple(found.scripts),
        modules=tuple(found.modules),
        package=_package(root, files, compiled=found.compiled),
        projects=tuple(_projects(root, files, found)),
        gpu=found.gpu,
        remarks=tuple(found.remarks),
    )


def read_text(path: Path) -> str | None:
    """The text of a file of the repository; `None` if it is a link, too large, or no UTF-8."""
    try:
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        return content.decode("utf-8-sig") if len(content) <= MOST_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def _files(root: Path) -> tuple[list[str], list[str]]:
    """The files of a repository in order, and remarks on the rest."""
    files: list[str] = []
    looked_at, read = 0, 0
    for folder, folders, names in os.walk(root, followlinks=False):
        place = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if _is_ours(Path(folder, name)))
        for name in sorted(names):
            looked_at += 1
            if _PLAIN.fullmatch(name):
                files.append((place / name).as_posix())
                read += name.endswith(".py")
        if looked_at > MOST_ENTRIES or read > MOST_FILES:
            size = f"it has more than {MOST_FILES:,} Python files or is very large"
            return files, [f"only a part of the repository was read: {size}"]
    return files, []


def _is_ours(folder: Path) -> bool:
    """Return whether a folder is read: no environment, no other repository, no link, nothing hidden or generated."""
    if folder.is_symlink() or not _PLAIN.fullmatch(folder.name) or folder.name in _PASSED_OVER:
        return False
    return not (folder / "pyvenv.cfg").exists() and not (folder / ".git").exists()


def _look(file: str, source: str, found: _Findings) -> None:
    found.gpu |= uses_gpu(source)
    if (benchmarks := benchmarks_of(file, source)) is not None:
        found.benchmarks.append(benchmarks)
        return
    program = read_program(source, file)
    module = module_name(file)
    found.loops += [f"{module}:{name}" for name in program.loops if module is not None]
    parts = {*PurePosixPath(file).parts[:-1]}
    if not parts & (_NOT_MEASURED | BENCHMARK_FOLDERS) and module is not None:
        found.modules += [(module, one) for one in program.modules]
    if program.is_program and not program.loops and not parts & _NOT_MEASURED:
        _look_at_program(file, program, found)


def _look_at_program(file: str, program: SourceProgram, found: _Findings) -> None:
    parts = PurePosixPath(file)
    benchmark = (
        bool({*parts.parts[:-1]} & BENCHMARK_FOLDERS)
        or re.match(r"bench|perf_", parts.stem) is not None
    )
    if program.losses is None and not benchmark:
        return
    if program.takes_arguments:
        found.remarks.append(
            f"{file} needs arguments: add it under `suites.command` with its command line"
        )
    elif program.losses is LossReport.LOGGED:
        found.remarks.append(
            f"{file} logs its losses with `logging`: print them, or write them to CI_BENCH_OUTPUT"
        )
    elif program.losses is not None:
        found.trainings.append(TrainingScript(file=file, losses=program.losses))
    else:
        found.scripts.append(file)


def benchmarks_of(file: str, source: str) -> BenchmarkFile | None:
    """The benchmarks of a file, of ci-bench's own decorator or another tool; `None` without any.

    Raises `BadConfig`.
    """
    counts = count_benchmarks(source, file)
    if not {*PurePosixPath(file).parts[:-1]} & BENCHMARK_FOLDERS:
        counts.pop(Format.ASV, None)  # elsewhere, time_now() is a function like any other
    tools = {str(tool): counts[tool] for tool in Format if counts[tool]}
    declared = literal.read(source, file) if "ci_bench" in source and ".benchmark" in source else ()
    if declared is None:
        return BenchmarkFile(file=file, tools={"ci-bench": source.count(".benchmark"), **tools})
    own = {"ci-bench": len(declared)} if declared else {}
    if not own and not tools:
        return None
    cases = sum(len(points(one)) for one in declared)
    return BenchmarkFile(file=file, tools={**own, **tools}, cases=None if tools else cases)


def _paths(benchmarks: list[str], files: list[str]) -> tuple[str, ...]:
    """Return the folders of benchmarks that hold no other module, and the rest by file.

    Planning a folder imports all of its files, which would run a program among them.
    """
    folders = {file: _benchmark_folder(file) for file in benchmarks}
    helpers = {"__init__.py", "conftest.py"}
    mixed = {
        folder
        for file in files
        if file.endswith(".py") and file not in folders and PurePosixPath(file).name not in helpers
        if (folder := _benchmark_folder(file)) is not None
    }
    named = [
        file if folder is None or folder in mixed else folder for file, folder in folders.items()
    ]
    return tuple(dict.fromkeys(named))


def _benchmark_folder(file: str) -> str | None:
    """Return the outermost folder of a file whose name says that it holds benchmarks."""
    parts = PurePosixPath(file).parts[:-1]
    place = next(
        (place for place, part in enumerate(parts, start=1) if part in BENCHMARK_FOLDERS), None
    )
    return None if place is None else "/".join(parts[:place])


def module_name(file: str) -> str | None:
    """The name that a file is imported by from the root or ``src``; `None` if it has none."""
    parts = [*PurePosixPath(file).with_suffix("").parts]
    parts = parts[1:] if parts[0] == "src" and len(parts) > 1 else parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) if parts and all(map(_is_name, parts)) else None


def _is_name(word: str) -> bool:
    return NAME.fullmatch(word) is not None and not iskeyword(word)


def _package(root: Path, files: list[str], *, compiled: bool) -> RepositoryPackage | None:
    """The package that the repository installs, if any; `compiled` sources anywhere count."""
    setup = read_text(root / "setup.py")
    project = _project(read_text(root / "pyproject.toml"))
    if project is None and setup is None:
        return None
    names = list(_import_names(files))
    plain = re.sub(r"[-.]+", "_", str((project or {}).get("name", ""))).lower()
    name = next((one for one in names if one.lower() == plain), names[0] if names else None)
    if name is None:
        return None
    inside = (
        read_text(root / name / "__init__.py")
        or read_text(root / "src" / name / "__init__.py")
        or ""
    )
    compiled = compiled or "ext_modules" in (setup or "") or reads_metadata(inside)
    return RepositoryPackage(name=name, compiled=compiled, dependencies=_needs_more(project, setup))


def _projects(root: Path, files: list[str], found: _Findings) -> Iterator[str]:
    """Yield the packages below the root that measured files belong to, each once: of a monorepo."""
    folders = {
        str(PurePosixPath(file).parent)
        for file in files
        if PurePosixPath(file).name in {"pyproject.toml", "setup.py"}
    } - {"."}
    measured = [
        *(one.file for one in found.benchmarks),
        *(one.file for one in found.trainings),
        *found.scripts,
    ]
    nearest = (
        next((str(one) for one in PurePosixPath(file).parents if str(one) in folders), None)
        for file in measured
    )
    for folder in dict.fromkeys(one for one in nearest if one is not None):
        if (
            read_text(root / folder / "setup.py") is not None
            or _project(read_text(root / folder / "pyproject.toml")) is not None
        ):
            yield folder


def _project(text: str | None) -> Mapping[str, Any] | None:
    """The table ``project`` of a pyproject.toml; `None` if it describes no package."""
    try:
        value = tomllib.loads(text or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    project = value.get("project")
    poetry = value.get("tool", {}).get("poetry") if isinstance(value.get("tool"), dict) else None
    found = project if isinstance(project, dict) else poetry
    return found if isinstance(found, dict) else {} if "build-system" in value else None


def _import_names(files: list[str]) -> Iterator[str]:
    """Yield the packages and modules that a repository has at its root or in ``src``."""
    for file in files:
        parts = PurePosixPath(file).parts
        parts = parts[1:] if parts[0] == "src" else parts
        if (
            len(parts) == 2  # noqa: PLR2004
            and parts[1] == "__init__.py"
            and parts[0] not in _NO_PACKAGE
            and _is_name(parts[0])
        ):
            yield parts[0]
    for file in files:
        parts = PurePosixPath(file).parts
        stem = PurePosixPath(parts[-1]).stem
        if (
            file.endswith(".py")
            and parts[:-1] in {(), ("src",)}
            and _is_name(stem)
            and stem not in {"setup", "conftest"}
        ):
            yield stem


def _needs_more(project: Mapping[str, Any] | None, setup: str | None) -> bool:
    """Return whether a package needs others than those that are there wherever ci-bench measures."""
    listed = (project or {}).get("dependencies", [])
    listed_later = (project or {}).get("dynamic")
    dynamic = isinstance(listed_later, list) and "dependencies" in listed_later
    names = [*listed] if isinstance(listed, list | dict) else []
    wanted = {
        re.split(r"[^A-Za-z0-9_.-]", str(one).strip(), maxsplit=1)[0].lower() for one in names
    } - {"python"}
    return bool(wanted - _HAVING) or dynamic or "install_requires" in (setup or "")
