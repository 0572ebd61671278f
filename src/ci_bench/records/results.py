"""The results document: one run, its machine, its source and its ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from ci_bench.records.case import CaseResult, Fact


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The machine. `identity` decides whether two runs can be compared; `condition` is recorded for the reader."""

    identity: Mapping[str, Fact]
    condition: Mapping[str, Fact]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What was measured: the user's repository at a commit. `None` where there is no repository.

    `chosen_by` says in words how the base commit of a paired run was chosen; head is what is checked out.
    """

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    chosen_by: str | None = None


class RunState(StrEnum):
    """Whether the run came to its end."""

    PARTIAL = "partial"
    COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """When and from which configuration. Times are ISO 8601 in UTC."""

    id: str
    started_at: str
    state: RunState
    config_digest: str
    device: str
    finished_at: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything one run measured. `cases` is the ledger: exactly one row per planned case."""

    kind: Literal["results"] = "results"
    schema_version: Literal[1] = 1
    tool_version: str
    run: Run
    source: Source
    environment: Environment
    cases: tuple[CaseResult, ...]
