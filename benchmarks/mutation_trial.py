"""Puts mutants before the tests that reach them, each in a child of one process that has all tests loaded. Draws none.

A mutant within a function replaces that function's code, so that everybody who imported it has it.
What runs when a module is imported (constants, defaults) needs the judge imported anew: pytest runs
within the child once more, with a loader in front.
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
    """What a test costs, in seconds of processor, whether `make test` leaves it out, and which lines of which module it runs."""

    seconds: float
    thorough: bool
    lines: Mapping[str, frozenset[int]]


def options(folder: Path) -> list[str]:
    """What pytest is called with; nothing is kept, and the examples of hypothesis are few and always the same."""
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
    """A plugin of pytest that, in place of running the tests once, hands them to `work`, and hears how they end."""

    def __init__(self, work: Callable[["Bench"], None]) -> None:
        """`work` is called when all tests are there."""
        self._work = work
        self._failed = False
        self.items: dict[str, pytest.Item] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out tests of speed: a busy machine would kill mutants."""
        items[:] = [item for item in items if "quick" not in item.name]
        for item in items:
            _fewer_examples(item)
        self.items = {item.nodeid: item for item in items}

    def pytest_runtestloop(self) -> bool:
        """In place of pytest's own loop."""
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remembers a failure."""
        self._failed |= report.failed

    def passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Runs one test."""
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed

    def reach(self, modules: Mapping[str, Path]) -> dict[str, Reach]:
        """Of each test, what it reaches of the modules; runs all, in a child."""
        told = in_a_child(lambda: self._reached(modules))
        gc.freeze()  # children then share the memory of all that is loaded
        if not isinstance(told, dict):
            raise SystemExit(f"without a mutant the tests have to pass: {told}")
        return {
            name: Reach(
                seconds=one["seconds"],
                thorough=self.items[name].get_closest_marker("thorough") is not None,
                lines={of: frozenset(lines) for of, lines in one["lines"].items()},
            )
            for name, one in told.items()
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
        found: dict[str, dict[str, list[int]]] = {name: {} for name in seconds}
        for module, path in modules.items():
            for line, names in watch.get_data().contexts_by_lineno(str(path)).items():
                for name in filter(None, names):
                    found[name].setdefault(module, []).append(line)
        return {name: {"seconds": seconds[name], "lines": found[name]} for name in seconds}

    def killer(
        self, mutant: Mutant, source: Path, tests: Sequence[str], reaches: Mapping[str, Reach]
    ) -> str:
        """The test that notices, with what happened; empty where none does."""

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
            name for name in quick if _own(mutant) in name
        ]  # without importing all other tests anew, as mostly they notice
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
    """The tests that run a mutant's statement; of a constant or default, those that run what names it.

    Last those that `make test` leaves out, so that what one of them notices is noticed by no other.
    Of the rest first those that noticed most mutants of the same function (`kills`, by function and
    test), then those of the module's own file, and of these the quick ones.
    """
    if mutant.owner:
        wanted, naming = {mutant.module: set(range(mutant.lines[0], mutant.lines[1] + 1))}, None
    else:
        trees = {module: ast.parse(text_of(path)) for module, path in sources.items()}
        names = affected(trees.values(), frozenset(mutant.names))
        wanted = {
            module: mentions(tree, names) | _bodies(tree, names) for module, tree in trees.items()
        }
        naming = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    found = [name for name, one in reaches.items() if _reached(name, one, wanted, naming)]
    place, own = f"{mutant.module} {mutant.owner}", _own(mutant)
    return sorted(
        found,
        key=lambda name: (
            reaches[name].thorough,
            -kills.get((place, name), 0),
            own not in name,
            reaches[name].seconds,
        ),
    )


def _own(mutant: Mutant) -> str:
    """How the names of a module's own files of tests begin."""
    return f"/test_{mutant.module.rpartition('.')[2]}"


def _reached(
    name: str, reach: Reach, wanted: Mapping[str, set[int]], naming: re.Pattern[str] | None
) -> bool:
    """Whether a test runs one of the lines, or its file uses a name itself."""
    if naming and naming.search(text_of(Path(name.split("::", 1)[0]))):
        return True
    return any(reach.lines.get(module, frozenset()) & lines for module, lines in wanted.items())


def in_a_child(work: Callable[[], Any]) -> Any:
    """What `work` returns, from a process of its own; what the child changed dies with it.

    A child that dies says its signal.
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
        told = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) or not told:
        return (
            f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
            if os.WIFSIGNALED(status)
            else "ended without a word"
        )
    return json.loads(told)


def plant(mutant: Mutant, source: Path) -> None:
    """Gives a loaded function the code with the change."""
    code = code_of(compiled(text_of(source), mutant.place, str(source)), mutant.owner)
    found: Any = sys.modules[mutant.module]
    for part in mutant.owner.split("."):
        found = inspect.getattr_static(found, part)
    found = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
    if not isinstance(found, types.FunctionType):
        found.cache_clear()
    inspect.unwrap(found).__code__ = code


def again(mutant: Mutant, source: Path, tests: Iterable[str]) -> str:
    """Imports the judge anew with a mutant in it, and runs the tests within this process; for a child only."""
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
    """Ends this process when a test takes far longer than without a mutant; in seconds of processor, so others don't matter."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, LEAST_S + LIMIT_TIMES * seconds)


def _fewer_examples(item: pytest.Item) -> None:
    test: Any = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    if found := getattr(test, "_hypothesis_internal_use_settings", None):
        test._hypothesis_internal_use_settings = settings(  # noqa: SLF001
            found, max_examples=min(found.max_examples, EXAMPLES)
        )


def _bodies(tree: ast.Module, names: frozenset[str]) -> set[int]:
    """The lines of the functions of these names, whose defaults changed."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        line
        for one in functions
        if one.name in names
        for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }
