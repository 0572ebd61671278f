"""The configuration as one frozen value. Reading it from files and flags is the business of `ci_bench.config`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ci_bench.records.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """How to measure.

    `device` is ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; `auto` takes the first GPU, else the CPU. `threads` is torch's intra-op
    thread count, `None` for one per core. `launches` is the number of fresh process sets; `blocks` the ABBA blocks of one launch
    (a block times each arm twice); `sample_s` the least duration of one sample in seconds; `warmup_s` where warm-up gives up
    waiting for a steady state. `stage_timeout_s` ends one worker, `budget_s` keeps new cases from starting.
    """

    device: str = "auto"
    threads: int | None = None
    launches: int = 3
    blocks: int = 8
    sample_s: float = 0.02
    warmup_s: float = 10.0
    stage_timeout_s: float = 1800.0
    budget_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteEntry:
    """One item of a suite's list: its options as given; the suite's `plan` turns them into cases."""

    suite: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All of ci-bench.yml, with flags applied."""

    entries: tuple[SuiteEntry, ...]
    run: RunOptions = RunOptions()
    policy: Policy = Policy()  # noqa: RUF009 - frozen, so it can be shared
