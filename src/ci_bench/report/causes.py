"""Sentences on the causes of a regression. Pure.

The first three parts that take longer, failures of compiling, and holders of memory.

Owns the choice and the words, for every renderer: names and places come from a worker, so each
renderer passes in how it shows them. All of it is in a table of the page (`columns.PARTS`).
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ci_bench.records.causes import Cause, CausePart, MemoryPart
from ci_bench.records.comparison import CaseComparison, Comparison, Finding, Pair, Verdict
from ci_bench.records.config import Rule
from ci_bench.records.metrics import COMPILATIONS, COMPILE_COLD, COMPILE_PHASES
from ci_bench.records.profiles import Bundle
from ci_bench.records.units import TIMES
from ci_bench.report.text import bytes_, percent, seconds

SHOWN = 3
_PHASES = {kind.name: kind.title.rpartition(", ")[2] for kind in COMPILE_PHASES}
_WORSE = frozenset({Rule.REGRESSED, Rule.SUSPECTED})
WRONG = frozenset(
    {
        Rule.PARITY_BROKEN,
        Rule.ACCURACY_BROKEN,
        Rule.LEARNING_CHANGED,
        Rule.OUTPUTS_CHANGED,
        Rule.CHECK_FAILED,
        Rule.CASE_FAILED,
    }
)
"""Rules whose findings reveal a compiler that is wrong, or fails."""
_COMMIT = re.compile(r"[0-9a-f]{12,64}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{1,290}")
_PLAIN_COMMAND = re.compile(r"[A-Za-z0-9_.,=+:/\[\]' -]{1,900}")
_LEAST_ATTRIBUTED = 0.05

Form = Callable[[str], str]
"""Renders a text from outside."""


def explained(case: CaseComparison, *, name: Form, prose: Form) -> tuple[str, ...]:
    """Return a sentence for each known cause of a case that got worse; none if none is blamed."""
    causes = {cause.arm: cause for cause in case.causes}
    compiling = {
        pair.arm: pair
        for pair in case.pairs
        if pair.metric in COMPILATIONS and pair.verdict.worse and not pair.detail
    }
    arms = [arm for arm in (*causes, *compiling) if arm in compiling or _is_blamed(causes[arm])]
    several = len(dict.fromkeys(arms)) > 1
    edited = (
        ("the benchmark itself changed: its own code differs from base's",) if case.edited else ()
    )
    return edited + tuple(
        f"{name(arm)}: {sentence}" if several else sentence
        for arm in dict.fromkeys(arms)
        for sentence in (
            *(_longer(case, compiling[arm], causes.get(arm), name) if arm in compiling else ()),
            *(
                _sentences(causes[arm], compiles=arm in compiling, name=name, prose=prose)
                if arm in causes
                else ()
            ),
        )
    )


def _longer(case: CaseComparison, pair: Pair, cause: Cause | None, name: Form) -> Iterator[str]:
    """Yield the phases of compiling that take longer, and the kernels that differ."""
    phases = [
        (phase.head.median - phase.base.median, phase)
        for phase in case.pairs
        if phase.arm == pair.arm
        and phase.metric.startswith(f"{COMPILE_COLD.name}_")
        and phase.base is not None
        and phase.head is not None
    ]
    grown = sorted(
        ((change, phase) for change, phase in phases if change > 0),
        key=lambda each: each[0],
        reverse=True,
    )
    if grown and pair.metric == COMPILE_COLD.name:
        phrases = (
            f"{_PHASES.get(phase.metric, phase.metric)} (+{seconds(change)})"
            for change, phase in grown[:SHOWN]
        )
        yield f"compiling takes longer in: {'; '.join(phrases)}"
    if cause is not None and (cause.new_kernels or cause.gone_kernels):
        both = (("new", cause.new_kernels), ("gone", cause.gone_kernels))
        yield (
            "kernels:"
            f" {'; '.join(f'{word}: {_first(names, name)}' for word, names in both if names)}"
        )


def _first(names: Sequence[str], name: Form) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(map(name, names[:SHOWN])) + more


def _is_blamed(cause: Cause) -> bool:
    return cause.slower or cause.larger


def _sentences(cause: Cause, *, compiles: bool, name: Form, prose: Form) -> Iterator[str]:
    """Yield the sentences of one arm; `compiles` says that it was judged to compile longer."""
    if cause.unknown:
        yield f"not explained: {prose(cause.unknown)}"
        return
    if cause.slower:
        yield _slower(cause, name)
    if cause.slower or compiles:
        for broken in cause.new_breaks[:SHOWN]:
            yield (
                "new graph break:"
                f" {prose(broken.reason)}{_at((broken.place,) if broken.place else (), name)}"
            )
        for reason in cause.new_recompiles[:SHOWN]:
            yield f"compiles again: {prose(reason)}"
    grown = [part for part in cause.memory if part.change_bytes > 0][:SHOWN] if cause.larger else []
    if grown:
        yield (
            f"more memory at the peak of a step: {'; '.join(_larger(part, name) for part in grown)}"
        )


def _slower(cause: Cause, name: Form) -> str:
    """Describe the first three parts, and how much all of them explain."""
    parts = [part for part in cause.parts if part.change_s > 0]
    if (
        cause.attributed is None
        or cause.base_s is None
        or cause.head_s is None
        or cause.head_s <= cause.base_s
    ):
        longer = "; ".join(_part(replace(part, share=None), name) for part in parts[:SHOWN])
        slower = "under the profiler the step as a whole was no slower"
        return f"probably {longer} ({slower})" if longer else f"not explained: {slower}"
    share = f"{percent(cause.attributed)} of the change attributed"
    if not parts or cause.attributed < _LEAST_ATTRIBUTED:
        return f"not explained: no operator changed by more than its noise ({share})"
    more = f"; {len(parts) - SHOWN:,} more in the report" if len(parts) > SHOWN else ""
    return f"slower in: {'; '.join(_part(part, name) for part in parts[:SHOWN])}{more}. {share}"


def _part(part: CausePart, name: Form) -> str:
    has_share = part.share is not None and part.share <= 1  # more, if other parts became faster
    share = f", {percent(part.share)} of the profiled change" if has_share else ""
    layout_note = ", where the layout that they read is made" if part.by_layout else ""
    return (
        f"{called(part, name)} (+{seconds(part.change_s)} a"
        f" step{share}){_at(part.places, name)}{layout_note}"
    )


def called(part: CausePart, name: Form) -> str:
    """Name a part: its largest name on head, or base's if it is gone, and the name it replaces."""
    before, after = part.before[:1], part.after[:1]
    if after and before and _unlike(before[0], after[0]):
        return f"{name(after[0])}{_others(part.after)} for {name(before[0])}{_others(part.before)}"
    if after:
        return f"{name(after[0])}{_others(part.after)}{'' if before else ', new'}"
    return f"{name(before[0])}{_others(part.before)}, gone" if before else "nothing"


def _others(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _unlike(first: str, second: str) -> bool:
    """Return whether two names differ in more than their numbering."""
    return re.sub(r"\d+", "", first) != re.sub(r"\d+", "", second)


def _larger(part: MemoryPart, name: Form) -> str:
    return f"{name(part.name)} (+{bytes_(part.change_bytes)}){_at(part.places, name)}"


def _at(places: Sequence[str], name: Form) -> str:
    return f" at {name(places[0])}" if places else ""


def reproduced(case: CaseComparison, *, name: Form, prose: Form) -> tuple[str, ...]:
    """Return a sentence for each arm with a graph that fails in isolation.

    It has the command that shows it, and the message.
    """
    bundles = [(cause.arm, cause.bundle) for cause in case.causes if cause.bundle is not None]
    return tuple(
        (
            f"reproduce {name(arm)}: `{reproducing(bundle)}`: {prose(bundle.says)}"
            if reproducing(bundle)
            else (
                f"a graph of {name(arm)} fails in isolation ({prose(bundle.says)}); its file was"
                " not kept"
            )
        )
        for arm, bundle in bundles
    )


def reproducing(bundle: Bundle) -> str:
    """Return the whole command that shows it, to be copied.

    It is empty if the file was not kept, or if its path is not one of ours.
    """
    is_safe = _PLAIN_PATH.fullmatch(bundle.path) and ".." not in bundle.path
    return f"python {bundle.path}" if is_safe else ""


def first_of_case(findings: Sequence[Finding], rules: frozenset[Rule] = _WORSE) -> frozenset[int]:
    """Return the positions of the first finding of each case by one of the rules.

    The default rules say that a case got worse.
    """
    places: dict[str, int] = {}
    for place, finding in enumerate(findings):
        if finding.case is not None and finding.rule in rules:
            places.setdefault(finding.case, place)
    return frozenset(places.values())


def bisect_command(comparison: Comparison, case: CaseComparison) -> str:
    """Return the command that looks for the commit.

    It is empty if there are not two known commits, or if nothing is certain to be worse.
    """
    sides = [comparison.base, comparison.head]
    commits = [
        (side.source.commit or "")[:12]
        for side in sides
        if side is not None and not side.source.dirty
    ]
    worse = [
        pair
        for pair in case.pairs
        if pair.verdict is Verdict.REGRESSED and not pair.detail and pair.speedup
    ]
    if (
        len(commits) < len(sides)
        or not all(map(_COMMIT.fullmatch, commits))
        or commits[0] == commits[1]
        or not worse
    ):
        return ""
    metric = min(worse, key=lambda pair: (pair.unit not in TIMES, pair.speedup or 1.0)).metric
    command = shlex.join(
        ["ci-bench", "history", "bisect", *commits, "--filter", case.id, "--metric", metric]
    )
    return command if _PLAIN_COMMAND.fullmatch(command) else ""
