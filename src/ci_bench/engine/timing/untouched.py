"""What all arms of a process share, and none may change: torch's settings, and the functions that checks are made with.

A candidate that leaves the reference fewer threads, or rounds its products, makes its own speedup; one that replaces what
compares results passes every comparison. Both are one assignment, and common enough in code that was written for a score. So
all of that kind is noted before any arm is opened, and read again after each turn, outside the clock. This keeps no code off
that sets out to deceive: what shares a process can undo whatever looks at it. Imports torch.

Clocks are not among it: tools that freeze time replace those honestly (`fence`), and the parent's clock is their witness.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import FunctionType
from typing import Any

import torch

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.fp32_precision import effective_precision

UNTOUCHED = "untouched"
"""The check. It is there only where something was changed."""
OURS = (
    *(f"ci_bench.engine.timing.{name}" for name in ("clock", "fence", "looks", "referee", "sampling")),
    *(f"ci_bench.suites.{name}" for name in ("draws", "freshness", "numerics", "randomness")),
)
THEIRS: Mapping[str, tuple[str, ...]] = {
    "torch": ("equal", "rand", "randint", "randn", "randperm", "empty_like"),
    "torch.linalg": ("vector_norm",),
    "torch.random": ("manual_seed",),
    "torch.cuda": ("synchronize",),
    "random": ("seed", "Random"),
}
"""Where torch defines them: the first import of dynamo, which any arm may be the cause of, replaces `torch.manual_seed`."""
OF_TENSORS = ("abs", "allclose", "aminmax", "copy_", "double", "equal", "isfinite", "max", "sub", "to")
THREADS = "threads"
SHOWN = 3


def functions() -> dict[str, Any]:
    """By their full names, the functions, classes and methods that samples and checks are made with."""
    found: dict[str, Any] = {}
    for module in OURS:
        for name, value in vars(import_module(module)).items():
            if isinstance(value, FunctionType | type):
                found[f"{module}.{name}"] = value
            if isinstance(value, type) and value.__module__ == module:
                found |= {f"{module}.{name}.{of}": one for of, one in vars(value).items() if isinstance(one, FunctionType)}
    for module, names in THEIRS.items():
        found |= {f"{module}.{name}": getattr(import_module(module), name) for name in names}
    return found | {f"torch.Tensor.{name}": getattr(torch.Tensor, name) for name in OF_TENSORS}


def settings() -> dict[str, object]:
    """What torch computes with, for the whole process."""
    return {
        THREADS: torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        **effective_precision(),
    }


@dataclass(kw_only=True, slots=True)
class Untouched:
    """Notes the functions when it is made, and the settings with `note`; holds both against what they are later."""

    before: dict[str, Any] = field(default_factory=functions)
    last: dict[str, object] = field(default_factory=dict)
    changed: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self) -> None:
        """The settings are now as all arms are to find them: the reference is open, and nothing else."""
        self.last = settings()

    def look(self, arm: str) -> None:
        """After an arm was opened, warmed up or timed: what of the settings it left otherwise than it found it."""
        before, self.last = self.last, settings()
        for name, value in self.last.items():
            if before.get(name) != value:
                self.changed.setdefault(arm, {})[name] = f"{name} {before.get(name)} -> {value}"

    def checks(self, reference: str) -> Iterator[Check]:
        """What was changed: wrong where it is a function or the threads of other arms, else a doubt."""
        now = functions()
        if replaced := [name for name, value in self.before.items() if now.get(name) is not value]:
            yield Check(name=UNTOUCHED, arm=reference, outcome=Outcome.FAIL, detail=_replaced(replaced))
        for arm, changes in self.changed.items():
            outcome = Outcome.FAIL if THREADS in changes else Outcome.UNKNOWN
            detail = f"it changed what other arms compute with, and left it so: {'; '.join(changes.values())}"
            yield Check(name=UNTOUCHED, arm=arm, outcome=outcome, detail=detail[:1000])


def _replaced(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"the measured code replaced what samples and checks are made with: {', '.join(names[:SHOWN])}{more}"[:1000]
