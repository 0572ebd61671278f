"""The user's own models: ``package.module:factory``, or ``path:FILE,class:NAME`` as the dynamo runner has it.

What is found there, a class or a function, is called with `model_options`, and gives one of:

- a module with a method ``get_example_inputs()`` (a tuple or a mapping of arguments), and if it has them
  ``loss(outputs, target)`` and ``get_target()``;
- a pair of module and example inputs;
- a triple of module, example inputs and a loss of the outputs alone.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ci_bench.suites.torchbench.options import Options
from ci_bench.suites.torchbench.sources.loaded import Loaded, Loss, as_sample, leading_rows
from ci_bench.suites.user_code import load_named


def load(options: Options, _: str) -> Loaded:
    """Call the user's factory.

    Raises:
        LookupError: there is no such module, file or name.
        TypeError: the factory gives something else than a model.
    """
    made = load_named(options.model, option="models")(**options.settings.model_options)
    module, inputs, loss, target = _parts(made, options.model)
    samples = tuple(as_sample(one, target) for one in (inputs if isinstance(inputs, list) else [inputs]))
    return Loaded(module=module, samples=samples, loss=loss, batch_size=leading_rows(samples[0]))


def _parts(made: Any, name: str) -> tuple[nn.Module, Any, Loss | None, Any]:
    if isinstance(made, tuple) and 2 <= len(made) <= 3 and isinstance(made[0], nn.Module):  # noqa: PLR2004 - as documented above
        own: Callable[[Any], Tensor] | None = made[2] if len(made) > 2 else None  # noqa: PLR2004 - likewise
        return made[0], made[1], None if own is None else _of_outputs(own), None
    if isinstance(made, nn.Module) and hasattr(made, "get_example_inputs"):
        loss: Loss | None = getattr(made, "loss", None)
        known: Any = made
        target = known.get_target() if hasattr(made, "get_target") else None
        return made, known.get_example_inputs(), loss, target
    message = (
        f"models: {name!r} gave {type(made).__name__}; it has to give a module with get_example_inputs(), "
        "or (module, example inputs), or (module, example inputs, loss of the outputs)"
    )
    raise TypeError(message)


def _of_outputs(own: Callable[[Any], Tensor]) -> Loss:
    def loss(outputs: Any, _: Any) -> Tensor:
        return own(outputs)

    return loss
