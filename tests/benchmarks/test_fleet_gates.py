"""The table of gates over three devices, and how far apart the devices were, by documents of a merge."""

import math
from dataclasses import replace

import pytest
from benchmarks.fleet_gates import SPEEDS, apart, is_next_planted, table
from paired_builders import simulate

from ci_bench.fleet.merging import RunPair, merge

QUIET = {
    "planted": False,
    "cases": 2,
    "exit_code": 0,
    "verdicts": {"a": "unchanged", "b": "unchanged"},
    "launches": 4,
    "leases": {"1": 2, "2": 1, "3": 1},
    "losses": 0,
    "apart": [0.02, -0.02],
    "seconds": 9.0,
}


def test_leases_and_losses_are_those_of_the_rows_gates():
    slower = {
        **QUIET,
        "planted": True,
        "exit_code": 1,
        "verdicts": dict.fromkeys("ab", "regressed"),
        "losses": 1,
        "apart": [None, -0.02],
    }
    lines = [
        line
        for line in table([QUIET, slower, {**QUIET, "apart": [0.04, None]}]).splitlines()
        if line.startswith(("| unchanged", "| +5 %"))
    ]
    same, planted = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert same[-3:] == ["8", "0", "+3.0%, -2.0%"]
    assert planted[-3:] == ["4", "1", "unknown, -2.0%"]
    assert same[2].startswith("0 of 2")
    assert planted[3].startswith("2 of 2")


def test_kinds_are_in_turns_and_what_is_missing_of_one_comes_first():
    slower = {**QUIET, "planted": True}
    assert [
        is_next_planted(gates) for gates in ([], [QUIET], [QUIET, slower], [QUIET, QUIET, slower])
    ] == [
        False,
        True,
        False,
        True,
    ]


def slowed(row, factor):
    return replace(
        row,
        metrics=tuple(
            replace(
                metric,
                launches=tuple(
                    replace(each, values=tuple(factor * value for value in each.values))
                    for each in metric.launches
                ),
            )
            for metric in row.metrics
        ),
    )


def test_what_devices_differ_by_is_read_from_base():
    pairs = []
    for slot, factor in enumerate(SPEEDS):
        sides = [
            replace(
                side,
                run=replace(
                    side.run,
                    id=f"r{slot}",
                    started_at=f"2026-02-01T00:00:0{slot}Z",
                    config_digest="c",
                ),
                source=replace(side.source, commit="0" * 40, dirty=False),
                environment=replace(side.environment, condition={"gpu_uuid": f"GPU-{1 + slot}"}),
                cases=tuple(slowed(row, factor) for row in side.cases),
            )
            for side in simulate(0, cases=3, launches=1)
        ]
        pairs.append(RunPair(name=f"{slot}", head=sides[1], base=sides[0]))
    merged = merge(pairs)
    assert apart(merged.base) == pytest.approx([math.log(factor) for factor in SPEEDS[1:]])
    assert apart(merge([pairs[0], pairs[2]]).base) == pytest.approx([None, math.log(SPEEDS[2])])
    assert apart(pairs[0].base) == [None, None], "one device alone"
