"""Model FLOPs utilisation stands beside the throughput of a step, where operations and peak are known, and is nowhere else."""

import pytest
from report_builders import case, comparison, pair

from ci_bench.report.markdown import render_report
from ci_bench.report.text import NO_BREAK_SPACE

FACTS = {"model_flops_per_step": 3e12, "peak_flops_per_s": 300e12}


def told(facts, **fields):
    text = render_report(
        comparison(case(facts=facts, pairs=(pair(head=0.1, **fields),)), headline="x")
    )
    return (
        text.replace(NO_BREAK_SPACE, " ")
        .partition("<summary>All metrics")[2]
        .partition("</details>")[0]
    )


def test_operations_per_second_of_the_step_are_a_share_of_the_peak():
    """By hand: 3e12 operations in 0.1 s are 3e13 per second, a tenth of 3e14. Of base nothing is said: the facts are head's."""
    shown = told(FACTS)
    assert shown.count("of peak") == 1
    assert "100 ms (160 /s, 10 % of peak)" in shown


@pytest.mark.parametrize("facts", [
    {}, {**FACTS, "peak_flops_per_s": None}, {**FACTS, "peak_flops_per_s": 0}, {**FACTS, "model_flops_per_step": "many"}, {**FACTS, "model_flops_per_step": 1e300},
    {"model_flops_per_step": 3e12},
])  # fmt: skip
def test_what_is_not_known_is_not_told(facts):
    assert "of peak" not in told(facts)


def test_parts_of_a_step_have_no_utilisation():
    assert "of peak" not in told(FACTS, metric="forward_time")


def test_what_a_call_of_no_counted_items_moves_and_does_is_told_per_second():
    shown = told({**FACTS, "bytes_per_step": 2e11}, items=None)
    assert "100 ms (2.00 TB/s, 30.0 TFLOP/s, 10 % of peak)" in shown
    assert "160 /s" in told({**FACTS, "bytes_per_step": 2e11})
    assert "TB/s" not in told({**FACTS, "bytes_per_step": 2e11})
    assert "B/s" not in told({"bytes_per_step": "many"}, items=None)
