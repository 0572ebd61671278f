"""An interrupt at any moment: what was measured is on disk and valid, the report says partial, and nothing is left running."""

import signal

import pytest
from fault_checks import INTERRUPTED, INTERRUPTED_CASES, interrupt

from ci_bench import cli
from ci_bench.records import documents
from ci_bench.records.results import RunState
from processes import carrying

MOMENTS_S = (0.3, 0.8, 1.3, 1.8, 2.5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_an_interrupt_at_any_moment_loses_nothing(place, capsys, number, moment_s):
    ended = interrupt(place, number, moment_s=moment_s)
    assert carrying(ended.room, within_s=5) == []
    assert place.leftovers() == []
    if not ended.began and ended.code in {-number, 1}:
        return  # Python was still being started
    assert ended.code == INTERRUPTED, ended
    if not (place.output / "results.json").exists():
        return
    results = documents.read_results(place.output / "results.json")
    assert results.run.state is RunState.PARTIAL
    assert [row.case.name for row in results.cases] == [case["name"] for case in INTERRUPTED_CASES]
    assert not list(place.output.glob("*.tmp"))
    capsys.readouterr()
    assert cli.main(["show", str(place.output / "results.json"), "--format", "comment"]) == 0
    assert "did not come to its end" in capsys.readouterr().out
