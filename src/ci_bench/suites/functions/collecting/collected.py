"""Benchmarks from other tools' formats, measured by the suite as decorated functions are.

Such a benchmark promises less. The suite cannot write other values into inputs that the benchmark
made, and nothing promises that its providers compute the same, or that head computes what base
does. So their results are compared, coarsely, and shown only (`verify`).
"""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import GeneratorType
from typing import Any

from ci_bench.suites.contract import NotMeasured, Unsupported
from ci_bench.suites.functions.declaring import Benchmark, Provider
from ci_bench.suites.functions.grids import NAME, Arm, GridDeclaration, as_json, is_small, label_of

Values = Mapping[str, Any]
Opener = Callable[[str, Any], Any]
"""Opens a case for an arm: gives the timed call, or a generator that yields it and cleans up."""


@dataclass(eq=False, kw_only=True)
class Collected(Benchmark[..., Any]):
    """A benchmark that another tool's file declares.

    `declared` is its declaration for every caller.
    """

    declared: GridDeclaration

    def __post_init__(self) -> None:
        """Keep its own name."""

    def declaration(self, file: str) -> GridDeclaration:  # noqa: ARG002 - a decorated function's signature
        """Return the declaration of the other tool's file."""
        return self.declared


def collected(
    where: GridDeclaration,
    cases: Iterable[tuple[Values, Any]],
    open_case: Opener,
    *,
    arms: Sequence[str] = (),
) -> Collected:
    """Return a benchmark of cases, each with its shown parameters and a handle for `open_case`.

    `where` has file, line, function and format; `arms` are the providers, the reference first, by
    default one with the function's name. A case without a parameter is the only one.
    """
    case_list = list(cases)
    behind = {_key(values): handle for values, handle in case_list}
    names = tuple(arms) or (where.function.rpartition(".")[2],)
    parameters = tuple(dict.fromkeys(name for values, _ in case_list for name in values))
    declared_arms = [Arm(name=name, parameters=parameters, line=where.line) for name in names]
    keywords: dict[str, Any] = (
        {"cases": [dict(values) for values, _ in case_list]} if parameters else {}
    )
    declared = GridDeclaration(
        file=where.file,
        line=where.line,
        function=where.function,
        parameters=parameters,
        optional=frozenset(parameters),
        keywords=keywords,
        arms=tuple(declared_arms),
        origin=where.origin,
        untimed=where.untimed,
    )

    def provide(arm: str, **values: Any) -> Generator[Callable[[], Any], None, None]:
        with placed(where, _key(values)):
            opened = open_case(arm, behind[_key(values)])
            inner = opened if isinstance(opened, GeneratorType) else None
            call = next(inner) if inner is not None else opened
        yield call
        if inner is not None:
            inner.close()

    providers = [Provider(arm=arm, function=partial(provide, arm.name)) for arm in declared_arms]
    return Collected(
        function=providers[0].function, keywords={}, providers=providers, declared=declared
    )


@contextmanager
def placed(where: GridDeclaration, point: object = ()) -> Iterator[None]:
    """Report exceptions of the user's code in one line, with its file and function.

    Raises `NotMeasured`.
    """
    try:
        yield
    except (NotMeasured, Unsupported):
        raise
    except Exception as error:
        words = (
            ",".join(f"{name}={value}" for name, value in point)
            if isinstance(point, tuple)
            else str(point)
        )
        message = (
            f"{where.file}:{where.line}: {where.function}{f'[{words}]' if words else ''}:"
            f" {type(error).__name__}: {error}"
        )
        raise NotMeasured(message) from error


def has_name(value: Any) -> bool:
    """Return true if an id can hold a value by a name that is the same in the next run."""
    try:
        label_of(value)
    except ValueError:
        return False
    return is_small(as_json(value))


def shown(values: Values, other_name: str) -> Values:
    """Return the parameters of a case, or `other_name` as its `id`.

    A parameter without a lasting short name requires the `id`.
    """
    nameable = all(NAME.fullmatch(name) and has_name(value) for name, value in values.items())
    return values if nameable else {"id": other_name}


def apart(cases: Iterable[tuple[Values, str, Any]]) -> list[tuple[Values, Any]]:
    """Add the `id` to cases with equal parameters; a case is its parameters, id and handle."""
    case_list = list(cases)
    keys = [_key(values) for values, _, _ in case_list]
    return [
        (values if keys.count(key) == 1 else {**values, "id": name}, handle)
        for key, (values, name, handle) in zip(keys, case_list, strict=True)
    ]


def as_called(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return the call in torch's present modes: gradients, inference.

    It may then be timed after a ``with`` around it has ended.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return call
    if torch.is_inference_mode_enabled():
        mode: Callable[[], Any] = torch.inference_mode
    elif not torch.is_grad_enabled():
        mode = torch.no_grad
    else:
        return call

    def in_its_mode() -> Any:
        with mode():
            return call()

    return in_its_mode


def still_callable(call: Callable[[], Any], place: str, what: str) -> None:
    """Call it once, after its maker has returned.

    Raises `NotMeasured` if it needs something that is gone by then.
    """
    try:
        call()
    except (NotMeasured, Unsupported):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        message = (
            f"{place}: what it hands to {what} fails once the function around it has ended ({why})"
        )
        raise NotMeasured(f"{message}; set up outside of it what is needed") from error


def all_of(steps: Iterable[Callable[[], object]]) -> None:
    """Call all of these in order, even if some of them raise."""
    with ExitStack() as stack:
        for step in reversed(list(steps)):
            stack.callback(step)


def _key(values: Values) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, label_of(value)) for name, value in values.items()))
