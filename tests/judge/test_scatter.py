"""Head's launches that scatter where base's don't: said, never called unchanged, and never said of unchanged code."""

from dataclasses import replace

import numpy as np
import pytest
from paired_builders import paired, pairs_of, simulate

from ci_bench.judge.times.suspicion import SCATTER_LEAST, wider_scatter
from ci_bench.records.comparison import Verdict
from ci_bench.records.config import Rule

ONE = np.ones(1, dtype=np.bool_)
SMALL = np.array([0.01, -0.02, 0.0, 0.015, -0.01, 0.02, -0.015, 0.005])


def ratio(base, head, gating=ONE):
    (found,) = wider_scatter(np.array([base], dtype=float), np.array([head], dtype=float), gating)
    return None if np.isnan(found) else float(found)


WIDE = np.array([0.4, -0.5, 0.3, -0.2, 0.6, -0.4, 0.1, -0.6])


@pytest.mark.parametrize("drift", [0.0, 0.01], ids=["steady", "drifting"])
def test_head_alone_scatters(drift) -> None:
    """The drift of a machine moves both sides, and is no scatter of head's."""
    both = drift * np.arange(8)
    assert ratio(SMALL + both, WIDE + both) > 9


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (SMALL, SMALL[::-1]),
        (WIDE, WIDE[::-1]),
        (WIDE, SMALL),
        (SMALL, 5 * SMALL / (SMALL.std() / (SCATTER_LEAST / 8))),
        (SMALL, np.where(np.arange(8) == 3, 0.9, SMALL[::-1])),
        (SMALL[:3], WIDE[:3]),
        (SMALL, np.full(8, np.nan)),
        (SMALL, SMALL + 0.5),
    ],
    ids=["alike", "both", "base", "little", "one_stray", "few", "none", "slower"],
)
def test_no_scatter_is_said(base, head) -> None:
    assert ratio(base, head) is None


def test_what_gates_nothing_is_no_scatter() -> None:
    assert ratio(SMALL, WIDE, ~ONE) is None


def scattered(head, factors):
    """Head's results with the step time of one arm of one case multiplied launch by launch."""
    case = head.cases[2]
    metrics = [
        replace(
            one,
            launches=tuple(
                replace(launch, values=tuple(value * factor for value in launch.values))
                for launch, factor in zip(one.launches, factors, strict=True)
            ),
        )
        if (one.name, one.arm) == ("step_time", "inductor")
        else one
        for one in case.metrics
    ]
    return replace(
        head, cases=(*head.cases[:2], replace(case, metrics=tuple(metrics)), *head.cases[3:])
    )


def test_scattering_launches_are_a_warning() -> None:
    """Symmetric in the logarithm, so that no mean says anything."""
    base, head = simulate(3, launches=8)
    comparison = paired(base, scattered(head, np.exp(0.5 * WIDE / WIDE.std())), calibration=None)
    pair = pairs_of(comparison)[2, "step_time", "inductor"]
    assert pair.verdict is Verdict.INCONCLUSIVE
    assert "head's launches scatter" in pair.reason
    assert "times as widely as base's" in pair.reason
    assert [one.rule for one in comparison.judgement.findings if one.case == "s/c2"] == [
        Rule.POSSIBLE
    ]


def test_scatter_never_hides_a_regression() -> None:
    base, head = simulate(3, launches=8)
    comparison = paired(
        base, scattered(head, 8 * np.exp(0.2 * WIDE / WIDE.std())), calibration=None
    )
    assert pairs_of(comparison)[2, "step_time", "inductor"].verdict in {
        Verdict.REGRESSED,
        Verdict.SUSPECTED,
    }
