"""The user's own models: ``package.module:factory``, or ``path:FILE,class:NAME``.

The dynamo runner has the second form. That class or function is called with `model_options`, and
gives one of:

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
    batch_size = options.settings.batch_size
    factory = load_named(options.model, option="models")
    module, inputs, loss, target = _parts(
        _call_factory(factory, options), options.model, batch_size
    )
    sample = as_sample(inputs, target)
    _require_batch(sample, options)
    return Loaded(
        module=module, samples=(sample,), loss=loss, batch_size=batch_size or leading_rows(sample)
    )


def _call_factory(factory: Callable[..., Any], options: TorchbenchOptions) -> Any:
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


def _sized(function: Callable[..., Any], batch_size: int | None) -> dict[str, int]:
    """Return the batch size as an argument, if it is set and the function has such a parameter."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin that does not say
        return {}
    return (
        {"batch_size": batch_size} if batch_size is not None and "batch_size" in parameters else {}
    )


def _require_batch(sample: Sample, options: TorchbenchOptions) -> None:
    """Refuse a batch size that has no effect.

    Whichever dimension has it is the model's business.
    """
    batch_size = options.settings.batch_size
    shapes = [tuple(leaf.shape) for leaf in leaves(sample)]
    if batch_size is None or any(batch_size in shape for shape in shapes):
        return
    raise BadConfig(
        f"batch_size: {batch_size} rows are wanted of {options.model!r}, and its example inputs are"
        f" of shape {', '.join(map(str, shapes[:5])) or '(no tensor)'}; give the factory or"
        " get_example_inputs() a parameter `batch_size` and follow it, or leave batch_size out"
    )


def _parts(
    built: Any, name: str, batch_size: int | None
) -> tuple[nn.Module, Any, Loss | None, Any]:
    if isinstance(built, tuple) and 2 <= len(built) <= 3 and isinstance(built[0], nn.Module):  # noqa: PLR2004 - as documented above
        loss_of_outputs: Callable[[Any], Tensor] | None = built[2] if len(built) > 2 else None  # noqa: PLR2004 - likewise
        return (
            built[0],
            built[1],
            None if loss_of_outputs is None else _of_outputs(loss_of_outputs),
            None,
        )
    if isinstance(built, nn.Module) and hasattr(built, "get_example_inputs"):
        loss: Loss | None = getattr(built, "loss", None)
        model: Any = built
        target = (
            model.get_target(**_sized(model.get_target, batch_size))
            if hasattr(built, "get_target")
            else None
        )
        return (
            built,
            model.get_example_inputs(**_sized(model.get_example_inputs, batch_size)),
            loss,
            target,
        )
    message = (
        f"models: {name!r} gave {type(built).__name__}; it has to give a module with"
        " get_example_inputs(), or (module, example inputs), or (module, example inputs, loss of"
        " the outputs)"
    )
    raise TypeError(message)


def _of_outputs(function: Callable[[Any], Tensor]) -> Loss:
    def loss(outputs: Any, _: Any) -> Tensor:
        return function(outputs)

    return loss
