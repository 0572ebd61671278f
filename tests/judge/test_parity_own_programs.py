"""Losses that a program of the user's wrote: without norms, with few decimals, in an envelope of its own runs."""

from dataclasses import replace

import numpy as np
import pytest

from ci_bench.judge.parity.envelope import envelope, scaled
from ci_bench.judge.parity.runs import signals_of
from ci_bench.judge.parity.verdict import learning_of, numeric_finding
from ci_bench.records.results import Case, CaseResult, Masks, ParityEvidence, Role, Status, Trace

STEPS = 20
LOSSES = tuple(2.5 - 0.0173123456789 * step for step in range(STEPS))


def trace(role, losses=LOSSES, *, start="as_it_is", norms=()):
    return Trace(
        arm="a",
        role=role,
        seed=0,
        loss=tuple(losses),
        grad_norm=tuple(norms),
        start=start,
        data="own",
    )


def moved(by, first=0):
    return [loss + (by if step >= first else 0) for step, loss in enumerate(LOSSES)]


def evidence(*runs, reference=LOSSES):
    traces = (
        trace(Role.REFERENCE, reference),
        *(trace(Role.PERTURBED, losses, start=f"rounding_{i}") for i, losses in enumerate(runs)),
    )
    return ParityEvidence(
        precision="own",
        epsilon=0.0,
        steps_per_epoch=STEPS,
        evaluation_rows=0,
        masks=(),
        traces=traces,
        own_program=True,
    )


def finding(losses, *runs, reference=LOSSES, norms=()):
    return numeric_finding(
        evidence(*runs, reference=reference),
        trace(Role.CANDIDATE, losses, norms=norms),
        Masks.ALIGNED,
    )


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
    for hidden in (
        finding(LOSSES, moved(1e-6), norms=LOSSES),
        numeric_finding(normed, trace(Role.CANDIDATE), Masks.ALIGNED),
    ):
        assert str(hidden.verdict) == "insufficient_data"
        assert "has gradient norms: both must have them" in hidden.detail


def rounded(losses, decimals):
    return tuple(round(loss, decimals) for loss in losses)


@pytest.mark.parametrize("decimals", [3, 4])
def test_the_last_decimal_of_a_log_is_no_difference_and_two_of_them_are(decimals) -> None:
    written, quiet = rounded(LOSSES, decimals), rounded(moved(0), decimals)
    digit = 10.0**-decimals
    shaken = (
        *quiet[:-1],
        quiet[-1] + digit,
    )  # it came apart in the very last step, which widens nothing before
    assert finding(rounded(moved(digit), decimals), shaken, reference=written).verdict.holds
    two = finding(rounded(moved(2.0001 * digit), decimals), shaken, reference=written)
    assert str(two.verdict) == "different_math"


def test_runs_that_repeat_every_bit_tell_nothing_of_rounding() -> None:
    found = finding(moved(1e-5), LOSSES, LOSSES)
    assert str(found.verdict) == "insufficient_data"
    assert "2 runs in other environments repeated every bit" in found.detail


def test_a_log_of_few_decimals_may_be_the_same_in_another_rounding_and_is_not_by_chance_in_another_run() -> (
    None
):
    """In the first case one decimal is rounding's, and two are not; the second says nothing of rounding at all."""
    written = rounded(LOSSES, 4)
    assert finding(rounded(moved(1e-4), 4), written, reference=written).verdict.holds
    assert (
        str(finding(rounded(moved(3e-4, first=5), 4), written, reference=written).verdict)
        == "different_math"
    )
    again = evidence(written, reference=written)
    again = replace(again, traces=(again.traces[0], replace(again.traces[1], start="again_0")))
    found = numeric_finding(again, trace(Role.CANDIDATE, rounded(moved(3e-4), 4)), Masks.ALIGNED)
    assert str(found.verdict) == "insufficient_data"


def test_a_run_that_starts_further_off_than_rounding_is_of_another_seed_and_widens_nothing() -> (
    None
):
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
    assert (
        str(numeric_finding(own, trace(Role.CANDIDATE, moved(3e-6)), Masks.ALIGNED).verdict)
        == "numeric_parity"
    )
    of_a_suite = replace(own, own_program=False)
    finding = numeric_finding(of_a_suite, trace(Role.CANDIDATE, moved(3e-6)), Masks.ALIGNED)
    assert str(finding.verdict) == "insufficient_data"
    assert "no usable perturbed run has seed" in finding.detail
    perturbed = replace(of_a_suite, epsilon=1e-6)
    assert (
        str(numeric_finding(perturbed, trace(Role.CANDIDATE, moved(3e-6)), Masks.ALIGNED).verdict)
        == "numeric_parity"
    )


DIGIT = 1 / 9
"""What one last decimal is of the envelope: within ten of it, and two decimals are not."""


@pytest.mark.parametrize(
    ("written", "floor"),
    [
        ([0.01, 0.02, 0.05], 0.01 * DIGIT),
        ([0.001, 0.002, 0.005], 0.001 * DIGIT),
        ([0.003121, 0.002345], 1e-6 * DIGIT),
        ([0.0031214, 0.0023456], 1e-7 * DIGIT),
        ([0.00312141, 0.002345678901], 4 * 2.0**-32),
    ],
    ids=["two decimals", "three", "six", "five digits", "more are no log's"],
)
def test_one_last_decimal_of_losses_is_within_the_envelope(written, floor) -> None:
    assert envelope(np.array(written), (), "loss", as_written=True).max() == pytest.approx(
        floor, rel=1e-9
    )


@pytest.mark.parametrize("norm", [4.0, 3.0, 56.27])
def test_one_last_decimal_of_norms_is_a_share_of_the_norm_though_logarithms_round(norm) -> None:
    found = envelope(scaled(np.array([norm]), "grad_norm"), (), "grad_norm", as_written=True)
    assert found.tolist() == pytest.approx([0.01 * DIGIT / norm])


def test_losses_of_few_bits_widen_their_own_envelope_by_two_neighbours_and_no_norms() -> None:
    ones = np.ones(3)
    assert envelope(ones, (), "loss", loss_bits=7).tolist() == pytest.approx(
        [2 * 2.0**-7 * DIGIT] * 3
    )
    assert envelope(ones, (), "grad_norm", loss_bits=7).tolist() == [4 * 2.0**-23] * 3


@pytest.mark.parametrize(
    ("by", "verdict"),
    [(2e-6, "numeric_parity"), (1e-4, "insufficient_data"), (0.025, "different_math")],
)
def test_a_program_that_repeats_every_bit_has_an_envelope(by, verdict) -> None:
    """Six decimals of losses about 2.5 are four fp32 numbers: a run in another rounding that repeats them repeated every bit."""
    written = rounded(LOSSES, 6)
    found = finding(rounded(moved(by), 6), written, reference=written)
    assert str(found.verdict) == verdict
    assert ("repeated every bit" in found.detail) == (verdict == "insufficient_data")


@pytest.mark.parametrize(
    ("steps", "says"), [(STEPS, "a loss 1 % off would have scored"), (9, "repeated every bit")]
)
def test_a_first_loss_that_is_off_by_one_bf16_rounding_is_no_other_seeds(steps, says) -> None:
    reference = [1.0, *LOSSES[1:]]
    off = [1.0 + 2.0**-8, *LOSSES[1:]][:steps]
    found = finding([1.0 + 1e-5, *LOSSES[1:]], off, reference=reference)
    assert says in found.detail
    assert "does not repeat itself" not in found.detail


@pytest.mark.parametrize(
    ("run", "says"),
    [((), "repeated every bit"), ((None, *LOSSES[1:]), "does not repeat itself")],
    ids=["none at all", "none at first"],
)
def test_runs_without_a_first_loss_tell_nothing_and_stop_nothing(run, says) -> None:
    found = finding(moved(1e-5), run)
    assert str(found.verdict) == "insufficient_data"
    assert says in found.detail


def numbered(role, *, steps, evaluations, labels=True):
    """A log of these steps, with a loss from an evaluation after every fifth step."""
    return replace(
        trace(role, [LOSSES[step] for step in steps]),
        steps=tuple(map(str, steps)) if labels else (),
        evaluations=tuple(evaluations),
    )


def compared(reference, run):
    """Judge a run against a reference that repeats every bit in three environments."""
    others = [
        replace(reference, role=Role.PERTURBED, start=f"rounding_{n}", index=n) for n in (1, 2, 3)
    ]
    both = replace(evidence(), traces=(reference, *others))
    return numeric_finding(both, run, Masks.ALIGNED)


EVERY = range(STEPS)
FOUR = (2.6123, 2.5123, 2.4123, 2.3123)


@pytest.mark.parametrize(
    ("steps", "evaluations", "verdict", "words"),
    [
        ([*range(8), *range(11, 20)], (2.6123, 2.4123, 2.3123), "insufficient_data", "in the 17 steps that both"),
        (range(12), (2.6123, 2.9123), "insufficient_data", "no difference in the 12 steps that both"),
        (range(17), (2.6123, 2.9123, 2.4123), "different_math", "are equal (the runs have 17 (candidate) and 20"),
        (EVERY, (2.6123, 2.9123, 2.4123, 2.3123), "different_math", "the training is equal, but the loss of"),
    ],
    ids=["a hole with an evaluation", "one at the end", "before the end", "complete"],
)  # fmt: skip
def test_evaluations_are_compared_at_equal_steps(steps, evaluations, verdict, words) -> None:
    reference = numbered(Role.REFERENCE, steps=EVERY, evaluations=FOUR)
    found = compared(reference, numbered(Role.CANDIDATE, steps=steps, evaluations=evaluations))
    assert str(found.verdict) == verdict
    assert words in found.detail


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ((True, False), "no number in the candidate's log counts every step once"),
        ((False, True), "no number in the reference's log counts every step once"),
        ((False, False), "no number in both logs counts every step once"),
    ],
)
def test_steps_that_are_matched_by_order_are_named(labels, words) -> None:
    reference = numbered(Role.REFERENCE, steps=EVERY, evaluations=(), labels=labels[0])
    run = numbered(
        Role.CANDIDATE, steps=[*range(8), *range(9, 20)], evaluations=(), labels=labels[1]
    )
    assert words in compared(reference, run).detail
    assert (
        "counts every step once"
        not in compared(reference, replace(reference, role=Role.CANDIDATE)).detail
    )


def test_logs_without_a_common_step_are_named() -> None:
    reference = numbered(Role.REFERENCE, steps=EVERY, evaluations=())
    run = replace(
        reference,
        role=Role.CANDIDATE,
        steps=tuple(f"epoch 1, iteration {n}" for n in range(19)),
        loss=LOSSES[:19],
    )
    found = compared(reference, run)
    assert str(found.verdict) == "insufficient_data"
    assert (
        "the candidate's steps are epoch 1, iteration 0 to epoch 1, iteration 18, and the reference's 0 to 19"
        in found.detail
    )
