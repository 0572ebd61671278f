"""What dynamo did: graphs, graph breaks, recompiles, and where a compiler cache lies.

Read from torch's own counters. A frame that is compiled again shows as a second number behind its frame id (``0/1``):
https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileCounts:
    """Counts since the counter was started. `break_reasons` holds the first line of each reason and how often it came."""

    graphs: int
    graph_breaks: int
    recompiles: int
    break_reasons: Mapping[str, int]


class CompileCounter:
    """Counts what dynamo does from its creation on. One per process at a time."""

    def __init__(self) -> None:
        """Reset torch's counters and listen to compilations."""
        import torch._dynamo
        from torch._dynamo.callback import on_compile_start
        from torch._dynamo.utils import counters

        torch._dynamo.reset()  # noqa: SLF001 - torch's own documentation names it so; there is no other door
        counters.clear()
        self._compilations: set[str] = set()
        on_compile_start(self._on_start)

    def _on_start(self, started: object) -> None:
        self._compilations.add(str(getattr(started, "compile_id", "")))

    def read(self) -> CompileCounts:
        """The counts so far."""
        from torch._dynamo.utils import counters

        breaks = _by_first_line(counters["graph_break"])
        return CompileCounts(
            graphs=int(counters["stats"]["unique_graphs"]),
            graph_breaks=sum(breaks.values()),
            recompiles=sum(1 for name in self._compilations if _is_recompile(name)),
            break_reasons=breaks,
        )


def cache_environment(folder: Path) -> dict[str, str]:
    """The variables that point inductor's and triton's caches at `folder`."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}


def _by_first_line(reasons: Mapping[str, int]) -> dict[str, int]:
    """Reasons that differ only in the stack that follows their first line are one reason."""
    breaks: Counter[str] = Counter()
    for reason, count in reasons.items():
        breaks[str(reason).strip().partition("\n")[0] or "no reason given"] += int(count)
    return dict(breaks)


def _is_recompile(compile_id: str) -> bool:
    """Whether an id such as ``[!0/]3/1`` or ``3/1_2`` is a second or later compilation of its frame."""
    attempt = compile_id.rpartition("/")[2].partition("_")[0]
    return attempt.isdigit() and int(attempt) > 0
