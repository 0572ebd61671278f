"""Interface for benchmarks: `benchmark` and its providers, `inputs`, `record`.

Users import it as `ci_bench.benchmark`. Importing this needs no torch, and decorating a function
only remembers it. The worker that builds a case supplies `inputs` and takes the values of `record`
(`drawing`). Outside of one, `inputs` draws as for a case of the seed 0, so a benchmark can be
called by hand.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from ci_bench.errors import BadConfig
from ci_bench.suites.functions.grids import Arm, GridDeclaration, points

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Dtype = Any
"""``fp32``, ``bf16``, ``int64``, …, or torch's own."""


class DeclaringSession(Protocol):
    """The builder of a case, during its build and its calls; `device` is the run's."""

    device: str

    def inputs(
        self,
        number: int,
        shape: "Sequence[int]",
        dtype: Dtype,
        *,
        device: str | None,
        requires_grad: bool | None,
        constant: bool,
        high: int | None,
    ) -> "tuple[Tensor, ...]":
        """Draw tensors, as `inputs` has them."""

    def record(self, name: str, value: float, *, unit: str, better: str | None, gate: bool) -> None:
        """Keep a number, as `record` has it."""


@dataclass(slots=True)
class _Present:
    session: DeclaringSession | None = None


_PRESENT = _Present()


@contextmanager
def building(session: DeclaringSession) -> "Iterator[None]":
    """Use this session while a case is built, called or taken down."""
    before, _PRESENT.session = _PRESENT.session, session
    try:
        yield
    finally:
        _PRESENT.session = before


def device_of_case() -> str:
    """Return torch's name of the device that the case is built for; outside of one, the CPU."""
    return _PRESENT.session.device if _PRESENT.session is not None else "cpu"


def inputs(
    number: int,
    shape: "Sequence[int]",
    dtype: Dtype = "fp32",
    *,
    device: str | None = None,
    requires_grad: bool | None = None,
    constant: bool = False,
    high: int | None = None,
) -> "tuple[Tensor, ...]":
    """Draw `number` tensors of one shape and type from the case's own seed.

    They are the same for every provider and both sides. They are on the run's device, unless
    `device` names another one. Real numbers are standard normal, whole ones are of
    ``0 .. high - 1``. A call has to compute from their current values: other values are written
    into their memory between calls. `constant` tensors keep their values, so a provider may pack or
    quantise them ahead of time. `requires_grad` is true by default if the benchmark has a backward
    pass, for real numbers that are not constant.

    Raises:
        ValueError: the type does not exist, or whole numbers have no `high`.
    """
    session = _PRESENT.session
    if session is None:
        from ci_bench.suites.functions.drawing import by_hand

        session = by_hand()
    return session.inputs(
        number,
        shape,
        dtype,
        device=device,
        requires_grad=requires_grad,
        constant=constant,
        high=high,
    )


def record(
    name: str, value: float, *, unit: str = "", better: str | None = None, gate: bool = False
) -> None:
    """Report a number of this case in addition to its time: tokens accepted, a compression ratio.

    Call it while a provider builds, or behind its ``yield``: inside the timed call it would be
    timed, too. It is shown with both sides' values, and fails nothing. With `gate` it is judged
    like a metric, by the policy's threshold, and `better` (``lower`` or ``higher``) must be given
    if the unit leaves it open. Units are those of other tools: ``ms``, ``MiB``, ``tokens/s``; any
    other word is a plain number. The last value of a name counts.

    Raises:
        ValueError: the name has other characters than lower-case letters, digits and ``_``, or the
            better direction is missing.
    """
    if _PRESENT.session is not None:
        _PRESENT.session.record(name, value, unit=unit, better=better, gate=gate)


@dataclass(kw_only=True, slots=True)
class Provider:
    """One function that provides the case's result."""

    arm: Arm
    function: Callable[..., Any]


@dataclass(eq=False)
class Benchmark(Generic[P, R]):
    """A decorated function.

    Calling it calls the function; `provider` adds another one that computes the same.
    """

    function: Callable[P, R]
    keywords: Mapping[str, Any]
    providers: list[Provider] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take over the function's name and documentation."""
        update_wrapper(self, self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the function's result: the call that is timed."""
        return self.function(*args, **kwargs)

    def provider(self, name: str, *, reference: bool = False) -> Callable[[F], F]:
        """Add a provider of the same parameters.

        The reference is the marked one, else the decorated function.
        """

        def add(function: F) -> F:
            self.providers.append(
                Provider(arm=_arm(function, name, reference=reference), function=function)
            )
            return function

        return add

    def declaration(self, file: str) -> GridDeclaration:
        """Return the declaration of the decorators; `file` is its name in errors."""
        code = inspect.unwrap(self.function).__code__
        signature = inspect.signature(self.function).parameters
        return GridDeclaration(
            file=file,
            line=code.co_firstlineno,
            function=self.function.__name__,
            parameters=tuple(signature),
            optional=frozenset(
                name
                for name, parameter in signature.items()
                if parameter.default is not parameter.empty
            ),
            keywords={name: value for name, value in self.keywords.items() if name != "work"},
            arms=tuple(provider.arm for provider in self.providers),
        )


_REGISTERED: dict[str, list[Benchmark[..., Any]]] = {}


def registered(file: str) -> tuple[Benchmark[..., Any], ...]:
    """Return the benchmarks that a file's code has declared so far, in their order."""
    return tuple(_REGISTERED.get(file, ()))


def forget(file: str) -> None:
    """Forget a file's benchmarks, before its code is executed again."""
    _REGISTERED.pop(file, None)


@overload
def benchmark(function: Callable[P, R], /) -> Benchmark[P, R]: ...
@overload
def benchmark(**keywords: Any) -> Callable[[Callable[P, R]], Benchmark[P, R]]: ...
def benchmark(function: Callable[..., Any] | None = None, /, **keywords: Any) -> Any:
    """Make a function a benchmark.

    For example ``@ci_bench.benchmark(shapes=[(1024, 64)], dtype=["fp32", "bf16"])``.

    The function is called once with the parameters of each case, and returns the code to time: a
    function without parameters. A generator yields it instead, and cleans up behind the ``yield``.
    Every keyword that is a list is a dimension of the grid of cases, by the name of a parameter or
    its plural. Further keywords:

    - `cases`: a list of mappings from parameters to values, instead of a grid;
    - `work`: bytes and operations of a call, ``{"bytes": …, "flops": …}``, or a function of the
      parameters that gives that;
    - `backward`: time the backward pass of what is returned as well;
    - `threshold`: the smallest relative change of this benchmark's times that counts, where that is
      less than the policy's;
    - `provider`: the name of this function's arm, by default its own.

    Raises:
        BadConfig: the keywords do not fit the function.
    """
    if function is None:
        return lambda decorated: _declare(decorated, keywords)
    return _declare(function, keywords)


def _declare(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Benchmark[..., Any]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        raise BadConfig(
            f"ci_bench.benchmark: {function!r} is not a function; pass all arguments by keyword"
        )
    declared = Benchmark(function=function, keywords=dict(keywords))
    name = keywords.get("provider", function.__name__)
    declared.providers.append(
        Provider(arm=_arm(function, str(name), reference=False), function=function)
    )
    file = str(Path(code.co_filename).resolve())
    _REGISTERED.setdefault(file, []).append(declared)
    points(declared.declaration(file))
    return declared


def _arm(function: Callable[..., Any], name: str, *, reference: bool) -> Arm:
    code = inspect.unwrap(function).__code__
    return Arm(
        name=name,
        parameters=tuple(inspect.signature(function).parameters),
        line=code.co_firstlineno,
        reference=reference,
    )
