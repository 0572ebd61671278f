"""Functions that compile, by the name of a backend, and the settings of torch that go with it."""

import difflib
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ci_bench.suites.shared.planning.arms import CompiledArm
from ci_bench.suites.shared.planning.sizes import DynamicShapes
from ci_bench.suites.shared.worker.compiling import compiled, fail_beyond_limit
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision
from ci_bench.suites.torchbench.options import TorchbenchOptions, TorchbenchPrecision


def make_compiler(
    options: TorchbenchOptions, candidate: CompiledArm | None, *, key: str = ""
) -> Callable[[Callable[..., Any]], Any]:
    """Return `torch.compile` as a candidate has it, or the identity for `None`.

    `key` is as in `kept_apart`.
    """
    if candidate is None:
        return lambda function: function
    symbols = options.settings.dynamic and options.settings.dynamic_shapes is DynamicShapes.SYMBOLS
    dynamic = True if symbols else None
    return partial(
        compiled, candidate, fullgraph=options.settings.nopython, dynamic=dynamic, key=key
    )


def set_up_torch(options: TorchbenchOptions) -> None:
    """Apply settings to the whole worker: matmul precision, determinism, dynamo, inductor.

    Raises:
        LookupError: inductor has no option of a given name; the message names the nearest.
    """
    set_fp32_precision(tf32=options.precision is TorchbenchPrecision.TF32)
    if options.settings.deterministic:
        _be_deterministic()
    dynamo: Any = importlib.import_module("torch._dynamo.config")
    fail_beyond_limit()
    dynamo.suppress_errors = False
    set_inductor(wanted_of_inductor(options))


def wanted_of_inductor(options: TorchbenchOptions) -> dict[str, Any]:
    """Return inductor's options for a case, the general ones first."""
    settings = options.settings
    inductor_options: dict[str, Any] = {"fallback_random": True} if settings.align_rng else {}
    if settings.freezing:
        inductor_options["freezing"] = True
    if settings.cudagraphs is not None:
        inductor_options["triton.cudagraphs"] = settings.cudagraphs
    return {**inductor_options, **settings.inductor}


def set_inductor(options: Mapping[str, Any]) -> None:
    """Set options of inductor by dotted name, in the type that they have."""
    if not options:
        return
    config: Any = importlib.import_module("torch._inductor.config")
    current: dict[str, Any] = config.get_config_copy()
    for name, value in options.items():
        if name not in current:  # the torch of the plan's table is not this one
            near = difflib.get_close_matches(name, current, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise LookupError(
                f"inductor.{name}: inductor of torch {torch.__version__} has no such option{hint}"
            )
        holder, _, last = name.rpartition(".")
        target = config
        for step in filter(None, holder.split(".")):
            target = getattr(target, step)
        setattr(target, last, _typed(name, value, current[name]))


def _typed(name: str, value: Any, current: Any) -> Any:
    truth, number = isinstance(current, bool), isinstance(current, int | float)
    if truth and value not in {True, False}:
        raise LookupError(f"inductor.{name}: {value!r} is neither true nor false")
    if number and isinstance(value, str):
        raise LookupError(f"inductor.{name}: {value!r} is not a number")
    return type(current)(value) if number else value


def _be_deterministic() -> None:
    """Use kernels that give the same bits each time.

    CUBLAS_WORKSPACE_CONFIG has to be there before CUDA is used.
    """
    import os

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
