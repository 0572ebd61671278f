"""The simulation of several devices: what its published table says holds at a small size."""

from benchmarks.fleet_quality import Scene, score

from ci_bench.records.config import DEFAULT_THRESHOLD


def test_devices_that_differ_on_one_side_fool_a_rule_that_does_not_know_them() -> None:
    told, blind = score(Scene(cases=20), runs=50, seed=5, sizes=(DEFAULT_THRESHOLD,))
    assert (told.told, blind.told) == (True, False)
    assert blind.false_alarms > 3 * max(1, told.false_alarms)


def test_devices_that_differ_on_both_sides_alike_cost_nothing() -> None:
    told, _ = score(Scene(cases=20), runs=50, seed=5, sizes=(0.0,))
    assert told.false_alarms == 0
    assert told.found_5 > 0.95
