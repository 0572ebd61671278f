"""Fuser, executor and code-generation knobs of TorchScript, set for the whole worker process before anything is built.

Effects as in the original tool: `te` and `old` choose fuser and executor together, an executor that is named wins.
"""

from collections.abc import Iterator, Mapping

import torch

from ci_bench.suites.base import Unsupported
from ci_bench.suites.fastrnns.options import Executor, Fuser, Options

Setting = tuple[str, bool | int]
"""The name of a private function of torch, and its argument."""

FUSERS: Mapping[Fuser, tuple[Setting, ...]] = {
    Fuser.TE: (
        ("_jit_set_profiling_executor", True),
        ("_jit_set_profiling_mode", True),
        ("_jit_override_can_fuse_on_cpu", False),
        ("_jit_override_can_fuse_on_gpu", True),
        ("_jit_set_texpr_fuser_enabled", True),
    ),
    Fuser.OLD: (
        ("_jit_set_profiling_executor", False),
        ("_jit_set_profiling_mode", False),
        ("_jit_override_can_fuse_on_gpu", True),
        ("_jit_set_texpr_fuser_enabled", False),
    ),
    Fuser.NONE: (
        ("_jit_set_profiling_executor", False),
        ("_jit_set_profiling_mode", False),
        ("_jit_override_can_fuse_on_gpu", False),
        ("_jit_override_can_fuse_on_cpu", False),
        ("_jit_set_texpr_fuser_enabled", False),
    ),
    Fuser.DEFAULT: (),
}
EXECUTORS: Mapping[Executor, tuple[Setting, ...]] = {
    Executor.PROFILING: (("_jit_set_profiling_executor", True), ("_jit_set_profiling_mode", True)),
    Executor.SIMPLE: (("_jit_set_profiling_executor", True), ("_jit_set_profiling_mode", False)),
    Executor.LEGACY: (("_jit_set_profiling_executor", False), ("_jit_set_profiling_mode", False)),
    Executor.DEFAULT: (),
}


def settings(options: Options) -> Iterator[Setting]:
    """All that the options set, in the order in which it is applied."""
    yield from FUSERS[options.fuser]
    yield from EXECUTORS[options.executor]
    knobs = {
        "_jit_set_te_cuda_pointwise_loop_levels": options.cuda_pointwise_loop_level,
        "_jit_set_te_cuda_pointwise_block_count": options.cuda_pointwise_block_count,
        "_jit_set_te_cuda_pointwise_block_size": options.cuda_pointwise_block_size,
    }
    yield from ((name, value) for name, value in knobs.items() if value is not None)


def apply_knobs(options: Options) -> None:
    """Set them. Raises `Unsupported` where this torch lacks one of them."""
    for name, value in settings(options):
        knob = getattr(torch._C, name, None)  # noqa: SLF001 - TorchScript has no public way to set these
        if knob is None:
            message = f"torch {torch.__version__} lacks {name}, which fuser {options.fuser} and executor {options.executor} need"
            raise Unsupported(message)
        knob(value)
