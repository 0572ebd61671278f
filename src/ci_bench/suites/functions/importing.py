"""Imports the user's files, and reads their declarations.

Only in workers and the process that plans. A file of a package is imported by its name in the
package, any other by its path. Its own folder is then last on the path, so it finds its neighbours.
"""

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.records.results import Case
from ci_bench.suites.functions.collecting import asv, perf_report, pytest_tests, tritonbench
from ci_bench.suites.functions.collecting.collected import Collected
from ci_bench.suites.functions.collecting.recognising import Format, recognise
from ci_bench.suites.functions.collecting.stand_ins import stand_ins
from ci_bench.suites.functions.declaring import Benchmark, forget, registered
from ci_bench.suites.functions.grids import GridDeclaration
from ci_bench.suites.functions.literal import PACKAGE
from ci_bench.suites.functions.plan import Functions, cases_of, files_of, source_of

COLLECTORS: Mapping[Format, Callable[[str, ModuleType], tuple[Collected, ...]]] = {
    Format.ASV: asv.collect,
    Format.PERF_REPORT: perf_report.collect,
    Format.TRITONBENCH: tritonbench.collect,
}
"""Collector of a module's benchmarks, by format."""


class ByImport(Functions):
    """The suite in the process that imports its files.

    It is a separate process, since code of the tree runs in it (`suites.shared.planning.planner`).
    """

    def plan(self, options: Mapping[str, Any]) -> tuple[Case, ...]:
        """Plan the cases of one entry, as the imported files declare them.

        Raises `BadConfig`.
        """
        return cases_of(
            [
                declaration
                for file in files_of(self.folder, options)
                for declaration in declarations(file)
            ],
            options,
        )


SUITE = ByImport()


def declarations(file: str) -> tuple[GridDeclaration, ...]:
    """Return the declarations of a file in the working folder, by importing it.

    Raises `BadConfig`.
    """
    return tuple(benchmark.declaration(file) for benchmark in benchmarks(file))


def benchmarks(file: str) -> tuple[Benchmark[..., Any], ...]:
    """Return the benchmarks of a file of the working folder.

    The file is imported, unless it was before.

    Raises:
        BadConfig: it is not there, or raises something.
    """
    path = Path(file).resolve()
    if not path.is_file():
        raise BadConfig(f"{file}: not found in {Path.cwd()}")
    source = source_of(Path(), file)
    imported = _KEPT.get(str(path))
    name, _ = _module_name(Path(file))
    if (
        imported is None
        or imported.source != source
        or (imported.module is not None and sys.modules.get(name) is not imported.module)
    ):
        _KEPT[str(path)] = imported = _collect(file, path, source)
    return imported.benchmarks


@dataclass(frozen=True, kw_only=True, slots=True)
class _Imported:
    source: str
    module: ModuleType | None
    benchmarks: tuple[Benchmark[..., Any], ...]


_KEPT: dict[str, _Imported] = {}


def _collect(file: str, path: Path, source: str) -> _Imported:
    """Collect decorated functions, and each other tool's benchmarks.

    Only pytest imports a file that has only pytest's tests.
    """
    formats = recognise(source, file)
    module: ModuleType | None = None
    file_benchmarks: list[Benchmark[..., Any]] = []
    if formats != (Format.PYTEST,) or PACKAGE in source:
        with stand_ins(formats):
            module = _module_of(file, path)
        file_benchmarks += registered(str(path))
        file_benchmarks += [
            benchmark
            for name in formats
            if name in COLLECTORS
            for benchmark in COLLECTORS[name](file, module)
        ]
    if Format.PYTEST in formats:
        file_benchmarks += pytest_tests.collect(file)
    return _Imported(source=source, module=module, benchmarks=tuple(file_benchmarks))


def _module_of(file: str, path: Path) -> ModuleType:
    """Return the file's module, executed now unless it was before."""
    name, in_package = _module_name(Path(file))
    if getattr(sys.modules.get(name), "__file__", None) != str(path):
        forget(str(path))
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        try:
            _import(name, path, in_package=in_package)
        except BadConfig as error:
            raise BadConfig(str(error).replace(str(path), file)) from error
        except Exception as error:
            sys.modules.pop(name, None)
            line = next(
                (
                    frame.lineno
                    for frame in reversed(traceback.extract_tb(error.__traceback__))
                    if frame.filename == str(path)
                ),
                1,
            )
            raise BadConfig(
                f"{file}:{line}: cannot be imported: {type(error).__name__}: {error}"
            ) from error
    return sys.modules[name]


def _import(name: str, path: Path, *, in_package: bool) -> None:
    if in_package:
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"  # noqa: S101, PT018 - our own bug if not
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as for any import: dynamo looks functions' modules up there
    spec.loader.exec_module(module)


def _module_name(file: Path) -> tuple[str, bool]:
    """Return the name of a file's module, and true if a package has it."""
    root = (
        Path("src")
        if file.parts[0] == "src" and not Path("src", "__init__.py").exists()
        else Path()
    )
    inside = file.relative_to(root)
    packages = inside.parents[:-1]
    if packages and all((root / package / "__init__.py").is_file() for package in packages):
        return ".".join(inside.with_suffix("").parts), True
    return f"ci_bench_own_{re.sub('[^A-Za-z0-9]', '_', str(file.with_suffix('')))}", False
