"""The example configuration is measured as it is, in few launches."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_builders import QUICK, measure_here

from ci_bench.configuration.config import load_config
from ci_bench.records.results import Status

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "command.yml"


@pytest.mark.slow
def test_every_entry_of_the_example_is_measured(tmp_path) -> None:
    config = load_config(EXAMPLE)
    entries = [entry.options for entry in config.entries]
    rows = measure_here(tmp_path, *entries, options=replace(QUICK, blocks=1))
    assert {row.case.name: row.status for row in rows} == dict.fromkeys(
        ["start_up", "sorting", "joining"], Status.OK
    )
    metrics = {row.case.name: {(metric.name, metric.arm) for metric in row.metrics} for row in rows}
    assert metrics == {
        "start_up": {("step_time", "command"), ("peak_rss", "command")},
        "sorting": {(name, arm) for name in ("step_time", "peak_rss") for arm in ("merge", "sort")},
        "joining": {("join_time", "command")},
    }
