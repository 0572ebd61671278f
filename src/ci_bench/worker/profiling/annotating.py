"""Annotate each operator of a step with the user's line, and the line that made its inputs' layout.

A dispatch mode sees every operator that Python or autograd calls. One that reads a transposed,
strided or expanded tensor can take much longer than with a contiguous one, or copies it first; the
interesting line is then the one that made the layout.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ci_bench.records.profiles import SourceLine
from ci_bench.worker.profiling.operators import LABEL
from ci_bench.worker.profiling.sources import FrameSources

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

_Layout = tuple[int, tuple[int, ...], int]
_ENGINE = "_engine_run_backward"
"""The function of torch's that runs a backward pass."""


class Layouts:
    """The origins of layouts: where in one step each non-contiguous tensor's layout was made.

    The origin is an operator that read no such tensor. Operators pass a layout's origin from inputs
    to outputs. Layouts from before the step have none.
    """

    def __init__(self) -> None:
        """Start without any layout."""
        self._made: dict[_Layout, SourceLine] = {}

    def origin(self, inputs: Iterable[Any]) -> SourceLine | None:
        """Return the line of the first input whose layout was made in this step."""
        origins = (
            self._made.get(layout) for layout in map(layout_of, inputs) if layout is not None
        )
        return next((line for line in origins if line is not None), None)

    def follow(
        self, inputs: Iterable[Any], outputs: Iterable[Any], line: SourceLine | None
    ) -> None:
        """Record the layouts that an operator at `line` made of its inputs."""
        read = list(inputs)
        origin = self.origin(read)
        if origin is None and all(layout_of(tensor) is None for tensor in read):
            origin = line
        for layout in map(layout_of, outputs):
            if layout is not None and origin is not None:
                self._made[layout] = origin
            elif layout is not None:
                self._made.pop(layout, None)  # the memory of a freed tensor


def layout_of(value: Any) -> _Layout | None:
    """Return the storage, strides and offset of a non-contiguous tensor.

    `None` for other values.
    """
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    try:
        if value.is_contiguous():
            return None
        return (
            value.untyped_storage()._cdata,  # noqa: SLF001 - no other is stable
            tuple(value.stride()),
            int(value.storage_offset()),
        )
    except (RuntimeError, NotImplementedError, TypeError):
        return None  # a subclass without memory


@contextmanager
def annotated(table: list[SourceLine], sources: FrameSources) -> "Iterator[TorchDispatchMode]":
    """Annotate each operator with numbers of lines in `table`: the user's, and the layout's if any.

    An operator of the backward pass has the forward's line: a node of autograd has the same
    sequence number as its forward operator
    (https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.profiler.emit_nvtx). Code of
    the user's that runs in the backward pass (a function of autograd, a hook, a recomputed forward
    pass) has its own line.
    """
    from torch.autograd import _get_sequence_nr  # type: ignore[attr-defined] # it has no public name
    from torch.profiler import record_function
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    numbers: dict[SourceLine, int] = {}
    forward: dict[int, SourceLine] = {}
    layouts = Layouts()

    def number(line: SourceLine) -> int:
        index = numbers.setdefault(line, len(numbers))
        if index == len(table):
            table.append(line)
        return index

    class Annotating(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it unannotated
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            node, frame = _current_node(), sys._getframe(1)  # noqa: SLF001 - documented, and a hundred times as fast
            user_line = sources.of_frame(frame) if node is None else sources.within(frame, _ENGINE)
            if user_line is not None:
                # An operator that makes no node has the number of the node before, which has its
                # line by then.
                forward.setdefault(_get_sequence_nr() - 1, user_line)
            line = user_line or (forward.get(node._sequence_nr()) if node is not None else None)  # noqa: SLF001 - as above
            line = line or sources.of_frame(frame)
            if line is None:
                return func(*args, **(kwargs or {}))
            inputs = tree_leaves((args, kwargs))
            layout_line = layouts.origin(inputs)
            with record_function(
                label(number(line), None if layout_line is None else number(layout_line))
            ):
                result = func(*args, **(kwargs or {}))
            layouts.follow(inputs, tree_leaves(result), line)
            return result

    with Annotating() as mode:  # type: ignore[no-untyped-call] # as above
        yield mode


def label(line: int, layout: int | None) -> str:
    """Return the name of an annotation."""
    return f"{LABEL}{line}" if layout is None else f"{LABEL}{line} {layout}"


def _current_node() -> Any:
    """Return the node of autograd whose backward runs; `None` in a forward pass."""
    import torch

    return torch._C._current_autograd_node()  # noqa: SLF001 - it has no public name
