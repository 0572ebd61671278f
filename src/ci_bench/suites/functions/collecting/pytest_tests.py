"""Tests with pytest-benchmark's fixture `benchmark`: the callables handed to it are timed.

pytest collects the tests and sets them up. pytest-benchmark itself need not be installed: this
module supplies the fixture, and replaces an installed one. A test is run to its end, with its
assertions, for each build of its case; its fixtures live until the case is closed. Options of
pytest's `addopts` do not count, other settings do. pytest is imported only here, in processes that
run the tree's code.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import NotMeasured, Unsupported
from ci_bench.suites.functions.collecting.collected import (
    Collected,
    apart,
    as_called,
    collected,
    shown,
    still_callable,
)
from ci_bench.suites.functions.collecting.recognising import Format
from ci_bench.suites.functions.grids import GridDeclaration

if TYPE_CHECKING:
    import pytest

FIXTURE = "benchmark"
QUIET = (
    "-q",
    "-q",
    "--capture=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:faulthandler",
    "-o",
    "addopts=",
)
MOST_SAID = 1000


class Handed:
    """The fixture `benchmark`: keeps a test's callable, and calls it once for the test itself."""

    stats = None
    enabled = disabled = False

    def __init__(self) -> None:
        """Start without a callable."""
        self.call: Callable[[], Any] | None = None
        self.group: str | None = None
        self.name = ""
        self.extra_info: dict[str, Any] = {}

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time ``function(*args, **kwargs)``."""
        if self.call is not None:
            raise NotMeasured(
                "it uses the fixture `benchmark` twice, but only one call is timed; split it into"
                " two tests"
            )
        self.call = as_called(partial(function, *args, **kwargs) if args or kwargs else function)
        return function(*args, **kwargs)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[..., Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        **_: Any,
    ) -> Any:
        """Time ``target(*args, **kwargs)``; the engine decides the number of calls."""
        if setup is not None or teardown is not None:
            raise Unsupported(
                "benchmark.pedantic has a setup or teardown for each round, but calls are timed in"
                " a row"
            )
        return self(target, *args, **(kwargs or {}))


@dataclass(eq=False)
class PytestPlugin:
    """Plugin for pytest: the fixture, and the report of collecting."""

    handed: Handed = field(default_factory=Handed)
    faults: list[str] = field(default_factory=list)

    def pytest_configure(self, config: "pytest.Config") -> None:
        """Register pytest-benchmark's mark, in case it is not installed."""
        config.addinivalue_line("markers", "benchmark: of pytest-benchmark")

    def pytest_collectreport(self, report: "pytest.CollectReport") -> None:
        """Keep errors of collecting."""
        if report.failed:
            self.faults.append(str(report.longrepr))


@dataclass(eq=False, kw_only=True)
class PytestSession:
    """pytest's session over one file, while the process lives.

    `opened` counts the cases of an item that are not closed yet.
    """

    plugin: PytestPlugin
    items: tuple[Any, ...]
    opened: dict[str, int] = field(default_factory=dict)


def collect(file: str) -> tuple[Collected, ...]:
    """Collect the tests of a file that have the fixture; those of one function are its cases.

    Raises:
        BadConfig: pytest is not installed, or cannot collect the file.
    """
    session = _open(file)
    functions: dict[str, list[Any]] = {}
    for item in session.items:
        if FIXTURE in getattr(item, "fixturenames", ()):
            owner = f"{item.cls.__qualname__}." if item.cls else ""
            functions.setdefault(f"{owner}{item.originalname}", []).append(item)
    return tuple(_function(session, file, name, items) for name, items in functions.items())


def _function(session: PytestSession, file: str, name: str, items: list[Any]) -> Collected:
    def case(item: Any) -> tuple[Mapping[str, Any], str, Any]:
        call = getattr(item, "callspec", None)
        return (shown(call.params, call.id), call.id, item) if call else ({}, "", item)

    def open_case(_: str, item: Any) -> Generator[Callable[[], Any], None, None]:
        return _opened(session, item, f"{file}::{item.nodeid.partition('::')[2]}")

    where = GridDeclaration(
        file=file, line=items[0].location[1] + 1, function=name, origin=Format.PYTEST
    )
    return collected(where, apart(map(case, items)), open_case)


def _opened(
    session: PytestSession, item: Any, place: str
) -> Generator[Callable[[], Any], None, None]:
    """Run a test to its end and yield the callable that it handed over.

    Its fixtures are taken down after the last user closes it.
    """
    handed = session.plugin.handed
    handed.call = None
    session.opened[item.nodeid] = session.opened.get(item.nodeid, 0) + 1
    try:
        _run(item, place)
        if handed.call is None:
            raise NotMeasured(
                f"{place}: it ends without calling the fixture `benchmark`, so there is nothing to"
                " time"
            )
        still_callable(handed.call, place, "benchmark")
        yield handed.call
    finally:
        session.opened[item.nodeid] -= 1
        if not session.opened[item.nodeid]:
            item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
            item._request = False  # noqa: SLF001 - as pytest's own runner leaves it


def _run(item: Any, place: str) -> None:
    """Run the test, after its fixtures.

    Raises `Unsupported` if it is skipped, `NotMeasured` if it fails.
    """
    import pytest

    if not item._request:  # noqa: SLF001 - as pytest's own runner starts a test again
        item._initrequest()  # noqa: SLF001
    try:
        _do(item, "setup")
        _do(item, "call")
    except (Unsupported, pytest.skip.Exception) as reason:
        raise Unsupported(f"{place}: {reason}") from reason
    except (Exception, pytest.fail.Exception) as error:
        kind = (
            ""
            if isinstance(error, NotMeasured | pytest.fail.Exception)
            else f"{type(error).__name__}: "
        )
        fixture = (
            f"no fixture is called {name!r}" if (name := getattr(error, "argname", None)) else ""
        )
        reason_line = str(error).partition("\n")[0]
        raise NotMeasured(f"{place}: {fixture or f'{kind}{reason_line}'}"[:MOST_SAID]) from error


def _do(item: Any, when: Literal["setup", "call"]) -> None:
    """Run one phase of a test, noted where fixtures look for it as they are taken down."""
    import pytest

    phase = pytest.CallInfo.from_call(
        partial(getattr(item.ihook, f"pytest_runtest_{when}"), item=item), when
    )
    item.ihook.pytest_runtest_makereport(item=item, call=phase)
    if phase.excinfo is not None:
        raise phase.excinfo.value


def _open(file: str) -> PytestSession:
    """Start pytest as for this file, up to its items.

    The process ends without ending it.
    """
    try:
        import pytest
        from _pytest.config import _prepareconfig
    except ImportError as error:
        message = f"{file}: it has tests with the fixture `benchmark`, but pytest is not installed"
        raise BadConfig(f"{message} for {sys.executable}; install it there") from error

    class WithFixture(PytestPlugin):
        @pytest.hookimpl(tryfirst=True)
        def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Handed | None:
            """Replace pytest-benchmark's own fixture, if that is installed."""
            if fixturedef.argname != FIXTURE:
                return None
            fixturedef.cached_result = (self.handed, fixturedef.cache_key(request), None)
            return self.handed

        @pytest.fixture
        def benchmark(self) -> Handed:
            return self.handed

    plugin = WithFixture()
    try:
        config = _prepareconfig([*QUIET, str(Path(file))], plugins=[plugin])
        config._do_configure()  # noqa: SLF001 - as `pytest.main`, which has no way to stop before the tests
        session = pytest.Session.from_config(config)
        config.hook.pytest_sessionstart(session=session)
        config.hook.pytest_collection(session=session)
    except (
        pytest.UsageError,
        pytest.Session.Failed,
        pytest.Session.Interrupted,
        pytest.exit.Exception,
    ) as error:
        raise BadConfig(
            f"{file}: pytest cannot collect it: {_last_lines([*plugin.faults, str(error)])}"
        ) from error
    if plugin.faults:
        raise BadConfig(f"{file}: pytest cannot collect it: {_last_lines(plugin.faults)}")
    return PytestSession(plugin=plugin, items=tuple(session.items))


def _last_lines(reports: list[str]) -> str:
    return " ".join(" ".join(report.split()) for report in reports)[-MOST_SAID:]
