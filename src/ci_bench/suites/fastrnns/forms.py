"""From a function to the form that runs it: as it is, scripted, traced or compiled.

Translation happens in the first call, so that the first call's latency tells what it costs.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ci_bench.suites.base import Unsupported
from ci_bench.suites.fastrnns.options import CompileMode
from ci_bench.suites.fastrnns.variants import Form

Function = Callable[..., Any]


def translated(function: Function, form: Form, *, mode: CompileMode | None = None, whole: bool = False) -> Function:
    """A function that runs `function` in a form; `whole` refuses graph breaks, for what can only run as one graph."""
    if form is Form.COMPILE:
        compiled: Function = torch.compile(function, mode=str(mode or CompileMode.DEFAULT), fullgraph=whole)
        return compiled
    if form is Form.SCRIPT:
        return Lazy(function, _script)
    if form is Form.TRACE:
        return Lazy(function, _trace)
    return function


class Lazy:
    """A function that TorchScript translates when it is first called, from its text or from that call's arguments."""

    def __init__(self, function: Function, translate: Callable[[Function, tuple[Any, ...]], Function]) -> None:
        """Nothing is translated yet."""
        self._function = function
        self._translate = translate
        self._translated: Function | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Translate once, and call."""
        if self._translated is None:
            self._translated = self._translate(self._function, arguments)
        return self._translated(*arguments)


def require_torchscript() -> None:
    """Raise `Unsupported` where scripted and traced forms cannot run: the functions are gone, or switched off.

    With PYTORCH_JIT=0 `torch.jit.script` returns what it is given, and an eager loop would be timed under another name.
    """
    for name in ("script", "trace"):
        if not callable(getattr(getattr(torch, "jit", None), name, None)):
            message = f"torch {torch.__version__} has no torch.jit.{name}; take the compiled form of the structure"
            raise Unsupported(message)
    with _no_deprecation():
        if _add_one is torch.jit.script(_add_one):
            raise Unsupported("TorchScript is switched off here (PYTORCH_JIT=0); unset the variable to run scripted forms")


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _script(function: Function, _: tuple[Any, ...]) -> Function:
    with _no_deprecation():
        scripted: Function = torch.jit.script(function)
    return scripted


def _trace(function: Function, arguments: tuple[Any, ...]) -> Function:
    """Trace without torch's own comparison: the suite checks agreement by itself, with gradients."""
    with _no_deprecation():
        # A model asks for sizes on its way, and a trace has the answers built in: the sizes are the same in every step.
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        traced: Function = torch.jit.trace(function, arguments, check_trace=False)  # type: ignore[no-untyped-call]
    return traced


@contextmanager
def _no_deprecation() -> Iterator[None]:
    """TorchScript says in every call that it is deprecated; this suite measures it all the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is (deprecated|not supported)")
        yield
