"""Causes of a verdict: two profiles of an arm become changes, ranked by their share. Pure.

The share is that of the change of the step.

Owns which arms are worth explaining, and how rows of base and head are matched: by name and text of
the line; by name and place; by name and order in the file; then fused kernels by the set of
operators that they fuse, and replacements on the same line. New rows of one line are one part, and
so are rows that read a layout made by one of head's lines. Rows that moved by less than their noise
are left out of the change.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import product

from ci_bench.judge.policy.kernels import kernel_changes, operators_of, unnumbered
from ci_bench.judge.policy.matching import closest, pair_off
from ci_bench.records.causes import Cause, CausePart, MemoryPart
from ci_bench.records.comparison import CaseComparison, Pair, Parity
from ci_bench.records.metrics import COMPILATIONS
from ci_bench.records.profiles import GraphBreak, Profile, ProfileRow, RowKind, SourceLine
from ci_bench.records.results import CaseResult, Outcome, Unit
from ci_bench.records.units import TIMES

MOST_PARTS, MOST_NAMES, MOST_PLACES = 60, 6, 4
NOISE_ERRORS = 3.0
"""A row that moved by fewer standard errors did not change."""
SCATTERS, SAME_CALLS, FEWEST_SAME = 3.0, 0.1, 3
"""A row ranks by how far it moved beyond SCATTERS times the spread of comparable rows.

Comparable rows are on both sides and called as often, within the share SAME_CALLS. There have to be
FEWEST_SAME of them.
"""
LEAST_SHARE_OF_STEP = 0.005
"""And one that moved by less of base's step is not worth a line."""
LEAST_MEMORY = 64 * 1024


def arms_to_explain(case: CaseComparison) -> tuple[str, ...]:
    """Return the arms of a case that got worse, learn something else or failed a check, in order.

    If head's outputs or training differ from base's, that is the reference arm.
    """
    worse = [pair.arm for pair in _worse(case.pairs)]
    broken = [finding.arm for finding in case.parity if finding.verdict.broken]
    failed = [
        check.arm
        for check in case.checks
        if check.outcome is Outcome.FAIL and not check.informative
    ]
    diverges = case.learning is not None and case.learning.verdict in {
        Parity.DIFFERENT_MATH,
        Parity.DIFFERENT,
    }
    reference = [case.reference] if diverges and case.reference else []
    affected = dict.fromkeys((*worse, *broken, *failed, *reference))
    return tuple(arm for arm in affected if arm in case.arms)


def arms_that_fail_to_compile(rows: Iterable[CaseResult]) -> Mapping[str, tuple[str, ...]]:
    """Return the candidate arms of each case that a compiler's error ended.

    One of them has the graph that the compiler's authors need.
    """
    return {
        row.case.id: tuple(arm for arm in row.case.arms if arm != row.case.reference)
        for row in rows
        if row.failure is not None and row.failure.of_compiler
    }


def _worse(pairs: Iterable[Pair]) -> list[Pair]:
    worse = [pair for pair in pairs if pair.verdict.worse and not pair.detail]
    return sorted(worse, key=lambda pair: pair.speedup if pair.speedup is not None else math.inf)


def causes(base: CaseResult | None, head: CaseResult, pairs: Sequence[Pair]) -> tuple[Cause, ...]:
    """Return the causes for each arm that was explained on head, and on base if it is there."""
    if not head.profiles:
        return ()
    before = {profile.arm: profile for profile in base.profiles} if base else {}
    worse = _worse(pairs)
    slower = {pair.arm for pair in worse if pair.unit in TIMES and pair.metric not in COMPILATIONS}
    return tuple(
        replace(
            cause_of(before.get(profile.arm), profile, slower=profile.arm in slower),
            larger=any(pair.arm == profile.arm and pair.unit is Unit.BYTES for pair in worse),
        )
        for profile in head.profiles
    )


def cause_of(base: Profile | None, head: Profile, *, slower: bool = False) -> Cause:
    """Explain the change between two profiles.

    `slower`: head's steps were judged slower.
    """
    if base is None or base.step_s is None or head.step_s is None:
        base_s = base.step_s if base else None
        unknown = _why(base, head)
        return Cause(
            arm=head.arm,
            slower=slower,
            base_s=base_s,
            head_s=head.step_s,
            unknown=unknown,
            bundle=head.bundle,
        )
    matches = matched(base.rows, head.rows)
    change_s = head.step_s - base.step_s
    moved = ranked_by_what_is_beyond(
        [match for match in matches if match.moved(base.step_s)],
        matches,
        slower=slower or change_s >= 0,
    )
    old = {_text(line) for row in base.rows for line in row.lines}
    ranked = [part for match in moved if (part := _part(match, old)) is not None]
    is_known = abs(change_s) > LEAST_SHARE_OF_STEP * base.step_s
    kernels = [
        {row.name for row in side.rows if row.kind is RowKind.KERNEL} for side in (base, head)
    ]
    return Cause(
        arm=head.arm,
        slower=slower,
        base_s=base.step_s,
        head_s=head.step_s,
        attributed=_attributed(ranked, change_s) if is_known else None,
        parts=tuple(
            replace(part, share=part.change_s / change_s if is_known else None)
            for part in ranked[:MOST_PARTS]
        ),
        memory=_memory(base.rows, head.rows),
        new_breaks=_more_breaks(base.breaks, head.breaks),
        gone_breaks=_more_breaks(head.breaks, base.breaks),
        new_recompiles=tuple(
            recompile for recompile in head.recompiles if recompile not in base.recompiles
        ),
        new_kernels=tuple(sorted(_unnumbered(kernels[1], kernels[0])))[:MOST_PARTS],
        gone_kernels=tuple(sorted(_unnumbered(kernels[0], kernels[1])))[:MOST_PARTS],
        kernels=kernel_changes(base.kernels, head.kernels),
        bundle=head.bundle,
    )


def _why(base: Profile | None, head: Profile) -> str:
    if base is None:
        return "base was not explained"
    return next(
        (
            f"{side}: {profile.unknown or 'nothing is known'}"
            for side, profile in (("base", base), ("head", head))
            if profile.step_s is None
        )
    )


def _attributed(parts: Iterable[CausePart], change_s: float) -> float:
    """Return the share of the change that the parts explain.

    Parts that exceed the change by some amount count like parts that fall short by it.
    """
    return max(0.0, 1.0 - abs(1.0 - sum(part.change_s for part in parts) / change_s))


@dataclass(kw_only=True, slots=True)
class KernelMatch:
    """Rows of both sides that are the same or replace each other, or the readers of a layout."""

    base: list[ProfileRow] = field(default_factory=list)
    head: list[ProfileRow] = field(default_factory=list)
    layout: tuple[SourceLine, ...] = ()

    @property
    def change_s(self) -> float:
        """Return the change in seconds; positive is slower."""
        return sum(row.seconds for row in self.head) - sum(row.seconds for row in self.base)

    @property
    def is_same(self) -> bool:
        """Return whether it is one row that both sides call equally often."""
        if (
            len(self.base) != 1
            or len(self.head) != 1
            or self.layout
            or plain_name(self.base[0]) != plain_name(self.head[0])
        ):
            return False
        return abs(self.head[0].calls - self.base[0].calls) <= SAME_CALLS * self.base[0].calls

    def moved(self, step_s: float) -> bool:
        """Return whether it changed beyond its noise, and enough to name in a step of `step_s`."""
        error_s = math.hypot(*(row.error_s for row in (*self.base, *self.head)))
        return abs(self.change_s) > max(NOISE_ERRORS * error_s, LEAST_SHARE_OF_STEP * step_s)


def ranked_by_what_is_beyond(
    moved: Iterable[KernelMatch], every: Iterable[KernelMatch], *, slower: bool
) -> list[KernelMatch]:
    """Rank rows by how far they moved in the step's direction, beyond the noise between processes.

    Ties are ordered by the entire movement.

    Two processes of unchanged code differ by more than the steps of one do: addresses and clock
    rates differ. A large unchanged operator must not rank before a small new one because of that.
    """
    same = [match for match in every if match.is_same and match.base[0].seconds > 0]
    sign = 1.0 if slower else -1.0

    def beyond(match: KernelMatch) -> tuple[float, float]:
        allowance_s = (
            SCATTERS
            * scatter_of([other for other in same if other is not match])
            * match.base[0].seconds
            if match.is_same
            else 0.0
        )
        return max(0.0, sign * match.change_s - allowance_s), sign * match.change_s

    return sorted(moved, key=beyond, reverse=True)


def scatter_of(same: Sequence[KernelMatch]) -> float:
    """Return the median relative deviation of rows that both sides have.

    Each row counts by base's seconds.
    """
    deviations = sorted(
        (abs(match.change_s) / match.base[0].seconds, match.base[0].seconds) for match in same
    )
    half_s = (
        sum(seconds for _, seconds in deviations) / 2
        if len(deviations) >= FEWEST_SAME
        else math.inf
    )
    for deviation, seconds in deviations:
        half_s -= seconds
        if half_s <= 0:
            return deviation
    return 0.0


def matched(base: Iterable[ProfileRow], head: Iterable[ProfileRow]) -> list[KernelMatch]:
    """Match the rows of both sides; each is in exactly one match."""
    base_rows, head_rows = [list(rows) for rows in (base, head)]
    paired = [
        KernelMatch(base=[before], head=[after])
        for key in (_by_code, _by_place, _by_file, _by_name, _by_operators)
        for before, after in pair_off(base_rows, head_rows, key, _by_lines)
    ]
    return _by_layout([*paired, *_replaced(base_rows, head_rows)])


def _by_code(row: ProfileRow) -> Hashable:
    return row.kind, plain_name(row), tuple(sorted((line.file, line.code) for line in row.lines))


def _by_place(row: ProfileRow) -> Hashable:
    return row.kind, plain_name(row), tuple(sorted(line.place for line in row.lines))


def _by_file(row: ProfileRow) -> Hashable:
    return row.kind, plain_name(row), tuple(sorted({line.file for line in row.lines}))


def _by_name(row: ProfileRow) -> Hashable:
    return row.kind, plain_name(row)


def _by_operators(row: ProfileRow) -> Hashable | None:
    return (
        (row.kind, operators_of(row.name))
        if row.kind is RowKind.KERNEL and operators_of(row.name)
        else None
    )


def plain_name(row: ProfileRow) -> str:
    """Return a row's name, of a kernel without its numbering: ``triton_poi_fused_add``."""
    return unnumbered(row.name) if row.kind is RowKind.KERNEL else row.name


def _by_lines(
    base: Sequence[ProfileRow], head: Sequence[ProfileRow]
) -> list[tuple[ProfileRow, ProfileRow]]:
    """Pair rows in the order of their lines, with the least difference of seconds."""
    return closest(sorted(base, key=_order), sorted(head, key=_order), lambda row: row.seconds)


def _order(row: ProfileRow) -> tuple[str, int]:
    file, _, number = row.lines[0].place.rpartition(":") if row.lines else ("", "", "")
    return file, (int(number) if number.isdigit() and len(number) < 10 else 0)  # noqa: PLR2004 - digits of a line's number


def _replaced(base: list[ProfileRow], head: list[ProfileRow]) -> list[KernelMatch]:
    """Match rows of only one side by shared operators of fused kernels, or by line.

    Else keep them single.
    """
    groups = [KernelMatch(base=rows) for rows in _by_line(base)]
    for rows in _by_line(head):
        related = [
            group
            for group in groups
            if group.base and any(_is_related(*pair) for pair in product(_rows(group), rows))
        ]
        merged = KernelMatch(
            base=[row for match in related for row in match.base],
            head=[*(row for match in related for row in match.head), *rows],
        )
        groups = [
            *(group for group in groups if not any(group is match for match in related)),
            merged,
        ]
    return groups


def _by_line(rows: Iterable[ProfileRow]) -> list[list[ProfileRow]]:
    """Group what one line calls directly, operators and Python alike; kernels stay single.

    Kernels can be fused, so each is a group.
    """
    groups: dict[Hashable, list[ProfileRow]] = defaultdict(list)
    for number, row in enumerate(rows):
        alone = row.kind is RowKind.KERNEL or len(row.lines) != 1
        groups[number if alone else row.lines[0].place].append(row)
    return list(groups.values())


def _rows(match: KernelMatch) -> tuple[ProfileRow, ...]:
    return (*match.base, *match.head)


def _by_layout(matches: Sequence[KernelMatch]) -> list[KernelMatch]:
    """Group rows that read a new layout with the new rows on the line that made it.

    A layout is new if no row of base reads one that a line of the same text made. Calls of a line
    that is new belong to that line, whatever they read.
    """
    base = [row for match in matches for row in match.base]
    old = {_text(line) for row in base for line in row.laid_out}
    lines = {_text(line) for row in base for line in row.lines}
    readers: dict[SourceLine, list[KernelMatch]] = defaultdict(list)
    others = []
    for match in matches:
        reads = {line for row in match.head for line in row.laid_out if _text(line) not in old}
        is_known = bool(match.base) or all(
            _text(line) in lines for row in match.head for line in row.lines
        )
        if reads and is_known:
            readers[min(reads, key=lambda line: line.place)].append(match)
        else:
            others.append(match)
    for line, group in readers.items():
        group += [
            match
            for match in others
            if not match.base and all(row.lines == (line,) for row in match.head)
        ]
    grouped = {id(match) for group in readers.values() for match in group}
    together = (
        KernelMatch(
            base=[row for match in group for row in match.base],
            head=[row for match in group for row in match.head],
            layout=(line,),
        )
        for line, group in readers.items()
    )
    return [*(match for match in others if id(match) not in grouped), *together]


def _text(line: SourceLine) -> tuple[str, str]:
    return line.file, line.code


def _is_related(row: ProfileRow, candidate: ProfileRow) -> bool:
    """Return whether a row of one side may correspond to a row of the other."""
    if RowKind.PYTHON in {row.kind, candidate.kind}:
        return False
    words = operators_of(row.name), operators_of(candidate.name)
    if all(words):
        return len(words[0] & words[1]) * 2 >= min(len(words[0]), len(words[1]))
    if any(words):
        fused, other = (row, candidate) if words[0] else (candidate, row)
        return other.name.removeprefix("aten::").strip("_") in operators_of(
            fused.name
        ) or _share_a_line(row, candidate)
    return _share_a_line(row, candidate)


def _share_a_line(row: ProfileRow, candidate: ProfileRow) -> bool:
    return bool({line.place for line in row.lines} & {line.place for line in candidate.lines})


def _part(match: KernelMatch, old: AbstractSet[tuple[str, str]]) -> CausePart | None:
    """Return a match as a part of the change; `None` if no row has a name.

    Lines whose text base does not have come first: a fused kernel has more than are shown.
    """
    rows = (*match.base, *match.head)
    if not any(row.name for row in rows):
        return None
    before, after = (_names(side) for side in (match.base, match.head))
    every = dict.fromkeys(
        (*match.layout, *(line for row in _largest(match.head or match.base) for line in row.lines))
    )
    lines = sorted(every, key=lambda line: not line.code or _text(line) in old)
    return CausePart(
        kind=_largest(rows)[0].kind,
        before=before,
        after=after,
        places=tuple(line.place for line in lines)[:MOST_PLACES],
        codes=tuple(line.code for line in lines)[:MOST_PLACES],
        base_s=math.fsum(row.seconds for row in match.base),
        head_s=math.fsum(row.seconds for row in match.head),
        base_calls=math.fsum(row.calls for row in match.base),
        head_calls=math.fsum(row.calls for row in match.head),
        by_layout=bool(match.layout),
    )


def _largest(rows: Iterable[ProfileRow]) -> list[ProfileRow]:
    return sorted(rows, key=lambda row: row.seconds, reverse=True)


def _names(rows: Iterable[ProfileRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.name for row in _largest(rows)))[:MOST_NAMES]


def _memory(base: Iterable[ProfileRow], head: Iterable[ProfileRow]) -> tuple[MemoryPart, ...]:
    """List the holders of peak memory that changed, the largest change first.

    They are matched by name, then by line.
    """
    sides: list[dict[tuple[str, tuple[str, ...]], float]] = []
    places: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for rows in (base, head):
        alive: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        for row in rows:
            if row.alive_bytes:
                key = plain_name(row), tuple(f"{line.file}\n{line.code}" for line in row.lines)
                alive[key] += row.alive_bytes
                places[key] = tuple(line.place for line in row.lines)[:MOST_PLACES]
        sides.append(alive)
    parts = (
        MemoryPart(
            name=key[0],
            places=where,
            base_bytes=sides[0].get(key, 0.0),
            head_bytes=sides[1].get(key, 0.0),
        )
        for key, where in places.items()
    )
    moved = (part for part in parts if abs(part.change_bytes) >= LEAST_MEMORY)
    return tuple(sorted(moved, key=lambda part: part.change_bytes, reverse=True))[:MOST_PARTS]


def _more_breaks(
    before: Sequence[GraphBreak], after: Sequence[GraphBreak]
) -> tuple[GraphBreak, ...]:
    """Return breaks whose reason is new or more frequent, at a new line or the last one."""
    counts: Mapping[str, int] = _counted(before)
    more = []
    for reason, times in _counted(after).items():
        if times > counts.get(reason, 0):
            of_reason = [graph_break for graph_break in after if graph_break.reason == reason]
            old_places = {
                graph_break.place for graph_break in before if graph_break.reason == reason
            }
            place = next(
                (
                    graph_break.place
                    for graph_break in of_reason
                    if graph_break.place not in old_places
                ),
                of_reason[-1].place,
            )
            more.append(GraphBreak(reason=reason, place=place, times=times - counts.get(reason, 0)))
    return tuple(more)


def _counted(breaks: Iterable[GraphBreak]) -> dict[str, int]:
    times: dict[str, int] = defaultdict(int)
    for graph_break in breaks:
        times[graph_break.reason] += graph_break.times
    return times


def _unnumbered(names: Iterable[str], other: Iterable[str]) -> set[str]:
    """Return the names that, without their numbering, are not among the other's."""
    excluded = {unnumbered(name) for name in other}
    return {name for name in names if unnumbered(name) not in excluded}
