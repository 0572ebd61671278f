"""Reduce the graph of a bundle while it goes wrong in the same way, by functorch's minifier.

Runs in a separate process: a compiler that crashes or never ends on a smaller graph affects nothing
else, and killing the process enforces a time limit. Each smaller graph is written as soon as it
goes wrong, so progress survives. Run as
``python -m ci_bench.worker.profiling.minifying ORIGINAL SMALLER``, both bundles; the first goes
wrong, the second is written.
"""

import contextlib
import copy
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci_bench.worker.profiling import replay
from ci_bench.worker.profiling.bundles import CapturedBundle, operators_of, write

Keep = Callable[[Any, Sequence[Any]], None]


def minified(graph: Any, inputs: Sequence[Any], settings: Mapping[str, Any], keep: Keep) -> None:
    """Give `keep` each smaller graph (operators or inputs) that goes wrong as this one does.

    The smallest comes last. Graphs that `keep` refuses by `ValueError` do not count.

    Raises:
        ValueError: this one does not go wrong.
    """
    from torch._functorch.fx_minifier import minifier

    first = _wrong(graph, inputs, settings)
    if not first:
        raise ValueError("the recaptured graph is right")
    least = (operators_of(graph), len(inputs))

    def goes_wrong(smaller: Any, smaller_inputs: Sequence[Any]) -> bool:
        nonlocal least
        if _wrong(smaller, smaller_inputs, settings) != first:
            return False
        size = (operators_of(smaller), len(smaller_inputs))
        if size < least:
            try:
                keep(smaller, smaller_inputs)
            except ValueError:  # it is not a file, so find the rest elsewhere
                return False
            least = size
        return True

    with _as_captured(settings):
        minifier(graph, list(inputs), goes_wrong, dump_state=lambda *_: None, skip_sanity=True)


def _wrong(graph: Any, inputs: Sequence[Any], settings: Mapping[str, Any]) -> str:
    """Describe how a compiled graph goes wrong, without figures.

    Empty if it is right or does not run at all.
    """
    import torch
    from torch import _dynamo

    _dynamo.reset()
    options = dict(settings["options"]) or None
    backend = replay.compiler_of(settings["compiler"])

    def call(*arguments: Any) -> Any:
        """Call the graph, from code that dynamo compiles: it leaves generated code as it is."""
        return graph(*arguments)

    try:
        with torch.autocast(settings["device"], enabled=False):
            outcome = replay.replayed(
                graph,
                inputs,
                lambda: torch.compile(call, backend=backend, options=options),
                settings,
            )
    except Exception:  # noqa: BLE001 - a part of a graph that does not run does not accuse the compiler
        return ""
    if outcome.code != replay.WRONG:
        return ""
    kind, _, error = outcome.says.partition(": ")
    return f"{kind}: {error.partition(':')[0]}" if kind == replay.FAILS else "another result"


def recaptured(
    module: Any, inputs: Sequence[Any], settings: Mapping[str, Any]
) -> tuple[Any, list[Any]]:
    """Return dynamo's graph of a bundle's module, with its inputs.

    Raises `ValueError` if there are several.
    """
    import torch

    graphs: list[tuple[Any, list[Any]]] = []

    def take(graph: Any, example_inputs: Sequence[Any]) -> Any:
        captured = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        graphs.append(
            (
                captured,
                [
                    tensor.detach().clone().requires_grad_(tensor.requires_grad)
                    for tensor in example_inputs
                ],
            )
        )
        return graph.forward

    with _as_captured(settings):
        run: Callable[..., Any] = torch.compile(module, backend=take, dynamic=False)
        run(*inputs)
    if len(graphs) != 1:
        raise ValueError(f"dynamo makes {len(graphs)} graphs of it")
    return graphs[0]


@contextlib.contextmanager
def _as_captured(settings: Mapping[str, Any]) -> Iterator[None]:
    """Restore gradients and autocast as they were when the graph was captured."""
    import torch

    kind = settings["autocast"]
    narrow: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if kind:
        narrow = torch.autocast(settings["device"], dtype=getattr(torch, kind))
    with torch.set_grad_enabled(bool(settings["grad"])), narrow:
        yield


def main(original: Path, smaller: Path) -> None:
    """Minify one bundle into another."""
    from torch._dynamo import config

    sys.path.insert(0, str(Path.cwd()))
    bundle = runpy.run_path(str(original), run_name="bundle")
    settings = bundle["SETTINGS"]
    config.suppress_errors = False
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor import config as inductor

        inductor.fallback_random = True  # as `replay` has it
        inductor.compile_threads = 1  # a pool of processes costs more than these small graphs
    graph, inputs = recaptured(
        bundle["Repro"](), replay.read(str(original), settings["inputs"]), settings
    )
    same = {name: settings[name] for name in ("compiler", "options", "grad", "autocast", "device")}
    whole_size = operators_of(graph)

    def keep(smaller_graph: Any, smaller_inputs: Sequence[Any]) -> None:
        unfinished = smaller.with_suffix(".unfinished")
        write(
            unfinished,
            CapturedBundle(
                graph=smaller_graph, inputs=tuple(smaller_inputs), operators=whole_size, **same
            ),
            name=original.name,
        )
        unfinished.replace(smaller)

    minified(graph, inputs, settings, keep)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
