"""An arm's forward pass: the model itself, or a candidate's translation of it.

Translating happens in the first call, so its time is the latency of that call.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ci_bench.suites.contract import Compiler, Unsupported
from ci_bench.suites.shared.planning import arms
from ci_bench.suites.shared.worker import compiling
from ci_bench.suites.shared.worker.experiments import symbols
from ci_bench.suites.shared.worker.user_code import resolve_backend
from ci_bench.suites.transformers.inputs import Batch
from ci_bench.suites.transformers.options import Candidate, Mode, Way

OTHER_WAYS = ("none", "torchscript", "export", "export-strict", "overhead")
"""Ways that a candidate may name in addition to dynamo's backends."""
Forward = Callable[..., Any]
"""Takes a batch as keywords; returns the model's result, or its tensors in their order."""


def forward_of(
    candidate: Candidate | None,
    model: nn.Module,
    fixed: Mapping[str, Any],
    *,
    dynamic: bool | None = None,
    batches: Sequence[Batch] = (),
) -> Forward:
    """Return the forward pass of an arm; `fixed` are arguments of every call.

    `dynamic` is the argument of `torch.compile` for candidates that leave it open. Sizes in which
    `batches` differ are symbols of an export.
    """
    if candidate is None:
        return partial(model, **fixed)
    if candidate.way is Way.DYNAMO:
        return partial(compiled(candidate, model, dynamic=dynamic), **fixed)
    return Translated(candidate.way, model, fixed, batches)


def compiled(
    candidate: Candidate,
    function: Callable[..., Any],
    *,
    dynamic: bool | None = None,
    key: str = "",
) -> Callable[..., Any]:
    """Compile a function with the candidate's arguments for `torch.compile`.

    `dynamic` is for a candidate without it; `key` as in `compiling.compiled`. If CUDA graphs may
    run it, each call starts a step: it may overwrite the results of the previous call.
    """
    run = compiling.compiled(
        candidate.compiled, function, dynamic=dynamic, whole_step=False, key=key
    )
    if not has_cuda_graphs(candidate):
        return run

    def begin(*values: Any, **arguments: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return run(*values, **arguments)

    return begin


def has_cuda_graphs(candidate: Candidate | None) -> bool:
    """Return true if an arm may replay CUDA graphs, whose outputs live until the next replay."""
    return candidate is not None and (
        candidate.backend == "cudagraphs" or candidate.mode in arms.MODES_WITH_CUDA_GRAPHS
    )


def compiler_of(candidate: Candidate | None) -> Compiler:
    """Return the compiler of an arm, for the engine."""
    if candidate is None:
        return Compiler.NONE
    return Compiler.DYNAMO if candidate.way is Way.DYNAMO else Compiler.OTHER


def check_candidate(candidate: Candidate, mode: Mode) -> None:
    """Check before timing that a candidate can run in a mode.

    Raises:
        Unsupported: tracing and exporting are only for a forward pass.
        LookupError: the backend does not exist.
        ValueError: the backend takes no mode.
    """
    if candidate.way is not Way.DYNAMO:
        if mode is not Mode.INFERENCE:
            raise Unsupported(
                f"{candidate.way} translates a forward pass with fixed weights; mode {mode} needs"
                " torch.compile"
            )
        return
    _backend(candidate)
    if candidate.mode is not None and candidate.backend != "inductor":
        raise ValueError(
            f"candidate.mode: {candidate.mode} is a mode of inductor; backend {candidate.backend}"
            " has none"
        )


def _backend(candidate: Candidate) -> str | Callable[..., Any]:
    if candidate.compiled.experiment is not None:
        return compiling.backend_of(candidate.compiled)
    return resolve_backend(candidate.backend, option="candidate", also=OTHER_WAYS)


class Translated:
    """A model traced by TorchScript or exported, in its first call, from that call's batch."""

    def __init__(
        self, way: Way, model: nn.Module, fixed: Mapping[str, Any], batches: Sequence[Batch] = ()
    ) -> None:
        """Store the model; nothing is translated yet.

        The sizes of `batches` are those that an export is to serve.
        """
        self._way, self._model, self._fixed, self._batches = way, model, fixed, batches
        self._run: Callable[..., tuple[Tensor, ...]] | None = None

    def __call__(self, **batch: Tensor) -> tuple[Tensor, ...]:
        """Return the model's output tensors in their order."""
        if self._run is None:
            self._run = self._translate(batch)
        return self._run(*batch.values())

    def _translate(self, batch: Batch) -> Callable[..., tuple[Tensor, ...]]:
        """Translate the model with all inputs of a batch: an encoder-decoder model has two."""
        wrapped = _Positional(self._model, tuple(batch), self._fixed)
        example = tuple(batch.values())
        if self._way in {Way.EXPORT, Way.EXPORT_STRICT}:
            strict = self._way is Way.EXPORT_STRICT
            sizes = symbols(
                wrapped, [(tuple(sized_batch.values()), {}) for sized_batch in self._batches]
            )
            program = torch.export.export(wrapped, example, dynamic_shapes=sizes, strict=strict)
            run: Callable[..., tuple[Tensor, ...]] = program.module()
            return run
        with warnings.catch_warnings():
            # Values that a trace takes for constant are so: verified sizes would differ otherwise.
            warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined] # torch documents it there
            warnings.simplefilter("ignore", DeprecationWarning)
            traced: Callable[..., tuple[Tensor, ...]] = torch.jit.trace(
                wrapped, example, check_trace=False
            )  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return traced


class _Positional(nn.Module):
    """A model with positional inputs whose outputs are a tuple of tensors, as tracing requires."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        batch = dict(zip(self.names, values, strict=True))
        return tuple(tensors_of(self.model(**batch, **self.fixed)).values())


def tensors_of(output: Any) -> dict[str, Tensor]:
    """Return the tensors of a model's output in order, by their place: ``0``, ``1`` and so on."""
    structure = output.to_tuple() if hasattr(output, "to_tuple") else output
    return {
        str(place): leaf
        for place, leaf in enumerate(
            leaf for leaf in tree_leaves(structure) if isinstance(leaf, Tensor)
        )
    }
