"""Report dynamo's work: graphs, breaks, fallbacks, recompiles, phases; and place compiler caches.

Recompiles have reasons, phases their durations. Read from torch's own counters. A frame that is
compiled again shows as a second number behind its frame id (``0/1``):
https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_COMPILATIONS = 4096
"""The number of compilations whose figures torch keeps; 64 by default."""
MAX_REASONS = 20
MAX_REASON = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileCounts:
    """Dynamo's counts since the counter was started."""

    graphs: int
    """Number of distinct captured graphs."""
    graph_breaks: int
    """Number of graph breaks, each time counted."""
    recompiles: int
    """Number of compilations of a frame after its first."""
    break_reasons: Mapping[str, int]
    """Number of graph breaks by the first line of their reason."""
    operations: int = 0
    """Number of calls captured in graphs."""
    fallbacks: int = 0
    """Number of frames that dynamo inspected and left to run as they are."""
    fallback_reasons: Mapping[str, int] = field(default_factory=dict)
    """Number of times that dynamo met what it does not support, by the reason's first line."""
    cudagraph_skips: int = 0
    """Number of times that inductor did without a CUDA graph."""
    break_places: Mapping[str, str] = field(default_factory=dict)
    """User's line of each reason's first break; reasons without a stack are missing."""
    recompile_reasons: tuple[str, ...] = ()
    """Failed guards with their functions, each once, at most `MAX_REASONS`."""


_NESTED_US = (
    ("dynamo", "dynamo_cumulative_compile_time_us"),
    ("aot", "aot_autograd_cumulative_compile_time_us"),
    ("inductor", "inductor_cumulative_compile_time_us"),
    ("kernels", "triton_compile_time_us"),
)
"""Phases as torch records them, each within the one before; the last is compiling kernels, with
Triton or a C++ compiler.
"""
_TUNING_US = ("runtime_triton_autotune_time_us", "compile_time_autotune_time_us")


class CompileCounter:
    """Counts what dynamo does from its creation on. One per process at a time."""

    def __init__(self) -> None:
        """Reset torch's counters and listen to compilations."""
        import torch._dynamo
        from torch._dynamo import utils
        from torch._dynamo.callback import on_compile_start
        from torch._dynamo.utils import counters, graph_break_reasons, guard_failures

        torch._dynamo.reset()  # noqa: SLF001 - torch documents this name; no public one exists
        counters.clear()
        graph_break_reasons.clear()
        guard_failures.clear()
        self._compilations: set[str] = set()
        on_compile_start(self._on_start)
        utils.set_compilation_metrics_limit(MOST_COMPILATIONS)
        utils.clear_compilation_metrics()

    def _on_start(self, started: object) -> None:
        self._compilations.add(str(getattr(started, "compile_id", "")))

    def read(self) -> CompileCounts:
        """Return the counts so far."""
        from torch._dynamo.utils import counters, graph_break_reasons, guard_failures

        breaks = _by_first_line(counters["graph_break"])
        frames, stats = counters["frames"], counters["stats"]
        return CompileCounts(
            graphs=int(stats["unique_graphs"]),
            graph_breaks=sum(breaks.values()),
            recompiles=sum(1 for name in self._compilations if _is_recompile(name)),
            break_reasons=breaks,
            operations=int(stats["calls_captured"]),
            fallbacks=max(int(frames["total"]) - int(frames["ok"]), 0),
            fallback_reasons=_by_first_line(counters["unimplemented"]),
            cudagraph_skips=int(counters["inductor"]["cudagraph_skips"]),
            break_places=_places(graph_break_reasons),
            recompile_reasons=failed_guards(guard_failures),
        )

    def phases_s(self) -> dict[str, float]:
        """Return the seconds of each phase of all compilations so far, forward and backward.

        A phase does not include the phases inside it.

        Tracing by dynamo, AOTAutograd, inductor, compiling kernels, trying them out (``autotune``);
        phases that took no time are left out.
        """
        from torch._dynamo.utils import get_compilation_metrics

        return phases_of(get_compilation_metrics())


def phases_of(compilations: Iterable[object]) -> dict[str, float]:
    """Return the same from torch's own records of compilations (microseconds).

    A missing entry took no time.
    """
    phases_s = dict.fromkeys([*(name for name, _ in _NESTED_US), "autotune"], 0.0)
    for compilation in compilations:
        whole_us = [float(getattr(compilation, field, None) or 0) for _, field in _NESTED_US]
        for place, (name, _) in enumerate(_NESTED_US):
            if whole_us[place]:
                inside_us = next((inner for inner in whole_us[place + 1 :] if inner), 0.0)
                phases_s[name] += max(whole_us[place] - inside_us, 0.0) / 1e6
        phases_s["autotune"] += (
            sum(float(getattr(compilation, field, None) or 0) for field in _TUNING_US) / 1e6
        )
    return {name: seconds for name, seconds in phases_s.items() if seconds > 0}


def cache_environment(folder: Path) -> dict[str, str]:
    """Return the variables that point inductor's and triton's caches at `folder`."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def _by_first_line(reasons: Mapping[str, int]) -> dict[str, int]:
    """Merge reasons that differ only in the stack that follows their first line."""
    breaks: Counter[str] = Counter()
    for reason, count in reasons.items():
        breaks[str(reason).strip().partition("\n")[0] or "no reason given"] += int(count)
    return dict(breaks)


def _places(breaks: Iterable[Any]) -> dict[str, str]:
    """Return the user's innermost line of each reason's first break.

    For example ``model.py:12 in forward``.
    """
    places: dict[str, str] = {}
    for graph_break in breaks:
        reason = str(graph_break.reason).strip().partition("\n")[0] or "no reason given"
        if graph_break.user_stack and reason not in places and len(places) < MAX_REASONS:
            frame = graph_break.user_stack[-1]
            places[reason] = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"[
                :MAX_REASON
            ]
    return places


def failed_guards(failures: Mapping[Any, Iterable[object]]) -> tuple[str, ...]:
    """Return which guard failed in which function, each once."""
    reasons = (
        f"{getattr(code, 'co_name', '?')}: {str(failure).strip().partition(chr(10))[0]}"[
            :MAX_REASON
        ]
        for code, code_failures in failures.items()
        for failure in code_failures
    )
    return tuple(dict.fromkeys(reasons))[:MAX_REASONS]


def _is_recompile(compile_id: str) -> bool:
    """Return whether an id is a second or later compilation of its frame.

    Examples are ``[!0/]3/1`` and ``3/1_2``.
    """
    attempt = compile_id.rpartition("/")[2].partition("_")[0]
    return attempt.isdigit() and int(attempt) > 0
