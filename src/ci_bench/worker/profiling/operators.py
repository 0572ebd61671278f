"""Sum torch's profiler events: seconds by operator and kernel, lines, Python's own time, memory.

Three looks, since the first disturbs least: seconds come only from plain steps; lines, memory and
Python's own time come from one step each, in which only shares are read. Profiling stacks makes
everything slower, but hardly changes the shares.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from ci_bench.records.profiles import MOST_NAME, RowKind, SourceLine
from ci_bench.worker.profiling.sources import FrameSources

STEP = "ci-bench: step"
"""The annotation around each step that is looked at."""
LABEL = "ci-bench: line "
"""The text before an operator's line number in its annotation, and before a layout's line."""
_GRAPH = re.compile(r"^graph_\d+_")
_FUSED = re.compile(r"^(graph_\d+_)?(cpp|triton|triton_[a-z]+|cuda|mps)_fused")
_NUMBERED = re.compile(r"\b([0-9a-z]{40,64}|\d+/\d+(_\d+)?)\b")
_OURS = ("ci-bench:", "PythonDispatchMode", "[memory]", "Profiler")
_ALLOCATING = ("aten::empty", "aten::resize_", "aten::new_empty")
_C_NAME = re.compile(r"<built-in (?:function|method) ([\w.]+)|<method '([\w.]+)'")
FEWEST_QUIET = 5

Key = tuple[RowKind, str]
Place = tuple[SourceLine, ...]


def key_of(name: str) -> Key | None:
    """Return the name of an event in a report, without numbers that depend on the process.

    `None` for our own events.
    """
    if name.startswith(_OURS):
        return None
    if _FUSED.match(name):
        return RowKind.KERNEL, _GRAPH.sub("", name)[:MOST_NAME]
    return (
        RowKind.OPERATOR,
        (" ".join(_NUMBERED.sub("", name).replace("#", "").split()) or "unnamed")[:MOST_NAME],
    )


@dataclass(kw_only=True, slots=True)
class TakenProfile:
    """Seconds and calls of one step, by operator and kernel.

    `host_s` is the time outside them, `whole_s` the step's.
    """

    whole_s: float
    host_s: float
    seconds: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[Key, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, key: Key, seconds: float) -> None:
        """Add one call."""
        self.seconds[key] += seconds
        self.calls[key] += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Typical:
    """A figure of a step: the mean over the quiet ones and its standard error (s), and calls."""

    seconds: float
    error_s: float
    calls: float


def steps_of(events: Iterable[Any]) -> list[TakenProfile]:
    """Return the time of each step, from events of `torch.profiler` (its times are microseconds).

    Operators that another thread ran meanwhile (the backward pass on a GPU) belong to the step
    around them, not to the host.
    """
    roots = [event for event in events if event.cpu_parent is None]
    steps = sorted(
        (event for event in roots if event.name == STEP), key=lambda event: event.time_range.start
    )
    profiles = [
        TakenProfile(
            whole_s=step_event.time_range.elapsed_us() / 1e6,
            host_s=step_event.self_cpu_time_total / 1e6,
        )
        for step_event in steps
    ]
    for step, profile in zip(steps, profiles, strict=True):
        for event in _below(step):
            _add(profile, event)
    for root in roots:
        within = (
            profile
            for step_event, profile in zip(steps, profiles, strict=True)
            if _is_during(root, step_event)
        )
        if root.name != STEP and (step_of := next(within, None)) is not None:
            for event in (root, *_below(root)):
                _add(step_of, event)
                step_of.host_s = max(0.0, step_of.host_s - event.self_cpu_time_total / 1e6)
    return profiles


def _is_during(event: Any, step: Any) -> bool:
    on_host = str(event.device_type).endswith("CPU")
    return on_host and step.time_range.start <= event.time_range.start < step.time_range.end


def _below(event: Any) -> Iterator[Any]:
    waiting = list(event.cpu_children)
    while waiting:
        child = waiting.pop()
        waiting.extend(child.cpu_children)
        yield child


def _add(step: TakenProfile, event: Any) -> None:
    key = key_of(event.name)
    if key is not None:
        step.add(key, event.self_cpu_time_total / 1e6)
    for kernel in event.kernels:
        step.add((RowKind.KERNEL, kernel.name[:MOST_NAME]), kernel.duration / 1e6)


def quiet(steps: list[TakenProfile]) -> list[TakenProfile]:
    """Return the quickest quarter of the steps.

    In the others the machine did other work for a while. Means over the same steps add up, so the
    parts of a step sum to the whole; medians do not.
    """
    count = max(min(FEWEST_QUIET, len(steps)), len(steps) // 4)
    return sorted(steps, key=lambda step: step.whole_s)[:count]


def typical(steps: list[TakenProfile]) -> dict[Key, Typical]:
    """Return each figure over steps."""
    keys = {key for step in steps for key in step.seconds}
    return {
        key: middle(
            [step.seconds.get(key, 0.0) for step in steps],
            [step.calls.get(key, 0) for step in steps],
        )
        for key in keys
    }


def middle(seconds: list[float], calls: list[int]) -> Typical:
    """Return the mean and its standard error."""
    error_s = stdev(seconds) / len(seconds) ** 0.5 if len(seconds) > 1 else 0.0
    return Typical(seconds=fmean(seconds), error_s=error_s, calls=fmean(calls))


@dataclass(kw_only=True, slots=True)
class Lines:
    """One step with lines."""

    lines: list[SourceLine]
    """Table of lines that annotations refer to by index."""
    seconds: dict[Key, dict[Place, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    """Seconds of each operator, by its place."""
    laid_out: dict[tuple[Key, Place], dict[SourceLine, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Lines that made the layouts of an operator's inputs, or of its caller's."""
    alive: dict[tuple[Key, Place], float] = field(default_factory=dict)
    """Bytes of live memory at the peak, by allocating operator and place."""
    whole_s: float = 0.0
    """Seconds of the whole step."""
    _allocations: list[tuple[int, int, int, tuple[Key, Place]]] = field(default_factory=list)
    """Allocations and frees: time, address, bytes (negative for a free), and allocator."""

    def least(self, others: Sequence["Lines"]) -> None:
        """Take the least of each figure over looks at the same step: disturbances only add."""
        for key, by_place in self.seconds.items():
            for place in by_place:
                by_place[place] = min(
                    [
                        by_place[place],
                        *(
                            other.seconds[key][place]
                            for other in others
                            if place in other.seconds.get(key, {})
                        ),
                    ]
                )

    def read(self, roots: Iterable[Any], *, device: str) -> None:
        """Take a tree of events, and replay allocations and frees on this kind of device."""
        for root in roots:
            self.whole_s += root.duration_time_ns / 1e9
            self._visit(root, (), (), None, device)
        self.alive = peak_of(self._allocations)

    def _visit(
        self, event: Any, place: Place, layouts: Place, operator: Key | None, device: str
    ) -> Place:
        """Visit one event and all below it, whose inputs were laid out at `layouts`.

        Returns the place of the first that has one.
        """
        kind, name = event.tag.name, event.name
        if kind == "Allocation":
            self._allocate(event, operator, place, device)
            return place
        if kind == "TorchOp" and name.startswith(LABEL):
            line, *layout = (self.lines[int(number)] for number in name[len(LABEL) :].split())
            place, layouts = (line,), tuple(layout)
        key = key_of(name) if kind == "TorchOp" else None
        inner = operator if key is None or name.startswith(_ALLOCATING) else key
        places = [self._visit(child, place, layouts, inner, device) for child in event.children]
        attributed = place or next((inner_place for inner_place in places if inner_place), ())
        if key is not None:
            self.seconds[key][attributed] += own_s(event)
            self.laid_out[key, attributed].update(dict.fromkeys(layouts))
        return attributed

    def _allocate(self, event: Any, operator: Key | None, place: Place, device: str) -> None:
        what = event.extra_fields
        if what.device.type == device and (operator is not None or what.alloc_size < 0):
            who = operator or (RowKind.OPERATOR, "")
            self._allocations.append((event.start_time_ns, what.ptr, what.alloc_size, (who, place)))


def own_s(event: Any) -> float:
    """Return the seconds of an event of the tree without its children's."""
    inner = sum(
        child.duration_time_ns for child in event.children if child.tag.name != "Allocation"
    )
    return max(0.0, float(event.duration_time_ns - inner)) / 1e9


def peak_of(
    allocations: Iterable[tuple[int, int, int, tuple[Key, Place]]],
) -> dict[tuple[Key, Place], float]:
    """Return the bytes at the peak, by their allocator.

    An allocation is (when, where, bytes or less, by whom).
    """
    alive: dict[int, tuple[int, tuple[Key, Place]]] = {}
    now = most = 0
    at_peak: dict[int, tuple[int, tuple[Key, Place]]] = {}
    for _, pointer, size, who in sorted(allocations, key=lambda allocation: allocation[0]):
        if size > 0:
            alive[pointer] = size, who
            now += size
        elif pointer in alive:
            now -= alive.pop(pointer)[0]
        if now > most:
            most, at_peak = now, dict(alive)
    sums: dict[tuple[Key, Place], float] = defaultdict(float)
    for size, who in at_peak.values():
        sums[who] += size
    return dict(sums)


@dataclass(kw_only=True, slots=True)
class PythonTime:
    """One step with stacks: the interpreter's own seconds.

    They are by the user's function, or by the foreign code that a line of it calls. The step is
    everything below the function called `entered`: an annotation ends the stack that it is in.
    """

    sources: FrameSources
    """Finds the user's frames."""
    entered: str
    """Name of the function that a step consists of."""
    seconds: dict[tuple[str, Place], float] = field(default_factory=lambda: defaultdict(float))
    """The interpreter's own seconds, by function and line."""
    operators: dict[Key, dict[Place, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    """Seconds of operators that a line calls by name from Python, outside of compiled code."""
    whole_s: float = 0.0
    """Seconds of the whole step."""

    def least(self, others: Sequence["PythonTime"]) -> None:
        """Take the least of each figure over looks at the same step: disturbances only add."""
        for key, own_s in self.seconds.items():
            self.seconds[key] = min(
                [own_s, *(other.seconds[key] for other in others if key in other.seconds)]
            )

    def read(self, roots: Iterable[Any]) -> None:
        """Take a tree of events."""
        for root in roots:
            self._visit(root, None, (), inside=False)

    def _visit(
        self, event: Any, owner: tuple[str, Place] | None, exact: Place, *, inside: bool
    ) -> None:
        kind = event.tag.name
        if kind == "PyCall":
            frame = event.extra_fields.callsite
            caller = event.extra_fields.caller
            if self.sources.is_own(frame.file_name):
                owner = (
                    frame.function_name[:MOST_NAME],
                    (self.sources.line(frame.file_name, frame.line_number),),
                )
            elif self.sources.is_own(caller.file_name):
                exact = (self.sources.line(caller.file_name, caller.line_number),)
                owner = frame.function_name[:MOST_NAME], exact
        elif kind == "PyCCall":
            caller = event.extra_fields.caller
            if self.sources.is_own(caller.file_name):
                exact = (self.sources.line(caller.file_name, caller.line_number),)
                owner = c_name(event.name), exact
        elif kind == "TorchOp" and inside and (key := key_of(event.name)) is not None:
            self.operators[key][exact] += own_s(event)
        if inside and kind in {"PyCall", "PyCCall"} and owner is not None:
            self.seconds[owner] += own_s(event)
        if kind == "PyCall" and event.extra_fields.callsite.function_name == self.entered:
            inside, self.whole_s = True, event.duration_time_ns / 1e9
        for child in event.children:
            self._visit(child, owner, exact, inside=inside)


def c_name(name: str) -> str:
    """Return ``sleep`` for ``<built-in function sleep>``."""
    match = _C_NAME.search(name)
    return (
        next((group for group in match.groups() if group), name)[:MOST_NAME]
        if match
        else name[:MOST_NAME]
    )


def spread(weights: Mapping[Place, float]) -> dict[Place, float]:
    """Return the share of each place; if nothing is known, no place has all of it."""
    total = sum(weights.values())
    return (
        {place: weight / total for place, weight in weights.items()}
        if total > 0
        else dict.fromkeys(list(weights)[:1] or [()], 1.0)
    )
