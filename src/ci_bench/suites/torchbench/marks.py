"""Which sizes of a step's inputs dynamo is told to differ: `mark_dynamic` and `mark_unbacked` on the tensors of each batch.

Marks lie on tensors, and verification and referee make new ones, so a step marks what is not marked yet, its target too. A mark
is a promise that is kept or refused: a model that asks for such a size is no model with that dynamic shape (`Unsupported`), where
`torch.compile(dynamic=True)` would compile once more. Imported by workers only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from ci_bench.suites.base import Mark, Unsupported
from ci_bench.suites.experiments import varying
from ci_bench.suites.torchbench.options import DynamicShapes, Options
from ci_bench.suites.torchbench.sources.loaded import Sample

Step = Callable[[Sample, Mark], Any]
MarkShapes = Callable[[Sample], None]
MOST_OF_A_REASON = 300


def shape_marks(options: Options, samples: Sequence[Sample]) -> MarkShapes | None:
    """What marks the tensors of a batch along the dimensions that differ between `samples`; none where none is."""
    how = options.settings.dynamic_shapes
    if not options.settings.dynamic or how is DynamicShapes.SYMBOLS:
        return None
    from torch._dynamo import mark_dynamic
    from torch._dynamo.decorators import mark_unbacked

    mark, known = {
        DynamicShapes.MARKED: (mark_dynamic, "_dynamo_dynamic_indices"),
        DynamicShapes.UNBACKED: (mark_unbacked, "_dynamo_unbacked_indices"),
    }[how]
    dimensions = [varying(values) for values in zip(*map(_leaves, samples), strict=True)]

    def mark_batch(sample: Sample) -> None:
        for leaf, dims in zip(_leaves(sample), dimensions, strict=True):
            if dims and isinstance(leaf, Tensor) and not hasattr(leaf, known):
                for dim in dims:
                    mark(leaf, dim)

    return mark_batch


def marked(step: Step, mark_shapes: MarkShapes | None) -> Step:
    """A step whose batches are marked first; itself where there is nothing to mark."""
    if mark_shapes is None:
        return step

    def run(sample: Sample, mark: Mark) -> Any:
        mark_shapes(sample)
        try:
            return step(sample, mark)
        except Exception as error:
            if _depends_on_a_size(error):
                reason = str(error).strip().partition("\n")[0][:MOST_OF_A_REASON]
                raise Unsupported(f"dynamic_shapes: the model depends on a marked size: {reason}") from error
            raise

    return run


def _depends_on_a_size(error: BaseException) -> bool:
    from torch._dynamo.exc import UserError, UserErrorType
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

    of_sizes = {UserErrorType.CONSTRAINT_VIOLATION, UserErrorType.DYNAMIC_CONTROL_FLOW, UserErrorType.DYNAMIC_DIM}
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, ConstraintViolationError | GuardOnDataDependentSymNode):
            return True
        if isinstance(one, UserError) and one.error_type in of_sizes:
            return True
        one = one.__cause__ or one.__context__
    return False


def _leaves(sample: Sample) -> list[Any]:
    return pytree.tree_leaves((sample.args, dict(sample.kwargs), sample.target))
