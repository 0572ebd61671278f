"""Runs mutants through the tests that reach them; draws none.

Each is tried in a child of one process that has all tests loaded.

A mutant within a function replaces that function's code, so that everybody who imported it has it.
Code that runs when a module is imported (constants, defaults) needs the judge imported again:
pytest runs within the child once more, with a loader in front.
"""

import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import re
import resource
import signal
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import HealthCheck, Phase, settings

from benchmarks.mutants import Mutant, affected, code_of, compiled, mentions, text_of

EXAMPLES = 12
"""Of hypothesis, per property; the same ones for each mutant."""

LEAST_S, LIMIT_TIMES = 4.0, 20.0
"""Seconds of processor that a test may take: so many, and so many times what it took without a
mutant.
"""

MOST_BYTES = 8 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """Cost and coverage of a test.

    These are its seconds of processor, whether `make test` leaves it out, and the lines that it
    runs by module.
    """

    seconds: float
    thorough: bool
    lines: Mapping[str, frozenset[int]]


def options(folder: Path) -> list[str]:
    """Return pytest's arguments; nothing is kept, and hypothesis has few, fixed examples."""
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")
    return [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=0",
        "--assert=plain",
        f"--basetemp={folder}",
    ]


class Bench:
    """A plugin of pytest that hands the tests to `work`, and notes how they end.

    pytest does not run them itself.
    """

    def __init__(self, work: Callable[["Bench"], None]) -> None:
        """Call `work` when all tests are collected."""
        self._work = work
        self._failed = False
        self.items: dict[str, pytest.Item] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests of speed: a busy machine would kill mutants."""
        items[:] = [item for item in items if "quick" not in item.name]
        for item in items:
            _fewer_examples(item)
        self.items = {item.nodeid: item for item in items}

    def pytest_runtestloop(self) -> bool:
        """Replace pytest's own loop."""
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember a failure."""
        self._failed |= report.failed

    def passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Run one test; return whether it passes."""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed

    def reach(self, modules: Mapping[str, Path]) -> dict[str, Reach]:
        """Return each test's reach in the modules, after running all in a child."""
        answer = in_a_child(lambda: self._reached(modules))
        gc.freeze()  # children then share the memory of all that is loaded
        if not isinstance(answer, dict):
            raise SystemExit(f"without a mutant the tests have to pass: {answer}")
        return {
            name: Reach(
                seconds=record["seconds"],
                thorough=self.items[name].get_closest_marker("thorough") is not None,
                lines={of: frozenset(lines) for of, lines in record["lines"].items()},
            )
            for name, record in answer.items()
        }

    def _reached(self, modules: Mapping[str, Path]) -> dict[str, Any] | str:
        watch = coverage.Coverage(
            data_file=None, include=[str(path) for path in modules.values()], config_file=False
        )
        seconds: dict[str, float] = {}
        items = list(self.items.values())
        watch.start()
        for item, following in zip(items, [*items[1:], None], strict=True):
            watch.switch_context(item.nodeid)
            start = time.process_time()
            if not self.passes(item, following):
                return item.nodeid
            seconds[item.nodeid] = time.process_time() - start
        watch.stop()
        lines: dict[str, dict[str, list[int]]] = {name: {} for name in seconds}
        for module, path in modules.items():
            for line, names in watch.get_data().contexts_by_lineno(str(path)).items():
                for name in filter(None, names):
                    lines[name].setdefault(module, []).append(line)
        return {name: {"seconds": seconds[name], "lines": lines[name]} for name in seconds}

    def killer(
        self, mutant: Mutant, source: Path, tests: Sequence[str], reaches: Mapping[str, Reach]
    ) -> str:
        """Return the test that notices, or what happened; empty if none does."""

        def trial() -> str:
            try:
                plant(mutant, source)
            except (AttributeError, StopIteration):
                return again(mutant, source, tests)
            for name, following in zip(tests, [*tests[1:], None], strict=True):
                _limit(reaches[name].seconds)
                if not self.passes(self.items[name], self.items[following] if following else None):
                    return name
            return ""

        if mutant.owner:
            return str(in_a_child(trial))
        quick = [name for name in tests if not reaches[name].thorough]
        near = [
            name for name in quick if _test_file_prefix(mutant) in name
        ]  # without importing all other tests again, as mostly they notice
        parts = (
            near,
            [name for name in quick if name not in near],
            [name for name in tests if name not in quick],
        )
        return next(
            (
                ended
                for part in parts
                if part and (ended := in_a_child(lambda: again(mutant, source, part)))  # noqa: B023
            ),
            "",
        )


def reaching(
    mutant: Mutant,
    reaches: Mapping[str, Reach],
    sources: Mapping[str, Path],
    kills: Mapping[tuple[str, str], int],
) -> list[str]:
    """Return the tests that run a mutant's statement.

    For a constant or default, these are the tests that run code which names it.

    Tests that `make test` leaves out come last, so that a mutant that one of them notices is
    noticed by no other. The others are ordered by the number of noticed mutants of the same
    function (`kills`, by function and test), then those of the module's own file come first, and of
    these the quick ones.
    """
    if mutant.owner:
        lines_of, naming = {mutant.module: set(range(mutant.lines[0], mutant.lines[1] + 1))}, None
    else:
        trees = {module: ast.parse(text_of(path)) for module, path in sources.items()}
        names = affected(trees.values(), frozenset(mutant.names))
        lines_of = {
            module: mentions(tree, names) | _bodies(tree, names) for module, tree in trees.items()
        }
        naming = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    tests = [name for name, reach in reaches.items() if _reached(name, reach, lines_of, naming)]
    place, prefix = f"{mutant.module} {mutant.owner}", _test_file_prefix(mutant)
    return sorted(
        tests,
        key=lambda name: (
            reaches[name].thorough,
            -kills.get((place, name), 0),
            prefix not in name,
            reaches[name].seconds,
        ),
    )


def _test_file_prefix(mutant: Mutant) -> str:
    """Return the beginning of the names of a module's own test files."""
    return f"/test_{mutant.module.rpartition('.')[2]}"


def _reached(
    name: str, reach: Reach, lines_of: Mapping[str, set[int]], naming: re.Pattern[str] | None
) -> bool:
    """Return whether a test runs one of the lines, or its file uses a name itself."""
    if naming and naming.search(text_of(Path(name.split("::", 1)[0]))):
        return True
    return any(reach.lines.get(module, frozenset()) & lines for module, lines in lines_of.items())


def in_a_child(work: Callable[[], Any]) -> Any:
    """Return the result of `work` in a child process, whose changes end with it.

    For a child that is killed, it is a text with its signal.
    """
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        with (
            suppress(BaseException),
            open(os.devnull, "w") as nowhere,  # noqa: PTH123
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            try:
                answer = work()
            except BaseException as error:  # noqa: BLE001 - a mutant may raise anything
                answer = f"{type(error).__name__}: {error}"
            with os.fdopen(into, "w") as stream:
                json.dump(answer, stream)
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) or not text:
        return (
            f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
            if os.WIFSIGNALED(status)
            else "ended without a word"
        )
    return json.loads(text)


def plant(mutant: Mutant, source: Path) -> None:
    """Give a loaded function the code with the change."""
    code = code_of(compiled(text_of(source), mutant.place, str(source)), mutant.owner)
    target: Any = sys.modules[mutant.module]
    for part in mutant.owner.split("."):
        target = inspect.getattr_static(target, part)
    target = getattr(target, "fget", None) or getattr(target, "__func__", None) or target
    if not isinstance(target, types.FunctionType):
        target.cache_clear()
    inspect.unwrap(target).__code__ = code


def again(mutant: Mutant, source: Path, tests: Iterable[str]) -> str:
    """Import the judge again with a mutant in it, and run the tests in this process.

    Only a child may do this.
    """
    names = list(tests)
    ours = (f"{mutant.module.split('.')[0]}.", "tests.")
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(ours) or f"{os.sep}tests{os.sep}" in str(
            getattr(module, "__file__", "")
        ):
            del sys.modules[name]
    sys.meta_path.insert(0, _Planted(mutant, source))
    _limit(1.0)
    ended: list[str] = []

    def work(bench: Bench) -> None:
        chosen = [name for name in names if name in bench.items]
        for name, following in zip(chosen, [*chosen[1:], None], strict=True):
            _limit(2.0)
            if not bench.passes(bench.items[name], bench.items[following] if following else None):
                ended.append(name)
                return

    files = sorted(
        {name.split("::")[0] for name in names}, key=lambda file: source.stem not in file
    )
    code = pytest.main(
        [*options(Path(os.environ["MUTANTS_FOLDER"]) / "again"), *files], plugins=[Bench(work)]
    )
    return ended[0] if ended else "" if code in {0, 5} else f"pytest ended with {int(code)}"


class _Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module with its change."""

    def __init__(self, mutant: Mutant, source: Path) -> None:
        self._mutant, self._source = mutant, source

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        return (
            importlib.util.spec_from_file_location(name, self._source, loader=self)
            if name == self._mutant.module
            else None
        )

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compiled(text_of(self._source), self._mutant.place, str(self._source)), vars(module))  # noqa: S102 - our own source


def _limit(seconds: float) -> None:
    """End this process if a test takes far longer than without a mutant.

    The limit is in seconds of processor, so other processes don't matter.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, LEAST_S + LIMIT_TIMES * seconds)


def _fewer_examples(item: pytest.Item) -> None:
    test: Any = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    if current := getattr(test, "_hypothesis_internal_use_settings", None):
        test._hypothesis_internal_use_settings = settings(  # noqa: SLF001
            current, max_examples=min(current.max_examples, EXAMPLES)
        )


def _bodies(tree: ast.Module, names: frozenset[str]) -> set[int]:
    """Return the lines of the functions of these names, whose defaults changed."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        line
        for function in functions
        if function.name in names
        for line in range(function.lineno, (function.end_lineno or function.lineno) + 1)
    }
