"""Dynamo's treatment of DDP in one arm: `torch._dynamo.config.optimize_ddp`. For workers.

torch reads the mode when DDP is made, and whenever it compiles something below it, in any call. So
a mode holds only during an arm's build and its steps. Other arms step in the same process, and must
not see what one arm has compiled (`compiling.kept_apart`).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ci_bench.suites.shared.planning.layouts import PYTHON_REDUCER, Layout
from ci_bench.suites.shared.worker.compiling import kept_apart
from ci_bench.suites.shared.worker.user_code import resolve_backend

DDP_MODULE = "torch.nn.parallel.distributed"
BUCKET_MIB = 25
"""DDP's `bucket_cap_mb`: the size up to which inductor joins exchanges of single gradients."""


def optimizing_ddp(layout: Layout) -> AbstractContextManager[None]:
    """Apply a layout's mode: when DDP is made, and in forward and backward passes.

    Nothing changes if the layout has none. With ``python_reducer`` compiled autograd is on, as
    torch requires: the exchange is part of the backward pass that it captures.
    """
    if layout.optimize_ddp is None:
        return nullcontext()
    return (
        _in_python_reducer(layout)
        if layout.optimize_ddp == PYTHON_REDUCER
        else _in_mode(layout.optimize_ddp)
    )


@contextmanager
def _in_mode(mode: str) -> Iterator[None]:
    """Set the mode by hand.

    `config.patch` makes a class in each call, which would show in a short timed step.
    """
    from torch._dynamo import config as untyped

    config: Any = untyped
    before = config.optimize_ddp
    config.optimize_ddp = mode
    try:
        yield
    finally:
        config.optimize_ddp = before


@contextmanager
def _in_python_reducer(layout: Layout) -> Iterator[None]:
    """Apply the process-wide settings that `DistributedDataParallel` makes in this mode."""
    import torch
    from torch._dynamo import compiled_autograd, trace_rules
    from torch._inductor import config as untyped

    config: Any = untyped

    def compiler(graph: Any) -> Callable[..., Any]:
        backend = kept_apart(resolve_backend(str(layout.backend)), PYTHON_REDUCER)
        run: Callable[..., Any] = torch.compile(graph, backend=backend)
        return run

    before = (
        config._fuse_ddp_communication,  # noqa: SLF001 - where DDP sets them
        config._fuse_ddp_bucket_size,  # noqa: SLF001 - likewise
    )
    inlined = DDP_MODULE in trace_rules.LEGACY_MOD_INLINELIST
    _trace_ddp(through=True)
    config._fuse_ddp_communication, config._fuse_ddp_bucket_size = (  # noqa: SLF001 - likewise
        True,
        BUCKET_MIB,
    )
    try:
        with (
            _in_mode(PYTHON_REDUCER),
            compiled_autograd._enable(compiler, dynamic=False),  # noqa: SLF001 - the only way
        ):
            yield
    finally:
        config._fuse_ddp_communication, config._fuse_ddp_bucket_size = before  # noqa: SLF001 - likewise
        _trace_ddp(through=inlined)


def _trace_ddp(*, through: bool) -> None:
    """Make dynamo trace `through` DDP's own functions, or skip them."""
    from torch._dynamo import trace_rules

    inlined: set[str] = trace_rules.LEGACY_MOD_INLINELIST
    (inlined.add if through else inlined.discard)(DDP_MODULE)
    trace_rules.get_legacy_mod_inlinelist.cache_clear()
