"""Each candidate arm against the reference arm of its own run: speedups, and compression ratios of memory.

Owns which metrics are held against which. Arms share their launches, so what a launch does to both cancels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ci_bench.judge.cases.lines import Key, Keyed, oriented
from ci_bench.judge.cases.matching import Match
from ci_bench.judge.statistics import ratios
from ci_bench.judge.statistics.series import Known
from ci_bench.records.case import Metric, Unit
from ci_bench.records.comparison import ArmSpeedup, SpeedupChange

Changes = Mapping[str, Mapping[Key, SpeedupChange]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """A metric that an arm shares with the reference arm, on head and, where it has it too, on base."""

    case: int
    key: Key
    reference: str
    head: tuple[Metric, Metric]
    base: tuple[Metric, Metric] | None


def arm_speedups(matches: Sequence[Match], known: Known, changes: Changes, *, with_base: bool) -> list[tuple[ArmSpeedup, ...]]:
    """For each case every time, rate and peak that an arm shares with the reference, on head and, `with_base`, on base too.

    `known` holds the facts of all series, `changes` what a paired run says of whether head changed a speedup.
    """
    found = [one for case, match in enumerate(matches) for one in _shared(case, match, with_base=with_base)]
    measured = ratios.ratios([oriented(*one.head) for one in found], known, paired=True)
    answers: list[list[ArmSpeedup]] = [[] for _ in matches]
    for one, ratio in zip(found, measured, strict=True):
        if ratio.value is not None:
            speedup = ArmSpeedup(
                metric=one.key[0],
                arm=one.key[1],
                reference=one.reference,
                speedup=ratio.value,
                interval=ratio.interval,
                base_speedup=_earlier(one.base, known) if one.base else None,
                change=changes.get(matches[one.case].head.case.id, {}).get(one.key),
            )
            answers[one.case].append(speedup)
    return [tuple(of) for of in answers]


def _earlier(arms: tuple[Metric, Metric], known: Known) -> float | None:
    one, two = oriented(*arms)
    return ratios.ratio_of_medians(known[id(one)], known[id(two)])


def _shared(case: int, match: Match, *, with_base: bool) -> Iterator[_Found]:
    reference = match.head.case.reference
    for key in match.after:
        if arms := _two_arms(match.after, key, reference):
            earlier = _two_arms(match.before, key, reference) if with_base else None
            yield _Found(case=case, key=key, reference=reference, head=arms, base=earlier)


def _two_arms(metrics: Keyed, key: Key, reference: str) -> tuple[Metric, Metric] | None:
    """The metric of the reference arm and of another, where both have it once and it means the same; counts have no speedup."""
    one, two = metrics.get((key[0], reference), ()), metrics.get(key, ())
    if key[1] == reference or len(one) != 1 or len(two) != 1 or one[0].unit is Unit.COUNT:
        return None
    alike = (one[0].unit, one[0].better, one[0].lane) == (two[0].unit, two[0].better, two[0].lane)
    return (one[0], two[0]) if alike else None
