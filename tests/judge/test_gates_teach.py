"""What gates of trusted code teach about a machine's noise: their first launches, faded, and never less than a calibration."""

from dataclasses import replace

import numpy as np
import pytest
from judge_builders import result
from paired_builders import NOW, calibrated, paired, pairs_of, simulate

from ci_bench.judge.times.audit import audit
from ci_bench.judge.times.calibration import collect, collect_gate, describe, learned, merge
from ci_bench.judge.times.noise import fading
from ci_bench.records.calibration import Calibration, PastRun, PastSeries
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy
from ci_bench.records.documents import Kind, to_json, validate
from ci_bench.records.results import RunState, Status

NAME = ("s/c0", "step_time", "eager")


def gate(number, *, seed=0, **options):
    """What one gate teaches, at one day; its comparison is that of a machine that nobody knows."""
    base, head = simulate(
        seed + number,
        run={"id": f"gate-{number}", "started_at": f"2026-01-{number + 1:02}T06:00:00Z"},
        **options,
    )
    return collect_gate(base, head, paired(base, head))


def history(*ratios, gates=True):
    """One series with a launch a day."""
    runs = tuple(
        PastRun(id=f"r{at}", at=f"2026-01-{at + 1:02}T00:00:00Z", gate=gates)
        for at in range(len(ratios))
    )
    series = PastSeries(
        case=NAME[0],
        metric=NAME[1],
        arm=NAME[2],
        ratios=ratios,
        within=(0.01,) * len(ratios),
        runs=tuple(range(len(ratios))),
    )
    return Calibration(
        tool_version="1", fingerprint=f"sha256:{'0' * 64}", identity={}, runs=runs, series=(series,)
    )


def spread(calibration, now=NOW):
    return float(learned(calibration, [NAME], now=now).spread[0])


def test_the_first_launch_is_kept_and_no_other():
    """Those of the calibration of the same documents, which keeps all, are the same figures."""
    base, head = simulate(1, launches=4)
    taught, whole = (
        collect_gate(base, head, paired(base, head)),
        collect(base, head, tool_version="1"),
    )
    assert {(one.case, one.metric, one.arm): one.ratios for one in taught.series} == {
        (one.case, one.metric, one.arm): one.ratios[:1] for one in whole.series
    }
    assert [run.gate for run in taught.runs] == [True]
    assert validate(to_json(taught), Kind.CALIBRATION) == ()


def test_what_is_certainly_changed_is_no_noise_and_what_is_open_stays():
    slower = {(2, "step_time", "inductor"): 1.2}
    certain, left_open = (
        simulate(3, cases=3, launches=launches, slower=slower) for launches in (6, 1)
    )
    comparisons = [paired(*both) for both in (certain, left_open)]
    verdicts = [pairs_of(one)[2, "step_time", "inductor"].verdict for one in comparisons]
    assert verdicts == [Verdict.REGRESSED, Verdict.INCONCLUSIVE]
    kept = [
        {(one.case, one.metric, one.arm) for one in collect_gate(*both, one).series}
        for both, one in zip((certain, left_open), comparisons, strict=True)
    ]
    assert kept[1] - kept[0] == {("s/c2", "step_time", "inductor")}


def test_a_run_that_was_cut_off_another_machine_and_a_case_that_failed_teach_nothing():
    base, head = simulate(1, cases=1)
    comparison = paired(base, head)
    assert collect_gate(base, head, comparison) is not None
    assert (
        collect_gate(base, replace(head, run=replace(head.run, state=RunState.PARTIAL)), comparison)
        is None
    )
    other = replace(base, environment=replace(base.environment, identity={"gpu": "L4"}))
    assert collect_gate(other, head, comparison) is None
    failed = result(
        *head.cases[0].metrics, id="s/c0", arms=("eager", "inductor"), status=Status.FAILED
    )
    broken = replace(head, cases=(failed,))
    assert collect_gate(base, broken, paired(base, broken)) is None


def test_gates_count_less_with_each_later_one():
    ratios = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
    taught = learned(history(*ratios), [NAME], now="2026-01-06T00:00:00Z")
    weights = fading(np.arange(6.0)[::-1]) * 2 ** (-np.arange(6.0)[::-1] / 30)
    assert taught.spread[0] == pytest.approx(
        np.sqrt(np.average(np.square(ratios), weights=weights))
    )
    assert taught.freedom[0] == pytest.approx(weights.sum() ** 2 / np.square(weights).sum())
    unfaded = learned(history(*ratios, gates=False), [NAME], now="2026-01-06T00:00:00Z")
    assert unfaded.spread[0] < taught.spread[0]


def test_quiet_gates_make_no_machine_quieter_than_its_calibration_and_noisy_ones_make_it_noisier():
    def with_gates(ratio):
        gates = history(*[ratio] * 20)
        runs = tuple(
            replace(run, id=f"aa-{at}", gate=False) if at < 10 else run
            for at, run in enumerate(gates.runs)
        )
        ratios = tuple(0.01 if at < 10 else ratio for at in range(20))
        return replace(gates, runs=runs, series=(replace(gates.series[0], ratios=ratios),))

    assert spread(with_gates(0.001)) == pytest.approx(0.01)
    assert spread(with_gates(0.03)) > 0.015


@pytest.mark.parametrize("before", [6, 12, 24])
def test_a_machine_that_becomes_noisier_is_noticed_within_three_gates(before):
    """By the weights alone, whatever the samples say: three launches three times as far off raise what is used by a third."""
    quiet = [0.005 * (-1) ** at for at in range(before)]
    noisy = [0.015 * (-1) ** at for at in range(3)]
    assert spread(history(*quiet, *noisy)) > 4 / 3 * spread(history(*quiet))


def test_gates_alone_are_a_history_after_enough_of_them_and_are_told_by_name():
    known = None
    for number in range(8):
        known = merge(known, gate(number, seed=500, cases=2))
    base, head = simulate(77, cases=2)
    usable, told = describe(known, head.environment.identity)
    assert (usable, told) == (known, "the first launches of 8 gates, the last of 2026-01-08")
    assert {
        pair.calibrated for pair in pairs_of(paired(base, head, calibration=known)).values()
    } == {True}
    few = merge(gate(0, seed=500, cases=2), gate(1, seed=500, cases=2))
    assert {pair.calibrated for pair in pairs_of(paired(base, head, calibration=few)).values()} == {
        False
    }
    both = merge(calibrated(runs=2, cases=2), known)
    assert describe(both, head.environment.identity)[1].startswith(
        "2 runs of unchanged code against itself and the first launches of 8 "
    )


def test_the_audit_of_a_calibration_judges_no_gate():
    known = merge(calibrated(runs=3, cases=2), gate(5, seed=500, cases=2))
    assert (len(known.runs), audit(known, policy=Policy()).runs) == (4, 3)


def test_the_same_gate_teaches_once():
    assert merge(gate(1), gate(1)) == gate(1)
