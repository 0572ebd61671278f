"""The user's own models: ``package.module:factory``, or ``path:FILE,class:NAME`` as the dynamo runner has it.

That class or function is called with `model_options`, and gives one of:

- a module with a method ``get_example_inputs()``, and if it has them ``loss(outputs, target)`` and
  ``get_target()``;
- a pair of module and example inputs;
- a triple of module, example inputs and a loss of only the outputs.

Example inputs are the arguments of one call, as TorchBench's ``get_module()`` and the runner's
``get_example_inputs()`` give them: a mapping by name, a tuple or a list by position, or a single
tensor. A batch size is passed to each of these that has a parameter ``batch_size``: the factory,
``get_example_inputs`` and ``get_target``.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ci_bench.errors import BadConfig
from ci_bench.suites.shared.worker.user_code import load_named
from ci_bench.suites.torchbench.options import TorchbenchOptions
from ci_bench.suites.torchbench.sources.loaded import Loaded, Loss, Sample, as_sample, leading_rows
from ci_bench.suites.torchbench.sources.transforms import leaves


def load(options: TorchbenchOptions, _: str) -> Loaded:
    """Call the user's factory.

    Raises:
        LookupError: the module, file or name does not exist.
        TypeError: the factory gives something else than a model.
        BadConfig: the example inputs do not have the requested batch size.
    """
    wanted = options.settings.batch_size
    factory = load_named(options.model, option="models")
    module, inputs, loss, target = _parts(_made(factory, options), options.model, wanted)
    sample = as_sample(inputs, target)
    _require_batch(sample, options)
    return Loaded(
        module=module, samples=(sample,), loss=loss, batch_size=wanted or leading_rows(sample)
    )


def _made(factory: Callable[..., Any], options: TorchbenchOptions) -> Any:
    arguments = dict(options.settings.model_options)
    sized = _sized(factory, options.settings.batch_size)
    if (
        sized
        and arguments.setdefault("batch_size", options.settings.batch_size)
        != options.settings.batch_size
    ):
        message = (
            f"batch_size is {options.settings.batch_size}, and model_options.batch_size"
            f" {arguments['batch_size']}; leave one out"
        )
        raise BadConfig(message)
    return factory(**{**arguments, **sized})


def _sized(function: Callable[..., Any], wanted: int | None) -> dict[str, int]:
    """The batch size as an argument, where one is wanted and the function has a parameter for it."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin that does not say
        return {}
    return {"batch_size": wanted} if wanted is not None and "batch_size" in parameters else {}


def _require_batch(sample: Sample, options: TorchbenchOptions) -> None:
    """Refuse a batch size that has no effect.

    Whichever dimension has it is the model's business.
    """
    wanted = options.settings.batch_size
    shapes = [tuple(leaf.shape) for leaf in leaves(sample)]
    if wanted is None or any(wanted in shape for shape in shapes):
        return
    raise BadConfig(
        f"batch_size: {wanted} rows are wanted of {options.model!r}, and its example inputs are of"
        f" shape {', '.join(map(str, shapes[:5])) or '(no tensor)'}; give the factory or"
        " get_example_inputs() a parameter `batch_size` and follow it, or leave batch_size out"
    )


def _parts(made: Any, name: str, wanted: int | None) -> tuple[nn.Module, Any, Loss | None, Any]:
    if isinstance(made, tuple) and 2 <= len(made) <= 3 and isinstance(made[0], nn.Module):  # noqa: PLR2004 - as documented above
        own: Callable[[Any], Tensor] | None = made[2] if len(made) > 2 else None  # noqa: PLR2004 - likewise
        return made[0], made[1], None if own is None else _of_outputs(own), None
    if isinstance(made, nn.Module) and hasattr(made, "get_example_inputs"):
        loss: Loss | None = getattr(made, "loss", None)
        known: Any = made
        target = (
            known.get_target(**_sized(known.get_target, wanted))
            if hasattr(made, "get_target")
            else None
        )
        return (
            made,
            known.get_example_inputs(**_sized(known.get_example_inputs, wanted)),
            loss,
            target,
        )
    message = (
        f"models: {name!r} gave {type(made).__name__}; it has to give a module with"
        " get_example_inputs(), or (module, example inputs), or (module, example inputs, loss of"
        " the outputs)"
    )
    raise TypeError(message)


def _of_outputs(own: Callable[[Any], Tensor]) -> Loss:
    def loss(outputs: Any, _: Any) -> Tensor:
        return own(outputs)

    return loss
