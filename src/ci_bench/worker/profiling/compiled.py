"""Read what compiling reports while an arm is explained: lines of fused kernels, kernels' times.

Inductor's settings are changed only in this process, which times nothing.
`trace.provenance_tracking_level` keeps the stacks of fused operators
(https://docs.pytorch.org/docs/stable/torch.compiler_inductor_provenance.html);
`cpp.enable_kernel_profile` makes a kernel on the CPU record itself. Features that a version of
torch lacks are left out and reported.
"""

import re
import sys

from ci_bench.records.profiles import (
    MOST_BREAKS,
    MOST_KERNELS,
    MOST_LINES,
    MOST_PLACE,
    MOST_REASON,
    MOST_SOURCE,
    GeneratedKernel,
    GraphBreak,
    SourceLine,
)
from ci_bench.worker.compilation import failed_guards
from ci_bench.worker.profiling.sources import FrameSources

_NUMBER = re.compile(r":\d+$")
_SOURCE = re.compile(
    r"^(\w{1,200}) = async_compile\.\w+\((.*?)(?:\'\'\'|\"\"\")(.*?)(?:\'\'\'|\"\"\")",
    re.MULTILINE | re.DOTALL,
)
_EXTERN = re.compile(r"(?:extern_kernels|(?:torch\.ops\.)?aten)\.(\w+)(?:\.\w+)?")


class Kernels:
    """Stacks and sources of inductor's kernels, by name.

    Listens to inductor from its creation on.
    """

    def __init__(self, sources: FrameSources) -> None:
        """Change inductor's settings for this process."""
        self.stacks: dict[str, list[str]] = {}
        self.generated: list[GeneratedKernel] = []
        self.note = ""
        self._sources = sources
        try:
            self._listen()
        except (ImportError, AttributeError) as error:
            self.note = f"this torch does not say which lines its kernels are of: {error}"[
                :MOST_REASON
            ]

    def _listen(self) -> None:
        from torch._inductor import config, debug
        from torch._inductor.graph import GraphLowering

        config.cpp.enable_kernel_profile = True
        config.trace.provenance_tracking_level = 1
        original = debug.dump_inductor_provenance_info

        def dump() -> object:
            for (
                name,
                stacks,
            ) in debug._inductor_kernel_stack_trace.items():  # noqa: SLF001 - no other place has it
                self.stacks.setdefault(event_name(name), []).extend(map(str, stacks))
            return original()

        debug.dump_inductor_provenance_info = dump  # type: ignore[assignment] # returns the previous result
        GraphLowering.save_output_code = self._keep

    def _keep(self, code: str) -> None:
        """Take the kernels of one graph, as inductor writes them into a module of Python."""
        self.generated = list(dict.fromkeys([*self.generated, *generated_kernels(code)]))[
            :MOST_KERNELS
        ]

    def lines(self, name: str) -> tuple[SourceLine, ...]:
        """Return the user's lines behind a kernel, in the order of its stacks."""
        locations = (self._sources.of_traceback(stack) for stack in self.stacks.get(name, ()))
        return tuple(dict.fromkeys(line for line in locations if line is not None))[:MOST_LINES]


def generated_kernels(code: str) -> list[GeneratedKernel]:
    """Return the kernels in the code of a graph, each with its source.

    Inductor hands a source to its compiler between three quotes.
    """
    return [
        GeneratedKernel(name=name, source=source.strip("\n")[:MOST_SOURCE])
        for name, _, source in _SOURCE.findall(code)
    ]


def event_name(kernel: str) -> str:
    """Return a profiler's name for a kernel of inductor.

    ``extern_kernels.mm:2`` and ``aten.sort.stable:3`` are operators.
    """
    name = _NUMBER.sub("", kernel)
    match = _EXTERN.fullmatch(name)
    return f"aten::{match.group(1)}" if match else name


def may_compile() -> bool:
    """Return whether dynamo is loaded. Without it nothing compiles; loading it takes seconds."""
    return "torch._dynamo.utils" in sys.modules


def has_compiled() -> bool:
    """Return whether dynamo looked at any frame so far."""
    return may_compile() and sum(sys.modules["torch._dynamo.utils"].counters["frames"].values()) > 0


def recompiles() -> tuple[str, ...]:
    """Return the guards that failed so far, with their functions."""
    return failed_guards(sys.modules["torch._dynamo.utils"].guard_failures) if may_compile() else ()


def breaks_of(sources: FrameSources) -> tuple[GraphBreak, ...]:
    """Return dynamo's reasons for the graph breaks so far, each with the user's line, counted."""
    if not may_compile():
        return ()
    times: dict[tuple[str, str], int] = {}
    for graph_break in sys.modules["torch._dynamo.utils"].graph_break_reasons:
        if not getattr(graph_break, "graph_break", True):
            continue
        stack = getattr(graph_break, "user_stack", None) or ()
        user_frames = [frame for frame in stack if sources.is_own(frame.filename)] or list(stack)
        line = (
            sources.line(user_frames[-1].filename, user_frames[-1].lineno or 0)
            if user_frames
            else None
        )
        reason = (
            str(getattr(graph_break, "reason", "")).strip().partition("\n")[0] or "no reason given"
        )
        key = reason[:MOST_REASON], line.place[:MOST_PLACE] if line else ""
        times[key] = times.get(key, 0) + 1
    return tuple(
        GraphBreak(reason=reason, place=place, times=count)
        for (reason, place), count in times.items()
    )[:MOST_BREAKS]
