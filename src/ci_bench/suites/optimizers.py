"""The optimizer of a training: one of torch by its name, or the user's own by its import path. Built in workers only."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ci_bench.suites.user_code import is_import_path, load_named

if TYPE_CHECKING:
    from torch import Tensor, dtype
    from torch.nn import Module
    from torch.optim import Optimizer

NONE: Mapping[str, Any] = MappingProxyType({})
MODEL = "model"
"""The first parameter of a factory that wants the model itself, to make groups of its parameters by name."""
OWN_OPTIONS = ("params", "lr", MODEL)
"""What an optimizer's constructor takes, but not from `optimizer_options`."""
WAYS_TO_RUN = frozenset({"capturable", "foreach", "fused"})
"""Options that change how an optimizer runs, and not what it computes."""
ADAFACTOR_EPS2 = 1e-3
"""Torch's default for the second of its two."""


class BadOptimizer(Exception):  # noqa: N818 - named like BadConfig
    """`optimizer` or `optimizer_options` does not fit. The message names the option."""


def longest_memory(groups: Iterable[Mapping[str, Any]]) -> float:
    """The longest memory of an optimizer with these `param_groups`: Adam's second beta, 0 where there is none."""
    return max((float(beta) for group in groups for beta in group.get("betas", ())), default=0.0)


def make_optimizer(
    name: str,
    parameters: Iterable["Tensor"],
    *,
    lr: float,
    options: Mapping[str, Any] = NONE,
    device: str,
    capturable: bool = False,
    defaults: Mapping[str, Any] = NONE,
    model: "Module | None" = None,
) -> "Optimizer":
    """The named optimizer over `parameters`; the user's own over what it takes of `model`, where its first parameter is so named.

    Lists among the `options` become tuples. `defaults` are for the options that it has and nobody gave; so is `capturable`, on a
    GPU alone. It is for steps that are captured in a CUDA graph or compiled, which cannot be had without; elsewhere it launches
    kernels for what the host computes as well, and an eager arm that had it would flatter what is held against it.

    Raises:
        BadOptimizer: an option that it does not have, a value that it refuses, something that is no optimizer, or one that wants
            the model where none is given.
        LookupError: nothing lies behind the import path.
    """
    from torch.optim import Optimizer

    named, make = _find(name)
    taken = inspect.signature(make).parameters
    wants_model = next(iter(taken), None) == MODEL
    if wants_model and model is None:
        raise BadOptimizer(f"optimizer: {named} takes the model, which training_loss alone gives; take the parameters here")
    known = [option for option in taken if option not in OWN_OPTIONS]
    arguments = {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values()):
        _check_options(named, arguments, known, device)
    given = {**defaults, **({"capturable": True} if capturable and device != "cpu" else {})}
    arguments = {**{option: value for option, value in given.items() if option in known}, **arguments}
    try:
        built = make(model if wants_model else parameters, lr=lr, **arguments)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise BadOptimizer(f"optimizer_options: {named} refuses {arguments} with lr {lr}: {error}") from error
    if not isinstance(built, Optimizer):
        raise BadOptimizer(f"optimizer: {named} gives {type(built).__name__}; it has to give a torch.optim.Optimizer")
    return built


def same_in_fp64(name: str, options: Mapping[str, Any], weights: "dtype") -> dict[str, Any]:
    """Options with which an optimizer computes in fp64 on the CPU what it does for weights of that format, rounding aside."""
    import torch

    given = {option: value for option, value in options.items() if option not in WAYS_TO_RUN}
    if name == "Adafactor":  # where no epsilon is given it takes that of the weights' format
        given.setdefault("eps", [torch.finfo(weights).eps, ADAFACTOR_EPS2])
    return given


def _find(name: str) -> tuple[str, Callable[..., Any]]:
    """What messages call it, and what makes it."""
    import torch

    if is_import_path(name):
        return name, load_named(name, option="optimizer")
    return f"torch.optim.{name}", getattr(torch.optim, name)


def _check_options(optimizer: str, arguments: Mapping[str, Any], known: list[str], device: str) -> None:
    """Refuse what the constructor would not name, or would only stumble over in the first step."""
    for name in arguments:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(known)}"
            raise BadOptimizer(f"optimizer_options.{name}: {optimizer} does not take this option here ({hint})")
    if device == "cpu" and arguments.get("capturable"):
        message = "optimizer_options.capturable: needs a GPU, and this runs on the CPU; leave it out, it is on where it has to be"
        raise BadOptimizer(message)
