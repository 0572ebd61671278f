"""From records to lines and alarms: hardware, software, partial runs, which commits, by which policy; and how it is told."""

import numpy as np
import pytest
from history_builders import H200, commit, points, whole

from ci_bench.history.alarms import alarms_of, issue_text, issue_title, told
from ci_bench.history.lines import lines_of
from ci_bench.history.points import chosen, joined, record_of
from ci_bench.records.config import Policy, Rule, Severity
from ci_bench.records.results import Better, Lane, Launch, Metric, Status, Unit

RNG = np.random.Generator(np.random.PCG64(1))
NEW_TORCH = {**H200, "torch": "2.14.0"}
STEPPED = (
    0.01 * np.exp(0.003 * RNG.standard_normal(60)) * np.where(np.arange(60) < 50, 1.0, 1.05)
).tolist()


def lines(history, least=0.01):
    return lines_of(history, least=lambda _: least)


def test_a_line_goes_on_when_the_software_changes_and_says_so():
    (line,) = lines(whole(STEPPED, identities=(H200, NEW_TORCH), machines=[0] * 50 + [1] * 10))
    assert len(line.runs) == 60
    assert [(change.place, change.differences) for change in line.changes] == [
        (50, ("torch: 2.13.0 → 2.14.0",))
    ]
    (alarm,) = alarms_of([line], Policy())
    assert line.environment_of(alarm.move) == ("torch: 2.13.0 → 2.14.0",)
    assert "with a change of the environment: torch: 2.13.0 → 2.14.0" in told(
        [alarm], lines=1, runs=60
    )


def test_other_hardware_is_another_line():
    found = lines(
        whole(STEPPED, identities=(H200, {**H200, "gpu": "NVIDIA L4"}), machines=[0, 1] * 30)
    )
    assert sorted((line.hardware.partition(" (")[0], len(line.runs)) for line in found) == [
        ("NVIDIA H200", 30),
        ("NVIDIA L4", 30),
    ]


def test_partial_and_dirty_runs_are_left_out():
    from dataclasses import replace

    history = whole([0.01] * 10)
    runs = tuple(
        replace(run, partial=index == 3, dirty=index == 5) for index, run in enumerate(history.runs)
    )
    (line,) = lines(replace(history, runs=runs))
    assert [run.id for run in line.runs] == [
        f"run-{index}" for index in range(10) if index not in {3, 5}
    ]


def test_an_alarm_names_the_commits_that_it_lies_between():
    (alarm,) = alarms_of(lines(whole(STEPPED)), Policy())
    assert alarm.commits == (commit(49), commit(50))
    assert alarm.where == f"after {commit(49)[:12]}, up to {commit(50)[:12]}"
    assert alarm.text.startswith("fake/one step time (eager): 4.9 % slower")


DRIFTED = (
    0.01 * 1.003 ** np.clip(np.arange(80) - 20, 0, 40) * np.exp(0.002 * RNG.standard_normal(80))
).tolist()


def test_a_drift_is_told_with_its_pace_and_its_ends_and_blames_no_single_commit():
    (line,) = lines(whole(DRIFTED))
    (alarm,) = alarms_of([line], Policy())
    (move,) = line.trend.moves
    assert alarm.commits == (commit(move.place - 1), commit(move.until))
    assert (move.place, move.until) == (pytest.approx(21, abs=3), pytest.approx(60, abs=3))
    assert f"slower, drifting 0.3 % a run over {move.runs} runs, " in alarm.text.replace(
        "0.29 %", "0.3 %"
    ).replace("0.31 %", "0.3 %")
    assert (
        alarm.where
        == f"little by little after {commit(move.place - 1)[:12]}, up to {commit(move.until)[:12]}"
    )
    text = told([alarm], lines=1, runs=80)
    assert "drifting" in text
    assert "little by little" in text
    assert "drifting" in issue_text([alarm])
    (stepped,) = alarms_of(lines(whole(STEPPED)), Policy())
    assert "drift" not in stepped.text + stepped.where


def test_people_read_a_metrics_title_and_keys_hold_its_name():
    (line,) = lines(whole(STEPPED))
    assert (line.name, line.called) == ("fake/one step_time (eager)", "fake/one step time (eager)")
    (own,) = lines_of(
        whole(STEPPED), least=lambda _: 0.01, title={"step_time": "one pass"}.__getitem__
    )
    assert own.called == "fake/one one pass (eager)"
    (alarm,) = alarms_of([own], Policy())
    assert alarm.text.startswith("fake/one one pass (eager): ")
    assert "--metric step_time" in issue_text([alarm])


def test_the_policy_says_how_grave_it_is():
    policy = Policy(severities={Rule.REGRESSED: Severity.WARN})
    assert [alarm.severity for alarm in alarms_of(lines(whole(STEPPED)), policy)] == [Severity.WARN]
    assert [alarm.severity for alarm in alarms_of(lines(whole(STEPPED)), Policy())] == [
        Severity.FAIL
    ]
    assert alarms_of(lines(whole(STEPPED[::-1])), Policy()) == (), "what got better is no alarm"


def test_the_issue_says_range_command_and_last_word():
    alarms = alarms_of(lines(whole(STEPPED)), Policy())
    body = issue_text(
        alarms,
        page_url="https://example.org/trend",
        run_url="https://github.com/o/r/actions/runs/1",
    )
    assert (
        f"ci-bench history bisect {commit(49)} {commit(50)} --filter 'fake/one' --metric step_time"
        in body
    )
    assert "https://github.com/o/r/actions/runs/49" in body
    assert issue_title(alarms).startswith("Trend: fake/one step time (eager): 4.9 % slower")
    assert "has recovered" in issue_text(())


def test_a_strangers_words_do_no_harm_in_the_issue():
    evil = {**H200, "torch": "@everyone <img src=x> [x](http://evil)\n# title"}
    alarms = alarms_of(
        lines(whole(STEPPED, identities=(H200, evil), machines=[0] * 50 + [1] * 10)), Policy()
    )
    body = issue_text(alarms)
    assert "\n# title" not in body
    assert "`torch:" in body.replace("``", "`")


# Records


def results(*metrics, status=Status.OK, **run):
    from dataclasses import replace

    from records_builders import RESULTS

    row = replace(RESULTS.cases[0], status=status, metrics=tuple(metrics), failure=None)
    return replace(RESULTS, cases=(row,), run=replace(RESULTS.run, **run))


def metric(*launches, unit=Unit.SECONDS):
    arm = "eager"
    taken = tuple(
        Launch(launch=index, values=tuple(values)) for index, values in enumerate(launches)
    )
    return Metric(
        name="step_time", arm=arm, unit=unit, better=Better.LOWER, lane=Lane.WALL, launches=taken
    )


def test_a_time_is_the_mean_over_launches_of_the_logarithms():
    (series,) = record_of(results(metric([0.01, 0.01], [0.04, 0.04]))).series
    assert series.values == (pytest.approx(0.02),)
    assert series.errors == (pytest.approx(np.log(4) / 2, rel=0.02),)
    (single,) = record_of(results(metric([0.01, 0.03]))).series
    assert single.errors == (None,)


def test_a_count_is_its_plain_mean_and_zero_is_allowed():
    (series,) = record_of(results(metric([0.0], [4.0], unit=Unit.COUNT))).series
    assert series.values == (2.0,)


@pytest.mark.parametrize("values", [[0.0, 0.1], [float("inf")], [-1.0], []])
def test_what_cannot_be_a_time_is_left_out(values):
    assert record_of(results(metric(values))).series == ()


def test_a_case_that_failed_is_counted_and_not_kept():
    record = record_of(results(metric([0.01]), status=Status.FAILED))
    assert (record.series, record.runs[0].failed) == ((), 1)


def test_parts_are_joined_by_time_and_parted_again():
    history = whole([0.01, 0.02, 0.03])
    parts = [chosen(history, [2]), chosen(history, [0, 1]), chosen(history, [1])]
    assert joined(parts, tool_version="1.0") == history
    assert chosen(history, [1]).series == (points("fake/one", [0], [0.02]),)


def test_a_change_of_the_environment_keeps_the_part_that_differs():
    folder = "/opt/checkouts/" + "folder/" * 12
    identities = [{**H200, "path": f"{folder}{name}", "short": name} for name in ("one", "two")]
    (line,) = lines_of(
        whole([1.0, 1.0], identities=identities, machines=[0, 1]), least=lambda _: 0.01
    )
    assert line.changes[0].differences == ("path: …/folder/one → …/folder/two", "short: one → two")


def test_hardware_is_in_words_and_to_the_byte():
    (line,) = lines_of(
        whole([1.0, 1.0], identities=({**H200, "gpu_memory_bytes": 150_754_820_096},)),
        least=lambda _: 0.01,
    )
    assert "gpu memory 140 GiB" in line.hardware
    assert "gpu_memory_bytes=150754820096" in line.machine
