"""Check settings that all arms of a process share, and none may change. Imports torch.

A candidate that leaves the reference fewer threads, no oneDNN or a profiler makes its own speedup.
That takes one assignment, and is common in code that was written for a score. So all settings of
that kind are noted before a workload is opened and again once the reference is open, and compared
after each turn, outside the clock. A setting that an arm changed and left changed fails. A setting
that was changed for every arm, as by a library at import, is named by a separate check, which
counts only if base does not have the same one.

`processes.noted` notes the functions that checks use.
"""

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.utils import _python_dispatch

from ci_bench.processes.noted import MAX_DETAIL, Noted, current, replaced_words
from ci_bench.records.results import SURROUNDINGS, UNTOUCHED, Check, Outcome
from ci_bench.suites.shared.worker.fp32_precision import effective_precision

CORES, PRIORITY, COLLECTOR = "cores", "priority", "garbage collector"
OF_THE_ENGINE = (CORES, COLLECTOR)
"""Settings that the engine changes between turns itself."""
HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
VARIABLES = ("CUBLAS_", "DNNL_", "KMP_", "MKL_", "NVIDIA_", "OMP_", "ONEDNN_")
"""Prefixes of variables that libraries of kernels read, some of them at each call."""
_TINY = 1e-310

Settings = Mapping[str, object]


def _slowing() -> dict[str, Callable[[], object]]:
    """Return a reader of each setting that can slow other code.

    If a version of torch lacks one, it raises.
    """
    private: Any = torch._C  # noqa: SLF001 - torch has no other way to read them
    autograd: Any = torch._C._autograd  # noqa: SLF001
    backends: Any = torch.backends
    dispatch: Any = _python_dispatch
    overrides: Any = torch.overrides
    return {
        "threads": torch.get_num_threads,
        "interop threads": torch.get_num_interop_threads,
        "oneDNN": lambda: backends.mkldnn.enabled,
        "oneDNN deterministic": lambda: backends.mkldnn.deterministic,
        "NNPACK": lambda: bool(private._get_nnpack_enabled()),  # noqa: SLF001
        "cuDNN": lambda: (
            backends.cudnn.enabled,
            backends.cudnn.deterministic,
            backends.cudnn.benchmark,
        ),
        "attention kernels": lambda: _attention(backends.cuda),
        "fast path of attention": lambda: bool(backends.mha.get_fastpath_enabled()),
        "anomaly detection": lambda: (
            torch.is_anomaly_enabled(),
            torch.is_anomaly_check_nan_enabled(),
        ),
        "profiler": lambda: bool(autograd._profiler_enabled()),  # noqa: SLF001
        "threads of the backward pass": lambda: bool(private._is_multithreading_enabled()),  # noqa: SLF001
        "hooks of saved tensors": (
            lambda: autograd._top_saved_tensors_default_hooks(True) is not None  # noqa: SLF001
        ),
        "hooks of all modules": lambda: tuple(len(getattr(modules, name)) for name in HOOKS),
        "modes of functions": lambda: _kinds(overrides._get_current_function_mode_stack()),  # noqa: SLF001
        "modes of the dispatcher": lambda: _kinds(dispatch._get_current_dispatch_mode_stack()),  # noqa: SLF001
        "profile function": lambda: _word(sys.getprofile()),
        "trace function": lambda: _word(sys.gettrace()),
        "profile function of new threads": lambda: _word(threading.getprofile()),
        "trace function of new threads": lambda: _word(threading.gettrace()),
        "monitoring tools": _monitoring,
        COLLECTOR: lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        CORES: lambda: _of_threads(lambda thread: tuple(sorted(os.sched_getaffinity(thread)))),
        PRIORITY: lambda: _of_threads(
            lambda thread: (os.getpriority(os.PRIO_PROCESS, thread), os.sched_getscheduler(thread))
        ),
        "switch interval": sys.getswitchinterval,
    }


def _rounding() -> dict[str, Callable[[], object]]:
    """Return a reader of each setting that changes others' results rather than their speed."""
    return {
        "default dtype": torch.get_default_dtype,
        "gradients": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "tiny numbers are zero": lambda: _TINY * 1.0 == 0.0,
        "variables": lambda: {
            name: value for name, value in os.environ.items() if name.startswith(VARIABLES)
        },
    }


def settings() -> dict[str, object]:
    """Return the settings of torch, Python and the kernel for the whole process.

    Unreadable ones are omitted.
    """
    readings: dict[str, object] = {}
    for name, read in (*SLOWING.items(), *ROUNDING.items()):
        with contextlib.suppress(AttributeError, RuntimeError, TypeError, OSError):
            readings[name] = read()
    return readings | effective_precision()


@dataclass(kw_only=True, slots=True)
class Untouched:
    """Compares settings and the functions that checks use with their earlier state."""

    noted: Noted = field(default_factory=current)
    """Noted functions and values that checks use."""
    clock: object = None
    """Clock of the samples, whose functions are compared too; `None` if it is unknown."""
    begun: Settings = field(default_factory=dict)
    """Settings before the workload was opened."""
    last: Settings = field(default_factory=dict)
    """Settings at the last look."""
    shared: dict[str, str] = field(default_factory=dict)
    """Settings that had changed once the reference was open, by name, with a description."""
    changed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings that an arm left changed, by arm and name, with a description."""

    def note(self) -> None:
        """Note the settings that all arms must find: only the reference is open."""
        self.last = settings()
        self.shared = {
            name: words for name, words in _differing(self.begun, self.last) if name in SLOWING
        }

    def accept(self, *names: str) -> None:
        """Note changes by the engine itself."""
        now = settings()
        self.last = {**self.last, **{name: now[name] for name in names if name in now}}

    def look(self, arm: str) -> None:
        """Compare the settings after an arm was opened, warmed up or timed with those before."""
        before, self.last = self.last, settings()
        for name, words in _differing(before, self.last):
            self.changed.setdefault(arm, {})[name] = words

    def checks(self, reference: str) -> Iterator[Check]:
        """Yield changed settings.

        The check fails if it is code or can slow other arms; else it is a doubt.
        """
        yield from self.noted.checks(reference)
        if self.clock is not None and (names := self.noted.replaced_of_clock(self.clock)):
            yield Check(
                name=UNTOUCHED, arm=reference, outcome=Outcome.FAIL, detail=replaced_words(names)
            )
        for arm, changes in self.changed.items():
            outcome = Outcome.FAIL if any(name in SLOWING for name in changes) else Outcome.UNKNOWN
            detail = (
                "it changed what other arms compute with, and left it so:"
                f" {'; '.join(changes.values())}"
            )
            yield Check(name=UNTOUCHED, arm=arm, outcome=outcome, detail=detail[:MAX_DETAIL])
        if self.shared:
            detail = (
                f"code of the tree changed settings for all arms: {'; '.join(self.shared.values())}"
            )
            yield Check(
                name=SURROUNDINGS,
                arm=reference,
                outcome=Outcome.UNKNOWN,
                detail=detail[:MAX_DETAIL],
            )


def _differing(before: Settings, now: Settings) -> Iterator[tuple[str, str]]:
    """Yield each setting that differs, with a description.

    Of threads only those count that were there before.
    """
    for name, value in now.items():
        was = before.get(name, value)
        if isinstance(was, dict) and isinstance(value, dict) and name in {CORES, PRIORITY}:
            both = [thread for thread in was if thread in value and was[thread] != value[thread]]
            if both:
                yield name, f"{name} {was[both[0]]} -> {value[both[0]]} (of {len(both)} threads)"
        elif was != value:
            yield name, f"{name} {was} -> {value}"


def _attention(backend: Any) -> tuple[bool, ...]:
    names = ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp")
    return tuple(bool(getattr(backend, f"{name}_enabled")()) for name in names)


def _kinds(stack: list[object]) -> tuple[str, ...]:
    return tuple(type(mode).__name__ for mode in stack)


def _word(function: object) -> str:
    return (
        "none"
        if function is None
        else str(getattr(function, "__qualname__", type(function).__name__))
    )


def _monitoring() -> tuple[tuple[str, int], ...]:
    """Return the tools of `sys.monitoring`, from Python 3.12 on, with their global events."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = (
        []
        if monitoring is None
        else [tool for tool in range(6) if monitoring.get_tool(tool) is not None]
    )
    return tuple((monitoring.get_tool(tool), monitoring.get_events(tool)) for tool in tools)


def _of_threads(read: Callable[[int], object]) -> dict[int, object]:
    """Read a value of each thread of this process; threads that have ended are left out."""
    readings: dict[int, object] = {}
    for name in os.listdir("/proc/self/task"):  # noqa: PTH208 - after each turn, and in half the time
        with contextlib.suppress(OSError):
            readings[int(name)] = read(int(name))
    return readings


SLOWING, ROUNDING = _slowing(), _rounding()
