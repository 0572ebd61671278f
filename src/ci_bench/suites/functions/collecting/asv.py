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
    """A function that asv would call, and where attributes of it are looked for: itself, its class, its module."""

    file: str
    module: ModuleType
    owner: type | None
    function: Callable[..., Any]
    caches: dict[Any, Any] = field(default_factory=dict)
    """Results of each `setup_cache`, in this process."""

    @property
    def name(self) -> str:
        """As cases have it: ``Suite.time_keys``."""
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
        """An attribute of the nearest that has one."""
        places = [place for place in (self.function, self.owner, self.module) if place is not None]
        return next((getattr(place, name) for place in places if hasattr(place, name)), default)

    def fault(self, what: str, why: str) -> BadConfig:
        """An error at one of its attributes."""
        return BadConfig(f"{self.file}:{self.line}: {self.name}: {what}: {why}")


def collect(file: str, module: ModuleType) -> tuple[Collected, ...]:
    """The benchmarks of a module that was imported.

    Raises `BadConfig` if parameters contradict each other.
    """
    caches: dict[Any, Any] = {}
    found = [
        FoundBenchmark(file=file, module=module, owner=owner, function=function, caches=caches)
        for owner, function in _functions(module)
    ]
    return tuple(_benchmark(one) for one in found if _is_benchmark(one))


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
            own = (getattr(value, member) for member in members if member.startswith(ASV_NAMES))
            yield from ((value, function) for function in own if inspect.isfunction(function))


def _is_benchmark(found: FoundBenchmark) -> bool:
    """Return false for a helper such as ``time_of(call)``, whose parameters have no values."""
    owed = [
        one
        for one in inspect.signature(found.function).parameters.values()
        if one.default is one.empty
    ]
    given = found.first("params", None) or found.first("setup_cache", None)
    return bool(given) or len(owed) <= bool(found.owner)


def _benchmark(found: FoundBenchmark) -> Collected:
    tracks = found.function.__name__.startswith(TRACK)
    where = GridDeclaration(
        file=found.file, line=found.line, function=found.name, origin=Format.ASV, untimed=tracks
    )

    def open_case(_: str, arguments: Sequence[Any]) -> Generator[Callable[[], Any], None, None]:
        return _opened(found, arguments, tracks=tracks)

    return collected(where, apart(_cases(found)), open_case)


def _cases(found: FoundBenchmark) -> Iterator[tuple[Mapping[str, Any], str, tuple[Any, ...]]]:
    """Each combination of `params`: by name, by place, and the arguments themselves."""
    params = found.first("params", [])
    if not isinstance(params, list | tuple):
        raise found.fault("params", "a list, or a list of lists")
    axes = (
        [[*one] for one in params]
        if params and all(isinstance(one, list | tuple) for one in params)
        else [[*params]]
    )
    axes = axes if params else []
    names = [str(name) for name in found.first("param_names", [])]
    names += [f"param{place + 1}" for place in range(len(names), len(axes))]
    size = 1
    for axis in axes:
        size *= len(axis)
    if size > MOST_POINTS:
        raise found.fault("params", f"the grid has {size:,}; at most {MOST_POINTS:,} are allowed")
    for places in product(*map(range, map(len, axes))):
        arguments = tuple(axis[place] for axis, place in zip(axes, places, strict=True))
        shown = {
            _plain(name): _shown(value, place)
            for name, value, place in zip(names, arguments, places, strict=False)
        }
        yield shown, "-".join(map(str, places)), arguments


def _plain(name: str) -> str:
    """A name that an id can hold: asv's may be any text."""
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
    found: FoundBenchmark, arguments: Sequence[Any], *, tracks: bool
) -> Generator[Callable[[], Any], None, None]:
    """Set up, yield the call, take down."""
    if found.first("number", 0) == 1 and _all_of(found, None, "setup"):
        raise Unsupported(
            f"{found.file}: {found.name}: number = 1 asks for setup before each call, but calls are"
            " timed in a row"
        )
    instance = found.owner() if found.owner else None
    given = (*_cache(found, instance), *arguments)
    try:
        for setup in _all_of(found, instance, "setup"):
            setup(*given)
    except NotImplementedError as reason:
        raise Unsupported(
            f"{found.file}: {found.name}: setup skips it: {str(reason) or 'NotImplementedError'}"
        ) from reason
    function = partial(found.function, instance) if found.owner else found.function
    call = partial(function, *given) if given or found.owner else function
    try:
        if tracks:
            _track(found, call())
        yield call
    finally:
        all_of(partial(one, *given) for one in reversed(_all_of(found, instance, "teardown")))


def _track(found: FoundBenchmark, value: Any) -> None:
    """Record the result of a ``track_*``: judged if its unit has a better direction, else shown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        try:
            value = float(value)
        except (TypeError, ValueError):
            kind = type(value).__name__
            raise NotMeasured(
                f"{found.file}: {found.name} returns a {kind} instead of a number to track"
            ) from None
    unit = str(found.first("unit", "unit"))
    name = found.function.__name__.lower()[:50]
    record(name, value, unit=unit, gate=interpret(unit).unit in USUAL)


def _all_of(found: FoundBenchmark, instance: Any, name: str) -> list[Callable[..., Any]]:
    """The `setup` or `teardown` of module, class and function, in this order.

    A module's own is used only if it takes the given arguments.
    """
    owner = instance if instance is not None else found.owner
    steps = (
        getattr(place, name, None)
        for place in (found.module, owner, found.function)
        if place is not None
    )
    return [step for step in steps if callable(step)]


def _cache(found: FoundBenchmark, instance: Any) -> tuple[Any, ...]:
    """Return the result of `setup_cache` as the first argument; empty without one."""
    places = [place for place in (found.function, instance, found.module) if place is not None]
    function = next(
        (one for place in places if callable(one := getattr(place, "setup_cache", None))), None
    )
    if function is None:
        return ()
    key = getattr(function, "__func__", function)
    if key not in found.caches:
        found.caches[key] = function()
    return () if found.caches[key] is None else (found.caches[key],)
