"""Marks on input sizes that differ: `mark_dynamic` and `mark_unbacked` on each batch's tensors.

Dynamo reads the marks from tensors. Verification and referee make new tensors, so a step marks
those without a mark, its target too. A mark is a promise that is kept or refused. A model that
specialises on such a size cannot have that dynamic shape (`Unsupported`);
`torch.compile(dynamic=True)` would compile once more instead. Imported by workers only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.planning.sizes import DynamicShapes
from ci_bench.suites.shared.worker.experiments import varying

MarkShapes = Callable[[Any], None]
"""Marks the tensors of one batch, which is any tree of them."""
MOST_OF_A_REASON = 300


def shape_marks(how: DynamicShapes, batches: Sequence[Any]) -> MarkShapes | None:
    """Return a function that marks the dimensions of a batch that differ between `batches`.

    `None` if no dimension is to be marked.
    """
    if how is DynamicShapes.SYMBOLS:
        return None
    from torch._dynamo import mark_dynamic
    from torch._dynamo.decorators import mark_unbacked

    mark, attribute = {
        DynamicShapes.MARKED: (mark_dynamic, "_dynamo_dynamic_indices"),
        DynamicShapes.UNBACKED: (mark_unbacked, "_dynamo_unbacked_indices"),
    }[how]
    dimensions = [varying(values) for values in zip(*map(pytree.tree_leaves, batches), strict=True)]

    def mark_batch(batch: Any) -> None:
        for leaf, dims in zip(pytree.tree_leaves(batch), dimensions, strict=True):
            if dims and isinstance(leaf, Tensor) and not hasattr(leaf, attribute):
                for dim in dims:
                    mark(leaf, dim)

    return mark_batch


@contextmanager
def marked(batch: Any, mark_shapes: MarkShapes | None) -> Iterator[None]:
    """Mark a batch before steps over it; do nothing without marks.

    Raises:
        Unsupported: the model depends on a marked size.
    """
    if mark_shapes is None:
        yield
        return
    mark_shapes(batch)
    try:
        yield
    except Exception as error:
        if _depends_on_a_size(error):
            reason = str(error).strip().partition("\n")[0][:MOST_OF_A_REASON]
            raise Unsupported(
                f"dynamic_shapes: the model depends on a marked size: {reason}"
            ) from error
        raise


def _depends_on_a_size(error: BaseException) -> bool:
    from torch._dynamo.exc import UserError, UserErrorType
    from torch.fx.experimental.symbolic_shapes import (
        ConstraintViolationError,
        GuardOnDataDependentSymNode,
    )

    of_sizes = {
        UserErrorType.CONSTRAINT_VIOLATION,
        UserErrorType.DYNAMIC_CONTROL_FLOW,
        UserErrorType.DYNAMIC_DIM,
    }
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConstraintViolationError | GuardOnDataDependentSymNode):
            return True
        if isinstance(cause, UserError) and cause.error_type in of_sizes:
            return True
        cause = cause.__cause__ or cause.__context__
    return False
