"""An interrupt at any moment: what was measured is on disk and valid, the report says partial, and nothing is left running."""

import signal
import time

import pytest
from processes import carrying

from ci_bench import cli
from ci_bench.errors import ExitCode
from ci_bench.records import documents
from ci_bench.records.results import RunState

MOMENTS_S = (0.3, 0.8, 1.3, 1.8, 2.5)
CASES = [{"name": f"case_{index}", "stages": ["prepare", "verify", "time"]} for index in range(6)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_an_interrupt_at_any_moment_loses_nothing(place, capsys, number, moment_s):
    place.configure(*CASES, launches=2)
    room = f"interrupt-{time.monotonic_ns()}"
    run = place.start("run", "--output", place.output, FAKE_STEP_S="0.02", FAKE_ROOM=room)
    time.sleep(moment_s)
    run.send_signal(number)
    _, err = run.communicate(timeout=60)
    assert carrying(room, within_s=5) == []
    assert place.leftovers() == []
    if not (place.output / "results.json").exists():
        assert run.returncode in {ExitCode.INTERRUPTED, -number, 1}, err  # it was still being started
        return
    results = documents.read_results(place.output / "results.json")
    partial = run.returncode == ExitCode.INTERRUPTED
    assert partial or run.returncode == 0, err
    assert results.run.state is (RunState.PARTIAL if partial else RunState.COMPLETE)
    assert [row.case.name for row in results.cases] == [case["name"] for case in CASES]
    assert not list(place.output.glob("*.tmp"))
    capsys.readouterr()
    assert cli.main(["report", str(place.output / "results.json")]) == 0
    assert ("did not come to its end" in capsys.readouterr().out) is partial
