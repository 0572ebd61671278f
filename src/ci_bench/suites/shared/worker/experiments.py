"""A module's forward pass as an experiment: exported, compiled ahead of time, or in TorchScript.

Capturing happens in the first call, from that call's arguments, so its time is the latency of that
call. A module that cannot be captured is not the fault of a compiler: the case is skipped
(`Unsupported`). A captured module that cannot be compiled fails.

Experiments that make a file (`KEPT`) make it in the first process whose compiler cache is cold,
which is that of the cold stage. Every other process of the case loads it. Files are in the case's
own scratch folder, which only one side writes, and are removed with the run. Imported by workers
only.
"""

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Unsupported
from ci_bench.suites.shared.planning.arms import PACKAGE, CompiledArm, Experiment
from ci_bench.suites.shared.planning.inductor import typed_options
from ci_bench.suites.shared.worker.compiling import compile_arguments
from ci_bench.suites.shared.worker.memory_errors import is_out_of_memory

KEPT = {
    Experiment.AOT_INDUCTOR: "pt2",
    Experiment.AOT_PRECOMPILE: "bin",
    Experiment.CACHING_PRECOMPILE: "bin",
}
"""The experiments that make a file, and how its name ends."""
MOST_OF_A_REASON = 300

Call = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and named arguments of one call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A file that holds a compiled model, with the number of operations of its graph.

    `maker` is the process that made it (`this_process`).
    """

    size_bytes: int
    maker: str
    operations: int


def captures(arm: CompiledArm) -> bool:
    """Return true if an arm is captured from a module, not by `torch.compile` while it runs."""
    return arm.experiment is not None and not arm.experiment.by_dynamo


class CapturedProgram:
    """A module under an experiment, to be called as the module is.

    `calls` are the arguments of the calls to come: a dimension whose size is not the same in all of
    them is captured as a symbol. `folder` is where a file is kept.
    """

    def __init__(
        self, arm: CompiledArm, module: nn.Module, *, calls: Sequence[Arguments], folder: Path
    ) -> None:
        """Set the module and the calls to come; nothing is captured yet."""
        assert arm.experiment is not None, (  # noqa: S101 - our own bug if not
            "an arm without an experiment is captured by torch.compile"
        )
        self._arm, self._module, self._calls = arm, module, calls
        self._experiment = arm.experiment
        self._path = folder / f"{arm.name.replace(':', '_')}.{KEPT.get(self._experiment, '')}"
        self._run: Call | None = None
        self._operations = 0
        self._again = 0
        self.package: Package | None = None
        """The file that runs, once it is made or loaded."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's outputs.

        Raises `Unsupported` if it cannot be captured.
        """
        if self._run is None:
            loaded = self._loaded()
            self._run = self._build(args, kwargs) if loaded is None else loaded
        return self._run(*args, **kwargs)

    def checks(self, name: str) -> tuple[Check, ...]:
        """Return checks of the capture, for an arm called `name`.

        They show that a graph exists, and the origin of its file.
        """
        outcome = Outcome.PASS if self._operations else Outcome.FAIL
        graph = (
            "graphs" if self._experiment is Experiment.CACHING_PRECOMPILE else "one graph"
        )  # its breaks are allowed
        detail = (
            f"{graph} of {self._operations} operations"
            if self._operations
            else "no graph was captured"
        )
        compiled = Check(name="compiled", arm=name, outcome=outcome, detail=detail)
        return (
            (compiled,)
            if self.package is None
            else (compiled, *self._of_package(name, self.package))
        )

    def _of_package(self, name: str, package: Package) -> tuple[Check, ...]:
        """Check the file that was loaded; the cold stage, which made it, needs no check."""
        if package.maker == this_process():
            return ()
        detail = (
            f"{package.size_bytes} bytes, made by process {package.maker}, loaded by process"
            f" {this_process()}"
        )
        if self._again > 0:
            again = f"{detail}, which captured {self._again} operations again"
            return (Check(name=PACKAGE, arm=name, outcome=Outcome.FAIL, detail=again),)
        return (Check(name=PACKAGE, arm=name, outcome=Outcome.PASS, detail=detail),)

    def _loaded(self) -> Call | None:
        """Load the kept file, ready to run; `None` if it has to be made."""
        description = self._path.with_suffix(".json")
        if self._experiment not in KEPT or not description.is_file() or _is_cold():
            return None
        self.package = Package(**json.loads(description.read_text(encoding="utf-8")))
        self._operations = self.package.operations
        if self._experiment is Experiment.AOT_INDUCTOR:
            return _load_package(self._path)
        if self._experiment is Experiment.CACHING_PRECOMPILE:
            return self._watched(
                _load_cached(self._arm, self._module, self._path, dynamic=self._varies),
                lambda: None,
            )
        return _load_precompiled(self._arm, self._module, self._path)

    def _build(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        match self._experiment:
            case Experiment.EXPORT | Experiment.EXPORT_STRICT:
                program = self._exported(args, kwargs)
                return program.module()
            case Experiment.AOT_INDUCTOR:
                return self._packaged(self._exported(args, kwargs))
            case Experiment.AOT_PRECOMPILE:
                return self._precompiled(args, kwargs)
            case Experiment.CACHING_PRECOMPILE:
                return self._cached()
            case _:
                scripted = self._capture(
                    lambda: _torchscript(self._experiment, self._module, args, kwargs)
                )
                self._operations = sum(1 for _ in scripted.inlined_graph.nodes())
                run: Call = scripted
                return run

    def _exported(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> torch.export.ExportedProgram:
        strict = self._experiment is Experiment.EXPORT_STRICT
        shapes = symbols(self._module, self._calls) if self._arm.dynamic is not False else None
        program: torch.export.ExportedProgram = self._capture(
            lambda: torch.export.export(
                self._module, args, dict(kwargs), dynamic_shapes=shapes, strict=strict
            )
        )
        self._operations = operations_of(program.graph_module)
        return program

    def _packaged(self, program: torch.export.ExportedProgram) -> Call:
        written = self._capture(
            lambda: program.run_decompositions({})
        ).graph_signature.buffers_to_mutate
        if written:
            changed = ", ".join(written.values())
            raise Unsupported(
                f"{self._arm.name}: a package keeps its buffers to itself, and this model changes"
                f" {changed}"
            )
        from torch._inductor import aoti_compile_and_package
        from torch._inductor.exc import InvalidCxxCompiler

        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aoti_compile_and_package(
                program,
                package_path=str(self._path),
                inductor_configs=typed_options(self._arm.options) or None,
            )
        except InvalidCxxCompiler as error:
            raise Unsupported(f"{self._arm.name}: this machine has no C++ compiler") from error
        self._keep()
        return _load_package(self._path)

    def _precompiled(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        from torch._dynamo import config
        from torch._dynamo.aot_compile import ModelInput

        run = _precompilable(self._arm, self._module)
        with config.patch(enable_aot_compile=True):
            self._capture(
                lambda: run._aot_compile([ModelInput(args=args, kwargs=dict(kwargs), contexts=[])])  # noqa: SLF001 - torch's only door
            )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            run._save_aot_compiled_module(str(self._path))  # noqa: SLF001 - likewise
        self._operations = _captured_calls()
        self._keep()
        precompiled: Call = run
        return precompiled

    @property
    def _varies(self) -> bool:
        """Return true if sizes differ between calls."""
        shapes = [
            [getattr(leaf, "shape", None) for leaf in pytree.tree_leaves(call)]
            for call in self._calls
        ]
        return any(shape != shapes[0] for shape in shapes)

    def _cached(self) -> Call:
        from torch._dynamo.precompile_context import PrecompileContext

        PrecompileContext.clear()
        with self._keeping(), _caching():
            run = torch.compile(
                self._module, **compile_arguments(self._arm, dynamic=self._varies or None)
            )
        return self._watched(run, self._keep_cached)

    def _watched(self, run: Call, end: Callable[[], None]) -> Call:
        """Count captured operations until each size has had its call, and call `end`.

        Later calls are those of `run` itself.
        """
        remaining = len(self._calls) if self._varies else 1

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal remaining
            before = _captured_calls()
            with self._keeping(), _caching():
                result = run(*args, **kwargs)
            self._again += _captured_calls() - before
            remaining -= 1
            if remaining == 0:
                end()
                self._run = run
            return result

        return call

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Fail if torch compiles, but cannot keep the compiled code.

        Raises `Unsupported`.
        """
        from torch._dynamo.exc import PackageError

        try:
            yield
        except Exception as error:
            if not isinstance(error, PackageError) and "torch.compile() package" not in str(error):
                raise
            reason = str(error).strip().partition("\n")[0][:MOST_OF_A_REASON]
            raise Unsupported(
                f"{self._arm.name}: torch cannot keep what it compiles of this model: {reason}"
            ) from error

    def _keep_cached(self) -> None:
        """Write all that torch would keep of the model.

        Raises `Unsupported` if that is nothing.
        """
        from torch._dynamo.package import DiskDynamoStore
        from torch._dynamo.precompile_context import PrecompileContext

        entries, _ = PrecompileContext.create_cache_entries()
        if len(entries) != 1:
            raise Unsupported(
                f"{self._arm.name}: torch keeps {len(entries)} entries of this model, and not one"
            )
        (entry,) = entries.values()
        self._require_readable(entry)
        DiskDynamoStore().write(entry, str(self._path))
        self._operations, self._again = self._again, 0
        self._keep()

    def _require_readable(self, entry: Any) -> None:
        """Check that torch can read its guards: it cannot if a parameter has a gradient.

        Raises `Unsupported`.
        """
        from torch._dynamo.package import load_guards_state

        try:
            for code in entry.dynamo.codes:
                for guarded in code.guarded_codes:
                    load_guards_state(guarded.guards_state)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:MOST_OF_A_REASON]
            raise Unsupported(
                f"{self._arm.name}: torch cannot load what it keeps of this model: {reason}"
            ) from error

    def _keep(self) -> None:
        """Describe the file; without its description, the file is not complete."""
        self.package = Package(
            size_bytes=size_of(self._path), maker=this_process(), operations=self._operations
        )
        description = self._path.with_suffix(".json")
        unfinished = description.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(self.package)), encoding="utf-8")
        unfinished.rename(description)

    def _capture(self, capture: Call) -> Any:
        try:
            return capture()
        except Exception as error:
            if is_out_of_memory(error):
                raise
            reason = str(error).strip().partition("\n")[0][:MOST_OF_A_REASON]
            raise Unsupported(
                f"{self._arm.name}: the model cannot be captured: {type(error).__name__}: {reason}"
            ) from error


def require_forward(arm: CompiledArm, *, training: bool, whole_step: bool) -> None:
    """Refuse a whole step, or a training without a kept backward pass.

    Raises `Unsupported`.
    """
    if whole_step:
        raise Unsupported(
            f"{arm.name} captures a model, not a step with backward and optimizer; use `scope:"
            " model`"
        )
    if training and arm.experiment in {Experiment.AOT_INDUCTOR, Experiment.AOT_PRECOMPILE}:
        raise Unsupported(f"{arm.name} keeps only a forward pass; use `mode: inference`")


def symbols(module: nn.Module, calls: Sequence[Arguments]) -> dict[str, Any] | None:
    """Return the `dynamic_shapes` of `torch.export`, by argument.

    They are the dimensions whose size varies between calls; `None` if none does.
    """
    bound = [signature(module.forward).bind(*args, **kwargs).arguments for args, kwargs in calls]
    specs = (
        {
            name: pytree.tree_map(_symbols_of, *(arguments[name] for arguments in bound))
            for name in bound[0]
        }
        if bound
        else {}
    )
    return (
        specs
        if any(
            isinstance(leaf, torch.export.dynamic_shapes._DimHint)  # noqa: SLF001 - the type of `Dim.AUTO`
            for leaf in pytree.tree_leaves(specs)
        )
        else None
    )


def _symbols_of(*values: Any) -> dict[int, Any] | None:
    return dict.fromkeys(varying(values), torch.export.Dim.AUTO) or None


def varying(values: Sequence[Any]) -> tuple[int, ...]:
    """Return the dimensions of one argument whose size differs between calls.

    A value other than a tensor has none.
    """
    shapes = [value.shape for value in values if isinstance(value, Tensor)]
    if len(shapes) < len(values) or not shapes:
        return ()
    return tuple(dim for dim in range(len(shapes[0])) if len({shape[dim] for shape in shapes}) > 1)


def operations_of(graph: torch.fx.GraphModule) -> int:
    """Count the calls of a graph."""
    return sum(
        node.op in {"call_function", "call_method", "call_module"} for node in graph.graph.nodes
    )


def this_process() -> str:
    """Name the process and its start, in the kernel's ticks: process numbers are used again."""
    begun = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return f"{os.getpid()}-{begun}"


def _is_cold() -> bool:
    """Return true if the compiler's cache is empty, as it is when compiling is timed."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return not any(Path(cache_dir()).iterdir())


def _load_package(path: Path) -> Call:
    from torch._inductor import aoti_load_package

    package: Call = aoti_load_package(str(path))
    return package


def _load_precompiled(arm: CompiledArm, module: nn.Module, path: Path) -> Call:
    from torch._dynamo import config

    run = _precompilable(arm, module)
    with config.patch(enable_aot_compile=True):
        run._load_aot_compiled_module(path.read_bytes())  # noqa: SLF001 - torch's only door
    loaded: Call = run
    return loaded


@contextmanager
def _caching(entry: Any = None) -> Iterator[None]:
    """Turn caching precompile on, with `entry` for the compiled code.

    A graph or guard that it cannot keep is an error. A backward pass is compiled with its forward
    pass, so the entry is complete after a forward pass.
    """
    from torch._dynamo import config, package
    from torch._functorch import config as functorch

    with (
        config.patch(caching_precompile=True, strict_precompile=True),
        functorch.patch(force_non_lazy_backward_lowering=True),
        _quiet("torch._dynamo.guards"),
    ):
        original = package.DynamoCache
        if entry is not None:
            package.DynamoCache = SimpleNamespace(
                load=lambda _: entry, record_package=original.record_package
            )  # type: ignore[assignment]
        try:
            yield
        finally:
            package.DynamoCache = original


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence the warnings of a logger: it names each guard that caching drops by design."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder: torch makes either."""
    return sum(
        file.stat().st_size
        for file in (path.rglob("*") if path.is_dir() else (path,))
        if file.is_file()
    )


def _load_cached(arm: CompiledArm, module: nn.Module, path: Path, *, dynamic: bool) -> Call:
    from torch._dynamo.package import DiskDynamoStore

    with _caching(DiskDynamoStore().read(str(path))):
        loaded: Call = torch.compile(module, **compile_arguments(arm, dynamic=dynamic or None))
    return loaded


def _precompilable(arm: CompiledArm, module: nn.Module) -> Any:
    from torch._dynamo import config

    with config.patch(enable_aot_compile=True):
        return torch.compile(module, **compile_arguments(replace(arm, fullgraph=True)))


def _captured_calls() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["calls_captured"])


def _torchscript(
    experiment: Experiment, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    with warnings.catch_warnings():
        # what a trace takes for constant is so: the inputs that are verified tell whether it was
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined] # torch documents it there
        warnings.simplefilter("ignore", DeprecationWarning)
        if experiment is Experiment.TORCHSCRIPT_SCRIPT:
            return torch.jit.script(module)
        if args and kwargs:
            raise TypeError(
                "a trace takes positional or named arguments, and this model is called with both"
            )
        return torch.jit.trace(  # type: ignore[no-untyped-call] # torch leaves it unannotated
            module,
            args or None,
            example_kwarg_inputs=dict(kwargs) or None,
            check_trace=False,
            strict=False,
        )
