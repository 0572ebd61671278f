"""The message that tells a worker what to do, and the lines it answers with. Plain JSON in both directions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ci_bench.records.case import Case
from ci_bench.records.config import RunOptions
from ci_bench.records.progress import Progress
from ci_bench.suites.base import Evidence, Stage

@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One worker's job. Without a stage, the worker only looks at the machine.

    `environ` is set in the worker before anything else runs there. `worker` is the suite's worker module.
    """

    launch: int
    device: str
    options: RunOptions
    scratch: str
    worker: str | None = None
    case: Case | None = None
    stage: Stage | None = None
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """How a stage ended when it could say so itself: `kind` is a `Status` value."""

    kind: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One line from a worker: exactly one field is set."""

    progress: Progress | None = None
    evidence: Evidence | None = None
    fault: Fault | None = None
    environment: Mapping[str, Mapping[str, str | int | float | bool | None]] | None = None


def encode(message: Task | Answer) -> bytes:
    """One line of JSON. Raises ValueError for a number that is not finite."""
    return json.dumps(msgspec.to_builtins(message), allow_nan=False).encode() + b"\n"


def decode_task(line: bytes) -> Task:
    """Read what `encode` wrote."""
    return msgspec.convert(json.loads(line), Task)


def decode_answer(line: bytes) -> Answer:
    """Read one line of a worker. Raises `ValueError` (or `msgspec.ValidationError`, its subclass) on anything else."""
    return msgspec.convert(json.loads(line, parse_constant=_refuse), Answer)


def _refuse(name: str) -> Any:
    message = f"{name} is not a number that JSON knows"
    raise ValueError(message)
