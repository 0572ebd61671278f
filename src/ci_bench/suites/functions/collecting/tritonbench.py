"""Operators of tritonbench: a case per input, a provider per method of `register_benchmark`.

The baseline is the reference. Each time a provider is opened, the operator is made again and draws
its inputs from the same seed. The timed code is what the method returns for the input: the forward
pass. For planning, inputs are drawn on torch's device `meta`, which holds no values, and on the CPU
only if an operator does not take that. Tritonbench and triton need not be installed (`stand_ins`).
"""

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

from ci_bench.errors import BadConfig
from ci_bench.suites.contract import NotMeasured
from ci_bench.suites.functions.collecting.collected import Collected, apart, collected, has_name
from ci_bench.suites.functions.collecting.recognising import Format
from ci_bench.suites.functions.collecting.stand_ins import ARM, TRITONBENCH, is_installed, stand_ins
from ci_bench.suites.functions.declaring import device_of_case
from ci_bench.suites.functions.grids import MOST_POINTS, GridDeclaration

Operator = Any
"""An instance of the user's class; its base class is tritonbench's, or its stand-in."""


def collect(file: str, module: ModuleType) -> tuple[Collected, ...]:
    """Collect the operators of a module. Raises `BadConfig` if one has no provider or no inputs."""
    kinds = [
        member
        for member in vars(module).values()
        if inspect.isclass(member) and member.__module__ == module.__name__
    ]
    candidates = [(kind, _arms(kind)) for kind in kinds]
    operators = [(kind, arms) for kind, arms in candidates if arms]
    return tuple(_operator(file, kind, arms, alone=len(operators) == 1) for kind, arms in operators)


def _arms(kind: type) -> dict[str, str]:
    """Return the providers and their methods, the baseline first."""
    marked = (
        (name, getattr(getattr(kind, name), ARM, None))
        for owner in reversed(kind.__mro__)
        for name in vars(owner)
    )
    arms = {mark[0]: (name, mark[1]) for name, mark in marked if isinstance(mark, tuple)}
    return {arm: name for arm, (name, _) in sorted(arms.items(), key=lambda item: not item[1][1])}


def _operator(file: str, kind: type, arms: Mapping[str, str], *, alone: bool) -> Collected:
    path = PurePosixPath(file)
    folder = path.parent.name if path.stem == "operator" and path.parent.name else path.stem
    name = folder if alone and kind.__name__ == "Operator" else kind.__name__
    line = inspect.getsourcelines(kind)[1]
    where = GridDeclaration(file=file, line=line, function=name, origin=Format.TRITONBENCH)

    def open_case(arm: str, place: int) -> Callable[[], Any]:
        with stand_ins([Format.TRITONBENCH]):
            operator = _make(kind, name, device_of_case())
            case_input = next(islice(operator.get_input_iter(), place, None), None)
            if case_input is None:
                raise NotMeasured(
                    f"{file}:{line}: {name}: get_input_iter ends before input {place}"
                )
            case_input = _moved(case_input, operator.device)
            method = getattr(operator, arms[arm])
            call: Callable[[], Any] = (
                method(**case_input) if isinstance(case_input, Mapping) else method(*case_input)
            )
        return call

    return collected(where, apart(_cases(kind, where)), open_case, arms=tuple(arms))


def _make(kind: type, name: str, device: str) -> Operator:
    """Return an operator for a forward pass on a device."""
    if not is_installed(TRITONBENCH):
        return kind(Namespace(device=device, mode="fwd", precision="bypass"), [])
    parser = import_module("tritonbench.utils.parser").get_parser()
    tb_args, extra_args = parser.parse_known_args(
        ["--op", name, "--device", device, "--benchmark-name", name]
    )
    return kind(tb_args, extra_args)


def _cases(kind: type, where: GridDeclaration) -> Iterator[tuple[Mapping[str, Any], str, int]]:
    """Yield every input by the operator's name for it, else by the shapes of its tensors."""
    for place, x in enumerate(_named_inputs(kind, where)):
        yield {"x": x}, str(place), place


def _named_inputs(kind: type, where: GridDeclaration) -> list[Any]:
    try:
        return _drawn(kind, where.function, "meta")
    except Exception:  # noqa: BLE001 - whatever does not work without values is tried with some
        try:
            return _drawn(kind, where.function, "cpu")
        except Exception as error:
            raise where.fault("get_input_iter", f"{type(error).__name__}: {error}") from error


def _drawn(kind: type, name: str, device: str) -> list[Any]:
    """Return the name of each input."""
    with stand_ins([Format.TRITONBENCH]):
        operator = _make(kind, name, device)
        names = [
            _called(operator, case_input)
            for case_input in islice(operator.get_input_iter(), MOST_POINTS + 1)
        ]
    if not names:
        raise BadConfig(f"{name}: it gives no input")
    return names


def _called(operator: Operator, case_input: Any) -> Any:
    name_input = getattr(operator, "get_x_val", None)
    try:
        name = name_input(case_input) if name_input is not None else None
    except NotImplementedError:
        name = None
    if name is not None and has_name(name):
        return name
    values = case_input.values() if isinstance(case_input, Mapping) else case_input
    return [
        tuple(value.shape) if hasattr(value, "shape") else value
        for value in values
        if hasattr(value, "shape")
    ]


def _moved(inputs: Any, device: str) -> Any:
    """Move tensors to the device, as tritonbench does."""
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, list | tuple):
        return tuple(_moved(value, device) for value in inputs)
    return inputs.to(device) if hasattr(inputs, "to") and hasattr(inputs, "shape") else inputs
