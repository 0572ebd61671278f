"""Write files that reproduce a compiler's error: a captured graph with inputs, runnable on its own.

While an arm is explained, dynamo's graphs are recorded. A graph whose compiler failed, or whose
compiled code computes something else than the graph (`replay`), is written as one archive that
Python runs, and run once in a new process. Only a bundle that goes wrong there, too, is kept.
Inputs are kept as they are up to `MOST_INPUT_BYTES`, the smallest first; larger ones are drawn
again with their mean and spread. A smaller graph that goes wrong in the same way replaces it
(`minifying`).
"""

import contextlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ci_bench.records.profiles import MOST_REASON, Bundle
from ci_bench.worker.profiling import replay

MOST_GRAPHS = 64
MOST_CHECKED = 3
"""The number of bundles that are run in a new process; the first that goes wrong there is kept."""
MOST_INPUT_BYTES = 3_000_000
LEAST_CHECK_S = 5.0
MOST_MINIFYING_S, PART_OF_LIMIT = 60.0, 0.5
"""The limits of reducing a graph: seconds, and a share of the time left."""
MINIFYING = "ci_bench.worker.profiling.minifying"
_TOP = '''"""A graph that torch {torch} captured: {size}.

`python {name}` runs it uncompiled and compiled by {compiler}. Prints what differs. Exit codes: 0
the compiler is right, 1 it is wrong or fails, 125 undecided. `--compiler eager` tries another one.
"""

import sys
from math import inf, nan

import torch
import torch.fx as fx
from torch import device, tensor

import replay

{graph}

SETTINGS = {settings}

if __name__ == "__main__":
    sys.exit(replay.main(sys.argv[0], Repro, SETTINGS))
'''


@dataclass(kw_only=True)
class CapturedBundle:
    """One graph as passed to the compiler."""

    graph: Any
    """The graph as an fx module."""
    inputs: tuple[Any, ...]
    """Arguments of the graph, in order."""
    compiler: str
    """Name of the backend: torch's own, or ``module:attribute``."""
    options: Mapping[str, Any]
    """Options of the backend that a file can hold."""
    grad: bool
    """True if gradients were enabled at the capture."""
    autocast: str
    """Name of autocast's dtype at the capture; empty if it was off."""
    device: str
    """Device type of the inputs: ``cpu`` or ``cuda``."""
    failed: bool = False
    """True if the compiler raised."""
    compiled: Callable[..., Any] | None = None
    """Result of the compiler; `None` if it raised, or has not ended."""
    operators: int | None = None
    """Operators of the captured graph if this one was minified; `None` otherwise."""

    @property
    def size(self) -> str:
        """Describe how many of the captured operators the bundle has."""
        count = operators_of(self.graph)
        return (
            f"{count} of {self.operators} operators"
            if self.operators is not None
            else f"all {count} operators"
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings that a replay needs besides the graph."""
        return {
            "compiler": self.compiler,
            "options": dict(self.options),
            "grad": self.grad,
            "autocast": self.autocast,
            "device": self.device,
        }

    def is_suspect(self) -> bool:
        """Return whether the compiler failed, or its code computes something else.

        An inconclusive result is not a suspicion.
        """
        if self.failed or self.compiled is None:
            return self.failed
        compiled = self.compiled
        try:
            return (
                replay.replayed(self.graph, self.inputs, lambda: compiled, self.settings()).code
                == replay.WRONG
            )
        except Exception:  # noqa: BLE001 - a graph that cannot run separately, or memory that does not suffice
            return False


@dataclass(kw_only=True)
class Graphs:
    """Listens to dynamo from `listen` on; the first graphs are kept, by reference."""

    taken: list[CapturedBundle] = field(default_factory=list)
    note: str = ""

    def listen(self) -> None:
        """Patch dynamo so `torch.compile` calls each backend through here.

        This process measures nothing.
        """
        try:
            from torch._dynamo.repro.after_dynamo import WrapBackendDebug
        except ImportError as error:
            self.note = f"this torch does not say which graphs it compiles: {error}"[:MOST_REASON]
            return
        original = WrapBackendDebug.__call__

        def call(wrapper: Any, graph: Any, inputs: Any, **options: Any) -> Any:
            captured = self._take(wrapper, graph, inputs)
            try:
                compiled = original(wrapper, graph, inputs, **options)
            except Exception:
                if captured is not None:
                    captured.failed = True
                raise
            if captured is not None:
                captured.compiled = compiled
            return compiled

        WrapBackendDebug.__call__ = call  # type: ignore[method-assign,assignment] # no hook exists

    def _take(self, wrapper: Any, graph: Any, inputs: Any) -> CapturedBundle | None:
        import copy

        import torch

        if len(self.taken) >= MOST_GRAPHS:
            return None
        tensors = [argument for argument in inputs if isinstance(argument, torch.Tensor)]
        kind = tensors[0].device.type if tensors else "cpu"
        backend = wrapper._torchdynamo_orig_backend  # noqa: SLF001 - it has no public name
        captured = CapturedBundle(
            graph=torch.fx.GraphModule(graph, copy.deepcopy(graph.graph)),
            inputs=tuple(inputs),
            compiler=name_of(backend, wrapper._compiler_name or ""),  # noqa: SLF001 - as above
            options=_select_plain(
                {
                    **getattr(backend, "config", {}),
                    **getattr(backend, "kwargs", {}).get("options", {}),
                }
            ),
            grad=torch.is_grad_enabled(),
            autocast=(
                str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
                if torch.is_autocast_enabled(kind)
                else ""
            ),
            device=kind,
        )
        self.taken.append(captured)
        return captured

    def bundle(self, folder: Path, arm: str, *, limit_s: float) -> Bundle | None:
        """Write the first suspect whose bundle goes wrong in a new process to `folder`.

        `None` if all are right.
        """
        deadline, checked = time.monotonic() + limit_s, 0
        path = folder / f"repro-{arm}.pyz"
        for captured in sorted(self.taken, key=lambda graph: not graph.failed):
            if checked == MOST_CHECKED or deadline - time.monotonic() < LEAST_CHECK_S:
                break
            if not captured.is_suspect():
                continue
            checked += 1
            try:
                outcome = _shown(captured, path, deadline)
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                self.note = f"no bundle: {type(error).__name__}: {error}"[:MOST_REASON]
                continue
            if outcome.code == replay.WRONG:
                says = f"{captured.compiler}: {outcome.says}"
                return Bundle(file=path.name, says=" ".join(says.split())[:MOST_REASON])
            self.note = (
                f"a graph seemed wrong, but its reproducer does not confirm that: {outcome.says}"[
                    :MOST_REASON
                ]
            )
        path.unlink(missing_ok=True)
        return None


def minify(original: Path, smaller: Path, *, limit_s: float) -> bool:
    """Write the bundle `smaller`, reduced from `original` within this many seconds.

    Returns whether it exists.
    """
    command = [sys.executable, "-m", MINIFYING, str(original), str(smaller)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return smaller.is_file()


def operators_of(graph: Any) -> int:
    """Return the number of calls in a graph."""
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)


def _shown(captured: CapturedBundle, path: Path, deadline: float) -> replay.ReplayOutcome:
    """Write the bundle of a graph or of its minified form; return its outcome in a new process."""
    write(path, captured)
    smaller = path.with_name(f"smaller-{path.name}")
    try:
        limit_s = min(MOST_MINIFYING_S, PART_OF_LIMIT * (deadline - time.monotonic()))
        # If minifying fails, the whole graph is checked.
        with contextlib.suppress(ValueError, subprocess.SubprocessError):
            if (
                limit_s > 0
                and operators_of(captured.graph) > 1
                and minify(path, smaller, limit_s=limit_s)
            ):
                outcome = check(smaller, limit_s=PART_OF_LIMIT * (deadline - time.monotonic()))
                if outcome.code == replay.WRONG:
                    smaller.replace(path)
                    return outcome
        return check(path, limit_s=deadline - time.monotonic())
    finally:
        smaller.unlink(missing_ok=True)


def name_of(backend: Any, name: str) -> str:
    """Return torch's name of a backend.

    Else ``module:attribute``, if a loaded module has it under any name.
    """
    import torch

    if name in torch.compiler.list_backends(exclude_tags=()):
        return name
    compiler = getattr(backend, "compiler_fn", backend)
    for module in list(sys.modules):
        for attribute, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            if value is compiler and not attribute.startswith("__"):
                return f"{module}:{attribute}"
    return name


def _select_plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a file can hold."""
    return {
        name: value
        for name, value in options.items()
        if isinstance(value, bool | int | float | str)
    }


def write(path: Path, captured: CapturedBundle, *, name: str = "") -> None:
    """Write the bundle of a graph, under its later `name`.

    Raises:
        ValueError: the graph cannot be written as source, or an input is not plain.
    """
    import torch
    from safetensors.torch import save
    from torch._dynamo.debug_utils import NNModuleToString

    if not NNModuleToString.can_convert_to_string(captured.graph):
        raise ValueError("a graph with modules that have no source")
    stored = _select_stored(captured.inputs)
    described = [
        _described(argument, is_kept=index in stored)
        for index, argument in enumerate(captured.inputs)
    ]
    main = _TOP.format(
        torch=torch.__version__,
        name=name or path.name,
        size=captured.size,
        compiler=re.sub(r"[^\w:.-]", "_", captured.compiler),
        graph=NNModuleToString.convert(captured.graph).strip(),
        settings=repr({**captured.settings(), "size": captured.size, "inputs": described}),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", main)
        archive.writestr("replay.py", inspect.getsource(replay))
        archive.writestr(
            "inputs.safetensors", save({str(index): value for index, value in stored.items()})
        )


def _select_stored(inputs: tuple[Any, ...]) -> dict[int, Any]:
    """Return the inputs that are kept as they are, by place."""
    import torch

    tensors = {
        index: tensor for index, tensor in enumerate(inputs) if isinstance(tensor, torch.Tensor)
    }
    stored, size = {}, 0
    for index, tensor in sorted(
        tensors.items(), key=lambda item: (item[1].is_floating_point(), item[1].nbytes)
    ):
        size += tensor.nbytes
        if size > MOST_INPUT_BYTES:
            break
        stored[index] = tensor.detach().cpu().contiguous().clone()
    return stored


def _described(value: Any, *, is_kept: bool) -> Any:
    import torch

    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return value.node.hint
    if (
        not isinstance(value, torch.Tensor)
        or value.layout is not torch.strided
        or (value.is_complex() and not is_kept)
    ):
        raise ValueError(f"an input is not a plain tensor: {type(value).__name__}")
    described: dict[str, Any] = {
        "shape": list(value.shape),
        "stride": list(torch.empty_like(value).stride()),
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
        "requires_grad": value.requires_grad,
    }
    if not is_kept:
        wide = value.detach().double()
        described |= {"mean": float(wide.mean()), "spread": float(wide.std(correction=0))}
        described |= {"least": float(wide.min()), "most": float(wide.max())}
    return described


def check(path: Path, *, limit_s: float) -> replay.ReplayOutcome:
    """Return a bundle's outcome in a new process.

    Raises `subprocess.TimeoutExpired`, and `ValueError` if it reports nothing.
    """
    command = [sys.executable, str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    try:
        reply = json.loads(done.stdout.strip().rpartition("\n")[2])
        outcome = replay.ReplayOutcome(code=int(reply["code"]), says=str(reply["says"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"it ended with {done.returncode}: {done.stderr.strip()[-200:]}"
        ) from error
    if outcome.code != done.returncode:
        raise ValueError(f"it says {outcome.code}, and ended with {done.returncode}")
    return outcome
