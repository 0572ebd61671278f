"""The optimizer of a training: one of torch by its name, or the user's own by its import path.

Built in workers only.
"""

import difflib
import inspect
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ci_bench.suites.shared.worker.user_code import is_import_path, load_named

if TYPE_CHECKING:
    from torch import Tensor, dtype
    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

NONE: Mapping[str, Any] = MappingProxyType({})
MODEL = "model"
"""The first parameter of a factory that takes the model, to group its parameters by name."""
OWN_OPTIONS = ("params", "lr", MODEL)
"""Arguments of an optimizer's constructor that do not come from `optimizer_options`."""
WAYS_TO_RUN = frozenset({"capturable", "foreach", "fused"})
"""Options that change how an optimizer runs, but not its results."""
ADAFACTOR_EPS2 = 1e-3
"""Torch's default for the second of its two."""

SMALLEST_EPS = 1e-4
"""Adam's 1e-8 is zero in fp16, and the first update then 0 / 0."""

FP32_ROUNDING = 2.0**-24
RECTIFIED, RECTIFIED_FROM, RECTIFIED_BY = "RAdam", 5.0, 20
"""Torch's optimizer whose step has a root of a length in it; from which length on, and by which
step that is so.
"""
UPDATES = "updates by known gradients"
"""Prefix for the tensors of `updates_by_known_gradients`, before a colon and the weight's name."""
KNOWN_SIZES = (1e-6, 1.0, *[1e-2] * 6)
"""The root mean square of the known gradients, step by step: an epsilon shows at the first, a limit
at the second, and what an optimizer remembers, or does every few steps, at the others.
"""
MOST_KEPT = 1 << 16
"""Elements of an update that are kept; a larger update keeps this many, evenly spread."""

logger = logging.getLogger(__name__)


class BadOptimizer(Exception):  # noqa: N818 - named like BadConfig
    """`optimizer` or `optimizer_options` does not fit. The message names the option."""


def lost_by(beta: float, rounding: float) -> float:
    """Return the share of its change that an optimizer with memory `beta` loses.

    Its divisor is off by `rounding`.
    """
    return rounding / (1 - beta)


def longest_memory(name: str, groups: Iterable[Mapping[str, Any]]) -> float:
    """Return the longest memory of the optimizer `name` with these `param_groups`.

    It is Adam's second beta, 0 without one. An optimizer that forgets slowly divides by little, and
    in fp32 loses digits by that (`numerics.of_optimizer`). RAdam's counts as the longer one with
    which Adam would be allowed half of the worst of `lost_by_correction`: its roundings never add
    up.
    """
    betas = [float(beta) for group in groups for beta in group.get("betas", ())]
    longest = max(betas, default=0.0)
    if name != RECTIFIED or not 0 < longest < 1:
        return longest
    lost = max(lost_by_correction(name, betas, step) for step in range(1, RECTIFIED_BY))
    return 1 - min(1 - longest, FP32_ROUNDING / (lost / 16))


def lost_by_correction(name: str, betas: Iterable[float], step: int) -> float:
    """Return the share of a step that the roundings of fp32 cost in the bias correction of moments.

    Steps are counted from 1. Eager computes the correction in Python's fp64, a compiled step in
    fp32. Adam and its kin divide by ``1 - beta ** t``. Beta is off by half a rounding, its power by
    `t` times that and by one more rounding. Both are shares of a small remainder:
    ``2 ** -24 (1 + t / 2) / (1 - beta ** t)``. RAdam also takes a small difference of large
    numbers, ``rho_t = rho_inf - 2 t beta2 ** t / (1 - beta2 ** t)``, and from ``rho_t > 5`` on
    steps by the root of ``(rho_t - 4) (rho_t - 2) / rho_t`` (Liu et al. 2020, algorithm 2).
    """
    decays = [beta for beta in betas if 0 < beta < 1]
    share = max((FP32_ROUNDING * (1 + step / 2) / (1 - beta**step) for beta in decays), default=0.0)
    if name != RECTIFIED or not decays:
        return share
    longest = 2 / (1 - decays[-1]) - 1
    away = 2 * step * decays[-1] ** step / (1 - decays[-1] ** step)
    length = longest - away
    if length <= RECTIFIED_FROM:
        return share
    steepness = abs(1 / (length - 4) + 1 / (length - 2) - 1 / length) / 2
    return share * max(1.0, away * steepness)


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
    """Make the named optimizer over `parameters`.

    The user's own gets `model` if its first parameter has that name. Lists among the `options`
    become tuples. `defaults` are for the options that it has, as one value, and the user did not
    set. `capturable` is such a default, only on a GPU, for steps that are captured in a CUDA graph
    or compiled, which need it. Elsewhere it launches kernels for work that the host does as well,
    and a slower eager arm would flatter the arms compared with it. Its `zero_grad` also clears
    those of `parameters` that it leaves out, whose gradients would grow from step to step.

    Raises:
        BadOptimizer: an option that it does not have, a value that it refuses, an object that is
            not an optimizer, one that takes the model although none is given, or one whose step
            needs a closure.
        LookupError: the import path leads to nothing.
    """
    from torch.optim import Optimizer

    label, make = _find(name)
    trained = list(parameters)
    accepted = inspect.signature(make).parameters
    takes_model = next(iter(accepted), None) == MODEL
    if takes_model and model is None:
        raise BadOptimizer(
            f"optimizer: {label} takes the model, which only training_loss passes; take the"
            " parameters here"
        )
    presets = {**defaults, **({"capturable": True} if capturable and device != "cpu" else {})}
    arguments = _arguments(label, accepted, options, presets, device)
    try:
        built = make(model if takes_model else trained, lr=lr, **arguments)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        raise BadOptimizer(
            f"optimizer_options: {label} refuses {arguments} with lr {lr}: {error}"
        ) from error
    if not isinstance(built, Optimizer):
        raise BadOptimizer(
            f"optimizer: {label} gives {type(built).__name__}; it has to give a"
            " torch.optim.Optimizer"
        )
    if _needs_closure(built):
        raise BadOptimizer(
            f"optimizer: the step of {label} needs a closure, which a training step here does not "
            "have; take an optimizer whose step works without one"
        )
    _clear_all(built, trained)
    return built


def _arguments(
    label: str,
    accepted: Mapping[str, inspect.Parameter],
    options: Mapping[str, Any],
    presets: Mapping[str, Any],
    device: str,
) -> dict[str, Any]:
    """Return the constructor's options: the user's, and those `presets` that it accepts.

    Raises `BadOptimizer`.
    """
    option_names = [option for option in accepted if option not in OWN_OPTIONS]
    arguments = {
        option: tuple(value) if isinstance(value, list) else value
        for option, value in options.items()
    }
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values()):
        _check_options(label, arguments, option_names, device)
    fitting = (
        option
        for option in presets
        if option in option_names and not isinstance(accepted[option].default, tuple)
    )
    return {**{option: presets[option] for option in fitting}, **arguments}


def _needs_closure(optimizer: "Optimizer") -> bool:
    """Return true if `step` has an argument without a default, as that of `torch.optim.LBFGS`."""
    arguments = inspect.signature(optimizer.step).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = (argument for argument in arguments if argument.default is inspect.Parameter.empty)
    return any(argument.kind in positional for argument in needed)


def _clear_all(optimizer: "Optimizer", parameters: Iterable["Tensor"]) -> None:
    """Let `zero_grad` also clear parameters that the optimizer does not have."""
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    others = [parameter for parameter in parameters if id(parameter) not in trained]
    if not others:
        return
    clear = optimizer.zero_grad

    def zero_grad(set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - torch's own signature
        clear(set_to_none)
        for parameter in others:
            parameter.grad = None

    optimizer.zero_grad = zero_grad  # type: ignore[method-assign] # of this one


def names_of(optimizer: "Optimizer", model: "Module") -> tuple[str, ...]:
    """Return the names of the parameters that an optimizer trains, in the order of their state.

    It is all that require gradients, if the optimizer has others than the model, as of a sharded
    one.
    """
    names = {id(value): name for name, value in model.named_parameters()}
    numbers = [id(value) for group in optimizer.param_groups for value in group["params"]]
    if any(number not in names for number in numbers):
        return tuple(name for name, value in model.named_parameters() if value.requires_grad)
    return tuple(names[number] for number in numbers)


def same_in_fp64(name: str, options: Mapping[str, Any], weights: "dtype") -> dict[str, Any]:
    """Return options with which an optimizer in fp64 on the CPU does the same, up to rounding.

    The format of the weights decides them.
    """
    import torch

    settings = {option: value for option, value in options.items() if option not in WAYS_TO_RUN}
    if name == "Adafactor":  # where no epsilon is given it takes that of the weights' format
        settings.setdefault("eps", [torch.finfo(weights).eps, ADAFACTOR_EPS2])
    return settings


def updates_by_known_gradients(
    make: Callable[[list["Parameter"]], "Optimizer"],
    weights: Mapping[str, "Tensor"],
    *,
    separately: bool,
) -> dict[str, "Tensor"]:
    """Measure how far an optimizer moves each weight in a few steps of the same random gradients.

    No model's rounding is in these gradients. A gradient depends only on its weight's shape, so new
    names and another order of the modules change nothing. The steps are taken in fp64 on the CPU,
    the moves are fp32.

    Args:
        make: the optimizer over fp64 copies of weights, as `same_in_fp64` has it.
        weights: the start of the trained weights, by name.
        separately: true if it updates each weight separately, as torch's own do: then only one is
            in memory.

    Returns:
        The moves by name, flat; empty if the optimizer cannot do it, which the log reports.
    """
    import torch

    groups = [[name] for name in weights] if separately else [[*weights]]
    updates: dict[str, Tensor] = {}
    try:
        for names in groups:
            copies = [
                torch.nn.Parameter(weights[name].detach().to("cpu", torch.float64, copy=True))
                for name in names
            ]
            optimizer = make(copies)
            for size in KNOWN_SIZES:
                for copy in copies:
                    copy.grad = _known_gradient(tuple(copy.shape), size)
                optimizer.step()
            for name, copy in zip(names, copies, strict=True):
                moved = (copy.detach() - weights[name].detach().to("cpu", torch.float64)).flatten()
                spread = moved[:: max(1, -(-moved.numel() // MOST_KEPT))]
                updates[f"{UPDATES}: {name}"] = spread.to(torch.float32)
    except Exception as error:  # noqa: BLE001 - the user's own optimizer may raise anything, and is verified elsewhere
        logger.info(
            "the optimizer was not tried on known gradients: %s: %s", type(error).__name__, error
        )
        return {}
    return updates


def _known_gradient(shape: tuple[int, ...], size: float) -> "Tensor":
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(repr((shape, size)).encode()))
    return size * torch.randn(shape, generator=generator, dtype=torch.float64)


def _find(name: str) -> tuple[str, Callable[..., Any]]:
    """Return the name for messages, and the factory."""
    import torch

    if is_import_path(name):
        return name, load_named(name, option="optimizer")
    return f"torch.optim.{name}", getattr(torch.optim, name)


def _check_options(
    optimizer: str, arguments: Mapping[str, Any], option_names: list[str], device: str
) -> None:
    """Refuse faults that the constructor would not name, or that only show in the first step."""
    for name in arguments:
        if name not in option_names:
            nearest = difflib.get_close_matches(name, option_names, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(option_names)}"
            raise BadOptimizer(
                f"optimizer_options.{name}: {optimizer} does not take this option here ({hint})"
            )
    if device == "cpu" and arguments.get("capturable"):
        message = (
            "optimizer_options.capturable: needs a GPU, and this runs on the CPU; leave it out, it"
            " is on where it has to be"
        )
        raise BadOptimizer(message)
