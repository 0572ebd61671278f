"""How dynamo treats DDP, as one arm has it: `torch._dynamo.config.optimize_ddp`. For workers.

torch reads the mode where DDP is made, and whenever it compiles something below it, in whichever call that may be. So a mode
holds while an arm is built and while it steps, and nowhere else: other arms step in the same process, and what one has compiled
is kept from them (`arms.kept_apart`).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ci_bench.suites.arms import kept_apart
from ci_bench.suites.layouts import PYTHON_REDUCER, Layout
from ci_bench.suites.user_code import resolve_backend

DDP_MODULE = "torch.nn.parallel.distributed"
BUCKET_MIB = 25
"""DDP's own `bucket_cap_mb`: so large are the exchanges that inductor makes of those of single gradients."""


def optimizing_ddp(layout: Layout) -> AbstractContextManager[None]:
    """A layout's mode holds inside of it: where DDP is made, and in forward and backward passes. Nothing, where it has none.

    With ``python_reducer`` compiled autograd is on, as torch wants it to be: the exchange is part of the backward pass that it
    captures.
    """
    if layout.optimize_ddp is None:
        return nullcontext()
    return _in_python_reducer(layout) if layout.optimize_ddp == PYTHON_REDUCER else _in_mode(layout.optimize_ddp)


@contextmanager
def _in_mode(mode: str) -> Iterator[None]:
    """By hand: `config.patch` makes a class in each call, which would show in a short timed step."""
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
    """With what `DistributedDataParallel` sets for the whole process when it is made in this mode, and leaves there."""
    import torch
    from torch._dynamo import compiled_autograd, trace_rules
    from torch._inductor import config as untyped

    config: Any = untyped

    def compiler(graph: Any) -> Callable[..., Any]:
        backend = kept_apart(resolve_backend(str(layout.backend)), PYTHON_REDUCER)
        run: Callable[..., Any] = torch.compile(graph, backend=backend)
        return run

    before = config._fuse_ddp_communication, config._fuse_ddp_bucket_size  # noqa: SLF001 - where DDP sets them
    inlined = DDP_MODULE in trace_rules.LEGACY_MOD_INLINELIST
    _trace_ddp(through=True)
    config._fuse_ddp_communication, config._fuse_ddp_bucket_size = True, BUCKET_MIB  # noqa: SLF001 - likewise
    try:
        with _in_mode(PYTHON_REDUCER), compiled_autograd._enable(compiler, dynamic=False):  # noqa: SLF001 - the only way
            yield
    finally:
        config._fuse_ddp_communication, config._fuse_ddp_bucket_size = before  # noqa: SLF001 - likewise
        _trace_ddp(through=inlined)


def _trace_ddp(*, through: bool) -> None:
    """Whether dynamo traces through DDP's own functions, or leaves them alone."""
    from torch._dynamo import trace_rules

    listed: set[str] = trace_rules.LEGACY_MOD_INLINELIST
    (listed.add if through else listed.discard)(DDP_MODULE)
    trace_rules.get_legacy_mod_inlinelist.cache_clear()
