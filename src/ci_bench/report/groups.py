"""Common parameters of changed cases: ``dtype=bf16: 4.0 % slower in each of the 12 cases``. Pure.

Among the cases of one name, the sets considered are those that one value of a parameter, or two,
single out. A set is a group if nearly all of its cases changed in the same direction, and if that
many of a set of that size are unlikely by chance among the sets considered: the hypergeometric
tail, times their number (Bonferroni). The largest group comes first, then the largest of the
remaining cases. If nearly all cases of a name changed, the name is the group. A group says where
changes are; the policy decides which of them fail.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ci_bench.records.comparison import CaseComparison, Comparison, Finding, Pair, Verdict
from ci_bench.records.config import Rule
from ci_bench.records.labels import parted
from ci_bench.report import words
from ci_bench.report.columns import title_of
from ci_bench.report.once import once

LEAST_CASES = 3
"""Fewer are named themselves."""
LEAST_SHARE = 0.9
"""Share of a group's cases that have to have changed."""
CHANCE = 0.05
"""Probability that scattered changes look like a group, over all sets."""
_COMPARED = (
    Verdict.UNCHANGED,
    Verdict.INCONCLUSIVE,
    Verdict.REGRESSED,
    Verdict.SUSPECTED,
    Verdict.IMPROVED,
)
"""The commonest first: a search here is quicker than a hash, and there are many metrics."""
_WORSE = (Verdict.REGRESSED, Verdict.SUSPECTED)
_BETTER = (Verdict.IMPROVED,)

Condition = tuple[str, str]
"""A parameter, and its value as ids have it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Cases of one name that changed together in one metric of one arm."""

    name: str
    """The name that the cases share, without their brackets."""
    conditions: tuple[Condition, ...]
    """Up to two parameters that single the cases out; empty if they are all of the name."""
    arm: str
    """The arm that changed."""
    several_arms: bool
    """Whether the cases have other arms as well."""
    pairs: tuple[tuple[str, Pair], ...]
    """The changed pairs with their case's id, the farthest change first."""
    size: int
    """Number of cases that fit the conditions, changed or not."""

    @property
    def worse(self) -> bool:
        """Return whether they are slower or larger."""
        return self.pairs[0][1].verdict in _WORSE

    @property
    def title(self) -> str:
        """Return the metric's title."""
        return title_of(self.pairs[0][1])

    @property
    def change(self) -> str:
        """Return the largest change and the median.

        An example is ``up to 5.1 % slower in each of the 12 cases (median: 4.0 % slower)``.
        """
        usual = words.change(self.pairs[len(self.pairs) // 2][1])
        farthest = words.change(self.pairs[0][1])
        if farthest == usual:
            return f"{usual} in {self.extent}"
        return f"up to {farthest} in {self.extent} (median: {usual})"

    @property
    def extent(self) -> str:
        """Return the share of the cases: ``each of the 12 cases``."""
        number = len(self.pairs)
        suspected = sum(pair.verdict is Verdict.SUSPECTED for _, pair in self.pairs)
        share = (
            f"each of the {number:,} cases"
            if number == self.size
            else f"{number:,} of {self.size:,} cases"
        )
        return f"{share} ({suspected:,} of them suspected)" if suspected else share


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    id: str
    parameters: Mapping[str, str]
    pair: Pair


@once
def groups(comparison: Comparison) -> tuple[Group, ...]:
    """Return all groups, the worse ones first, the largest first."""
    sets: dict[tuple[str, str, str], list[_Case]] = {}
    several: dict[str, bool] = {}
    accepted = [
        finding for finding in comparison.judgement.findings if finding.rule is Rule.ACCEPTED
    ]
    names = [parted(case.id) for case in comparison.cases]
    numbers = Counter(name for name, _ in names)
    for case, (name, settings) in zip(comparison.cases, names, strict=True):
        if numbers[name] < LEAST_CASES:
            continue
        parameters = dict(settings)
        settled = [pair_of(finding, case) for finding in accepted if finding.case == case.id]
        several[name] = several.get(name, False) or len(case.arms) > 1
        for pair in case.pairs:
            if (
                not pair.detail
                and pair.verdict in _COMPARED
                and not any(pair is other for other in settled)
            ):
                member = _Case(id=case.id, parameters=parameters, pair=pair)
                sets.setdefault((name, pair.metric, pair.arm), []).append(member)
    all_groups = [
        Group(
            name=name,
            conditions=conditions,
            arm=arm,
            several_arms=several[name],
            pairs=_ordered(changed),
            size=size,
        )
        for (name, _, arm), cases in sets.items()
        for verdicts in (_WORSE, _BETTER)
        for conditions, changed, size in _groups(cases, verdicts)
    ]
    return tuple(sorted(all_groups, key=lambda group: (not group.worse, -len(group.pairs))))


def pair_of(finding: Finding, case: CaseComparison) -> Pair | None:
    """Return the metric that a finding is about.

    The message of an accepted finding starts with the person who accepted it.
    """
    about = ((pair, f"{pair.arm} {title_of(pair)}: {pair.reason}") for pair in case.pairs)
    accepted = finding.rule is Rule.ACCEPTED
    return next(
        (
            pair
            for pair, message in about
            if finding.message == message or (accepted and finding.message.endswith(f"; {message}"))
        ),
        None,
    )


def covered(comparison: Comparison, all_groups: Sequence[Group]) -> frozenset[Finding]:
    """Return the findings that groups report already.

    They belong to cases whose every change for the worse is in a group.
    """
    grouped_pairs = {
        (case, pair.metric, pair.arm)
        for group in all_groups
        if group.worse
        for case, pair in group.pairs
    }
    return frozenset(
        finding
        for finding, case in _of_changes(comparison)
        if all(
            (case.id, pair.metric, pair.arm) in grouped_pairs
            for pair in case.pairs
            if not pair.detail and pair.verdict in _WORSE
        )
    )


def _of_changes(comparison: Comparison) -> Iterator[tuple[Finding, CaseComparison]]:
    cases = {case.id: case for case in comparison.cases}
    for finding in comparison.judgement.findings:
        if finding.rule in {Rule.REGRESSED, Rule.SUSPECTED} and finding.case in cases:
            yield finding, cases[finding.case]


def _ordered(cases: Sequence[_Case]) -> tuple[tuple[str, Pair], ...]:
    """Sort by size of the change, the farthest first."""
    return tuple(
        (case.id, case.pair)
        for case in sorted(cases, key=lambda case: -abs(math.log(case.pair.speedup or 1.0)))
    )


def _groups(
    cases: Sequence[_Case], verdicts: tuple[Verdict, ...]
) -> Iterator[tuple[tuple[Condition, ...], list[_Case], int]]:
    """Yield conditions, the changed cases, and the number that fit, until no group remains."""
    changed = {place for place, case in enumerate(cases) if case.pair.verdict in verdicts}
    if len(changed) < LEAST_CASES:
        return
    if len(changed) >= LEAST_SHARE * len(cases):
        yield (), [cases[place] for place in sorted(changed)], len(cases)
        return
    sets = _sets(cases)
    likely = [
        (conditions, members)
        for conditions, members in sets.items()
        if len(members & changed) >= max(LEAST_CASES, LEAST_SHARE * len(members))
        and len(sets) * _tail(len(cases), len(changed), len(members), len(members & changed))
        <= CHANCE
    ]
    remaining = set(changed)
    while likely:
        conditions, members = min(
            likely,
            key=lambda candidate: (
                -len(candidate[1] & remaining),
                len(candidate[0]),
                len(candidate[1]),
                candidate[0],
            ),
        )
        if len(members & remaining) < max(LEAST_CASES, len(members) / 2):
            return
        yield conditions, [cases[place] for place in sorted(members & changed)], len(members)
        remaining -= members


def _sets(cases: Sequence[_Case]) -> dict[tuple[Condition, ...], set[int]]:
    """Return the places of the cases by one or two of their values.

    Parameters that all cases share say nothing, and are left out.
    """
    values = Counter(condition for case in cases for condition in case.parameters.items())
    telling = {condition for condition, number in values.items() if number < len(cases)}
    places: dict[tuple[Condition, ...], set[int]] = {}
    for place, case in enumerate(cases):
        case_conditions = sorted(
            condition for condition in case.parameters.items() if condition in telling
        )
        for conditions in (
            *((condition,) for condition in case_conditions),
            *combinations(case_conditions, 2),
        ):
            places.setdefault(conditions, set()).add(place)
    return places


def _tail(every: int, changed: int, size: int, hits: int) -> float:
    """Return P(X >= hits), X hypergeometric: the probability of `hits` if changes are scattered."""
    ways = sum(
        math.comb(changed, k) * math.comb(every - changed, size - k)
        for k in range(hits, min(size, changed) + 1)
    )
    return ways / math.comb(every, size)
