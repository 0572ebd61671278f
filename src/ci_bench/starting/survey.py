"""Survey a repository: its benchmarks, trainings, modules and package, by names and text of files.

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
    """A file with benchmarks of `functions`.

    `tools` are their numbers by tool, `cases` the number of cases if the source shows it.
    """

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
    """The package of a repository: its import name, and the needs of its set-up."""

    name: str
    compiled: bool = False
    """It has sources that are compiled, or reads its own version from its installation."""
    dependencies: bool = False
    """It needs packages that ci-bench does not bring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Measurable parts of a repository. Paths are relative to its root."""

    benchmarks: tuple[BenchmarkFile, ...] = ()
    """Files with benchmarks."""
    paths: tuple[str, ...] = ()
    """Files and folders that name all of `benchmarks`, and no other program."""
    trainings: tuple[TrainingScript, ...] = ()
    """Scripts that train and report losses."""
    loops: tuple[str, ...] = ()
    """Functions that yield the steps of a training, as ``module:function``."""
    scripts: tuple[str, ...] = ()
    """Programs among the benchmarks that are timed as a whole."""
    modules: tuple[tuple[str, Module], ...] = ()
    """Modules of torch, each with the import name of its file."""
    package: RepositoryPackage | None = None
    """Package that the repository installs; `None` if it has none."""
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
    """Files with benchmarks."""
    trainings: list[TrainingScript] = field(default_factory=list)
    """Scripts that train and report losses."""
    loops: list[str] = field(default_factory=list)
    """Functions that yield the steps of a training, as ``module:function``."""
    scripts: list[str] = field(default_factory=list)
    """Programs among the benchmarks that are timed as a whole."""
    modules: list[tuple[str, Module]] = field(default_factory=list)
    """Modules of torch, each with the import name of its file."""
    remarks: list[str] = field(default_factory=list)
    """Sentences on what the user has to add by hand."""
    gpu: bool = False
    """Some file imports a library that computes on GPUs."""
    compiled: bool = False
    """Some file is a source that is compiled."""


def survey(root: Path) -> Survey:
    """Read a repository. Faults of its files are remarks."""
    findings = _Findings()
    files, remarks = _files(root)
    findings.remarks += remarks
    for file in files:
        if file.endswith(".py") and (source := read_text(root / file)) is not None:
            try:
                _look(file, source, findings)
            except BadConfig as error:
                findings.remarks.append(f"passed over: {error}")
        findings.compiled |= file.endswith(_COMPILED)
    return Survey(
        benchmarks=tuple(findings.benchmarks),
        paths=_paths([benchmark.file for benchmark in findings.benchmarks], files),
        trainings=tuple(findings.trainings),
        loops=tuple(findings.loops),
        scripts=tuple(findings.scripts),
        modules=tuple(findings.modules),
        package=_package(root, files, compiled=findings.compiled),
        projects=tuple(_projects(root, files, findings)),
        gpu=findings.gpu,
        remarks=tuple(findings.remarks),
    )


def read_text(path: Path) -> str | None:
    """Return the text of a repository's file; `None` if it is a link, too large, or not UTF-8."""
    try:
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        return content.decode("utf-8-sig") if len(content) <= MOST_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def _files(root: Path) -> tuple[list[str], list[str]]:
    """Return the files of a repository in order, and remarks on the rest."""
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
    """Return whether a folder is read.

    Environments, other repositories, links, and hidden or generated folders are not.
    """
    if folder.is_symlink() or not _PLAIN.fullmatch(folder.name) or folder.name in _PASSED_OVER:
        return False
    return not (folder / "pyvenv.cfg").exists() and not (folder / ".git").exists()


def _look(file: str, source: str, findings: _Findings) -> None:
    findings.gpu |= uses_gpu(source)
    if (benchmarks := benchmarks_of(file, source)) is not None:
        findings.benchmarks.append(benchmarks)
        return
    program = read_program(source, file)
    module = module_name(file)
    findings.loops += [f"{module}:{name}" for name in program.loops if module is not None]
    parts = {*PurePosixPath(file).parts[:-1]}
    if not parts & (_NOT_MEASURED | BENCHMARK_FOLDERS) and module is not None:
        findings.modules += [(module, network) for network in program.modules]
    if program.is_program and not program.loops and not parts & _NOT_MEASURED:
        _look_at_program(file, program, findings)


def _look_at_program(file: str, program: SourceProgram, findings: _Findings) -> None:
    parts = PurePosixPath(file)
    benchmark = (
        bool({*parts.parts[:-1]} & BENCHMARK_FOLDERS)
        or re.match(r"bench|perf_", parts.stem) is not None
    )
    if program.losses is None and not benchmark:
        return
    if program.takes_arguments:
        findings.remarks.append(
            f"{file} needs arguments: add it under `suites.command` with its command line"
        )
    elif program.losses is LossReport.LOGGED:
        findings.remarks.append(
            f"{file} logs its losses with `logging`: print them, or write them to CI_BENCH_OUTPUT"
        )
    elif program.losses is not None:
        findings.trainings.append(TrainingScript(file=file, losses=program.losses))
    else:
        findings.scripts.append(file)


def benchmarks_of(file: str, source: str) -> BenchmarkFile | None:
    """Return the benchmarks of a file, of ci-bench's decorator or another tool; `None` without any.

    Raises `BadConfig`.
    """
    counts = count_benchmarks(source, file)
    if not {*PurePosixPath(file).parts[:-1]} & BENCHMARK_FOLDERS:
        counts.pop(Format.ASV, None)  # elsewhere, time_now() is a function like any other
    tools = {str(tool): counts[tool] for tool in Format if counts[tool]}
    declared = literal.read(source, file) if "ci_bench" in source and ".benchmark" in source else ()
    if declared is None:
        return BenchmarkFile(file=file, tools={"ci-bench": source.count(".benchmark"), **tools})
    decorated = {"ci-bench": len(declared)} if declared else {}
    if not decorated and not tools:
        return None
    cases = sum(len(points(declaration)) for declaration in declared)
    return BenchmarkFile(file=file, tools={**decorated, **tools}, cases=None if tools else cases)


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
    paths = [
        file if folder is None or folder in mixed else folder for file, folder in folders.items()
    ]
    return tuple(dict.fromkeys(paths))


def _benchmark_folder(file: str) -> str | None:
    """Return the outermost folder of a file whose name is one for benchmarks."""
    parts = PurePosixPath(file).parts[:-1]
    place = next(
        (place for place, part in enumerate(parts, start=1) if part in BENCHMARK_FOLDERS), None
    )
    return None if place is None else "/".join(parts[:place])


def module_name(file: str) -> str | None:
    """Return the name to import a file by, from the root or ``src``; `None` if it has none."""
    parts = [*PurePosixPath(file).with_suffix("").parts]
    parts = parts[1:] if parts[0] == "src" and len(parts) > 1 else parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) if parts and all(map(_is_name, parts)) else None


def _is_name(word: str) -> bool:
    return NAME.fullmatch(word) is not None and not iskeyword(word)


def _package(root: Path, files: list[str], *, compiled: bool) -> RepositoryPackage | None:
    """Return the package that the repository installs, if any.

    Compiled sources anywhere (`compiled`) count.
    """
    setup = read_text(root / "setup.py")
    project = _project(read_text(root / "pyproject.toml"))
    if project is None and setup is None:
        return None
    names = list(_import_names(files))
    normalized = re.sub(r"[-.]+", "_", str((project or {}).get("name", ""))).lower()
    name = next(
        (candidate for candidate in names if candidate.lower() == normalized),
        names[0] if names else None,
    )
    if name is None:
        return None
    inside = (
        read_text(root / name / "__init__.py")
        or read_text(root / "src" / name / "__init__.py")
        or ""
    )
    compiled = compiled or "ext_modules" in (setup or "") or reads_metadata(inside)
    return RepositoryPackage(name=name, compiled=compiled, dependencies=_needs_more(project, setup))


def _projects(root: Path, files: list[str], findings: _Findings) -> Iterator[str]:
    """Yield the packages below the root that measured files belong to, each once: of a monorepo."""
    folders = {
        str(PurePosixPath(file).parent)
        for file in files
        if PurePosixPath(file).name in {"pyproject.toml", "setup.py"}
    } - {"."}
    measured = [
        *(benchmark.file for benchmark in findings.benchmarks),
        *(training.file for training in findings.trainings),
        *findings.scripts,
    ]
    nearest = (
        next(
            (str(parent) for parent in PurePosixPath(file).parents if str(parent) in folders), None
        )
        for file in measured
    )
    for folder in dict.fromkeys(folder for folder in nearest if folder is not None):
        if (
            read_text(root / folder / "setup.py") is not None
            or _project(read_text(root / folder / "pyproject.toml")) is not None
        ):
            yield folder


def _project(text: str | None) -> Mapping[str, Any] | None:
    """Return the table ``project`` of a pyproject.toml; `None` if it describes no package."""
    try:
        value = tomllib.loads(text or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    project = value.get("project")
    poetry = value.get("tool", {}).get("poetry") if isinstance(value.get("tool"), dict) else None
    table = project if isinstance(project, dict) else poetry
    return table if isinstance(table, dict) else {} if "build-system" in value else None


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
    """Return whether a package needs others than those that ci-bench needs anyway."""
    dependencies = (project or {}).get("dependencies", [])
    listed_later = (project or {}).get("dynamic")
    dynamic = isinstance(listed_later, list) and "dependencies" in listed_later
    names = [*dependencies] if isinstance(dependencies, list | dict) else []
    required = {
        re.split(r"[^A-Za-z0-9_.-]", str(requirement).strip(), maxsplit=1)[0].lower()
        for requirement in names
    } - {"python"}
    return bool(required - _HAVING) or dynamic or "install_requires" in (setup or "")
