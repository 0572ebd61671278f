"""The clock of a CUDA GPU: the host's clock around the fence, CUDA events inside it.

Hot (the default): the calls follow one another in one fence, between two events; `device_s` is the
span between these. Cold (`flush_l2`): before each call the L2 cache is overwritten, and each call
has a separate fence. There `wall_s` and `device_s` come from different calls. The host's clock
needs the flush to be over before it starts. Events are queued behind the flush: the GPU is busy
with it while the host queues the call, so the span contains no waiting for the host.

Steps may be captured in CUDA graphs.

An event's resolution is about 0.5 µs (CUDA runtime API, cudaEventElapsedTime), so one pair of
events resolves a span of 100 µs to 0.5 %. The error of a sum of n spans grows with the square root
of n, which is why n spans are trusted from 100 µs times the root of n on, and are unknown below.

Capture follows https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs: warm up on a side
stream, capture, replay. A replay repeats the GPU's part of the captured call, with the same inputs;
the step's work on the host is not repeated.
"""

import contextlib
import math
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ci_bench.processes.protocol import MOST_FLUSHES
from ci_bench.records.results import GRAPHED, Check, Lane, Outcome
from ci_bench.suites.contract import Mark, Part, Program, no_mark
from ci_bench.worker.clock import Taken, Write, expect_marks, split
from ci_bench.worker.fence import Reader, copies_of, in_turn, reader

WARMUP_CALLS = 3
"""As in torch's own example: lazy set-up and autotuning have to be over before capturing."""
MAX_REASON = 300


class NothingCaptured(Exception):  # noqa: N818 - it names what is wrong, and is shown to the user
    """The graph is empty: replaying it would time nothing."""


class SpoiltByCapture(RuntimeError):  # noqa: N818 - it says what happened, and is shown to the user
    """After a failed capture the process is unfit to measure in.

    The same step may well run in a new one.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Captured:
    """A step's graph, or the reason for its absence.

    `replay` queues one call and does not wait for it.
    """

    replay: Callable[[], object] | None
    reason: str = ""


def capture(
    step: Callable[[], object], cuda: Any, device: str, *, draw: Callable[[], object] = int
) -> Captured:
    """Capture one call of `step` on the current device of `cuda` (`torch.cuda`, or a replacement).

    `draw` takes a random number on the device.

    Raises:
        SpoiltByCapture: the attempt failed, and later steps do too.
    """
    home = cuda.current_stream(device)
    graph = cuda.CUDAGraph()
    try:
        _warm_up(step, cuda, device, home)
        _record(step, cuda, graph)
    except Exception as error:  # noqa: BLE001 - after any error in a capture, continue without a graph
        # If ending the capture raises, torch.cuda.graph leaves its own stream current, and the
        # random generators and the allocator in the middle of a capture; resetting the graph frees
        # them in newer versions of torch.
        cuda.set_stream(home)
        with contextlib.suppress(Exception):
            graph.reset()
        _prove_health(step, cuda, device, draw, error)
        return Captured(replay=None, reason=_words(error))
    return Captured(replay=graph.replay)


def _warm_up(step: Callable[[], object], cuda: Any, device: str, home: Any) -> None:
    """Call the step on a side stream; the last call may not wait for the GPU.

    Capturing cannot do that either, but a failed capture may spoil the process for plain calls (see
    `capture`), and this doesn't.
    """
    side = cuda.Stream(device)
    side.wait_stream(home)
    with cuda.stream(side):
        for _ in range(WARMUP_CALLS - 1):
            step()
        with _no_waiting(cuda):
            step()
    home.wait_stream(side)
    cuda.synchronize(device)


@contextlib.contextmanager
def _no_waiting(cuda: Any) -> Iterator[None]:
    before = cuda.get_sync_debug_mode()
    cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        cuda.set_sync_debug_mode(before)


def _record(step: Callable[[], object], cuda: Any, graph: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with cuda.graph(graph):
            step()
    if any("graph is empty" in str(warning.message).lower() for warning in caught):
        message = "the step launched no GPU work, or launched it on its own stream"
        raise NothingCaptured(message)


def _prove_health(
    step: Callable[[], object],
    cuda: Any,
    device: str,
    draw: Callable[[], object],
    reason: Exception,
) -> None:
    """Do what is impossible during a capture.

    Runs the step, frees cached memory, draws a random number.

    Some versions of torch leave the allocator or the generators in that state, which shows when the
    next arm is captured, or much later.
    """
    try:
        step()
        cuda.synchronize(device)
        cuda.empty_cache()
        draw()
        cuda.synchronize(device)
    except Exception as error:
        message = (
            f"the step could not be captured in a CUDA graph ({_words(reason)}), and after the"
            f" attempt it does not run without one either ({_words(error)}); set run.cuda_graph to"
            " false"
        )
        raise SpoiltByCapture(message) from error


def _words(error: Exception) -> str:
    """Return the first line of an error: torch appends advice and stacks."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".removesuffix(": ")[:MAX_REASON]


LEAST_SPAN_S = 100e-6
MAX_EVENTS = 2048
"""The limit of events for the marks of one sample; in longer samples only some calls are marked."""
FALLBACK_FLUSH_BYTES = 256_000_000
NOT_SUPPORTED = 801
"""`CUDA_ERROR_NOT_SUPPORTED`."""
FENCE_SHARE = 1000
"""The shortest sample, as a multiple of its empty fence's duration."""
FENCE_TRIES = 9
MAX_OVERTAKEN = 0.1
"""The share of late calls above which a remark reports that the GPU had to wait for the host."""


@dataclass(kw_only=True, slots=True)
class _Subject:
    """A program as this clock calls it, and observations on the way."""

    program: Program
    """The program as the suite opened it."""
    step: Callable[[Mark], object]
    """One call: the program's step, or a replay of its graph."""
    parts: tuple[Part, ...]
    """Parts that are timed; empty for a replay, which hides them."""
    captured: Captured | None = None
    """The graph, or the reason for its absence; `None` if no graph was requested."""
    unresolved: set[str] = field(default_factory=set)
    """Names of times whose spans are too short for the events' resolution."""
    queued: int = 0
    """Cold calls since the number of flushes was last changed."""
    overtaken: int = 0
    """Those cold calls that the GPU had to wait for."""
    flushes: int = 1
    """Flushes before each cold call's events."""
    late: dict[int, int] = field(default_factory=dict)
    """Samples in which the GPU waited for the host, by their number of calls."""
    taken: Counter[int] = field(default_factory=Counter)
    """Samples by their number of calls, of those with several."""

    def waited(self) -> float:
        """Return the share of calls, or of samples, in which the GPU waited for the host.

        Only hot samples with the most frequent number of calls count: others searched for that
        number, and before a single call the GPU has nothing to do.
        """
        if self.taken:
            calls, count = self.taken.most_common(1)[0]
            return self.late.get(calls, 0) / count
        return self.overtaken / self.queued if self.queued else 0.0


class _Marks:
    """Records the next event at each call, and only counts once there are no more."""

    def __init__(self, events: Sequence[Any], stream: Any) -> None:
        self._events, self._stream = events, stream
        self.made = 0

    def __call__(self) -> None:
        if self.made < len(self._events):
            self._events[self.made].record(self._stream)
        self.made += 1


class CudaClock:
    """Host clock and CUDA events on the current stream of the process's current GPU.

    Work on other streams is in `wall_s`, but in `device_s` only as far as the current stream waits
    for it.
    """

    parts_lane = Lane.DEVICE

    def __init__(
        self,
        cuda: Any,
        device: str,
        *,
        flush: Callable[[], object] | None = None,
        graphs: bool = False,
        unpin: Callable[[], int] = int,
        draw: Callable[[], object] = int,
        now: Reader = reader(),
    ) -> None:
        """Time with `cuda`, which is `torch.cuda` or a replacement.

        `flush` queues the eviction of the L2 cache; `graphs` requests CUDA graphs.

        `unpin` makes persisting lines of the cache evictable and returns CUDA's error, 0 for none.
        `draw` takes a random number on the device.
        """
        self._cuda, self._device = cuda, device
        self._flush, self._graphs, self._draw, self._now = flush, graphs, draw, now
        self._unpin, self._pinned_by = unpin, 0
        self._subjects: dict[int, _Subject] = {}
        self._settled = False
        self._events: list[Any] = []
        self._start, self._end, self._last = self._new_events(3)

    def prepare(self, program: Program) -> None:
        """Capture the program's graph, if requested.

        A program that cannot be captured is called plainly.
        """
        if id(program) not in self._subjects:
            self._subjects[id(program)] = self._subject(program)

    def call(self, program: Program) -> None:
        """Queue one call or replay."""
        self.prepare(program)
        self._subjects[id(program)].step(no_mark)

    def take(self, program: Program, *, calls: int, write: Write | None = None) -> Taken:
        """Time this many calls; with a flush twice as many, half of them by each clock.

        Raises:
            ValueError: a call made more or fewer marks than it has parts.
        """
        self.prepare(program)
        subject = self._subjects[id(program)]
        if write is not None:
            return self._take_written(subject, calls, write)
        if self._flush is not None:
            return self._take_cold(subject, calls, self._flush)
        return self._take_hot(subject, calls)

    def least_sample_s(self) -> float:
        """Return a thousand times the duration of an empty fence.

        It is 0 if each call has a separate fence, which no length would hide.
        """
        if self._flush is not None:
            return 0.0
        costs_s = []
        for _ in range(FENCE_TRIES):
            self._synchronize()
            begun = self._now()
            self._start.record(self._stream())
            self._end.record(self._stream())
            self._synchronize()
            costs_s.append(self._now() - begun)
        return FENCE_SHARE * statistics.median(costs_s)

    def replays(self, program: Program) -> bool:
        """Return whether its step was captured in a graph."""
        subject = self._subjects.get(id(program))
        return (
            subject is not None
            and subject.captured is not None
            and subject.captured.replay is not None
        )

    def checks(self, program: Program, *, arm: str) -> tuple[Check, ...]:
        """Return whether the step was `graphed`, if requested, and faults of the device's times."""
        subject = self._subjects.get(id(program))
        if subject is None:
            return ()
        checks = [_graphed(subject.captured, subject.program, arm)] if subject.captured else []
        if subject.unresolved:
            short = ", ".join(sorted(subject.unresolved))
            detail = (
                f"too short for the events' resolution of 0.5 µs, and left out: {short}; give the"
                " step more to do"
            )
            checks.append(_doubt(arm, detail))
        if self._pinned_by:
            detail = (
                f"persisting lines of the L2 cache were not reset (CUDA error {self._pinned_by}),"
                " so flushes may miss them"
            )
            checks.append(_doubt(arm, detail))
        if (share := subject.waited()) > MAX_OVERTAKEN:
            detail = (
                f"the GPU waited for the host in {share:.0%} of the calls: device times hold that"
                " too; try run.cuda_graph"
            )
            checks.append(_doubt(arm, detail))
        return tuple(checks)

    def retries(self) -> int:
        """Return how often torch's allocator found no room and freed cached memory."""
        return int(self._cuda.memory_stats(self._device).get("num_alloc_retries", 0))

    def flushes(self) -> int:
        """Return the most flushes that calls of any program have needed; 0 without flushing."""
        return (
            max((subject.flushes for subject in self._subjects.values()), default=1)
            if self._flush is not None
            else 0
        )

    def settle_flushes(self, count: int) -> None:
        """Set the number of flushes before every call of every program."""
        for subject in self._subjects.values() if not self._settled else ():
            subject.flushes, subject.overtaken, subject.queued = count, 0, 0
        self._settled = True

    def _subject(self, program: Program) -> _Subject:
        if not self._graphs:
            return _Subject(program=program, step=program.step, parts=program.parts)
        every = [
            capture(partial(copy.step, no_mark), self._cuda, self._device, draw=self._draw)
            for copy in copies_of(program)
        ]
        failed = next((attempt for attempt in every if attempt.replay is None), None)
        if failed is not None:
            return _Subject(
                program=program, step=program.step, parts=program.parts, captured=failed
            )
        replay = in_turn([attempt.replay for attempt in every if attempt.replay is not None])
        return _Subject(program=program, step=lambda _: replay(), parts=(), captured=every[0])

    def _take_hot(self, subject: _Subject, calls: int) -> Taken:
        """Time one fence: the calls, their marks, two events around, and one before the last call.

        If the GPU reaches that event before the host has queued the last call, it waits for the
        host. A single call shows nothing: the GPU has nothing to do before it.
        """
        stride, marked = self._spread_marks(len(subject.parts), calls)
        events = self._reserve((len(subject.parts) + 1) * marked) if subject.parts else []
        stream, step, now = self._stream(), subject.step, self._now
        marks = _Marks(events, stream)
        self._synchronize()
        begun = now()
        self._start.record(stream)
        if subject.parts:
            for call in range(calls - 1):
                if call % stride:
                    step(no_mark)
                else:
                    marks()
                    step(marks)
        else:
            for _ in range(calls - 1):
                step(no_mark)
        self._last.record(stream)
        if subject.parts and not (calls - 1) % stride:
            marks()
            step(marks)
        else:
            step(no_mark)
        late = bool(self._last.query())
        self._end.record(stream)
        self._synchronize()
        wall_s = (now() - begun) / calls
        if calls > 1:
            subject.taken[calls] += 1
            subject.late[calls] = subject.late.get(calls, 0) + late
        device_s = _seconds(self._start, self._end)
        spans_s: tuple[float, ...] = ()
        if subject.parts:
            expect_marks(marks.made, subject.parts, marked)
            spans_s = split(events, subject.parts, between=_seconds)
        known_s = self._resolve(subject, "device time", device_s, pairs=1, calls=calls)
        return Taken(
            wall_s=wall_s, device_s=known_s, parts_s=self._resolve_parts(subject, spans_s, marked)
        )

    def _take_written(self, subject: _Subject, calls: int, write: Write) -> Taken:
        """Time calls as samples make them, with a write to the inputs among them.

        Calls and write are queued one behind the other on the same stream.

        Flushes come before each call as in samples, and the host waits for none of it.
        """
        stream, step, now, flush = self._stream(), subject.step, self._now, self._flush
        marks = _Marks([], stream)
        self._synchronize()
        begun = now()
        for call in range(calls):
            if call == calls - write.behind:
                write.write()
            if flush is not None:
                self._make_evictable()
                flush()
            marks()
            step(marks if subject.parts else no_mark)
        if not write.behind:
            write.write()
        self._synchronize()
        return Taken(wall_s=(now() - begun) / calls)

    def _take_cold(self, subject: _Subject, calls: int, flush: Callable[[], object]) -> Taken:
        """Time each call in two fences: by the host's clock, and by the events.

        A flush comes before either.

        Before the events there are as many flushes as the host takes to queue a call, judging by
        earlier samples; once the number is settled, that many.
        """
        events = self._reserve(len(subject.parts))
        stream, step, now = self._stream(), subject.step, self._now
        wall_s = device_s = 0.0
        spans_s = [0.0] * len(subject.parts)
        wanting = not self._settled and subject.overtaken > MAX_OVERTAKEN * subject.queued
        if wanting and subject.flushes < MOST_FLUSHES:
            subject.flushes, subject.overtaken, subject.queued = 2 * subject.flushes, 0, 0
        for _ in range(calls):
            self._make_evictable()
            flush()
            self._synchronize()
            begun = now()
            step(no_mark)
            self._synchronize()
            wall_s += now() - begun

            marks = _Marks(events, stream)
            self._make_evictable()
            for _ in range(subject.flushes):
                flush()
            self._start.record(stream)
            step(marks if subject.parts else no_mark)
            self._end.record(stream)
            subject.overtaken += bool(self._start.query())
            self._synchronize()
            device_s += _seconds(self._start, self._end)
            if subject.parts:
                expect_marks(marks.made + 1, subject.parts, 1)
                more_s = split([self._start, *events], subject.parts, between=_seconds)
                spans_s = [sum(pair) for pair in zip(spans_s, more_s, strict=True)]
        subject.queued += calls
        known_s = self._resolve(subject, "device time", device_s, pairs=calls, calls=calls)
        return Taken(
            wall_s=wall_s / calls,
            device_s=known_s,
            parts_s=self._resolve_parts(subject, spans_s, calls),
        )

    def _make_evictable(self) -> None:
        """Unpin the cache's lines.

        The GPU is idle where samples are taken, since the driver may wait for it.
        """
        self._pinned_by = self._unpin() or self._pinned_by

    def _resolve_parts(
        self, subject: _Subject, spans_s: Sequence[float], calls: int
    ) -> tuple[float | None, ...]:
        """Return each part per call and unit (s), from its sum over this many marked calls."""
        return tuple(
            self._resolve(
                subject,
                "" if part.on_host else part.metric,
                span_s,
                pairs=calls,
                calls=calls * part.per,
            )
            for part, span_s in zip(subject.parts, spans_s, strict=True)
        )

    def _resolve(
        self, subject: _Subject, what: str, span_s: float, *, pairs: int, calls: int
    ) -> float | None:
        """Return a sum of spans per call (s).

        `None` if this many pairs of events cannot resolve it; that is noted, if the sum has a name.
        """
        if resolves(span_s, pairs):
            return span_s / calls
        subject.unresolved |= {what} - {""}
        return None

    def _spread_marks(self, parts: int, calls: int) -> tuple[int, int]:
        """Return the stride of marked calls, and their number."""
        stride = math.ceil(calls * (parts + 1) / MAX_EVENTS)
        return stride, math.ceil(calls / stride)

    def _reserve(self, count: int) -> list[Any]:
        """Return this many events, all of which exist."""
        if count > len(self._events):
            self._events += self._new_events(count - len(self._events))
        return self._events[:count]

    def _new_events(self, count: int) -> list[Any]:
        """Return new events, recorded once.

        Torch creates the CUDA event behind one when it is first recorded.
        """
        events = [self._cuda.Event(enable_timing=True) for _ in range(count)]
        for event in events:
            event.record(self._stream())
        return events

    def _stream(self) -> Any:
        return self._cuda.current_stream(self._device)

    def _synchronize(self) -> None:
        self._cuda.synchronize(self._device)


def resolves(span_s: float, pairs: int) -> bool:
    """Return whether the sum (s) of spans between this many pairs of events is precise.

    That is, if it is known to half a per cent.
    """
    return span_s >= LEAST_SPAN_S * math.sqrt(pairs)


def flush_bytes(cuda: Any, device: str) -> int:
    """Return how many overwritten bytes evict the L2 cache: twice its size."""
    return (
        2 * int(getattr(cuda.get_device_properties(device), "L2_cache_size", 0))
        or FALLBACK_FLUSH_BYTES
    )


def make_flush(cuda: Any, device: str, *, allocate: Callable[[int], Any]) -> Callable[[], object]:
    """Return a function that evicts the L2 cache: it queues the overwriting of a buffer.

    `allocate` returns a tensor of a number of bytes.
    """
    zero: Callable[[], object] = allocate(flush_bytes(cuda, device)).zero_
    return zero


def make_unpin(load: Callable[[str], Any]) -> Callable[[], int]:
    """Return a function that makes persisting lines of the L2 cache normal ones, for `CudaClock`.

    An overwrite does not evict lines that an access policy window has pinned (CUDA C++ Programming
    Guide, L2 access management). `load` opens a library; the driver's is in every process with
    CUDA, however torch links the runtime. A device or driver without the function pins nothing.
    """
    try:
        reset = load("libcuda.so.1").cuCtxResetPersistingL2Cache
    except (OSError, AttributeError):
        return int

    def unpin() -> int:
        code = int(reset())
        return 0 if code == NOT_SUPPORTED else code

    return unpin


def _seconds(earlier: Any, later: Any) -> float:
    """Return the time between two events, which torch returns in ms."""
    return float(earlier.elapsed_time(later)) / 1e3


def _graphed(captured: Captured, program: Program, arm: str) -> Check:
    if captured.replay is None:
        detail = f"called plainly, since a CUDA graph could not be captured: {captured.reason}"
        return Check(name=GRAPHED, arm=arm, outcome=Outcome.UNKNOWN, detail=detail)
    without = "; its parts are not timed" if program.parts else ""
    detail = f"one call captured in a CUDA graph, and replayed{without}"
    return Check(name=GRAPHED, arm=arm, outcome=Outcome.PASS, detail=detail)


def _doubt(arm: str, detail: str) -> Check:
    return Check(
        name="device_clock", arm=arm, outcome=Outcome.UNKNOWN, detail=detail, informative=True
    )
