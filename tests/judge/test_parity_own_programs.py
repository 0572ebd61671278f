"""Losses that a program of the user's wrote: without norms, with few decimals, in an envelope of its own runs."""

from dataclasses import replace

import pytest

from ci_bench.judge.parity import learning_of, numeric_finding
from ci_bench.judge.parity_runs import signals_of
from ci_bench.records.results import Case, CaseResult, Masks, ParityEvidence, Role, Status, Trace

STEPS = 20
LOSSES = tuple(2.5 - 0.0173123456789 * step for step in range(STEPS))


def trace(role, losses=LOSSES, *, start="as_it_is", norms=()):
    return Trace(arm="a", role=role, seed=0, loss=tuple(losses), grad_norm=tuple(norms), start=start, data="own")


def moved(by, first=0):
    return [loss + (by if step >= first else 0) for step, loss in enumerate(LOSSES)]


def evidence(*runs, reference=LOSSES):
    traces = (
        trace(Role.REFERENCE, reference),
        *(trace(Role.PERTURBED, losses, start=f"rounding_{i}") for i, losses in enumerate(runs)),
    )
    return ParityEvidence(
        precision="own", epsilon=0.0, steps_per_epoch=STEPS, evaluation_rows=0, masks=(), traces=traces, own_program=True
    )


def finding(losses, *runs, reference=LOSSES, norms=()):
    return numeric_finding(evidence(*runs, reference=reference), trace(Role.CANDIDATE, losses, norms=norms), Masks.ALIGNED)


def test_losses_alone_are_enough_where_nobody_tells_norms() -> None:
    assert str(finding(LOSSES).verdict) == "bitwise"
    assert str(finding(moved(3e-6), moved(1e-6)).verdict) == "numeric_parity"
    apart = finding(moved(1e-3, first=7), moved(1e-6))
    assert (str(apart.verdict), apart.signal, apart.first_step) == ("different_math", "loss", 7)
    assert signals_of(trace(Role.CANDIDATE), trace(Role.CANDIDATE, norms=LOSSES)) == ("loss",)


def test_one_side_that_hides_its_norms_is_no_pass() -> None:
    both = evidence(moved(1e-6))
    normed = ParityEvidence(**{name: getattr(both, name) for name in both.__slots__} | {
        "traces": tuple(trace(one.role, one.loss, start=one.start, norms=one.loss) for one in both.traces)
    })  # fmt: skip
    for hidden in (finding(LOSSES, moved(1e-6), norms=LOSSES), numeric_finding(normed, trace(Role.CANDIDATE), Masks.ALIGNED)):
        assert str(hidden.verdict) == "insufficient_data"
        assert "has gradient norms: both must have them" in hidden.detail


def rounded(losses, decimals):
    return tuple(round(loss, decimals) for loss in losses)


@pytest.mark.parametrize("decimals", [3, 4])
def test_the_last_decimal_of_a_log_is_no_difference_and_two_of_them_are(decimals) -> None:
    written, quiet = rounded(LOSSES, decimals), rounded(moved(0), decimals)
    digit = 10.0**-decimals
    shaken = (*quiet[:-1], quiet[-1] + digit)  # it came apart in the very last step, which widens nothing before
    assert finding(rounded(moved(digit), decimals), shaken, reference=written).verdict.holds
    two = finding(rounded(moved(2.0001 * digit), decimals), shaken, reference=written)
    assert str(two.verdict) == "different_math"


def test_runs_that_repeat_every_bit_tell_nothing_of_rounding() -> None:
    found = finding(moved(1e-5), LOSSES, LOSSES)
    assert str(found.verdict) == "insufficient_data"
    assert "2 runs in other environments repeated every bit" in found.detail


def test_a_log_of_few_decimals_may_be_the_same_in_another_rounding_and_is_not_by_chance_in_another_run() -> None:
    """In the first case one decimal is rounding's, and two are not; the second says nothing of rounding at all."""
    written = rounded(LOSSES, 4)
    assert finding(rounded(moved(1e-4), 4), written, reference=written).verdict.holds
    assert str(finding(rounded(moved(3e-4, first=5), 4), written, reference=written).verdict) == "different_math"
    again = evidence(written, reference=written)
    again = replace(again, traces=(again.traces[0], replace(again.traces[1], start="again_0")))
    found = numeric_finding(again, trace(Role.CANDIDATE, rounded(moved(3e-4), 4)), Masks.ALIGNED)
    assert str(found.verdict) == "insufficient_data"


def test_a_run_that_starts_further_off_than_rounding_is_of_another_seed_and_widens_nothing() -> None:
    found = finding(moved(0.05), moved(0.1), moved(1e-6))
    assert str(found.verdict) == "insufficient_data"
    assert "run again, its first loss is 4 % off; have it set its seeds" in found.detail


def test_head_is_held_against_base_in_bases_envelope_alone() -> None:
    case = Case(id="command/t", suite="command", name="t", params={}, arms=("a",), reference="a")

    def row(parity):
        return CaseResult(case=case, status=Status.OK, reproduce="again", parity=parity)

    wide = evidence(moved(0.009, first=1), reference=moved(1e-3, first=1))
    assert str(learning_of(row(evidence(moved(1e-6))), row(wide)).verdict) == "different_math"
    assert learning_of(row(wide), row(evidence(moved(1e-6)))).verdict.holds


def test_weights_that_nobody_perturbed_are_no_envelope_unless_the_program_is_the_users() -> None:
    """A suite that perturbs by nothing has measured no rounding; that is no word on whose program it is."""
    own = evidence(moved(1e-6))
    assert str(numeric_finding(own, trace(Role.CANDIDATE, moved(3e-6)), Masks.ALIGNED).verdict) == "numeric_parity"
    of_a_suite = replace(own, own_program=False)
    finding = numeric_finding(of_a_suite, trace(Role.CANDIDATE, moved(3e-6)), Masks.ALIGNED)
    assert str(finding.verdict) == "insufficient_data"
    assert "there is no usable perturbed run" in finding.detail
    perturbed = replace(of_a_suite, epsilon=1e-6)
    assert str(numeric_finding(perturbed, trace(Role.CANDIDATE, moved(3e-6)), Masks.ALIGNED).verdict) == "numeric_parity"
