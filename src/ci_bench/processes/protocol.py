"""A worker's orders, its answers, and its end of the two pipes. Plain JSON in both directions."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Never

import msgspec

from ci_bench.processes.messages import ClaimFiles, Keeping, OutputFiles
from ci_bench.records.config import RunOptions
from ci_bench.records.events import Progress
from ci_bench.records.outputs import OutputsComparison
from ci_bench.records.results import Case, Check
from ci_bench.suites.contract import Evidence, Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One worker's job.

    Without a stage, the worker only probes the machine, or compares tensors: of `files`, or of
    `claims`.
    """

    launch: int
    """Number of the launch, from 0."""
    device: str
    """Device to use, as the configuration names it."""
    options: RunOptions
    """Options of the run."""
    scratch: str
    """Folder that the worker may write to."""
    worker: str | None = None
    """Suite's worker module; `None` without a stage."""
    case: Case | None = None
    """Case to measure; `None` without a stage."""
    stage: Stage | None = None
    """Stage to run; `None`: probe the machine, or compare tensors."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set in the worker before anything else runs there."""
    keep: Keeping = Keeping.NOTHING
    """Outputs of the case's reference arm that are written."""
    files: OutputFiles | None = None
    """Files of both sides to compare; `None` if the task does not compare any."""
    base_digest: str = ""
    """Digest of base's tensors in `files`, from its results document."""
    claims: tuple[ClaimFiles, ...] = ()
    """Comparisons to repeat."""
    limit_s: float = 0.0
    """Approximate duration of a stage that can do more or less (s)."""
    cores: tuple[int, ...] = ()
    """Cores of the worker and its children, by number; empty: their usual ones."""
    largest_batch: int | None = None
    """Largest number of rows that fits; `None` if it is unknown."""


class OrderKind(StrEnum):
    """The next action of a worker that keeps a case's arms ready."""

    WARM = "warm"
    """Warm every arm up; `Order.calls` of each make a sample."""
    TURN = "turn"
    """Take `Order.samples` samples of the arm `Order.seat`, as part of block `Order.block`."""
    KEEP_BUSY = "keep_busy"
    """Run the arm `Order.seat` for `Order.seconds` without a pause; `Done.made` are the calls that
    were made.
    """
    KEEP_TO = "keep_to"
    """Compute only on `Order.core` from now on."""
    DISCARD = "discard"
    """Throw the samples of `Order.block` away."""
    FINISH = "finish"
    """Report the measurements, and end."""


TOUCH_FROM_CALLS = 50
"""A touch is then at most two per cent of a sample."""


MOST_FLUSHES = 64
"""The limit of overwriting the L2 cache before a call.

It keeps the GPU busy until the host has queued the call.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """One line to a worker."""

    kind: OrderKind
    """Action to take."""
    calls: tuple[int, ...] = ()
    """Calls of each arm that make a sample."""
    seat: int = 0
    """Place of the arm."""
    block: int = 0
    """Number of the block."""
    samples: int = 1
    """Number of samples to take."""
    touch: bool = False
    """True: make a call before long samples, since another process had the machine."""
    referee: int | None = None
    """Seed of fresh inputs for refereed calls before the samples; `None`: no referee."""
    once: bool = False
    """True: referee a single call."""
    flushes: int = 0
    """Cache flushes before each call, the same on all sides; 0 leaves them to the clock."""
    seconds: float = 0.0
    """Time to keep the arm busy (s)."""
    core: int = 0
    """Core to keep to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A worker executed its order, or has its arms open."""

    calls: tuple[int, ...] = ()
    """Calls of each arm that make a sample, once its arms are open."""
    block_s: float = 0.0
    """Duration of the worker's part of a block (s), once its arms are warm."""
    flushes: int = 0
    """Cache flushes that its calls needed, once its arms are warm."""
    made: int = 0
    """Calls of an arm that was kept busy."""
    one_core: bool = False
    """True if it computed in one process on at most one core."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFault:
    """The end of a stage, if the stage could report it: `kind` is a `Status` value.

    `spoilt`: a failed capture of a CUDA graph left the process unfit, and a new one without graphs
    may do better. `waited`: a rank gave up waiting for others.
    """

    kind: str
    message: str
    spoilt: bool = False
    waited: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One line from a worker: exactly one field is set."""

    progress: Progress | None = None
    """Progress of the stage."""
    done: Done | None = None
    """End of an order."""
    evidence: Evidence | None = None
    """Result of the stage."""
    fault: WorkerFault | None = None
    """End of the stage without a result."""
    environment: Mapping[str, Mapping[str, str | int | float | bool | None]] | None = None
    """Identity and condition of the probed machine."""
    beside: OutputsComparison | None = None
    """Comparison of head's tensors with base's."""
    judged: tuple[Check, ...] | None = None
    """Checks of repeated comparisons."""


ANSWER_FIELDS = frozenset(answer_field.name for answer_field in fields(Answer))


def encode(message: Task | Answer) -> bytes:
    """Return one line of JSON.

    Raises ValueError for a non-finite number, TypeError for a value that JSON cannot hold.
    """
    return json.dumps(msgspec.to_builtins(message), allow_nan=False).encode() + b"\n"


def encode_order(order: Order) -> bytes:
    """Return one line of JSON, in as few steps as possible.

    Between two samples, all code has left the caches.
    """
    return _ORDER_ENCODER.encode(order) + b"\n"


def decode_task(line: bytes) -> Task:
    """Read a line of `encode`."""
    return msgspec.convert(json.loads(line), Task)


def decode_order(line: bytes) -> Order:
    """Read a line of `encode_order`."""
    return _ORDER_DECODER.decode(line)


def decode_answer(line: bytes) -> Answer:
    """Read one line of a worker.

    Raises `ValueError` (or `msgspec.ValidationError`, its subclass) on anything else.
    """
    if line == _OBEYED_LINE:
        return _OBEYED
    raw = _DECODER.decode(line.decode())
    if (
        not isinstance(raw, dict)
        or not raw.keys() <= ANSWER_FIELDS
        or sum(raw[name] is not None for name in raw) != 1
    ):
        message = "an answer is a mapping with exactly one of its fields set"
        raise ValueError(message)
    return msgspec.convert(raw, Answer)


def _finite(text: str) -> float:
    """Read a finite number: Python reads 1e999 as infinity."""
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:20])


def _refuse(name: str) -> Never:
    message = f"{name} is not a number that JSON knows"
    raise ValueError(message)


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
"""Made once: `json.loads` would make one for every answer, between two turns."""
_ORDER_ENCODER, _ORDER_DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Order)

_OBEYED = Answer(done=Done())
OBEYED = encode(_OBEYED)
"""The line that answers every order of a turn: it is not put together, and not taken apart, each
time.
"""
_OBEYED_LINE = OBEYED.rstrip(b"\n")


class Abandoned(Exception):  # noqa: N818 - unreported: the process that gave orders has gone
    """The orders ended before the order to finish."""


class Channel:
    """Says answers on one descriptor and takes orders from another."""

    def __init__(self, answers: int, orders: int) -> None:
        """Use two open descriptors, which stay open."""
        self._answers = answers
        self._orders = orders

    def say(self, answer: Answer) -> None:
        """Send one line."""
        self.send(encode(answer))

    def send(self, line: bytes) -> None:
        """Send one line that is encoded already."""
        data = memoryview(line)
        while data:
            data = data[os.write(self._answers, data) :]

    def orders(self) -> Iterator[Order]:
        """Yield the parent's orders as they come; ends when the parent has closed its end."""
        rest = b""
        while data := os.read(self._orders, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            yield from map(decode_order, lines)
