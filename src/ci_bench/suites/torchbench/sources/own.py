"""The user's own models: ``package.module:factory``, or ``path:FILE,class:NAME`` as the dynamo runner has it.

What is found there, a class or a function, is called with `model_options`, and gives one of:

- a module with a method ``get_example_inputs()`` (a tuple or a mapping of arguments), and if it has them
  ``loss(outputs, target)`` and ``get_target()``;
- a pair of module and example inputs;
- a triple of module, example inputs and a loss of the outputs alone.
"""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from ci_bench.suites.torchbench.options import Options
from ci_bench.suites.torchbench.sources.loaded import Loaded, Loss, as_sample, leading_rows


def load(options: Options, _: str) -> Loaded:
    """Call the user's factory.

    Raises:
        LookupError: there is no such module, file or name.
        TypeError: the factory gives something else than a model.
    """
    made = _factory(options.model)(**options.settings.model_options)
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


def _factory(model: str) -> Callable[..., Any]:
    where, name = _split(model)
    try:
        module = _from_file(Path(where.removeprefix("path:"))) if where.startswith("path:") else importlib.import_module(where)
    except ModuleNotFoundError as error:
        raise LookupError(f"models: {model!r} cannot be imported: {error}; install it, or start where it can be found") from error
    found: Callable[..., Any] | None = getattr(module, name, None)
    if found is None:
        raise LookupError(f"models: {where} has no {name!r}")
    return found


def _split(model: str) -> tuple[str, str]:
    """Where to look, and for what."""
    if model.startswith("path:"):
        where, comma, rest = model.partition(",class:")
        name = rest if comma else ""
    else:
        where, _, name = model.partition(":")
    if not name:
        raise LookupError(f"models: {model!r} is neither package.module:factory nor path:FILE,class:NAME")
    return where, name


def _from_file(path: Path) -> ModuleType:
    path = path.expanduser()
    spec = importlib.util.spec_from_file_location(f"ci_bench_own_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise LookupError(f"models: there is no Python file {path}; give its path from the folder where the run starts")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
