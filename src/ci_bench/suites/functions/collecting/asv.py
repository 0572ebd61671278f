"""Suites of asv (airspeed velocity): ``time_*``, ``peakmem_*`` and ``track_*``, also in classes.

asv is not needed. `setup` and `teardown` run once for each build of a case, as elsewhere in this
suite, and the calls between them are timed in a row. `setup_cache` runs in each process that needs
it, and nothing is written to disk. A `setup` that raises `NotImplementedError` skips the case.
Attributes for the number of calls (`repeat`, `rounds`) do not count: the engine decides that.
``number = 1`` requires a `setup` before each call, which rules out calls in a row, and skips the
case.
"""

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.formats.units import interpret
from ci_bench.suites.contract import NotMeasured, Unsupported
from ci_bench.suites.functions.collecting.collected import (
    Collected,
    all_of,
    apart,
    collected,
    has_name,
)
from ci_bench.suites.functions.collecting.recognising import ASV_NAMES, Format
from ci_bench.suites.functions.declaring import record
from ci_bench.suites.functions.grids import MOST_POINTS, NAME, GridDeclaration
from ci_bench.suites.functions.recording import USUAL

TRACK = "track_"


@dataclass(frozen=True, kw_only=True)
class FoundBenchmark:
    """Function that asv would call.

    Its attributes are looked for in the function, its class and its module, in this order.
    """

    file: str
    """Path of its file, for errors and the declaration."""
    module: ModuleType
    """Imported module of the file."""
    owner: type | None
    """Class that has the function; `None` for a module's own."""
    function: Callable[..., Any]
    """Function itself, not bound to an instance."""
    caches: dict[Any, Any] = field(default_factory=dict)
    """Results of each `setup_cache`, in this process."""

    @property
    def name(self) -> str:
        """Name in cases: ``Suite.time_keys``."""
        return (
            f"{self.owner.__qualname__}.{self.function.__name__}"
            if self.owner
            else self.function.__name__
        )

    @property
    def line(self) -> int:
        """The line of its definition, or of the class if it is inherited from elsewhere."""
        code = inspect.unwrap(self.function).__code__
        if self.owner is not None and code.co_filename != self.module.__file__:
            return inspect.getsourcelines(self.owner)[1]
        return int(code.co_firstlineno)

    def first(self, name: str, default: Any) -> Any:
        """Return an attribute of the nearest that has one."""
        places = [place for place in (self.function, self.owner, self.module) if place is not None]
        return next((getattr(place, name) for place in places if hasattr(place, name)), default)

    def fault(self, what: str, why: str) -> BadConfig:
        """Return an error at one of its attributes."""
        return BadConfig(f"{self.file}:{self.line}: {self.name}: {what}: {why}")


def collect(file: str, module: ModuleType) -> tuple[Collected, ...]:
    """Collect the benchmarks of an imported module.

    Raises `BadConfig` if parameters contradict each other.
    """
    caches: dict[Any, Any] = {}
    candidates = [
        FoundBenchmark(file=file, module=module, owner=owner, function=function, caches=caches)
        for owner, function in _functions(module)
    ]
    return tuple(_benchmark(candidate) for candidate in candidates if _is_benchmark(candidate))


def _functions(module: ModuleType) -> Iterator[tuple[type | None, Callable[..., Any]]]:
    """Yield the module's own functions with asv's names, in order.

    A class also has its inherited functions.
    """
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) and name.startswith(ASV_NAMES):
            yield None, value
        elif inspect.isclass(value):
            members = {member: None for owner in reversed(value.__mro__) for member in vars(owner)}
            functions = (
                getattr(value, member) for member in members if member.startswith(ASV_NAMES)
            )
            yield from ((value, function) for function in functions if inspect.isfunction(function))


def _is_benchmark(benchmark: FoundBenchmark) -> bool:
    """Return false for a helper such as ``time_of(call)``, whose parameters have no values."""
    owed = [
        parameter
        for parameter in inspect.signature(benchmark.function).parameters.values()
        if parameter.default is parameter.empty
    ]
    arguments = benchmark.first("params", None) or benchmark.first("setup_cache", None)
    return bool(arguments) or len(owed) <= bool(benchmark.owner)


def _benchmark(benchmark: FoundBenchmark) -> Collected:
    tracks = benchmark.function.__name__.startswith(TRACK)
    where = GridDeclaration(
        file=benchmark.file,
        line=benchmark.line,
        function=benchmark.name,
        origin=Format.ASV,
        untimed=tracks,
    )

    def open_case(_: str, arguments: Sequence[Any]) -> Generator[Callable[[], Any], None, None]:
        return _opened(benchmark, arguments, tracks=tracks)

    return collected(where, apart(_cases(benchmark)), open_case)


def _cases(benchmark: FoundBenchmark) -> Iterator[tuple[Mapping[str, Any], str, tuple[Any, ...]]]:
    """Yield each combination of `params`: by name, by place, and the arguments themselves."""
    params = benchmark.first("params", [])
    if not isinstance(params, list | tuple):
        raise benchmark.fault("params", "a list, or a list of lists")
    axes = (
        [[*values] for values in params]
        if params and all(isinstance(values, list | tuple) for values in params)
        else [[*params]]
    )
    axes = axes if params else []
    names = [str(name) for name in benchmark.first("param_names", [])]
    names += [f"param{place + 1}" for place in range(len(names), len(axes))]
    size = 1
    for axis in axes:
        size *= len(axis)
    if size > MOST_POINTS:
        raise benchmark.fault(
            "params", f"the grid has {size:,}; at most {MOST_POINTS:,} are allowed"
        )
    for places in product(*map(range, map(len, axes))):
        arguments = tuple(axis[place] for axis, place in zip(axes, places, strict=True))
        shown = {
            _as_name(name): _shown(value, place)
            for name, value, place in zip(names, arguments, places, strict=False)
        }
        yield shown, "-".join(map(str, places)), arguments


def _as_name(name: str) -> str:
    """Convert a name to one that an id can hold: asv's may be any text."""
    return (
        name
        if NAME.fullmatch(name)
        else "".join(char if char.isascii() and char.isalnum() else "_" for char in name)[:60]
    )


def _shown(value: Any, place: int) -> Any:
    """Return a value's name, else its text if that has no address, else its place in the list."""
    if has_name(value):
        return value
    text = repr(value)
    return text if " at 0x" not in text and has_name(text) else f"number{place}"


def _opened(
    benchmark: FoundBenchmark, arguments: Sequence[Any], *, tracks: bool
) -> Generator[Callable[[], Any], None, None]:
    """Set up, yield the call, take down."""
    if benchmark.first("number", 0) == 1 and _all_of(benchmark, None, "setup"):
        raise Unsupported(
            f"{benchmark.file}: {benchmark.name}: number = 1 asks for setup before each call, but"
            " calls are timed in a row"
        )
    instance = benchmark.owner() if benchmark.owner else None
    arguments_of_call = (*_cache(benchmark, instance), *arguments)
    try:
        for setup in _all_of(benchmark, instance, "setup"):
            setup(*arguments_of_call)
    except NotImplementedError as reason:
        raise Unsupported(
            f"{benchmark.file}: {benchmark.name}: setup skips it:"
            f" {str(reason) or 'NotImplementedError'}"
        ) from reason
    function = partial(benchmark.function, instance) if benchmark.owner else benchmark.function
    call = (
        partial(function, *arguments_of_call) if arguments_of_call or benchmark.owner else function
    )
    try:
        if tracks:
            _track(benchmark, call())
        yield call
    finally:
        all_of(
            partial(teardown, *arguments_of_call)
            for teardown in reversed(_all_of(benchmark, instance, "teardown"))
        )


def _track(benchmark: FoundBenchmark, value: Any) -> None:
    """Record the result of a ``track_*``: judged if its unit has a better direction, else shown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        try:
            value = float(value)
        except (TypeError, ValueError):
            kind = type(value).__name__
            raise NotMeasured(
                f"{benchmark.file}: {benchmark.name} returns a {kind} instead of a number to track"
            ) from None
    unit = str(benchmark.first("unit", "unit"))
    name = benchmark.function.__name__.lower()[:50]
    record(name, value, unit=unit, gate=interpret(unit).unit in USUAL)


def _all_of(benchmark: FoundBenchmark, instance: Any, name: str) -> list[Callable[..., Any]]:
    """Return the `setup` or `teardown` of module, class and function, in this order.

    A module's own is used only if it takes the given arguments.
    """
    owner = instance if instance is not None else benchmark.owner
    steps = (
        getattr(place, name, None)
        for place in (benchmark.module, owner, benchmark.function)
        if place is not None
    )
    return [step for step in steps if callable(step)]


def _cache(benchmark: FoundBenchmark, instance: Any) -> tuple[Any, ...]:
    """Return the result of `setup_cache` as the first argument; empty without one."""
    places = [
        place for place in (benchmark.function, instance, benchmark.module) if place is not None
    ]
    function = next(
        (cache for place in places if callable(cache := getattr(place, "setup_cache", None))),
        None,
    )
    if function is None:
        return ()
    key = getattr(function, "__func__", function)
    if key not in benchmark.caches:
        benchmark.caches[key] = function()
    return () if benchmark.caches[key] is None else (benchmark.caches[key],)
