"""Stand-ins for imports of files with `triton.testing.perf_report` or tritonbench's operators.

With them their callables can be timed. `do_bench` is replaced in the process that collects or
measures: it notes the callable that a benchmark hands to it, times nothing, and returns one
millisecond. Calls from torch and triton themselves (autotuning) go to triton's own.

Triton or tritonbench may be missing. Then modules of their names replace them while a file is
imported and a benchmark builds, and no longer, since torch takes their presence for the real ones.
They suffice to declare, with providers in plain torch. Code that needs a kernel fails with that
reason.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ci_bench.suites.contract import Unsupported
from ci_bench.suites.functions.collecting.collected import as_called
from ci_bench.suites.functions.collecting.recognising import Format

TRITON, TRITONBENCH = "triton", "tritonbench"
OPERATORS = "tritonbench.utils.triton_op"
FORMATS = frozenset({Format.PERF_REPORT, Format.TRITONBENCH})
TIMERS = ("do_bench", "do_bench_cudagraph")
ARM = "__ci_bench_arm__"
"""The attribute by which a method under `register_benchmark` is known."""
PRECISIONS = {
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
}


@dataclass(slots=True)
class _TakenCall:
    calls: list[Callable[[], Any]] | None = None


_TAKEN = _TakenCall()


@contextmanager
def taking() -> Iterator[list[Callable[[], Any]]]:
    """Give the list of callables that a benchmark hands to `do_bench` while it builds."""
    before, calls = _TAKEN.calls, list[Callable[[], Any]]()
    _TAKEN.calls = calls
    try:
        yield calls
    finally:
        _TAKEN.calls = before


def take(
    function: Callable[[], Any],
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Iterable[float] | None = None,
    **options: Any,
) -> Any:
    """Note the callable, and return what `do_bench` would: a number, or one for each quantile."""
    if _TAKEN.calls is None:
        raise Unsupported(
            "do_bench is called where no benchmark of triton.testing.perf_report is being built"
        )
    emptied = tuple(grad_to_none or ())

    def without_gradients() -> Any:
        for tensor in emptied:
            tensor.grad = None
        return function()

    _TAKEN.calls.append(as_called(without_gradients if emptied else function))
    if quantiles is not None:
        times = [1.0 for _ in quantiles]
        return times[0] if len(times) == 1 else times
    return [1.0] if options.get("return_mode") == "all" else 1.0


@contextmanager
def stand_ins(formats: Collection[Format]) -> Iterator[None]:
    """Replace missing modules and timers while a file of these formats is imported, or builds."""
    with ExitStack() as stack:
        if FORMATS & {*formats}:
            _patch_triton() if is_installed(TRITON) else stack.enter_context(_present(_triton()))
        if Format.TRITONBENCH in formats:
            (
                _patch_tritonbench()
                if is_installed(TRITONBENCH)
                else stack.enter_context(_present(_tritonbench()))
            )
        yield


def is_installed(name: str) -> bool:
    """Return true if the package itself is there, not its stand-in."""
    module = sys.modules.get(name)
    return find_spec(name) is not None if module is None else module.__spec__ is not None


def _patch_triton() -> None:
    """Make Triton's own timers hand a benchmark's callable to `take`."""
    testing = import_module("triton.testing")
    for name in TIMERS:
        original = getattr(testing, name, None)
        if original is not None and not hasattr(original, ARM):
            setattr(testing, name, _taking_timer(original))


def _taking_timer(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def timer(function: Callable[[], Any], *args: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]  # noqa: SLF001 - the one way to know it
        if _TAKEN.calls is None or caller in {TRITON, "torch"}:
            return original(function, *args, **options)
        return take(function, **options)

    setattr(timer, ARM, True)
    return timer


def _patch_tritonbench() -> None:
    """Replace tritonbench's decorators, which look for a file's place in its own tree."""
    operators = import_module(OPERATORS)
    for decorator in (register_benchmark, register_metric, register_x_val):
        setattr(operators, decorator.__name__, decorator)


@contextmanager
def _present(modules: list[ModuleType]) -> Iterator[None]:
    """Register modules under their names, for as long as this lasts."""
    if "torch" in sys.modules:
        # It remembers the answer, which is about the real one.
        import_module("torch.utils._triton").has_triton_package()
    before = {module.__name__: sys.modules.get(module.__name__) for module in modules}
    sys.modules.update({module.__name__: module for module in modules})
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


class AbsentModule:
    """Anything of a package that is not installed.

    It can be named and decorate, but launch nothing.
    """

    def __init__(self, name: str) -> None:
        """Store the name."""
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> "AbsentModule":
        """Return itself, as the decorated function."""
        return self

    def __getattr__(self, name: str) -> "AbsentModule":
        """Return another absent object."""
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentModule(f"{self._name}.{name}")

    def __getitem__(self, _: Any) -> Any:
        """Refuse a kernel's launch.

        Raises `Unsupported`.
        """
        raise Unsupported(
            f"{self._name} is launched, and {self._name.partition('.')[0]} is not installed here"
        )


@dataclass(kw_only=True)
class BenchmarkFixture:
    """Contents of one plot, as `triton.testing.Benchmark` has them; its looks are ignored."""

    x_names: list[str]
    """Arguments of the function that x sets."""
    x_vals: list[Any]
    """Values of x: one for all names, or a list with one for each name."""
    line_arg: str
    """Argument of the function that a line sets."""
    line_vals: list[Any]
    """Values of that argument, one for each line."""
    line_names: list[str] = field(default_factory=list)
    """Titles of the lines; missing ones are numbered."""
    plot_name: str = ""
    """Title of the plot."""
    args: dict[str, Any] = field(default_factory=dict)
    """Further arguments, the same at every point."""


@dataclass(frozen=True)
class Mark:
    """The object that `triton.testing.perf_report` makes of a function."""

    fn: Callable[..., Any]
    benchmarks: Any


def _benchmark(*args: Any, **options: Any) -> BenchmarkFixture:
    names = ("x_names", "x_vals", "line_arg", "line_vals", "line_names", "plot_name", "args")
    arguments = dict(zip(names, args, strict=False)) | options
    return BenchmarkFixture(**{name: value for name, value in arguments.items() if name in names})


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    vars(module).setdefault("__path__", [])
    vars(module)["__getattr__"] = partial(_absent_of, name)
    return module


def _absent_of(module: str, name: str) -> AbsentModule:
    if name.startswith("__"):
        raise AttributeError(name)
    return AbsentModule(f"{module}.{name}")


def _triton() -> list[ModuleType]:
    timers = dict.fromkeys(TIMERS, take)
    testing = _module("triton.testing", Benchmark=_benchmark, perf_report=_perf_report, **timers)
    language = _module("triton.language")
    sizes = {
        "cdiv": lambda x, y: -(-x // y),
        "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
    }
    return [
        _module("triton", testing=testing, language=language, jit=_jit, **sizes),
        testing,
        language,
    ]


def _perf_report(benchmarks: Any) -> Callable[[Callable[..., Any]], Mark]:
    return lambda function: Mark(function, benchmarks)


def _jit(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Return a stand-in for a kernel, which has only its name."""
    return _jit if function is None else AbsentModule(f"triton.jit({function.__name__})")


def register_benchmark(
    operator_name: str | None = None,  # noqa: ARG001 - tritonbench's signature
    func_name: str | None = None,
    baseline: bool = False,  # noqa: FBT001, FBT002
    enabled: bool = True,  # noqa: FBT001, FBT002
    **_: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a method of an operator as one of its providers."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        if enabled:
            setattr(function, ARM, (func_name or function.__name__, bool(baseline)))
        return function

    return mark


def register_metric(**_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a method unchanged that computes a figure from times.

    Reports here have their own figures.
    """
    return lambda function: function


def register_x_val(
    label: str = "x_val",  # noqa: ARG001 - tritonbench's signature
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a method that names an input, unchanged."""
    return lambda function: function


class BenchmarkOperator:
    """Methods that an operator of tritonbench may call on its base class, in a forward pass."""

    DEFAULT_PRECISION = "bypass"
    DEFAULT_METRICS: tuple[str, ...] = ()

    def __init__(self, tb_args: Namespace, extra_args: list[str] | None = None) -> None:
        """Set up on the device of `tb_args`, in the operator's own precision."""
        import torch

        self.tb_args, self.extra_args = tb_args, extra_args or []
        self.device = tb_args.device
        self.mode, self.requires_grad = tb_args.mode, True
        precision = PRECISIONS.get(self.DEFAULT_PRECISION)
        self.dtype = getattr(torch, precision) if precision else None


def _tritonbench() -> list[ModuleType]:
    members = (BenchmarkOperator, register_benchmark, register_metric, register_x_val)
    operators = _module(OPERATORS, **{member.__name__: member for member in members})
    return [_module("tritonbench"), _module("tritonbench.utils", triton_op=operators), operators]
