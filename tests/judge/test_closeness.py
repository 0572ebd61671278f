"""The figures that are drawn are those that parity is judged by."""

import math

import pytest
from test_parity import bent, candidate, evidence, numeric, trace

from ci_bench.judge.parity.verdict import closeness, parity_findings
from ci_bench.records.results import Role


@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
@pytest.mark.parametrize(
    "run",
    [candidate(), candidate(scale=1 + 12e-6), bent(17, 1.01), bent(17, 1.01, signal="grad_norm")],
)
def test_the_worst_score_and_the_first_step_are_the_judges(run, signal: str) -> None:
    found = next(one for one in closeness(numeric(run)) if one.signal == signal)
    (finding,) = parity_findings(numeric(run))
    judged = {"loss": finding.loss_score, "grad_norm": finding.grad_norm_score}[signal]
    assert max(found.scores[: finding.steps]) == pytest.approx(judged)
    if finding.signal == signal:
        assert (
            next(step for step, score in enumerate(found.scores) if score > found.limit)
            == finding.first_step
        )


def test_the_bounds_are_where_parity_ends() -> None:
    run = bent(17, 1.01)
    found = closeness(numeric(run))
    for one in found:
        values = getattr(run, one.signal)
        beyond = [
            not low <= value <= high
            for low, value, high in zip(one.low, values, one.high, strict=False)
        ]
        assert beyond == [score > one.limit for score in one.scores]
        assert all(map(math.isfinite, (*one.low, *one.high)))


def test_the_bounds_are_ten_envelopes_either_way() -> None:
    flat = [1.0] * 20
    runs = [
        trace(Role.REFERENCE, loss=flat, grad_norm=flat),
        trace(Role.PERTURBED, loss=[1.25] * 20, grad_norm=[math.exp(0.25)] * 20, start="elsewhere"),
        candidate(loss=flat, grad_norm=flat),
    ]
    loss, norm = closeness(evidence(*runs))
    assert (loss.low[0], loss.high[0]) == pytest.approx((1 - 2.5, 1 + 2.5))
    assert (norm.low[0], norm.high[0]) == pytest.approx((math.exp(-2.5), math.exp(2.5)))


def test_bounds_beyond_any_number_are_still_finite() -> None:
    wild = trace(Role.PERTURBED, loss=[1e99] * 20, grad_norm=[1e99] * 20, start="elsewhere")
    flat = {"loss": [1.0] * 20, "grad_norm": [1.0] * 20}
    loss, norm = closeness(evidence(trace(Role.REFERENCE, **flat), wild, candidate(**flat)))
    assert all(map(math.isfinite, (*loss.low, *loss.high, *norm.low, *norm.high)))
    assert norm.high[0] > 1e99, "what rounding did lies inside"


def test_runs_that_may_not_be_compared_have_no_figures() -> None:
    assert closeness(evidence(trace(Role.REFERENCE), candidate())) == (), (
        "without a perturbed run there is no envelope"
    )
    assert closeness(evidence(candidate())) == ()
