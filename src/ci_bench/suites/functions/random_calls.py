"""Comparison of calls that draw random numbers: over several seeds. Imports torch."""

from collections.abc import Mapping

from torch import Tensor

from ci_bench.records.results import Outcome
from ci_bench.suites.functions.building import Built
from ci_bench.suites.shared.worker.draws import (
    SEEDS,
    Draws,
    apart_on_average,
    drawn_alike,
    moved_by_seeds,
    told_apart,
)

OF_REFERENCE, OF_CANDIDATE = 1_000, 2_000
"""The first seed of each."""


def follows_seeds(reference: Built, epsilon: float) -> bool:
    """Return true if a call of the reference has other results from another seed."""
    draws = Draws(direction=reference.take(draw=OF_REFERENCE - 1))
    draws.add(reference.take(draw=OF_REFERENCE - 2), reference.take(draw=OF_REFERENCE - 3))
    return bool(moved_by_seeds(draws, epsilon))


def judge_over_seeds(
    reference: Built, candidate: Built, epsilon: float
) -> tuple[Outcome, str] | None:
    """Return the verdict over seeds on a candidate that draws random numbers, and its reason.

    `None` if it drew the reference's own numbers.
    """
    wrong = _unexplained(reference, candidate, epsilon)
    if wrong is None:
        return None
    if wrong:
        return (
            Outcome.FAIL,
            (
                "it draws other random numbers than the reference, and these do not explain that"
                f" {wrong}"
            ),
        )
    return (
        Outcome.PASS,
        (
            "it draws other random numbers than the reference, and is indistinguishable from it"
            f" over {SEEDS} seeds"
        ),
    )


def _unexplained(reference: Built, candidate: Built, epsilon: float) -> str | None:
    """Describe the candidate's differences that other random numbers do not explain; else empty.

    `None` if it drew the reference's own numbers.
    """
    direction = reference.take(draw=OF_REFERENCE - 1)
    ours, theirs = Draws(direction=direction), Draws(direction=direction)
    lefts: tuple[list[Mapping[str, Tensor]], list[Mapping[str, Tensor]]] = ([], [])
    for built, draws, samples, begin in (
        (reference, ours, lefts[0], OF_REFERENCE),
        (candidate, theirs, lefts[1], OF_CANDIDATE),
    ):
        for place in range(0, SEEDS, 2):
            pair = [built.take(draw=begin + place + offset) for offset in (0, 1)]
            if any(_form(results) != _form(direction) for results in pair):
                return "its results have other names or shapes"
            draws.add(*pair)
            samples.extend(pair)
    moved = moved_by_seeds(ours, epsilon)
    spread = {name: max(ours.apart[name]) for name in moved}
    if not moved or drawn_alike(candidate.take(draw=OF_REFERENCE - 1), direction, spread):
        return None
    return told_apart(ours, theirs, epsilon) or apart_on_average(*lefts, tuple(ours.apart))


def _form(results: Mapping[str, Tensor]) -> dict[str, tuple[object, ...]]:
    return {name: (value.dtype, *value.shape) for name, value in results.items()}
