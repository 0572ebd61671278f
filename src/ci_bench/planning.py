"""From a configuration to what will be measured: the plan, and the run that begins. Needs neither torch nor numpy."""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ci_bench.errors import BadConfig, BadInput
from ci_bench.records.case import Case
from ci_bench.records.config import Config
from ci_bench.records.results import Run, RunState
from ci_bench.suites.base import Suite, find_suite

Plan = tuple[tuple[Suite, Case], ...]


def plan(config: Config, filters: Sequence[str]) -> Plan:
    """All cases of the configuration whose id contains one of `filters` (all without filters), each id once.

    Raises:
        BadConfig: two entries make the same case.
        BadInput: no case passes the filters.
    """
    every = [
        (suite, case) for entry in config.entries for suite in (find_suite(entry.suite),) for case in suite.plan(entry.options)
    ]
    ids = Counter(case.id for _, case in every)
    twice = [name for name, times in ids.items() if times > 1]
    if twice:
        message = f"two entries make the same case {twice[0]}; give one of them another `name`"
        raise BadConfig(message)
    chosen = tuple((suite, case) for suite, case in every if not filters or any(text in case.id for text in filters))
    if every and not chosen:
        message = f"--filter {' '.join(filters)}: no case id contains this; `ci-bench list` prints all {len(every)} ids"
        raise BadInput(message)
    return chosen


def start(config: Config) -> Run:
    """A new run of a configuration, beginning now."""
    canonical = json.dumps(msgspec.to_builtins(config), sort_keys=True)
    return Run(
        id=uuid.uuid4().hex,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        state=RunState.PARTIAL,
        config_digest=hashlib.sha256(canonical.encode()).hexdigest(),
        device=config.run.device,
    )
