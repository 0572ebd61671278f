"""Run one captured graph uncompiled and compiled, and report if compiling went wrong.

Every bundle contains this file. A bundle is an archive that Python runs: ``python repro-ARM.pyz``.
The graph is source, its inputs are safetensors: nothing is unpickled. Exit codes are those of
``git bisect run``: 0 the compiler is right, 1 it is wrong or fails, 125 inconclusive.

Outputs, gradients of all inputs that require them, and inputs after the call are compared, each
with the root mean square of its error against the same graph in fp64. The compiled graph's error
may be 3 times the uncompiled one's, plus 1e-4 of the values (1e-2 below fp32), as in torch's own
runner (`torch._dynamo.utils.same`). Imports nothing of ci-bench.
"""

import argparse
import contextlib
import importlib
import json
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RIGHT, WRONG, UNKNOWN = 0, 1, 125
SEED = 20_010
FACTOR = 3.0
"""The largest allowed ratio of an error to the uncompiled graph's."""
FAILS = "compiling fails"
SINGLE, HALF = 1e-4, 1e-2
"""And so much of the values more: of fp32 and fp64; of types with fewer digits."""


@dataclass(frozen=True, kw_only=True)
class ReplayOutcome:
    """`code` is an exit code; `says` a sentence."""

    code: int
    says: str


def replayed(
    graph: Any,
    inputs: Sequence[Any],
    compiled: Callable[[], Callable[..., Any]],
    settings: Mapping[str, Any],
) -> ReplayOutcome:
    """Compare the results of the function that `compiled` returns with `graph`'s.

    Raises what the uncompiled graph raises.
    """
    uncompiled_results = _results(graph, inputs, settings)
    exact = _exact(graph, inputs, settings)
    try:
        compiled_results = _results(compiled(), inputs, settings)
    except Exception as error:  # noqa: BLE001 - a compiler's error is of any class
        first = str(error).strip().partition("\n")[0]
        return ReplayOutcome(code=WRONG, says=f"{FAILS}: {type(error).__name__}: {first}"[:200])
    if uncompiled_results.keys() != compiled_results.keys():
        return ReplayOutcome(
            code=WRONG,
            says=f"it gives {len(compiled_results)} tensors instead of {len(uncompiled_results)}",
        )
    worst = [
        difference
        for name in uncompiled_results
        if (
            difference := _describe_difference(
                name, uncompiled_results[name], compiled_results[name], exact.get(name)
            )
        )
    ]
    return (
        ReplayOutcome(code=WRONG, says=worst[0])
        if worst
        else ReplayOutcome(code=RIGHT, says=f"{len(uncompiled_results)} tensors agree")
    )


def _results(
    call: Callable[..., Any], inputs: Sequence[Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return outputs, gradients, and one call's changes of its inputs, by name.

    The inputs given stay as they are.
    """
    import torch

    arguments = [_leaf(value) for value in inputs]
    torch.manual_seed(SEED)
    with torch.set_grad_enabled(bool(settings["grad"])), _autocast(settings):
        returned = call(*arguments)
    outputs = [
        tensor
        for tensor in (returned if isinstance(returned, list | tuple) else [returned])
        if isinstance(tensor, torch.Tensor)
    ]
    results = {f"output {index}": tensor.detach().clone() for index, tensor in enumerate(outputs)}
    roots = [tensor for tensor in outputs if tensor.requires_grad]
    leaves = [
        (index, tensor)
        for index, tensor in enumerate(arguments)
        if isinstance(tensor, torch.Tensor) and tensor.is_leaf and tensor.requires_grad
    ]
    if roots and leaves:
        torch.manual_seed(SEED)
        directions = [torch.randn(tensor.shape, dtype=torch.float32).to(tensor) for tensor in roots]
        gradients: tuple[Any, ...] = torch.autograd.grad(
            roots, [tensor for _, tensor in leaves], directions, allow_unused=True
        )
        results |= {
            f"gradient of input {index}": tensor
            for (index, _), tensor in zip(leaves, gradients, strict=True)
            if tensor is not None
        }
    written = {
        index: tensor for index, tensor in enumerate(arguments) if isinstance(tensor, torch.Tensor)
    }
    results |= {
        f"input {index} as it is left": tensor.detach() for index, tensor in written.items()
    }
    return results


def _leaf(value: Any) -> Any:
    import torch

    return (
        value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
    )


@contextlib.contextmanager
def _autocast(settings: Mapping[str, Any]) -> Iterator[None]:
    import torch

    if not settings["autocast"]:
        yield
        return
    with torch.autocast(settings["device"], dtype=getattr(torch, settings["autocast"])):
        yield


def _exact(graph: Any, inputs: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results in fp64; none if the graph names other types."""
    import copy

    import torch

    wide = [
        (
            argument.detach().double().requires_grad_(argument.requires_grad)
            if isinstance(argument, torch.Tensor) and argument.is_floating_point()
            else argument
        )
        for argument in inputs
    ]
    try:
        return _results(copy.deepcopy(graph).double(), wide, {**settings, "autocast": ""})
    except (RuntimeError, TypeError, ValueError):
        return {}


def _describe_difference(name: str, uncompiled: Any, compiled: Any, exact: Any | None) -> str:
    """Describe how a tensor differs by more than rounding; empty if it doesn't."""
    if uncompiled.shape != compiled.shape or uncompiled.dtype != compiled.dtype:
        return (
            f"{name} is {tuple(compiled.shape)} of {compiled.dtype}, not {tuple(uncompiled.shape)}"
            f" of {uncompiled.dtype}"
        )
    if not (uncompiled.is_floating_point() or uncompiled.is_complex()):
        unlike = int((uncompiled != compiled).sum())
        return f"{name}: {unlike} of {compiled.numel()} values differ" if unlike else ""
    finite = uncompiled.isfinite()
    if not bool((finite == compiled.isfinite()).all()):
        return f"{name}: other values are not finite"
    allowed = HALF if uncompiled.dtype.itemsize < 4 else SINGLE  # noqa: PLR2004 - bytes of fp32
    reference = uncompiled if exact is None or exact.shape != uncompiled.shape else exact
    reference = reference.to(dtype=_wide(uncompiled))[finite]
    scale = _rms(reference)
    off, rounding = (
        _rms(tensor.to(dtype=_wide(uncompiled))[finite] - reference)
        for tensor in (compiled, uncompiled)
    )
    if off <= FACTOR * rounding + allowed * scale + sys.float_info.min:
        return ""
    return f"{name} is off by {off:.3g}, uncompiled by {rounding:.3g}, of values of {scale:.3g}"


def _wide(value: Any) -> Any:
    import torch

    return torch.complex128 if value.is_complex() else torch.float64


def _rms(values: Any) -> float:
    return float(values.abs().square().mean().sqrt()) if values.numel() else 0.0


def compiler_of(name: str) -> Any:
    """Return a backend by torch's name of it, or as ``module:attribute``.

    Raises `ImportError` or `AttributeError`.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        return name
    backend: Any = importlib.import_module(module)
    for part in attribute.split("."):
        backend = getattr(backend, part)
    return backend


def read(archive: str, described: Sequence[Any]) -> list[Any]:
    """Return the graph's inputs: kept ones, those drawn with the original spread, plain numbers."""
    import torch
    from safetensors.torch import load

    with zipfile.ZipFile(archive) as opened:
        stored = load(opened.read("inputs.safetensors"))
    torch.manual_seed(SEED)
    return [_input(index, description, stored) for index, description in enumerate(described)]


def _input(index: int, described: Any, stored: Mapping[str, Any]) -> Any:
    import torch

    if not isinstance(described, dict):
        return described
    dtype = getattr(torch, described["dtype"])
    value = torch.empty_strided(
        described["shape"], described["stride"], dtype=dtype, device=described["device"]
    )
    with torch.no_grad():
        if str(index) in stored:
            value.copy_(stored[str(index)])
        else:
            drawn = torch.randn(described["shape"]) * described["spread"] + described["mean"]
            value.copy_(drawn.clamp(described["least"], described["most"]))
    return value.requires_grad_(described["requires_grad"])


def main(archive: str, build: Callable[[], Any], settings: Mapping[str, Any]) -> int:
    """Replay, print one line, and return the exit code.

    The last line is JSON with ``--json``.
    """
    parser = argparse.ArgumentParser(
        description="Runs a captured graph compiled and uncompiled: 0 right, 1 wrong, 125 unknown."
    )
    parser.add_argument(
        "--compiler",
        default=settings["compiler"],
        help="another backend: eager, aot_eager, module:attribute",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    flags = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    try:
        outcome = _replay(archive, build, settings, flags.compiler)
    except Exception as error:  # noqa: BLE001 - whatever it is, it says nothing of the compiler
        outcome = ReplayOutcome(code=UNKNOWN, says=f"undecided: {type(error).__name__}: {error}")
    says = f"{outcome.says} (the graph has {settings['size']})"
    word = {RIGHT: "right", WRONG: "wrong", UNKNOWN: "unknown"}[outcome.code]
    text = (
        json.dumps({"code": outcome.code, "says": says})
        if flags.json
        else f"{flags.compiler}: {word}: {says}"
    )
    sys.stdout.write(text + "\n")
    return outcome.code


def _replay(
    archive: str, build: Callable[[], Any], settings: Mapping[str, Any], compiler: str
) -> ReplayOutcome:
    import torch
    from torch._dynamo import config

    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor import config as inductor

        inductor.fallback_random = True  # both then draw the same numbers
    config.suppress_errors = False
    graph, inputs, backend = build(), read(archive, settings["inputs"]), compiler_of(compiler)
    options = settings["options"] if compiler == settings["compiler"] else {}
    return replayed(
        graph,
        inputs,
        lambda: torch.compile(graph, backend=backend, options=dict(options) or None),
        settings,
    )
