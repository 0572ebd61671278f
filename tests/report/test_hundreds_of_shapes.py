"""504 shapes of one operator by two providers, from raw samples through judge and report: nothing where nothing changed, and twelve
that became 4 % slower are one group by name. How often anything is falsely called: benchmarks/verdict_quality.py with `--cases`.
"""

from dataclasses import replace
from itertools import product

import pytest
from paired_builders import paired, simulate

from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Policy
from ci_bench.report.groups import groups
from ci_bench.report.markdown import render_comment

GRID = tuple(
    product(
        ("bf16", "fp16", "fp32", "fp64", "int8", "fp8e4m3", "fp8e5m2"),
        (16, 32, 64, 96, 128, 256),
        range(12),
    )
)
PLANTED = [place for place, (dtype, head, _) in enumerate(GRID) if (dtype, head) == ("bf16", 128)]
ARMS = ("torch", "mine")


def named(results):
    """The same under the ids of a grid."""
    rows = (
        replace(
            row,
            case=replace(
                row.case,
                id=f"functions/attention[dtype={dtype},head={head},shape={2 ** (4 + shape)}]",
            ),
        )
        for row, (dtype, head, shape) in zip(results.cases, GRID, strict=True)
    )
    return replace(results, cases=tuple(rows))


@pytest.fixture(scope="module")
def gates():
    """A gate of unchanged code, and one where a provider is 4 % slower in twelve cases."""
    slower = {(place, "step_time", "mine"): 1.04 for place in PLANTED}
    options = {
        "cases": len(GRID),
        "arms": ARMS,
        "blocks": 4,
        "launches": 8,
        "singles": False,
        "noise": 0.5,
    }
    policy = Policy(thresholds={"step_time": 0.02})
    return {
        name: paired(*map(named, simulate(seed, slower=planted, **options)), policy=policy)
        for name, seed, planted in (("unchanged", 1, {}), ("slower", 2, slower))
    }


def test_twelve_of_504_shapes_that_became_slower_are_one_group(gates):
    comparison = gates["slower"]
    (group,) = groups(comparison)
    assert (group.conditions, group.arm, len(group.pairs), group.size) == (
        (("dtype", "bf16"), ("head", "128")),
        "mine",
        12,
        12,
    )
    assert "| `attention[dtype=bf16,head=128]` | step time (`mine`) |" in render_comment(comparison)
    assert comparison.judgement.exit_code == 1


def test_nothing_of_504_unchanged_shapes_is_called(gates):
    comparison = gates["unchanged"]
    called = {pair.verdict for case in comparison.cases for pair in case.pairs}
    assert not called & {Verdict.REGRESSED, Verdict.SUSPECTED}
    assert groups(comparison) == ()
    assert comparison.judgement.exit_code == 0
