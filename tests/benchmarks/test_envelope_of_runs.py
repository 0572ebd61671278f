"""Honest runs in envelopes of others: one that is wide by itself leaves that of a narrow one, and not that of all."""

from dataclasses import replace

from benchmarks.envelope_of_runs import DRAWN, scores
from judge_builders import evidence, perturbed, trace

from ci_bench.records.results import Role


def test_a_wide_run_leaves_the_envelope_of_narrow_ones_alone():
    runs = [perturbed(size, index=index) for index, size in enumerate((1e-6, 1e-6, 50e-6, 60e-6))]
    known = evidence(trace(Role.REFERENCE), *runs)
    of_one, of_three = [*scores(known, 1)], [*scores(known, 3)]
    assert (len(of_one), len(of_three)) == (4 * 3, 4 * DRAWN)
    assert sum(score > 10 for score in of_one) == 4, (
        "each of the two wide ones beside each of the two narrow ones"
    )
    assert max(of_three) < 2


def test_equal_runs_are_one_width_from_the_reference_each():
    same = [replace(perturbed(1e-6, index=index), start=f"start {index}") for index in range(3)]
    assert {round(score, 6) for score in scores(evidence(trace(Role.REFERENCE), *same), 1)} == {1.0}
