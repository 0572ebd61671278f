"""A case may ask for a smaller threshold of its times than the policy's, and for no larger one."""

import pytest
from judge_builders import count, judged, metric, result, results, sampled

from ci_bench.records.comparison import BaselineMode
from ci_bench.records.config import Policy


def thresholds(*, base, head):
    """Those of a time and of a count, where base's case and head's ask for these."""
    sides = [
        results(result(metric(sampled(0.1)), count(3, name="breaks", arm="eager"), threshold=asked))
        for asked in (base, head)
    ]
    comparison = judged(
        sides[1], base=sides[0], mode=BaselineMode.FILE, policy=Policy(default_threshold=0.05)
    )
    return {pair.metric: pair.threshold for case in comparison.cases for pair in case.pairs}


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (None, None, 0.05),
        (None, 0.02, 0.02),
        (0.02, None, 0.02),
        (0.02, 0.5, 0.02),
        (0.5, 0.5, 0.05),
    ],
)
def test_the_least_of_policy_and_both_sides_counts_and_for_times_alone(
    base, head, expected
) -> None:
    assert thresholds(base=base, head=head) == {"step_time": expected, "breaks": 0.05}
