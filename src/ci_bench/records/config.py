"""The configuration as one frozen value. Reading it from files and flags is the business of `ci_bench.config`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ci_bench.records.policy import Policy


class Sampling(StrEnum):
    """How many launches a paired run takes: as many as the verdicts need, or a fixed number."""

    ADAPTIVE = "adaptive"
    FIXED = "fixed"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """How to measure.

    `device` is ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; `auto` takes the first GPU, else the CPU. `threads` is torch's intra-op
    thread count, `None` for one per core. `launches` is the number of fresh process sets, `max_launches` the most that adaptive
    sampling may take; `blocks` the ABBA blocks of one launch (a block times each arm twice); `sample_s` the least duration of
    one sample in seconds; `warmup_s` where warm-up gives up waiting for a steady state. `stage_timeout_s` ends one worker,
    `budget_s` keeps new cases and launches from starting, `case_budget_s` more launches of one case. `lock_timeout_s` is
    how long to wait for a device that another run measures on. A block of samples taken
    while the GPU was throttled or not alone is taken again, `redo` times at most. Each arm is opened `rotate` times, and calls go
    round these copies. On a GPU, `flush_l2` overwrites the L2 cache before each call, and `cuda_graph` replays a captured call
    instead of making it anew.
    """

    device: str = "auto"
    threads: int | None = None
    sampling: Sampling = Sampling.ADAPTIVE
    launches: int = 3
    max_launches: int = 16
    blocks: int = 10
    sample_s: float = 0.02
    warmup_s: float = 10.0
    stage_timeout_s: float = 1800.0
    budget_s: float | None = None
    case_budget_s: float | None = None
    lock_timeout_s: float = 3600.0
    redo: int = 3
    rotate: int = 1
    flush_l2: bool = False
    cuda_graph: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteEntry:
    """One item of a suite's list: its options as given; the suite's `plan` turns them into cases."""

    suite: str
    options: Mapping[str, Any] = field(default_factory=dict)


LOCK_FILES = (
    "requirements*.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "Pipfile.lock",
    "environment.yml",
    "conda-lock.yml",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """How each side of a paired run is made ready.

    `commands` run once per side, in its folder, with bash; `timeout_s` is what those of one side may take in all. `cache` is a
    folder kept between runs; `cache_key` are the files, as globs, whose change starts a new part of it. `network` allows commands
    to download, and a missing base or submodule to be fetched. `submodules` are checked out where the clone has them.
    """

    commands: tuple[str, ...] = ()
    timeout_s: float = 1800.0
    cache: str | None = None
    cache_key: tuple[str, ...] = LOCK_FILES
    network: bool = False
    submodules: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All of ci-bench.yml, with flags applied.

    `baseline` is ``paired``, ``none``, or the path of an earlier run's results; `base` the base commit of a paired run. `None` is
    what was not said. `plugins` are suites of the measured tree: import paths by name.
    """

    entries: tuple[SuiteEntry, ...]
    baseline: str | None = None
    base: str | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)
    setup: Setup = Setup()
    run: RunOptions = RunOptions()
    policy: Policy = Policy()  # noqa: RUF009 - frozen, so it can be shared
